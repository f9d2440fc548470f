"""The figures in five minutes, compared with those of an earlier commit: `make bench BENCH=quick`.

Each benchmark runs with less work, and with those variants alone that its figures need. The comparison is with the
committed lines of results/quick.jsonl, or with another commit that is measured in the same turns (``--baseline``). A
figure is worse if it grew by more than its tolerance (:func:`tolerance`).
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from math import hypot, sqrt
from typing import TYPE_CHECKING, Any

from common import BenchError, baseline_name, table
from figures import FIGURES, PERF, Figure, Measured, summed_up

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

SHARES = {
    "overhead": (0.3, 45), "backends": (0.2, 20), "rings": (0.3, 30), "machine": (0.2, 75), "prices": (0.2, 15),
    "rates": (0.2, 35), "start": (1.0, 5), "aftermath": (1.0, 20),
}  # fmt: skip
"""The share of the full work, by benchmark, and after how many seconds no further turn begins."""
PERF_IN = frozenset(("overhead",))
"""Benchmarks in which perf record runs, too: it shows whether lo2io became slower, or the machine did."""
SAME = 0.05
"""A change by this share counts as none: so much can differ between two boots of one kernel."""
ERRORS = 3
"""Standard errors by which two medians must differ."""
MEDIAN_ERROR = 1.25
"""A median's standard error in standard deviations, times the root of the number of values (normal distribution)."""


@dataclass(frozen=True)
class Change:
    """A figure before and now."""

    figure: Figure
    before: Measured
    now: Measured

    @property
    def worse_by(self) -> float:
        """How much the figure grew, in its unit."""
        return self.now.value - self.before.value

    @property
    def verdict(self) -> str:
        """Worse or better, beyond the tolerance; else empty."""
        limit = tolerance(self.figure, self.before, self.now)
        if abs(self.worse_by) <= limit:
            return ""
        return "worse" if self.worse_by > 0 else "better"


def tolerance(figure: Figure, before: Measured, now: Measured) -> float:
    """The change that chance can make, in the figure's unit.

    Three standard errors of the difference of two medians. The distance of the quartiles stands for the standard
    deviation: of five normal values it is as large, and one disturbed turn does not change it. The tolerance is never
    below :data:`SAME`, nor below what the figure itself calls the least change.
    """
    error = MEDIAN_ERROR * hypot(*(each.spread / sqrt(each.turns) for each in (before, now)))
    return max(ERRORS * error, SAME * before.value, figure.least)


def chosen(benchmark: str) -> list[str]:
    """The variants of a benchmark that its figures need."""
    names = set()
    for figure in FIGURES:
        if figure.benchmark == benchmark:
            names |= {figure.variant, figure.untraced, figure.beside.get(PERF, "") if benchmark in PERF_IN else ""}
    return sorted(names - {""})


def lines_of(documents: Mapping[str, Mapping[str, Any]]) -> list[dict[str, Any]]:
    """One line of JSON for each figure, from results by benchmark.

    Raises:
        BenchError: A figure was not measured.
    """
    lines = []
    for figure in FIGURES:
        document = documents[figure.benchmark]
        found = summed_up(figure.values(document["runs"], figure.variant))
        if found is None:
            raise BenchError(f"nothing was measured for {figure.name}")
        perf = summed_up(figure.values(document["runs"], figure.beside.get(PERF, "")))
        lines.append({
            "figure": figure.name,
            "value": found.value,
            "unit": figure.unit,
            "spread": list(found.quartiles),
            "turns": found.turns,
            **({PERF: perf.value} if perf else {}),
            **{key: document["machine"][key] for key in ("commit", "kernel", "cpus", "cpu", "load_average", "date")},
        })  # fmt: skip
    return lines


def measured_in(lines: Sequence[Mapping[str, Any]]) -> dict[str, Measured]:
    """The figures of lines, by name."""
    return {line["figure"]: Measured(line["value"], tuple(line["spread"]), line["turns"]) for line in lines}


def measured_of_baseline(documents: Mapping[str, Mapping[str, Any]], commit: str) -> dict[str, Measured]:
    """The figures of another commit that ran in the same turns."""
    found = {}
    for figure in FIGURES:
        rows = documents[figure.benchmark]["runs"]
        if (summed := summed_up(figure.values(rows, baseline_name(figure.variant, commit)))) is not None:
            found[figure.name] = summed
    return found


def changes(before: Mapping[str, Measured], now: Mapping[str, Measured]) -> list[Change]:
    """The figures that were measured both times."""
    return [
        Change(figure, before[figure.name], now[figure.name])
        for figure in FIGURES
        if figure.name in before and figure.name in now
    ]


def render(found: Sequence[Change]) -> str:
    """A line for each figure."""
    rows = []
    for each in found:
        base = each.before.value
        share = f"{100 * each.worse_by / base:+.1f} %" if base else f"{each.worse_by:+,.2f}"
        limit = tolerance(each.figure, each.before, each.now)
        allowed = f"{100 * limit / base:.1f} %" if base else f"{limit:,.2f}"
        unit = each.figure.unit
        rows.append(
            [f"{each.figure.name}, {unit}", f"{base:,.3f}", f"{each.now.value:,.3f}", share, allowed, each.verdict]
        )
    return table(["figure", "baseline", "now", "change", "tolerance", ""], rows)


def why_not_judged(before: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """Why the figures of two lines cannot be compared; empty: they can."""
    if before["load_average"] >= before["cpus"]:
        return f"the baseline was measured on a busy machine (load average {before['load_average']})"
    for key in ("cpu", "cpus"):
        if before[key] != now[key]:
            return f"the baseline is of another machine ({key}: {before[key]}, here {now[key]})"
    kernels = [line["kernel"].partition("-")[0] for line in (before, now)]
    if kernels[0] != kernels[1]:
        return f"the baseline is of another kernel ({kernels[0]}, here {kernels[1]})"
    return ""


def load(path: Path) -> list[dict[str, Any]]:
    """The lines of a baseline.

    Raises:
        BenchError: There is none.
    """
    try:
        return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    except FileNotFoundError as error:
        raise BenchError(f"no {path}: `benchmarks/run.py quick --update-baseline` writes it") from error
