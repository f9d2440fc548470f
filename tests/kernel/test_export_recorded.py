"""A recording of known I/O, exported: other programs find the same numbers; parts equal those of converting."""

from __future__ import annotations

import json
import runpy
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import pytest
from workloads.record import Recorded, record
from workloads.served import lo2io

from lo2io.trace.reader import TABLES, open_trace
from lo2io.trace.selection.selection import select

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

pytestmark = pytest.mark.requires("root", "tracefs", "events")
READS, WRITES = 37, 11
PROGRAM = """
import os, sys
read, write = os.open(sys.argv[1], os.O_RDONLY), os.open(sys.argv[2], os.O_WRONLY | os.O_CREAT)
for n in range(37):
    os.pread(read, 4096, 4096 * n)
for n in range(11):
    os.pwrite(write, bytes(100 * n), 1000 * n)
"""


@pytest.fixture(name="recorded", scope="module")
def known_recording(
    tmp_path_factory: pytest.TempPathFactory, awake: Callable[[], AbstractContextManager[None]]
) -> Recorded:
    """37 reads of 4 KiB, 11 writes of growing size."""
    folder = tmp_path_factory.mktemp("export")
    (folder / "in").write_bytes(bytes(4096 * READS))
    with awake():
        return record(
            folder / "T", [sys.executable, "-S", "-c", PROGRAM, folder / "in", folder / "out"], "--keep-spool"
        )


def query(folder: Path, text: str) -> list[tuple[Any, ...]]:
    """DuckDB's answer."""
    with duckdb.connect() as connection:
        return connection.execute(text.replace("@", f"{folder}/")).fetchall()


def test_other_programs_find_what_was_done(recorded: Recorded, tmp_path: Path) -> None:
    """Calls, bytes and files of the workload, by SQL over the Parquet files that the command wrote."""
    trace, folder = str(recorded.trace.path), recorded.trace.path.parent
    chosen = f"operation == pread64, pwrite64 and path ~ '{folder}/*'"
    words = ("--filter", chosen, "-o", str(tmp_path / "P"))
    done = lo2io("export", trace, "--to", "parquet", *words, check=True)
    assert done.stdout == f"{tmp_path / 'P'}\n"
    found = query(
        tmp_path / "P",
        """
        SELECT path, call, count(*), sum(bytes_result)::BIGINT, min(offset_bytes), max(offset_bytes)
        FROM '@operations.parquet' JOIN '@handles.parquet' USING (handle) JOIN '@files.parquet' USING (file)
        GROUP BY ALL ORDER BY call
        """,
    )
    assert found == [
        (str(folder / "in"), "pread64", READS, 4096 * READS, 0, 4096 * (READS - 1)),
        (str(folder / "out"), "pwrite64", WRITES, 100 * sum(range(WRITES)), 0, 1000 * (WRITES - 1)),
    ]


@pytest.mark.parametrize("text", ["operation == read", "path ~ '*/**/out'", "latency > 5us and kind == call"])
def test_a_part_is_what_converting_would_keep(recorded: Recorded, tmp_path: Path, text: str) -> None:
    """Also with other processes' events in the recording."""
    spool = recorded.trace.path / "spool"
    command = ["convert", str(spool), "-o", str(tmp_path / "part"), "--filter", text]
    lo2io(*command, check=True)
    part, expected = select(recorded.trace, [text]), open_trace(tmp_path / "part")
    for table in TABLES:
        assert part.table(table).to_pylist() == expected.table(table).to_pylist(), table
    assert part.metadata["filtered"] == expected.metadata["filtered"]


def test_two_halves_of_a_recording(recorded: Recorded) -> None:
    """Every call lies in one half; in both lie only those under way at the border."""
    trace = recorded.trace
    reads = sorted(row["begin_time_ns"] for row in recorded.calls("pread64"))
    border = reads[20]
    first, second = select(trace, end=f"@{border}"), select(trace, begin=f"@{border}")
    ids = [set(part.operations["id"].to_pylist()) for part in (first, second)]
    assert ids[0] | ids[1] == set(trace.operations["id"].to_pylist())
    across = {
        row["id"]
        for row in trace.operations.to_pylist()
        if row["begin_time_ns"] < border < (row["end_time_ns"] or border)
    }
    assert ids[0] & ids[1] == across
    assert len([row for row in second.operations.to_pylist() if row["call"] == "pread64"]) == len(reads) - 20


def test_otf2_readers_find_what_the_report_has(recorded: Recorded) -> None:
    """Operations and bytes by mode, by Python's otf2. They agree with the tables, and so do otf2-print's."""
    script, trace = Path(__file__).parents[2] / "scripts/other_readers.py", recorded.trace.path
    done = subprocess.run([sys.executable, script, trace], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    assert done.stdout.count(" bytes agree") == 2
    found = runpy.run_path(str(script))["of_python"](trace / "traces.otf2")
    reported = json.loads(lo2io("report", trace, "--json", check=True).stdout)["activity"]
    for mode, operations, size in (("READ", "reads", "bytes_read"), ("WRITE", "writes", "bytes_written")):
        assert found["POSIX", mode, "operations"] == reported[operations]
        assert found["POSIX", mode, "bytes"] == reported[size]
    assert found["POSIX", "WRITE", "bytes"] >= 100 * sum(range(WRITES))
