"""The clock of an application's archive, and how its ticks become the time of the merged archive.

::

    location's ticks ─► archive's ticks ─► CLOCK_MONOTONIC ─► node's time ─► time of node 0
              its own ClockOffsets      readings          syncs       correction

The archive's own offsets lead to the clock of one machine: that of its first location. lo2io reads that machine's
clocks once a second. The user tells which of these clocks the archive has, or the tool's configuration does, or the
archive's resolution and the times of its events. If two clocks are possible, both must lead to the same times. Else
calls that both the tool and lo2io recorded lead to the node's time (:mod:`lo2io.cluster.shared`).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

import numpy as np

from lo2io.cluster.alignment import TOLERANCE_NS, tight, trace_clock
from lo2io.cluster.lines import Line, simplify
from lo2io.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from lo2io.cluster.alignment import NodeClock
    from lo2io.cluster.band import Band
    from lo2io.trace.correction import Correction

CLOCKS: Final = {
    "monotonic": ("monotonic_ns", "monotonic_ns"),
    "raw": ("raw_ns", "monotonic_ns"),
    "realtime": ("realtime_ns", "monotonic_ns"),
    "tai": ("tai_ns", "monotonic_ns"),
    "tsc": ("tsc", "tsc_ns"),
}
"""Clock → its column among the readings, and that of CLOCK_MONOTONIC at the same moment."""
_TIMERS: Final = {"tsc": ("tsc",), "gettimeofday": ("realtime",), "clock_gettime": ("monotonic", "raw", "realtime")}
"""``SCOREP_TIMER`` → the clocks that it may be. Which one clock_gettime reads is fixed when Score-P is built:
CLOCK_MONOTONIC, if there is one, else CLOCK_MONOTONIC_RAW, else CLOCK_REALTIME (build-config/m4/scorep_timer.m4)."""
_CONFIGURATION: Final = "scorep.cfg"
"""Score-P writes its variables into this file beside the archive, ``NAME=value`` a line (SCOREP_Config.c)."""
_BY_RESOLUTION: Final = "by its resolution"
_NS: Final = 1_000_000_000
_MICROSECONDS: Final = 1_000_000
NEAR: Final = 1e-3
"""A counter's rate, as tools measure it, differs from lo2io's by no more than this share."""
_SAME_NS: Final = 1_000_000
"""If the clocks that are possible tell the same to within this, the first one is taken, and the error says so."""
BY_CALLS: Final = "calls"
"""In place of a clock: calls that both recorded tell (:mod:`lo2io.cluster.shared`)."""
REMEDY: Final = (
    f"name the archive's clock by --clock ({', '.join(CLOCKS)}), or what to add to its times by --offset SECONDS"
)


class OtherRunError(UsageError):
    """The archive's clock is known, and puts its events elsewhere."""


@dataclass(frozen=True, slots=True)
class Bridge:
    """From the ticks of an application's archive to the time of the merged archive.

    Attributes:
        line: Points of both.
        method: By what the clock is known, in words.
        error_ns: No time is further from the truth; None: nobody knows.
        span: First and last tick.
        notices: What users should know.
    """

    line: Line
    method: str
    error_ns: int | None
    span: tuple[int, int]
    notices: tuple[str, ...] = field(default=())

    def correct(self, own: Correction) -> list[tuple[int, int]]:
        """A location's correction: ticks, and what is added there. ``own``: its correction in its own archive."""
        start, stop = self.span
        breaks, ends = self.line.own, np.array([start, max(stop, start + 1)], np.int64)
        if len(own):
            back = Line(own.time_ns + own.offset_ns, own.time_ns)
            breaks, ends = back.at(breaks), back.at(ends)
        times = np.unique(np.concatenate([ends, breaks[(breaks > ends[0]) & (breaks < ends[1])], own.time_ns]))
        times = times[times >= 0]
        return simplify(times, self.line.at(own.apply(times)) - times, 0)


def bridge(
    anchor: Path,
    clock: tuple[int, int, int],
    node: NodeClock,
    *,
    named: str | None = None,
) -> Bridge:
    """Find the clock of an archive, and the way to the time of a node.

    Args:
        anchor: The archive's ``.otf2`` file.
        clock: Its ticks per second, its first and its last tick.
        node: The machine of the archive's clock.
        named: The clock, if the user names it.

    Raises:
        OtherRunError: The clock that the user or the tool names does not put the archive's events into the recording.
        UsageError: The clock is not known, or none of the possible clocks puts the events into the recording.
    """
    names, source = _possible(anchor, clock[0], node, named)
    found = [(name, *way) for name in names if (way := _way(name, clock[0], node)) is not None]
    if not found:
        answer = f"the recording has no readings of the clock {' or '.join(names)}" if names else _unknown(clock[0])
        raise UsageError(f"align the clock of {anchor}", answer, REMEDY)
    fitting = [(name, line, error) for name, line, error in found if _meets(line, clock, node)]
    if not fitting:
        kind = UsageError if source == _BY_RESOLUTION else OtherRunError
        raise kind(f"align the clock of {anchor}", _apart(found[0][0], found[0][1], clock, node), _OTHER_RUN)
    name, line, error = fitting[0]
    spread = _spread([each[1] for each in fitting], clock)
    if spread > _SAME_NS:
        answer = f"its clock may be {' or '.join(each[0] for each in fitting)}, which differ by {spread / _NS:,.6f} s"
        raise UsageError(f"align the clock of {anchor}", answer, REMEDY)
    others = " or ".join(each[0] for each in fitting[1:])
    doubt = f"the application's clock may also be {others}: they differ by {spread / 1e3:,.1f} µs, part of its error"
    notices = (doubt,) if spread > TOLERANCE_NS else ()
    return Bridge(line, f"{name} ({source})", int(np.ceil(error + spread)) + TOLERANCE_NS, clock[1:], notices)


