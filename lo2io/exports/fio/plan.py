"""All actions of a trace in the order of their begin, in little memory.

The tables hold rows in the order of their ends. A first pass notes, of each batch of a table, the earliest begin from
there on; a second one holds back only what may still be preceded. The first pass also counts what there is for each job
and file, so that a log can close files behind their last use.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from lo2io.exports.fio.actions import COLUMNS, READ, REASONS, TRIM, WRITE, Source, sources
from lo2io.exports.fio.owners import DIRECT, DSYNC, FULL_SYNC

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

    from lo2io.model import Columns
    from lo2io.trace.reader import Trace

BLOCK_BYTES: Final = 1 << 20
"""What is made of a file at a time."""
_PAGE_BYTES: Final = 4096
_PAGES: Final = BLOCK_BYTES // _PAGE_BYTES
_LATEST: Final = 2**63 - 1
_MODE_BITS: Final = 3


@dataclass(slots=True)
class Job:
    """What one log holds: the actions of a process, thread or disk that were done in one way."""

    label: str
    """Unique among the jobs; fit for a file's name."""
    modes: int
    """``DIRECT``, ``DSYNC``, ``FULL_SYNC``."""
    uses: dict[int, int] = field(default_factory=dict)
    """How many actions each file has."""
    moves: bool = False
    """It reads, writes or trims: fio (3.33) refuses a log of syncs alone in version 3."""
    writes: bool = False


@dataclass(slots=True)
class Plan:
    """What there is to do, and who does it."""

    by: str
    jobs: dict[int, Job]
    """By key."""
    paths: list[bytes]
    """The files, by number."""
    left_out: Counter[int]
    """How many operations are in no job, by code of ``fio_actions.REASONS``."""
    begin_ns: int
    """Of the first action."""
    _sources: list[Source]
    _least: list[list[int]]

    @property
    def nr_actions(self) -> int:
        """Of all jobs."""
        return sum(sum(job.uses.values()) for job in self.jobs.values())

    def notes(self) -> tuple[str, ...]:
        """What was left out, a line each."""
        return tuple(f"left out: {count:,} {REASONS[code]}" for code, count in sorted(self.left_out.items()) if count)

    def actions(self, progress: Callable[[float], None]) -> Iterator[Columns]:
        """All actions in the order of their begins: ``fio_actions.COLUMNS`` and ``job``, its key."""
        readers = [source.batches(None) for source in self._sources]
        places = [0] * len(readers)
        every = max(1, sum(len(least) - 1 for least in self._least))
        held = _empty()
        for step in range(every):
            coming = [least[place] for least, place in zip(self._least, places, strict=True)]
            open_ = [index for index, reader in enumerate(readers) if places[index] < len(self._least[index]) - 1]
            if not open_:
                break
            index = min(open_, key=lambda each: coming[each])
            batch = next(readers[index])
            places[index] += 1
            held = {name: np.concatenate([held[name], batch[name]]) for name in COLUMNS}
            border = min(least[place] for least, place in zip(self._least, places, strict=True))
            ready, held = _split(held, border)
            if len(ready["time_ns"]):
                yield {**ready, "job": job_keys(ready)}
            progress((step + 1) / every)


def _empty() -> Columns:
    return {name: np.zeros(0, np.int64) for name in COLUMNS}


def _split(rows: Columns, border: int) -> tuple[Columns, Columns]:
    """Rows in order of time, up to the border and behind it."""
    order = np.argsort(rows["time_ns"], kind="stable")
    cut = int(np.searchsorted(rows["time_ns"][order], border)) if border < _LATEST else len(order)
    return (
        {name: values[order[:cut]] for name, values in rows.items()},
        {name: values[order[cut:]] for name, values in rows.items()},
    )


def job_keys(rows: Columns) -> NDArray[np.int64]:
    """The job of each action."""
    return rows["owner"].astype(np.int64) << _MODE_BITS | rows["modes"]


def make_plan(trace: Trace, by: str, progress: Callable[[float], None]) -> Plan:
    """Look at all there is once.

    Args:
        trace: A trace, or a selection of one.
        by: ``process``, ``thread`` or ``device``.
        progress: Told how far it is.

    Raises:
        TraceError: A table cannot be read.
    """
    owners, names, found = sources(trace, by)
    left_out: Counter[int] = Counter()
    uses: defaultdict[int, Counter[int]] = defaultdict(Counter)
    kinds: defaultdict[int, int] = defaultdict(int)
    least: list[list[int]] = []
    every, done = max(1, sum(source.rows for source in found)), 0
    for source in found:
        begins: list[int] = []
        for batch in source.batches(left_out):
            begins.append(int(batch["time_ns"].min(initial=_LATEST)))
            _count(batch, uses, kinds)
            done += len(batch["time_ns"])
            progress(min(1.0, done / every))
        least.append([*np.minimum.accumulate(np.array(begins, np.int64)[::-1])[::-1].tolist(), _LATEST])
    jobs = _jobs(uses, kinds, owners.label)
    begin_ns = min((each[0] for each in least), default=_LATEST)
    return Plan(by, jobs, names.paths, left_out, begin_ns, found, least)


def _count(rows: Columns, uses: defaultdict[int, Counter[int]], kinds: defaultdict[int, int]) -> None:
    keys = job_keys(rows)
    for key in np.unique(keys).tolist():
        mine = keys == key
        files, counts = np.unique(rows["file"][mine], return_counts=True)
        uses[key].update(dict(zip(files.tolist(), counts.tolist(), strict=True)))
        for action in np.unique(rows["action"][mine]).tolist():
            kinds[key] |= 1 << action


