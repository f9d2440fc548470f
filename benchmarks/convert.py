"""How fast a spool becomes a trace with tables, which share each stage has, and whether memory stays constant.

synthetic_spool.py makes the spools, which lie in the page cache, as they do right after a recording. Each figure is of
a whole process, with Python's start and all imports.
"""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any

from common import HERE, LO2IO, BenchError, Settings, column, in_turns, middle, run, size_of, spread, table, verdict

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

NAME = "convert"
LETTER = "c"
SMALL, LARGE = 20_000_000, 60_000_000
FEW, MANY = 8, 5_000
"""Threads. Each has a location of its own in OTF2, whose writer keeps buffers of their own."""
TARGET_PER_S = 10e6
TARGET_BYTES = 300 * 10**6
SAME = 1.1
"""Peaks that differ by no more than this factor are the same."""
WHOLE, WHOLE_LARGE = "lo2io convert", "lo2io convert, three times the samples"
WHOLE_MANY = f"lo2io convert, {MANY:,} threads"
STAGES = {"engine": [], "engine + OTF2": ["--otf2"], "engine + tables": ["--tables"]}


def measure(settings: Settings) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Make both spools, then convert them whole and stage by stage, in turns."""
    folder = settings.directory
    spools = [_make(folder, settings.scaled(samples)) for samples in (SMALL, LARGE)]
    of_many = _make(folder, settings.scaled(SMALL), MANY)
    python = LO2IO.parent / "python"
    variants = {
        WHOLE: _convert(folder, *spools[0], [LO2IO, "convert"], ["-o"]),
        **{
            name: _convert(folder, *spools[0], [python, HERE / "stages.py", *stages]) for name, stages in STAGES.items()
        },
        WHOLE_LARGE: _convert(folder, *spools[1], [LO2IO, "convert"], ["-o"]),
        WHOLE_MANY: _convert(folder, *of_many, [LO2IO, "convert"], ["-o"]),
    }
    return {"samples": [samples for _, samples in spools]}, in_turns(NAME, variants, settings)


def _make(folder: Path, samples: int, threads: int = FEW) -> tuple[Path, int]:
    """A spool and its number of samples. Made in a process of its own, so that this one gets none of NumPy's memory."""
    spool, answer = folder / f"spool-{samples}-{threads}", folder / "samples.txt"
    run([LO2IO.parent / "python", HERE / "synthetic_spool.py", spool, samples, "--threads", threads], answer)
    return spool, int(answer.read_text(encoding="ascii"))


def _convert(
    folder: Path, spool: Path, samples: int, command: Sequence[object], before_trace: Sequence[object] = ()
) -> Callable[[], dict[str, Any]]:
    def convert() -> dict[str, Any]:
        trace, output = folder / "trace", folder / "output.txt"
        usage = run([*command, spool, *before_trace, trace], output)
        if before_trace and "\ncomplete: " not in "\n" + output.read_text(encoding="utf-8"):
            raise BenchError(f"converting found the spool wanting:\n{output.read_text(encoding='utf-8')}")
        size = size_of(trace)
        shutil.rmtree(trace)
        return {
            "samples": samples,
            "samples_per_s": samples / usage.wall_s,
            "wall_s": usage.wall_s,
            "cpu_s": usage.cpu_s,
            "max_rss_bytes": usage.max_rss_bytes,
            "trace_bytes": size,
        }

    return convert


def render(document: Mapping[str, Any]) -> str:
    """Table and verdict."""
    rows = document["runs"]
    names = list(dict.fromkeys(row["variant"] for row in rows))
    lines = [
        [
            name,
            f"{middle(rows, name, 'samples') / 1e6:.1f}",
            spread([rate / 1e6 for rate in column(rows, name, "samples_per_s")]),
            spread(column(rows, name, "wall_s")),
            spread(column(rows, name, "cpu_s")),
            spread([size / 1e6 for size in column(rows, name, "max_rss_bytes")], 0),
            f"{middle(rows, name, 'trace_bytes') / middle(rows, name, 'samples'):.1f}",
        ]
        for name in names
    ]
    rate = min(middle(rows, name, "samples_per_s") for name in (WHOLE, WHOLE_LARGE))
    wholes = [name for name in (WHOLE, WHOLE_LARGE, WHOLE_MANY) if name in names]
    peaks = [max(column(rows, name, "max_rss_bytes")) for name in wholes]
    head = ["", "million samples", "million samples/s", "wall s", "CPU s", "peak memory MB", "bytes a sample written"]
    return (
        f"Medians and least to most of {len(rows) // len(names)} runs in turns.\n\n{table(head, lines)}\n\n"
        f"Targets: {TARGET_PER_S / 1e6:.0f} million samples/s end to end: {rate / 1e6:.2f} "
        f"({verdict(met=rate >= TARGET_PER_S)}); peak at most {TARGET_BYTES / 1e6:.0f} MB: {max(peaks) / 1e6:.0f} "
        f"({verdict(met=max(peaks) <= TARGET_BYTES)}); the same with three times the samples: {peaks[1] / 1e6:.0f} "
        f"({verdict(met=peaks[1] <= peaks[0] * SAME)})."
    )
