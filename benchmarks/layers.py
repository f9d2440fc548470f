"""What each layer between a call and the disk costs: ``--layers``, on work of six kinds.

perf record has lo2io's default events and the tracepoints at which the layers' programs run.
Each workload (`layers.c`) times itself after its file has been prepared.
"""

from __future__ import annotations

import shutil
from statistics import median
from typing import TYPE_CHECKING, Any

from common import Settings, build, column, in_turns, middle, names_of, require, run, spread, table, verdict
from tracers import Lo2io, PerfRecord, Untraced

from lo2io.kernel.tracefs import event_exists, find_tracefs
from lo2io.model.layers import ALL, LAYERS, NONE, WAITS, WORKERS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from tracers import Tracer

    Row = dict[str, Any]

NAME = "layers"
LETTER = "m"
ROUNDS = {"hit": 1_000_000, "write": 12_000, "cold": 8_000, "fsync": 2_000, "mmap": 1_000_000, "fork": 4_000}
JOBS = {
    "hit": "reads, cached",
    "write": "buffered writes",
    "cold": "reads, not cached",
    "fsync": "write and fsync",
    "mmap": "mapped pages, cached",
    "fork": "forks",
}
DATA_BYTES = 64 << 20
DEFAULT = "lo2io record"
TARGET = 1.05
"""The layers of the default together, against none, on work that they look at."""
LOOKED_AT = ("write", "cold", "fsync")


class PerfLayers(PerfRecord):
    """`perf record` of the same events, and of the layers' tracepoints."""

    def __init__(self) -> None:
        super().__init__()
        tracefs = find_tracefs()
        wanted = (name for layer in LAYERS.values() for name in (*layer.tracepoints, *layer.optional))
        self.events += tuple(name for name in wanted if name not in self.events and event_exists(tracefs, name))


def _tracers() -> dict[str, Tracer]:
    found: dict[str, Tracer] = {"untraced": Untraced(), f"lo2io, no layer (`--layers {NONE}`)": Lo2io("--layers", NONE)}
    needed = {WORKERS: f"{WAITS},{WORKERS}"}  # its records are of the other layer's programs
    found |= {f"lo2io, layer {name}": Lo2io("--layers", needed.get(name, name)) for name in LAYERS}
    found |= {DEFAULT: Lo2io()}
    if not all(layer.by_default for layer in LAYERS.values()):
        found |= {f"lo2io, all layers (`--layers {ALL}`)": Lo2io("--layers", ALL)}
    return found | {"perf record, the same events": PerfLayers()}


def measure(settings: Settings) -> tuple[Row, list[Row]]:
    """Every workload under every recorder."""
    require("perf", "gcc")
    data, program = settings.directory / "data", build("layers.c", settings.bin)
    data.write_bytes(bytes(DATA_BYTES))
    rounds = {job: settings.scaled(count) for job, count in ROUNDS.items()}
    variants: dict[str, Callable[[], Row]] = {}
    for job, count in rounds.items():
        result, workload = settings.directory / f"result-{job}", settings.directory / f"workload-{job}"
        workload.write_text(f"#!/bin/sh\nexec {program} {job} {count} {data} {result}\n", encoding="ascii")
        workload.chmod(0o755)
        for name, tracer in _tracers().items():
            variants[f"{job}, {name}"] = _one(settings.directory, tracer, workload, result)
    return {"rounds": rounds}, in_turns(NAME, variants, settings)


def _one(folder: Path, tracer: Tracer, workload: Path, result: Path) -> Callable[[], Row]:
    def measure_one() -> Row:
        recording = folder / "recording"
        recording.mkdir()
        run(tracer.command(recording, workload), folder / "output.txt")
        wall_ns, cpu_ns = map(float, result.read_text(encoding="ascii").split())
        shutil.rmtree(recording)
        return {"wall_ns": wall_ns, "cpu_ns": cpu_ns}

    return measure_one


def _ratios(rows: Sequence[Row], job: str, name: str, key: str) -> list[float]:
    """Each run of a variant divided by the untraced run of the same turn."""
    pairs = zip(column(rows, f"{job}, {name}", key), column(rows, f"{job}, untraced", key), strict=True)
    return [traced / untraced for traced, untraced in pairs]


def render(document: Mapping[str, Any]) -> str:
    """A table of wall time, one of CPU time, and the verdict."""
    rows = document["runs"]
    names = [name for name in names_of(rows, "hit") if name != "untraced"]
    parts = [
        f"Medians and least to most of {max(row['run'] for row in rows)} runs in turns; each is divided by the "
        "untraced run of its turn. Untraced, a round takes "
        + ", ".join(f"{middle(rows, f'{job}, untraced', 'wall_ns'):,.0f} ns ({text})" for job, text in JOBS.items())
        + "."
    ]
    for title, key in (("Wall time:", "wall_ns"), ("CPU time of the workload:", "cpu_ns")):
        lines = [[name, *(spread(_ratios(rows, job, name, key)) for job in JOBS)] for name in names]
        parts += [title, table(["", *JOBS.values()], lines)]
    return "\n\n".join([*parts, _verdict(rows, names)])


def _verdict(rows: Sequence[Row], names: Sequence[str]) -> str:
    def more(job: str, key: str) -> float:
        pairs = zip(column(rows, f"{job}, {DEFAULT}", key), column(rows, f"{job}, {names[0]}", key), strict=True)
        return median(with_layers / without for with_layers, without in pairs)

    ratios = {job: more(job, "wall_ns") for job in LOOKED_AT}
    said = ", ".join(f"{JOBS[job]} {ratio:.2f}" for job, ratio in ratios.items())
    return (
        f"Target: the default's layers together at most {TARGET} times none of them: {said} "
        f"({verdict(met=max(ratios.values()) <= TARGET)}). Cached reads, which no layer looks at: "
        f"{more('hit', 'wall_ns'):.2f}."
    )
