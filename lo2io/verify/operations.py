"""Rules of handles and operations, which hold across the locations of a trace.

Events of one location have an order. Events of different locations at the same tick have none, whatever the order of
the merge. So an event that would break a rule is *held* while the tick lasts, with all later events of its location. If
events of other locations then allow it, no rule was broken. Events still held when the tick ends are reported.
Likewise, a location may use a handle that another location destroyed at the same tick.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from lo2io.otf2.library import UNDEFINED_U32, UNDEFINED_U64
from lo2io.otf2.read.definitions import (
    BLOCK_PARADIGM,
    HANDLE_ALL_PROXY,
    HANDLE_PARENT,
    HANDLE_PRE_CREATED,
    RING_PARADIGMS,
    handles_of,
)
from lo2io.otf2.read.tables import Places

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from lo2io.otf2.read.definitions import Definitions
    from lo2io.otf2.read.tables import Table
    from lo2io.verify.rules import Verification

NON_BLOCKING = 1
FLUSH = 2
_MODES = 3
_MOST_HELD = 1_000
"""The number of events that may be held at once. Some traces have a clock that stands still."""


class LocationState:
    """The state of a location while its events are read."""

    __slots__ = ("context", "events", "group", "id", "last", "metrics", "ordinal", "samples", "stack")

    def __init__(self, ref: int, group: int) -> None:
        self.id = ref
        self.group = group
        self.events = 0
        self.ordinal = 0
        self.last = 0
        self.stack: list[tuple[int, int, int]] = []
        """Region, time and calling context of each open enter. Context -1: unknown, or a plain Enter."""
        self.context = -1
        """Calling context of the previous event; -1: not known."""
        self.metrics = 0
        self.samples = 0


class Handle:
    """The state of one handle. A handle with a communicator has one state for each location group."""

    __slots__ = ("active", "anyone", "changed", "changed_by", "group", "per_group", "place", "ref")

    def __init__(self, ref: int, place: int, *, active: bool, anyone: bool) -> None:
        self.ref = ref
        self.place = place
        self.active = active
        self.anyone = anyone
        self.group: int | None = None
        self.changed: int | None = None
        self.changed_by: LocationState | None = None
        self.per_group: dict[int, Handle] | None = None


UNCLAIMED: Final = -1
ANYONE: Final = -2


class HandleColumns:
    """The states of handles as columns, for whole columns of events. Handles with a communicator are left out."""

    def __init__(self, handles: Table, rings: frozenset[int], disks: frozenset[int]) -> None:
        self.places = Places(handles.refs)
        flags = handles.column("flags")
        self.active = flags & HANDLE_PRE_CREATED != 0
        self.anyone = flags & HANDLE_ALL_PROXY != 0
        self.group = np.full(len(handles), UNCLAIMED, np.int64)
        """For each handle the location group that uses it, :data:`UNCLAIMED` or :data:`ANYONE`."""
        self.alone = handles.column("communicator") == UNDEFINED_U32
        self.of_ring = np.isin(handles.refs, list(rings))
        self.of_disk = np.isin(handles.refs, list(disks))

    def handle(self, ref: int, place: int) -> Handle:
        """The handle, in the state that was noted last."""
        group = int(self.group[place])
        handle = Handle(ref, place, active=bool(self.active[place]), anyone=bool(self.anyone[place]))
        handle.group = group if group >= 0 else None
        handle.per_group = None if self.alone[place] else {}
        return handle

    def note(self, handle: Handle) -> None:
        """Take over the state of a handle that has changed."""
        self.active[handle.place] = handle.active
        if handle.group is not None:
            self.group[handle.place] = ANYONE if handle.anyone else handle.group


class _Operation(NamedTuple):
    begun_by: LocationState
    time: int
    non_blocking: bool
    bytes: int


class _Held(NamedTuple):
    state: LocationState
    ordinal: int
    time: int
    apply: Callable[..., bool]
    arguments: tuple[Any, ...]


def _overtaken(handle: Handle, state: LocationState) -> bool:
    """True if another location destroyed the handle while this location was inside its present call."""
    since = state.stack[0][1] if state.stack else None
    return (
        since is not None and handle.changed is not None and handle.changed_by is not state and since <= handle.changed
    )


class IoRules:
    """Follows every handle and operation.

    Methods named after events return False and do nothing if the event would break a rule, but events of other
    locations at the same tick may still allow it. With ``forced`` they report the event, and go on as best they can.
    """

    def __init__(self, definitions: Definitions, verdict: Verification) -> None:
        self.verdict = verdict
        self.held: list[_Held] = []
        self._deleted = False
        self._ids: Ids | None = Ids()
        self._open: dict[tuple[Handle, int], _Operation] = {}
        self._hidden: dict[tuple[Handle, int], list[_Operation]] = {}
        """Handle and id → further open operations of this id, which other locations began earlier."""
        self._issued: set[tuple[Handle, int]] = set()
        self._ended: dict[tuple[Handle, int], LocationState] = {}
        self._ended_at = -1
        self._rings = handles_of(definitions, *RING_PARADIGMS)
        self._disks = handles_of(definitions, BLOCK_PARADIGM)
        self._paradigms = definitions.table("paradigm")
        self._files = definitions.table("file")
        self._handles: dict[int, Handle] = {}
        """Handles that events were looked at for."""
        self._definitions = definitions.columns("handle")
        self.columns = HandleColumns(self._definitions, self._rings, self._disks)

    def forget(self) -> None:
        """End a node of a merged archive: no further event is about its handles, and its matching ids are its own."""
        self.settle()
        held = {handle.ref for handle, _ in self._open}
        self._handles = {
            ref: handle for ref, handle in self._handles.items() if handle.per_group is not None or ref in held
        }
        self._ended.clear()
        self._ended_at = -1
        if self._ids is not None:
            self._ids = Ids()

    # ---- whole columns ----

    def known_ids(self, idents: NDArray[np.uint64]) -> NDArray[np.bool_]:
        """True for matching ids in use. Until the first reuse is reported, also true for ids of ended operations."""
        in_use = np.array([ident for _, ident in self._open], np.uint64)
        known: NDArray[np.bool_] = np.isin(idents, in_use)
        return known if self._ids is None else known | self._ids.holds(idents)

    def take_over(self, begun: NDArray[np.uint64], *, completed: int, cancelled: int) -> None:
        """Count operations that began and ended within a block and keep every rule.

        Args:
            begun: The operations' matching ids, each once, in ascending order.
            completed: The number of completed operations.
            cancelled: The number of cancelled operations.
        """
        if self._ids is not None:
            self._ids.add(begun)
        self.verdict.counts.operations += len(begun)
        self.verdict.counts.completed += completed
        self.verdict.counts.cancelled += cancelled

    # ---- events held until their tick ends ----

    def submit(self, state: LocationState, time: int, apply: Callable[..., bool], arguments: tuple[Any, ...]) -> None:
        """Take the next event that could not be applied at once."""
        waits = any(held.state is state for held in self.held)
        if waits or not apply(state, time, False, *arguments):
            self.held.append(_Held(state, state.ordinal, time, apply, arguments))
            if len(self.held) > _MOST_HELD:
                self.settle()
        elif self.held:
            self._retry()

    def settle(self) -> None:
        """End the tick: report the events that are still held."""
        while self.held:
            self._apply(self.held.pop(0), forced=True)
            self._retry()

    def _retry(self) -> None:
        progress = True
        while progress and self.held:
            progress = False
            waiting: set[LocationState] = set()
            rest = []
            for held in self.held:
                if held.state in waiting or not self._apply(held, forced=False):
                    waiting.add(held.state)
                    rest.append(held)
                else:
                    progress = True
            self.held = rest

    @staticmethod
    def _apply(held: _Held, *, forced: bool) -> bool:
        state = held.state
        now, state.ordinal = state.ordinal, held.ordinal
        done = held.apply(state, held.time, forced, *held.arguments)
        state.ordinal = now
        return done

    def _report(self, rule: str, state: LocationState, time: int, text: str) -> None:
        self.verdict.report(rule, text, location=state.id, time=time, event=state.ordinal)

    # ---- handles ----

    def _handle(self, state: LocationState, time: int, ref: int) -> Handle | None:
        """The handle of a reference. If the handle is not defined, report this and return None."""
        handle = self._known(ref)
        if handle is None:
            self._report("reference.handle", state, time, f"I/O handle {ref} is not defined")
            return None
        if handle.per_group is not None:
            shared = handle
            handle = shared.per_group.get(state.group) if shared.per_group is not None else None
            if handle is None:
                handle = Handle(ref, shared.place, active=shared.active, anyone=shared.anyone)
                shared.per_group[state.group] = handle  # type: ignore[index]
        return handle

    def _known(self, ref: int) -> Handle | None:
        handle = self._handles.get(ref)
        if handle is None and (place := self._definitions.place(ref)) >= 0:
            handle = self._handles[ref] = self.columns.handle(ref, place)
        return handle

    def _claim(self, handle: Handle, state: LocationState, time: int) -> None:
        """Give an unclaimed handle to this location group, or report that it belongs to another group."""
        if handle.group is None:
            handle.group = state.group
            self.columns.note(handle)
        elif handle.group != state.group and not handle.anyone:
            text = f"handle {handle.ref} of location group {handle.group} is used in group {state.group}"
            self._report("handle.foreign-group", state, time, text)

    def _usable(self, handle: Handle, state: LocationState, time: int, forced: bool) -> bool | None:
        """Check that the handle may be used. True: go on. None: hold the event."""
        if handle.active or (handle.changed == time and handle.changed_by is not state) or _overtaken(handle, state):
            if handle.group != state.group:
                self._claim(handle, state, time)
            return True
        if not forced:
            return None
        why = "was never created" if handle.changed is None else f"was destroyed at tick {handle.changed}"
        self._report("handle.inactive", state, time, f"handle {handle.ref} {why}")
        return True

    def use(self, state: LocationState, time: int, forced: bool, ref: int, *_: Any) -> bool:
        """IoSeek, IoChangeStatusFlags, locks: events that need only an active handle."""
        handle = self._handle(state, time, ref)
        return handle is None or self._usable(handle, state, time, forced) is not None

    def create(self, state: LocationState, time: int, forced: bool, ref: int, *_: Any) -> bool:
        """IoCreateHandle."""
        handle = self._handle(state, time, ref)
        if handle is None:
            return True
        if handle.active:
            if not forced:
                return False
            self._report("handle.created-twice", state, time, f"handle {ref} is active already")
        self._claim(handle, state, time)
        handle.active, handle.changed, handle.changed_by = True, time, state
        self.columns.note(handle)
        return True

    def destroy(self, state: LocationState, time: int, forced: bool, ref: int) -> bool:
        """IoDestroyHandle."""
        handle = self._handle(state, time, ref)
        if handle is None:
            return True
        if not handle.active:
            if not forced:
                return False
            before = "never" if handle.changed is None else f"not since tick {handle.changed}"
            self._report("handle.destroyed-twice", state, time, f"handle {ref} is destroyed, but was {before} active")
            return True
        self._claim(handle, state, time)
        handle.active, handle.changed, handle.changed_by = False, time, state
        self.columns.note(handle)
        return True

    def duplicate(self, state: LocationState, time: int, forced: bool, old: int, new: int, *_: Any) -> bool:
        """IoDuplicateHandle."""
        target = self._known(new)
        if not forced and target is not None and target.active:
            return False
        if not self.use(state, time, forced, old) or not self.create(state, time, forced, new):
            return False
        parents = [self._definitions[ref][HANDLE_PARENT] for ref in (old, new) if ref in self._definitions]
        known = all(parent in self._definitions or parent == UNDEFINED_U32 for parent in parents)
        if known and len(set(parents)) > 1:
            text = f"handle {new}, whose parent is {parents[1]}, is a duplicate of handle {old}, whose is {parents[0]}"
            self._report("handle.parent", state, time, text)
        return True

    def delete_file(self, state: LocationState, time: int, _forced: bool, paradigm: int, file: int) -> bool:
        """IoDeleteFile."""
        self._deleted = True
        if paradigm not in self._paradigms:
            self._report("reference.paradigm", state, time, f"I/O paradigm {paradigm} is not defined")
        if file not in self._files:
            self._report("reference.file", state, time, f"I/O file {file} is not defined")
        return True

    # ---- operations ----

    def begin(  # noqa: PLR0917 -- as the event has them
        self, state: LocationState, time: int, forced: bool, ref: int, mode: int, flags: int, size: int, ident: int
    ) -> bool:
        """IoOperationBegin."""
        handle = self._handle(state, time, ref)
        if handle is None:
            return True
        key = handle, ident
        busy = key in self._open
        if (busy and not forced) or self._usable(handle, state, time, forced) is None:
            return False
        if busy:
            text = f"matching id {ident} is still in use on handle {ref}, since tick {self._open[key].time}"
            self._report("operation.id-in-use", state, time, text)
            if self._open[key].begun_by is not state:
                self._hidden.setdefault(key, []).append(self._open[key])
        if mode >= FLUSH:
            self._check_mode(state, time, ref, mode, size)
        if not flags & NON_BLOCKING and ref in self._rings:
            self._report("ring.blocking", state, time, f"id {ident} on handle {ref} is a blocking operation")
        if self._ids is not None and not busy and not self._ids.is_new(ident):
            self._report("operation.id-again", state, time, f"matching id {ident} served before; first case only")
            self._ids = None
        self._open[key] = _Operation(state, time, bool(flags & NON_BLOCKING), size)
        self._issued.discard(key)
        self.verdict.counts.operations += 1
        return True

    def _check_mode(self, state: LocationState, time: int, ref: int, mode: int, size: int) -> None:
        if mode >= _MODES:
            self._report("operation.mode", state, time, f"the operation on handle {ref} has mode {mode}")
        elif size != UNDEFINED_U64:
            self._report("operation.flush-bytes", state, time, f"a flush of handle {ref} asks for {size} bytes")

    def _followed(  # noqa: PLR0917 -- all four events have these
        self, state: LocationState, time: int, forced: bool, ref: int, ident: int, event: str
    ) -> tuple[Handle, int] | bool:
        """The key of the event's open operation.

        Without such an operation: True if the event is done, False if held.
        """
        handle = self._handle(state, time, ref)
        if handle is None:
            return True
        key = handle, ident
        operation = self._own(key, state) if self._hidden else self._open.get(key)
        if operation is None:
            if event == "Test" and self._ended_at == time and self._ended.get(key, state) is not state:
                return True
            if forced:
                self._report("operation.not-begun", state, time, f"{event} of id {ident} on handle {ref}: no Begin")
            return forced
        problem = self._order_problem(key, operation, event)
        # An operation outlives its descriptor if another thread closes it, or if the operation is non-blocking.
        outlives = operation.non_blocking or handle.changed_by is not state
        if not forced and (problem or not (outlives or self._usable(handle, state, time, False))):
            return False
        if problem:
            self._report("operation.order", state, time, f"{event} of id {ident} on handle {ref}: {problem}")
        elif forced and not outlives:
            self._usable(handle, state, time, True)
        if operation.begun_by is not state:
            rule = "ring.elsewhere" if ref in self._rings else "operation.elsewhere"
            text = f"{event} of id {ident} on handle {ref}: begun on location {operation.begun_by.id}"
            self._report(rule, state, time, text)
        return key

    def _own(self, key: tuple[Handle, int], state: LocationState) -> _Operation | None:
        """The open operation. Among several, prefer the one that this location began."""
        operation, hidden = self._open.get(key), self._hidden.get(key, [])
        place = next((place for place, other in enumerate(hidden) if other.begun_by is state), None)
        if operation is None or operation.begun_by is state or place is None:
            return operation
        self._open[key], hidden[place] = hidden[place], operation
        return self._open[key]

    def _order_problem(self, key: tuple[Handle, int], operation: _Operation, event: str) -> str:
        if not operation.non_blocking:
            return "" if event == "Complete" else "the operation is blocking"
        if event == "Issued":
            return "it was issued before" if key in self._issued else ""
        return "" if key in self._issued else "it was not issued"

    def test(self, state: LocationState, time: int, forced: bool, ref: int, ident: int) -> bool:
        """IoOperationTest."""
        return self._followed(state, time, forced, ref, ident, "Test") is not False

    def issued(self, state: LocationState, time: int, forced: bool, ref: int, ident: int) -> bool:
        """IoOperationIssued."""
        key = self._followed(state, time, forced, ref, ident, "Issued")
        if isinstance(key, tuple):
            self._issued.add(key)
        return key is not False

    def complete(  # noqa: PLR0917 -- as the event has them
        self, state: LocationState, time: int, forced: bool, ref: int, size: int, ident: int
    ) -> bool:
        """IoOperationComplete."""
        key = self._followed(state, time, forced, ref, ident, "Complete")
        if not isinstance(key, tuple):
            return key
        asked = self._end(key, state, time).bytes
        self.verdict.counts.completed += 1
        # A queued request of a disk grows when others are merged into it.
        if asked < size < UNDEFINED_U64 and ref not in self._disks:
            self._report(
                "operation.bytes", state, time, f"handle {ref}, id {ident}: {asked} bytes asked for, {size} transferred"
            )
        return True

    def cancelled(self, state: LocationState, time: int, forced: bool, ref: int, ident: int) -> bool:
        """IoOperationCancelled."""
        key = self._followed(state, time, forced, ref, ident, "Cancelled")
        if not isinstance(key, tuple):
            return key
        self._end(key, state, time)
        self.verdict.counts.cancelled += 1
        return True

    def _end(self, key: tuple[Handle, int], state: LocationState, time: int) -> _Operation:
        operation = self._open.pop(key)
        if hidden := self._hidden.get(key):
            self._open[key] = hidden.pop()
        if operation.non_blocking:
            self._issued.discard(key)
            if self._ended_at != time:
                self._ended.clear()
                self._ended_at = time
            self._ended[key] = state
        return operation

    def finish(self, *, sampled: bool = False) -> None:
        """Report what the end of the trace leaves open.

        ``sampled``: the trace has samples of I/O, which count as I/O.
        """
        self.settle()
        used = (self.columns.group != UNCLAIMED).any() or any(handle.per_group for handle in self._handles.values())
        if not (sampled or self._deleted or used):
            self.verdict.report("trace.no-io", "no event of the trace concerns a handle, an operation or a file")
        hidden = [(key, operation) for key, operations in self._hidden.items() for operation in operations]
        self.verdict.counts.in_flight = len(self._open) + len(hidden)
        for (handle, ident), operation in (*self._open.items(), *hidden):
            self.verdict.report(
                "operation.in-flight",
                f"the operation with id {ident} on handle {handle.ref} has not ended",
                location=operation.begun_by.id,
                time=operation.time,
            )


_WORD_BITS = 6
_PAGE_BITS = 9
_FULL = (1 << (1 << _PAGE_BITS)) - 1


class Ids:
    """A set of integers that takes few bytes if the integers are dense, as those of a counter are."""

    def __init__(self) -> None:
        self._pages: dict[int, int] = {}
        self._full: Ids | None = None
        """Numbers of the pages of which every integer is in the set."""
        self._highest = -1

    def is_new(self, number: int) -> bool:
        """Add a number. False if the set had it already."""
        page, bit = number >> _PAGE_BITS, 1 << (number & (1 << _PAGE_BITS) - 1)
        known = number in self
        if not known:
            self._add(page, bit)
            self._highest = max(self._highest, number)
        return not known

    def __contains__(self, number: int) -> bool:
        page = number >> _PAGE_BITS
        if self._pages.get(page, 0) >> (number & (1 << _PAGE_BITS) - 1) & 1:
            return True
        return self._full is not None and page in self._full

    def holds(self, numbers: NDArray[np.uint64]) -> NDArray[np.bool_]:
        """True for each number in the set. Numbers above the set's highest one take no time."""
        found = np.zeros(len(numbers), np.bool_)
        if self._highest >= 0:
            for place in np.flatnonzero(numbers <= np.uint64(self._highest)).tolist():
                found[place] = int(numbers[place]) in self
        return found

    def add(self, numbers: NDArray[np.uint64]) -> None:
        """Add numbers, which must ascend strictly and be new to the set."""
        if not len(numbers):
            return
        words, bits = numbers >> np.uint64(_WORD_BITS), np.uint64(1) << (numbers & np.uint64((1 << _WORD_BITS) - 1))
        starts = np.flatnonzero(np.concatenate([[True], words[1:] != words[:-1]]))
        merged: Any = np.bitwise_or.reduceat(bits, starts)
        spare = _PAGE_BITS - _WORD_BITS
        for word, of_word in zip(words[starts].tolist(), merged.tolist(), strict=True):
            self._add(word >> spare, of_word << ((word & (1 << spare) - 1) << _WORD_BITS))
        self._highest = max(self._highest, int(numbers[-1]))

    def _add(self, page: int, bits: int) -> None:
        merged = self._pages.get(page, 0) | bits
        if merged != _FULL:
            self._pages[page] = merged
            return
        self._pages.pop(page, None)
        if self._full is None:
            self._full = Ids()
        self._full.is_new(page)
