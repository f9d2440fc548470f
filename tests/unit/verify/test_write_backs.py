"""``verify`` on charges of what requests write."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from build.otf2_builder import Breakage

from lo2io.verify import verify

from .test_parts import parted

if TYPE_CHECKING:
    from pathlib import Path

    from build.otf2_rings import RingTrace

breaks = Breakage()


def charged() -> RingTrace:
    """A trace with a request in two parts, each charged; and pages that nobody has written."""
    trace = parted()
    trace.meta["layers"] = ("parts", "dirty")
    row = {
        "charged": 1,
        "tid": 1,
        "first_dirtied_ns": 0,
        "last_dirtied_ns": 1,
        "issue_time_ns": 1,
        "complete_time_ns": 2,
    }
    trace.tables["write_backs"] = [
        row | {"request": 900, "number": 0, "bytes": 1024},
        row | {"request": 900, "number": 0, "bytes": 3072},
        row | {"request": 900, "number": 1, "bytes": 4096},
        {"charged": 1, "tid": 1, "bytes": 8192, "first_dirtied_ns": 1, "last_dirtied_ns": 1},
    ]
    return trace


@breaks("request.charged")
def _a_charge_too_large(trace: RingTrace) -> None:
    trace.tables["write_backs"][0]["bytes"] = 4096


@breaks("request.charged")
def _a_charge_too_early(trace: RingTrace) -> None:
    trace.tables["write_backs"][0]["last_dirtied_ns"] = 2


def test_charges_that_add_up(tmp_path: Path) -> None:
    """Each part is charged whole, after it was dirtied."""
    assert "request.charged" not in verify(charged().write(tmp_path / "T")).broken


@pytest.mark.parametrize("change", [_a_charge_too_large, _a_charge_too_early])
def test_charges_that_cannot_be(tmp_path: Path, change: object) -> None:
    """More than the part's bytes, or before the pages were dirty."""
    trace = charged()
    assert callable(change)
    change(trace)
    assert "request.charged" in verify(trace.write(tmp_path / "T")).broken
