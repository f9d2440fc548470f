"""The tables of ``report --by``: a line a system call, as ``strace -c`` prints it, or a line a command line.

In: a trace's sums and its :class:`~lo2io.reports.summary.rows.Summary`. Out: text or JSON. Each call counts once, and
its time is from entry to exit. ``strace -c`` gives the time a call spent on a CPU unless it is asked for ``-w``; what
lo2io knows is the latter.
"""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from rich.cells import cell_len, set_cell_size

from lo2io.model.command_lines import process_name
from lo2io.reports.summary.summary import ring_sums
from lo2io.reports.text.lines import print_line, print_verdict, printable
from lo2io.units import NS_PER_S, format_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from rich.console import Console

    from lo2io.reports.summary.rows import Summary
    from lo2io.reports.summary.sums import TraceSums

_NS_PER_US: Final = 1000
_NAME_WIDTH: Final = 16
"""Of the last column at least, however narrow the terminal."""


@dataclass(frozen=True, slots=True)
class Table:
    """One table: which rows it has, and how they are printed."""

    name: str
    """In JSON: the key of the rows, and ``lo2io-NAME`` is the schema."""
    version: int
    columns: tuple[tuple[str, int], ...]
    """Headings and widths; the last column is the name, to the left."""
    rows: Callable[[TraceSums, Summary], tuple[Any, ...]]
    """By time, then calls, then name."""
    total: Callable[[Sequence[Any]], Any]
    """A row that sums the others up."""
    cells: Callable[[Any], tuple[str, ...]]
    """As they are printed."""


# ---- by system call ----


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


def _syscall_rows(_: TraceSums, summary: Summary) -> tuple[SyscallRow, ...]:
    total = sum(row.activity.time_ns for row in summary.calls)
    rows = [
        SyscallRow(
            row.name,
            row.activity.calls,
            row.activity.errors,
            row.in_flight,
            row.activity.time_ns,
            _share(row.activity.time_ns, total),
            row.latency.mean_ns,
        )
        for row in summary.calls
    ]
    return tuple(sorted(rows, key=lambda row: (-row.time_ns, -row.calls, row.name)))


def _total_of_syscalls(rows: Sequence[SyscallRow]) -> SyscallRow:
    calls, errors, in_flight, time_ns = (
        sum(getattr(row, name) for row in rows) for name in ("calls", "errors", "in_flight", "time_ns")
    )
    ended = calls - in_flight
    mean_ns = round(time_ns / ended) if ended else 0
    return SyscallRow("total", calls, errors, in_flight, time_ns, _share(time_ns, time_ns), mean_ns)


def _syscall_cells(row: SyscallRow) -> tuple[str, ...]:
    mean = f"{row.mean_ns / _NS_PER_US:.3f}"
    return *_time_cells(row.share, row.time_ns), mean, str(row.calls), str(row.errors or ""), row.name


# ---- by command line ----


@dataclass(frozen=True, slots=True)
class CommandLineRow:
    """Processes with one command line and one name; without a command line, all of that name."""

    cmdline: str | None
    """As for a shell, or the title that replaced it; None: unknown."""
    name: str | None
    """As reports name the processes; None: unknown."""
    processes: int
    """0: calls of which nobody knows the process."""
    calls: int
    errors: int
    bytes_read: int
    """By calls."""
    bytes_written: int
    """By calls."""
    ring_requests: int
    ring_bytes: int
    """Moved by requests of io_uring."""
    time_ns: int
    """In calls, over all threads."""
    share: float
    """Of the time of all calls, 0 … 1."""


