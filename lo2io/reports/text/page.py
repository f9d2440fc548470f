"""The summary as text: a page for a terminal, and the same words without colour for a pipe.

In: a :class:`~lo2io.reports.summary.summary.Summary`. Out: lines on a rich console. This module reads no tables.
"""

from __future__ import annotations

import sys
from io import TextIOWrapper
from typing import IO, TYPE_CHECKING, Any, Final

from rich.console import Console

from lo2io.reports.text.cache import render_cache
from lo2io.reports.text.faults import render_faults
from lo2io.reports.text.fuse import render_fuse
from lo2io.reports.text.futexes import render_futexes
from lo2io.reports.text.head import FIRST_FINDINGS, print_answer, print_end, print_findings, print_head, print_losses
from lo2io.reports.text.io import render_io
from lo2io.reports.text.lines import ROWS, print_line, print_more, print_table, shorten, shorten_end
from lo2io.reports.text.parts import render_parts
from lo2io.reports.text.rings import render_rings
from lo2io.reports.text.stacks import render_stacks
from lo2io.reports.text.write_backs import render_write_backs
from lo2io.reports.words import duration_of, named, printable, share_of, who
from lo2io.units import format_bytes, format_duration

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lo2io.reports.summary.histogram import Latency
    from lo2io.reports.summary.summary import Activity, FileRow, ProcessRow, Summary
    from lo2io.reports.summary.usage import UsageRow

PIPE_WIDTH: Final = 100
_CALLS_OF_AN_ERROR: Final = 2
_SOURCES: Final = {"diskstats": "disk", "proc_io": "process", "cgroup_io": "cgroup"}
_SHORT_ID: Final = 12
_PLACE_WIDTH: Final = 22
_CMDLINE_WIDTH: Final = 32


def report_console(file: IO[str] | None = None) -> Console:
    """The console for reports: without colour and 100 columns wide, unless it is a terminal."""
    stream = sys.stdout if file is None else file
    if isinstance(stream, TextIOWrapper):
        # Names hold any character, and a locale may lack some: escapes are better than a traceback.
        stream.reconfigure(errors="backslashreplace")
    # A notebook gets no output but that of the stream.
    console = Console(file=file, force_jupyter=False, highlight=False, markup=False, emoji=False, soft_wrap=True)
    if not console.is_terminal:
        console.width = PIPE_WIDTH
        console.no_color = True
    return console


def render_page(summary: Summary, console: Console) -> None:
    """Print everything. Empty sections are left out."""
    print_head(summary, console)
    print_findings("Findings", summary.findings[:FIRST_FINDINGS], console)
    if summary.answer:
        print_answer(summary.answer, console)
    if summary.processes:
        _processes(summary, console)
        _command_lines(summary, console)
    if summary.activity.calls:
        _files(summary, console)
    _devices(summary, console)
    if summary.activity.calls:
        _calls(summary, console)
    if summary.io:
        render_io(summary.io, console)
    if summary.cache:
        render_cache(summary.cache, console)
    if summary.parts:
        render_parts(summary.parts, console)
    if summary.write_backs:
        render_write_backs(summary.write_backs, console)
    render_faults(summary.faults, console)
    render_fuse(summary.fuse, console)
    render_futexes(summary.futexes, console)
    render_stacks(summary.stacks, console)
    _errors(summary, console)
    if summary.rings:
        render_rings(summary.rings, console)
    print_findings("Further findings", summary.findings[FIRST_FINDINGS:], console)
    print_losses(summary, console)
    _accounts(summary, console)
    print_end(summary, console)


def _numbers(activity: Activity) -> list[str]:
    return [
        format_bytes(activity.bytes_read),
        format_bytes(activity.bytes_written),
        format_duration(activity.time_ns),
        f"{activity.errors:,}",
    ]


def _processes(summary: Summary, console: Console) -> None:
    if summary.mode == "system":
        _all_processes(summary, console)
        return
    in_rings = summary.rings is not None and summary.rings.written > 0
    rows = [
        [
            who(row.pid, row.name),
            f"{row.threads:,}",
            f"{row.activity.calls:,}",
            *_numbers(row.activity),
            *(_in_rings(row) if in_rings else ()),
            *_wall_and_cpu(row.usage),
        ]
        for row in summary.processes[:ROWS]
    ]
    headings = ["Process (pid)", "threads", "calls", "read", "written", "in calls", "errors"]
    headings += ["in rings", "bytes"] if in_rings else []
    headings += ["wall", "CPU"]
    print_table(console, headings, "l" + "r" * (len(headings) - 1), rows)
    print_more(console, len(summary.processes) - ROWS)


