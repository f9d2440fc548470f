"""The summary as text: a page for a terminal, and the same words without colour for a pipe.

In: a :class:`~lo2io.reports.summary.summary.Summary`. Out: lines on a rich console. This module reads no tables.
"""

from __future__ import annotations

import shlex
import sys
from datetime import UTC, datetime
from io import TextIOWrapper
from typing import IO, TYPE_CHECKING, Any, Final

from rich.console import Console

from lo2io.model.notices import NoticeKind, kind_of
from lo2io.reports.summary.name_counts import names_line
from lo2io.reports.text.foreign import render_foreign
from lo2io.reports.text.io import render_io
from lo2io.reports.text.lines import (
    ROWS,
    VERDICT_STYLES,
    count_of,
    duration_of,
    named,
    print_line,
    print_more,
    print_table,
    print_verdict,
    printable,
    share_of,
    shorten,
    shorten_end,
    who,
)
from lo2io.reports.text.rings import render_rings, rings_line
from lo2io.trace.names import ANCHOR
from lo2io.units import NS_PER_S, format_bytes, format_duration

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lo2io.reports.findings.finding import Finding
    from lo2io.reports.summary.histogram import Latency
    from lo2io.reports.summary.summary import Activity, Chosen, CpuLosses, FileRow, ProcessRow, Summary
    from lo2io.reports.summary.usage import UsageRow

PIPE_WIDTH: Final = 100
_WHY_VANISHED: Final = "some virtual machines deliver nothing while a CPU runs its idle task or a thread of pid 1"
_CALLS_OF_AN_ERROR: Final = 2
_SOURCES: Final = {"diskstats": "disk", "proc_io": "process", "cgroup_io": "cgroup"}
_FIRST_FINDINGS: Final = 3
_PATHS_OF_A_FINDING: Final = 3
_CALLS_OF_A_GROUP: Final = 3
_SHORT_ID: Final = 12
_NAMED: Final = 3
"""The number of programs named in the line about processes that live on."""
_PLACE_WIDTH: Final = 22
_CMDLINE_WIDTH: Final = 32


def report_console(file: IO[str] | None = None) -> Console:
    """The console for reports: without colour and 100 columns wide, unless it is a terminal."""
    stream = sys.stdout if file is None else file
    if isinstance(stream, TextIOWrapper):
        # Names hold any character, and a locale may lack some: escapes are better than a traceback.
        stream.reconfigure(errors="backslashreplace")
    console = Console(file=file, highlight=False, markup=False, emoji=False, soft_wrap=True)
    if not console.is_terminal:
        console.width = PIPE_WIDTH
        console.no_color = True
    return console


def render_page(summary: Summary, console: Console) -> None:
    """Print the page. Empty sections are left out."""
    if summary.foreign:
        render_foreign(summary.foreign, console)
    if summary.shortfall:
        print_line(console, f"{summary.shortfall}\n", VERDICT_STYLES["short"])
    _head(summary, console)
    _findings("Findings", summary.findings[:_FIRST_FINDINGS], console)
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
    _errors(summary, console)
    if summary.rings:
        render_rings(summary.rings, console)
    _findings("Further findings", summary.findings[_FIRST_FINDINGS:], console)
    _losses(summary, console)
    _accounts(summary, console)
    for hint in summary.hints:
        print_line(console, f"nothing was recorded: {printable(hint)}", "bold yellow")
    _living_on(summary.living_on, console)
    for notice in summary.notices:
        print_line(console, f"note: {printable(notice)}")
    path = printable(summary.trace)
    anchor = summary.foreign.anchor if summary.foreign else f"{summary.trace}/{ANCHOR}"
    print_line(console, f"\nTrace       {path}")
    print_line(console, f"Open it     vampir {printable(shlex.quote(anchor))}")
    print_line(console, f"Once more   lo2io report {printable(shlex.quote(summary.trace))}")
    print_verdict(console, summary)


