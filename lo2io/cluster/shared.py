"""Calls that an application's tool and lo2io both saw: they tell the tool's clock, and which threads are the same.

In: the application's calls in ticks, and the calls of a node in ns. A call of the application is one of lo2io's of the
same thread, of the same name and with the same bytes. Threads do one call after the other. So if both have equally
many such calls, the tool's first call is lo2io's first call, and so on. If lo2io has more of them, none is used, for
nothing tells which of lo2io's calls are the tool's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from lo2io.cluster.band import Contradiction, Pairs
from lo2io.cluster.bridging import REMEDY
from lo2io.errors import UsageError
from lo2io.model import UNKNOWN_I64, UNKNOWN_U32
from lo2io.otf2.merge.told import CALLS, UNKNOWN, Calls, call_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

    from lo2io.cluster.band import Band
    from lo2io.trace.reader import Trace

LEAST: Final = 4
"""The least number of pairs: fewer may fit by chance."""
_WITHOUT_BYTES: Final = CALLS.index("fsync")
"""In ``CALLS``, this call and those after it move no bytes that both tools would record."""


class Thread(NamedTuple):
    """A thread of a node's trace."""

    task: int
    pid: int
    tid: int
    rank: int | None


@dataclass(frozen=True, slots=True)
class Settled:
    """The clock and the threads that shared calls tell.

    Attributes:
        band: The lines from ticks to ns that they leave.
        threads: Location of the application → the thread.
        nr_pairs: The calls that were used.
    """

    band: Band
    threads: dict[int, Thread]
    nr_pairs: int


def recorded_threads(trace: Trace) -> list[Thread]:
    """The threads of a trace whose ids are known."""
    columns = [trace.column("threads", name).tolist() for name in ("task", "pid", "tid", "rank")]
    return [
        Thread(task, pid, tid, None if rank == UNKNOWN_U32 else rank)
        for task, pid, tid, rank in zip(*columns, strict=True)
        if UNKNOWN_U32 not in {pid, tid}
    ]


def recorded_calls(trace: Trace) -> dict[int, Calls]:
    """Task → its calls that an application's tool may have seen, too. Calls without an end are left out."""
    place = np.array([call_of(call["name"]) for call in trace.metadata["calls"]], np.int64)
    columns = ["task", "begin_time_ns", "end_time_ns", "call", "bytes_request", "bytes_result"]
    parts = [np.empty((0, len(columns)), np.int64)]
    for batch in trace.batches("operations", columns):
        rows = np.stack([batch[name].astype(np.int64) for name in columns], axis=1)
        rows[:, 3] = place[rows[:, 3]]
        parts.append(rows[(rows[:, 3] != UNKNOWN) & (rows[:, 2] != UNKNOWN_I64)])
    rows = np.concatenate(parts)
    rows[rows == UNKNOWN_I64] = UNKNOWN
    rows = rows[np.lexsort((rows[:, 1], rows[:, 0]))]
    groups = np.split(rows, np.flatnonzero(np.diff(rows[:, 0])) + 1)
    return {int(group[0, 0]): Calls(group[:, 1], group[:, 2], group[:, 3:]) for group in groups if len(group)}


def pairs_of(application: Calls, recorded: Calls) -> Pairs | None:
    """The calls that both saw, if this is the same thread; None: it did not do all calls of the application's."""
    keys = _comparable(application.keys, recorded.keys)
    kinds, codes = np.unique(keys, axis=0, return_inverse=True)
    ours, theirs = np.split(codes.reshape(-1), [len(application.keys)])
    nr_ours, nr_theirs = (np.bincount(each, minlength=len(kinds)) for each in (ours, theirs))
    if (nr_ours > nr_theirs).any():
        return None
    first, second = (
        rows[np.argsort(each[rows], kind="stable")]
        for each in (ours, theirs)
        for rows in (np.flatnonzero((nr_ours == nr_theirs)[each]),)
    )
    last = application.end[first] + 1  # a clock counts ticks that are over, so a region ends within the next tick
    return Pairs(first, application.begin[first], last, recorded.begin[second], recorded.end[second])


