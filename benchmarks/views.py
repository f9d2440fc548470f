"""How long reports and exports of ten million operations take, with how much memory, and how large they become.

Reports are also made of fifty million. synthetic_spool.py makes the spools of the traces, which lie in the page cache.
Each figure is of a whole process, with Python's start and all imports.
"""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING, Any

from common import HERE, LO2IO, Settings, column, in_turns, middle, run, size_of, spread, table, verdict

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

NAME = "views"
LETTER = "k"
SAMPLES = 20_600_000
"""Two for each call, and some of block requests: ten million calls."""
LARGE = 5
"""How many times as many the large trace has."""
MB = 10**6
TEXT, HTML, PERFETTO, PARQUET = "report", "report --html", "export --to perfetto", "export --to parquet"
TEXT_LARGE, HTML_LARGE = f"{TEXT}, {LARGE} times the operations", f"{HTML}, {LARGE} times the operations"
VARIANTS: Mapping[str, Sequence[str]] = {
    TEXT: ("report", "TRACE"),
    "report --json": ("report", "TRACE", "--json"),
    HTML: ("report", "TRACE", "--html", "TARGET"),
    PARQUET: ("export", "TRACE", "--to", "parquet", "-o", "TARGET"),
    "export --to csv": ("export", "TRACE", "--to", "csv", "-o", "TARGET"),
    PERFETTO: ("export", "TRACE", "--to", "perfetto", "-o", "TARGET"),
    "export --to perf-data": ("export", "TRACE", "--to", "perf-data", "-o", "TARGET"),
}
VARIANTS_LARGE = {TEXT_LARGE: VARIANTS[TEXT], HTML_LARGE: VARIANTS[HTML]}


def measure(settings: Settings) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Make the traces, then read them in every way, in turns."""
    few, many = (_make(settings, samples) for samples in (SAMPLES, LARGE * SAMPLES))
    shutil.rmtree(many[0] / "spool")  # several GB, which only an export to perf.data reads
    variants = {name: _view(settings.directory, *few, words) for name, words in VARIANTS.items()}
    variants |= {name: _view(settings.directory, *many, words) for name, words in VARIANTS_LARGE.items()}
    return {"operations": few[1]}, in_turns(NAME, variants, settings)


def _make(settings: Settings, samples: int) -> tuple[Path, int]:
    """A trace and its number of operations."""
    trace, answer = settings.directory / f"trace-{samples}", settings.directory / "output.txt"
    trace.mkdir()
    run([LO2IO.parent / "python", HERE / "synthetic_spool.py", trace / "spool", settings.scaled(samples)], answer)
    run([LO2IO, "convert", trace / "spool", "-o", trace], answer)
    metadata = json.loads((trace / "lo2io" / "metadata.json").read_text(encoding="utf-8"))
    return trace, metadata["tables"]["operations"]["rows"]


def _view(folder: Path, trace: Path, operations: int, words: Sequence[str]) -> Callable[[], dict[str, Any]]:
    target, output = folder / "target", folder / "view.txt"
    places = {"TRACE": trace, "TARGET": target}

    def view() -> dict[str, Any]:
        usage = run([LO2IO, *(places.get(word, word) for word in words)], output)
        written = target if "TARGET" in words else output
        size = size_of(written)
        if target.is_dir():
            shutil.rmtree(target)
        else:
            target.unlink(missing_ok=True)
        return {
            "operations_per_s": operations / usage.wall_s,
            "wall_s": usage.wall_s,
            "cpu_s": usage.cpu_s,
            "max_rss_bytes": usage.max_rss_bytes,
            "size_bytes": size,
        }

    return view


def render(document: Mapping[str, Any]) -> str:
    """Table and verdict."""
    rows = document["runs"]
    names = list(dict.fromkeys(row["variant"] for row in rows))
    lines = [
        [
            f"lo2io {name}",
            spread(column(rows, name, "wall_s")),
            spread(column(rows, name, "cpu_s")),
            spread([rate / 1e6 for rate in column(rows, name, "operations_per_s")]),
            spread([size / MB for size in column(rows, name, "max_rss_bytes")], 0),
            f"{middle(rows, name, 'size_bytes') / MB:,.1f}",
        ]
        for name in names
    ]
    head = ["", "wall s", "CPU s", "million operations/s", "peak memory MB", "written MB"]
    count = document["settings"]["operations"]
    return (
        f"{count:,} operations; medians and least to most of {len(rows) // len(names)} runs in turns.\n\n"
        f"{table(head, lines)}\n\n{_verdicts(rows)}"
    )


def _verdicts(rows: Sequence[Mapping[str, Any]]) -> str:
    text, page = (TEXT_LARGE, HTML_LARGE) if any(row["variant"] == TEXT_LARGE for row in rows) else (TEXT, HTML)
    text_s, html_s = (middle(rows, name, "wall_s") for name in (text, page))
    peak_mb = max(column(rows, text, "max_rss_bytes") + column(rows, page, "max_rss_bytes")) / MB
    html_mb = max(column(rows, page, "size_bytes")) / MB
    perfetto, parquet = (middle(rows, name, "operations_per_s") for name in (PERFETTO, PARQUET))
    return (
        f"Targets for {LARGE} times the operations: text in at most 5 s: {text_s:.1f} ({verdict(met=text_s <= 5)}); "
        f"the page in at most 5 s: {html_s:.1f} ({verdict(met=html_s <= 5)}); both with at most 400 MB of memory: "
        f"{peak_mb:.0f} ({verdict(met=peak_mb <= 400)}); a page of at most 3 MB: {html_mb:.1f} "
        f"({verdict(met=html_mb <= 3)}). Perfetto at 300,000 operations/s: {perfetto:,.0f} "
        f"({verdict(met=perfetto >= 3e5)}); Parquet at 2 million/s: {parquet / 1e6:.2f} "
        f"({verdict(met=parquet >= 2e6)})."
    )
