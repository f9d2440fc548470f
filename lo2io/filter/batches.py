"""Removes rows that do not pass a filter from batches, between the engine and the writers.

The engine runs twice over the spool, because the deciding facts are often known late: a file's name when its handle
ends, a thread's name when the thread exits, a request's latency when the request completes. So the first run only finds
the rows that pass. Its memory grows with the number of threads, files and handles, and by one bit for each request. The
last run changes each batch in place. A run in between is needed in two cases. If there are waits, it finds those of
calls that pass. If requests of rings are chosen by more than their own columns, it finds those that pass.

These rows stay: calls and requests that pass, all events of these requests, and their executions by workers; handles
that they name, the handles' parents, files and events; and the waits, batches and paths of calls that pass. Threads,
switches, completions, rings with their states, and losses stay whole, because they describe the machine and the gaps.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Protocol, Self

import numpy as np

from lo2io.filter.rows import Criteria, Matcher, Numbered
from lo2io.model import UNKNOWN_U32
from lo2io.model.number_sets import NumberSet

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from contextlib import AbstractContextManager
    from types import TracebackType

    from numpy.typing import NDArray

    from lo2io.model import Batch, CallSpec, Columns, SpoolMeta

    Flags = NDArray[np.bool_]

_SUBJECTS = ("task", "handle", "handle2")
_MOST_LOOSE_USES = 1 << 20
"""The number of distinct uses of handles that are gathered before a comparison with earlier ones."""


class Stream(Protocol):
    """The interface of ``convert/engine.py``'s BatchStream."""

    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...
    def __iter__(self) -> Iterator[Batch]: ...
    def release(self, batch: Batch) -> None:
        """Give a batch back."""


@dataclass(slots=True)
class LeftOut:
    """Numbers of rows that a filter left out of a trace."""

    calls: int = 0
    requests: int = 0
    """Requests of disks."""
    ring_requests: int = 0


