"""I/O events of any OTF2 trace, in the order of their times, as rows of calls and requests.

A transfer belongs to the call that its thread is in (``calls.py``). Several transfers at once belong to one vector:
Score-P begins one for each buffer of a ``readv``. A transfer is a row of its own, from start to completion, if it is
outside of any call, non-blocking, or not the first in its call. Requests of disks and of io_uring are no calls.
"""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from lo2io.model import UNKNOWN_I64, UNKNOWN_U32, CallKind
from lo2io.otf2.foreign.calls import ASYNCHRONOUS, NO_REGION, Calls
from lo2io.otf2.foreign.rows import CANCELLED, COMPLETED, IN_FLIGHT, INFERRED, UNKNOWN_TICKS, Row
from lo2io.otf2.read.events import FIELD, KINDS, arguments_of
from lo2io.trace.ring_columns import RING_STATUS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lo2io.otf2.foreign.calls import Details
    from lo2io.otf2.read.events import Block

_TIME, _LOCATION, _KIND = FIELD["time"], FIELD["location"], FIELD["kind"]
_FIRST, _NUMBER = FIELD["first_detail"], FIELD["nr_attributes"]
READ, WRITE, FLUSH = range(3)
"""OTF2_IoOperationMode."""
_NON_BLOCKING: Final = 1
_KINDS: Final = {READ: CallKind.READ, WRITE: CallKind.WRITE, FLUSH: CallKind.SYNC}


