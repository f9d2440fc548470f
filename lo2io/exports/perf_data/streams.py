"""The records of one CPU as rows in the order of time.

In: files of perf records, or of records by lo2io's programs in the kernel. Out: chunks of rows, with their content as
64-bit words. A call recorded by programs becomes the two samples that perf would have delivered; their raw data are
those of ``perf_syscall_enter`` and ``perf_syscall_exit`` (kernel/trace/trace_syscalls.c).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from lo2io.errors import SpoolError
from lo2io.native._lib import ffi, lib
from lo2io.native.framing import EVENTS, FACTS, KERNEL, SAMPLES, list_records
from lo2io.native.records import FRAME_BYTES, gather, member_at, record_bytes, record_type
from lo2io.spool.facts import FACT_TASK

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from numpy.typing import NDArray

    Numbers = NDArray[Any]

RECORD_LOST, RECORD_COMM, RECORD_EXIT, RECORD_THROTTLE, RECORD_UNTHROTTLE, RECORD_FORK = 2, 3, 4, 5, 6, 7
RECORD_SAMPLE: Final = 9
_LEAST_WORDS: Final = {
    **dict.fromkeys((RECORD_LOST, RECORD_COMM, RECORD_SAMPLE), 4),
    **dict.fromkeys((RECORD_EXIT, RECORD_THROTTLE, RECORD_UNTHROTTLE, RECORD_FORK), 5),
}
"""Kind of record → least number of words. Records of other kinds are skipped."""
_LEAST_KERNEL_BYTES: Final = {
    record_type(kind): record_bytes(kind) for kind in ("call", "enter", "exit", "lost", "sample")
}
TASK_WORDS: Final = 1 + ffi.sizeof("lo2_fact_task") // 8
"""Words of a fact about a thread, with its frame. The thread's cgroup may follow."""
_NR_IDS: Final = 1 << 16
"""Number of ids that a tracepoint can have: ``common_type`` is a u16."""
_U32, _U16 = np.uint64(0xFFFFFFFF), np.uint64(0xFFFF)


@dataclass(frozen=True, slots=True)
class Rows:
    """Some records of a CPU in the order of time. Columns have shape (n,), int64."""

    time_ns: Numbers
    kind: Numbers
    """``PERF_RECORD_*``."""
    misc: Numbers
    begin: Numbers
    """Places in ``words`` where contents begin. A sample's content is the size of its raw data, and the raw data. The
    content of another record is all but its last time."""
    size: Numbers
    """Sizes of contents in words; at least 2."""
    words: Numbers
    """uint64, any shape (m,)."""

    def split(self, at: int) -> tuple[Rows, Rows]:
        """The first rows, and the rest."""
        return self._taken(slice(at)), self._taken(slice(at, None))

    def in_order(self, places: Numbers) -> Rows:
        """The rows in the order of time, then of ``places``. Within a file they are nearly in order already."""
        if np.all(self.time_ns[1:] >= self.time_ns[:-1]):
            return self
        return self._taken(np.lexsort((places, self.time_ns)))

    def _taken(self, which: Any) -> Rows:
        columns = (self.time_ns[which], self.kind[which], self.misc[which], self.begin[which], self.size[which])
        return Rows(*columns, self.words)


class CallEvents:
    """The form of samples that stand for programs' records, by the tracepoint's id."""

    def __init__(self) -> None:
        self.numbers: Numbers = np.full(_NR_IDS, -1, np.int32)
        """Number of the system call; -1: not known."""
        self.sizes: Numbers = np.zeros(_NR_IDS, np.int64)
        """Bytes of the raw data, strings left out."""
        self.strings: Numbers = np.zeros(_NR_IDS, np.int64)
        """For other events, the offset of the field that says where a string lies; programs leave strings out. 0:
        none."""


def spread(begins: Numbers, counts: Numbers) -> Numbers:
    """For each ``begin`` the ``count`` numbers ``begin``, ``begin + 1``, …; shape (sum of counts,)."""
    ends = np.cumsum(counts)
    return np.repeat(begins - ends + counts, counts) + np.arange(ends[-1] if len(ends) else 0)


