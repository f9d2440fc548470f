"""The rules of a trace, and the findings of verifying.

Every rule has a stable id, a severity and one sentence. ``docs/reference/verify.md`` lists them all; a test compares.
Sources: the OTF2 3.x manual ("Event order for I/O operation records", "Known I/O paradigms", descriptions of records),
and experiments with otf-profiler, ViTE and Vampir on traces that break the rules.
"""

from __future__ import annotations

import enum
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

MAX_FINDINGS = 20
"""Findings kept for each rule. All findings are counted."""


class Severity(enum.StrEnum):
    """The severity of a broken rule. Only errors make the verdict bad."""

    ERROR = "error"
    """Breaks OTF2, or a reader crashes or shows wrong figures."""
    WARNING = "warning"
    """Allowed, but a known reader stumbles or guesses."""
    INFO = "info"
    """Worth knowing."""


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule: a stable id, a severity and a sentence."""

    id: str
    severity: Severity
    sentence: str


@dataclass(frozen=True, slots=True)
class Finding:
    """One place where a rule is broken.

    ``location`` is the id of an OTF2 location, ``time`` ticks of the trace's clock, ``event`` the ordinal of the event
    in its location, from 0. Each is None if it does not apply.
    """

    rule: str
    severity: Severity
    text: str
    location: int | None = None
    time: int | None = None
    event: int | None = None


_E, _W, _I = Severity.ERROR, Severity.WARNING, Severity.INFO

_REFERENCED = {
    "string": "string",
    "attribute": "attribute",
    "location": "location",
    "location-group": "location group",
    "node": "system tree node",
    "region": "region",
    "paradigm": "I/O paradigm",
    "file": "I/O file",
    "handle": "I/O handle",
    "metric": "metric or metric member",
    "calling-context": "calling context",
    "interrupt-generator": "interrupt generator",
    "group": "group",
    "communicator": "communicator",
    "marker": "marker group",
    "source-code-location": "source code location",
    "parameter": "parameter",
}
"""Kinds of definitions whose references are checked → their names in the documentation."""

_RULES = (
    Rule("clock.properties", _E, "The clock is defined, and its resolution is not zero."),
    Rule("clock.realtime", _I, "The clock says which moment of the calendar its first tick is."),
    Rule("clock.before-start", _E, "No event lies before the global offset."),
    Rule("clock.after-end", _E, "No event lies after the global offset plus the trace length."),
    Rule("time.order", _E, "Times never decrease within a location."),
    Rule("count.events", _E, "Each location holds exactly as many events as its definition says."),
    Rule("count.locations", _E, "The anchor file counts the locations that are defined."),
    Rule("count.definitions", _E, "The anchor file counts the global definitions that exist."),
    Rule("definition.duplicate", _E, "No id is defined twice."),
    Rule("definition.cycle", _E, "No definition is its own parent, or its parent's parent, and so on."),
    *(
        Rule(f"reference.{kind}", _E, f"Every {name} that is referred to is defined.")
        for kind, name in _REFERENCED.items()
    ),
    Rule("attribute.type", _E, "An attribute's value has the type of the attribute's definition."),
    Rule("property.twice", _W, "No property of a definition is given twice."),
    Rule("event.unknown", _W, "Every event is of a kind this OTF2 library knows."),
    Rule("group.no-thread", _E, "A location group of type PROCESS holds at least one CPU_THREAD location."),
    Rule("node.domain", _W, "System tree domains are known, and none lies inside a smaller one (a socket in a core)."),
    Rule("name.shared", _W, "Names of system tree nodes, location groups and locations all differ (ViTE aborts)."),
    Rule("region.group", _I, "A group of regions exists, by which viewers colour them."),
    Rule("region.order", _E, "A leave leaves the region that was entered last on its location."),
    Rule("region.not-entered", _E, "Every region that is left was entered before."),
    Rule("region.left-open", _E, "Every region that is entered is left before the trace ends."),
    Rule("region.mixed-styles", _E, "Enter and Leave are not mixed with calling context events."),
    Rule(
        "context.outside",
        _E,
        "A calling context lies inside the context that its location entered last and has not left.",
    ),
    Rule("context.unwind", _E, "An unwind distance leads to a node of the previous context's path, or past the root."),
    Rule(
        "context.progress",
        _W,
        "Nodes below an unwind distance's node are new, and that node's child has the same region as before.",
    ),
    Rule("sample.location", _E, "Samples lie on locations of type CPU_THREAD or ACCELERATOR_STREAM."),
    Rule("generator.definition", _E, "An interrupt generator has a mode and a base that OTF2 knows, and a period."),
    Rule("location.metrics-only", _E, "A location of type METRIC holds metric events only."),
    Rule("metric.member", _E, "A metric member is an INT64, UINT64 or DOUBLE, of a mode and a base that OTF2 knows."),
    Rule("metric.class", _E, "A metric class has members, and an occurrence and a recorder kind that OTF2 knows."),
    Rule("metric.instance", _E, "A metric instance is one of an abstract class, and has a scope that OTF2 knows."),
    Rule("metric.values", _E, "A metric event has the number and types of its class's members."),
    Rule("metric.recorder", _E, "A metric is recorded only where its definitions allow."),
    Rule("metric.synchronous", _E, "A synchronous metric lies at an enter or leave (or sample) of its location."),
    Rule("metric.strict", _E, "A strictly synchronous metric is recorded at every enter and leave of its recorders."),
    Rule(
        "paradigm.definition",
        _E,
        "A paradigm has a name, the class that OTF2 demands, an identification of its own, and the next number.",
    ),
    Rule("handle.state", _E, "A handle has a pre-created state if and only if it is flagged PRE_CREATED."),
    Rule(
        "handle.parent",
        _W,
        "A handle's parent is of another paradigm, which operates the handle. A duplicate has its source's parent.",
    ),
    Rule("handle.inactive", _E, "A handle is used only between its creation and its destruction."),
    Rule("handle.created-twice", _E, "A handle that is active is not created again."),
    Rule("handle.destroyed-twice", _E, "A handle that is not active is not destroyed."),
    Rule("handle.foreign-group", _W, "A handle is used by the locations of one location group only."),
    Rule("operation.not-begun", _E, "An operation that is issued, tested, completed or cancelled has begun before."),
    Rule("operation.id-in-use", _E, "A matching id is not begun again on its handle while its operation is open."),
    Rule("operation.order", _E, "Begin, Complete; or non-blocking Begin, Issued, Tests, Complete or Cancelled."),
    Rule("operation.mode", _E, "An operation reads, writes or flushes."),
    Rule(
        "operation.id-again",
        _W,
        "A matching id serves once in the trace, or in a host's part of it (otf-profiler knows no handles).",
    ),
    Rule("operation.elsewhere", _W, "An operation ends on the location that began it (otf-profiler loses others)."),
    Rule(
        "operation.bytes",
        _W,
        "No operation transfers more bytes than it asked for, except a disk's: others may be merged into it.",
    ),
    Rule("operation.flush-bytes", _I, "A flush asks for an undefined number of bytes: it has no size."),
    Rule("operation.in-flight", _I, "Every operation that begins also ends."),
    Rule("ring.blocking", _E, "A request of a ring is a non-blocking operation."),
    Rule("ring.elsewhere", _E, "All records of a ring's request lie on the location that it began on."),
    Rule(
        "ring.cancelled", _E, "A request of a ring ends with a Cancelled event if and only if its status is cancelled."
    ),
    Rule("ring.path", _E, "The status of a ring's request is possible on its path."),
    Rule("ring.reference", _E, "Requests that others name (predecessor, culprit, cause) are in the trace."),
    Rule("ring.worker", _E, "A worker executes one request at a time, and does nothing else at that time."),
    Rule("ring.phases", _E, "Queued, executing and waiting time of a ring's request add up to its duration."),
    Rule(
        "ring.told",
        _E,
        "The trace tells of a request that a worker executed the same time without a CPU as the table.",
    ),
    Rule("ring.state", _E, "The values of a ring's last metric are those of the last row of its states."),
    Rule("table.id-again", _E, "An id serves one call, block request or request of a ring."),
    Rule("table.iocb", _E, "The requests of an io_submit are numbered without gaps, and the call has taken them."),
    Rule(
        "table.file",
        _E,
        "A name from the kernel is one that a descriptor can have, and the only name of its description.",
    ),
    Rule(
        "table.waits",
        _E,
        "The stretches without a CPU of a call, or of a request in workers, lie in it, do not overlap, and add up "
        "to its parts.",
    ),
    Rule("table.path", _E, "A call has at most two paths, one for each place."),
    Rule(
        "call.told",
        _E,
        "The trace tells of a call the same time without a CPU, and the same requests, as the tables.",
    ),
    Rule("request.parts", _E, "The parts of a block request add up to the bytes that it carries."),
    Rule(
        "request.charged",
        _E,
        "The charges of a written part are its bytes. A charge comes after its dirtying, and the dirtying after the "
        "start of its call.",
    ),
    Rule(
        "request.told",
        _E,
        "The trace gives a block request the same reason of write-back, and charges the same thread, as the tables.",
    ),
    Rule(
        "fault.read",
        _E,
        "A page fault outside of calls is one read; its waits fit in; a thread has no more than the kernel counted.",
    ),
    Rule(
        "journal.commit", _E, "A commit meets its phases in their order, and ends before its journal's next one begins."
    ),
    Rule(
        "fuse.request",
        _E,
        "A request to a FUSE server stands once, ends after it began, and was sent in its call by the call's thread.",
    ),
    Rule("stack.call", _E, "A call with a stack was slow, and has one; the stack has frames."),
    Rule("futex.call", _E, "Each row of futexes is of a call on a futex, which no other row names."),
    Rule("cache.verdict", _E, "A read that missed pages is a miss, and no other; a hit does not wait."),
    Rule(
        "cache.fills", _E, "The fills that a read caused have the pages of its columns; no more are used than filled."
    ),
    Rule("table.reference", _E, "Rows of handles, of paths and about rings refer to rows that exist."),
    Rule(
        "count.rings",
        _E,
        "Trace and tables have the same numbers of requests, executions, batches and states of rings.",
    ),
    Rule("count.tables", _E, "Each table of lo2io has as many rows as its metadata says."),
    Rule("marker.scope", _E, "The definition that a marker marks exists."),
    Rule("marker.time", _W, "A marker lies within the span of the trace."),
    Rule("trace.no-io", _W, "The trace holds I/O events, or samples of regions of file I/O."),
)

RULES: dict[str, Rule] = {rule.id: rule for rule in _RULES}
"""All rules by id, in the order of the documentation."""


@dataclass(slots=True)
class Counts:
    """Numbers of things in the trace."""

    events: int = 0
    operations: int = 0
    completed: int = 0
    cancelled: int = 0
    in_flight: int = 0
    handles: int = 0
    files: int = 0
    regions: int = 0
    locations: int = 0
    location_groups: int = 0
    markers: int = 0
    samples: int = 0
    metrics: int = 0
    calling_contexts: int = 0


_NUMBER = 2**32 - 1
"""The bits of a location's id that tell its host in merged archives."""
_OF_MERGING = ("clock.", "time.", "count.")
"""Rules that merging has to keep for an application's events, too."""


