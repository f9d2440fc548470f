"""The tables of the report's page: each number of the summary about rings, at its place."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from build.ringtables import example

from lo2io.reports.html.sheets import sheets
from lo2io.reports.summary.faults import FaultsRow, FaultsSummary
from lo2io.reports.summary.summary import summarize

if TYPE_CHECKING:
    from pathlib import Path

    from lo2io.reports.html.cells import Sheet


def numbers(sheet: Sheet, heading: str) -> list[float | None]:
    """The values of a column."""
    place = [name for name, _ in sheet.columns].index(heading)
    return [row[place].value for row in sheet.rows]


def test_rings(tmp_path: Path) -> None:
    """Paths with their phases, opcodes, batches, reasons for workers, ends of requests, files: all as in the text."""
    rings = summarize(example(tmp_path)).rings
    assert rings is not None
    found = {sheet.key: sheet for sheet in sheets(summarize(example(tmp_path / "2")))}
    assert numbers(found["rings"], "requests") == [ring.requests for ring in rings.rings]
    told = [ring for ring in rings.rings if ring.kind != "libaio"]
    assert [each for each in numbers(found["rings"], "rows") if each != -1] == [ring.written for ring in told]
    assert [each for each in numbers(found["rings"], "multi-shot") if each != -1] == [ring.multishot for ring in told]
    ways = [way for ring in rings.rings for way in ring.paths]
    assert numbers(found["ring-ways"], "inferred") == [way.inferred for way in ways]
    assert numbers(found["ring-ways"], "p99") == [way.latency.p99_ns if way.latency.nr else -1 for way in ways]
    assert numbers(found["ring-ways"], "executing") == [
        way.executing.mean_ns if way.executing.nr else -1 for way in ways
    ]
    sizes = [row for ring in rings.rings for row in (*ring.batches.sizes, *ring.batches.collected_sizes)]
    assert numbers(found["ring-batches"], "calls") == [row.calls for row in sizes]
    assert numbers(found["ring-workers"], "requests") == [row.requests for ring in rings.rings for row in ring.punted]
    ends = [*([row.requests for row in ring.ends] + [row.ended for row in ring.broken_links] for ring in rings.rings)]
    assert numbers(found["ring-ends"], "requests") == [number for part in ends for number in part]
    assert numbers(found["ring-files"], "workers' time") == [row.worker_ns for row in rings.files]
    assert all(found[key].rows for key in ("ring-batches", "ring-workers", "ring-ends", "ring-files"))


def test_a_column_holds_numbers_if_its_cells_do(tmp_path: Path) -> None:
    """The page aligns and sorts by that. A column in which nothing is known may be either."""
    faults = FaultsSummary(3, 1, 1, (FaultsRow("/f", 2, 70, 50, 30, 4),))
    found = sheets(replace(summarize(example(tmp_path)), faults=faults))
    assert "faults" in [sheet.key for sheet in found]
    for sheet in found:
        for place, (heading, is_number) in enumerate(sheet.columns):
            cells = [row[place] for row in sheet.rows]
            assert is_number == any(cell.value is not None for cell in cells), (sheet.key, heading)
