"""The report of many nodes as tables of an HTML page.

In: a :class:`~lo2io.reports.nodes.summary.NodesSummary`. Out: :class:`Sheet`. This module counts nothing itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lo2io.reports.html.cells import (
    ACTIVITY,
    LATENCY,
    OVERLAP,
    Cell,
    Sheet,
    activity,
    count,
    latency,
    overlap,
    share,
    sheet,
    size,
    text,
    time,
)
from lo2io.reports.text.nodes import WORDS
from lo2io.reports.words import count_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lo2io.reports.nodes.outliers import Outlier
    from lo2io.reports.nodes.summary import NodesFile, NodesPlace, NodesSummary

MAX_ROWS: Final = 1_000
"""Rows of hosts on the page; the JSON has all. Of all else the summary itself has at most 100."""
_MAX_RUNS: Final = 8
"""Runs of ranks that a host's row names."""
_HOST_NUMBERS: Final = (*ACTIVITY, ("disk p99", True))
_HEADINGS: Final = {
    "bytes_read": "read", "bytes_written": "written", "time_ns": "time", "errors": "errors",
    "device_p99_ns": "disk p99",
}  # fmt: skip
"""Field by which a host may stand out → the heading of its column."""


def nodes_sheets(summary: NodesSummary) -> list[Sheet]:
    """All tables that have a row, in the page's order."""
    every = [
        _missing(summary),
        _outliers(summary),
        _hosts(summary),
        _ranks(summary),
        _by_rank(summary),
        _processes(summary),
        _files(summary),
        _places(("folders", "Folders", "folder"), summary.folders, summary.nr_folders),
        _places(("patterns", "Patterns of paths", "pattern"), summary.patterns, summary.nr_patterns),
        _calls(summary),
        _devices(summary),
    ]
    return [each for each in every if each.rows]


def left_out(shown: int, number: int, noun: str) -> str:
    """How many of so many things are not shown; nothing if all are."""
    return f"{count_of(number - shown, noun)} left out." if number > shown else ""


def _note(*parts: str) -> str:
    return " ".join(part for part in parts if part)


def _missing(summary: NodesSummary) -> Sheet:
    rows = [[text(host), Cell("left out"), text(reason)] for host, reason in summary.left_out.items()]
    rows += [[text(host.host), Cell(host.verdict), Cell("")] for host in summary.hosts if host.verdict != "complete"]
    note = _note(
        "A host that is left out is in no sum. The report of any other, lo2io report T/host=NAME, says what it lacks.",
        left_out(MAX_ROWS, len(rows), "row"),
    )
    heads = [("host", False), ("recording", False), ("why", False)]
    return sheet("missing", "Hosts that are missing or not complete", heads, rows[:MAX_ROWS], note)


def _outliers(summary: NodesSummary) -> Sheet:
    rows = []
    for each in summary.outliers[:MAX_ROWS]:
        word, written = WORDS[each.what]
        numbers = [Cell(written(value), value) for value in (each.value, each.median)]
        rows.append([text(each.host), Cell(word), *numbers, Cell(f"{each.mads:+,.1f}", each.mads)])
    note = _note(
        "By more than three median absolute deviations (MADs) from the median of all hosts.",
        left_out(len(rows), len(summary.outliers), "row"),
    )
    heads = [("host", False), ("by", False), ("its", True), ("median", True), ("MADs", True)]
    return sheet("outliers", "Hosts that stand out", heads, rows, note)


def _hosts(summary: NodesSummary) -> Sheet:
    found: dict[str, list[Outlier]] = {}
    for each in summary.outliers:
        found.setdefault(each.host, []).append(each)
    rows = []
    for host in summary.hosts[:MAX_ROWS]:
        mine = found.get(host.host, [])
        odd = {_HEADINGS[each.what] for each in mine}
        cells = [*activity(host.activity), time(host.device_p99_ns)]
        numbers = [
            cell._replace(marked=heading in odd) for (heading, _), cell in zip(_HOST_NUMBERS, cells, strict=True)
        ]
        rows.append(
            [
                text(host.host),
                Cell(", ".join(WORDS[each.what][0] for each in mine)),
                Cell(_runs(host.ranks)),
                count(host.processes),
                *numbers,
                *overlap(host.overlap),
                time(host.span_ns),
                Cell(host.clock),
                time(host.error_ns),
                Cell(host.verdict),
            ]
        )
    heads = [("host", False), ("stands out by", False), ("ranks", False), ("processes", True), *_HOST_NUMBERS]
    heads += [*OVERLAP, ("recorded", True), ("clock", False), ("right within", True), ("recording", False)]
    note = _note(
        "The hosts with most time in calls first. Numbers that stand out are marked.",
        "right within: the error of its times, by the clock of all; -: nobody knows.",
        left_out(len(rows), len(summary.hosts), "host"),
    )
    return sheet("hosts", "Hosts", heads, rows, note)


def _runs(numbers: Sequence[int]) -> str:
    """Ascending numbers, those that follow one another as a run: ``0-3, 8``."""
    runs: list[tuple[int, int]] = []
    for number in numbers:
        if runs and number == runs[-1][1] + 1:
            runs[-1] = (runs[-1][0], number)
        else:
            runs.append((number, number))
    words = [f"{first}-{last}" if last > first else f"{first}" for first, last in runs[:_MAX_RUNS]]
    more = sum(last - first + 1 for first, last in runs[_MAX_RUNS:])
    return ", ".join(words) + (f", and {more:,} more" if more else "")


