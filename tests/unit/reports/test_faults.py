"""Page faults by file: what they waited for and filled."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

from build.tablemaker import make_batch, meta, write_trace
from rich.console import Console

from lo2io.model import UNKNOWN_I64, UNKNOWN_U32
from lo2io.reports.summary.faults import FaultsRow
from lo2io.reports.summary.summary import summarize
from lo2io.reports.text.faults import render_faults

if TYPE_CHECKING:
    from pathlib import Path

FILES = [{"file": number, "path": f"/{number}".encode(), "mode": 0o100644} for number in range(2)]
NOT_KNOWN = {"run_queue_ns": UNKNOWN_I64, "blocked_ns": UNKNOWN_I64, "filled_pages": UNKNOWN_U32}


def fault(file: int, lasts: int, **parts: Any) -> dict[str, Any]:
    """A fault outside of calls."""
    return {"operation": 0, "file": file, "begin_time_ns": 100, "end_time_ns": 100 + lasts, **NOT_KNOWN, **parts}


def test_what_faults_of_a_file_waited_for_and_filled(tmp_path: Path) -> None:
    """Sums of what is known; nothing for a file of whose faults nothing is."""
    rows = [
        fault(0, 50, run_queue_ns=1, blocked_ns=30, filled_pages=4),
        fault(0, 40, run_queue_ns=0, blocked_ns=20),
        fault(0, 30),
        fault(1, 10),
    ]
    trace = write_trace(tmp_path, [make_batch(files=FILES, faults=rows)], spool=meta(layers=("faults",)))
    found = summarize(trace).faults
    assert found is not None
    assert found.files == (FaultsRow("/0", 3, 120, 50, 50, 4), FaultsRow("/1", 1, 10, 10, None, None))
    console = Console(file=io.StringIO(), width=100)
    render_faults(found, console)
    first, second = console.file.getvalue().splitlines()[-2:]  # type: ignore[attr-defined]
    assert first.split()[-4:] == ["50", "ns", "4", "pages"]
    assert second.split()[-2:] == ["-", "-"]
