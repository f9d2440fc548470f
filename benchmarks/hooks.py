"""What calls cost under each hook: programs where all calls pass (`raw`), or at each recorded call alone (`single`).

Loops of one call are timed inside of a recording and beside it (`gated.py`): pread64, which every choice of calls here
has, and getppid, which none has. perf record has the same default events.
"""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING, Any

from common import LO2IO, Settings, build, column, in_turns, middle, require, run, spread, table, verdict
from gated import ROUNDS, measured
from overhead import LOOP_BYTES, make_cached
from tracers import Lo2io, PerfRecord, Untraced

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from tracers import Tracer

    Row = dict[str, Any]

NAME = "hooks"
LETTER = "l"
RAW, SINGLE = HOOKS = ("raw", "single")
PARTS = 50
"""Parts that a loop is timed in. The lower quartile of their times counts."""
LOOPS = ("pread", "getppid")
CHOICES = {
    "6 calls": ("-e", "read,lseek"),
    "12 calls": ("-e", "read,write,lseek,openat"),
    "default": (),
}
"""Choices of calls; pread64 is in each, getppid in none."""
FEW = "6 calls"
TARGET_FEW_NS, TARGET_DEFAULT_NS, TARGET_OTHERS_NS = 70, 130, 180


def measure(settings: Settings) -> tuple[Row, list[Row]]:
    """Loops and starts under both hooks with each choice of calls."""
    require("perf", "gcc", "taskset")
    data = settings.directory / "data"
    make_cached(data, LOOP_BYTES)
    events, timed = build("events.c", settings.bin), build("timed.c", settings.bin)
    tracers: dict[str, Tracer] = {"untraced": Untraced()}
    tracers |= {
        f"{choice}, {hook}": Lo2io("--hook", hook, *options) for choice, options in CHOICES.items() for hook in HOOKS
    }
    tracers["default, perf record"] = PerfRecord()
    variants: dict[str, Callable[[], Row]] = {
        f"loops, {name}": measured(settings, events, data, tracer, modes=LOOPS, parts=PARTS)
        for name, tracer in tracers.items()
    }
    variants |= {
        f"start, {choice}, {hook}": _start(settings.directory, timed, ("--hook", hook, *options))
        for choice, options in CHOICES.items()
        for hook in HOOKS
    }
    rows = in_turns(NAME, variants, settings)
    return {"rounds": {mode: settings.scaled(ROUNDS[mode]) for mode in LOOPS}}, rows


def _start(folder: Path, timed: Path, options: Sequence[str]) -> Callable[[], Row]:
    def measure_one() -> Row:
        command = [LO2IO, "record", *options, "--no-convert", "-o", folder / "trace"]
        usage = run([*command, "--", timed, folder / "times.json", "true"], folder / "output.txt")
        times = json.loads((folder / "times.json").read_text(encoding="ascii"))
        shutil.rmtree(folder / "trace")
        return {
            "until_exec_s": (times["begin_ns"] - usage.begin_ns) / 1e9,
            "after_s": (usage.end_ns - times["end_ns"]) / 1e9,
            "background_s": usage.background_s,
        }

    return measure_one


def _extra(rows: Sequence[Row], name: str, key: str) -> list[float]:
    """What a call takes longer than untraced, inside or beside: both are the same loop there."""
    base = middle(rows, "loops, untraced", key)
    return [value - base for value in column(rows, f"loops, {name}", key)]


def render(document: Mapping[str, Any]) -> str:
    """Two tables and the verdict."""
    rows = document["runs"]
    keys = ("beside_getppid_ns", "beside_pread_ns", "inside_getppid_ns", "inside_pread_ns")
    names = [
        row["variant"].removeprefix("loops, ")
        for row in rows
        if row["run"] == 1 and row["variant"].startswith("loops, ") and row["variant"] != "loops, untraced"
    ]
    costs = [["untraced: ns a call", *(spread(column(rows, "loops, untraced", key), 0) for key in keys)]]
    costs += [[name, *(spread(_extra(rows, name, key), 0) for key in keys)] for name in names]
    starts = [
        [
            f"{choice}, {hook}",
            *(
                spread(column(rows, f"start, {choice}, {hook}", key), 3)
                for key in ("until_exec_s", "after_s", "background_s")
            ),
        ]
        for choice in CHOICES
        for hook in HOOKS
    ]
    head = ["ns more a call", "others, not chosen", "others, chosen", "recorded process, not chosen", "recorded"]
    return "\n\n".join([
        f"Medians and least to most of {max(row['run'] for row in rows)} runs in turns.",
        "What calls cost others and the recorded process; pread64 of 4 KiB from the page cache is chosen, not getppid:",
        table(head, costs),
        "Start and end of `record -- true`, in seconds:",
        table(["", "until the command runs", "until the prompt is back", "unseen, until all is closed"], starts),
        _verdict(rows),
    ])  # fmt: skip


def _verdict(rows: Sequence[Row]) -> str:
    def most(name: str, key: str) -> float:
        return middle(rows, f"loops, {name}", key) - middle(rows, "loops, untraced", key)

    few = most(f"{FEW}, {SINGLE}", "beside_getppid_ns")
    default = most(f"default, {RAW}", "beside_getppid_ns")
    others = most(f"default, {RAW}", "beside_pread_ns")
    return (
        f"Targets: a call that nobody records at most {TARGET_FEW_NS} ns more with 6 chosen calls: {few:.0f} "
        f"({verdict(met=few <= TARGET_FEW_NS)}), and {TARGET_DEFAULT_NS} ns with the default: {default:.0f} "
        f"({verdict(met=default <= TARGET_DEFAULT_NS)}); another process's chosen call {TARGET_OTHERS_NS} ns: "
        f"{others:.0f} ({verdict(met=others <= TARGET_OTHERS_NS)})."
    )
