"""The beginning and the end of the page: what was recorded, findings, what is missing, and how to go on.

In: a :class:`~lo2io.reports.summary.summary.Summary`. Out: lines on a rich console.
"""

from __future__ import annotations

import shlex
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from lo2io.reports.summary.name_counts import names_line
from lo2io.reports.text.foreign import render_foreign
from lo2io.reports.text.lines import (
    ROWS,
    VERDICT_STYLES,
    print_line,
    print_more,
    print_table,
    print_verdict,
    shorten_end,
)
from lo2io.reports.text.rings import rings_line
from lo2io.reports.words import count_of, printable, share_of
from lo2io.trace.names import ANCHOR
from lo2io.units import NS_PER_S, format_bytes, format_duration

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rich.console import Console

    from lo2io.reports.findings.finding import Finding
    from lo2io.reports.summary.answer import Answer
    from lo2io.reports.summary.chosen import Chosen
    from lo2io.reports.summary.overlap import Overlap
    from lo2io.reports.summary.summary import CpuLosses, Summary
    from lo2io.reports.summary.usage import UsageRow

FIRST_FINDINGS: Final = 3
"""So many findings stand at the top of the page."""
_WHY_VANISHED: Final = "some virtual machines deliver nothing while a CPU runs its idle task or a thread of pid 1"
_PATHS_OF_A_FINDING: Final = 3
_CALLS_OF_A_GROUP: Final = 3
_BAR: Final = 40
"""Cells of a bar for the whole time, if the terminal is wide enough."""
_LEAST_BAR: Final = 8
_BESIDE_BARS: Final = 23
"""Cells of the share, the time, and the spaces between them."""
_FULL: Final = "█"
_WHAT_WIDTH: Final = 12
_NAMED: Final = 3
"""The number of programs named in the line about processes that live on."""


def print_head(summary: Summary, console: Console, *, brief: bool = False) -> None:
    """Print what was recorded, its totals, and what is wrong with the recording as a whole."""
    if summary.foreign:
        render_foreign(summary.foreign, console)
    if summary.shortfall:
        print_line(console, f"{summary.shortfall}\n", VERDICT_STYLES["short"])
    attached = f"process {', '.join(map(str, summary.roots))}"
    command = printable(shlex.join(summary.command))
    if summary.mode == "process":
        command = command or attached
    else:
        command = f"the whole system while it ran: {command}" if command else "the whole system"
    ended = "" if summary.exit_code is None else f" · exit code {summary.exit_code}"
    if not summary.foreign or summary.foreign.own:
        print_line(console, shorten_end(command, console.width) if brief else command, "bold")
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
    print_overlap(summary.overlap, "" if brief or summary.foreign else summary.overlap_unknown, console)
    if summary.usage:
        _usage(summary.usage, summary.not_recorded, console, brief=brief)
    if summary.rings:
        print_line(console, rings_line(summary.rings))
    if summary.names and names_line(summary.names) and not brief:
        print_line(console, names_line(summary.names))
    for line in confines_lines(summary.chosen):
        print_line(console, printable(line))


def print_overlap(overlap: Overlap | None, unknown: str, console: Console) -> None:
    """Print how much of the time with I/O under way processes computed, or why nobody knows."""
    if overlap and overlap.io_ns:
        print_line(console, overlap_line(overlap))
    elif unknown:
        print_line(console, f"overlap of I/O with computing: not known, since {unknown}")


def overlap_line(overlap: Overlap) -> str:
    """The time with I/O under way, and its parts that are not 0."""
    parts = [(overlap.unoverlapped_ns, "without computing"), (overlap.overlapped_ns, "beside computing")]
    parts += [(overlap.unknown_ns, "not known which")]
    told = ", ".join(f"{format_duration(time_ns)} {what}" for time_ns, what in parts if time_ns)
    return f"I/O under way {format_duration(overlap.io_ns)}: {told}"


def print_answer(answer: Answer, console: Console, *, most: int | None = None) -> None:
    """Print where the time went, a bar for each part. The largest parts come first.

    Args:
        answer: The parts.
        console: Its width is the limit.
        most: The number of lines; the last one adds up the parts that have none. None: all.
    """
    of = "threads lived" if answer.of == "threads" else "calls took"
    print_line(console, f"\nWhere the time went, of the {format_duration(answer.whole_ns)} that {of}", "bold")
    parts = [(part.what, part.time_ns) for part in answer.parts]
    if most is not None and len(parts) > most:
        rest = parts[most - 1 :]
        parts[most - 1 :] = [(f"{len(rest)} other parts", sum(time_ns for _, time_ns in rest))]
    width = max(len(what) for what, _ in parts)
    cells = min(_BAR, max(_LEAST_BAR, console.width - width - _BESIDE_BARS))
    for what, time_ns in parts:
        share = time_ns / answer.whole_ns
        bar = _FULL * max(1, round(cells * share))
        print_line(console, f"  {what:<{width}}  {share_of(share):>7}  {bar} {format_duration(time_ns)}")


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


