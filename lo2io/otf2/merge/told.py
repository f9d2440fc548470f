"""Ids of processes and threads, and calls, that an application's events tell beside its definitions.

In: the archive's events, which are read once. Out: for each location the ids that attributes of its events tell, as
Score-P writes them, and the system calls that its regions name. Times are ticks, with the archive's own offsets.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from lo2io.otf2.read.anchor import readable_locations
from lo2io.otf2.read.events import KINDS, read_events

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from numpy.typing import NDArray

    from lo2io.otf2.library import Library
    from lo2io.otf2.merge.application import Application
    from lo2io.otf2.read.definitions import Definitions
    from lo2io.otf2.read.events import Block

_PID, _TID = "ProcessId", "ThreadId"
"""Attributes that Score-P writes since 7.0: both at ProgramBegin, where the thread's is left out if it is the process',
and the thread's at ThreadTeamBegin and ThreadBegin (SCOREP_Tracing_Events.c)."""
CALLS: Final = ("read", "write", "pread", "pwrite", "fsync", "fdatasync")
"""Functions that make one system call."""
_LARGE_FILES: Final = "64"
"""The end of the names of some of these calls, and of functions that make the same calls."""
UNKNOWN: Final = -1
"""A number of bytes that is not known; that of a call that failed, too."""
_ENTER, _LEAVE, _BEGIN, _COMPLETE = range(1, 5)
_STEPS: Final = {
    "Enter": _ENTER,
    "CallingContextEnter": _ENTER,
    "Leave": _LEAVE,
    "CallingContextLeave": _LEAVE,
    "IoOperationBegin": _BEGIN,
    "IoOperationComplete": _COMPLETE,
}
_STEP_OF_KIND: Final = np.array([_STEPS.get(name, 0) for name in KINDS], np.uint8)
_OF_CONTEXTS: Final = [KINDS[name] for name in ("CallingContextEnter", "CallingContextLeave")]
_STEP: Final = np.dtype([("location", "u4"), ("time", "i8"), ("bytes", "i8"), ("step", "u1"), ("call", "i1")])


class Calls(NamedTuple):
    """Calls of one thread, in the order in which they began."""

    begin: NDArray[np.int64]
    end: NDArray[np.int64]
    keys: NDArray[np.int64]
    """A row for each call: place in :data:`CALLS`, bytes asked for, bytes moved."""


@dataclass(slots=True)
class Told:
    """Ids and calls by location.

    Attributes:
        pids: Location → process ids.
        tids: Location → thread ids.
        calls: Location → calls; a location without any is left out.
    """

    pids: dict[int, set[int]] = field(default_factory=dict)
    tids: dict[int, set[int]] = field(default_factory=dict)
    calls: dict[int, Calls] = field(default_factory=dict)

    def pid(self, locations: Iterable[int]) -> int | None:
        """The process that has these locations; None: nothing tells it, or not one alone."""
        return _single(set[int]().union(*(self.pids.get(location, ()) for location in locations)))

    def tid(self, location: int) -> int | None:
        """The thread that has this location; None: no event tells it, or events tell several threads."""
        return _single(self.tids.get(location) or self.pids.get(location, set()))


def _single(found: set[int]) -> int | None:
    return next(iter(found)) if len(found) == 1 else None


def read_told(library: Library, application: Application) -> Told:
    """Read the events of an archive whose definitions have such attributes or regions. Of others, nothing is told.

    Raises:
        TraceError: Files are missing, truncated or unreadable.
    """
    locations = readable_locations(application.anchor, application.definitions)
    taker = _Taker(application.definitions, locations)
    if taker.has_subject:
        with library.reader(application.anchor) as reader:
            read_events(library, reader, application.anchor, locations, taker)
    return taker.told()


