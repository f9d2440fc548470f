"""The script that draws the documentation's pictures."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree as ET

import pytest
from tablemaker import READ, WRITE, make_batch, write_trace

if TYPE_CHECKING:
    from lo2io.tables import Trace

MS = 1_000_000


@pytest.fixture(scope="module")
def picture() -> dict[str, Any]:
    """The script's functions."""
    return runpy.run_path(str(Path(__file__).parents[2] / "scripts/picture.py"))


@pytest.fixture
def trace(tmp_path: Path) -> Trace:
    """Two calls of one thread, and two requests that are in flight together."""
    batch = make_batch(
        operations=[
            {"task": 0, "call": READ, "begin_time_ns": 1 * MS, "end_time_ns": 3 * MS},
            {"task": 0, "call": WRITE, "begin_time_ns": 4 * MS, "end_time_ns": 8 * MS},
            {"task": 0, "call": WRITE, "begin_time_ns": 9 * MS, "status": 1},
        ],
        threads=[{"task": 0, "pid": 7, "tid": 7, "comm": b"a<b"}],
        requests=[
            {"insert_time_ns": 4 * MS, "issue_time_ns": 5 * MS, "complete_time_ns": 7 * MS, "operation": 1},
            {"issue_time_ns": 6 * MS, "complete_time_ns": 7 * MS, "operation": 0},
            {"insert_time_ns": 8 * MS},
        ],
    )
    return write_trace(tmp_path, [batch])
