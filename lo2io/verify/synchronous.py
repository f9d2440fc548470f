"""Rules of synchronous metrics, which belong to the enters and leaves of the location that records them.

OTF2 puts such values "immediately" at their enter or leave, and does not say on which side: both are accepted. So the
rules look at a *run* of a location's events: synchronous metrics, enters, leaves and samples at one tick, with no other
event between them. Instances are never synchronous (OTF2_GlobalDefWriter.h, MetricInstance, version 3.2).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING

from lo2io.verify.metrics import declared_recorders

if TYPE_CHECKING:
    from collections.abc import Callable

    from lo2io.otf2.read.definitions import Definitions
    from lo2io.verify.rules import Verification

_STRICT, _SYNCHRONOUS = 0, 1
_ABSTRACT = 1
_BORDERS = ("Enter", "Leave", "CallingContextEnter", "CallingContextLeave")
_METRIC, _SAMPLE = "Metric", "CallingContextSample"


class _Run:
    """A location's current run: its tick, and the numbers of its events so far."""

    __slots__ = ("borders", "metrics", "samples", "time")

    def __init__(self, time: int) -> None:
        self.time = time
        self.borders = 0
        self.samples = 0
        self.metrics: Counter[int] = Counter()


class SynchronousRules:
    """Checks the rules of synchronous metrics, before other rules. Traces without such metrics skip these checks."""

    def __init__(self, definitions: Definitions, verdict: Verification) -> None:
        self._verdict = verdict
        classes = {
            ref: values[2]
            for ref, values in definitions.table("metric").items()
            if definitions.record_of["metric"][ref] == "MetricClass" and values[3] != _ABSTRACT
        }
        self._classes = {ref for ref, occurrence in classes.items() if occurrence in (_STRICT, _SYNCHRONOUS)}
        self._runs: dict[int, _Run] = {}
        self._borders: Counter[int] = Counter()
        self._at_borders: dict[int, Counter[int]] = defaultdict(Counter)
        """Strict class → location → number of values that have an enter or leave of their own."""
        declared = declared_recorders(definitions)
        for ref, occurrence in classes.items():
            if occurrence == _STRICT:
                self._at_borders[ref].update(dict.fromkeys(declared.get(ref, ()), 0))

    def __bool__(self) -> bool:
        return bool(self._classes)

    def watch(self, event: str) -> Callable[[int, int, int], None]:
        """The function that notes a kind of event. The function takes location, time and the event's first argument."""
        if event == _METRIC:
            return self._metric
        return self._border if event in _BORDERS else self._sample if event == _SAMPLE else self._other

    def _run(self, location: int, time: int) -> _Run:
        run = self._runs.get(location)
        if run is None or run.time != time:
            if run is not None:
                self._close(location, run)
            run = self._runs[location] = _Run(time)
        return run

    def _metric(self, location: int, time: int, metric: int) -> None:
        if metric in self._classes:
            self._run(location, time).metrics[metric] += 1

    def _border(self, location: int, time: int, _ref: int) -> None:
        self._run(location, time).borders += 1

    def _sample(self, location: int, time: int, _ref: int) -> None:
        self._run(location, time).samples += 1

    def _other(self, location: int, _time: int, _ref: int) -> None:
        run = self._runs.pop(location, None)
        if run is not None:
            self._close(location, run)

    def _close(self, location: int, run: _Run) -> None:
        self._borders[location] += run.borders
        for metric, number in run.metrics.items():
            if metric in self._at_borders:
                self._at_borders[metric][location] += min(number, run.borders)
            if number > run.borders + run.samples:
                text = f"synchronous metric {metric} is recorded {number} times at {run.borders} enters and leaves"
                self._verdict.report("metric.synchronous", text, location=location, time=run.time)

    def finish(self) -> None:
        """Close all runs, and check strictly synchronous metrics."""
        for location, run in self._runs.items():
            self._close(location, run)
        for metric, locations in self._at_borders.items():
            for location, number in locations.items():
                borders = self._borders[location]
                if number < borders:
                    text = f"strictly synchronous metric {metric} is there at {number} of {borders} enters and leaves"
                    self._verdict.report("metric.strict", text, location=location)
