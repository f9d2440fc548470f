"""How quickly lo2io starts: until the command runs, until the prompt is back, and until help is printed."""

from __future__ import annotations

import json
import shutil
import subprocess
from typing import TYPE_CHECKING, Any

from common import LO2IO, Settings, build, column, in_turns, lo2io, middle, run, spread, table, verdict

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

NAME = "start"
LETTER = "d"
TARGET_RECORD_S, TARGET_UNTIL_S, TARGET_AGAIN_S = 0.25, 0.1, 0.4
TARGET_HELP_S = 0.2
HELP, RECORD, AGAIN, BARE = "lo2io --help", "lo2io record -- true", "the same at once again", "python -c pass"


def measure(settings: Settings) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Measure help, an empty recording, and the bare interpreter on which both stand."""
    timed = build("timed.c", settings.bin)
    folder, output = settings.directory, settings.directory / "output.txt"
    python = LO2IO.parent / "python"

    def only(*command: object) -> dict[str, Any]:
        usage = run(command, output)
        return {"wall_s": usage.wall_s, "cpu_s": usage.cpu_s}

    variants = {
        HELP: lambda: only(lo2io(), "--help"),
        RECORD: lambda: _record(folder, output, timed),
        AGAIN: lambda: _record_again(folder, output, timed),
        BARE: lambda: only(python, "-c", "pass"),
    }
    for warm in variants.values():
        warm()
    return {}, in_turns(NAME, variants, settings, ours=(HELP, RECORD))


def _record(folder: Path, output: Path, timed: Path) -> dict[str, Any]:
    """`timed` writes when it began; its own time is a millisecond."""
    usage = run([lo2io(), "record", "-o", folder / "trace", "--", timed, folder / "times.json", "true"], output)
    times = json.loads((folder / "times.json").read_text(encoding="ascii"))
    shutil.rmtree(folder / "trace")
    return {
        "wall_s": usage.wall_s,
        "cpu_s": usage.cpu_s,
        "until_exec_s": (times["begin_ns"] - usage.begin_ns) / 1e9,
        "after_s": (usage.end_ns - times["end_ns"]) / 1e9,
        "background_s": usage.background_s,
    }


def _record_again(folder: Path, output: Path, timed: Path) -> dict[str, Any]:
    """Record while the kernel still closes the events of a recording that has just ended."""
    with (folder / "before.txt").open("wb") as file:
        command = [lo2io(), "record", "-o", folder / "before", "--", "true"]
        subprocess.run(command, stdout=file, stderr=file, check=True)
    shutil.rmtree(folder / "before")
    return _record(folder, output, timed)


def render(document: Mapping[str, Any]) -> str:
    """Table and verdict."""
    rows = document["runs"]

    def line(text: str, variant: str, key: str) -> list[str]:
        return [text, spread(column(rows, variant, key), 3)]

    lines = [
        line("`lo2io --help`", HELP, "wall_s"),
        line("`lo2io record -- true`: until the command runs", RECORD, "until_exec_s"),
        line("… from the command's end until the prompt", RECORD, "after_s"),
        line("… in all", RECORD, "wall_s"),
        line("… and unseen by the user, until the kernel has closed the events", RECORD, "background_s"),
        line("`lo2io record -- true` right after another recording", AGAIN, "wall_s"),
        line("`python -c pass`, for scale", BARE, "wall_s"),
    ]
    record, again, help_ = (middle(rows, name, "wall_s") for name in (RECORD, AGAIN, HELP))
    until = middle(rows, RECORD, "until_exec_s")
    return (
        f"Medians and least to most of {len(column(rows, HELP, 'wall_s'))} runs, files in the page cache.\n\n"
        f"{table(['', 's'], lines)}\n\n"
        f"Targets: `record -- true` within {TARGET_RECORD_S} s: {record:.2f} "
        f"({verdict(met=record <= TARGET_RECORD_S)}), until the command runs {TARGET_UNTIL_S} s: {until:.2f} "
        f"({verdict(met=until <= TARGET_UNTIL_S)}), after another recording {TARGET_AGAIN_S} s: {again:.2f} "
        f"({verdict(met=again <= TARGET_AGAIN_S)}); `--help` within {TARGET_HELP_S} s: {help_:.3f} "
        f"({verdict(met=help_ <= TARGET_HELP_S)})."
    )
