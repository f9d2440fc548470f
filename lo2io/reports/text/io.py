"""The part of the page about time, latencies, slow calls, sizes, order of accesses, opens and metadata.

In: an :class:`~lo2io.reports.summary.io.IoSummary`. Out: lines on a rich console. Empty sections are left out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lo2io.reports.summary.classes import METADATA, STORAGE
from lo2io.reports.summary.io import TIME_PARTS, SlowRow
from lo2io.reports.text.lines import print_line, print_more, print_table
from lo2io.reports.words import duration_of, named, printable, share_of, who
from lo2io.units import format_bytes, format_duration

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from lo2io.reports.summary.histogram import Bin
    from lo2io.reports.summary.io import IoSummary, LatencyRow, OpenRow, PatternRow, TimeRow
    from lo2io.reports.summary.waits import WaitRow

ROWS: Final = 8
"""Rows of each table in this part; the JSON has more."""
REASONS: Final = 3
"""Reasons named beside a class of calls, unless they explain less than this part of its waits:"""
LEAST_SHARE: Final = 0.01
BARS: Final = "▁▂▃▄▅▆▇█"
_PLAIN_BARS: Final = "12345678"
_STORAGE: Final = frozenset(kind.name.lower() for kind in STORAGE)


def render_io(io: IoSummary, console: Console) -> None:
    """Print each section that has a row."""
    _time(io, console)
    _latencies(io.latencies, console)
    _slowest(io.slowest, console)
    _sizes(io, console)
    _patterns(io.patterns, console)
    _opens(io, console)


def file_name(row: PatternRow | OpenRow | SlowRow) -> str:
    """The path of a file, or the text that stands for it."""
    if row.kind == "unnamed":
        return f"unnamed fds of {who(row.pid, row.process)}"
    if row.kind == "none":
        return "-"
    return named(row.path, 1 if isinstance(row, SlowRow) else row.files)


def _time(io: IoSummary, console: Console) -> None:
    total = io.time.total
    if not total.time_ns:
        return
    if io.time.waits:
        _waits(io, console)
        return
    storage = [row for row in io.time.classes if row.kind in _STORAGE]
    others = [row for row in io.time.classes if row.kind not in _STORAGE]
    rows = [*storage[:ROWS], *([io.time.storage] if storage and others else []), *others[:ROWS], total]
    parts = [part for part in TIME_PARTS if getattr(total, part) is not None]
    if total.cpu_ns is not None and not total.unexplained_ns:
        parts.remove("unexplained_ns")
    headings = ["Where the time went", "calls", "time", "share", *(TIME_PARTS[part] for part in parts)]
    print_table(console, headings, "l" + "r" * (len(headings) - 1), [_time_cells(row, total, parts) for row in rows])
    print_more(console, max(0, len(storage) - ROWS) + max(0, len(others) - ROWS))
    if not io.time.requests_recorded:
        print_line(console, "block requests were not recorded: device and queue are not known")
    if total.cpu_ns is None and total.unexplained_ns:
        print_line(console, "not explained: on a CPU, or blocked; --sched tells")
    if io.time.off_cpu:
        states = (f"{row.state} {format_duration(row.time_ns)}" for row in io.time.off_cpu)
        print_line(console, f"in calls without a CPU: {', '.join(states)}")


def _waits(io: IoSummary, console: Console) -> None:
    """Where the time went, by reason."""
    total, all_storage, *classes = io.time.waits
    storage = [row for row in classes if row.kind in _STORAGE]
    others = [row for row in classes if row.kind not in _STORAGE]
    rows = [*storage[:ROWS], *([all_storage] if storage and others else []), *others[:ROWS], total]
    headings = ["Where the time went", "calls", "time", "share", "CPU", "run queue", "waited", "for"]
    if total.unknown_ns:
        headings.insert(-2, "unknown")
    print_table(console, headings, "l" + "r" * (len(headings) - 2) + "l", [_wait_cells(row, total) for row in rows])
    print_more(console, max(0, len(storage) - ROWS) + max(0, len(others) - ROWS))
    for line in phases_of(total):
        print_line(console, line)


def phases_of(row: WaitRow) -> list[str]:
    """A line for each reason whose phases are known."""
    return [
        f"waited for the {reason.reason}: "
        + ", ".join(f"{part.phase} {share_of(part.time_ns / reason.time_ns)}" for part in reason.phases)
        for reason in row.reasons
        if reason.phases
    ]


def _wait_cells(row: WaitRow, total: WaitRow) -> list[str]:
    parts = [row.cpu_ns, row.run_queue_ns, *([row.unknown_ns] if total.unknown_ns else []), row.blocked_ns]
    kind = "= storage" if row.kind == "storage" else row.kind
    share = share_of(row.time_ns / total.time_ns)
    return [
        kind,
        f"{row.calls:,}",
        format_duration(row.time_ns),
        share,
        *(format_duration(part) if part else "-" for part in parts),
        ", ".join(
            f"{each.reason} {share_of(each.time_ns / row.blocked_ns)}"
            for each in row.reasons[:REASONS]
            if each.time_ns >= LEAST_SHARE * row.blocked_ns
        ),
    ]


def _time_cells(row: TimeRow, total: TimeRow, parts: Sequence[str]) -> list[str]:
    share = share_of(row.time_ns / total.time_ns)
    shown = [format_duration(getattr(row, part)) if getattr(row, part) else "-" for part in parts]
    kind = "= storage" if row.kind == "storage" else row.kind
    return [kind, f"{row.calls:,}", format_duration(row.time_ns), share, *shown]


def _latencies(latencies: Sequence[LatencyRow], console: Console) -> None:
    """Draw a bar for each power of two. All lines have the same scale."""
    rows = [row for row in latencies if row.phase == "call"][:ROWS]
    rows += [row for row in latencies if row.phase != "call"][: 2 * ROWS]
    if not rows:
        return
    powers = [bin_.least_ns.bit_length() for row in rows for bin_ in row.histogram]
    low, high = min(powers), max(powers)
    bars = BARS if _can_print(console, BARS) else _PLAIN_BARS
    cells = []
    for row in rows:
        name = row.operation if row.phase == "call" else f"{printable(row.subject)} {row.operation}, {row.phase}"
        lat = row.latency
        times = (duration_of(lat, value) for value in (lat.p50_ns, lat.p95_ns, lat.p99_ns, lat.max_ns))
        cells.append([name, f"{lat.nr:,}", draw(row.histogram, low, high, bars), *times])
    span = f"{format_duration(_least(low))} … {format_duration(_least(high + 1))}, x2 each"
    if bars is not BARS:
        span = span.replace("…", "to")
    print_table(console, ["Latency", "times", span, "p50", "p95", "p99", "max"], "lrlrrrr", cells)


def _can_print(console: Console, text: str) -> bool:
    try:
        text.encode(console.encoding)
    except (UnicodeEncodeError, LookupError):
        return False
    return True


def _least(bits: int) -> int:
    return 1 << bits - 1 if bits else 0


def draw(histogram: Sequence[Bin], low: int, high: int, bars: str = BARS) -> str:
    """A character for each power of two from bit length ``low`` to ``high``, by the bin's share of the fullest one."""
    counts = {bin_.least_ns.bit_length(): bin_.nr for bin_ in histogram}
    most = max(counts.values(), default=1)
    return "".join(
        bars[-(-counts[power] * len(bars) // most) - 1] if power in counts else "·" if bars is BARS else "."
        for power in range(low, high + 1)
    )


def _slowest(rows: Sequence[SlowRow], console: Console) -> None:
    if not rows:
        return
    cells = []
    for row in rows[:ROWS]:
        what = row.call if row.error is None else f"{row.call} {row.error}"
        where = "-" if row.offset_bytes is None else f"{row.offset_bytes:,}"
        size = "-" if row.bytes is None else format_bytes(row.bytes)
        thread = f"{who(row.tid, row.comm)}"
        place = [where, size, thread, format_duration(row.at_ns)]
        cells.append([file_name(row), what, format_duration(row.duration_ns), *place])
    print_table(console, ["Slowest: file", "call", "took", "offset", "size", "thread", "at"], "llrrrlr", cells)
    print_more(console, len(rows) - ROWS)


def _sizes(io: IoSummary, console: Console) -> None:
    cells, notes = [], []
    for row in io.accesses:
        shares = (row.consecutive, row.sequential, row.random)
        numbers = [f"{row.accesses:,}", _share(row.small, row.accesses), f"{row.placed:,}"]
        numbers += [_share(part, row.placed) for part in shares]
        cells.append([f"{row.operation}s", *numbers, format_bytes(row.again_bytes)])
        common = list(row.common.items())[:4]
        notes.append(f"{row.operation}s of {', '.join(f'{size:,} B: {number:,}' for size, number in common)}")
    if cells:
        headings = ["Accesses", "number", "< 4 KiB", "order known", "consecutive", "sequential", "random"]
        headings += ["again, at least"]
        print_table(console, headings, "lrrrrrrr", cells)
        for note in notes:
            print_line(console, f"  {note}")


def _share(part: int, whole: int) -> str:
    return share_of(part / whole) if whole else "-"


def _patterns(rows: Sequence[PatternRow], console: Console) -> None:
    if not rows:
        return
    cells = []
    for row in rows[:ROWS]:
        shares = (row.consecutive, row.sequential, row.random)
        numbers = [f"{row.accesses:,}", _share(row.small, row.accesses), *(_share(part, row.placed) for part in shares)]
        extent = format_bytes(row.extent_bytes) if row.bytes else "-"
        again = format_bytes(row.again_bytes) if row.bytes else "-"
        cells.append([file_name(row), f"{row.operation}s", *numbers, extent, again])
    headings = ["Accesses by file", "", "number", "< 4 KiB", "consec.", "seq.", "random", "extent", "again"]
    print_table(console, headings, "llrrrrrrr", cells)
    print_more(console, len(rows) - ROWS)


def _opens(io: IoSummary, console: Console) -> None:
    kinds = {kind.name.lower() for kind in METADATA}
    found = [row for row in io.time.classes if row.kind in kinds]
    if found:
        cells = [[row.kind, f"{row.calls:,}", f"{row.errors:,}", format_duration(row.time_ns)] for row in found]
        print_table(console, ["Opens and metadata", "calls", "errors", "time"], "lrrr", cells)
    files = [row for row in io.opens if row.kind != "none"][:ROWS]
    cells = []
    for row in files:
        sync = format_duration(row.sync_ns) if row.syncs else "-"
        lock = format_duration(row.lock_ns) if row.locks else "-"
        cells.append([file_name(row), f"{row.opens:,}", f"{row.syncs:,}", sync, f"{row.locks:,}", lock])
    if cells:
        print_table(console, ["Opened, synced, locked", "opens", "syncs", "time", "locks", "time"], "lrrrrr", cells)
        print_more(console, len(io.opens) - len(files))
