"""A trace of a whole machine, layout (iii), for the tests of ``verify``; made with ``otf2_builder``.

``system()`` keeps every rule: a thread whose regions are entered by calling context and that records a strictly
synchronous metric, a CPU with samples of block events in and outside of a running thread, and the metrics of a disk.

>>> from lo2io.verify import verify
>>> trace = system()
>>> trace.events[CPU].append(leave(START + LENGTH, RUNNING))
>>> sorted(verify(trace.write(folder)).broken)
['region.not-entered']
"""

from __future__ import annotations

from typing import Any

import _otf2

from build.otf2_builder import LENGTH, NONE32, START, S, Trace, begin, complete, correct, created

THREAD, CPU, DISK_METRICS = 0, 1, 2
"""Locations."""
CALL, WAITING, RUNNING, REQUEST_INSIDE, REQUEST_ALONE = range(5)
"""Calling contexts: a call, off the CPU inside of it; a thread on a CPU, a block request inside of it and one alone."""
DEPTH, LATENCY = 0, 1
"""Metric members."""
DEPTH_CLASS, RATES_CLASS, DISK_DEPTH, PROCESS_RATES, EACH_BORDER = range(5)
"""Metrics: two abstract classes, an instance of each, and a strictly synchronous class."""
HOST, PACKAGE, CORE, PU, DISK_NODE = range(5)
"""System tree nodes."""
TYPES = {DEPTH: _otf2.TYPE_UINT64, LATENCY: _otf2.TYPE_DOUBLE}
COUNTED, MEASURED = TYPES[DEPTH], TYPES[LATENCY]


def text(trace: Trace, words: str) -> int:
    """A string reference, defined at its first use."""
    if words not in S:
        S[words] = len(S)
    trace.definitions["String", S[words]] = (words,)
    return S[words]


def metric(time: int, ref: int, *types: Any) -> tuple[Any, ...]:
    """A metric event with one value of each type."""
    return "Metric", time, ref, list(types), [_value() for _ in types]


def sample(time: int, context: int, distance: int = 2, generator: int = 0) -> tuple[Any, ...]:
    """A sample."""
    return "CallingContextSample", time, context, distance, generator


def enter(time: int, context: int, distance: int = 2) -> tuple[Any, ...]:
    """CallingContextEnter."""
    return "CallingContextEnter", time, context, distance


def leave(time: int, context: int) -> tuple[Any, ...]:
    """CallingContextLeave."""
    return "CallingContextLeave", time, context


def _value() -> Any:
    value = _otf2.MetricValue()
    value.unsigned_int = 1
    return value


def system() -> Trace:
    """The whole trace."""
    trace = correct()
    kept = {"String", "Attribute", "IoParadigm"}
    trace.definitions = {key: values for key, values in trace.definitions.items() if key[0] in kept}
    trace.more, trace.markers = [], [(START + 500, 100, 0, _otf2.MARKER_SCOPE_LOCATION, CPU, "3 lost")]
    _machine(trace)
    _places(trace)
    _contexts(trace)
    _metrics(trace)
    _events(trace)
    return trace


def _machine(trace: Trace) -> None:
    names = ("host", "package 0", "core 0", "cpu 0", "vda")
    for node, parent in ((HOST, NONE32), (PACKAGE, HOST), (CORE, PACKAGE), (PU, CORE), (DISK_NODE, HOST)):
        trace.definitions["SystemTreeNode", node] = (text(trace, names[node]), text(trace, "node"), parent)
    for node, domain in ((HOST, "MACHINE"), (HOST, "SHARED_MEMORY"), (PACKAGE, "SOCKET"), (CORE, "CORE"), (PU, "PU")):
        trace.more.append(("SystemTreeNodeDomain", (node, getattr(_otf2, f"SYSTEM_TREE_DOMAIN_{domain}"))))


def _places(trace: Trace) -> None:
    process, unknown = _otf2.LOCATION_GROUP_TYPE_PROCESS, _otf2.LOCATION_GROUP_TYPE_UNKNOWN
    thread, metrics = _otf2.LOCATION_TYPE_CPU_THREAD, _otf2.LOCATION_TYPE_METRIC
    trace.definitions |= {
        ("LocationGroup", 0): (S["process 10"], process, HOST, NONE32),
        ("LocationGroup", 1): (text(trace, "cpu 0 activity"), process, PU, NONE32),
        ("LocationGroup", 2): (S["disk vda"], unknown, DISK_NODE, NONE32),
        ("Location", THREAD): (S["thread 10"], thread, 0),
        ("Location", CPU): (text(trace, "CPU 0"), thread, 1),
        ("Location", DISK_METRICS): (text(trace, "vda metrics"), metrics, 2),
        ("IoRegularFile", 0): (S["/tmp/file"], HOST),
        ("IoHandle", 0): (S[""], 0, 0, _otf2.IO_HANDLE_FLAG_NONE, NONE32, NONE32),
    }