def perf_rows(files: tuple[Path, ...], block: int, advance: Callable[[int], None]) -> Iterator[Rows]:
    """The rows of files of perf records.

    Args:
        files: The files of one CPU, in their order.
        block: Number of bytes read at a time.
        advance: Called with the number of bytes read.

    Raises:
        SpoolError: A record is too short for its kind.
    """
    for path in files:
        for words, places in _blocks(path, block, advance, SAMPLES):
            heads = words[places]
            kinds, sizes = (heads & _U32).astype(np.int64), (heads >> 51).astype(np.int64)
            _check(path, kinds, sizes, _LEAST_WORDS)
            taken = np.isin(kinds, list(_LEAST_WORDS))
            kinds, sizes, at = kinds[taken], sizes[taken], places[taken]
            sample = kinds == RECORD_SAMPLE
            times = words[at + np.where(sample, 1, sizes - 1)].astype(np.int64)
            misc = (heads[taken] >> 32 & _U16).astype(np.int64)
            # The content is all but the header and one time. The time is first in a sample, last in other records.
            yield Rows(times, kinds, misc, at + 1 + sample, sizes - 2, words).in_order(at)


def call_rows(
    files: tuple[Path, ...], block: int, advance: Callable[[int], None], events: CallEvents
) -> Iterator[Rows]:
    """The rows of files of calls. Arguments and errors are those of :func:`perf_rows`."""
    for path in files:
        for words, places in _blocks(path, block, advance, KERNEL):
            bodies, lengths = places + FRAME_BYTES // 8, (words[places] & _U32).astype(np.int64)
            kinds = gather(words, bodies, "head", "type").astype(np.int64)
            _check(path, kinds, lengths, _LEAST_KERNEL_BYTES)
            yield _samples_and_losses(words, bodies, kinds, lengths, events)


def event_rows(
    files: tuple[Path, ...], block: int, advance: Callable[[int], None], events: CallEvents
) -> Iterator[Rows]:
    """The rows of files of events of tracepoints. Arguments and errors are those of :func:`perf_rows`."""
    for path in files:
        for words, places in _blocks(path, block, advance, EVENTS):
            bodies, lengths = places + FRAME_BYTES // 8, (words[places] & _U32).astype(np.int64)
            kinds = gather(words, bodies, "head", "type").astype(np.int64)
            _check(path, kinds, lengths, _LEAST_KERNEL_BYTES)
            yield _events_and_losses(words, bodies, kinds, lengths, events)