def _head(summary: Summary, console: Console) -> None:
    attached = f"process {', '.join(map(str, summary.roots))}"
    command = printable(shlex.join(summary.command))
    if summary.mode == "process":
        command = command or attached
    else:
        command = f"the whole system while it ran: {command}" if command else "the whole system"
    ended = "" if summary.exit_code is None else f" · exit code {summary.exit_code}"
    if not summary.foreign or summary.foreign.own:
        print_line(console, command, "bold")
        print_line(
            console, f"{printable(summary.hostname)} · Linux {printable(summary.kernel)} · {summary.mode} mode{ended}"
        )
    since = ""
    if summary.start_realtime_ns is not None:
        moment = datetime.fromtimestamp(summary.start_realtime_ns / NS_PER_S, UTC)
        since = f" from {moment:%Y-%m-%d %H:%M:%S} UTC"
    total = summary.activity
    print_line(
        console,
        f"{format_duration(summary.span_ns)}{since} · {count_of(total.calls, 'call')}"
        f" of {count_of(summary.nr_processes, 'process')} on {count_of(summary.nr_files, 'named file')}",
    )
    print_line(
        console,
        f"read {_flow(total.bytes_read, summary.bytes_read_per_s)}"
        f" · written {_flow(total.bytes_written, summary.bytes_written_per_s)}"
        f" · {format_duration(total.time_ns)} in calls · {count_of(total.errors, 'error')}",
    )
    if summary.usage:
        _usage(summary.usage, summary.not_recorded, console)
    if summary.rings:
        print_line(console, rings_line(summary.rings))
    if summary.names and names_line(summary.names):
        print_line(console, names_line(summary.names))
    for line in confines_lines(summary.chosen):
        print_line(console, printable(line))


def confines_lines(chosen: Chosen) -> list[str]:
    """The limits of the trace, one line each; none for a trace of everything."""
    window = "" if chosen.recorded_ns is None else format_duration(chosen.recorded_ns)
    left_out = [
        (chosen.filtered_calls, "call"),
        (chosen.filtered_requests, "request"),
        (chosen.filtered_ring_requests, "ring request"),
    ]
    own = [(chosen.own_calls, "call"), (chosen.own_requests, "request")]
    lines = [
        f"the last part of {window} of recording" if window else "",
        f"only the cgroup {chosen.cgroup}" if chosen.cgroup else "",
        f"only CPU {', '.join(map(str, chosen.cpus))}" if chosen.cpus else "",
        f"only what passes {chosen.filter!r}{_left_out(left_out)}" if chosen.filter else "",
        f"of {count_of(chosen.ring_requests, 'request')} of rings one in {chosen.sample_rate:,} is written"
        if chosen.sample_rate > 1
        else "",
        f"without lo2io's own I/O{_left_out(own)}" if any(number for number, _ in own) else "",
    ]
    return [line for line in lines if line]


def _left_out(counts: Sequence[tuple[int, str]]) -> str:
    said = " and ".join(count_of(number, noun) for number, noun in counts if number)
    return f": {said} left out" if said else ""


def _flow(size: int, rate: float | None) -> str:
    return format_bytes(size) if rate is None else f"{format_bytes(size)} ({format_bytes(rate)}/s)"


def _numbers(activity: Activity) -> list[str]:
    return [
        format_bytes(activity.bytes_read),
        format_bytes(activity.bytes_written),
        format_duration(activity.time_ns),
        f"{activity.errors:,}",
    ]


