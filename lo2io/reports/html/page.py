"""The HTML page: tables that need no script, and pictures that a script draws from numbers in the page.

In: a trace's summary and sums. Out: the text of one file.
"""

from __future__ import annotations

import shlex
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from lo2io.reports.html.calls import CallPictures, everyone
from lo2io.reports.html.collect import Pictures
from lo2io.reports.html.lanes import (
    ChosenLanes,
    device_lanes,
    file_lanes,
    file_text,
    heaviest,
    process_lanes,
    ring_lanes,
    thread_lanes,
)
from lo2io.reports.html.sheets import sheets
from lo2io.reports.html.template import Page, fill
from lo2io.reports.summary.name_counts import names_line
from lo2io.reports.summary.names import file_names
from lo2io.reports.summary.summary import summarize
from lo2io.reports.summary.sums import gather
from lo2io.reports.text.foreign import foreign_lines
from lo2io.reports.text.head import confines_lines
from lo2io.reports.words import printable, share_of
from lo2io.units import NS_PER_S, format_bytes, format_duration

if TYPE_CHECKING:
    from collections.abc import Callable

    from lo2io.model import Columns
    from lo2io.reports.summary.adding import RowContext
    from lo2io.reports.summary.answer import Answer
    from lo2io.reports.summary.overlap import Overlap
    from lo2io.reports.summary.owners import Owners
    from lo2io.reports.summary.paths import Paths
    from lo2io.reports.summary.summary import Summary
    from lo2io.reports.summary.sums import TraceSums
    from lo2io.trace.reader import Trace

_LINKS: Final = (
    ("findings", "findings"), ("over-time", "over time"), ("timeline", "timeline"), ("offsets", "offsets"),
    ("latency", "latency"),
)  # fmt: skip


def make_page(trace: Trace, progress: Callable[[float], None]) -> str:
    """Make the page of a trace, and tell the share that is done.

    Raises:
        TraceError: A table is missing or damaged.
        Lo2ioError: Jinja is not installed.
    """
    sums, calls = gather_with_calls(trace)
    progress(0.4)
    summary = summarize(trace, sums)
    progress(0.5)
    pictures = gather_pictures(sums, calls)
    progress(0.9)
    page = render_html(summary, pictures)
    progress(1.0)
    return page


def framed(page: str, height: int) -> str:
    """A page inside another one: a frame of so many pixels, whose scripts reach nothing outside of it."""
    content = page.replace("&", "&amp;").replace('"', "&quot;")
    return (
        f'<iframe title="lo2io report" sandbox="allow-scripts allow-downloads" srcdoc="{content}"'
        f' style="width: 100%; height: {height}px; border: 0"></iframe>'
    )


def gather_with_calls(trace: Trace) -> tuple[TraceSums, CallPictures | None]:
    """Gather the sums of a trace, and in the same pass the pictures of its calls; None: they need one more pass."""
    made: list[CallPictures] = []

    def watch(owners: Owners, paths: Paths, context: RowContext) -> Callable[[Columns], None] | None:
        lanes = everyone(owners, paths)
        if lanes is None:
            return None
        made.append(CallPictures(trace, owners, context, lanes))
        return made[0].add

    sums = gather(trace, watch)
    return sums, made[0] if made else None


def gather_pictures(sums: TraceSums, calls: CallPictures | None = None) -> dict[str, Any]:
    """Gather the numbers behind the pictures: from the tables of requests, and of operations unless they are given.

    Raises:
        TraceError: A table is missing or damaged.
    """
    trace, owners, people = sums.trace, sums.owners, sums.people
    by_process, by_file = heaviest(sums)
    lanes = ChosenLanes(
        processes=process_lanes(by_process, owners, people),
        files=file_lanes(by_file, sums),
        threads=thread_lanes(trace, sums.operations.thread_ns),
        devices=device_lanes(trace, sums.requests),
        rings=ring_lanes(trace),
    )
    pictures = Pictures(sums, lanes, calls)
    names = file_names(trace, owners, people, pictures.slice_groups())
    call_names = [call["name"] for call in trace.metadata["calls"]]
    return pictures.plain(call_names, {group: file_text(name) for group, name in names.items()})


