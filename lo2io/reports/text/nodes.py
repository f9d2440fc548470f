"""The report of many nodes on one screen: totals, hosts that stand out, and the largest rows of each kind.

In: a :class:`~lo2io.reports.nodes.summary.NodesSummary`. Out: lines on a rich console.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lo2io.reports.text.head import print_overlap
from lo2io.reports.text.lines import ROWS, VERDICT_STYLES, print_line, print_more, print_table
from lo2io.reports.words import count_of, duration_of, printable, share_of
from lo2io.units import format_bytes, format_duration

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rich.console import Console

    from lo2io.reports.nodes.summary import NodesFile, NodesPlace, NodesSummary
    from lo2io.reports.summary.histogram import Latency
    from lo2io.reports.summary.overlap import Overlap
    from lo2io.reports.summary.summary import Activity

_BRIEF: Final = 3
"""Rows of each table on one screen."""
_OUTLIERS: Final = 5
WORDS: Final[dict[str, tuple[str, Callable[[int], str]]]] = {
    "bytes_read": ("read", format_bytes),
    "bytes_written": ("written", format_bytes),
    "time_ns": ("time in calls", format_duration),
    "errors": ("errors", "{:,}".format),
    "device_p99_ns": ("p99 of its disk", format_duration),
}
"""Field of a host's row → its name, and how its number is written."""
_ACTIVITY: Final = ("calls", "read", "written", "in calls")
_ALONE: Final = "I/O alone"
"""I/O was under way, and nobody computed."""


def render_nodes(summary: NodesSummary, console: Console, *, full: bool = False) -> None:
    """Print the page: with ``full``, more rows of each table."""
    rows = ROWS if full else _BRIEF
    _head(summary, console)
    _outliers(summary, console)
    _findings(summary, console, rows)
    _hosts(summary, console, rows)
    _processes(summary, console, rows)
    _ranks(summary, console, rows)
    if full:
        _by_rank(summary, console, rows)
    _files(summary, console, rows)
    _places(summary.folders, summary.nr_folders, "Folder", console, rows)
    if full:
        _places(summary.patterns, summary.nr_patterns, "Pattern of paths", console, rows)
    _calls(summary, console, rows)
    _devices(summary, console, rows)
    _end(summary, console)


def _head(summary: NodesSummary, console: Console) -> None:
    total = summary.activity
    ranks = f" · {count_of(summary.nr_ranks, 'rank')}" if summary.nr_ranks else ""
    print_line(console, f"{printable(summary.directory)}: {count_of(len(summary.hosts), 'host')}{ranks}", "bold")
    print_line(
        console,
        f"{format_duration(summary.span_ns)} · {count_of(total.calls, 'call')}"
        f" of {count_of(sum(host.processes for host in summary.hosts), 'process')} · {count_of(total.errors, 'error')}",
    )
    print_line(
        console,
        f"read {format_bytes(total.bytes_read)} · written {format_bytes(total.bytes_written)}"
        f" · {format_duration(total.time_ns)} in calls",
    )
    print_overlap(summary.overlap, "", console)
    if summary.nr_without_overlap:
        print_line(
            console, f"overlap of I/O with computing: not known of {count_of(summary.nr_without_overlap, 'host')}"
        )


def _outliers(summary: NodesSummary, console: Console) -> None:
    if not summary.outliers:
        print_line(console, "\nNo host stands out.")
        return
    rows = []
    for each in summary.outliers[:_OUTLIERS]:
        word, written = WORDS[each.what]
        rows.append([printable(each.host), word, written(each.value), written(each.median), f"{each.mads:+,.1f}"])
    print_table(console, ["Host that stands out", "by", "its", "median", "MADs"], "llrrr", rows)
    print_more(console, len(summary.outliers) - _OUTLIERS)


def _findings(summary: NodesSummary, console: Console, limit: int) -> None:
    rows = [
        [row.rule, f"{len(row.hosts):,}", f"{row.nr:,}", format_duration(row.cost_ns), printable(row.subject)]
        for row in summary.findings[:limit]
    ]
    _table(
        console, ["Finding", "hosts", "times", "cost", "the most expensive one"], "lrrrl", rows, len(summary.findings)
    )


def _hosts(summary: NodesSummary, console: Console, limit: int) -> None:
    rows = [
        [
            printable(row.host),
            f"{len(row.ranks):,}",
            *_cells(row.activity),
            "" if row.device_p99_ns is None else format_duration(row.device_p99_ns),
            row.verdict,
        ]
        for row in summary.hosts[:limit]
    ]
    headings = ["Host", "ranks", *_ACTIVITY, "disk p99", "recording"]
    _table(console, headings, "lrrrrrrl", rows, len(summary.hosts))


def _processes(summary: NodesSummary, console: Console, limit: int) -> None:
    rows = [
        [
            printable(row.name or "unknown"),
            f"{row.hosts:,}",
            f"{row.processes:,}",
            *_cells(row.activity),
            _alone(row.overlap),
        ]
        for row in summary.processes[:limit]
    ]
    _table(console, ["Process", "hosts", "processes", *_ACTIVITY, _ALONE], "lrrrrrrr", rows, len(summary.processes))


def _ranks(summary: NodesSummary, console: Console, limit: int) -> None:
    rows = [
        [f"{row.rank} on {printable(row.host)}", f"{row.processes:,}", *_cells(row.activity), _alone(row.overlap)]
        for row in summary.ranks[:limit]
    ]
    _table(console, ["Rank", "processes", *_ACTIVITY, _ALONE], "lrrrrrr", rows, summary.nr_rank_rows)


