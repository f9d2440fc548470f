#!/usr/bin/env python3
"""Draw a picture for the documentation: a report as in a terminal, threads and disks over time, or a ring.

usage: picture.py report TRACE OUTPUT.svg
       picture.py timeline TRACE OUTPUT.svg [FROM_MS TO_MS]
       picture.py ring TRACE OUTPUT.svg [FROM_MS TO_MS]
       picture.py paths OUTPUT.svg

docs/index.md has the commands that made the pictures in docs/img, from real recordings.
"""

import io
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple
from xml.sax.saxutils import escape

from rich.console import Console

from lo2io.reports.summary.summary import summarize
from lo2io.reports.text.brief import render_brief
from lo2io.reports.words import printable
from lo2io.trace.reader import Trace, open_trace
from lo2io.units import NS_PER_S

WIDTH, GUTTER, MARGIN, ROW, LANE = 1000, 160, 30, 24, 9
LEGEND, LETTER = 26, 6.2
THREADS = 8
"""Shown: those with most time in calls."""
LANES = 8
"""Lanes of a disk; further requests in flight are drawn over each other."""
COLOURS = {
    "reads": "#2b7bba",
    "writes": "#e6801a",
    "sync and flush": "#8a4fbf",
    "other": "#7a7a7a",
    "queued": "#c9c9c9",
}
RING_COLOURS = {
    "executed by the submitter": "#2b7bba",
    "executed by a worker": "#e6801a",
    "waits for device or timer": "#b5d3ea",
    "waits for its file": "#b9deb0",
    "waits for a worker": "#f6d6b0",
    "not begun": "#d9d9d9",
    "in a call": "#7a7a7a",
}
WAITS = {"poll": "waits for its file", "worker": "waits for a worker"}
RING_LANES = 40
"""Lanes of a ring."""
KINDS = {"READ": "reads", "WRITE": "writes", "SYNC": "sync and flush"}
REQUESTS = {"read": "reads", "write": "writes", "flush": "sync and flush"}


class Bar(NamedTuple):
    """Something that went on for a while."""

    begin_ns: int
    end_ns: int
    kind: str


class Row(NamedTuple):
    """One line of the picture, of one lane or of several."""

    label: str
    lanes: list[list[Bar]]


def report(trace: Trace) -> str:
    """The page that ``lo2io report`` prints, as a terminal would show it."""
    console = Console(record=True, width=100, file=io.StringIO(), force_terminal=True, highlight=False)
    render_brief(summarize(trace), console)
    svg = console.export_svg(title=f"lo2io report {trace.path.name}")
    # The font is the viewer's own, for a picture must fetch nothing.
    return re.sub(r"\s*@font-face \{.*?\}", "", svg, flags=re.DOTALL)


def thread_rows(trace: Trace, start: int, stop: int) -> list[Row]:
    """A row for each of the threads with most time in calls in the span, by the time of its first."""
    kinds = {call["name"]: KINDS.get(call["kind"].upper(), "other") for call in trace.metadata["calls"]}
    bars: dict[int, list[Bar]] = defaultdict(list)
    names = ("task", "begin_time_ns", "end_time_ns", "call")
    columns = trace.table("operations", names).to_pydict()
    for task, begin, end, call in zip(*(columns[name] for name in names), strict=True):
        if end is not None and task is not None and begin < stop and end > start:
            bars[task].append(Bar(begin, end, kinds[call]))
    busy = Counter({task: sum(bar.end_ns - bar.begin_ns for bar in row) for task, row in bars.items()})
    labels = {row["task"]: f"{row['comm']} {row['tid']}" for row in trace.threads.to_pylist()}
    chosen = sorted((task for task, _ in busy.most_common(THREADS)), key=lambda task: min(bars[task]))
    return [Row(labels[task], [sorted(bars[task])]) for task in chosen]


def disk_rows(trace: Trace, start: int, stop: int) -> list[Row]:
    """A row for each disk with requests in the span, and a lane for each of those in flight at the same time."""
    names = {row["device"]: row["name"] for row in trace.devices.to_pylist()}
    spans: dict[int, list[tuple[int, int, int, str]]] = defaultdict(list)
    for row in trace.requests.to_pylist():
        issue, complete = row["issue_time_ns"], row["complete_time_ns"]
        begin = issue if row["insert_time_ns"] is None else row["insert_time_ns"]
        if issue is not None and complete is not None and begin < stop and complete > start:
            spans[row["device"]].append((begin, issue, complete, REQUESTS.get(row["operation"], "other")))
    rows = []
    for device, requests in sorted(spans.items()):
        lanes: list[list[Bar]] = []
        for begin, issue, complete, kind in sorted(requests):
            lane = next((lane for lane in lanes if lane[-1].end_ns <= begin), None)
            if lane is None and len(lanes) < LANES:
                lanes.append(lane := [])
            elif lane is None:
                lane = min(lanes, key=lambda each: each[-1].end_ns)
            if begin < issue:
                lane.append(Bar(begin, issue, "queued"))
            lane.append(Bar(issue, complete, kind))
        rows.append(Row(names.get(device, f"{device >> 20}:{device & 0xFFFFF}"), lanes))
    return rows