def _ranks(summary: NodesSummary) -> Sheet:
    rows = [
        [
            Cell(f"{row.rank}", row.rank),
            text(row.host),
            count(row.processes),
            *activity(row.activity),
            *overlap(row.overlap),
        ]
        for row in summary.ranks
    ]
    heads = [("rank", True), ("host", False), ("processes", True), *ACTIVITY, *OVERLAP]
    note = left_out(len(rows), summary.nr_rank_rows, "row")
    return sheet("ranks", "Ranks", heads, rows, note)


def _by_rank(summary: NodesSummary) -> Sheet:
    rows = [
        [
            text(host.host),
            Cell("none") if row.rank is None else Cell(f"{row.rank}", row.rank),
            text(row.name or "unknown"),
            count(row.processes),
            *activity(row.activity),
            *overlap(row.overlap),
        ]
        for host in summary.hosts
        for row in host.by_rank
    ]
    heads = [("node", False), ("rank", True), ("process", False), ("processes", True), *ACTIVITY, *OVERLAP]
    note = _note(
        "The nodes with most time in calls first; of each, the processes with most time, the ranks in order.",
        left_out(len(rows[:MAX_ROWS]), sum(host.nr_by_rank for host in summary.hosts), "row"),
    )
    return sheet("by-rank", "Nodes, ranks and processes", heads, rows[:MAX_ROWS], note)


def _processes(summary: NodesSummary) -> Sheet:
    rows = [
        [
            text(row.name or "unknown"),
            count(row.hosts),
            count(row.processes),
            *activity(row.activity),
            *overlap(row.overlap),
        ]
        for row in summary.processes
    ]
    heads = [("process", False), ("hosts", True), ("processes", True), *ACTIVITY, *OVERLAP]
    others = summary.activity.calls - sum(row.activity.calls for row in summary.processes)
    note = _note("By name.", f"Processes of other names made {count_of(others, 'call')}." if others else "")
    return sheet("processes", "Processes", heads, rows, note)


def _files(summary: NodesSummary) -> Sheet:
    cells = [[text(row.path or "unnamed"), count(row.hosts)] for row in summary.files]
    unlisted = summary.other_files
    note = _note(
        left_out(len(cells), summary.nr_files, "path"),
        f"Hosts keep no row for {count_of(unlisted, 'further file')}." if unlisted else "",
    )
    return _bounded(
        "files", "Files", [("file", False), ("hosts", True)], list(zip(summary.files, cells, strict=True)), note
    )


def _places(names: tuple[str, str, str], places: Sequence[NodesPlace], number: int) -> Sheet:
    key, title, noun = names
    rows = [(row, [text(row.name or "unknown"), count(row.hosts), count(row.files)]) for row in places]
    heads = [(noun, False), ("hosts", True), ("files", True)]
    return _bounded(key, title, heads, rows, left_out(len(rows), number, noun))


def _bounded(
    key: str,
    title: str,
    heads: list[tuple[str, bool]],
    rows: Sequence[tuple[NodesFile | NodesPlace, list[Cell]]],
    note: str,
) -> Sheet:
    """A table whose rows may lack what some hosts did. If they do, the last columns have upper bounds."""
    open_ended = any(row.more_ns or row.more_bytes for row, _ in rows)
    cells = []
    for row, first in rows:
        of = row.activity
        moved = of.bytes_read + of.bytes_written
        most = [time(of.time_ns + row.more_ns), size(moved + row.more_bytes)] if open_ended else []
        cells.append([*first, *activity(of), *most])
    if open_ended:
        note = _note(note, "at most: with what hosts without a row for it may add.")
    most_heads = [("time at most", True), ("bytes at most", True)] if open_ended else []
    return sheet(key, title, [*heads, *ACTIVITY, *most_heads], cells, note)


def _calls(summary: NodesSummary) -> Sheet:
    heads = [("call", False), ("hosts", True), ("calls", True), ("errors", True), ("read", True), ("written", True)]
    rows = [
        [
            Cell(row.name),
            count(row.hosts),
            count(row.activity.calls),
            count(row.activity.errors),
            size(row.activity.bytes_read),
            size(row.activity.bytes_written),
            share(row.share),
            *latency(row.latency),
        ]
        for row in summary.calls
    ]
    note = "share: of the time of all calls"
    return sheet("calls", "System calls", [*heads, ("share", True), *LATENCY], rows, note)


def _devices(summary: NodesSummary) -> Sheet:
    heads = [("operation", False), ("hosts", True), ("disks", True), ("requests", True), ("bytes", True)]
    heads += [("errors", True), *LATENCY]
    rows = [
        [
            Cell(row.operation),
            count(row.hosts),
            count(row.disks),
            count(row.requests),
            size(row.bytes),
            count(row.errors),
            *latency(row.device),
        ]
        for row in summary.devices
    ]
    return sheet("devices", "Requests of disks", heads, rows, "From issue to completion.")
