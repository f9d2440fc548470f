"""Calls of any OTF2 trace: regions, and their actions on handles.

A call is a region of role FILE_IO or FILE_IO_METADATA, or of lo2s' group of system calls, from ``Enter`` to ``Leave``.
The thread's events directly inside the region are the call's actions. In a trace without any such region, each event
that creates, destroys, duplicates or seeks a handle is a call.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from lo2io.model import UNKNOWN_I64, UNKNOWN_U32, CallKind
from lo2io.otf2.foreign.positions import Positions
from lo2io.otf2.foreign.rows import IN_FLIGHT, UNKNOWN_TICKS, Row, Spill
from lo2io.otf2.read.definitions import BLOCK_PARADIGM, GROUP_REGIONS, HANDLE_ALL_PROXY, RING_PARADIGMS, handles_of

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from lo2io.otf2.read.definitions import Definitions

    Details = Sequence[tuple[int, int, int]]

ROLES: Final = (27, 38)
"""OTF2_REGION_ROLE_FILE_IO and …_FILE_IO_METADATA (OTF2_Definitions.h)."""
_SYSTEM_CALLS: Final = "<syscalls>"
"""Name of the group of regions that lo2s (src/trace/trace.cpp) makes of system calls. Their role is FUNCTION."""
_APPEND: Final = 2
"""OTF2_IO_STATUS_FLAG_APPEND."""
NO_REGION, ASYNCHRONOUS = -1, -2
"""In place of a region, if no region names the call. The second is for non-blocking operations."""
_WIDTHS: Final = {1: 0xFF, 2: 0xFFFF, 3: 0xFFFFFFFF, 5: 0xFF, 6: 0xFFFF, 7: 0xFFFFFFFF, 11: 0xFFFFFFFF}
"""OTF2_Type of at most 32 bits → mask of the value's defined bits."""
_ATTRIBUTES: Final = frozenset({
    "Offset", "errno", "InFlight", "Sector", "Operation", "ThreadId", "io_uring user_data", "io_uring result",
    "io_uring ring", "io_uring path", "io_uring status", "EndInferred", "Bytes",
})  # fmt: skip
"""Names of attributes that are understood. All are lo2io's."""


@dataclass(slots=True)
class HandleUse:
    """Facts about a handle from its events."""

    origin: str | None = None
    open_time: int = UNKNOWN_TICKS
    close_time: int = UNKNOWN_TICKS
    modes: tuple[int, int, int] | None = None
    """Access mode, creation flags and status flags, in OTF2's values."""
    location: int | None = None
    """The location of the first call that used the handle."""


@dataclass(slots=True)
class Tally:
    """Counters over all events."""

    events: int = 0
    orphans: int = 0
    in_flight: int = 0
    cancelled: int = 0
    samples: int = 0
    first: int = UNKNOWN_TICKS
    last: int = 0
    """Times of the first and the last event. The first one is unknown if there are no events."""
    of_location: dict[int, int] = field(default_factory=dict)


