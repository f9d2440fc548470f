"""Rules of io_uring in a trace: its requests are operations, and what workers do for them are regions.

What an event says beyond OTF2's own fields stands in attributes, which are known by their names; the paradigm's
identification is ``io_uring``. Where these are missing nothing is said about them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from lo2io.otf2.library import UNDEFINED_U64
from lo2io.otf2.read.definitions import RING_PARADIGMS, handles_of, narrowed
from lo2io.verify.operations import Ids

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np
    from numpy.typing import NDArray

    from lo2io.otf2.read.definitions import Definitions
    from lo2io.verify.operations import LocationState
    from lo2io.verify.rules import Verification

WORK: Final = "io_uring worker: "
"""How the names of regions begin in which workers execute requests."""
_ATTRIBUTES: Final = {
    "path": "io_uring path",
    "status": "io_uring status",
    "previous": "io_uring previous request",
    "culprit": "io_uring culprit",
    "cause": "io_uring request",
    "asked": "asked",
    "ring": "io_uring ring",
}
_STATES: Final = re.compile(r"states of (?:ring ([0-9]+)\b|rings of )")
"""How the location of a ring's metrics is called, or that of rings which have it in turn."""
_RING: Final = re.compile(r"ring ([0-9]+)\b")
"""How the attribute begins that names the ring of a metric where rings share a location."""
LIFE: Final = "thread in turn"
"""Canonical name of the regions that are a thread's life on a location that threads have in turn."""
STATUSES: Final = ("completed", "in flight", "cancelled", "refused", "torn down", "silent", "unseen")
PATHS: Final = ("unknown", "inline", "device", "poll", "worker", "refused", "cancelled")
"""By number, as in ``ring_columns.h``."""
_SHARED: Final = -1
_UNSAID: Final = "completed"
"""Status of a request whose end bears none."""


def path_problem(path: str, status: str) -> str:
    """What is impossible about a path and its end, or nothing ("Paths" in docs/explanation/rules/ring-requests.md)."""
    if path not in PATHS or status not in STATUSES:
        return f"{path!r} is no way" if path not in PATHS else f"{status!r} is no status"
    if (path == "refused") != (status == "refused"):
        return f"its way is {path!r}, its status {status!r}"
    if path == "cancelled" and status != "cancelled":
        return f"it was cancelled before it was executed, and yet it is {status!r}"
    return ""


@dataclass(slots=True)
class RingCounts:
    """What a trace holds of rings, to be compared with the tables."""

    requests: int = 0
    works: int = 0
    batches: int = 0
    states: dict[int, dict[int, int]] = field(default_factory=dict)
    """Ring → number of values of a metric → how often it was recorded."""
    last: dict[tuple[int, int], tuple[int, ...]] = field(default_factory=dict)
    """Ring and number of values → the last ones."""


class _Reference(NamedTuple):
    """Where a request is named before it begins."""

    location: int
    time: int
    event: int
    what: str