def shapes(bars: Iterable[Bar], top: float, height: float, begin_ns: int, end_ns: int) -> Iterator[str]:
    """One SVG path for each kind. Bars less than a third of a pixel apart become one."""
    scale = (WIDTH - GUTTER - MARGIN) / (end_ns - begin_ns)
    spans: dict[str, list[list[float]]] = defaultdict(list)
    for bar in bars:
        left = GUTTER + (max(bar.begin_ns, begin_ns) - begin_ns) * scale
        right = max(GUTTER + (min(bar.end_ns, end_ns) - begin_ns) * scale, left + 0.3)
        of_kind = spans[bar.kind]
        if of_kind and left - of_kind[-1][1] < 1 / 3:
            of_kind[-1][1] = max(right, of_kind[-1][1])
        else:
            of_kind.append([left, right])
    colours = {**COLOURS, **RING_COLOURS}
    for kind in sorted(spans, key=list(colours).index, reverse=True):
        path = "".join(
            f"M{left:.1f} {top:g}h{right - left:.1f}v{height:g}h{left - right:.1f}z" for left, right in spans[kind]
        )
        yield f'<path fill="{colours[kind]}" d="{path}"/>'


def ticks(length_ns: int) -> tuple[list[int], float, str]:
    """Four to ten round times from the start, and their unit."""
    step = next(s * 10**e for e in range(12) for s in (1, 2, 5) if length_ns / (s * 10**e) <= 10)  # noqa: PLR2004
    divisor, unit = next(
        (d, u) for d, u in ((NS_PER_S, "s"), (10**6, "ms"), (10**3, "µs"), (1, "ns")) if step * 10 >= d
    )
    return list(range(0, length_ns + 1, step)), divisor, unit


def ring_rows(trace: Trace, start: int, stop: int) -> list[Row]:
    """The ring with most requests in the span: the calls on it by thread, its requests, and its workers' executions."""
    requests = [row for row in trace.ring_requests.to_pylist() if _overlaps(row, start, stop)]
    ring, _ = Counter(row["ring"] for row in requests).most_common(1)[0]
    requests = [row for row in requests if row["ring"] == ring]
    threads = {row["task"]: f"{row['comm']} {row['tid']}" for row in trace.threads.to_pylist()}
    batches = {row["id"] for row in trace.table("batches").to_pylist() if row["ring"] == ring}
    calls: dict[int, list[Bar]] = defaultdict(list)
    for row in trace.operations.to_pylist():
        if row["id"] in batches and row["end_time_ns"] is not None:
            calls[row["task"]].append(Bar(row["begin_time_ns"], row["end_time_ns"], "in a call"))
    works: dict[int, list[Bar]] = defaultdict(list)
    for row in trace.table("ring_works").to_pylist():
        if row["ring"] == ring and None not in (row["begin_time_ns"], row["end_time_ns"]):
            works[row["task"]].append(Bar(row["begin_time_ns"], row["end_time_ns"], "executed by a worker"))
    lanes: list[list[Bar]] = []
    for row in sorted(requests, key=lambda row: row["submit_time_ns"]):
        bars = list(request_bars(row))
        lane = next((lane for lane in lanes if lane[-1].end_ns <= bars[0].begin_ns), None)
        if lane is None and len(lanes) < RING_LANES:
            lanes.append(lane := [])
        (min(lanes, key=lambda each: each[-1].end_ns) if lane is None else lane).extend(bars)
    return [
        *(Row(threads.get(task, str(task)), [sorted(bars)]) for task, bars in sorted(calls.items())),
        Row("requests", lanes),
        *(Row(threads.get(task, str(task)), [sorted(bars)]) for task, bars in sorted(works.items())),
    ]


def _overlaps(row: dict[str, Any], start: int, stop: int) -> bool:
    submit, complete = row["submit_time_ns"], row["complete_time_ns"]
    return submit is not None and complete is not None and submit < stop and complete > start


def request_bars(row: dict[str, Any]) -> Iterator[Bar]:
    """From submission to completion without a gap. Several executions of a request begin at its first one."""
    submit, complete = row["submit_time_ns"], row["complete_time_ns"]
    on_worker = row["work_begin_time_ns"] is not None
    begin = row["work_begin_time_ns"] if on_worker else row["issue_time_ns"]
    waits = WAITS.get(row["path"], "waits for device or timer")
    if begin is None:
        yield Bar(submit, complete, "not begun")
        return
    begin = min(max(begin, submit), complete)
    end = row["work_end_time_ns"] if on_worker else begin + (row["executing_ns"] or 0)
    end = min(max(end or complete, begin), complete)
    if submit < begin:
        yield Bar(submit, begin, "waits for a worker" if row["punt_time_ns"] is not None else "not begun")
    yield Bar(begin, end, "executed by a worker" if on_worker else "executed by the submitter")
    if end < complete:
        yield Bar(end, complete, waits)