_OTHER_RUN: Final = f"name the archive of a run that was recorded on this machine since its boot; else {REMEDY}"


def _unknown(resolution: int) -> str:
    return f"no clock that lo2io reads has its {resolution:,} ticks a second"


def by_offset(clock: tuple[int, int, int], offset_s: float) -> Bridge:
    """The user knows what to add."""
    resolution, start, stop = clock
    ends = [start, max(stop, start + 1)]
    times = [_scaled(tick, _NS, resolution) + round(offset_s * _NS) for tick in ends]
    return Bridge(Line.through(ends, times), "offset (named by the user)", None, (start, stop))


def by_calls(clock: tuple[int, int, int], band: Band, nr_pairs: int) -> Bridge:
    """Calls that both recorded tell."""
    error = int(np.ceil(band.error_ns + _NS / clock[0]))
    return Bridge(band.line, f"{nr_pairs:,} calls that both recorded", error, clock[1:])


def onwards(bridged: Bridge, correction: Correction, error_ns: int | None) -> Bridge:
    """The bridge extended to the time of the merged archive. ``correction`` leads there from the node's time."""
    known = bridged.error_ns is not None and error_ns is not None
    error = (bridged.error_ns or 0) + (error_ns or 0) if known else None
    if not len(correction):
        return replace(bridged, error_ns=error)
    own = np.unique(np.concatenate([bridged.line.own, bridged.line.inverted().at(correction.time_ns)]))
    return replace(bridged, line=Line(own, correction.apply(bridged.line.at(own))), error_ns=error)


def _possible(anchor: Path, resolution: int, node: NodeClock, named: str | None) -> tuple[Sequence[str], str]:
    """The clocks that the archive's may be, the likeliest first, and who says so."""
    if named is not None:
        return (named,), "named by the user"
    timer = _configured_timer(anchor)
    if timer is not None:
        return _TIMERS.get(timer, ()), f"SCOREP_TIMER={timer}"
    names = {_NS: ("monotonic", "raw", "realtime", "tai"), _MICROSECONDS: ("realtime",)}.get(resolution, ())
    rate = _rate(node)
    counter = rate is not None and abs(resolution / rate - 1) < NEAR
    return (*names, *(("tsc",) if counter else ())), _BY_RESOLUTION


def _configured_timer(anchor: Path) -> str | None:
    """The timer that Score-P's configuration beside the archive names."""
    try:
        lines = (anchor.parent / _CONFIGURATION).read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return None
    values = (line.partition("=")[2] for line in lines if line.startswith("SCOREP_TIMER="))
    return next((value.strip().strip("'\"") for value in values), None)


def _rate(node: NodeClock) -> float | None:
    """Ticks of the processor's counter a second."""
    line, _error = tight(node, *CLOCKS["tsc"])
    if line is None or len(line.own) < 2:  # noqa: PLR2004 - a rate needs two points
        return None
    return float(line.other[-1] - line.other[0]) / float(line.own[-1] - line.own[0]) * _NS


def _way(name: str, resolution: int, node: NodeClock) -> tuple[Line, float] | None:
    """The line from the archive's ticks to the node's time, and its error; None: the node has no readings."""
    column, monotonic = CLOCKS[name]
    to_clock, error = tight(node, column, monotonic)
    if to_clock is None:
        return None
    steps, trace_error = trace_clock(node)
    times = to_clock.own
    for step in steps:
        times = step.inverted().at(times)
    ticks = to_clock.other
    if name != "tsc":
        ticks = np.array([_scaled(tick, resolution, _NS) for tick in ticks.tolist()], np.int64)
    if len(ticks) == 1:
        ticks, times = _second_point(ticks, times, resolution)
    kept = simplify(ticks, times - ticks, TOLERANCE_NS) if len(ticks) > 1 else []
    own = np.array([tick for tick, _ in kept], np.int64)
    line = Line(own, own + np.array([offset for _, offset in kept], np.int64))
    return line, error + trace_error + _NS / resolution


def _second_point(ticks: np.ndarray, times: np.ndarray, resolution: int) -> tuple[np.ndarray, np.ndarray]:
    """The only reading, and a point one second later by the archive's own rate: one reading tells no rate."""
    return np.array([ticks[0], ticks[0] + resolution]), np.array([times[0], times[0] + _NS])


def _scaled(value: int, wanted: int, has: int) -> int:
    return value * wanted // has


def _meets(line: Line, clock: tuple[int, int, int], node: NodeClock) -> bool:
    first, last = line.at(clock[1:]).tolist()
    return bool(first <= node.stop_ns and last >= node.start_ns)


def _apart(name: str, line: Line, clock: tuple[int, int, int], node: NodeClock) -> str:
    first, last = line.at(clock[1:]).tolist()
    way = (
        f"{(first - node.stop_ns) / _NS:,.1f} s after"
        if first > node.stop_ns
        else f"{(node.start_ns - last) / _NS:,.1f} s before"
    )
    return f"its events would lie {way} the recording of {node.host}, by the clock {name}"


def _spread(lines: Sequence[Line], clock: tuple[int, int, int]) -> int:
    ends = np.stack([line.at(clock[1:]) for line in lines])
    return int((ends.max(axis=0) - ends.min(axis=0)).max())