class RingRules:
    """Looks at events before other rules do. Only traces with rings pay for it.

    Args:
        definitions: The trace's.
        verdict: Takes what is found.
        partial: Some requests were left out, by a filter or by sampling: references may lead to these.
    """

    def __init__(self, definitions: Definitions, verdict: Verification, *, partial: bool) -> None:
        self._definitions = definitions
        self._verdict = verdict
        self._partial = partial
        named = {definitions.name("attribute", ref): ref for ref in definitions.table("attribute")}
        self._refs = {key: named[name] for key, name in _ATTRIBUTES.items() if name in named}
        self.handles = handles_of(definitions, *RING_PARADIGMS)
        regions = definitions.table("region")
        self.works = {ref for ref in regions if definitions.name("region", ref).startswith(WORK)}
        self._lives = {ref for ref, values in regions.items() if definitions.text(values[1]) == LIFE}
        self.curves = _curves(definitions)
        self._begun = Ids()
        self._missing: dict[int, _Reference] = {}
        self.wanted = frozenset(self._refs.values())
        self.telling = {key: self._refs.get(key) for key in ("status", "path")}
        """Attributes that say how a request ended; they are read of ends only."""
        self.found: dict[int, int] = {}
        """Attributes of the event at hand, of those that are wanted."""
        self.counts = RingCounts()

    def __bool__(self) -> bool:
        return bool(self.handles or self.works or self.curves or "asked" in self._refs)

    def watch(self, event: str) -> Callable[[LocationState, int, tuple[Any, ...]], None] | None:
        """The check of such an event, called after its rule with location, time, arguments; None: there is none."""
        return {
            "IoOperationBegin": self._begin,
            "IoOperationComplete": self._complete,
            "IoOperationCancelled": self._cancelled,
            "Enter": self._enter,
            "CallingContextEnter": self._enter,
            "Leave": self._leave,
            "CallingContextLeave": self._leave,
            "CallingContextSample": self._sample,
            "Metric": self._metric,
        }.get(event)

    def _report(self, rule: str, state: LocationState, time: int, text: str) -> None:
        self._verdict.report(rule, text, location=state.id, time=time, event=state.ordinal)

    def _text(self, key: str) -> str | None:
        """What an attribute of the event says, if it has it."""
        value = self.found.get(self._refs.get(key, -1))
        return None if value is None else self._definitions.text(narrowed("string", value))

    # ---- requests ----

    def _begin(self, state: LocationState, time: int, arguments: tuple[int, ...]) -> None:
        handle, ident = arguments[0], arguments[-1]
        self._refers(state, time, "cause")
        if handle not in self.handles:
            return
        self.counts.requests += 1
        self._begun.is_new(ident)
        self._missing.pop(ident, None)
        self._refers(state, time, "previous")

    def _complete(self, state: LocationState, time: int, arguments: tuple[int, ...]) -> None:
        if arguments[0] in self.handles:
            self._end(state, time, arguments[-1], cancelled=False)

    def _cancelled(self, state: LocationState, time: int, arguments: tuple[int, ...]) -> None:
        if arguments[0] in self.handles:
            self._end(state, time, arguments[-1], cancelled=True)

    def ends_right(self, status: int | None, path: int | None, *, cancelled: bool) -> bool:
        """Whether a request may end so; status and path are the strings of its attributes, None where it has none."""
        texts = [None if ref is None else self._definitions.text(ref) for ref in (status, path)]
        said = texts[0] or _UNSAID
        return cancelled == (said == "cancelled") and (texts[1] is None or not path_problem(texts[1], said))

    def take_over(self, requests: NDArray[np.uint64]) -> None:
        """Requests that begin and end among the events of a block, keep every rule and name no other.

        Args:
            requests: Their matching ids, each once, in ascending order.
        """
        self.counts.requests += len(requests)
        self._begun.add(requests)
        for ident in self._missing.keys() & set(requests.tolist() if self._missing else ()):
            del self._missing[ident]

    def take_over_states(self, metric: int, number: int, last: tuple[int, ...]) -> None:
        """Metrics of a ring's states, so many of one kind; the values of the last.

        Where rings share a location, there is one, and an attribute of it names the ring.
        """
        ring = self.curves[metric]
        if ring == _SHARED:
            name = _RING.match(self._text("ring") or "")
            if name is None:
                return
            ring = int(name[1])
        times = self.counts.states.setdefault(ring, {})
        times[len(last)] = times.get(len(last), 0) + number
        self.counts.last[ring, len(last)] = last

    def _end(self, state: LocationState, time: int, ident: int, *, cancelled: bool) -> None:
        status, path = self._text("status") or _UNSAID, self._text("path")
        if cancelled != (status == "cancelled"):
            event = "Cancelled" if cancelled else "Complete"
            self._report("ring.cancelled", state, time, f"{event} of id {ident}, whose status is {status!r}")
        problem = "" if path is None else path_problem(path, status)
        if problem:
            self._report("ring.path", state, time, f"id {ident}: {problem}")
        self._refers(state, time, "culprit")

    def _refers(self, state: LocationState, time: int, key: str) -> None:
        """Note a request that an attribute names. It may begin later, on another location or as a culprit."""
        ident = self.found.get(self._refs.get(key, UNDEFINED_U64))
        if ident is not None and not self._partial and ident not in self._begun:
            self._missing.setdefault(ident, _Reference(state.id, time, state.ordinal, _ATTRIBUTES[key]))

    # ---- what threads do ----

    def _enter(self, state: LocationState, time: int, _: tuple[int, ...]) -> None:
        region, outer = state.stack[-1][0], state.stack[-2][0] if len(state.stack) > 1 else None
        if region in self.works:
            self.counts.works += 1
            self._refers(state, time, "cause")
        if outer is not None and outer not in self._lives and (region in self.works or outer in self.works):
            names = [repr(self._definitions.name("region", ref)) for ref in (region, outer)]
            self._report("ring.worker", state, time, f"{names[0]} is entered inside of {names[1]}")

    def _leave(self, _state: LocationState, _time: int, _: tuple[int, ...]) -> None:
        self.counts.batches += self._refs.get("asked", UNDEFINED_U64) in self.found

    def _sample(self, state: LocationState, time: int, _: tuple[int, ...]) -> None:
        self._refers(state, time, "cause")

    def _metric(self, _state: LocationState, _time: int, arguments: tuple[Any, ...]) -> None:
        metric, _, values = arguments
        if metric in self.curves:
            self.take_over_states(metric, 1, values)

    def finish(self) -> None:
        """The last event was read."""
        for ident, place in self._missing.items():
            text = f"{place.what} {ident} is no request in this trace"
            where = {"location": place.location, "time": place.time, "event": place.event}
            self._verdict.report("ring.reference", text, **where)


def _curves(definitions: Definitions) -> dict[int, int]:
    """Metric → the ring whose states it tells; ``_SHARED``: an attribute of each event names it."""
    found = {}
    for ref, record in definitions.record_of.get("metric", {}).items():
        if record == "MetricInstance":
            name = _STATES.match(definitions.name("location", definitions.table("metric")[ref][1]))
            if name:
                found[ref] = int(name[1]) if name[1] else _SHARED
    return found