def _comparable(ours: NDArray[np.int64], theirs: NDArray[np.int64]) -> NDArray[np.int64]:
    """The keys of both, without bytes that one of them does not tell."""
    keys = np.concatenate([ours, theirs])
    unsaid = np.isin(keys[:, 0], ours[ours[:, 1] == UNKNOWN, 0]) | (keys[:, 0] >= _WITHOUT_BYTES)
    keys[unsaid, 1:] = UNKNOWN
    return keys


def possible_threads(
    calls: Mapping[int, Calls], candidates: Mapping[int, Sequence[Thread]], recorded: Mapping[int, Calls]
) -> dict[int, dict[Thread, Pairs]]:
    """Location of the application → threads that made all its calls, and the calls that are the same.

    Args:
        calls: Location → its calls.
        candidates: Location → the threads that may be its own.
        recorded: Task → its calls.
    """
    return {
        location: {
            thread: pairs
            for thread in candidates[location]
            if thread.task in recorded and (pairs := pairs_of(own, recorded[thread.task])) is not None
        }
        for location, own in calls.items()
    }


def settle(
    band: Band, calls: Mapping[int, Calls], possible: Mapping[int, Mapping[Thread, Pairs]], *, tried: str
) -> Settled:
    """Find the lines of a band that agree with the shared calls, and each location's only possible thread.

    Args:
        band: All lines that are possible.
        calls: Location of the application → its calls.
        possible: What :func:`possible_threads` found.
        tried: What an error says was tried.

    Raises:
        UsageError: Too few calls tell, or they contradict one another.
    """
    left = {location: dict(threads) for location, threads in possible.items() if threads}
    if not left:
        answer = _no_thread(calls) if calls else f"none of its regions is called {', '.join(CALLS)}"
        raise UsageError(tried, answer, REMEDY)
    threads: dict[int, Thread] = {}
    nr_pairs, before = 0, -1
    while before != (before := sum(map(len, left.values()))):
        for location in list(left):
            met = _met(band, left[location], lambda answer: UsageError(tried, answer, REMEDY), calls[location])
            left[location] = {thread: left[location][thread] for thread in met}
            if len(met) == 1:
                ((threads[location], band),) = met.items()
                nr_pairs += len(left.pop(location)[threads[location]])
    if nr_pairs < LEAST:
        raise UsageError(tried, _too_few(nr_pairs, calls, left), REMEDY)
    return Settled(band, threads, nr_pairs)


def _met(
    band: Band, threads: Mapping[Thread, Pairs], refuse: Callable[[str], UsageError], calls: Calls
) -> dict[Thread, Band]:
    """The threads whose calls a line of the band meets, and the lines that do."""
    met = {}
    answer = ""
    for thread, pairs in threads.items():
        try:
            met[thread] = band.within(pairs)
        except Contradiction as error:
            answer = _contradiction(error, pairs, calls)
    if not met:
        raise refuse(answer)
    return met


def _no_thread(calls: Mapping[int, Calls]) -> str:
    number = max(len(each.begin) for each in calls.values())
    return f"no recorded thread made all calls of one of its threads, such as {number:,} calls"


def _contradiction(error: Contradiction, pairs: Pairs, calls: Calls) -> str:
    words = [_words(calls, int(pairs.number[pair])) for pair in (error.pair, error.other) if pair is not None]
    if error.other is None:
        return f"no clock that runs evenly puts {words[0]}, and those before it, around the calls that lo2io saw"
    if error.other == error.pair:
        return f"{words[0]} took less time than lo2io's call"
    return f"no clock that runs evenly puts both {words[0]} and {words[1]} around the calls that lo2io saw"


def _words(calls: Calls, number: int) -> str:
    call, asked, _moved = calls.keys[number].tolist()
    size = f" of {asked:,} bytes" if asked != UNKNOWN else ""
    return f"the {CALLS[call]}{size} at tick {int(calls.begin[number]):,}"


def _too_few(nr_pairs: int, calls: Mapping[int, Calls], left: Mapping[int, Mapping[Thread, Pairs]]) -> str:
    number = sum(len(each.begin) for each in calls.values())
    answer = f"{nr_pairs:,} of its {number:,} calls are the same as lo2io's beyond doubt, and {LEAST} have to be"
    doubt = max(map(len, left.values()), default=0)
    return f"{answer}; {doubt:,} threads made all calls of one of its threads" if doubt else answer
