"""The HTML page of many nodes: the page of one machine without its pictures, which need one machine's events.

In: a :class:`~lo2io.reports.nodes.summary.NodesSummary`. Out: the text of one file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from lo2io.reports.html.nodes_sheets import nodes_sheets
from lo2io.reports.html.page import overlap_cards
from lo2io.reports.html.template import Page, fill
from lo2io.reports.text.nodes import clocks_line, is_whole, recording_line
from lo2io.reports.words import count_of, printable
from lo2io.units import format_bytes, format_duration

if TYPE_CHECKING:
    from lo2io.reports.nodes.summary import NodesFinding, NodesSummary

_HOSTS: Final = 10
"""Hosts that a finding names."""
_LINKS: Final = (("hosts", "hosts"), ("files", "files"), ("calls", "calls"))


def render_nodes_html(summary: NodesSummary) -> str:
    """Make the page.

    Raises:
        Lo2ioError: Jinja is not installed.
    """
    sheets = nodes_sheets(summary)
    keys = {sheet.key for sheet in sheets}
    missing = len(summary.left_out)
    page = Page(
        title=f"{printable(summary.directory)}: {count_of(len(summary.hosts), 'host')}",
        subtitle=printable(clocks_line(summary)),
        completeness_line=recording_line(summary) + (f" · {count_of(missing, 'host')} left out" if missing else ""),
        complete=is_whole(summary),
        trace=printable(summary.directory),
        notices=[f"{count_of(summary.nr_summed, 'host')} had no sums: the tables were read"]
        if summary.nr_summed
        else (),
        findings=[_finding(found) for found in summary.findings],
        cards=_cards(summary),
        links=[("findings", "findings"), *(link for link in _LINKS if link[0] in keys)],
        sheets=sheets,
    )
    return fill(page)


def _finding(found: NodesFinding) -> dict[str, Any]:
    hosts = ", ".join(printable(host) for host in found.hosts[:_HOSTS])
    more = len(found.hosts) - _HOSTS
    return {
        "title": f"{found.rule}: {count_of(len(found.hosts), 'host')}, {count_of(found.nr, 'time')}",
        "lines": [
            f"Cost: {format_duration(found.cost_ns)}. The most expensive one: {printable(found.subject)}",
            f"On {hosts}" + (f" and {more:,} more" if more > 0 else ""),
        ],
    }


def _cards(summary: NodesSummary) -> list[tuple[str, str, float]]:
    """Name, text and exact value of each number at the top; an unknown error is -1."""
    total, error_ns = summary.activity, summary.error_ns
    processes = sum(host.processes for host in summary.hosts)
    odd = len({each.host for each in summary.outliers})
    cards: list[tuple[str, str, float]] = [
        ("hosts", f"{len(summary.hosts):,}", len(summary.hosts)),
        ("hosts that stand out", f"{odd:,}", odd),
        ("time", format_duration(summary.span_ns), summary.span_ns),
        (
            "times right within",
            "unknown" if error_ns is None else format_duration(error_ns),
            -1 if error_ns is None else error_ns,
        ),
        ("calls", f"{total.calls:,}", total.calls),
        ("read by calls", format_bytes(total.bytes_read), total.bytes_read),
        ("written by calls", format_bytes(total.bytes_written), total.bytes_written),
        ("time in calls", format_duration(total.time_ns), total.time_ns),
        *overlap_cards(summary.overlap),
        ("errors", f"{total.errors:,}", total.errors),
        ("processes", f"{processes:,}", processes),
    ]
    if summary.nr_ranks:
        cards.append(("ranks", f"{summary.nr_ranks:,}", summary.nr_ranks))
    requests = sum(row.requests for row in summary.devices)
    if requests:
        moved = sum(row.bytes for row in summary.devices)
        cards += [("block requests", f"{requests:,}", requests), ("on devices", format_bytes(moved), moved)]
    return cards