def _usage(usage: UsageRow, not_recorded: Mapping[str, Sequence[str]], console: Console, *, brief: bool) -> None:
    """Print the processes' usage, and the part of their time that the calls explain."""
    parts = [f"wall {format_duration(usage.wall_ns)}"]
    if usage.user_ns is not None and usage.system_ns is not None:
        parts.append(f"user {format_duration(usage.user_ns)} · system {format_duration(usage.system_ns)}")
    if usage.block_delay_ns is not None:
        parts.append(f"waited for disks {format_duration(usage.block_delay_ns)}")
    if usage.major_faults is not None:
        minor = "" if usage.minor_faults is None else f", {usage.minor_faults:,} minor"
        parts.append(count_of(usage.major_faults, "major fault") + minor)
    if not brief and usage.voluntary_switches is not None and usage.involuntary_switches is not None:
        parts.append(f"switches: {usage.voluntary_switches:,} voluntary, {usage.involuntary_switches:,} not")
    if usage.calls_share is not None:
        share = share_of(usage.calls_share)
        parts.append(f"recorded calls explain {share} of the {format_duration(usage.threads_ns)} that threads lived")
    print_line(console, " · ".join(parts))
    if not_recorded and not brief:
        groups = (f"{', '.join(calls[:_CALLS_OF_A_GROUP])} … (-e +{group})" for group, calls in not_recorded.items())
        print_line(console, f"not recorded, where the rest may be: {'; '.join(groups)}")


def print_findings(heading: str, findings: Sequence[Finding], console: Console, *, brief: bool = False) -> None:
    """Print findings, each with what helps. The JSON has the rows behind each finding."""
    if not findings:
        return
    print_line(console, f"\n{heading}", "bold")
    for finding in findings:
        more = f" (and {finding.more:,} more of the kind)" if finding.more else ""
        print_line(console, f"{finding.rule}: {printable(finding.subject)}", "yellow")
        print_line(console, f"  {printable(finding.words)}{more}")
        if finding.paths and not brief:
            paths = [printable(path) for path in list(finding.paths)[:_PATHS_OF_A_FINDING]]
            print_line(console, f"  such as {', '.join(paths)}")
        print_line(console, f"  what helps: {finding.remedy}")


_UNFOLLOWED: Final = (
    "out of sight: perf ends the events of a task in the exec of a program with rights of its own",
    "  (set-uid, set-gid, file capabilities) or one that may not be read; neither it nor what it starts is",
    "  recorded. To record all: as root, without --scope inherit",
)


def print_end(summary: Summary, console: Console, *, notes: int | None = None) -> None:
    """Print notices, where the trace lies and how to go on. The last line is about completeness.

    Args:
        summary: What was recorded.
        console: Where to.
        notes: For one screen, the number of notices shown; None: all of them, on the full page.
    """
    for hint in summary.hints:
        print_line(console, f"nothing was recorded: {printable(hint)}", "bold yellow")
    _living_on(summary.living_on, console)
    for notice in summary.notices[:notes]:
        print_line(console, f"note: {printable(notice)}")
    hidden = 0 if notes is None else len(summary.notices) - notes
    if hidden > 0:
        print_line(console, f"and {count_of(hidden, 'further note')}")
    path, quoted = printable(summary.trace), printable(shlex.quote(summary.trace))
    anchor = summary.foreign.anchor if summary.foreign else f"{summary.trace}/{ANCHOR}"
    further = [
        ("Trace", path),
        ("Open it", f"vampir {printable(shlex.quote(anchor))}"),
        ("Once more" if notes is None else "All of it", f"lo2io report {quoted} --full"),
    ]
    if notes is not None:
        further += [("Pictures", f"lo2io report {quoted} --html PAGE --open"), ("Why slow", f"lo2io why {quoted}")]
    print_line(console, "")
    for what, told in further:
        print_line(console, f"{what:<{_WHAT_WIDTH}}{told}", whole=True)
    print_verdict(console, summary)


def print_losses(summary: Summary, console: Console, *, brief: bool = False) -> None:
    """Print losses by CPU. A full buffer and a vanished event have different causes and different cures."""
    if summary.completeness.get("unfollowed"):
        for line in _UNFOLLOWED:
            print_line(console, line, "bold yellow")
    if summary.completeness.get("compat"):
        text = "the tracepoints of single calls leave out those of 32-bit programs; --backend bpf --hook raw has them"
        print_line(console, text, "bold yellow")
    if not summary.losses or summary.verdict == "complete":  # the last line names other losses
        return
    if not brief:
        rows = [[f"CPU {row.cpu}", f"{row.lost:,}", *_gaps(row), f"{row.vanished:,}"] for row in summary.losses[:ROWS]]
        print_table(console, ["Missing", "buffer full", "times", "for", "vanished"], "lrrrr", rows)
        print_more(console, len(summary.losses) - ROWS)
    lost, vanished = sum(row.lost for row in summary.losses), sum(row.vanished for row in summary.losses)
    # Where no table has the numbers, the lines have them.
    told = [f" ({count_of(number, 'event')})" if brief else "" for number in (lost, vanished)]
    if lost:
        print_line(console, f"buffer full{told[0]}: give it more room (--ring 16MiB), or record fewer events (-e)")
    if vanished:
        ended = summary.completeness.get("ended_early")
        why = "counted before recording could be ended" if ended else _WHY_VANISHED
        line = f"vanished{told[1]}: the kernel counted, but did not deliver; no buffer was full;\n{why}"
        print_line(console, line)


def _gaps(row: CpuLosses) -> list[str]:
    return [f"{row.gaps:,}", format_duration(row.gap_ns)] if row.gaps else ["-", "-"]


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
