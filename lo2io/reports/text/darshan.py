"""A log of Darshan as text, with what it does not tell. In: a :class:`~lo2io.reports.darshan.log.DarshanLog`."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from lo2io.reports.text.lines import ROWS, print_line, print_table, shorten
from lo2io.reports.words import count_of, printable
from lo2io.units import format_bytes, format_duration

if TYPE_CHECKING:
    from collections.abc import Callable

    from rich.console import Console

    from lo2io.reports.darshan.log import Counts, DarshanLog

UNKNOWN: Final = (
    "when each call was, how long it took, and which came first: a log has sums alone",
    "the page cache, block requests and waits: Darshan sees the program's calls, not the kernel",
    "files of the system (/usr, /proc …), which Darshan leaves out unless it is told otherwise",
)
_PATH_WIDTH: Final = 60


def render_log(log: DarshanLog, console: Console) -> None:
    """Print the job, sums by interface, and the files with most bytes."""
    print_line(console, printable(log.command) or printable(log.log), "bold")
    began = datetime.fromtimestamp(log.start_s, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    job = f"job {log.job} · {count_of(log.ranks, 'rank')} · {format_duration(log.run_ns)} from {began}"
    print_line(console, f"{job} · {count_of(log.nr_files, 'file')} · by Darshan {printable(log.version)}")
    rows = [[each.name, *_numbers(each.counts), *_times(each.counts)] for each in log.interfaces]
    heads = ["Interface", "opens", "reads", "writes", "read", "written", "in reads", "in writes", "in others"]
    print_table(console, heads, "lrrrrrrrr", rows)
    print_line(
        console, "Times are added up over ranks. Calls of MPI-IO and STDIO make POSIX calls: do not add rows up."
    )
    for each in log.interfaces:
        if each.is_partial:
            print_line(console, f"incomplete: Darshan had no room for further files of {each.name}", "bold yellow")
    shown = log.files[:ROWS]
    of_files = [
        [
            shorten(printable(file.path or "unnamed"), _PATH_WIDTH),
            file.interface,
            "all" if file.ranks is None else str(file.ranks),
            *_numbers(file.counts),
        ]
        for file in shown
    ]
    print_table(
        console, ["File", "interface", "ranks", "opens", "reads", "writes", "read", "written"], "llrrrrrr", of_files
    )
    print_line(console, "")
    print_line(console, "Not known:")
    for sentence in UNKNOWN:
        print_line(console, f"  {sentence}")
    if log.passed_over:
        print_line(console, f"Not shown: {', '.join(map(printable, log.passed_over))}")


def _numbers(counts: Counts) -> list[str]:
    number: Callable[[int], str] = "{:,}".format
    calls = [_cell(value, number) for value in (counts.opens, counts.reads, counts.writes)]
    return calls + [_cell(value, format_bytes) for value in (counts.bytes_read, counts.bytes_written)]


def _times(counts: Counts) -> list[str]:
    return [_cell(value, format_duration) for value in (counts.read_ns, counts.write_ns, counts.other_ns)]


def _cell(value: int | None, show: Callable[[int], str]) -> str:
    return "-" if value is None else show(value)
