"""How long the user waits after the command: from its end until the prompt is back, with trace and summary made.

Three commands: fio's cached reads (one file, one handle), the same reads four times (which shows the fixed part), and a
loop that opens, reads and closes small files (every fourth call makes a handle, the most that a trace must define).
"""

from __future__ import annotations

import json
import shutil
from functools import partial
from statistics import median
from typing import TYPE_CHECKING, Any

from common import (
    HERE,
    LO2IO,
    Settings,
    answer,
    build,
    column,
    in_turns,
    lo2io,
    middle,
    require,
    run,
    size_of,
    spread,
    table,
    verdict,
)
from overhead import fio_command, make_cached

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

NAME = "aftermath"
EVENTS_ALONE = "OTF2 events alone"
LETTER = "b"
CALLS = 1_000_000
EVENTS_PER_OPERATION = 4
"""Of OTF2, for a call that reads: otf2_events.py."""
TARGET_S = 0.25
"""Per million calls."""
HEAD = [
    *("", "calls", "s until the prompt", "s per million calls", "bytes a call", "peak memory MiB"),
    "events closed unseen, s",
]


def measure(settings: Settings) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Record each command with all defaults, and note when the prompt returns."""
    require("fio", "gcc")
    folder, calls = settings.directory, settings.scaled(CALLS)
    timed, loop = (build(source, settings.bin) for source in ("timed.c", "calls.c"))
    make_cached(folder / "data")
    (folder / "files").mkdir()
    reads = [fio_command(folder / "data", count, folder / "fio.json") for count in (calls, 4 * calls)]
    variants = {
        "fio": _record(folder, timed, reads[0]),
        "fio, four times": _record(folder, timed, reads[1]),
        "small files": _record(folder, timed, [str(loop), "files", str(calls // 4), str(folder / "files")]),
    }
    ours = tuple(variants)
    variants[EVENTS_ALONE] = partial(_write_alone, folder, calls)
    return {"calls": calls}, in_turns(NAME, variants, settings, ours=ours)


def _write_alone(folder: Path, calls: int) -> dict[str, Any]:
    """The floor: one core's time for the OTF2 events of as many calls, without all that comes before and beside."""
    answered = answer(LO2IO.parent / "python", HERE / "otf2_events.py", "--operations", calls, "--threads", 1,
                      "--repeat", 1, "--directory", folder)  # fmt: skip
    million_events_per_s, bytes_per_operation = map(float, answered.split()[:2])
    after_s = calls * EVENTS_PER_OPERATION / 1e6 / million_events_per_s
    return {"after_s": after_s, "calls": calls, "bytes": calls * bytes_per_operation}


def _record(folder: Path, timed: Path, command: Sequence[str]) -> Callable[[], dict[str, Any]]:
    def record() -> dict[str, Any]:
        trace, times = folder / "trace", folder / "times.json"
        usage = run([lo2io(), "record", "-o", trace, "--", timed, times, *command], folder / "output.txt")
        ended_ns = json.loads(times.read_text(encoding="ascii"))["end_ns"]
        report = run([lo2io(), "report", trace, "--json"], folder / "report.json")
        summary = json.loads((folder / "report.json").read_text(encoding="utf-8"))
        size = size_of(trace)
        shutil.rmtree(trace)
        return {
            "after_s": (usage.end_ns - ended_ns) / 1e9,
            "calls": summary["activity"]["calls"],
            "bytes": size,
            "lost": summary["completeness"]["lost"],
            "max_rss_bytes": usage.max_rss_bytes,
            "report_s": report.wall_s,
            "background_s": usage.background_s,
        }

    return record


def render(document: Mapping[str, Any]) -> str:
    """Table and verdict."""
    rows = document["runs"]
    names = list(dict.fromkeys(row["variant"] for row in rows))
    ours = {row["variant"] for row in rows if not row.get("baseline")} - {EVENTS_ALONE}
    for row in rows:
        row["per_million_s"] = row["after_s"] / row["calls"] * 1e6
    lines = [
        [
            name,
            f"{middle(rows, name, 'calls'):,.0f}",
            spread(column(rows, name, "after_s")),
            spread(column(rows, name, "per_million_s")),
            _bytes_a_call(rows, name),
            *([""] * 2 if name == EVENTS_ALONE else _of_recorder(rows, name)),
        ]
        for name in names
    ]
    worst = max(middle(rows, name, "per_million_s") for name in ours)
    return (
        f"Medians and least to most of {len(rows) // len(names)} runs in turns.\n\n{table(HEAD, lines)}\n\n"
        f"Target: at most {TARGET_S} s per million calls: {worst:.2f} at worst "
        f"({verdict(met=worst <= TARGET_S)})."
    )


def _bytes_a_call(rows: Sequence[Mapping[str, Any]], name: str) -> str:
    sizes = [row["bytes"] / row["calls"] for row in rows if row["variant"] == name and "bytes" in row]
    return f"{median(sizes):.0f}" if sizes else ""  # a kept result that is older than the column has none


def _of_recorder(rows: Sequence[Mapping[str, Any]], name: str) -> list[str]:
    return [
        spread([rss / 2**20 for rss in column(rows, name, "max_rss_bytes")], 0),
        spread(column(rows, name, "background_s"), 1),
    ]
