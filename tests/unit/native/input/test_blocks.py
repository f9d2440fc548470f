"""A file is read in blocks. Where a block ends changes nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from build.perfwriter import SpoolBuilder
from reference.compare import run_native

from lo2io.convert import engine

if TYPE_CHECKING:
    from pathlib import Path

BLOCK_BYTES, CALLS = 1 << 14, 2_000
HELD_BACK = 64


@pytest.mark.parametrize("by", [1, 2, 40, HELD_BACK - 1])
def test_a_record_that_interrupts_overtook_is_put_right(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by: int
) -> None:
    """It lies after later ones, and a block often ends between them."""
    monkeypatch.setattr(engine, "BUFFER_BYTES", BLOCK_BYTES)
    spool = SpoolBuilder(tmp_path / "spool", 1)
    for number in range(CALLS):
        spool.call(60_000 + 10 * number, 0, 10, "sync")
    records = spool.rings[0]
    assert sum(map(len, records)) > 8 * BLOCK_BYTES
    for place in range(by, len(records), 2 * by + 7):
        records.insert(place, records.pop(place - by))
    tables = run_native(spool.write())
    assert [row["begin_time_ns"] for row in tables["operations"]] == [60_000 + 10 * n for n in range(CALLS)]
    assert tables["totals"]["nr_late"] == 0 < tables["totals"]["nr_reordered"]