def _usage(usage: UsageRow, not_recorded: Mapping[str, Sequence[str]], console: Console) -> None:
    """Print the processes' usage, and the part of their time that the calls explain."""
    parts = [f"wall {format_duration(usage.wall_ns)}"]
    if usage.user_ns is not None and usage.system_ns is not None:
        parts.append(f"user {format_duration(usage.user_ns)} · system {format_duration(usage.system_ns)}")
    if usage.block_delay_ns is not None:
        parts.append(f"waited for disks {format_duration(usage.block_delay_ns)}")
    if usage.major_faults is not None:
        parts.append(count_of(usage.major_faults, "major fault"))
    if usage.voluntary_switches is not None and usage.involuntary_switches is not None:
        parts.append(f"switches: {usage.voluntary_switches:,} voluntary, {usage.involuntary_switches:,} not")
    if usage.calls_share is not None:
        share = share_of(usage.calls_share)
        parts.append(f"recorded calls explain {share} of the {format_duration(usage.threads_ns)} that threads lived")
    print_line(console, " · ".join(parts))
    if not_recorded:
        groups = (f"{', '.join(calls[:_CALLS_OF_A_GROUP])} … (-e +{group})" for group, calls in not_recorded.items())
        print_line(console, f"not recorded, where the rest may be: {'; '.join(groups)}")


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


def _findings(heading: str, findings: Sequence[Finding], console: Console) -> None:
    """Print findings, each with what helps. The JSON has the rows behind each finding."""
    if not findings:
        return
    print_line(console, f"\n{heading}", "bold")
    for finding in findings:
        more = f" (and {finding.more:,} more of the kind)" if finding.more else ""
        print_line(console, f"{finding.rule}: {printable(finding.subject)}", "yellow")
        print_line(console, f"  {printable(finding.words)}{more}")
        if finding.paths:
            paths = [printable(path) for path in list(finding.paths)[:_PATHS_OF_A_FINDING]]
            print_line(console, f"  such as {', '.join(paths)}")
        print_line(console, f"  what helps: {finding.remedy}")


def _living_on(living: Mapping[str, int], console: Console) -> None:
    if not living:
        return
    names = [f"{nr:,} {printable(name)}" if nr > 1 else printable(name) for name, nr in list(living.items())[:_NAMED]]
    rest = len(living) - _NAMED
    nr, others = sum(living.values()), f" and {rest:,} other names" if rest > 0 else ""
    print_line(
        console,
        f"not ended: {nr:,} process{'es' if nr > 1 else ''} of the command ({', '.join(names)}{others}); "
        "--until-last waits",
        "yellow",
    )


_UNFOLLOWED: Final = (
    "out of sight: perf ends the events of a task in the exec of a program with rights of its own",
    "  (set-uid, set-gid, file capabilities) or one that may not be read; neither it nor what it starts is",
    "  recorded. To record all: as root, without --scope inherit",
)


def _losses(summary: Summary, console: Console) -> None:
    """Print losses by CPU. A full buffer and a vanished event have different causes and different cures."""
    if summary.completeness.get("unfollowed"):
        for line in _UNFOLLOWED:
            print_line(console, line, "bold yellow")
    if summary.completeness.get("compat"):
        text = "the tracepoints of single calls leave out those of 32-bit programs; --backend bpf --hook raw has them"
        print_line(console, text, "bold yellow")
    if not summary.losses or summary.verdict == "complete":  # the last line names other losses
        return
    rows = [[f"CPU {row.cpu}", f"{row.lost:,}", *_gaps(row), f"{row.vanished:,}"] for row in summary.losses[:ROWS]]
    print_table(console, ["Missing", "buffer full", "times", "for", "vanished"], "lrrrr", rows)
    if len(summary.losses) > ROWS:
        print_more(console, len(summary.losses) - ROWS)
    if any(row.lost for row in summary.losses):
        print_line(console, "buffer full: give it more room (--ring 16MiB), or record fewer events (-e)")
    if any(row.vanished for row in summary.losses):
        ended = any(kind_of(notice) is NoticeKind.ENDED_EARLY for notice in summary.notices)
        why = "counted before recording could be ended" if ended else _WHY_VANISHED
        print_line(console, f"vanished: the kernel counted, but did not deliver; no buffer was full;\n{why}")


def _gaps(row: CpuLosses) -> list[str]:
    return [f"{row.gaps:,}", format_duration(row.gap_ns)] if row.gaps else ["-", "-"]


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
