"""Parts by themselves: the native OTF2 event loop, and possible formats of the operations table.

Runs otf2_events.py and tables.py, each in a process of its own. Both can run alone, too.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from common import HERE, LO2IO, Settings, run, spread, table, verdict

if TYPE_CHECKING:
    from collections.abc import Mapping

NAME = "components"
LETTER = "e"
OPERATIONS = 2_000_000
THREADS = 8
ROWS = 2_000_000
TARGET_EVENTS = 15.0
"""Million a second, one core."""


def measure(settings: Settings) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Measure both parts; their own repetitions are the runs."""
    operations, table_rows = settings.scaled(OPERATIONS), settings.scaled(ROWS)
    rows = []
    for part, count in (("events", operations), ("tables", table_rows)):
        answer = settings.directory / f"{part}.json"
        command = [LO2IO.parent / "python", HERE / "components.py", part, count, settings.runs, settings.directory]
        usage = run(command, answer)
        rows += json.loads(answer.read_text(encoding="utf-8"))
        print(f"  {NAME}  {part}  {usage.wall_s:.1f} s", flush=True)
    return {"operations": operations, "threads": THREADS, "rows": table_rows}, rows


def _events(count: int, runs: int, parent: Path) -> list[dict[str, Any]]:
    """Million OTF2 events a second."""
    from otf2_events import measure as measure_events  # noqa: PLC0415 - NumPy and pyarrow: for the child only

    rates = []
    for _ in range(runs):
        with tempfile.TemporaryDirectory(dir=parent) as directory:
            rates.append(measure_events(Path(directory), count, THREADS)[0])
    return [{"variant": "otf2 events", "rates": rates}]


def _tables(count: int, runs: int, parent: Path) -> list[dict[str, Any]]:
    """Rows a second, written and read, and bytes a row, of each format."""
    from tables import measure as measure_tables  # noqa: PLC0415

    return [
        {
            "variant": f"{name}, {threads} thread{'s'[: threads > 1]}",
            "writes": writes,
            "reads": reads,
            "row_bytes": size,
        }
        for name, threads, writes, reads, size in measure_tables(parent, count, runs)
    ]


def render(document: Mapping[str, Any]) -> str:
    """Tables and verdict."""
    rates = next(row["rates"] for row in document["runs"] if "rates" in row)
    lines = [
        [
            row["variant"],
            spread([rate / 1e6 for rate in row["writes"]]),
            spread([rate / 1e6 for rate in row["reads"]]),
            f"{row['row_bytes']:.1f}",
        ]
        for row in document["runs"]
        if "writes" in row
    ]
    settings = document["settings"]
    return (
        f"The native loop turns {settings['operations']:,} reads by {settings['threads']} threads into "
        f"{spread(rates, 1)} million OTF2 events a second on one core (median, least to most of {len(rates)} runs). "
        f"Target: {TARGET_EVENTS:.0f} million ({verdict(met=median(rates) >= TARGET_EVENTS)}).\n\n"
        f"The operations table, {settings['rows']:,} rows:\n\n"
        f"{table(['format', 'million rows/s written', 'million rows/s read', 'bytes a row'], lines)}"
    )


if __name__ == "__main__":
    part_name, count_text, runs_text, folder = sys.argv[1:]
    found = (_events if part_name == "events" else _tables)(int(count_text), int(runs_text), Path(folder))
    print(json.dumps(found))
