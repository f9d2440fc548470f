"""A line a system call, as ``strace -c`` prints it: each call counts once, and its time is from entry to exit.

In: a :class:`~lo2io.reports.summary.rows.Summary`. Out: text or JSON. ``strace -c`` gives the time a call spent on
a CPU unless it is asked for ``-w``; what lo2io knows is the latter.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Final

from lo2io.reports.text.lines import print_line, print_verdict
from lo2io.units import NS_PER_S

if TYPE_CHECKING:
    from rich.console import Console

    from lo2io.reports.summary.rows import Summary

SCHEMA: Final = "lo2io-syscalls"
SCHEMA_VERSION: Final = 1
_NS_PER_US: Final = 1000


@dataclass(frozen=True, slots=True)
class SyscallRow:
    """One system call."""

    name: str
    calls: int
    errors: int
    in_flight: int
    """Of the calls, those that had not ended; they add no time."""
    time_ns: int
    share: float
    """Of the time of all calls, 0 … 1."""
    mean_ns: int
    """Of the calls that ended."""


def syscall_rows(summary: Summary) -> tuple[SyscallRow, ...]:
    """By time, then calls, then name."""
    total = sum(row.activity.time_ns for row in summary.calls)
    rows = [
        SyscallRow(
            row.name,
            row.activity.calls,
            row.activity.errors,
            row.in_flight,
            row.activity.time_ns,
            row.activity.time_ns / total if total else 0.0,
            row.latency.mean_ns,
        )
        for row in summary.calls
    ]
    return tuple(sorted(rows, key=lambda row: (-row.time_ns, -row.calls, row.name)))


def to_json(summary: Summary) -> str:
    """One object: ``schema``, ``schema_version``, ``trace``, the ``syscalls``, and the line on completeness."""
    facts = {
        "schema": SCHEMA,
        "schema_version": SCHEMA_VERSION,
        "trace": summary.trace,
        "syscalls": [asdict(row) for row in syscall_rows(summary)],
        "completeness_line": summary.completeness_line,
    }
    return json.dumps(facts, indent=2, ensure_ascii=True)


def render_syscalls(summary: Summary, console: Console) -> None:
    """Print the table, its sum, and how complete it is."""
    rows = syscall_rows(summary)
    form = "{:>6}  {:>12}  {:>11}  {:>10}  {:>9}  {}"
    print_line(console, form.format("% time", "seconds", "usecs/call", "calls", "errors", "syscall"), "bold")
    print_line(console, form.format("-" * 6, "-" * 12, "-" * 11, "-" * 10, "-" * 9, "-" * 16))
    calls, errors = sum(row.calls for row in rows), sum(row.errors for row in rows)
    ended = calls - sum(row.in_flight for row in rows)
    time_ns = sum(row.time_ns for row in rows)
    for row in rows:
        print_line(console, form.format(*_cells(row.share, row.time_ns, row.mean_ns, row.calls, row.errors), row.name))
    print_line(console, form.format("-" * 6, "-" * 12, "-" * 11, "-" * 10, "-" * 9, "-" * 16))
    mean_ns = round(time_ns / ended) if ended else 0
    print_line(console, form.format(*_cells(1.0 if time_ns else 0.0, time_ns, mean_ns, calls, errors), "total"), "bold")
    print_verdict(console, summary)


def _cells(share: float, time_ns: int, mean_ns: int, calls: int, errors: int) -> tuple[str, ...]:
    seconds = f"{time_ns / NS_PER_S:.6f}"
    return f"{100 * share:.2f}", seconds, f"{mean_ns / _NS_PER_US:.3f}", str(calls), str(errors) if errors else ""
