"""The figures that tell what recording costs, each from the results of a benchmark.

All are better when smaller. Three uses share them: the table that performance.md begins with, `make bench BENCH=quick`,
and the comparison with another commit.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from statistics import median, quantiles
from typing import TYPE_CHECKING, Any

from aftermath import EVENTS_ALONE
from aftermath import NAME as AFTERMATH
from backends import BPF, LOOPS
from backends import NAME as BACKENDS
from common import baseline_name, table
from machine import DEFAULT_JOBS, LAST
from machine import NAME as MACHINE
from overhead import NAME as OVERHEAD
from prices import FUTEX, NEIGHBOUR, SCHED
from prices import NAME as PRICES
from rates import FLIGHT
from rates import NAME as RATES
from rings import NAME as RINGS
from start import NAME as START
from start import RECORD
from tracers import FLOOR, SMALLEST

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    Row = Mapping[str, Any]

PERF, BPFTRACE, STRACE = RIVALS = ("perf record -a", "bpftrace", "strace")


@dataclass(frozen=True)
class Figure:
    """One number that should be small.

    Attributes:
        name: What it is, in the tables.
        unit: The unit; `x` is a ratio to the untraced.
        benchmark: The name of the benchmark whose result has it.
        variant: The variant of lo2io.
        of: The number of one run, from its row.
        untraced: The variant by whose number of the same turn it is divided; empty: it is not.
        beside: The variants of other recorders, by recorder.
        goal: What the figure should be at most; None: there is no goal.
        floor: The variant that does the least that such a recorder must do; empty: none was measured.
        smallest: The variant that writes the smallest records in its stead; empty: none was measured.
        floor_in: The name of the benchmark that measures the floor; empty: the figure's own.
        least: A change below this counts as none, in the figure's unit.
    """

    name: str
    unit: str
    benchmark: str
    variant: str
    of: Callable[[Row], float]
    untraced: str = ""
    beside: Mapping[str, str] = field(default_factory=dict)
    least: float = 0.0
    goal: float | None = None
    floor: str = ""
    smallest: str = ""
    floor_in: str = ""

    def values(self, rows: Sequence[Row], variant: str) -> list[float]:
        """The numbers of all turns in which the variant ran; empty: it did not run, or its rows lack the number."""
        found = self._by_turn(rows, variant)
        if not self.untraced:
            return list(found.values())
        alone = self._by_turn(rows, self.untraced)
        return [value / alone[turn] for turn, value in found.items() if turn in alone]

    def _by_turn(self, rows: Sequence[Row], variant: str) -> dict[int, float]:
        found = {row["run"]: _number(self.of, row) for row in rows if row["variant"] == variant}
        return {turn: value for turn, value in found.items() if value is not None}


def _number(of: Callable[[Row], float], row: Row) -> float | None:
    try:
        return of(row)
    except KeyError:  # a kept result that is older than the figure
        return None


def _key(name: str, factor: float = 1) -> Callable[[Row], float]:
    return lambda row: factor * row[name]


def _lost(row: Row) -> float:
    """Events lost to full buffers: those that vanished without a trace are the machine's, not the recorder's."""
    return row["lost"] - row.get("vanished", 0)


def _end(row: Row) -> float:
    return 1e6 * row["after_s"] / row["calls"]


def _bytes_a_call(row: Row) -> float:
    return row["bytes"] / (row["calls"] if row["variant"] == EVENTS_ALONE else row["reads"])


def _loops() -> list[Figure]:
    beside = {PERF: "loops, perf record -a", BPFTRACE: "loops, bpftrace, counting", STRACE: "loops, strace"}
    return [
        Figure(f"loop of {LOOPS[mode]}", "x", BACKENDS, f"loops, {BPF}", _key(f"inside_{mode}_ns"),
               "loops, untraced", beside, goal=goal, floor=f"loops, {FLOOR}", smallest=f"loops, {SMALLEST}")
        for mode, goal in (("pread", 1.4), ("seek", 1.5), ("pwrite", 1.35), ("open", 1.3))
    ]  # fmt: skip


def _direct() -> list[Figure]:
    return [
        Figure(f"{job}, direct, depth 32, wall clock", "x", MACHINE, f"{job}, lo2io system-wide -a", _key("wall_s"),
               f"{job}, untraced", {PERF: f"{job}, perf record -a", BPFTRACE: f"{job}, bpftrace, sums"},
               goal=1.03, floor=f"{job}, {FLOOR}")
        for job in DEFAULT_JOBS
    ]  # fmt: skip


def _cached() -> list[Figure]:
    beside = {PERF: "cached, perf record -a", BPFTRACE: "cached, bpftrace, sums"}
    return [
        Figure(f"cached reads of one process, `{name.removeprefix('lo2io ')}`, wall clock", "x", MACHINE,
               f"cached, {name}", _key("wall_s"), "cached, untraced", beside, goal=1.4, floor=f"cached, {FLOOR}")
        for name in ("lo2io system-wide -a", LAST)
    ]  # fmt: skip


def _rings() -> list[Figure]:
    return [
        Figure(text, "x", RINGS, f"{job}, lo2io record", _key("wall_s"), f"{job}, untraced",
               {PERF: f"{job}, perf record -a", BPFTRACE: f"{job}, bpftrace, counting"},
               goal=goal, floor=f"{job}, {FLOOR}", smallest=f"{job}, {SMALLEST}")
        for job, text, goal in (
            ("nop", "io_uring NOPs, 32 a call", 4),
            ("cached", "cached reads through a ring, 32 a call", 1.3),
        )
    ]  # fmt: skip


_FIO = {PERF: "perf record -a", BPFTRACE: "bpftrace, sums", STRACE: "strace -f -c"}
FIGURES = (
    Figure("fio psync, cached pread 4 KiB, wall clock", "x", OVERHEAD, "lo2io record", _key("wall_s"), "untraced",
           _FIO, goal=1.25, floor=FLOOR),
    *_loops(),
    *_rings(),
    *_direct(),
    *_cached(),
    Figure("cached pread of a neighbour that is filtered out (`--cgroup`)", "x", PRICES, NEIGHBOUR, _key("round_ns"),
           "untraced pread", goal=1.15, floor=f"{NEIGHBOUR}, {FLOOR}"),
    Figure("pipe ping-pong with `--sched`", "x", PRICES, SCHED, _key("round_ns"), "untraced switch",
           {PERF: f"{SCHED}, perf record -a"}, goal=1.1, floor=f"{SCHED}, {FLOOR}",
           smallest=f"{SCHED}, {SMALLEST}"),
    Figure("futex ping-pong with `-e +futex`", "x", PRICES, FUTEX, _key("round_ns"), "untraced futex",
           {PERF: f"{FUTEX}, perf record -a"}, floor=f"{FUTEX}, {FLOOR}", smallest=f"{FUTEX}, {SMALLEST}"),
    Figure("idle, `-a`", "% of one CPU", RATES, "idle, lo2io system-wide -a", _key("share", 100),
           beside={PERF: "idle, perf record -a"}, least=0.5, goal=0.3),
    Figure("idle, flight recorder `-a --last 60s` with 5,000 processes", "% of one CPU", RATES, f"idle, {FLIGHT}",
           _key("share", 100), least=0.5, goal=0.5),
    Figure("start, until the command runs", "s", START, RECORD, _key("until_exec_s"), least=0.02,
           goal=0.1),
    Figure("start and end of `record -- true`", "s", START, RECORD, _key("wall_s"), least=0.03, goal=0.25),
    Figure("end, per million calls", "s", AFTERMATH, "fio", _end, least=0.05, goal=0.25, floor=EVENTS_ALONE),
    Figure("events lost at default buffers, two readers", "events", RATES, "2 at once, lo2io system-wide -a", _lost,
           beside={PERF: "2 at once, perf record -a"}, goal=0),
    Figure("trace per call", "bytes", OVERHEAD, "lo2io record", _bytes_a_call,
           beside={PERF: "perf record -a"}, least=0.5, goal=60, floor=EVENTS_ALONE, floor_in=AFTERMATH),
)  # fmt: skip


@dataclass(frozen=True)
class Measured:
    """A figure's turns.

    Attributes:
        value: The median.
        quartiles: The lower and the upper one.
        turns: Number of turns.
    """

    value: float
    quartiles: tuple[float, float]
    turns: int

    @property
    def spread(self) -> float:
        """The distance of the quartiles."""
        return self.quartiles[1] - self.quartiles[0]


def summed_up(values: Sequence[float]) -> Measured | None:
    """Median and quartiles; None if nothing was measured."""
    if not values:
        return None
    low, _, high = quantiles(values, method="inclusive") if len(values) > 1 else [values[0]] * 3
    return Measured(median(values), (low, high), len(values))


def overview(documents: Mapping[str, Mapping[str, Any]]) -> str:
    """All figures of the kept results, lo2io's beside those of the baseline and of other recorders.

    Args:
        documents: Results by benchmark.
    """
    commits = {document["baseline"] for document in documents.values() if document.get("baseline")}
    baseline = commits.pop() if len(commits) == 1 else ""
    lines = [_line(figure, documents, baseline) for figure in FIGURES]
    head = ["", "lo2io", "goal", "floor", "smallest records", *([f"`{baseline}`"] if baseline else []), *RIVALS]
    return (
        "Medians of runs in turns, for lo2io with the quartiles. Figures with x are ratios to the untraced run of the "
        "same turn. A floor is what the kernel takes for empty programs at the same tracepoints, or what lo2io "
        "takes to write the OTF2 events of as many operations and nothing else. The smallest records are 32 bytes at "
        "each of these tracepoints, with the clock and nothing that takes time to find.\n\n"
        f"{table(head, lines)}"
    )


def _line(figure: Figure, documents: Mapping[str, Mapping[str, Any]], baseline: str) -> list[str]:
    rows = documents.get(figure.benchmark, {}).get("runs", [])
    ours = summed_up(figure.values(rows, figure.variant))
    cells = [figure.name if figure.unit == "x" else f"{figure.name} ({figure.unit})"]
    if ours is None:
        cells.append("not measured")
    elif ours.spread:
        cells.append(f"{_text(figure, ours.value)} ({' to '.join(_text(figure, each) for each in ours.quartiles)})")
    else:
        cells.append(_text(figure, ours.value))
    cells.append("" if figure.goal is None else _text(figure, figure.goal))
    floor_rows = documents.get(figure.floor_in, {}).get("runs", []) if figure.floor_in else rows
    beside = [baseline_name(figure.variant, baseline)] if baseline else []
    beside = [figure.smallest, *beside, *(figure.beside.get(rival, "") for rival in RIVALS)]
    for runs, variant in ((floor_rows, figure.floor), *((rows, name) for name in beside)):
        found = summed_up(figure.values(runs, variant))
        cells.append(_text(figure, found.value) if found else "")
    return cells


def _text(figure: Figure, value: float) -> str:
    if figure.unit == "x":
        return f"{value:,.2f} x"
    return f"{value:,.0f}" if figure.unit in ("events", "bytes") or value >= 1000 else f"{value:,.2f}"
