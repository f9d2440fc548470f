"""Definitions of metrics of devices, processes and rings: their units, and the locations of the curves."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, NamedTuple

from lo2io.native._lib import lib
from lo2io.otf2.library import UNDEFINED_U64
from lo2io.otf2.values import value

if TYPE_CHECKING:
    from lo2io.otf2.write.parts import Parts


class _Member(NamedTuple):
    """One curve. The unit has no scale, as OTF2 demands; ``exponent`` is the values' scale."""

    name: str
    description: str
    unit: str
    mode: str = "ABSOLUTE_LAST"
    kind: str = "DOUBLE"
    base: str = "DECIMAL"
    exponent: int = 0


_DEPTH = _Member(
    "queue depth", "Requests issued to the device and not ended, from here on", "#", "ABSOLUTE_NEXT", "UINT64"
)
_READS = _Member("reads per second", "Read requests completed in the interval that ends here", "1/s")
_WRITES = _Member("writes per second", "Write requests completed in the interval that ends here", "1/s")
_BYTES_READ = _Member("bytes read per second", "In the interval that ends here", "B/s", base="BINARY")
_BYTES_WRITTEN = _Member("bytes written per second", "In the interval that ends here", "B/s", base="BINARY")
_LATENCY = _Member(
    "device latency",
    "From issue to completion: mean of the requests completed in the interval that ends here; 0 if there is none",
    "s",
    exponent=-9,
)
_IN_FLIGHT = _Member(
    "requests in flight", "Requests that began and have not ended, from here on", "#", "ABSOLUTE_NEXT", "UINT64"
)
_PUNTED = _Member(
    "requests handed to workers", "Of those in flight, handed to workers, from here on", "#", "ABSOLUTE_NEXT", "UINT64"
)
_WORKERS = _Member(
    "worker threads", "Alive, and serving threads that submit to the ring, from here on", "#", "ABSOLUTE_NEXT", "UINT64"
)
_CQ_LEAST = _Member(
    "completion queue, at least", "Completions nobody can have collected, from here on", "#", "ABSOLUTE_NEXT", "UINT64"
)
_CQ_MOST = _Member(
    "completion queue, at most", "Completions that may lie there, from here on", "#", "ABSOLUTE_NEXT", "UINT64"
)
_BATCH_SIZE = _Member("batch size", "Requests submitted by the call that ends here", "#", "ABSOLUTE_POINT", "UINT64")
_COLLECTED = _Member("events collected", "By the call that ends here", "#", "ABSOLUTE_POINT", "UINT64")
_CLASSES = {
    lib.LO2_OTF2_QUEUE_DEPTH: (_DEPTH,),
    lib.LO2_OTF2_DEVICE_RATES: (_READS, _WRITES, _BYTES_READ, _BYTES_WRITTEN, _LATENCY),
    lib.LO2_OTF2_PROCESS_RATES: (_BYTES_READ, _BYTES_WRITTEN),
    lib.LO2_OTF2_RING_LOAD: (_IN_FLIGHT, _PUNTED, _WORKERS),
    lib.LO2_OTF2_RING_CQ: (_CQ_LEAST, _CQ_MOST),
    lib.LO2_OTF2_BATCH_SIZE: (_BATCH_SIZE,),
    lib.LO2_OTF2_COLLECTED: (_COLLECTED,),
}
"""``enum lo2_otf2_metric_class`` → members, in the order of the native loop's values."""


def write_metrics(parts: Parts) -> None:
    """Write classes with their members, and an instance for each curve, recorded on a metric location."""
    view = parts.trace.view
    members: dict[_Member, int] = {}
    for ref in range(view.nr_metrics):
        metric = view.metrics[ref]
        if metric.location == UNDEFINED_U64:
            _write_class(parts, ref, _CLASSES[metric.metric_class], members)
            continue
        scope, subject = parts.scopes[metric.location]
        where = metric.location, value(f"SCOPE_{scope}"), subject
        parts.out.write("MetricInstance", ref, metric.class_ref, *where)


def _write_class(parts: Parts, ref: int, curves: tuple[_Member, ...], members: dict[_Member, int]) -> None:
    for curve in curves:
        if curve not in members:
            members[curve] = len(members)
            _write_member(parts, members[curve], curve)
    array = (ctypes.c_uint32 * len(curves))(*(members[curve] for curve in curves))
    # Classes are abstract, because only instances are recorded.
    how = value("METRIC_ASYNCHRONOUS"), value("RECORDER_KIND_ABSTRACT")
    parts.out.write("MetricClass", ref, len(curves), array, *how)


def _write_member(parts: Parts, ref: int, curve: _Member) -> None:
    texts = (parts.out.string(text) for text in (curve.name, curve.description))
    kinds = ("METRIC_TYPE_OTHER", f"METRIC_{curve.mode}", f"TYPE_{curve.kind}", f"BASE_{curve.base}")
    unit = parts.out.string(curve.unit)
    parts.out.write("MetricMember", ref, *texts, *(value(kind) for kind in kinds), curve.exponent, unit)
