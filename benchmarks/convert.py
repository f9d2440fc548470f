"""How fast a spool becomes a trace and a report, which share each stage has, and whether memory stays constant.

synthetic_spool.py makes the spools, which lie in the page cache, as they do right after a recording. Each figure is of
a whole process, with Python's start and all imports. Before each conversion, the benchmark uses and frees more memory
than that takes (:func:`use_memory`).
"""

from __future__ import annotations

import shutil
import time
from typing import TYPE_CHECKING, Any

from common import (
    HERE,
    LO2IO,
    BenchError,
    Settings,
    column,
    in_turns,
    lo2io,
    middle,
    run,
    size_of,
    spread,
    table,
    verdict,
)

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
REPORTED = 103_000_000
"""Samples of the trace that is reported: 50 million operations."""
OPERATIONS_PER_SAMPLE = 51 / 105
"""Each burst of the synthetic spool is 51 calls, of two samples each, and a block request of three."""
TARGET_REPORT_S = 5
TARGET_REPORT_BYTES, TARGET_PAGE_BYTES = 400 * 10**6, 3 * 10**6
USED_BYTES = 3 << 30
"""More bytes than any of the traces has."""
REPORTS: dict[str, list[str]] = {"lo2io report": [], "lo2io report --html": ["--force", "--html"]}
STAGES = {"engine": [], "engine + OTF2": ["--otf2"], "engine + tables": ["--tables"]}


def measure(settings: Settings) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Make both spools, then convert them whole and stage by stage, in turns."""
    folder = settings.directory
    spools = [make_spool(folder, settings.scaled(samples)) for samples in (SMALL, LARGE)]
    of_many = make_spool(folder, settings.scaled(SMALL), MANY)
    kept = settings.directory / "kept"
    kept.mkdir()
    python = LO2IO.parent / "python"
    variants = {
        WHOLE: _convert(folder, *spools[0]),
        **{
            name: _convert(folder, *spools[0], [python, HERE / "stages.py", *stages]) for name, stages in STAGES.items()
        },
        WHOLE_LARGE: _convert(folder, *spools[1]),
        WHOLE_MANY: _convert(folder, *of_many, kept=kept),
    }
    trace = _trace(folder, settings.scaled(REPORTED))
    variants |= {name: _report(trace, options) for name, options in REPORTS.items()}
    return {"samples": [samples for _, samples in spools]}, in_turns(NAME, variants, settings, ours=(WHOLE,))


def _trace(folder: Path, samples: int) -> Path:
    """A trace of so many samples, in the page cache."""
    spool, _ = make_spool(folder, samples)
    trace = folder / "reported"
    run([LO2IO, "convert", spool, "-o", trace], folder / "output.txt")
    shutil.rmtree(spool)
    return trace


def _report(trace: Path, options: Sequence[str]) -> Callable[[], dict[str, Any]]:
    def report() -> dict[str, Any]:
        page = trace.with_name("page.html")
        usage = run([LO2IO, "report", trace, *options, *([page] if options else [])], trace.with_name("output.txt"))
        return {
            "wall_s": usage.wall_s,
            "cpu_s": usage.cpu_s,
            "max_rss_bytes": usage.max_rss_bytes,
            "page_bytes": page.stat().st_size if options else 0,
        }

    return report


def make_spool(folder: Path, samples: int, threads: int = FEW) -> tuple[Path, int]:
    """A spool and its number of samples. Made in a process of its own, so that this one gets none of NumPy's memory."""
    spool, answer = folder / f"spool-{samples}-{threads}", folder / "samples.txt"
    run([LO2IO.parent / "python", HERE / "synthetic_spool.py", spool, samples, "--threads", threads], answer)
    return spool, int(answer.read_text(encoding="ascii"))


