"""Rules of io_uring in a trace. Requests of a ring are operations; workers' executions of requests are regions.

Facts beyond OTF2's own fields stand in attributes, which are known by their names. The identification of the paradigm
is ``io_uring``. Without the paradigm or an attribute, the rules about it are not checked.
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
"""The beginning of the names of regions in which workers execute requests."""
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
"""The name of the location of a ring's metrics, or of a location that rings use in turn."""
_RING: Final = re.compile(r"ring ([0-9]+)\b")
"""The beginning of the attribute that names a metric's ring on a location that rings share."""
LIFE: Final = "thread in turn"
"""Canonical name of the regions that stand for a thread's life on a location that threads use in turn."""
STATUSES: Final = ("completed", "in flight", "cancelled", "refused", "torn down", "silent", "unseen")
PATHS: Final = ("unknown", "inline", "device", "poll", "worker", "refused", "cancelled")
"""Names of paths, by the numbers of ``ring_columns.h``."""
_SHARED: Final = -1
_UNSAID: Final = "completed"
"""The status of a request if its end has no status attribute."""


def path_problem(path: str, status: str) -> str:
    """Why a path and a status cannot occur together; empty: they can.

    The rules are in "Paths" of docs/explanation/rules/ring-requests.md.
    """
    if path not in PATHS or status not in STATUSES:
        return f"{path!r} is no path" if path not in PATHS else f"{status!r} is no status"
    if (path == "refused") != (status == "refused"):
        return f"its path is {path!r}, its status {status!r}"
    if path == "cancelled" and status != "cancelled":
        return f"its path is 'cancelled', its status {status!r}"
    return ""


@dataclass(slots=True)
class RingCounts:
    """Counts of rings' events in a trace, for a comparison with the tables."""

    requests: int = 0
    works: int = 0
    batches: int = 0
    states: dict[int, dict[int, int]] = field(default_factory=dict)
    """Ring → number of values of a metric → number of such metrics recorded."""
    last: dict[tuple[int, int], tuple[int, ...]] = field(default_factory=dict)
    """Ring and number of values → the last metric's values."""


class _Reference(NamedTuple):
    """The event that names a request which has not begun yet."""

    location: int
    time: int
    event: int
    what: str


class RingRules:
    """Checks the rules of rings, before other rules. Traces without rings skip these checks.

    Args:
        definitions: The trace's definitions.
        verdict: Collects the findings.
        partial: True if a filter or sampling left out some requests. References may then lead to missing requests.
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
        """Attributes that say how a request ended. They are read only at ends."""
        self.found: dict[int, int] = {}
        """The current event's attributes that these rules read."""
        self.counts = RingCounts()

    def __bool__(self) -> bool:
        return bool(self.handles or self.works or self.curves or "asked" in self._refs)

    def watch(self, event: str) -> Callable[[LocationState, int, tuple[Any, ...]], None] | None:
        """The check for a kind of event, called after the event's own rule; None: there is none."""
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
        """The text of an attribute of the current event; None if the event does not have it."""
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
        """True if a request may end so. ``status`` and ``path`` are strings' references; None: no such attribute."""
        texts = [None if ref is None else self._definitions.text(ref) for ref in (status, path)]
        said = texts[0] or _UNSAID
        return cancelled == (said == "cancelled") and (texts[1] is None or not path_problem(texts[1], said))

    def take_over(self, requests: NDArray[np.uint64]) -> None:
        """Count requests that begin and end within a block, keep every rule and name no other request.

        Args:
            requests: The requests' matching ids, each once, in ascending order.
        """
        self.counts.requests += len(requests)
        self._begun.add(requests)
        for ident in self._missing.keys() & set(requests.tolist() if self._missing else ()):
            del self._missing[ident]

    def take_over_states(self, metric: int, number: int, last: tuple[int, ...]) -> None:
        """Count ``number`` metrics of a ring's states, and keep the values of the last one.

        If rings share a location, metrics come one by one, and an attribute names the ring.
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

    # ---- regions and metrics ----

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
        """Report references to requests that never began."""
        for ident, place in self._missing.items():
            text = f"{place.what} {ident} is no request in this trace"
            where = {"location": place.location, "time": place.time, "event": place.event}
            self._verdict.report("ring.reference", text, **where)


def _curves(definitions: Definitions) -> dict[int, int]:
    """Metric → ring of its states. ``_SHARED``: an attribute of each event names the ring."""
    found = {}
    for ref, record in definitions.record_of.get("metric", {}).items():
        if record == "MetricInstance":
            name = _STATES.match(definitions.name("location", definitions.table("metric")[ref][1]))
            if name:
                found[ref] = int(name[1]) if name[1] else _SHARED
    return found