def _contexts(trace: Trace) -> None:
    names = ("read", "off CPU", "thread 10 running", "vda read")
    roles = (_otf2.REGION_ROLE_FILE_IO, _otf2.REGION_ROLE_ARTIFICIAL, _otf2.REGION_ROLE_CODE, _otf2.REGION_ROLE_FILE_IO)
    for region, (name, role) in enumerate(zip(names, roles, strict=True)):
        string = text(trace, name)
        kinds = _otf2.PARADIGM_USER, _otf2.REGION_FLAG_NONE
        trace.definitions["Region", region] = (string, string, S[""], role, *kinds, S[""], 0, 0)
    kinds = _otf2.GROUP_TYPE_REGIONS, _otf2.PARADIGM_USER, _otf2.GROUP_FLAG_NONE
    trace.definitions["Group", 0] = (S["I/O regions"], *kinds, [0, 3])
    for context, region, parent in (
        (CALL, 0, NONE32),
        (WAITING, 1, CALL),
        (RUNNING, 2, NONE32),
        (REQUEST_INSIDE, 3, RUNNING),
        (REQUEST_ALONE, 3, NONE32),
    ):
        trace.definitions["CallingContext", context] = (region, NONE32, parent)
    value = _otf2.AttributeValue()
    value.stringRef = S["vda"]
    trace.more.append(("CallingContextProperty", (REQUEST_ALONE, S["/tmp"], _otf2.TYPE_STRING, value)))
    mode = _otf2.INTERRUPT_GENERATOR_MODE_COUNT
    trace.definitions["InterruptGenerator", 0] = (text(trace, "block events"), mode, _otf2.BASE_DECIMAL, 0, 1)


def _metrics(trace: Trace) -> None:
    modes = {DEPTH: _otf2.METRIC_ABSOLUTE_NEXT, LATENCY: _otf2.METRIC_ABSOLUTE_LAST}
    for member, name in ((DEPTH, "queue depth"), (LATENCY, "latency")):
        kinds = _otf2.METRIC_TYPE_OTHER, modes[member], TYPES[member], _otf2.BASE_DECIMAL
        trace.definitions["MetricMember", member] = (text(trace, name), S[""], *kinds, -9, text(trace, "s"))
    abstract = _otf2.METRIC_ASYNCHRONOUS, _otf2.RECORDER_KIND_ABSTRACT
    strict = _otf2.METRIC_SYNCHRONOUS_STRICT, _otf2.RECORDER_KIND_CPU
    trace.definitions |= {
        ("MetricClass", DEPTH_CLASS): ([DEPTH], *abstract),
        ("MetricClass", RATES_CLASS): ([LATENCY, DEPTH], *abstract),
        ("MetricInstance", DISK_DEPTH): (DEPTH_CLASS, DISK_METRICS, _otf2.SCOPE_SYSTEM_TREE_NODE, DISK_NODE),
        ("MetricInstance", PROCESS_RATES): (RATES_CLASS, DISK_METRICS, _otf2.SCOPE_LOCATION_GROUP, 0),
        ("MetricClass", EACH_BORDER): ([DEPTH], *strict),
    }
    trace.more.append(("MetricClassRecorder", (EACH_BORDER, THREAD)))


def _events(trace: Trace) -> None:
    at = START
    offset = {0: (_otf2.TYPE_UINT64, 4096)}
    trace.events = {
        THREAD: [
            *(metric(at, EACH_BORDER, COUNTED), enter(at, CALL)),
            *(created(at + 5), begin(at + 10, 0, 1), metric(at + 20, EACH_BORDER, COUNTED), enter(at + 20, WAITING)),
            *(leave(at + 30, WAITING), metric(at + 30, EACH_BORDER, COUNTED), complete(at + 40, 0, 1)),
            *(metric(at + 40, EACH_BORDER, COUNTED), leave(at + 40, CALL), ("IoDestroyHandle", at + 50, 0)),
        ],
        CPU: [
            *(sample(at, REQUEST_ALONE), sample(at + 10, REQUEST_ALONE, 1), enter(at + 20, RUNNING)),
            *((*sample(at + 25, REQUEST_INSIDE), offset), sample(at + 25, REQUEST_INSIDE, 0)),
            *(sample(at + 30, REQUEST_INSIDE, 2), leave(at + 40, RUNNING), sample(at + LENGTH, REQUEST_ALONE)),
        ],
        DISK_METRICS: [
            metric(at + 100, DISK_DEPTH, COUNTED),
            metric(at + 100, PROCESS_RATES, MEASURED, COUNTED),
        ],
    }