def _wall_and_cpu(usage: UsageRow | None) -> list[str]:
    if usage is None:
        return ["-", "-"]
    return [format_duration(usage.wall_ns), "-" if usage.cpu_ns is None else format_duration(usage.cpu_ns)]


def _in_rings(row: ProcessRow) -> list[str]:
    """A process's requests of rings; its calls do not count them."""
    return [f"{row.ring_requests:,}", format_bytes(row.ring_bytes)]


def _all_processes(summary: Summary, console: Console) -> None:
    """The processes of a whole machine, each with its container or cgroup and what it asked of disks."""
    rows = []
    in_rings = summary.rings is not None and summary.rings.written > 0
    for row in summary.processes[:ROWS]:
        moved = [format_bytes(row.activity.bytes_read), format_bytes(row.activity.bytes_written)]
        disks = [f"{row.requests:,}", format_bytes(row.request_bytes)]
        counts = [f"{row.activity.calls:,}", f"{row.activity.errors:,}"]
        rings = [format_bytes(row.ring_bytes)] if in_rings else []
        rows.append([who(row.pid, row.name), _place(row), *counts, *moved, *rings, *disks])
    headings = ["Process (pid)", "cgroup", "calls", "errors", "read", "written", "requests", "on disks"]
    headings[6:6] = ["in rings"] if in_rings else []
    print_table(console, headings, "llrrrrrrr"[: len(headings)], rows)
    print_more(console, len(summary.processes) - ROWS)


def _place(row: ProcessRow) -> str:
    """The container's id, short as its tools print it, or the end of the cgroup's path."""
    if row.container:
        return row.container[:_SHORT_ID]
    return shorten(printable(row.cgroup or "-"), _PLACE_WIDTH)


def _files(summary: Summary, console: Console) -> None:
    """First storage, and files without a name or descriptor; then pipes, sockets and devices."""
    none = [row for row in summary.files if row.kind == "none"]
    stored = [row for row in summary.files if row.kind != "none" and row.type in {"storage", "unknown"}]
    others = [row for row in summary.files if row.kind != "none" and row.type not in {"storage", "unknown"}]
    _file_table("File", stored[:ROWS] + none, console)
    print_more(console, len(stored) - ROWS)
    if others:
        _file_table("Pipe, socket, device", others[:ROWS], console)
        print_more(console, len(others) - ROWS)


def _file_table(heading: str, files: Sequence[FileRow], console: Console) -> None:
    rows = []
    for row in files:
        activity = row.activity
        counts = (f"{number:,}" for number in (activity.reads, activity.writes, activity.calls))
        rows.append([_file_name(row), *counts, *_numbers(activity)])
    print_table(console, [heading, "reads", "writes", "calls", "read", "written", "time", "errors"], "lrrrrrrr", rows)


def _file_name(row: FileRow) -> str:
    if row.kind == "unnamed":
        return f"unnamed fds of {who(row.pid, row.process)}"
    if row.kind == "none":
        return "calls without an fd"
    return named(row.path, row.files if row.kind == "named" else 1)


def _calls(summary: Summary, console: Console) -> None:
    """The columns of ``strace -c -w`` and more. Each call counts once. Its time is from entry to exit."""
    rows = []
    for row in summary.calls[:ROWS]:
        lat = row.latency
        moved = max(row.activity.bytes_read, row.activity.bytes_written)
        shown = [duration_of(lat, value) for value in (lat.mean_ns, lat.p50_ns, lat.p99_ns, lat.max_ns)]
        rows.append([row.name, *_call_cells(row.activity, moved), share_of(row.share), *shown])
    total, ended = summary.activity, sum(row.latency.nr for row in summary.calls)
    mean = format_duration(round(total.time_ns / ended)) if ended else "-"
    moved = max(total.bytes_read, total.bytes_written)
    rows.append(["all", *_call_cells(total, moved), share_of(1.0 if total.time_ns else 0.0), mean, "", "", ""])
    headings = ["By system call", "calls", "errors", "bytes", "time", "share", "mean", "p50", "p99", "max"]
    print_table(console, headings, "lrrrrrrrrr", rows)
    print_more(console, len(summary.calls) - ROWS)
    for row in summary.calls:
        if row.in_flight:
            print_line(console, f"{row.name}: {row.in_flight:,} in flight")