def _events_and_losses(words: Numbers, bodies: Numbers, kinds: Numbers, lengths: Numbers, events: CallEvents) -> Rows:
    """Events as samples. Fields that programs do not write are 0."""
    taken = kinds == record_type("sample")
    at, losses = bodies[taken], bodies[kinds == record_type("lost")]
    event, tids = (gather(words, at, "head", name).astype(np.int64) for name in ("event", "tid"))
    written = (lengths[taken] - record_bytes("sample")) // 4
    nr_bytes = np.maximum(lib.LO2_FIELDS_AT + 4 * written, events.sizes[event])
    strings = events.strings[event]
    sizes = (4 + nr_bytes + 4 * (strings > 0) + 7) // 8
    begins = np.cumsum(sizes) - sizes
    halves = np.zeros(2 * int(sizes.sum()), np.uint32)
    for place, values in enumerate((8 * sizes - 4, event, tids)):
        halves[2 * begins + place] = values.astype(np.uint32)
    fields = 2 * at + record_bytes("sample") // 4
    halves[spread(2 * begins + 3, written)] = words.view(np.uint32)[spread(fields, written)]
    empty = strings > 0  # a string of one byte, at the end
    halves[(2 * begins + 1 + strings // 4)[empty]] = (1 << 16 | nr_bytes[empty]).astype(np.uint32)
    times = gather(words, at, "head", "time_ns").astype(np.int64)
    return _with_losses(words, (times, begins, sizes, halves.view(np.uint64)), losses, at)


def _samples_and_losses(words: Numbers, bodies: Numbers, kinds: Numbers, lengths: Numbers, events: CallEvents) -> Rows:
    """Calls and losses recorded by lo2io's programs, as samples and ``LOST`` records."""
    take = partial(gather, words)
    found = {kind: bodies[kinds == record_type(kind)] for kind in ("call", "enter", "exit", "lost")}
    calls, enters, exits, losses = found.values()
    in_call, in_enter = (
        np.minimum(take(at, kind, "nr_args"), (lengths[kinds == record_type(kind)] - record_bytes(kind)) // 8)
        for kind, at in (("call", calls), ("enter", enters))
    )
    ends = take(calls, "call", "time_ns") + take(calls, "call", "duration_ns")
    heads = {kind: (take(at, kind, "time_ns"), take(at, kind, "event")) for kind, at in found.items()}
    arguments_of = {kind: found[kind] + record_bytes(kind) // 8 for kind in ("call", "enter")}
    result_of = {kind: found[kind] + member_at(kind, "result") // 8 for kind in ("call", "exit")}
    parts = (
        (calls, *heads["call"], in_call, arguments_of["call"]),
        (calls, ends, take(calls, "call", "exit_event"), np.ones_like(calls), result_of["call"]),
        (enters, *heads["enter"], in_enter, arguments_of["enter"]),
        (exits, *heads["exit"], np.ones_like(exits), result_of["exit"]),
    )
    at, time_ns, event, nr_args, arguments = (
        np.concatenate([part.astype(np.int64) for part in column]) for column in zip(*parts, strict=True)
    )
    samples = _raw_data(words, event, take(at, "head", "tid"), (arguments, nr_args), events)
    return _with_losses(words, (time_ns, *samples), losses, at)


def _with_losses(
    words: Numbers, samples: tuple[Numbers, Numbers, Numbers, Numbers], losses: Numbers, at: Numbers
) -> Rows:
    """Samples and ``LOST`` records in order of time.

    ``samples`` are times, begins and sizes of contents, and the contents. ``at`` are the samples' places in the file.
    """
    times, begins, sizes, built = samples
    of_loss = np.full(len(losses), 2)
    rows = Rows(
        np.concatenate([times, gather(words, losses, "lost", "time_ns").astype(np.int64)]),
        np.repeat([RECORD_SAMPLE, RECORD_LOST], [len(at), len(losses)]),
        np.zeros(len(at) + len(losses), np.int64),
        np.concatenate([begins, len(built) + 2 * np.arange(len(losses))]),
        np.concatenate([sizes, of_loss]),
        np.concatenate([built, words[spread(losses + member_at("lost", "begin_ns") // 8, of_loss)]]),
    )
    return rows.in_order(np.concatenate([at, losses]))


def _raw_data(
    words: Numbers, event: Numbers, tids: Numbers, arguments: tuple[Numbers, Numbers], events: CallEvents
) -> tuple[Numbers, Numbers, Numbers]:
    """Begin and size of each sample's content, and the words of all contents: u32 size of the raw data, raw data.

    ``arguments`` are the starts of each sample's arguments, and their numbers.
    """
    places, nr_args = arguments
    nr_bytes = np.maximum(16 + 8 * nr_args, events.sizes[event])
    sizes = (4 + nr_bytes + 7) // 8
    begins = np.cumsum(sizes) - sizes
    halves = np.zeros(2 * int(sizes.sum()), np.uint32)  # arguments lie at odd multiples of 4 bytes
    for place, values in enumerate((8 * sizes - 4, event, tids, events.numbers[event])):
        halves[2 * begins + place] = values.astype(np.uint32)
    halves[spread(2 * begins + 5, 2 * nr_args)] = words.view(np.uint32)[spread(2 * places, 2 * nr_args)]
    return begins, sizes, halves.view(np.uint64)


def fact_blocks(path: Path, block: int) -> Iterator[tuple[Numbers, Numbers]]:
    """Yield some facts at a time: words, and the place in them where each fact begins."""
    for words, places in _blocks(path, block, lambda _: None, FACTS):
        heads = words[places]
        _check(path, (heads & _U32).astype(np.int64), (heads >> 51).astype(np.int64), {FACT_TASK: TASK_WORDS})
        yield words, places


def _check(path: Path, kinds: Numbers, sizes: Numbers, least: dict[int, int]) -> None:
    for kind, size in least.items():
        if np.any(sizes[kinds == kind] < size):
            answer = f"a record of type {kind} is too short"
            raise SpoolError(f"read the records of {path}", answer, "the spool is damaged: record again")


def _blocks(path: Path, size: int, advance: Callable[[int], None], kind: int) -> Iterator[tuple[Numbers, Numbers]]:
    """Yield whole records of a file: words, and the place in them where each record begins.

    ``kind`` is the stream's.
    """
    held = b""
    with path.open("rb") as file:
        while block := file.read(size):
            held += block
            places, end = list_records(kind, held)
            if len(places):
                yield np.frombuffer(held, np.uint64, len(held) // 8), places
            advance(len(block))
            if end is None:
                return
            held = held[end:]