def _jobs(
    uses: defaultdict[int, Counter[int]], kinds: defaultdict[int, int], label: Callable[[int], str]
) -> dict[int, Job]:
    jobs: dict[int, Job] = {}
    taken: Counter[str] = Counter()
    for key in sorted(uses):
        modes = key & (1 << _MODE_BITS) - 1
        name = label(key >> _MODE_BITS) + _suffix(modes)
        taken[name] += 1
        unique = name if taken[name] == 1 else f"{name}-{taken[name]}"
        moves = kinds[key] & (1 << READ | 1 << WRITE | 1 << TRIM)
        writes = kinds[key] & (1 << WRITE | 1 << TRIM)
        jobs[key] = Job(unique, modes, dict(uses[key]), bool(moves), bool(writes))
    return jobs


def _suffix(modes: int) -> str:
    words = [word for bit, word in ((DIRECT, "direct"), (FULL_SYNC, "sync")) if modes & bit]
    if modes & (DSYNC | FULL_SYNC) == DSYNC:
        words.append("dsync")
    return "".join(f"-{word}" for word in words)


class Extents:
    """How far files are used, and which parts must exist before. Takes the actions in their order.

    Jobs run side by side, and none waits for another: what a job reads must be there unless it has written it itself.

    Args:
        nr_files: How many there are.
        in_turn: A job's actions come one after the other; else what it reads must be there in any case.
    """

    def __init__(self, nr_files: int, *, in_turn: bool = True) -> None:
        self.needed: NDArray[Any] = np.zeros(nr_files, np.int64)
        """The end of what must be there …"""
        self.blocks: defaultdict[int, set[int]] = defaultdict(set)
        """… and by file, which blocks of ``BLOCK_BYTES`` of it are read, by number."""
        self.ends: NDArray[Any] = np.zeros(nr_files, np.int64)
        """The greatest end of any action."""
        self._in_turn = in_turn
        self._written: defaultdict[tuple[int, int], Pages] = defaultdict(Pages)

    def add(self, rows: Columns) -> None:
        """Look at the next actions."""
        np.maximum.at(self.ends, rows["file"], rows["offset"] + rows["length"])
        order = np.lexsort((np.arange(len(rows["file"])), rows["file"], rows["job"]))
        changes = (np.diff(rows["file"][order]) != 0) | (np.diff(rows["job"][order]) != 0)
        for mine in np.split(order, np.flatnonzero(changes) + 1):
            if len(mine):
                self._add({name: rows[name][mine] for name in ("job", "file", "action", "offset", "length")})

    def _add(self, rows: Columns) -> None:
        """Actions of one job on one file."""
        job, file, begins = int(rows["job"][0]), int(rows["file"][0]), rows["offset"]
        ends = begins + rows["length"]
        reads = rows["action"] == READ
        if self._in_turn:
            reads &= ~self._own(self._written[job, file], rows["action"], begins, ends)
        if not reads.any():
            return
        self.needed[file] = max(int(self.needed[file]), int(ends[reads].max()))
        first, last = begins[reads] // BLOCK_BYTES, (ends[reads] - 1) // BLOCK_BYTES
        found = self.blocks[file]
        found.update(first.tolist(), last.tolist())
        for begin, end in zip(first[last > first + 1].tolist(), last[last > first + 1].tolist(), strict=True):
            found.update(range(begin, end))

    @staticmethod
    def _own(written: Pages, actions: NDArray[Any], begins: NDArray[Any], ends: NDArray[Any]) -> NDArray[np.bool_]:
        """Which reads find only pages that the job wrote before; notes the pages that it writes."""
        own = np.zeros(len(actions), np.bool_)
        reads, writes = actions == READ, actions == WRITE
        if not writes.any():
            if written:
                spans = zip(begins[reads].tolist(), ends[reads].tolist(), strict=True)
                own[reads] = [written.hold(begin, end) for begin, end in spans]
            return own
        if not reads.any():
            for begin, end in _joined(begins[writes], ends[writes]):
                written.add(begin, end)
            return own
        for row, (read, write, begin, end) in enumerate(
            zip(reads.tolist(), writes.tolist(), begins.tolist(), ends.tolist(), strict=True)
        ):
            if read:
                own[row] = written.hold(begin, end)
            elif write:
                written.add(begin, end)
        return own


class Pages:
    """Pages of a file with a written byte, as bits by block. By then they lie on the disk."""

    def __init__(self) -> None:
        self._blocks: dict[int, int] = {}

    def __bool__(self) -> bool:
        return bool(self._blocks)

    def add(self, begin: int, end: int) -> None:
        """Bytes from ``begin`` to before ``end`` were written."""
        for block, bits in _bits(begin, end):
            self._blocks[block] = self._blocks.get(block, 0) | bits

    def hold(self, begin: int, end: int) -> bool:
        """Whether every page of these bytes is one of them."""
        return all(self._blocks.get(block, 0) & bits == bits for block, bits in _bits(begin, end))


def _bits(begin: int, end: int) -> Iterator[tuple[int, int]]:
    first, last = begin // _PAGE_BYTES, (end - 1) // _PAGE_BYTES
    for block in range(first // _PAGES, last // _PAGES + 1):
        low, high = max(first - block * _PAGES, 0), min(last - block * _PAGES, _PAGES - 1)
        yield block, ((1 << high - low + 1) - 1) << low


def _joined(begins: NDArray[Any], ends: NDArray[Any]) -> Iterator[tuple[int, int]]:
    """The same bytes in as few spans as can be."""
    order = np.argsort(begins, kind="stable")
    begins, ends = begins[order], np.maximum.accumulate(ends[order])
    first = np.append(True, begins[1:] > ends[:-1])
    yield from zip(begins[first].tolist(), ends[np.append(first[1:], True)].tolist(), strict=True)