def render_html(summary: Summary, pictures: dict[str, Any]) -> str:
    """Make the page.

    Raises:
        Lo2ioError: Jinja is not installed.
    """
    page = Page(
        title=_title(summary),
        subtitle=_subtitle(summary),
        completeness_line=summary.completeness_line,
        complete=summary.verdict == "complete",
        trace=summary.trace,
        confines=[
            printable(line)
            for line in (
                *(foreign_lines(summary.foreign) if summary.foreign else ()),
                *confines_lines(summary.chosen),
                *([names_line(summary.names)] if summary.names and names_line(summary.names) else ()),
            )
        ],
        hints=[printable(hint) for hint in summary.hints],
        notices=[printable(notice) for notice in summary.notices],
        answer=_answer(summary.answer) if summary.answer else None,
        findings=_findings(summary),
        cards=_cards(summary),
        links=_LINKS,
        sheets=sheets(summary),
    )
    return fill(page, pictures)


def _title(summary: Summary) -> str:
    if summary.foreign and not summary.foreign.own:
        return printable(f"{summary.trace}: {summary.foreign.title}")
    if summary.command:
        return printable(shlex.join(summary.command))
    if summary.mode == "system":
        return f"the whole system {printable(summary.hostname)}"
    return f"process {', '.join(map(str, summary.roots))}"


def _subtitle(summary: Summary) -> str:
    parts = [printable(summary.hostname), f"Linux {printable(summary.kernel)}", f"{summary.mode} mode"]
    if summary.foreign and not summary.foreign.own:
        parts = parts[:1]
    if summary.exit_code is not None:
        parts.append(f"exit code {summary.exit_code}")
    if summary.start_realtime_ns is not None:
        moment = datetime.fromtimestamp(summary.start_realtime_ns / NS_PER_S, UTC)
        parts.append(f"from {moment:%Y-%m-%d %H:%M:%S} UTC")
    return " · ".join(parts)


def overlap_cards(found: Overlap | None) -> list[tuple[str, str, float]]:
    """The time with I/O under way, and the part of it in which nobody computed."""
    if found is None or not found.io_ns:
        return []
    parts = [("I/O under way", found.io_ns), ("I/O without computing", found.unoverlapped_ns)]
    parts += [("I/O, computing not known", found.unknown_ns)] if found.unknown_ns else []
    return [(name, format_duration(time_ns), time_ns) for name, time_ns in parts]


def _cards(summary: Summary) -> list[tuple[str, str, float]]:
    """Name, text and exact value of each number at the top."""
    total = summary.activity
    rates = (summary.bytes_read_per_s, summary.bytes_written_per_s)
    cards: list[tuple[str, str, float]] = [
        ("time", format_duration(summary.span_ns), summary.span_ns),
        ("calls", f"{total.calls:,}", total.calls),
        ("read by calls", format_bytes(total.bytes_read), total.bytes_read),
        ("written by calls", format_bytes(total.bytes_written), total.bytes_written),
        ("time in calls", format_duration(total.time_ns), total.time_ns),
        *overlap_cards(summary.overlap),
        ("errors", f"{total.errors:,}", total.errors),
        ("processes", f"{summary.nr_processes:,}", summary.nr_processes),
        ("named files", f"{summary.nr_files:,}", summary.nr_files),
    ]
    for name, rate in zip(("read a second", "written a second"), rates, strict=True):
        if rate is not None:
            cards.append((name, f"{format_bytes(rate)}/s", rate))
    if summary.rings:
        cards.append(("ring requests", f"{summary.rings.requests:,}", summary.rings.requests))
        moved = summary.rings.bytes_read + summary.rings.bytes_written
        cards.append(("moved by rings", format_bytes(moved), moved))
    requests = sum(row.requests for row in summary.devices)
    if requests:
        moved = sum(row.bytes for row in summary.devices)
        cards += [("block requests", f"{requests:,}", requests), ("on devices", format_bytes(moved), moved)]
    return cards


def _answer(answer: Answer) -> dict[str, Any]:
    of = "threads lived" if answer.of == "threads" else "calls took"
    return {
        "heading": f"Of the {format_duration(answer.whole_ns)} that {of}",
        "parts": [
            {
                "what": part.what,
                "percent": round(100 * part.time_ns / answer.whole_ns, 2),
                "share": share_of(part.time_ns / answer.whole_ns),
                "time": format_duration(part.time_ns),
            }
            for part in answer.parts
        ],
    }


def _findings(summary: Summary) -> list[dict[str, Any]]:
    return [
        {
            "title": f"{printable(found.subject)}: {printable(found.words)}",
            "lines": [
                f"What helps: {found.remedy} ({found.rule})",
                *([f"such as {', '.join(map(printable, found.paths))}"] if found.paths else ()),
                *([f"{found.more:,} more like it"] if found.more else ()),
            ],
        }
        for found in summary.findings
    ]
