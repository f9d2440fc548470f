"""The comparison after `make bench BENCH=quick`: what counts as worse, and which variants are measured for it."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The benchmarks' module of this name."""
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    monkeypatch.delitem(sys.modules, "quick", raising=False)
    import quick as module  # noqa: PLC0415 - only the benchmarks' folder has it

    return module


def rows(**variants: list[float]) -> list[dict[str, Any]]:
    """A run for each number of a variant, in turns; ``_`` stands for a space."""
    return [
        {"variant": name.replace("_", " "), "run": turn, "wall_s": value}
        for name, values in variants.items()
        for turn, value in enumerate(values, 1)
    ]


def figure(quick: Any, **more: Any) -> Any:
    """A ratio to the untraced."""
    return quick.Figure(
        "reads", "x", "overhead", "lo2io record", lambda row: row["wall_s"], untraced="untraced", **more
    )


def change(quick: Any, before: list[float], now: list[float], **more: Any) -> Any:
    """The change from the ratios of some turns to those of others."""
    return quick.Change(figure(quick, **more), quick.summed_up(before), quick.summed_up(now))


def test_a_run_is_divided_by_the_untraced_run_of_its_turn(quick: Any) -> None:
    """A slow minute slows both; a turn that lacks either does not count."""
    found = figure(quick).values(rows(untraced=[1, 2, 1], lo2io_record=[1.5, 3, 1.25, 9]), "lo2io record")
    assert found == [1.5, 1.5, 1.25]


@pytest.mark.parametrize(
    ("now", "verdict"),
    [
        ([1.30, 1.31, 1.32, 1.33, 1.34], ""),
        ([1.50, 1.51, 1.52, 1.53, 1.54], "worse"),
        ([1.10, 1.11, 1.12, 1.13, 1.14], "better"),
        ([1.30, 1.31, 1.32, 1.33, 9.00], ""),  # one disturbed turn
        ([1.00, 1.20, 1.52, 1.80, 2.00], ""),  # too noisy for a verdict
    ],
)
def test_a_figure_is_worse_beyond_its_tolerance(quick: Any, now: list[float], verdict: str) -> None:
    """The medians differ by more than turns do, and by more than a twentieth."""
    assert change(quick, [1.29, 1.30, 1.31, 1.32, 1.33], now).verdict == verdict


def test_a_change_below_a_figures_least_is_none(quick: Any) -> None:
    """0.01 s more of a start that takes 0.1 s are nothing, though all turns agree."""
    assert change(quick, [0.1] * 5, [0.11] * 5, least=0.02).verdict == ""
    assert change(quick, [0.1] * 5, [0.13] * 5, least=0.02).verdict == "worse"


def test_a_first_lost_event_is_worse(quick: Any) -> None:
    """From nothing lost, any loss in most turns is a change."""
    assert change(quick, [0.0] * 5, [3.0] * 5).verdict == "worse"


def test_each_figure_has_a_benchmark_with_a_scale(quick: Any) -> None:
    """Else it would not be measured. Each needs its own variant, and that which it is divided by."""
    assert {each.benchmark for each in quick.FIGURES} == quick.SHARES.keys()
    for each in quick.FIGURES:
        assert {each.variant, each.untraced} - {""} <= set(quick.chosen(each.benchmark))


def test_another_machine_is_not_judged(quick: Any) -> None:
    """Another build of the same kernel release is no other machine. A busy one makes no baseline."""
    line = {"cpu": "A", "cpus": 2, "kernel": "6.18.44-fc-v657", "load_average": 0.4}
    assert quick.why_not_judged(line, line | {"kernel": "6.18.44-fc-v669"}) == ""
    assert "kernel" in quick.why_not_judged(line, line | {"kernel": "6.19.0"})
    assert "cpus" in quick.why_not_judged(line, line | {"cpus": 4})
    assert "busy" in quick.why_not_judged(line | {"load_average": 2.0}, line)


def test_the_committed_baseline_has_every_figure(quick: Any) -> None:
    """A figure without a line would never be compared."""
    lines = quick.load(ROOT / "benchmarks/results/quick.jsonl")
    assert [line["figure"] for line in lines] == [each.name for each in quick.FIGURES]
    assert quick.measured_in([json.loads(json.dumps(line)) for line in lines]) == quick.measured_in(lines)
