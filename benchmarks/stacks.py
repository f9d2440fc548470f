"""What a call pays whose stack is taken: ``--stacks``, beside ``perf record --call-graph dwarf``.

A loop of cached reads runs below few frames, and below more than lo2io copies. Every read has a stack. The price is the
difference to the same recording without stacks. The buffers are large enough for all copies.
"""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any

from common import Settings, build, column, in_turns, lo2io, require, run, table

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    Row = dict[str, Any]

NAME = "stacks"
LETTER = "n"
READS = 3_000
DEPTHS = {"1 frame": 1, "60 frames of 256 bytes": 60}
RING = "128MiB"
LO2IO, PERF = "lo2io", "perf record"
EVENT = "syscalls:sys_exit_pread64"
PAIRS = {
    f"{LO2IO}, frame pointers and a copy of 8 KiB (`--stacks 0s`)": LO2IO,
    f"{PERF} -e {EVENT} --call-graph dwarf,8192": PERF,
    f"{PERF} -e {EVENT} --call-graph fp": PERF,
}
"""Variant with stacks → the one without."""


def _commands(folder: Path, workload: Path) -> dict[str, list[str]]:
    ours = [str(lo2io()), "record", "-q", "--no-convert", "--ring", RING, "-o", str(folder / "recorded")]
    perf = ["perf", "record", "-q", "-m", "64M", "-e", EVENT, "-o", str(folder / "perf.data")]
    with_stacks, dwarf, pointers = PAIRS
    tail = ["--", str(workload)]
    return {
        LO2IO: [*ours, "--layers", "none", *tail],
        with_stacks: [*ours, "--layers", "none", "--stacks", "0s", *tail],
        PERF: [*perf, *tail],
        dwarf: [*perf, "--call-graph", "dwarf,8192", *tail],
        pointers: [*perf, "--call-graph", "fp", *tail],
    }


def measure(settings: Settings) -> tuple[Row, list[Row]]:
    """Every depth under every recorder."""
    require("perf", "gcc")
    data, program = settings.directory / "data", build("stacks.c", settings.bin)
    data.write_bytes(bytes(4096))
    variants: dict[str, Callable[[], Row]] = {}
    for name, depth in DEPTHS.items():
        result, workload = settings.directory / f"result-{depth}", settings.directory / f"workload-{depth}"
        count = settings.scaled(READS)
        workload.write_text(f"#!/bin/sh\nexec {program} {depth} {count} {data} {result}\n", encoding="ascii")
        workload.chmod(0o755)
        recording = settings.directory / "recording"
        for variant, command in _commands(recording, workload).items():
            variants[f"{name}, {variant}"] = _one(recording, command, result)
    return {"reads": settings.scaled(READS)}, in_turns(NAME, variants, settings)


def _one(recording: Path, command: list[str], result: Path) -> Callable[[], Row]:
    def measure_one() -> Row:
        recording.mkdir()
        run(command, recording.parent / "output.txt")
        cpu_ns = float(result.read_text(encoding="ascii"))
        shutil.rmtree(recording)
        return {"cpu_ns": cpu_ns}

    return measure_one


def price(rows: Sequence[Row], depth: str, variant: str) -> float:
    """CPU time of a read, with stacks less without: the least of each, for others use the machine, too."""
    least = [min(column(rows, f"{depth}, {name}", "cpu_ns")) for name in (variant, PAIRS[variant])]
    return least[0] - least[1]


def render(document: Mapping[str, Any]) -> str:
    """A table of prices."""
    rows = document["runs"]
    lines = [[name, *(f"{price(rows, depth, name):,.0f} ns" for depth in DEPTHS)] for name in PAIRS]
    reads = document["settings"]["reads"]
    text = (
        f"CPU time of a read whose stack is taken, less that of one whose stack is not: the least of "
        f"{max(row['run'] for row in rows)} runs in turns, of {reads:,} reads each."
    )
    return f"{text}\n\n{table(['', *DEPTHS], lines)}"
