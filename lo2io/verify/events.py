"""Holds every event of a trace, in the order of the global merge, to the rules."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any

from lo2io.verify.contexts import UNSEEN, ContextRules
from lo2io.verify.definitions import (
    LOCATION_ACCELERATOR_STREAM,
    LOCATION_CPU_THREAD,
    LOCATION_METRIC,
    REFERENCE_TYPES,
    UNDEFINED_U32,
    Definitions,
    narrowed,
    undefined,
)
from lo2io.verify.library import CONTINUE, POINTER, U8, U32, U64, Library, event_type
from lo2io.verify.metrics import MetricRules
from lo2io.verify.operations import IoRules, LocationState
from lo2io.verify.rings import RingRules
from lo2io.verify.synchronous import SynchronousRules

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from lo2io.verify.rules import Verification

_I64 = ctypes.c_int64
_KIND = "GlobalEvtReader"
_SAMPLED = (LOCATION_CPU_THREAD, LOCATION_ACCELERATOR_STREAM, LOCATION_METRIC)
"""Types of locations that may be interrupted, and metric locations: these have a rule of their own."""


class EventRules:
    """Callbacks for the events of a trace; the state of every location."""

    def __init__(
        self, library: Library, definitions: Definitions, verdict: Verification, *, partial: bool = False
    ) -> None:
        self.verdict = verdict
        self.io = IoRules(definitions, verdict)
        self.contexts = ContextRules(definitions, verdict)
        self.metrics = MetricRules(definitions, verdict)
        self.synchronous = SynchronousRules(definitions, verdict)
        self.locations = {ref: LocationState(ref, values[3]) for ref, values in definitions.table("location").items()}
        self.rings = RingRules(definitions, verdict, self.locations, partial=partial)
        self._definitions = definitions
        self._regions = definitions.table("region")
        self._generators = definitions.table("interrupt-generator")
        types = {ref: values[1] for ref, values in definitions.table("location").items()}
        self._not_sampled = {ref for ref, kind in types.items() if kind not in _SAMPLED}
        self._attribute_types = {ref: values[2] for ref, values in definitions.table("attribute").items()}
        self._start = verdict.start or 0
        self._end = self._start + (verdict.length or 0)
        self._now = -1
        self._styles: dict[str, tuple[int, int]] = {}
        self._arrive = self._arriver(library)

    # ---- what every event is checked for ----

    def _arriver(self, library: Library) -> Callable[[int, int, int | None], LocationState]:
        """The checks that all events share, as a closure: it runs once per event."""
        count = library.AttributeList_GetNumberOfElements
        locations, start, end, io = self.locations, self._start, self._end, self.io
        check_attributes = self._attribute_checker(library)

        def arrive(location: int, time: int, attributes: int | None) -> LocationState:
            state = locations[location]
            if time != self._now:
                self._now = time
                if io.held:
                    io.settle()
            state.ordinal = state.events
            state.events += 1
            if time < state.last:
                self._report("time.order", state, time, f"tick {time} comes after tick {state.last}")
            state.last = time
            if not start <= time <= end:
                self._report_span(state, time)
            if attributes and (number := count(attributes)):
                check_attributes(state, time, attributes, number)
            return state

        return arrive

    def _report(self, rule: str, state: LocationState, time: int, text: str) -> None:
        self.verdict.report(rule, text, location=state.id, time=time, event=state.ordinal)

    def _report_span(self, state: LocationState, time: int) -> None:
        if time < self._start:
            self._report("clock.before-start", state, time, f"{self._start - time} ticks before the global offset")
        else:
            self._report("clock.after-end", state, time, f"{time - self._end} ticks after the end of the trace")

    def _attribute_checker(self, library: Library) -> Callable[[LocationState, int, int, int], None]:
        ref, kind, value = U32(), U8(), U64()
        pointers = ctypes.byref(ref), ctypes.byref(kind), ctypes.byref(value)
        get, types, definitions = library.AttributeList_GetAttributeByIndex, self._attribute_types, self._definitions
        wanted_by_rings, found_by_rings = self.rings.wanted, self.rings.found

        def check(state: LocationState, time: int, attributes: int, number: int) -> None:
            for index in range(number):
                get(attributes, index, *pointers)
                wanted = types.get(ref.value)
                if ref.value in wanted_by_rings:
                    found_by_rings[ref.value] = value.value
                if wanted is None:
                    self._report("reference.attribute", state, time, f"attribute {ref.value} is not defined")
                elif wanted != kind.value:
                    text = f"attribute {ref.value} has type {kind.value}, its definition says {wanted}"
                    self._report("attribute.type", state, time, text)
                elif kind.value in REFERENCE_TYPES:
                    target = REFERENCE_TYPES[kind.value]
                    pointed = narrowed(target, value.value)
                    if pointed not in definitions.table(target) and pointed != undefined(target):
                        text = f"attribute {ref.value} refers to {target} {pointed}, which is not defined"
                        self._report(f"reference.{target}", state, time, text)

        return check

    # ---- regions ----

    def _enter(self, location: int, time: int, _user: int, attributes: int | None, region: int) -> int:
        state = self._arrive(location, time, attributes)
        if region not in self._regions:
            self._report("reference.region", state, time, f"region {region} is not defined")
        state.stack.append((region, time, UNSEEN))
        if "Enter" not in self._styles:
            self._styles["Enter"] = location, time
        return CONTINUE

    def _leave(self, location: int, time: int, _user: int, attributes: int | None, region: int) -> int:
        state = self._arrive(location, time, attributes)
        stack = state.stack
        if stack and stack[-1][0] == region:
            stack.pop()
        else:
            self._misnested(state, time, region)
        if "Enter" not in self._styles:
            self._styles["Enter"] = location, time
        return CONTINUE

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
        """Region of a calling context; nesting is by region, as the line within it changes."""
        region = self.contexts.region(context)
        if region is None:
            self._report("reference.calling-context", state, time, f"calling context {context} is not defined")
            state.context = UNSEEN
        return region

    def _context_enter(self) -> Callable[..., int]:
        """A callback that knows steps that were right before, and looks closer at others."""
        arrive, known, look = self._arrive, self.contexts.right_enters, self._new_enter

        def callback(location: int, time: int, _user: int, attributes: int | None, context: int, distance: int) -> int:
            state = arrive(location, time, attributes)
            stack = state.stack
            region = known.get((state.context, context, distance, stack[-1][2] if stack else UNDEFINED_U32))
            if region is None:
                look(state, time, context, distance)
            else:
                state.context = context
                stack.append((region, time, context))
            return CONTINUE

        return callback

    def _new_enter(self, state: LocationState, time: int, context: int, distance: int) -> None:
        region = self._region_of(state, time, context)
        if region is not None:
            self.contexts.enter(state, time, context, distance)
            state.stack.append((region, time, context))
        else:
            state.stack.append((UNSEEN, time, UNSEEN))
        self._styles.setdefault("CallingContextEnter", (state.id, time))

    def _context_leave(self) -> Callable[..., int]:
        """A callback that looks closer where another context is left than was entered."""
        arrive, look, parents = self._arrive, self._other_leave, self.contexts.parents

        def callback(location: int, time: int, _user: int, attributes: int | None, context: int) -> int:
            state = arrive(location, time, attributes)
            stack = state.stack
            if stack and stack[-1][2] == context:
                stack.pop()
                state.context = parents[context]
            else:
                look(state, time, context)
            return CONTINUE

        return callback

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

    def _sample(self) -> Callable[..., int]:
        """A callback that knows steps that were right before, and looks closer at others."""
        arrive, known, look, not_sampled = (
            self._arrive,
            self.contexts.right_samples,
            self._new_sample,
            self._not_sampled,
        )

        def callback(  # noqa: PLR0917 -- as the event has them
            location: int, time: int, _user: int, attributes: int | None, context: int, distance: int, generator: int
        ) -> int:
            state = arrive(location, time, attributes)
            state.samples += 1
            stack = state.stack
            step = state.context, context, distance, stack[-1][2] if stack else UNDEFINED_U32, generator
            if step in known and location not in not_sampled:
                state.context = context
            else:
                look(state, time, context, distance, generator)
            return CONTINUE

        return callback

    def _new_sample(self, state: LocationState, time: int, context: int, distance: int, generator: int) -> None:
        known = generator in self._generators
        if not known:
            text = f"interrupt generator {generator} is not defined"
            self._report("reference.interrupt-generator", state, time, text)
        if self._region_of(state, time, context) is not None:
            self.contexts.sample(state, time, context, distance, generator if known else None)
        if state.id in self._not_sampled:
            self._report("sample.location", state, time, "what runs nothing cannot be sampled")
        self._styles.setdefault("CallingContextSample", (state.id, time))

    # ---- the others ----

    def _metric(  # noqa: PLR0917 -- as the event has them
        self,
        location: int,
        time: int,
        _user: int,
        attributes: int | None,
        metric: int,
        number: int,
        types: int,
        _values: int = 0,
    ) -> int:
        self.metrics.check(self._arrive(location, time, attributes), time, metric, number, types)
        return CONTINUE

    def _parameter(self, location: int, time: int, _user: int, attributes: int | None, parameter: int) -> int:
        state = self._arrive(location, time, attributes)
        if parameter not in self._definitions.table("parameter"):
            self._report("reference.parameter", state, time, f"parameter {parameter} is not defined")
        return CONTINUE

    def _unknown(self, location: int, time: int, _user: int, attributes: int | None) -> int:
        state = self._arrive(location, time, attributes)
        self._report("event.unknown", state, time, "an event of a kind this OTF2 library does not know")
        return CONTINUE

    def _other(self, location: int, time: int, _user: int, attributes: int | None) -> int:
        self._arrive(location, time, attributes)
        return CONTINUE

    def _io(self, apply: Callable[..., bool]) -> Callable[..., int]:
        """A callback that arrives, then applies an I/O rule, unless a tie holds events back."""
        arrive, io = self._arrive, self.io

        def callback(location: int, time: int, _user: int, attributes: int | None, *arguments: int) -> int:
            state = arrive(location, time, attributes)
            if io.held or not apply(state, time, False, *arguments):
                io.submit(state, time, apply, arguments)
            return CONTINUE

        return callback

    def _callbacks(self) -> Iterator[tuple[str, Any, Callable[..., int]]]:
        """Event, C type and function of every event that is looked into."""
        io = self.io
        yield "Unknown", event_type(), self._unknown
        yield "Enter", event_type(U32), self._enter
        yield "Leave", event_type(U32), self._leave
        yield "CallingContextEnter", event_type(U32, U32), self._context_enter()
        yield "CallingContextLeave", event_type(U32), self._context_leave()
        yield "CallingContextSample", event_type(U32, U32, U32), self._sample()
        yield "Metric", event_type(U32, U8, POINTER, POINTER), self._metric
        for parameter in ("ParameterString", "ParameterInt", "ParameterUnsignedInt"):
            yield parameter, event_type(U32), self._parameter
        for event, apply, arguments in (
            ("IoCreateHandle", io.create, (U32, U8, U32, U32)),
            ("IoDestroyHandle", io.destroy, (U32,)),
            ("IoDuplicateHandle", io.duplicate, (U32, U32, U32)),
            ("IoSeek", io.use, (U32, _I64, U8, U64)),
            ("IoChangeStatusFlags", io.use, (U32, U32)),
            ("IoDeleteFile", io.delete_file, (U8, U32)),
            ("IoOperationBegin", io.begin, (U32, U8, U32, U64, U64)),
            ("IoOperationTest", io.test, (U32, U64)),
            ("IoOperationIssued", io.issued, (U32, U64)),
            ("IoOperationComplete", io.complete, (U32, U64, U64)),
            ("IoOperationCancelled", io.cancelled, (U32, U64)),
            ("IoAcquireLock", io.use, (U32, U8)),
            ("IoReleaseLock", io.use, (U32, U8)),
            ("IoTryLock", io.use, (U32, U8)),
        ):
            yield event, event_type(*arguments), self._io(apply)

    def register(self, library: Library, callbacks: int) -> list[Any]:
        """Register for every event there is; the list keeps the C functions alive while events are read.

        Events without rules of their own are taken with their header only: the C ABIs allow a callee that takes fewer
        arguments than the caller passes.
        """
        watch = self.synchronous.watch if self.synchronous else lambda _event, function: function
        look = self.rings.watch if self.rings else lambda _event, function: function
        own = {event: ctype(look(event, watch(event, function))) for event, ctype, function in self._callbacks()}
        other = event_type()(watch("", self._other))
        for event in library.setters(_KIND):
            library.set_callback(_KIND, callbacks, event, own.get(event, other))
        return [*own.values(), other]

    def finish(self) -> None:
        """The last event was read."""
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
