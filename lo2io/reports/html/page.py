"""The HTML page: tables that need no script, and pictures that a script draws from numbers in the page.

In: a trace's summary and sums. Out: the text of one file. The file loads nothing: plotly.js, style and numbers are
part of it, and its content security policy forbids all else. Sources: the policy is W3C's CSP 3;
assets/plotly/README.md says where plotly.js comes from.
"""

from __future__ import annotations

import base64
import gzip
import json
import shlex
from datetime import UTC, datetime
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Final

from lo2io._version import __version__
from lo2io.errors import Lo2ioError
from lo2io.reports.html.collect import ChosenLanes, Pictures
from lo2io.reports.html.lanes import (
    device_lanes,
    file_lanes,
    file_text,
    heaviest,
    process_lanes,
    ring_lanes,
    thread_lanes,
)
from lo2io.reports.html.sheets import sheets
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

    from lo2io.reports.summary.answer import Answer
    from lo2io.reports.summary.summary import Summary
    from lo2io.reports.summary.sums import TraceSums
    from lo2io.trace.reader import Trace

MAGIC: Final = b"<!doctype html>\n<!-- lo2io report -->"
"""The beginning of the page. A file that begins otherwise is never replaced."""
_ASSETS: Final = files("lo2io.reports.html") / "assets"
_PLOTLY: Final = "plotly/plotly-cartesian.min.js"


def make_page(trace: Trace, progress: Callable[[float], None]) -> str:
    """Make the page of a trace, and tell the share that is done.

    Raises:
        TraceError: A table is missing or damaged.
        Lo2ioError: Jinja is not installed.
    """
    sums = gather(trace)
    progress(0.4)
    summary = summarize(trace, sums)
    progress(0.5)
    pictures = gather_pictures(sums)
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


def gather_pictures(sums: TraceSums) -> dict[str, Any]:
    """Gather the numbers behind the pictures in one more pass over the tables of operations and requests.

    Raises:
        TraceError: A table is missing or damaged.
    """
    trace, owners, people = sums.trace, sums.owners, sums.people
    by_process, by_file = heaviest(sums)
    lanes = ChosenLanes(
        processes=process_lanes(by_process, owners, people),
        files=file_lanes(by_file, sums),
        threads=thread_lanes(trace),
        devices=device_lanes(trace, sums.requests),
        rings=ring_lanes(trace),
    )
    pictures = Pictures(sums, lanes)
    names = file_names(trace, owners, people, pictures.slice_groups())
    calls = [call["name"] for call in trace.metadata["calls"]]
    return pictures.plain(calls, {group: file_text(name) for group, name in names.items()})


def render_html(summary: Summary, pictures: dict[str, Any]) -> str:
    """Make the page.

    Raises:
        Lo2ioError: Jinja is not installed.
    """
    try:
        from jinja2 import Environment  # noqa: PLC0415  costs 20 ms, and only this page needs it
    except ImportError as error:
        raise Lo2ioError("cannot draw the report", str(error), "pip install jinja2") from error
    template = Environment(autoescape=True, trim_blocks=False).from_string(_asset("page.html.j2"))
    return template.render(
        version=__version__,
        title=_title(summary),
        subtitle=_subtitle(summary),
        complete=summary.verdict == "complete",
        summary=summary,
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
        sheets=sheets(summary),
        heat_bin=format_duration(pictures["heat"]["bin_ns"]),
        fine_bin=format_duration(pictures["fine"]["bin_ns"]),
        css=_asset("page.css"),
        tables_js=_asset("tables.js"),
        charts_js=_asset("charts.js"),
        plotly_notice=_plotly_notice(),
        plotly=_packed(_asset(_PLOTLY)),
        pictures=_packed(json.dumps(pictures, separators=(",", ":"))),
    )


def _asset(name: str) -> str:
    return (_ASSETS / name).read_text(encoding="utf-8")


def _plotly_notice() -> str:
    """The comment at plotly.js's begin, with its version, copyright and licence."""
    return _asset(_PLOTLY).partition("*/")[0] + "*/"


def _packed(text: str) -> str:
    """A text gzipped in base64: less than half of plotly.js, a tenth of JSON. Every browser can unpack it."""
    return base64.b64encode(gzip.compress(text.encode(), 6, mtime=0)).decode()


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