class FilteredStream:
    """A stream of batches without the rows that do not pass. It is used like the stream that it wraps.

    Args:
        stream: The stream of all batches. Its batches are changed in place.
        passing: The result of :func:`find_passing` for the same spool.
        watch: Called with each batch before filtering, but without requests of other cgroups than the recorded one.
    """

    def __init__(self, stream: Stream, passing: Passing, watch: Callable[[Batch], object] = lambda _: None) -> None:
        self._stream = stream
        self._passing = passing
        self._watch = watch
        self._kept_calls = 0
        self._waits = 0
        self._entered = NumberSet()
        self._pathed = NumberSet()
        self._causing = NumberSet()
        self._served = NumberSet()
        self.left_out = LeftOut()

    def __enter__(self) -> Self:
        self._stream.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stream.__exit__(kind, error, trace)

    def __iter__(self) -> Iterator[Batch]:
        for batch in self._stream:
            self._apply(batch)
            yield batch

    def release(self, batch: Batch) -> None:
        """Give a batch back."""
        self._stream.release(batch)

    def _apply(self, batch: Batch) -> None:
        passing = self._passing
        recorded = passing.recorded(batch.requests)
        self.left_out.requests += _nr_false(recorded)
        _keep(batch, "requests", recorded)
        self._watch(batch)
        calls = passing.calls(batch.operations)
        self._move_ordinals(batch, calls)
        waits = np.arange(self._waits, self._waits + len(batch.off_cpu["task"]))
        self._waits += len(waits)
        requests = passing.requests(batch.requests)
        self._entered.add(batch.operations["id"][calls & passing.are_batches(batch.operations)])
        self._pathed.add(batch.operations["id"][calls & passing.take_paths(batch.operations)])
        ring_requests = passing.rings.holds(batch.ring_requests["id"])
        self._causing.add(batch.operations["id"][calls])
        self._served.add(batch.requests["id"][requests])
        self._causing.add(batch.ring_requests["id"][ring_requests])
        self.left_out.calls += _nr_false(calls)
        self.left_out.requests += _nr_false(requests)
        self.left_out.ring_requests += _nr_false(ring_requests)
        named = passing.named.at(batch.handles["handle"])
        batch.handles["used"][~named] = 0
        faults = batch.faults["request"]
        faults[~self._served.holds(faults)] = 0
        for table, keep in (
            ("operations", calls),
            ("off_cpu", passing.waits.holds(waits) | passing.rings.holds(batch.off_cpu["request"])),
            ("handle_events", passing.named.at(batch.handle_events["handle"])),
            ("handles", passing.handles.at(batch.handles["handle"])),
            ("files", passing.files.at(batch.files["file"])),
            ("paths", self._pathed.holds(batch.paths["operation"])),
            ("requests", requests),
            ("request_events", passing.requests(batch.request_events)),
            ("ring_requests", ring_requests),
            ("ring_events", passing.rings.holds(batch.ring_events["id"])),
            ("ring_works", passing.rings.holds(batch.ring_works["id"])),
            ("request_parts", self._served.holds(batch.request_parts["request"])),
            ("write_backs", self._served.holds(batch.write_backs["request"])),
            ("faults", self._causing.holds(batch.faults["operation"])),
            ("fuse_requests", self._causing.holds(batch.fuse_requests["operation"])),
            ("call_stacks", self._causing.holds(batch.call_stacks["operation"])),
            ("futexes", self._causing.holds(batch.futexes["operation"])),
            ("fills", self._causing.holds(batch.fills["cause"])),
            ("evictions", self._causing.holds(batch.evictions["cause"]) | passing.files.at(batch.evictions["file"])),
            ("batches", self._entered.holds(batch.batches["id"])),
            ("iocbs", self._entered.holds(batch.iocbs["operation"])),
        ):
            _keep(batch, table, keep)

    def _move_ordinals(self, batch: Batch, calls: Flags) -> None:
        """Renumber ordinals so that they count only rows that stay.

        A ``before`` that names a row of an earlier batch becomes the start of its own batch.
        """
        kept = np.concatenate([np.zeros(1, np.uint64), np.cumsum(calls, dtype=np.uint64)])
        for rows in (batch.handle_events, batch.off_cpu, batch.ring_events):
            before = np.maximum(rows["before"], np.uint64(batch.first_operation)) - np.uint64(batch.first_operation)
            rows["before"][:] = kept[np.minimum(before, np.uint64(len(calls)))] + np.uint64(self._kept_calls)
        batch.first_operation = self._kept_calls
        if batch.native is not None:
            batch.native.first_operation = self._kept_calls
        self._kept_calls += int(kept[-1])


def _nr_false(flags: Flags) -> int:
    return len(flags) - int(np.count_nonzero(flags))


def _keep(batch: Batch, table: str, keep: Flags) -> None:
    """Move the rows that stay to the front, in the memory that the native writers read."""
    count = int(np.count_nonzero(keep))
    columns: Columns = getattr(batch, table)
    if count < len(keep):
        for column in columns.values():
            column[:count] = column[keep]
    setattr(batch, table, {name: column[:count] for name, column in columns.items()})
    if batch.native is not None:
        setattr(batch.native, f"nr_{table}", count)


