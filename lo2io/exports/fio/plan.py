"""All actions of a trace in the order of their starts, in little memory.

The tables hold rows in the order of their ends. The first pass notes for each batch the earliest start in this batch
and all later ones. The second pass holds back only rows that a later batch may precede. The first pass also counts the
actions of each job and file, so that a log can close a file after its last use.
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
"""Files are made in blocks of this size."""
_PAGE_BYTES: Final = 4096
_PAGES: Final = BLOCK_BYTES // _PAGE_BYTES
_LATEST: Final = 2**63 - 1
_MODE_BITS: Final = 3


@dataclass(slots=True)
class Job:
    """The actions in one log: those of a process, thread or disk on files of the same modes."""

    label: str
    """A label that is unique among the jobs and can be a file's name."""
    modes: int
    """Bits ``DIRECT``, ``DSYNC``, ``FULL_SYNC``."""
    uses: dict[int, int] = field(default_factory=dict)
    """File → number of actions."""
    moves: bool = False
    """True if the job reads, writes or trims. fio 3.33 refuses a log of syncs alone in version 3."""
    writes: bool = False


@dataclass(slots=True)
class Plan:
    """The jobs of a replay, and their actions."""

    by: str
    jobs: dict[int, Job]
    """Key → job."""
    paths: list[bytes]
    """Paths of the files, by number."""
    left_out: Counter[int]
    """Code of ``actions.REASONS`` → number of operations left out."""
    begin_ns: int
    """Begin of the first action."""
    _sources: list[Source]
    _least: list[list[int]]

    @property
    def nr_actions(self) -> int:
        """The number of actions of all jobs."""
        return sum(sum(job.uses.values()) for job in self.jobs.values())

    def notes(self) -> tuple[str, ...]:
        """The operations left out, one line for each reason."""
        return tuple(f"left out: {count:,} {REASONS[code]}" for code, count in sorted(self.left_out.items()) if count)

    def actions(self, progress: Callable[[float], None]) -> Iterator[Columns]:
        """All actions in the order of their starts: ``actions.COLUMNS`` and ``job``, the key of the job."""
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
    """Rows in the order of time: those before the border, and the others."""
    order = np.argsort(rows["time_ns"], kind="stable")
    cut = int(np.searchsorted(rows["time_ns"][order], border)) if border < _LATEST else len(order)
    return (
        {name: values[order[:cut]] for name, values in rows.items()},
        {name: values[order[cut:]] for name, values in rows.items()},
    )


def job_keys(rows: Columns) -> NDArray[np.int64]:
    """The key of each action's job."""
    return rows["owner"].astype(np.int64) << _MODE_BITS | rows["modes"]


def make_plan(trace: Trace, by: str, progress: Callable[[float], None]) -> Plan:
    """Read all tables once and make the plan.

    Args:
        trace: A trace, or a selection of one.
        by: ``process``, ``thread`` or ``device``.
        progress: Called with the finished share.

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
    """The used part of each file, and the part that must exist before the replay. Takes actions in their order.

    Jobs run side by side, and no job waits for another. So the bytes that a job reads must exist before the replay,
    unless the job itself wrote them earlier.

    Args:
        nr_files: The number of files.
        in_turn: A job's actions run one after the other. Else all bytes that a job reads must exist before.
    """

    def __init__(self, nr_files: int, *, in_turn: bool = True) -> None:
        self.needed: NDArray[Any] = np.zeros(nr_files, np.int64)
        """For each file, the end of the part that must exist."""
        self.blocks: defaultdict[int, set[int]] = defaultdict(set)
        """File → numbers of its blocks of ``BLOCK_BYTES`` that must exist."""
        self.ends: NDArray[Any] = np.zeros(nr_files, np.int64)
        """For each file, the greatest end of any action."""
        self._in_turn = in_turn
        self._written: defaultdict[tuple[int, int], Pages] = defaultdict(Pages)

    def add(self, rows: Columns) -> None:
        """Take the next actions."""
        np.maximum.at(self.ends, rows["file"], rows["offset"] + rows["length"])
        order = np.lexsort((np.arange(len(rows["file"])), rows["file"], rows["job"]))
        changes = (np.diff(rows["file"][order]) != 0) | (np.diff(rows["job"][order]) != 0)
        for mine in np.split(order, np.flatnonzero(changes) + 1):
            if len(mine):
                self._add({name: rows[name][mine] for name in ("job", "file", "action", "offset", "length")})

    def _add(self, rows: Columns) -> None:
        """Take actions of one job on one file."""
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
        """True for each read of pages that the job itself wrote before. Notes the pages that the job writes."""
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
    """The pages of a file in which a byte was written, as bits by block. A written page exists as a whole."""

    def __init__(self) -> None:
        self._blocks: dict[int, int] = {}

    def __bool__(self) -> bool:
        return bool(self._blocks)

    def add(self, begin: int, end: int) -> None:
        """Note that bytes from ``begin`` to before ``end`` were written."""
        for block, bits in _bits(begin, end):
            self._blocks[block] = self._blocks.get(block, 0) | bits

    def hold(self, begin: int, end: int) -> bool:
        """True if every page of these bytes was written."""
        return all(self._blocks.get(block, 0) & bits == bits for block, bits in _bits(begin, end))


def _bits(begin: int, end: int) -> Iterator[tuple[int, int]]:
    first, last = begin // _PAGE_BYTES, (end - 1) // _PAGE_BYTES
    for block in range(first // _PAGES, last // _PAGES + 1):
        low, high = max(first - block * _PAGES, 0), min(last - block * _PAGES, _PAGES - 1)
        yield block, ((1 << high - low + 1) - 1) << low


def _joined(begins: NDArray[Any], ends: NDArray[Any]) -> Iterator[tuple[int, int]]:
    """The same bytes in as few spans as possible."""
    order = np.argsort(begins, kind="stable")
    begins, ends = begins[order], np.maximum.accumulate(ends[order])
    first = np.append(True, begins[1:] > ends[:-1])
    yield from zip(begins[first].tolist(), ends[np.append(first[1:], True)].tolist(), strict=True)
