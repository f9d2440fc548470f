"""A spool's files as rows, in the order of time: what perf delivered, or would have delivered, of one CPU.

In: files of perf records, or of what lo2io's programs in the kernel recorded. Out: chunks of rows with their content as
64-bit words. A call that programs recorded becomes the two samples that it stands for: raw data as
``perf_syscall_enter`` and ``perf_syscall_exit`` have them (kernel/trace/trace_syscalls.c).
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
"""Kinds of records that are taken, and how many words such a one has at least; others are passed over."""
_LEAST_KERNEL_BYTES: Final = {
    record_type(kind): record_bytes(kind) for kind in ("call", "enter", "exit", "lost", "sample")
}
TASK_WORDS: Final = 1 + ffi.sizeof("lo2_fact_task") // 8
"""Of a fact of a thread, its frame included; its cgroup may follow."""
_NR_IDS: Final = 1 << 16
"""Of tracepoints: ``common_type`` is a u16."""
_U32, _U16 = np.uint64(0xFFFFFFFF), np.uint64(0xFFFF)


@dataclass(frozen=True, slots=True)
class Rows:
    """Some records of a CPU in the order of time. Columns have shape (n,), int64."""

    time_ns: Numbers
    kind: Numbers
    """``PERF_RECORD_*``."""
    misc: Numbers
    begin: Numbers
    """Where in ``words`` their content begins: of a sample the size of its raw data, and these; of others all but the
    last time."""
    size: Numbers
    """Of the content, in words; at least 2."""
    words: Numbers
    """uint64, any shape (m,)."""

    def split(self, at: int) -> tuple[Rows, Rows]:
        """The first rows, and the rest."""
        return self._taken(slice(at)), self._taken(slice(at, None))

    def in_order(self, places: Numbers) -> Rows:
        """In the order of time, then of ``places``: within a file inversions are rare."""
        if np.all(self.time_ns[1:] >= self.time_ns[:-1]):
            return self
        return self._taken(np.lexsort((places, self.time_ns)))

    def _taken(self, which: Any) -> Rows:
        columns = (self.time_ns[which], self.kind[which], self.misc[which], self.begin[which], self.size[which])
        return Rows(*columns, self.words)


class CallEvents:
    """What the samples of tracepoints are like that programs recorded, by the tracepoint's id."""

    def __init__(self) -> None:
        self.numbers: Numbers = np.full(_NR_IDS, -1, np.int32)
        """Of the system call; -1: not known."""
        self.sizes: Numbers = np.zeros(_NR_IDS, np.int64)
        """Bytes of the raw data, strings left out."""
        self.strings: Numbers = np.zeros(_NR_IDS, np.int64)
        """Of other events: where the place of a string stands, which programs leave out; 0: there is none."""


def spread(begins: Numbers, counts: Numbers) -> Numbers:
    """Of each ``begin`` as many numbers as ``count`` says: ``begin``, ``begin + 1``, …; shape (sum of counts,)."""
    ends = np.cumsum(counts)
    return np.repeat(begins - ends + counts, counts) + np.arange(ends[-1] if len(ends) else 0)


def perf_rows(files: tuple[Path, ...], block: int, advance: Callable[[int], None]) -> Iterator[Rows]:
    """The rows of ring files.

    Args:
        files: Of one CPU, in their order.
        block: How many bytes are read at a time.
        advance: Told how many were.

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
            # The content is all but the header and one time, which a sample has in front, others at the end.
            yield Rows(times, kinds, misc, at + 1 + sample, sizes - 2, words).in_order(at)


def call_rows(
    files: tuple[Path, ...], block: int, advance: Callable[[int], None], events: CallEvents
) -> Iterator[Rows]:
    """The rows of files of calls; arguments and errors as of :func:`perf_rows`."""
    for path in files:
        for words, places in _blocks(path, block, advance, KERNEL):
            bodies, lengths = places + FRAME_BYTES // 8, (words[places] & _U32).astype(np.int64)
            kinds = gather(words, bodies, "head", "type").astype(np.int64)
            _check(path, kinds, lengths, _LEAST_KERNEL_BYTES)
            yield _samples_and_losses(words, bodies, kinds, lengths, events)


def event_rows(
    files: tuple[Path, ...], block: int, advance: Callable[[int], None], events: CallEvents
) -> Iterator[Rows]:
    """The rows of files of events of tracepoints; arguments and errors as of :func:`perf_rows`."""
    for path in files:
        for words, places in _blocks(path, block, advance, EVENTS):
            bodies, lengths = places + FRAME_BYTES // 8, (words[places] & _U32).astype(np.int64)
            kinds = gather(words, bodies, "head", "type").astype(np.int64)
            _check(path, kinds, lengths, _LEAST_KERNEL_BYTES)
            yield _events_and_losses(words, bodies, kinds, lengths, events)


def _events_and_losses(words: Numbers, bodies: Numbers, kinds: Numbers, lengths: Numbers, events: CallEvents) -> Rows:
    """Events as the samples that they stand for: fields that no program writes are 0."""
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
    """The samples that records of lo2io's programs stand for."""
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
    """Samples (times; begins and sizes of their content; this) and ``LOST``, in order; ``at``: the samples' places."""
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
    """Where the content of each sample begins, its size, and the words: u32 size of the raw data, then these.

    Of the arguments is given where they begin, and how many there are.
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
    """Some facts at a time: words, and where in them each fact begins."""
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
    """Whole records of a file of this kind of stream: its words, and where in them each begins."""
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
