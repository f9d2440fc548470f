"""Definitions of metrics: what is measured of devices and processes, in which unit, and where each curve lies."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, NamedTuple

from lo2io._native._lib import lib
from lo2io.writers.otf2_library import value

if TYPE_CHECKING:
    from lo2io.writers.otf2_parts import Parts


class _Member(NamedTuple):
    """One curve. The unit is free of any scale, as OTF2 demands; ``exponent`` scales the values to it."""

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
_CLASSES = {
    lib.LO2_OTF2_QUEUE_DEPTH: (_DEPTH,),
    lib.LO2_OTF2_DEVICE_RATES: (_READS, _WRITES, _BYTES_READ, _BYTES_WRITTEN, _LATENCY),
    lib.LO2_OTF2_PROCESS_RATES: (_BYTES_READ, _BYTES_WRITTEN),
}
"""By ``enum lo2_otf2_metric_class``, which is its reference: the members in the order of the native loop's values."""


def write_metrics(parts: Parts) -> None:
    """Members and classes, and an instance per curve: recorded on a metric location, about a device or a process."""
    view = parts.trace.view
    if not view.nr_metrics:
        return
    members: dict[_Member, int] = {}
    for ref, curves in _CLASSES.items():
        for curve in curves:
            if curve not in members:
                members[curve] = len(members)
                _write_member(parts, members[curve], curve)
        array = (ctypes.c_uint32 * len(curves))(*(members[curve] for curve in curves))
        # Only instances are recorded: that is what an abstract class is for.
        how = value("METRIC_ASYNCHRONOUS"), value("RECORDER_KIND_ABSTRACT")
        parts.out.write("MetricClass", ref, len(curves), array, *how)
    for index in range(view.nr_metrics):
        metric = view.metrics[index]
        scope, subject = parts.scopes[metric.location]
        ref = lib.LO2_OTF2_NR_METRIC_CLASSES + index
        where = metric.location, value(f"SCOPE_{scope}"), subject
        parts.out.write("MetricInstance", ref, metric.metric_class, *where)


def _write_member(parts: Parts, ref: int, curve: _Member) -> None:
    texts = (parts.out.string(text) for text in (curve.name, curve.description))
    kinds = ("METRIC_TYPE_OTHER", f"METRIC_{curve.mode}", f"TYPE_{curve.kind}", f"BASE_{curve.base}")
    unit = parts.out.string(curve.unit)
    parts.out.write("MetricMember", ref, *texts, *(value(kind) for kind in kinds), curve.exponent, unit)