class ForeignEvents(Calls):
    """Takes all events of a trace.

    Args:
        locations: Locations with events, in the order in which blocks count them.
        arguments: The arguments of :class:`~lo2io.otf2.foreign.calls.Calls`.
    """

    def __init__(self, locations: Sequence[int], *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._locations = locations
        takers = self._takers()
        self._by_kind = [(arguments_of(event), takers.get(event, _nothing)) for event in KINDS]
        self._taken = np.array([event in takers for event in KINDS], np.bool_)

    # ---- operations ----

    def _begin(  # noqa: PLR0917 -- as the event has them
        self,
        location: int,
        time: int,
        attributes: Details,
        handle: int,
        mode: int,
        flags: int,
        asked: int,
        ident: int,
    ) -> None:
        frames = self._frames[location]
        facts = self._look(attributes)
        aside = handle in self._disks or handle in self._rings
        row = frames[-1] if frames and not (aside or flags & _NON_BLOCKING) else None
        if row is not None and row.parts and (row.handle, row.mode) == (handle, mode):
            row.join(asked)
            rows = self._pending.setdefault((handle, ident), {})
            if rows.get(location) is row:
                self._again[location, handle, ident] = self._again.get((location, handle, ident), 0) + 1
            rows[location] = row
            return
        if row is not None and mode == WRITE and self._fixed.get(row.region) == CallKind.COPY:
            read = row.handle
            self._fill(row, handle, CallKind.COPY)
            row.handle, row.handle2 = read, handle
        elif row is not None and not row.filled:
            self._fill(row, handle, _KINDS.get(mode, CallKind.META))
            row.parts = 1
        else:
            row = self._alone(location, time, handle, mode, blocking=not flags & _NON_BLOCKING)
        if row.handle2 != handle or row.handle == UNKNOWN_U32:
            row.mode, row.asked = mode, asked if asked < 2**63 else UNKNOWN_I64
            self._place(row, facts)
        if not aside:
            row.status = IN_FLIGHT  # until it completes
            if self._positions is not None:
                call = self._names.get(frames[-1].region if frames else NO_REGION, "")
                self._positions.begin(row, self._place_of(location, handle), call)
        self._pending.setdefault((handle, ident), {})[location] = row

    def _alone(self, location: int, time: int, handle: int, mode: int, *, blocking: bool) -> Row:
        """The row of an operation that belongs to no region."""
        frames = self._frames[location]
        nested = len(frames) > 1 or (not frames and self._bare[location] > 0)
        region = frames[-1].region if frames else NO_REGION
        row = Row(location, time, region if blocking else ASYNCHRONOUS, frame=False, nested=nested)
        self._fill(row, handle, _KINDS.get(mode, CallKind.META))
        if blocking and not frames:
            self._bare[location] += 1
        return row

    @staticmethod
    def _place(row: Row, facts: dict[str, int]) -> None:
        offset = facts.get("Offset", 2**63)
        if offset < 2**63:
            row.offset, row.source = offset, 1
        if row.asked == UNKNOWN_I64:
            row.asked = facts.get("Bytes", UNKNOWN_I64)  # the range of a discard
        row.sector = facts.get("Sector", 0)
        row.operation = facts.get("Operation", UNKNOWN_U32)
        row.tid = facts.get("ThreadId", UNKNOWN_U32)
        row.user_data = facts.get("io_uring user_data", 0)
        row.ring = facts.get("io_uring ring", UNKNOWN_U32)

    def _issued(self, location: int, time: int, _attributes: Details, handle: int, ident: int) -> None:
        rows = self._pending.get((handle, ident))
        if rows is None:
            self.tally.orphans += 1
        else:
            rows.get(location, next(iter(rows.values()))).issue = time

    def _complete(  # noqa: PLR0917 -- as the event has them
        self, location: int, time: int, attributes: Details, handle: int, moved: int, ident: int
    ) -> None:
        row = self._ended(location, handle, ident)
        if row is None:
            return
        if moved < 2**63 and row.mode != FLUSH:
            row.moved = max(row.moved, 0) + moved if row.vector else moved
        if self._has_more(row):
            return
        facts = self._look(attributes)
        row.moved = facts.get("Bytes", row.moved)
        self._tell(row, handle, COMPLETED, facts)
        self._completed(row, handle, time)

    def _ended(self, location: int, handle: int, ident: int) -> Row | None:
        """The operation under way that has ended: the same location's, else the one that began first."""
        rows = self._pending.get((handle, ident))
        if rows is None:
            self.tally.orphans += 1
            return None
        began = location if location in rows else next(iter(rows))
        if again := self._again.pop((began, handle, ident), 0):
            if again > 1:
                self._again[began, handle, ident] = again - 1
            return rows[began]
        row = rows.pop(began)
        if not rows:
            del self._pending[handle, ident]
        return row

    @staticmethod
    def _has_more(row: Row) -> bool:
        """Count the end of one transfer. True if further transfers of the row are under way."""
        row.parts = max(row.parts - 1, 0)
        return row.parts > 0

    def _tell(self, row: Row, handle: int, status: int, facts: dict[str, int]) -> None:
        """Note the facts that an operation's end tells."""
        row.error = facts.get("errno", row.error)
        row.path = facts.get("io_uring path", UNKNOWN_U32)
        if "io_uring result" in facts:
            row.result = ctypes.c_int32(facts["io_uring result"]).value
        elif row.handle2 != handle and row.result == UNKNOWN_I64:
            row.result = -row.error if row.error else row.moved
        row.status = status
        if handle in self._rings:
            said = self._text(facts["io_uring status"]) if "io_uring status" in facts else ""
            row.status = RING_STATUS.index(said) if said in RING_STATUS else status
            row.status = IN_FLIGHT if "InFlight" in facts else row.status
        elif "EndInferred" in facts:
            row.status = INFERRED

    def _completed(self, row: Row, handle: int, time: int) -> None:
        if handle in self._disks or handle in self._rings:
            self._end_request(row, handle, time)
            return
        if self._positions is not None:
            self._positions.complete(row)
        if row.frame:
            return
        if row.region == NO_REGION:
            self._bare[row.location] -= 1
        self._emit(row, time)

    def _end_request(self, row: Row, handle: int, time: int) -> None:
        disk = handle in self._disks
        if disk:
            self.requesters.add(row.location)
        if row.status == IN_FLIGHT:
            self.tally.in_flight += 1
            time = UNKNOWN_TICKS
        self._spills["requests" if disk else "rings"].add(row.request(time))

    def _cancelled(self, location: int, time: int, attributes: Details, handle: int, ident: int) -> None:
        row = self._ended(location, handle, ident)
        if row is None:
            return
        if self._has_more(row):
            return
        self.tally.cancelled += handle not in self._disks
        aside = handle in self._disks or handle in self._rings
        self._tell(row, handle, CANCELLED if aside else COMPLETED, self._look(attributes))
        self._completed(row, handle, time)

    # ---- all of them ----

    def _takers(self) -> dict[str, Callable[..., None]]:
        """Kind of event → method that takes an event's location, time, attributes and arguments."""
        return {
            "Enter": self._enter,
            "Leave": self._leave,
            "CallingContextEnter": self._context_enter,
            "CallingContextLeave": self._context_leave,
            "IoCreateHandle": self._create,
            "IoDestroyHandle": self._destroy,
            "IoDuplicateHandle": self._duplicate,
            "IoSeek": self._seek,
            "IoChangeStatusFlags": self._change,
            "IoDeleteFile": self._delete,
            "IoAcquireLock": self._lock,
            "IoTryLock": self._lock,
            "IoOperationBegin": self._begin,
            "IoOperationIssued": self._issued,
            "IoOperationComplete": self._complete,
            "IoOperationCancelled": self._cancelled,
        }

    def take(self, block: Block) -> None:
        """Take the next events."""
        events = block.events
        for place, number in enumerate(np.bincount(events["location"]).tolist()):
            self.tally.of_location[self._locations[place]] += number
        if len(events):
            self.tally.first = min(self.tally.first, int(events["time"].min()))
            self.tally.last = max(self.tally.last, int(events["time"].max()))
        self.tally.samples += int(np.count_nonzero(events["kind"] == KINDS["CallingContextSample"]))
        details = block.details.tolist()
        for row in events[self._taken[events["kind"]]].tolist():
            arguments, take = self._by_kind[row[_KIND]]
            first = row[_FIRST]
            attributes = details[first : first + row[_NUMBER]]
            take(self._locations[row[_LOCATION]], row[_TIME], attributes, *arguments(row))

    def finish(self) -> None:
        """Write the rows of operations that have not ended: they are in flight."""
        for handle, row in ((handle, row) for (handle, _), rows in self._pending.items() for row in rows.values()):
            row.status = IN_FLIGHT
            if handle in self._disks or handle in self._rings:
                self._end_request(row, handle, UNKNOWN_TICKS)
            elif not row.frame:
                self.tally.in_flight += 1
                self._emit(row, UNKNOWN_TICKS)
        for frames in self._frames.values():
            for row in frames:
                self._end_frame(row, UNKNOWN_TICKS, {"InFlight": 1})
        self._pending.clear()
        self.tally.events = sum(self.tally.of_location.values())


def _nothing(*_: Any) -> None:
    """Takes events that are not about I/O."""
