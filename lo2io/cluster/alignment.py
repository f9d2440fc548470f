"""How each node's clock becomes the clock of all: break points for ClockOffsets, and their error.

::

    node's time ─► CLOCK_MONOTONIC ─► ..._RAW ─► RAW of node 0 ─► CLOCK_MONOTONIC of node 0
             syncs          readings       comparisons      readings of node 0

NTP slews CLOCK_MONOTONIC, differently on each node and at any time. NTP never slews CLOCK_MONOTONIC_RAW. So the line
between two comparisons is straight on RAW alone (docs/explanation/clocks.md has the figures). Without comparisons, the
nodes' own CLOCK_REALTIME replaces RAW. The result is then as good as the source that sets CLOCK_REALTIME.
"""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from lo2io.cluster.lines import Line, simplify
from lo2io.frozen import dataclass
from lo2io.model import UNKNOWN_I64

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from lo2io.cluster.comparison import Comparison, Ping
    from lo2io.model import Columns

TOLERANCE_NS: Final = 1_000
"""Break points are left out if that moves no time by more. Readers load a list of them for each location."""
DRIFT: Final = 100e-6
"""Two quartz clocks run apart by no more than this share of the time."""
_WIDE: Final = 4
"""A reading that took so many times as long as most is left out: the reader lost its CPU meanwhile."""
_NEAR_NS: Final = 500_000_000
"""Two readings must be so far apart to tell by how much one clock is faster."""
_STEP_NS: Final = 1_000_000
_MAX_SLEW: Final = 1e-3
"""The kernel turns CLOCK_REALTIME by no more than this share (adjtimex(2)). What goes beyond is a step."""
REFERENCE, SAME, PINGS, ONE_PING, REALTIME, UNKNOWN = (
    "reference", "same clock", "comparisons", "one comparison", "realtime", "not aligned",
)  # fmt: skip
"""Methods, best first."""
KEPT: Final = "kept"
"""The method of a correction that lo2io did not make."""


@dataclass(frozen=True, slots=True)
class NodeClock:
    """What a node's trace says of its clocks."""

    host: str
    clock: str
    """Which clock it is, as :func:`lo2io.cluster.comparison.clock_id` names it; empty: not known."""
    start_ns: int
    stop_ns: int
    readings: Columns
    """The table ``clock_readings``."""
    syncs: Sequence[Mapping[str, Any]] = ()
    """Readings of the trace's clock with CLOCK_MONOTONIC and CLOCK_REALTIME, as in the metadata."""
    is_monotonic: bool = True
    """The trace's times are CLOCK_MONOTONIC's."""


@dataclass(frozen=True, slots=True)
class Alignment:
    """The correction of one node's times."""

    host: str
    method: str
    points: list[tuple[int, int]]
    """Two or more: time on the node's clock, and what is added there to have the time of node 0. Lines lead between."""
    error_ns: int | None
    """No corrected time is further from the truth than this; None: nobody knows."""
    notices: tuple[str, ...] = ()


@dataclass(slots=True)
class _Path:
    """Steps from a node's clock to a clock that all nodes have, and what they may be wrong by."""

    steps: list[Line]
    error_ns: float | None
    method: str
    notices: list[str] = field(default_factory=list)

    def at(self, times: Any) -> NDArray[np.int64]:
        for step in self.steps:
            times = step.at(times)
        return np.asarray(times, np.int64)

    def back(self, times: Any) -> NDArray[np.int64]:
        for step in reversed(self.steps):
            times = step.inverted().at(times)
        return np.asarray(times, np.int64)

    def breaks(self) -> NDArray[np.int64]:
        """The times of the node's clock at which the line bends."""
        found = [np.zeros(0, np.int64)]
        for number, step in enumerate(self.steps):
            found.append(_Path(self.steps[:number], None, "").back(step.own))
        return np.concatenate(found)


def align(nodes: Sequence[NodeClock], comparisons: Sequence[Comparison]) -> list[Alignment]:
    """Align the clocks of all nodes with that of the first.

    Args:
        nodes: The nodes in the order of the archive.
        comparisons: Runs of ``lo2io clocks``, in the order of time.
    """
    if not nodes:
        return []
    first, *others = nodes
    pings = _pings(comparisons)
    begin = Alignment(first.host, REFERENCE, _constant(first), 0)
    return [begin, *(_align(node, first, pings) for node in others)]


def _constant(node: NodeClock) -> list[tuple[int, int]]:
    return [(node.start_ns, 0), (max(node.stop_ns, node.start_ns + 1), 0)]


def _pings(comparisons: Sequence[Comparison]) -> dict[str, list[Ping]]:
    """Clock → its pings with the reference of the last comparison. Pings with other references do not lead there."""
    reference = comparisons[-1].reference if comparisons else ""
    found: dict[str, list[Ping]] = {}
    for comparison in comparisons:
        if comparison.reference == reference:
            for clock, ping in {ping.clock: ping for ping in comparison.pings}.items():
                found.setdefault(clock, []).append(ping)
    return found


def _align(node: NodeClock, first: NodeClock, pings: Mapping[str, list[Ping]]) -> Alignment:
    if node.clock and node.clock == first.clock and node.is_monotonic and first.is_monotonic:
        return Alignment(node.host, SAME, _constant(node), 0)
    there, back = _by_pings(node, pings), _by_pings(first, pings)
    if there is None or back is None:
        there, back = _by_realtime(node), _by_realtime(first)
    if there is None or back is None:
        return Alignment(node.host, UNKNOWN, _constant(node), None, (f"{node.host}: nothing compares its clock",))
    span = np.array([node.start_ns, max(node.stop_ns, node.start_ns + 1)], np.int64)
    times = np.concatenate([span, there.breaks(), there.back(back.at(back.breaks()))])
    times = np.unique(times[(times >= span[0]) & (times <= span[1])])
    points = simplify(times, back.back(there.at(times)) - times, TOLERANCE_NS)
    known = there.error_ns is not None and back.error_ns is not None
    error = int(np.ceil((there.error_ns or 0) + (back.error_ns or 0))) + TOLERANCE_NS if known else None
    method = max(there.method, back.method, key=(PINGS, ONE_PING, REALTIME).index)
    return Alignment(node.host, method, points, error, tuple(dict.fromkeys((*there.notices, *back.notices))))