@dataclass(slots=True)
class Verification:
    """The verdict on one trace. ``broken`` counts all findings of each rule, ``findings`` keeps the first ones."""

    trace: str
    counts: Counts = field(default_factory=Counts)
    broken: Counter[str] = field(default_factory=Counter)
    findings: list[Finding] = field(default_factory=list)
    resolution: int | None = None
    """Ticks per second."""
    start: int | None = None
    """The clock's global offset."""
    length: int | None = None
    """Trace length in ticks."""
    locations: dict[int, str] = field(default_factory=dict)
    """Names of the locations that findings mention."""
    application: int = 0
    """In an archive merged with an application's own: ids of the application's locations end with a smaller number."""
    of_application: Counter[str] = field(default_factory=Counter)
    """Findings of each rule at those locations. lo2io did not write what they hold."""
    application_locations: int = 0

    @property
    def ok(self) -> bool:
        """True if no rule of severity error is broken."""
        return not any(RULES[rule].severity is Severity.ERROR for rule in self.broken)

    def is_theirs(self, location: int) -> bool:
        """True for a location of the application."""
        return location & _NUMBER < self.application

    def report(
        self, rule: str, text: str, *, location: int | None = None, time: int | None = None, event: int | None = None
    ) -> None:
        """Count a finding, and keep it if it is among the first of its rule.

        What an application's events say is the application's. Their times and their number are merging's, too.
        """
        if location is not None and self.is_theirs(location) and not rule.startswith(_OF_MERGING):
            self.of_application[rule] += 1
            return
        self.broken[rule] += 1
        if self.broken[rule] <= MAX_FINDINGS:
            self.findings.append(Finding(rule, RULES[rule].severity, text, location, time, event))

    def as_dict(self) -> dict[str, Any]:
        """Everything, for JSON."""
        theirs = {"locations": self.application_locations, "broken": dict(self.of_application)}
        return {
            "trace": self.trace,
            "ok": self.ok,
            **({"application": theirs} if self.application else {}),
            "clock": {"ticks_per_second": self.resolution, "start": self.start, "length": self.length},
            "counts": {name: getattr(self.counts, name) for name in Counts.__slots__},
            "broken": dict(self.broken),
            "findings": [
                {
                    "rule": f.rule,
                    "severity": str(f.severity),
                    "location": f.location,
                    "location_name": None if f.location is None else self.locations.get(f.location),
                    "time": f.time,
                    "event": f.event,
                    "text": f.text,
                }
                for f in self.findings
            ],
        }