def _call_cells(activity: Activity, moved_bytes: int) -> list[str]:
    counts = [f"{activity.calls:,}", f"{activity.errors:,}"]
    return [*counts, format_bytes(moved_bytes), format_duration(activity.time_ns)]


def _command_lines(summary: Summary, console: Console) -> None:
    """Print the table, unless every process has its own command line: the table of processes says the same then."""
    if all(row.processes <= 1 for row in summary.cmdlines):
        return
    rows = []
    for row in summary.cmdlines[:ROWS]:
        done, line = row.activity, printable(row.cmdline or row.name or "unknown")
        counts = [f"{row.processes:,}", f"{done.calls:,}", format_bytes(done.bytes_read)]
        counts += [format_bytes(done.bytes_written), format_bytes(row.ring_bytes)]
        rows.append([shorten_end(line, _CMDLINE_WIDTH), *counts, format_duration(done.time_ns), share_of(row.share)])
    headings = ["By command line", "processes", "calls", "read", "written", "in rings", "time", "share"]
    print_table(console, headings, "lrrrrrrr", rows)
    print_more(console, len(summary.cmdlines) - ROWS)


def _errors(summary: Summary, console: Console) -> None:
    if not summary.errors:
        return
    rows = []
    for row in summary.errors[:ROWS]:
        names = [f"{name} {nr:,}" for name, nr in row.calls.items()]
        rest = len(names) - _CALLS_OF_AN_ERROR
        where = ", ".join(names[:_CALLS_OF_AN_ERROR]) + (f" and {rest} more" if rest > 0 else "")
        rows.append([row.name, f"{row.nr:,}", row.text, where])
    print_table(console, ["Error", "times", "meaning", "in"], "lrll", rows)
    print_more(console, len(summary.errors) - ROWS)


def _devices(summary: Summary, console: Console) -> None:
    if not summary.devices:
        return
    rows, notes = [], []
    for row in summary.devices[: 2 * ROWS]:
        name = printable(row.name)
        first = [name, row.operation, f"{row.requests:,}", format_bytes(row.bytes)]
        rows.append([*first, "queue", *_percentiles(row.queue)])
        rows.append(["", "", "", "", "device", *_percentiles(row.device)])
        counts = {"failed": row.errors, "in flight": row.in_flight, "merged": row.merged, "requeued": row.requeues}
        counts |= {"ends inferred": row.inferred, "ends unknown": row.end_unknown}
        extra = ", ".join(f"{number:,} {what}" for what, number in counts.items() if number)
        notes += [f"{name} {row.operation}: {extra}"] if extra else []
    headings = ["Device", "operation", "requests", "bytes", "latency", "p50", "p95", "p99", "max"]
    print_table(console, headings, "llrrlrrrr", rows)
    for note in notes:
        print_line(console, note)
    print_more(console, len(summary.devices) - 2 * ROWS)


def _accounts(summary: Summary, console: Console) -> None:
    """For a whole machine: differences from the kernel's own accounts, and why an account was not compared."""
    if summary.mode != "system":
        return
    compared = [row for row in summary.reconciliation if row["captured"] is not None]
    rows = [
        [f"{_SOURCES[row['source']]} {printable(row['subject'])}", row["name"], *_both(row)]
        for row in compared
        if row["captured"] != row["counted"]
    ]
    if rows:
        print_table(console, ["Account", "of", "the kernel's", "captured"], "llrr", rows[:ROWS])
        print_more(console, len(rows) - ROWS)
    sources = {row["source"] for row in compared}
    reasons = {row["source"]: row["reason"] for row in summary.reconciliation if row["source"] not in sources}
    if summary.chosen.cgroup and not any(row["source"] == "cgroup_io" for row in summary.reconciliation):
        reasons["cgroup_io"] = "there is none (I/O controller off, or no I/O)"
    for source, reason in reasons.items():
        print_line(console, f"not compared with the account of {_SOURCES[source]}: {reason}")


def _both(row: Mapping[str, Any]) -> list[str]:
    show = format_bytes if row["name"].endswith(("bytes", "char")) else "{:,}".format
    return [show(row["counted"]), show(row["captured"])]


def _percentiles(latency: Latency) -> list[str]:
    return [duration_of(latency, value) for value in (latency.p50_ns, latency.p95_ns, latency.p99_ns, latency.max_ns)]