def trace_clock(node: NodeClock) -> tuple[list[Line], float]:
    """The step from the trace's times to CLOCK_MONOTONIC, and its error."""
    if node.is_monotonic or not node.syncs:
        return [], 0.0
    line = Line.through([each["time_ns"] for each in node.syncs], [each["monotonic_ns"] for each in node.syncs])
    return [line], float(max(each["error_ns"] for each in node.syncs))


def tight(node: NodeClock, column: str, monotonic: str = "monotonic_ns") -> tuple[Line | None, float]:
    """The line from CLOCK_MONOTONIC to another clock through the node's tight readings, and its error.

    Args:
        node: The node.
        column: The other clock.
        monotonic: CLOCK_MONOTONIC at the moment when that clock was read.
    """
    readings = node.readings
    known = readings["raw_ns"] != UNKNOWN_I64 if "raw_ns" in readings else np.zeros(0, np.bool_)
    if not known.any():
        return None, 0.0
    width = readings["width_ns"]
    known &= (readings[column] != UNKNOWN_I64) & (readings[monotonic] != UNKNOWN_I64)
    known &= width <= _WIDE * np.median(width[known]) if known.any() else False
    if not known.any():
        return None, 0.0
    places = _spaced(readings[monotonic], np.flatnonzero(known))
    line = Line.through(readings[monotonic][places], readings[column][places])
    return line, float(width[known].max()) / 2 + line.bend_ns()


def _spaced(times: NDArray[np.int64], places: NDArray[np.intp]) -> NDArray[np.intp]:
    """Places of readings that are not too near to tell a rate. The first and the last stay."""
    kept = [int(places[0])]
    for place in places[1:].tolist():
        if times[place] - times[kept[-1]] >= _NEAR_NS:
            kept.append(place)
    if kept[-1] != places[-1]:
        kept = [*(kept[:-1] if len(kept) > 1 else kept), int(places[-1])]
    return np.array(kept)


def _by_pings(node: NodeClock, pings: Mapping[str, list[Ping]]) -> _Path | None:
    """The way to the reference's CLOCK_MONOTONIC_RAW. None: nothing leads there."""
    found = pings.get(node.clock, []) if node.clock else []
    raw, width = tight(node, "raw_ns")
    if not found or raw is None:
        return None
    steps, error = trace_clock(node)
    line = Line.through([ping.raw_ns for ping in found], [ping.reference_raw_ns for ping in found])
    path = _Path([*steps, raw, line], error + width + max(ping.rtt_ns for ping in found) / 2, PINGS)
    if all(ping.rtt_ns == 0 for ping in found):  # the reference itself
        return path
    first, last = _Path(path.steps[:-1], None, "").at([node.start_ns, node.stop_ns]).tolist()
    outside = max(line.own[0] - first, last - line.own[-1], 0)
    if len(line.own) == 1:
        path.method = ONE_PING
        path.error_ns = (path.error_ns or 0) + DRIFT * outside
        path.notices.append(f"{node.host}: its clock was compared once, so its drift is not known")
    elif outside:
        # Each end of the line may be wrong by half of an RTT, and the line goes on after the end.
        path.error_ns = (path.error_ns or 0) * (1 + 2 * outside / (line.own[-1] - line.own[0]))
        path.notices.append(f"{node.host}: it recorded {outside / 1e9:.1f} s outside of the comparisons of its clock")
    return path


def _by_realtime(node: NodeClock) -> _Path | None:
    """The way to CLOCK_REALTIME, which every node has. None: the node has no reading of it."""
    steps, error = trace_clock(node)
    line, width = tight(node, "realtime_ns")
    if line is None:
        if not node.syncs:
            return None
        line = Line.through([each["monotonic_ns"] for each in node.syncs], [each["realtime_ns"] for each in node.syncs])
        return _Path([*steps, line], None, REALTIME, [f"{node.host}: nobody knows how well its CLOCK_REALTIME was set"])
    even, steps_ns = _without_steps(line)
    path = _Path([*steps, even], None, REALTIME)
    doubt, synchronised = node.readings["max_error_us"], node.readings["is_synchronised"]
    if synchronised.all() and (doubt != UNKNOWN_I64).all():
        path.error_ns = error + width + 1_000.0 * float(doubt.max()) + steps_ns
    else:
        path.notices.append(f"{node.host}: nothing set its CLOCK_REALTIME (adjtimex: STA_UNSYNC)")
    if steps_ns:
        path.notices.append(f"{node.host}: its CLOCK_REALTIME was set while it recorded, by {steps_ns / 1e9:.6f} s")
    return path


def _without_steps(line: Line) -> tuple[Line, float]:
    """The line as if each step had been made before the line's first point: a clock is more accurate once it is set.

    Returns:
        The line, and the sum of the steps' lengths in ns.
    """
    length, other = np.diff(line.own), np.diff(line.other)
    gain = other - length
    steps = np.where(np.abs(gain) > _STEP_NS + _MAX_SLEW * length, gain, 0)
    if not steps.any():
        return line, 0.0
    later = np.concatenate([np.cumsum(steps[::-1])[::-1], [0]])
    return Line(line.own, line.other + later), float(np.abs(steps).sum())