def _by_rank(summary: NodesSummary, console: Console, limit: int) -> None:
    """Each node, below it its ranks, below these their processes."""
    rows: list[list[str]] = []
    shown = 0
    for host in summary.hosts:
        if len(rows) >= limit:
            break
        rows.append([printable(host.host), f"{host.processes:,}", *_cells(host.activity), _alone(host.overlap)])
        rank: int | None = -1
        for row in host.by_rank:
            if row.rank != rank:
                rank = row.rank
                rows.append(["  of no rank" if rank is None else f"  rank {rank}", *[""] * 6])
            name = f"    {printable(row.name or 'unknown')}"
            rows.append([name, f"{row.processes:,}", *_cells(row.activity), _alone(row.overlap)])
        shown += len(host.by_rank)
    headings = ["Node, rank, process", "processes", *_ACTIVITY, _ALONE]
    _table(console, headings, "lrrrrrr", rows, len(rows))
    print_more(console, sum(host.nr_by_rank for host in summary.hosts) - shown)


def _files(summary: NodesSummary, console: Console, limit: int) -> None:
    rows = [(row, [printable(row.path or "unnamed"), f"{row.hosts:,}"]) for row in summary.files[:limit]]
    _bounded(console, ["File", "hosts"], rows, summary.nr_files)


def _places(places: Sequence[NodesPlace], number: int, heading: str, console: Console, limit: int) -> None:
    rows = [(row, [printable(row.name or "unknown"), f"{row.hosts:,}", f"{row.files:,}"]) for row in places[:limit]]
    _bounded(console, [heading, "hosts", "files"], rows, number)


def _bounded(
    console: Console, headings: list[str], shown: Sequence[tuple[NodesFile | NodesPlace, list[str]]], number: int
) -> None:
    """A table whose rows may lack what some hosts did: then their last cell tells the most that it may be."""
    open_ended = any(row.more_ns for row, _ in shown)
    rows = [
        [
            *cells,
            *_cells(row.activity),
            *([format_duration(row.activity.time_ns + row.more_ns)] if open_ended else []),
        ]
        for row, cells in shown
    ]
    headings = [*headings, *_ACTIVITY, *(["at most"] if open_ended else [])]
    _table(console, headings, "l" + "r" * (len(headings) - 1), rows, number)


def _calls(summary: NodesSummary, console: Console, limit: int) -> None:
    rows = [
        [
            row.name,
            f"{row.hosts:,}",
            f"{row.activity.calls:,}",
            format_duration(row.activity.time_ns),
            share_of(row.share),
            *(
                duration_of(row.latency, value)
                for value in (row.latency.p50_ns, row.latency.p99_ns, row.latency.max_ns)
            ),
        ]
        for row in summary.calls[:limit]
    ]
    headings = ["Call", "hosts", "calls", "time", "share", "p50", "p99", "max"]
    _table(console, headings, "lrrrrrrr", rows, len(summary.calls))


def _devices(summary: NodesSummary, console: Console, limit: int) -> None:
    rows = [
        [
            row.operation,
            f"{row.hosts:,}",
            f"{row.disks:,}",
            f"{row.requests:,}",
            format_bytes(row.bytes),
            *_percentiles(row.device),
        ]
        for row in summary.devices[:limit]
    ]
    headings = ["Requests of disks", "hosts", "disks", "requests", "bytes", "p50", "p99", "max"]
    _table(console, headings, "lrrrrrrr", rows, len(summary.devices))


def _end(summary: NodesSummary, console: Console) -> None:
    print_line(console, "")
    for host, reason in summary.left_out.items():
        print_line(console, f"left out {printable(host)}: {printable(reason)}", "bold yellow")
    if summary.nr_summed:
        print_line(console, f"{count_of(summary.nr_summed, 'host')} had no sums: the tables were read")
    print_line(console, clocks_line(summary))
    print_line(console, recording_line(summary), VERDICT_STYLES["complete"] if is_whole(summary) else "bold yellow")


def clocks_line(summary: NodesSummary) -> str:
    """How the times of the nodes were aligned, and how right they are."""
    doubt = "an unknown error" if summary.error_ns is None else format_duration(summary.error_ns)
    methods = ", ".join(dict.fromkeys(host.clock for host in summary.hosts))
    return f"clocks: {methods}; times are right within {doubt}"


def recording_line(summary: NodesSummary) -> str:
    """On how many hosts the recording is complete."""
    words = (f"{verdict} on {count_of(nr, 'host')}" for verdict, nr in sorted(summary.verdicts.items()))
    return f"recording: {', '.join(words)}"


def is_whole(summary: NodesSummary) -> bool:
    """True if the recording is complete on all hosts, and none is left out."""
    return set(summary.verdicts) == {"complete"} and not summary.left_out


def _cells(activity: Activity) -> list[str]:
    return [
        f"{activity.calls:,}",
        format_bytes(activity.bytes_read),
        format_bytes(activity.bytes_written),
        format_duration(activity.time_ns),
    ]


def _alone(overlap: Overlap | None) -> str:
    return "-" if overlap is None else format_duration(overlap.unoverlapped_ns)


def _percentiles(latency: Latency) -> list[str]:
    return [duration_of(latency, value) for value in (latency.p50_ns, latency.p99_ns, latency.max_ns)]


def _table(console: Console, headings: Sequence[str], align: str, rows: Sequence[Sequence[str]], number: int) -> None:
    """A table, whose first heading tells how many rows there are if not all are shown; none without rows."""
    if rows:
        first = headings[0] if len(rows) >= number else f"{headings[0]} ({len(rows)} of {number:,})"
        print_table(console, [first, *headings[1:]], align, rows)