def use_memory(folder: Path) -> None:
    """Use memory and free it again, so that the next process need not wait for the hypervisor.

    A virtual machine gives memory back that it has not used for some seconds (free page reporting). The hypervisor
    takes time to find memory again.
    """
    with (folder / "used").open("wb", buffering=0) as file:
        for _ in range(USED_BYTES >> 20):
            file.write(bytes(1 << 20))
    (folder / "used").unlink()


def _convert(
    folder: Path,
    spool: Path,
    samples: int,
    stage: Sequence[object] = (),
    *,
    kept: Path | None = None,
) -> Callable[[], dict[str, Any]]:
    """A turn of converting, or of one stage of it. A trace of many files goes to ``kept`` until the end.

    For minutes, ext4 gives no new file the inode of a deleted one, and looks at each of these for every new file
    (``recently_deleted`` of fs/ext4/ialloc.c).
    """

    def convert() -> dict[str, Any]:
        trace, output = folder / "trace", folder / "output.txt"
        use_memory(folder)
        words = [*stage, spool, trace] if stage else [lo2io(), "convert", spool, "-o", trace]
        usage = run(words, output)
        if not stage and "\ncomplete: " not in "\n" + output.read_text(encoding="utf-8"):
            raise BenchError(f"converting found the spool wanting:\n{output.read_text(encoding='utf-8')}")
        size = size_of(trace)
        if kept:
            trace.rename(kept / str(time.monotonic_ns()))
        else:
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
    names = list(dict.fromkeys(row["variant"] for row in rows if row["variant"] not in REPORTS))
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
    nr_turns = sum(row["variant"] == WHOLE for row in rows)
    return (
        f"Medians and least to most of {nr_turns} runs in turns.\n\n{table(head, lines)}\n\n"
        f"Targets: {TARGET_PER_S / 1e6:.0f} million samples/s end to end: {rate / 1e6:.2f} "
        f"({verdict(met=rate >= TARGET_PER_S)}); peak at most {TARGET_BYTES / 1e6:.0f} MB: {max(peaks) / 1e6:.0f} "
        f"({verdict(met=max(peaks) <= TARGET_BYTES)}); three times the samples take at most {SAME} times the memory: "
        f"{peaks[1] / peaks[0]:.2f} times ({verdict(met=peaks[1] <= peaks[0] * SAME)})." + _render_reports(rows)
    )


def _render_reports(rows: Sequence[Mapping[str, Any]]) -> str:
    """Table and verdict for reports. Empty: there are none."""
    names = [name for name in REPORTS if any(row["variant"] == name for row in rows)]
    if not names:
        return ""
    lines = [
        [
            name,
            spread(column(rows, name, "wall_s")),
            spread(column(rows, name, "cpu_s")),
            spread([size / 1e6 for size in column(rows, name, "max_rss_bytes")], 0),
            f"{page / 1e6:.1f}" if (page := middle(rows, name, "page_bytes")) else "",
        ]
        for name in names
    ]
    slowest = max(middle(rows, name, "wall_s") for name in names)
    peak = max(max(column(rows, name, "max_rss_bytes")) for name in names)
    page = max(middle(rows, name, "page_bytes") for name in names)
    return (
        f"\n\nA trace of {REPORTED * OPERATIONS_PER_SAMPLE / 1e6:.0f} million operations:\n\n"
        f"{table(['', 'wall s', 'CPU s', 'peak memory MB', 'page MB'], lines)}\n\n"
        f"Targets: {TARGET_REPORT_S} s: {slowest:.1f} ({verdict(met=slowest <= TARGET_REPORT_S)}); "
        f"peak at most {TARGET_REPORT_BYTES / 1e6:.0f} MB: {peak / 1e6:.0f} "
        f"({verdict(met=peak <= TARGET_REPORT_BYTES)}); "
        f"page at most {TARGET_PAGE_BYTES / 1e6:.0f} MB: {page / 1e6:.1f} "
        f"({verdict(met=page <= TARGET_PAGE_BYTES)})."
    )