class Passing:
    """The rows that pass: calls and requests that match, and the handles and files that they name."""

    def __init__(self, matcher: Matcher) -> None:
        self._matcher = matcher
        self._requests = NumberSet()
        self._parents = Numbered(np.uint32, UNKNOWN_U32)
        self._uses = _Uses()
        self._ring_uses = _Uses()
        self.waits = NumberSet()
        self.rings = NumberSet()
        """Ids of rings' requests that pass. :meth:`find_rings` fills the set."""
        self.rings_open = False
        """True if rings' requests are chosen by their subjects, which takes a run of its own."""
        self._ring_handles = Numbered(np.bool_, missing=False)
        self.named = Numbered(np.bool_, missing=False)
        self.handles = Numbered(np.bool_, missing=False)
        self.files = Numbered(np.bool_, missing=False)

    def calls(self, operations: Columns) -> Flags:
        """Calls that pass. Their subjects must be known."""
        passes = self._matcher.calls_by_columns(operations)
        if not self._matcher.columns_suffice:
            task, handle, handle2 = (operations[name] for name in _SUBJECTS)
            passes &= self._matcher.calls_by_subjects(task, handle, handle2, operations["id"])
        return passes

    def are_batches(self, operations: Columns) -> Flags:
        """Calls that have a row of batches."""
        return self._matcher.batch_calls[operations["call"]]

    def take_paths(self, operations: Columns) -> Flags:
        """Calls that may have rows of paths."""
        return self._matcher.path_calls[operations["call"]]

    def find_rings(self, requests: Columns) -> None:
        """Find requests of rings that pass. Their subjects must be known."""
        if self.rings_open:
            passes = self._matcher.rings_by_columns(requests)
            passes &= self._matcher.rings_by_subjects(*(requests[name] for name in _SUBJECTS))
            self.rings.add(requests["id"][passes])

    def recorded(self, requests: Columns) -> Flags:
        """Requests of the recorded cgroup, whether they pass the filter or not."""
        return self._matcher.requests_recorded(requests["task"])

    def requests(self, rows: Columns) -> Flags:
        """Requests that pass, or events of requests that pass: ``rows`` are of either table."""
        return self._requests.holds(rows["id"]) & self._matcher.requests_by_subjects(rows["task"])

    # ---- the first run ----

    def learn(self, batch: Batch) -> None:
        """Take the facts of a batch."""
        matcher = self._matcher
        matcher.learn(batch)
        self._parents.put(batch.handles["handle"], batch.handles["parent"])
        self._requests.add(batch.requests["id"][matcher.requests_by_columns(batch.requests)])
        self._ring_handles.put(*_known(batch.rings["handle"]))
        self.learn_parts(batch.request_parts)
        uses = _subjects(batch.operations, matcher.calls_by_columns(batch.operations))
        if matcher.columns_suffice:
            self._name(uses)
        else:
            self._uses.add(uses)
        passes = matcher.rings_by_columns(batch.ring_requests)
        uses = _subjects(batch.ring_requests, passes)
        if matcher.ring_columns_suffice:
            self._name(uses)
            self.rings.add(batch.ring_requests["id"][passes])
        else:
            self._ring_uses.add(uses)
            self.rings_open |= bool(passes.any())

    def learn_parts(self, parts: Columns) -> None:
        """Take parts of block requests, which lie after their requests: their files stay with them."""
        if parts:
            self.files.put(*_known(parts["file"][self._requests.holds(parts["request"])]))

    def conclude(self) -> None:
        """Find the handles and files that stay, after all subjects are known."""
        for uses in self._uses.take():
            self._name(uses[:, self._matcher.calls_by_subjects(*uses)])
        for uses in self._ring_uses.take():
            self._name(uses[:, self._matcher.rings_by_subjects(*uses)])
        more = np.union1d(self.named.where(), self._ring_handles.where())
        while len(more):
            self.handles.put(more, values=True)
            parents = self._parents.at(more)
            parents = parents[parents != UNKNOWN_U32]
            more = np.unique(parents[~self.handles.at(parents)])
        files = self._matcher.file_of(self.handles.where())
        self.files.put(files[files != UNKNOWN_U32], values=True)

    def _name(self, uses: NDArray[np.uint32]) -> None:
        for handles in uses[1:]:
            self.named.put(*_known(handles))


def _known(handles: NDArray[Any]) -> tuple[NDArray[Any], bool]:
    return handles[handles != UNKNOWN_U32], True


def _subjects(rows: Columns, passes: Flags) -> NDArray[np.uint32]:
    """The subjects of the rows that pass, of shape (3, n)."""
    return np.stack([rows[name][passes] for name in _SUBJECTS])