def _command_line_rows(sums: TraceSums, _: Summary) -> tuple[CommandLineRow, ...]:
    by_process, (ring_requests, ring_bytes) = sums.operations.by_process, ring_sums(sums)
    busy = np.flatnonzero((by_process.calls > 0) | (ring_requests > 0)).tolist()
    comms, lines = (sums.people.texts(column, busy) for column in ("comm", "cmdline"))
    groups: dict[tuple[str | None, str | None], list[int]] = defaultdict(list)
    for key in busy:
        groups[lines.get(key), process_name(comms.get(key), lines.get(key))].append(key)
    total = int(by_process.time_ns.sum())
    rows = [
        CommandLineRow(
            cmdline=line,
            name=name,
            processes=sum(key < sums.owners.nr_processes for key in keys),
            **{
                column: int(getattr(by_process, column)[keys].sum())
                for column in ("calls", "errors", "bytes_read", "bytes_written", "time_ns")
            },
            ring_requests=int(ring_requests[keys].sum()),
            ring_bytes=int(ring_bytes[keys].sum()),
            share=_share(int(by_process.time_ns[keys].sum()), total),
        )
        for (line, name), keys in groups.items()
    ]
    return tuple(sorted(rows, key=lambda row: (-row.time_ns, -row.calls, row.cmdline or row.name or "")))


def _total_of_command_lines(rows: Sequence[CommandLineRow]) -> CommandLineRow:
    numbers = ("processes", "calls", "errors", "bytes_read", "bytes_written", "ring_requests", "ring_bytes", "time_ns")
    sums = {name: sum(getattr(row, name) for row in rows) for name in numbers}
    return CommandLineRow(cmdline=None, name="total", **sums, share=_share(sums["time_ns"], sums["time_ns"]))


def _command_line_cells(row: CommandLineRow) -> tuple[str, ...]:
    moved = (format_bytes(row.bytes_read), format_bytes(row.bytes_written), format_bytes(row.ring_bytes))
    name = printable(row.cmdline or row.name or "unknown")
    return *_time_cells(row.share, row.time_ns), str(row.calls), *moved, str(row.processes), name


# ---- both ----

TABLES: Final[Mapping[str, Table]] = {
    "syscall": Table(
        "syscalls",
        1,
        (("% time", 6), ("seconds", 12), ("usecs/call", 11), ("calls", 10), ("errors", 9), ("syscall", 16)),
        _syscall_rows,
        _total_of_syscalls,
        _syscall_cells,
    ),
    "cmdline": Table(
        "cmdlines",
        1,
        (
            *(("% time", 6), ("seconds", 12), ("calls", 10), ("read", 9), ("written", 9), ("by rings", 9)),
            *(("processes", 9), ("command line", 16)),
        ),
        _command_line_rows,
        _total_of_command_lines,
        _command_line_cells,
    ),
}
"""By the word behind ``--by``."""


def to_json(table: Table, rows: Sequence[Any], summary: Summary) -> str:
    """One object: ``schema``, ``schema_version``, ``trace``, the rows, and the line on completeness."""
    facts = {
        "schema": f"lo2io-{table.name}",
        "schema_version": table.version,
        "trace": summary.trace,
        table.name: [asdict(row) for row in rows],
        "completeness_line": summary.completeness_line,
    }
    return json.dumps(facts, indent=2, ensure_ascii=True)


def render(table: Table, rows: Sequence[Any], summary: Summary, console: Console) -> None:
    """Print the table, its sum, and how complete it is. Names are cut where a terminal's lines end."""
    widths = [width for _, width in table.columns[:-1]]
    room = max(_NAME_WIDTH, console.width - sum(width + 2 for width in widths))

    def line(cells: Sequence[str]) -> str:
        name = cells[-1]
        if console.is_terminal and cell_len(name) > room:
            name = f"{set_cell_size(name, room - 1).rstrip()}…"
        return "  ".join([*(f"{cell:>{width}}" for cell, width in zip(cells[:-1], widths, strict=True)), name])

    rule = line(["-" * width for _, width in table.columns])
    print_line(console, line([heading for heading, _ in table.columns]), "bold")
    print_line(console, rule)
    for row in rows:
        print_line(console, line(table.cells(row)))
    print_line(console, rule)
    print_line(console, line(table.cells(table.total(rows))), "bold")
    print_verdict(console, summary)


def _time_cells(share: float, time_ns: int) -> tuple[str, str]:
    return f"{100 * share:.2f}", f"{time_ns / NS_PER_S:.6f}"


def _share(time_ns: int, total_ns: int) -> float:
    return time_ns / total_ns if total_ns else 0.0