class _Taker:
    """Takes the events of an archive."""

    def __init__(self, definitions: Definitions, locations: list[int]) -> None:
        self._locations = locations
        self._told = Told()
        self._steps: list[NDArray[Any]] = []
        takers = {_PID: self._told.pids, _TID: self._told.tids}
        names = {ref: definitions.text(values[0]) for ref, values in definitions.table("attribute").items()}
        self._ids = {ref: takers[name] for ref, name in names.items() if name in takers}
        regions = {ref: call_of(definitions.name("region", ref)) for ref in definitions.table("region")}
        contexts = {ref: regions[values[0]] for ref, values in definitions.table("calling-context").items()}
        self._calls = {False: _by_ref(regions), True: _by_ref(contexts)}
        self.has_subject = bool(self._ids) or max(regions.values(), default=UNKNOWN) != UNKNOWN

    def take(self, block: Block) -> None:
        """Take the next events."""
        self._take_ids(block)
        events = block.events[_STEP_OF_KIND[block.events["kind"]] > 0]
        steps = np.empty(len(events), _STEP)
        for column in ("location", "time", "bytes"):
            steps[column] = events[column]
        steps["step"], steps["call"] = _STEP_OF_KIND[events["kind"]], UNKNOWN
        for is_context, calls in self._calls.items():
            those = (steps["step"] <= _LEAVE) & (np.isin(events["kind"], _OF_CONTEXTS) == is_context)
            steps["call"][those] = calls[events["ref"][those]]
        self._steps.append(steps[(steps["step"] > _LEAVE) | (steps["call"] != UNKNOWN)])

    def _take_ids(self, block: Block) -> None:
        if not len(block.details) or not self._ids:
            return
        with_details = block.events[(block.events["nr_attributes"] > 0) | (block.events["nr_values"] > 0)]
        for place in np.flatnonzero(np.isin(block.details["ref"], list(self._ids))).tolist():
            event = with_details[np.searchsorted(with_details["first_detail"], place, "right") - 1]
            if place - event["first_detail"] < event["nr_attributes"]:  # else it is a value of a metric
                told = self._ids[int(block.details["ref"][place])]
                told.setdefault(self._locations[event["location"]], set()).add(int(block.details["value"][place]))

    def told(self) -> Told:
        """All that was told."""
        steps = np.concatenate([np.empty(0, _STEP), *self._steps])
        steps = steps[np.argsort(steps["location"], kind="stable")]
        for part in np.split(steps, np.flatnonzero(np.diff(steps["location"])) + 1):
            calls = _calls(part)
            if len(calls.begin):
                self._told.calls[self._locations[part["location"][0]]] = calls
        return self._told


def call_of(name: str) -> int:
    """The place among :data:`CALLS` of a function or system call; -1: it is none of them."""
    plain = name.removesuffix(_LARGE_FILES)
    return CALLS.index(plain) if plain in CALLS else UNKNOWN


def _by_ref(calls: Mapping[int, int]) -> NDArray[np.int8]:
    table = np.full(max(calls, default=-1) + 1, UNKNOWN, np.int8)
    table[list(calls)] = list(calls.values())
    return table


def _calls(steps: NDArray[Any]) -> Calls:
    """The calls of one location: a region alone, or with one operation in it, which is nearer to the call."""
    kind, call = steps["step"], steps["call"]
    at = np.flatnonzero(kind == _ENTER)
    alone, around = (_is_around(at, width, kind, call) for width in (1, 3))
    around &= _holds(at + 1, kind, _BEGIN) & _holds(at + 2, kind, _COMPLETE)
    first, last = at + around, np.where(around, at + 2, at + 1)
    kept = alone | around
    asked, moved = (
        np.where(around, steps["bytes"][np.minimum(place, len(kind) - 1)], UNKNOWN) for place in (first, last)
    )
    keys = np.stack([call[at].astype(np.int64), asked, moved], axis=1)
    return Calls(steps["time"][first[kept]], steps["time"][last[kept]], keys[kept])


def _is_around(at: NDArray[np.intp], width: int, kind: NDArray[Any], call: NDArray[Any]) -> NDArray[np.bool_]:
    """Whether the region that begins here ends so many steps later."""
    same: NDArray[np.bool_] = call[np.minimum(at + width, len(call) - 1)] == call[at]
    return _holds(at + width, kind, _LEAVE) & same


def _holds(places: NDArray[np.intp], kind: NDArray[Any], wanted: int) -> NDArray[np.bool_]:
    found: NDArray[np.bool_] = (places < len(kind)) & (kind[np.minimum(places, len(kind) - 1)] == wanted)
    return found