class _Uses:
    """Threads and handles that rows name, with each combination kept about once."""

    def __init__(self) -> None:
        self._parts: list[NDArray[np.uint32]] = []
        self._compared = 0

    def add(self, uses: NDArray[np.uint32]) -> None:
        """Add uses of shape (3, n)."""
        self._parts.append(_distinct(uses))
        if sum(part.shape[1] for part in self._parts) > 2 * self._compared + _MOST_LOOSE_USES:
            self._parts = [_distinct(np.concatenate(self._parts, axis=1))]
            self._compared = self._parts[0].shape[1]

    def take(self) -> list[NDArray[np.uint32]]:
        """Return all uses, and forget them."""
        parts, self._parts = self._parts, []
        return parts


def _distinct(uses: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """The distinct columns, of shape (3, n)."""
    if not uses.shape[1]:
        return uses
    ordered = uses[:, np.lexsort(uses)]
    fresh = np.ones(ordered.shape[1], np.bool_)
    fresh[1:] = (ordered[:, 1:] != ordered[:, :-1]).any(axis=0)
    return ordered[:, fresh]


def find_passing(
    streams: Callable[[], AbstractContextManager[Stream]],
    criteria: Criteria,
    meta: SpoolMeta,
    calls: Sequence[CallSpec],
    tick: Callable[[], None] = lambda: None,
) -> Passing:
    """Find the rows that pass.

    Args:
        streams: Opens the spool's batches from the beginning. It is called once, or twice with waits or rings.
        criteria: The user's choice.
        meta: The recording's metadata.
        calls: The calls, indexed by the codes of ``operations.call``.
        tick: Called after each batch.

    Raises:
        SpoolError: The spool cannot be read.
    """
    passing = Passing(Matcher(criteria, meta, calls))
    waits = False
    with streams() as stream:
        for batch in _each(stream, tick):
            passing.learn(batch)
            waits = waits or len(batch.off_cpu["task"]) > 0
    passing.conclude()
    if waits or passing.rings_open:
        _find_more(streams, passing, tick)
    return passing


def _find_more(
    streams: Callable[[], AbstractContextManager[Stream]], passing: Passing, tick: Callable[[], None]
) -> None:
    """Find the rings' requests and the waits that pass.

    A wait belongs to the next call that its thread ends, at the row of the wait's ordinal or later. One of a worker
    belongs to a request.
    """
    number = 0
    open_waits = np.zeros((3, 0), np.uint64)  # number, task, ordinal of the row it stands before
    with streams() as stream:
        for batch in _each(stream, tick):
            passing.find_rings(batch.ring_requests)
            tasks = batch.off_cpu["task"].astype(np.uint64)
            numbers = np.arange(number, number + len(tasks), dtype=np.uint64)
            number += len(tasks)
            of_calls = batch.off_cpu["request"] == 0
            fresh = np.array([numbers, tasks, batch.off_cpu["before"]])[:, of_calls]
            open_waits = np.concatenate([open_waits, fresh], axis=1)
            if not open_waits.shape[1] or not len(batch.operations["task"]):
                continue
            first = np.minimum(np.maximum(open_waits[2], batch.first_operation) - batch.first_operation, UNKNOWN_U32)
            places = np.arange(len(batch.operations["task"]), dtype=np.uint64)
            keys = batch.operations["task"].astype(np.uint64) << np.uint64(32) | places
            order = np.argsort(keys)
            place = np.minimum(np.searchsorted(keys[order], open_waits[1] << np.uint64(32) | first), len(keys) - 1)
            row = order[place]
            found = (batch.operations["task"][row] == open_waits[1]) & (row >= first)
            passes = passing.calls(batch.operations)[row]
            passing.waits.add(open_waits[0][found & passes])
            open_waits = open_waits[:, ~found]


def _each(stream: Stream, tick: Callable[[], None]) -> Iterator[Batch]:
    for batch in stream:
        yield batch
        stream.release(batch)
        tick()


def properties(criteria: Criteria, left_out: LeftOut) -> dict[str, str]:
    """A trace's properties about its filter, for ``TraceEnd.properties``."""
    facts = {f"FILTERED_{name.upper()}": str(number) for name, number in asdict(left_out).items()}
    return {"FILTER": str(criteria.filter), **facts} if criteria else {}