class Calls:
    """Makes the calls of a trace from its events of regions and handles.

    Args:
        definitions: All definitions of the trace.
        kinds: Name of a system call → its kind, which its actions cannot change.
        spills: Files for rows: ``calls``, ``requests`` of disks, ``rings``.
        own: True if lo2io wrote the archive. Then all regions with names of ``kinds`` are calls, whatever their role.
    """

    def __init__(
        self,
        definitions: Definitions,
        kinds: Mapping[str, CallKind],
        spills: Mapping[str, Spill],
        *,
        own: bool = False,
    ) -> None:
        self.tally = Tally(of_location=dict.fromkeys(definitions.table("location"), 0))
        self.keys: dict[tuple[int, int, int], int] = {}
        """Paradigm, region and kind of a call → its number in the rows."""
        self.handles: dict[int, HandleUse] = {}
        self.callers: set[int] = set()
        """Locations with calls."""
        self.requesters: set[int] = set()
        """Locations with requests of disks."""
        self._spills = spills
        self._text = definitions.text
        self._names = {ref: definitions.name("region", ref) for ref in definitions.table("region")}
        self._regions = _io_regions(definitions, kinds, own=own)
        self._fixed = {ref: int(kinds[name]) for ref, name in self._names.items() if name in kinds}
        table = definitions.table("handle")
        self._paradigms = {ref: int(values[2]) for ref, values in table.items()}
        proxies = {ref for ref, values in table.items() if values[3] & HANDLE_ALL_PROXY}
        self._nobody = proxies
        """Handles that stand for no particular file."""
        self._disks = handles_of(definitions, BLOCK_PARADIGM)
        self._rings = handles_of(definitions, *RING_PARADIGMS)
        self._contexts = {ref: int(values[0]) for ref, values in definitions.table("calling-context").items()}
        self._frames: dict[int, list[Row]] = {ref: [] for ref in definitions.table("location")}
        self._bare = dict.fromkeys(self._frames, 0)
        self._groups = {ref: int(values[3]) for ref, values in definitions.table("location").items()}
        self._pending: dict[tuple[int, int], dict[int, Row]] = {}
        """Handle and matching id → location → operation under way. Locations are kept apart, because tools may number
        each location's operations separately, or give all blocking ones the same number."""
        self._again: dict[tuple[int, int, int], int] = {}
        """Location, handle and matching id → number of further transfers under way with this id, of the same call."""
        self._attributes = {
            ref: (name, _WIDTHS.get(values[2], UNKNOWN_TICKS))
            for ref, values in definitions.table("attribute").items()
            if (name := definitions.text(values[0])) in _ATTRIBUTES
        }
        self.told = frozenset(name for name, _ in self._attributes.values())
        """Attributes that the trace defines."""
        self._positions = None if "Offset" in self.told else Positions()

    # ---- attributes ----

    def _look(self, attributes: Details) -> dict[str, int]:
        """Name → value of the attributes that are understood."""
        found = {}
        for value, ref, _ in attributes:
            if ref in self._attributes:
                name, mask = self._attributes[ref]
                found[name] = value & mask
        return found

    # ---- regions ----

    def _enter(self, location: int, time: int, _attributes: Details, region: int) -> None:
        if region in self._regions:
            frames = self._frames[location]
            frames.append(Row(location, time, region, frame=True, nested=bool(frames)))

    def _leave(self, location: int, time: int, attributes: Details, region: int) -> None:
        frames = self._frames[location]
        if region in self._regions and any(row.region == region for row in frames):
            facts = self._look(attributes)
            while True:
                row = frames.pop()
                if row.region == region:
                    break
                self._end_frame(row, time, {"InFlight": 1})  # the tool left out the Leave
            self._end_frame(row, time, facts)

    def _context_enter(self, location: int, time: int, attributes: Details, context: int, _distance: int) -> None:
        return self._enter(location, time, attributes, self._contexts.get(context, -1))

    def _context_leave(self, location: int, time: int, attributes: Details, context: int) -> None:
        return self._leave(location, time, attributes, self._contexts.get(context, -1))

    def _end_frame(self, row: Row, time: int, facts: dict[str, int]) -> None:
        row.error = facts.get("errno", row.error)
        if row.error and row.result == UNKNOWN_I64:
            row.result = -row.error
        if "InFlight" in facts or row.status == IN_FLIGHT:
            row.status = IN_FLIGHT
            self.tally.in_flight += 1
        self._emit(row, time)

    def _emit(self, row: Row, time: int) -> None:
        """Write the row of a call that has ended."""
        key = row.paradigm, row.region, self._fixed.get(row.region, row.kind)
        self.callers.add(row.location)
        for handle in (row.handle, row.handle2):
            if handle != UNKNOWN_U32:
                use = self._use(handle)
                use.location = row.location if use.location is None else use.location
        self._spills["calls"].add(row.call(self.keys.setdefault(key, len(self.keys)), time))

    # ---- handles ----

    def _place_of(self, location: int, handle: int) -> tuple[int, int]:
        """The handle of one process: the location's group and the handle."""
        return self._groups.get(location, UNKNOWN_U32), handle

    def _use(self, handle: int) -> HandleUse:
        return self.handles.setdefault(handle, HandleUse())

    def _act(self, location: int, time: int, handle: int, kind: CallKind) -> Row:
        """The row of the call that acted: the current region's if that has not acted yet, else a new row.

        The new row counts only if regions never name calls.
        """
        frames = self._frames[location]
        row = frames[-1] if frames else None
        if row is None or row.filled:
            row = Row(location, time, NO_REGION, frame=False, nested=bool(frames))
        self._fill(row, handle, kind)
        return row

    def _fill(self, row: Row, handle: int, kind: CallKind) -> None:
        row.filled, row.kind = True, int(kind)
        row.paradigm = self._paradigms.get(handle, -1)
        if handle not in self._nobody:
            row.handle = handle

    def _acted(self, row: Row, time: int, attributes: Details) -> None:
        """End an action that takes no time. Outside of a region it is a call only if regions never name calls."""
        row.error = self._look(attributes).get("errno", row.error)
        if not row.frame and not self._regions:
            self._emit(row, time)

    def _create(self, location: int, time: int, attributes: Details, handle: int, *modes: int) -> None:
        row = self._act(location, time, handle, CallKind.OPEN)
        use = self._use(handle)
        use.origin = use.origin or "opened"
        use.open_time = time if use.open_time == UNKNOWN_TICKS else use.open_time
        use.modes = modes[0], modes[1], modes[2]
        if self._positions is not None:
            self._positions.open(self._place_of(location, handle), append=bool(modes[2] & _APPEND))
        self._acted(row, time, attributes)

    def _destroy(self, location: int, time: int, attributes: Details, handle: int) -> None:
        row = self._act(location, time, handle, CallKind.CLOSE)
        row.closes = 1
        self._use(handle).close_time = time
        if self._positions is not None:
            self._positions.close(self._place_of(location, handle))
        self._acted(row, time, attributes)

    def _duplicate(self, location: int, time: int, attributes: Details, old: int, new: int, _flags: int) -> None:
        row = self._act(location, time, old, CallKind.DUP)
        row.handle2 = new
        use = self._use(new)
        use.origin, use.open_time = use.origin or "duplicated", time
        if self._positions is not None:
            self._positions.duplicate(self._place_of(location, old), self._place_of(location, new))
        self._acted(row, time, attributes)

    def _seek(  # noqa: PLR0917 -- as the event has them
        self,
        location: int,
        time: int,
        attributes: Details,
        handle: int,
        asked: int,
        whence: int,
        result: int,
    ) -> None:
        row = self._act(location, time, handle, CallKind.SEEK)
        known = result < 2**63
        row.offset, row.flags, row.source = asked - (asked >> 63 << 64), whence, 1  # the offset is signed
        row.result = result if known else UNKNOWN_I64
        if self._positions is not None:
            self._positions.seek(self._place_of(location, handle), result if known else None)
        self._acted(row, time, attributes)

    def _change(self, location: int, time: int, attributes: Details, handle: int, status: int) -> None:
        row = self._act(location, time, handle, CallKind.META)
        if self._positions is not None:
            self._positions.append(self._place_of(location, handle), append=bool(status & _APPEND))
        self._acted(row, time, attributes)

    def _lock(self, location: int, time: int, attributes: Details, handle: int, _kind: int) -> None:
        self._acted(self._act(location, time, handle, CallKind.META), time, attributes)

    def _delete(self, location: int, time: int, attributes: Details, paradigm: int, _file: int) -> None:
        row = self._act(location, time, UNKNOWN_U32, CallKind.META)
        row.handle, row.paradigm = UNKNOWN_U32, paradigm
        self._acted(row, time, attributes)


def _io_regions(definitions: Definitions, names: Collection[str], *, own: bool) -> frozenset[int]:
    """Regions that are calls: those of an I/O role, except regions of io_uring's workers, and those of system calls.

    In lo2io's own archives, all regions with ``names`` are system calls; in other tools', those in lo2s' group.
    """
    regions = definitions.table("region")
    system_calls = regions.keys() if own else _members(definitions, _SYSTEM_CALLS)
    return frozenset(
        ref
        for ref, values in regions.items()
        if ((name := definitions.name("region", ref)) in names and ref in system_calls)
        or (values[3] in ROLES and not name.startswith("io_uring worker: "))
    )


def _members(definitions: Definitions, name: str) -> frozenset[int]:
    """The members of all groups of regions of this name."""
    groups = definitions.table("group").items()
    named = (ref for ref, values in groups if values[1] == GROUP_REGIONS and definitions.text(values[0]) == name)
    return frozenset(member for ref in named for member in definitions.members["group", ref])