def timeline(trace: Trace, span_ms: tuple[float, float] | None) -> str:
    """Threads above, disks below, with time to the right."""
    start, stop = span(trace, span_ms)
    return draw([*thread_rows(trace, start, stop), *disk_rows(trace, start, stop)], start, stop, COLOURS)


def ring(trace: Trace, span_ms: tuple[float, float] | None) -> str:
    """Calls above, below them requests in as many lanes as were under way, then workers, with time to the right."""
    start, stop = span(trace, span_ms)
    return draw(ring_rows(trace, start, stop), start, stop, RING_COLOURS)


def span(trace: Trace, span_ms: tuple[float, float] | None) -> tuple[int, int]:
    """The times between which to draw."""
    start, stop = trace.metadata["start_ns"], trace.metadata["stop_ns"]
    return (start + int(span_ms[0] * 1e6), start + int(span_ms[1] * 1e6)) if span_ms else (start, stop)


def draw(rows: Iterable[Row], start: int, stop: int, colours: dict[str, str]) -> str:
    """The rows below each other, with a legend above and the time below."""
    body, top = [], 34.0
    for row in rows:
        height = ROW - 6 if len(row.lanes) == 1 else LANE - 2
        body.append(f'<text x="{GUTTER - 8}" y="{top + 13:g}" text-anchor="end">{escape(printable(row.label))}</text>')
        for lane in row.lanes:
            body += shapes(lane, top, height, start, stop)
            top += height + 2
        top += 6
    marks, divisor, unit = ticks(stop - start)
    scale = (WIDTH - GUTTER - MARGIN) / (stop - start)
    grid = [f'<path stroke="#ddd" d="M{GUTTER + m * scale:.1f} 28V{top:g}"/>' for m in marks]
    grid += [
        f'<text x="{GUTTER + m * scale:.1f}" y="{top + 14:g}" text-anchor="middle">{m / divisor:g} {unit}</text>'
        for m in marks
    ]
    legend, left = [], float(min(GUTTER, WIDTH - sum(LEGEND + LETTER * len(name) for name in colours)))
    for name, colour in colours.items():
        legend.append(f'<rect x="{left:g}" y="9" width="11" height="11" fill="{colour}"/>')
        legend.append(f'<text x="{left + 16:g}" y="19">{name}</text>')
        left += LEGEND + LETTER * len(name)
    size = f'width="{WIDTH}" height="{top + 22:g}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif" font-size="12" fill="#222">'
    return "\n".join([head, f'<rect {size} fill="#fff"/>', *grid, *body, *legend, "</svg>", ""])


def paths() -> str:
    """The paths of a request, as a picture of a ring shows them. The lengths mean nothing."""
    mine, worker, device, file, queue, none = list(RING_COLOURS)[:6]
    ways = {
        "inline": [(mine, 60)],
        "device": [(mine, 30), (device, 500)],
        "poll": [(mine, 20), (file, 430), (mine, 40)],
        "worker": [(mine, 20), (queue, 120), (worker, 330)],
        "worker, ASYNC": [(queue, 140), (worker, 330)],
        "worker, linked": [(none, 470), (worker, 180)],
        "refused": [(none, 60)],
        "cancelled": [(none, 380)],
    }
    rows = []
    for name, parts in ways.items():
        bars, at = [], 20_000
        for kind, length in parts:
            bars.append(Bar(at, at + length * 1000, kind))
            at += length * 1000
        rows.append(Row(name, [bars]))
    return draw(rows, 0, 800_000, {name: colour for name, colour in RING_COLOURS.items() if name != "in a call"})


DRAWN = {"timeline": timeline, "ring": ring}
"""Pictures that have time to the right."""


def main(arguments: list[str]) -> int:
    """Draw one picture."""
    if len(arguments) == len(("paths", "OUTPUT")) and arguments[0] == "paths":
        Path(arguments[1]).write_text(paths(), encoding="utf-8")
        return 0
    if len(arguments) not in {3, 5} or arguments[0] not in {"report", *DRAWN}:
        print(__doc__, file=sys.stderr)
        return 2
    what, name, output, *times = arguments
    trace = open_trace(name)
    svg = (
        report(trace) if what == "report" else DRAWN[what](trace, (float(times[0]), float(times[1])) if times else None)
    )
    Path(output).write_text(svg, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
