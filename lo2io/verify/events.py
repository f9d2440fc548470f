"""Checks every event of a trace against the rules, in the order of the merge."""

from __future__ import annotations

from operator import itemgetter
from typing import TYPE_CHECKING, Any

import numpy as np

from lo2io.otf2.library import UNDEFINED_U32
from lo2io.otf2.read.definitions import (
    LOCATION_ACCELERATOR_STREAM,
    LOCATION_CPU_THREAD,
    LOCATION_METRIC,
    REFERENCE_TYPES,
    Definitions,
    narrowed,
    undefined,
)
from lo2io.otf2.read.events import FIELD, KINDS, Block, arguments_of
from lo2io.verify.contexts import UNSEEN, ContextRules
from lo2io.verify.metrics import MetricRules
from lo2io.verify.operations import IoRules, LocationState
from lo2io.verify.plain import Columns, Screen
from lo2io.verify.rings import RingRules
from lo2io.verify.synchronous import SynchronousRules
from lo2io.verify.told import ToldCalls, ToldWorks, ToldWriteBacks

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import NDArray

    from lo2io.verify.rules import Verification

    Apply = Callable[[LocationState, int, tuple[Any, ...]], Any]

_SAMPLED = (LOCATION_CPU_THREAD, LOCATION_ACCELERATOR_STREAM, LOCATION_METRIC)
"""Types of locations on which samples are accepted. Metric locations have a rule of their own."""
_TIME, _ORDINAL, _LOCATION, _KIND = (FIELD[name] for name in ("time", "ordinal", "location", "kind"))
_REF, _SECOND = FIELD["ref"], FIELD["second"]
_METRIC_FIELDS = itemgetter(*(FIELD[name] for name in ("ref", "first_detail", "nr_attributes", "nr_values")))
_ATTRIBUTE_FIELDS = itemgetter(FIELD["first_detail"], FIELD["nr_attributes"])


class EventRules:
    """Checks the events of a trace, and holds the state of every location.

    Args:
        definitions: The trace's definitions.
        verdict: Collects the findings.
        partial: True if some requests of rings were left out of the trace.
        compared: False if no tables are there to compare with what the trace tells.
    """

    def __init__(
        self, definitions: Definitions, verdict: Verification, *, partial: bool = False, compared: bool = True
    ) -> None:
        self.verdict = verdict
        self.io = IoRules(definitions, verdict)
        self.contexts = ContextRules(definitions, verdict)
        self.metrics = MetricRules(definitions, verdict)
        self.synchronous = SynchronousRules(definitions, verdict)
        self.locations = {ref: LocationState(ref, values[3]) for ref, values in definitions.table("location").items()}
        self.rings = RingRules(definitions, verdict, partial=partial)
        self.write_backs = ToldWriteBacks(definitions)
        self.calls = ToldCalls(definitions)
        self.works = ToldWorks(definitions)
        self._definitions = definitions
        self._regions = definitions.table("region")
        self._generators = definitions.table("interrupt-generator")
        types = {ref: values[1] for ref, values in definitions.table("location").items()}
        self._not_sampled = {ref for ref, kind in types.items() if kind not in _SAMPLED}
        self._attribute_types = {ref: values[2] for ref, values in definitions.table("attribute").items()}
        self._start = verdict.start or 0
        self._end = self._start + (verdict.length or 0)
        self._now = self._latest = -1
        self._styles: dict[str, tuple[int, int]] = {}
        self._compared = compared
        self._states: list[LocationState] = []
        self._groups = np.empty(0, np.int64)
        self._screen = Screen(definitions, self.io, self.metrics, self.rings)
        self._block: Block
        self._apply = self._by_kind(dict(self._rules()))
        self._watch = [self.synchronous.watch(event) for event in KINDS]

    # ---- blocks ----

    def start(self, locations: Sequence[int]) -> None:
        """Go on with the events of these locations, in the order in which blocks count them.

        Their events are about no handle of locations before.
        """
        self.io.forget()
        self._now = self._latest = -1
        self._states = [self.locations[ref] for ref in locations]
        self._groups = np.array([state.group for state in self._states], np.int64)
        self._screen.start(locations)

    def take(self, block: Block) -> None:
        """Count the plain events of a block, and check the others one by one."""
        self._block = block
        columns = Columns(block, self._groups)
        ordered = self._is_ordered(columns.time)
        in_span = (columns.time >= self._start) & (columns.time <= self._end)
        attributes = self._screen.attributes(columns)
        if self._compared:
            self.write_backs.take(columns)
            self.calls.take(columns)
            self.works.take(columns)
        left = np.full(columns.number, -1, np.int64)
        if ordered and not self.synchronous:
            right = in_span & ~attributes.wrong & ~attributes.asking
            plain = self._screen.plain(columns, right, attributes.told)
            left = self._screen.leaves(columns, right, self._working(), plain)
            self._note_style(columns, plain)
        else:
            plain = np.zeros(columns.number, np.bool_)
        rest = np.flatnonzero(~plain)
        rows, lefts = block.events[rest].tolist(), left[rest].tolist()
        read = (attributes.wrong | attributes.wanted)[rest].tolist()
        for row, leave, is_read in zip(rows, lefts, read, strict=True):
            if leave < 0:
                self._look(row, attributes=is_read, ordered=ordered)
            elif not self._is_known(row):
                self._look(row, attributes=False, ordered=ordered)
                end = block.events[leave].tolist()
                state = self._states[end[_LOCATION]]
                state.ordinal = end[_ORDINAL]
                self._context_leave(state, end[_TIME], (end[_REF],))
        self.io.settle()
        self._count(columns)

    def _is_known(self, row: tuple[Any, ...]) -> bool:
        """Apply an enter and its leave together, if the step is known to keep every rule."""
        state, context = self._states[row[_LOCATION]], row[_REF]
        entered = state.stack[-1][2] if state.stack else UNDEFINED_U32
        if (state.context, context, row[_SECOND], entered) not in self.contexts.right_enters:
            return False
        state.context = self.contexts.parents[context]
        return True

    def _is_ordered(self, times: NDArray[np.uint64]) -> bool:
        """True if times ascend over all events read. The merge keeps a location's own order, so a fall shows here."""
        ordered = int(times[0]) >= self._latest and bool((times[1:] >= times[:-1]).all())
        self._latest = max(self._latest, int(times.max()))
        return ordered

    def _working(self) -> NDArray[np.bool_]:
        """True for each location that is inside of a region of a worker."""
        works = self.rings.works
        if not works:
            return np.zeros(len(self._states), np.bool_)
        return np.array([any(entry[0] in works for entry in state.stack) for state in self._states], np.bool_)

    def _note_style(self, columns: Columns, plain: NDArray[np.bool_]) -> None:
        """Note the first plain Enter or Leave, for the rule that event styles are not mixed."""
        if "Enter" not in self._styles:
            found = np.flatnonzero((columns.kind == KINDS["Enter"]) | (columns.kind == KINDS["Leave"]))
            if len(found) and plain[found[0]]:
                state = self._states[columns.location[found[0]]]
                self._styles["Enter"] = state.id, int(columns.time[found[0]])

    def _count(self, columns: Columns) -> None:
        """Add up the block's events by location."""
        counts = np.bincount(columns.location, minlength=len(self._states))
        samples = np.bincount(columns.location[columns.kind == KINDS["CallingContextSample"]], minlength=len(counts))
        metrics = np.bincount(columns.location[columns.kind == KINDS["Metric"]], minlength=len(counts))
        last = np.zeros(len(counts), np.uint64)
        last[columns.location] = columns.time  # a location's last event overwrites its earlier ones
        for place in np.flatnonzero(counts).tolist():
            state = self._states[place]
            state.events += int(counts[place])
            state.samples += int(samples[place])
            state.metrics += int(metrics[place])
            state.last = int(last[place])

    def _look(self, row: tuple[Any, ...], *, attributes: bool, ordered: bool) -> None:
        """Check one event against all rules; against those of attributes and of order only if they may be broken."""
        time, kind, state = row[_TIME], row[_KIND], self._states[row[_LOCATION]]
        state.ordinal = row[_ORDINAL]
        if time != self._now:
            self._now = time
            if self.io.held:
                self.io.settle()
        if not ordered:
            if time < state.last:
                self._report("time.order", state, time, f"tick {time} comes after tick {state.last}")
            state.last = time
        if not self._start <= time <= self._end:
            self._report_span(state, time)
        self.rings.found.clear()
        if attributes:
            self._check_attributes(state, time, row)
        arguments, apply, look = self._apply[kind]
        values = arguments(row)
        if self.synchronous:
            self._watch[kind](state.id, time, values[0] if values else 0)
        apply(state, time, values)
        if look is not None:
            look(state, time, values)

    def _by_kind(
        self, rules: dict[str, Apply]
    ) -> list[tuple[Callable[[tuple[Any, ...]], tuple[Any, ...]], Apply, Any]]:
        """For each kind of event: the function that reads its arguments, its rule, and its rule of rings."""
        found = []
        for event in KINDS:
            arguments = self._metric_values if event == "Metric" else arguments_of(event)
            look = self.rings.watch(event) if self.rings else None
            found.append((arguments, rules.get(event, _nothing), look))
        return found

    def _metric_values(self, row: tuple[Any, ...]) -> tuple[int, bytes, tuple[int, ...]]:
        metric, first, nr_attributes, nr_values = _METRIC_FIELDS(row)
        values = self._block.details[first + nr_attributes : first + nr_attributes + nr_values]
        return metric, values["type"].tobytes(), tuple(values["value"].tolist())

    # ---- rules of all events ----

    def _report(self, rule: str, state: LocationState, time: int, text: str) -> None:
        self.verdict.report(rule, text, location=state.id, time=time, event=state.ordinal)

    def _report_span(self, state: LocationState, time: int) -> None:
        if time < self._start:
            self._report("clock.before-start", state, time, f"{self._start - time} ticks before the global offset")
        else:
            self._report("clock.after-end", state, time, f"{time - self._end} ticks after the end of the trace")

    def _check_attributes(self, state: LocationState, time: int, row: tuple[Any, ...]) -> None:
        first, number = _ATTRIBUTE_FIELDS(row)
        for value, ref, kind in self._block.details[first : first + number].tolist():
            wanted = self._attribute_types.get(ref)
            if ref in self.rings.wanted:
                self.rings.found[ref] = value
            if wanted is None:
                self._report("reference.attribute", state, time, f"attribute {ref} is not defined")
            elif wanted != kind:
                text = f"attribute {ref} has type {kind}, its definition says {wanted}"
                self._report("attribute.type", state, time, text)
            elif kind in REFERENCE_TYPES:
                target = REFERENCE_TYPES[kind]
                pointed = narrowed(target, value)
                if pointed not in self._definitions.table(target) and pointed != undefined(target):
                    text = f"attribute {ref} refers to {target} {pointed}, which is not defined"
                    self._report(f"reference.{target}", state, time, text)

    # ---- regions ----

    def _enter(self, state: LocationState, time: int, arguments: tuple[int]) -> None:
        (region,) = arguments
        if region not in self._regions:
            self._report("reference.region", state, time, f"region {region} is not defined")
        state.stack.append((region, time, UNSEEN))
        if "Enter" not in self._styles:
            self._styles["Enter"] = state.id, time

    def _leave(self, state: LocationState, time: int, arguments: tuple[int]) -> None:
        (region,) = arguments
        stack = state.stack
        if stack and stack[-1][0] == region:
            stack.pop()
        else:
            self._misnested(state, time, region)
        if "Enter" not in self._styles:
            self._styles["Enter"] = state.id, time

    def _misnested(self, state: LocationState, time: int, region: int) -> None:
        if region not in self._regions:
            self._report("reference.region", state, time, f"region {region} is not defined")
        name = self._definitions.name("region", region)
        if not any(entered == region for entered, _, _ in state.stack):
            self._report("region.not-entered", state, time, f"region {region} ({name!r}) is left without being entered")
            return
        inner = state.stack[-1][0]
        text = f"region {region} ({name!r}) is left inside region {inner} ({self._definitions.name('region', inner)!r})"
        self._report("region.order", state, time, text)
        while state.stack.pop()[0] != region:
            pass

    def _region_of(self, state: LocationState, time: int, context: int) -> int | None:
        """The region of a calling context. Nesting is checked by region, since the line within a region changes."""
        region = self.contexts.region(context)
        if region is None:
            self._report("reference.calling-context", state, time, f"calling context {context} is not defined")
            state.context = UNSEEN
        return region

    def _context_enter(self, state: LocationState, time: int, arguments: tuple[int, int]) -> None:
        """Apply an enter. Its step is checked unless it is known to keep every rule."""
        context, distance = arguments
        stack = state.stack
        entered = stack[-1][2] if stack else UNDEFINED_U32
        region = self.contexts.right_enters.get((state.context, context, distance, entered))
        if region is None:
            self._new_enter(state, time, context, distance)
        else:
            state.context = context
            stack.append((region, time, context))

    def _new_enter(self, state: LocationState, time: int, context: int, distance: int) -> None:
        region = self._region_of(state, time, context)
        if region is not None:
            self.contexts.enter(state, time, context, distance)
            state.stack.append((region, time, context))
        else:
            state.stack.append((UNSEEN, time, UNSEEN))
        self._styles.setdefault("CallingContextEnter", (state.id, time))

    def _context_leave(self, state: LocationState, time: int, arguments: tuple[int]) -> None:
        """Apply a leave. It is checked if its context is not the one that was entered."""
        (context,) = arguments
        stack = state.stack
        if stack and stack[-1][2] == context:
            stack.pop()
            state.context = self.contexts.parents[context]
        else:
            self._other_leave(state, time, context)

    def _other_leave(self, state: LocationState, time: int, context: int) -> None:
        region = self._region_of(state, time, context)
        if region is None:
            if state.stack:
                state.stack.pop()
        elif state.stack and state.stack[-1][0] == region:
            self.contexts.leave(state, time, context, state.stack.pop()[2])
        else:
            self._misnested(state, time, region)
            state.context = UNSEEN
        self._styles.setdefault("CallingContextLeave", (state.id, time))

    def _sample(self, state: LocationState, time: int, arguments: tuple[int, int, int]) -> None:
        """Apply a sample. Its step is checked unless it is known to keep every rule."""
        context, distance, generator = arguments
        entered = state.stack[-1][2] if state.stack else UNDEFINED_U32
        step = state.context, context, distance, entered, generator
        if step in self.contexts.right_samples and state.id not in self._not_sampled:
            state.context = context
        else:
            self._new_sample(state, time, context, distance, generator)

    def _new_sample(self, state: LocationState, time: int, context: int, distance: int, generator: int) -> None:
        known = generator in self._generators
        if not known:
            text = f"interrupt generator {generator} is not defined"
            self._report("reference.interrupt-generator", state, time, text)
        if self._region_of(state, time, context) is not None:
            self.contexts.sample(state, time, context, distance, generator if known else None)
        if state.id in self._not_sampled:
            self._report("sample.location", state, time, "a location that executes nothing has a sample")
        self._styles.setdefault("CallingContextSample", (state.id, time))

    # ---- the others ----

    def _metric(self, state: LocationState, time: int, arguments: tuple[int, bytes, tuple[int, ...]]) -> None:
        self.metrics.check(state, time, arguments[0], arguments[1])

    def _parameter(self, state: LocationState, time: int, arguments: tuple[int]) -> None:
        (parameter,) = arguments
        if parameter not in self._definitions.table("parameter"):
            self._report("reference.parameter", state, time, f"parameter {parameter} is not defined")

    def _unknown(self, state: LocationState, time: int, _arguments: tuple[()]) -> None:
        self._report("event.unknown", state, time, "an event of a kind this OTF2 library does not know")

    def _io(self, apply: Callable[..., bool]) -> Apply:
        """Apply an I/O rule, unless events wait because of a tie."""
        io = self.io

        def look(state: LocationState, time: int, arguments: tuple[Any, ...]) -> None:
            if io.held or not apply(state, time, False, *arguments):
                io.submit(state, time, apply, arguments)

        return look

    def _rules(self) -> Iterator[tuple[str, Apply]]:
        """Each kind of event that has rules, and the function that checks them."""
        io = self.io
        yield "Unknown", self._unknown
        yield "Enter", self._enter
        yield "Leave", self._leave
        yield "CallingContextEnter", self._context_enter
        yield "CallingContextLeave", self._context_leave
        yield "CallingContextSample", self._sample
        yield "Metric", self._metric
        for event in ("ParameterString", "ParameterInt", "ParameterUnsignedInt"):
            yield event, self._parameter
        yield "IoCreateHandle", self._io(io.create)
        yield "IoDestroyHandle", self._io(io.destroy)
        yield "IoDuplicateHandle", self._io(io.duplicate)
        yield "IoDeleteFile", self._io(io.delete_file)
        for event in ("IoSeek", "IoChangeStatusFlags", "IoAcquireLock", "IoReleaseLock", "IoTryLock"):
            yield event, self._io(io.use)
        yield "IoOperationBegin", self._io(io.begin)
        yield "IoOperationTest", self._io(io.test)
        yield "IoOperationIssued", self._io(io.issued)
        yield "IoOperationComplete", self._io(io.complete)
        yield "IoOperationCancelled", self._io(io.cancelled)

    def finish(self) -> None:
        """Check the rules that only the end of the trace decides."""
        self.io.finish(sampled=self.contexts.samples_io())
        self.synchronous.finish()
        self.rings.finish()
        for ref, values in self._definitions.table("location").items():
            self._finish_location(self.locations[ref], values[1], values[2])
        plain = self._styles.pop("Enter", None)
        if plain and self._styles:
            event, (location, time) = min(self._styles.items(), key=lambda item: item[1][1])
            text = f"{event} here, Enter or Leave on location {plain[0]} at tick {plain[1]}"
            self.verdict.report("region.mixed-styles", text, location=location, time=time)
        self.verdict.counts.events = sum(state.events for state in self.locations.values())
        self.verdict.counts.samples = sum(state.samples for state in self.locations.values())
        self.verdict.counts.metrics = sum(state.metrics for state in self.locations.values())

    def _finish_location(self, state: LocationState, kind: int, defined: int) -> None:
        if state.events != defined:
            text = f"the location's definition counts {defined} events, {state.events} are there"
            self.verdict.report("count.events", text, location=state.id)
        if kind == LOCATION_METRIC and state.metrics != state.events:
            text = f"{state.events - state.metrics} of {state.events} events on this METRIC location are no metrics"
            self.verdict.report("location.metrics-only", text, location=state.id)
        for region, time, _ in state.stack:
            text = f"region {region} ({self._definitions.name('region', region)!r}) is never left"
            self.verdict.report("region.left-open", text, location=state.id, time=time)


def _nothing(_state: LocationState, _time: int, _arguments: tuple[Any, ...]) -> None:
    """The function for kinds of events without rules."""
