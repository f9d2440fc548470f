"""lo2io from Python, and `lo2io query`: views have the names that belong to their rows."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from build.tablemaker import COPY, OPENAT, READ, make_batch, write_trace
from workloads import served

import lo2io
from lo2io.api.queries import VIEWS
from lo2io.errors import UsageError
from lo2io.model import BlockDevice
from lo2io.trace.reader import TABLES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lo2io.api import Trace

PAGE = (Path(__file__).parents[3] / "docs/how-to/python.md").read_text(encoding="utf-8")
QUERIES = re.findall(r"^```sql\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
MS = 1_000_000
VDA = 254 << 20
UNKNOWN = 2**32 - 1


def call(number: int, begin_ms: int, length_us: int, code: int = READ, **more: Any) -> dict[str, Any]:
    """A row of operations."""
    begin = begin_ms * MS
    times = {"begin_time_ns": begin, "end_time_ns": begin + 1000 * length_us}
    return {"id": number, "call": code, "task": 0, "pid": 100, "tid": 100, "handle": 0} | times | more


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A trace with three calls of two threads, two files and a request."""
    from build.tablemaker import META  # noqa: PLC0415 - changed below

    folder = tmp_path_factory.mktemp("api") / "T"
    batch = make_batch(
        tasks=[
            {"task": 0, "process": 7, "pid": 100, "tid": 100, "comm": b"dd"},
            {"task": 1, "process": 7, "pid": 100, "tid": 101, "comm": b"\x1b[2J"},
        ],
        files=[{"file": 4, "path": b"/in", "device": 254 << 8}, {"file": 9, "path": b"/out"}],
        handles=[{"handle": 0, "file": 4, "fd": 3}, {"handle": 1, "file": 9, "fd": 4}],
        operations=[
            call(1, 10, 7, OPENAT, handle=UNKNOWN, error=2, result=-2),
            call(2, 20, 15_000, bytes_request=4096, bytes_result=4096, result=4096),
            call(3, 40, 30, COPY, handle2=1, task=1, tid=101, bytes_result=10),
        ],
        requests=[
            {
                "id": 8,
                "device": VDA,
                "task": 0,
                "tid": 100,
                "insert_time_ns": 21 * MS,
                "issue_time_ns": 22 * MS,
                "complete_time_ns": 30 * MS,
                "bytes_result": 4096,
            }
        ],
    )
    import dataclasses  # noqa: PLC0415

    disk = BlockDevice(VDA, "vda", None, None, None, None, None)
    write_trace(folder, [batch], spool=dataclasses.replace(META, devices=(disk,)), span=(5 * MS, 100 * MS))
    return folder


@pytest.fixture(scope="module", autouse=True)
def server() -> Iterator[None]:
    """The server that runs the commands ends with the last test."""
    yield
    served.close()


@pytest.fixture
def trace(place: Path) -> Trace:
    """The trace, opened."""
    return lo2io.open(place)


def test_every_name_is_there() -> None:
    """And a name that is none is an AttributeError, as of any module."""
    assert all(getattr(lo2io, name) for name in lo2io.__all__)
    with pytest.raises(AttributeError):
        _ = lo2io.nothing


def test_a_table_in_every_form(trace: Trace) -> None:
    """Arrow, pandas and Polars; chosen columns keep the table's order."""
    table = trace.operations
    assert (len(table), table.to_arrow().num_rows, len(table.to_pandas()), len(table.to_polars())) == (3, 3, 3, 3)
    assert table.to_arrow(["error", "id"]).to_pydict() == {"id": [1, 2, 3], "error": [2, 0, 0]}
    assert table.schema.field("error").metadata[b"unit"] == b"errno"
    with pytest.raises(UsageError, match="no such column"):
        table.to_arrow(["nothing"])
    with pytest.raises(AttributeError, match="its tables and views are operations"):
        _ = trace.nothing
    assert set(trace.tables) == {*TABLES, *VIEWS} <= set(dir(trace))


def test_views_have_names(trace: Trace) -> None:
    """Of files, processes and devices; a row without a name stays."""
    rows = trace.calls.to_arrow(["id", "path", "path2", "device", "comm", "latency_ns", "begin_s"]).to_pylist()
    assert sorted(rows, key=lambda row: row["id"]) == [
        {"id": 1, "begin_s": 0.005, "latency_ns": 7_000, "path": None, "path2": None, "device": None, "comm": "dd"},
        {"id": 2, "begin_s": 0.015, "latency_ns": 15 * MS, "path": "/in", "path2": None, "device": "vda", "comm": "dd"},
        {
            "id": 3,
            "begin_s": 0.035,
            "latency_ns": 30_000,
            "path": "/in",
            "path2": "/out",
            "device": "vda",
            "comm": "\x1b[2J",
        },
    ]
    (request,) = trace.block_io.to_polars().rows(named=True)
    assert (request["device"], request["queue_ns"], request["device_ns"], request["comm"]) == ("vda", MS, 8 * MS, "dd")
    assert (len(trace.calls), len(trace.ring_io)) == (3, 0)


def test_a_part_has_its_rows_only(trace: Trace) -> None:
    """Also in SQL, where a view names several tables."""
    slow = trace.filter("latency > 10ms")
    assert slow.query("select id from CALLS").fetchall() == [(2,)]
    assert trace.between("30ms").operations.to_arrow(["id"]).to_pydict() == {"id": [3]}
    assert (slow.summary().calls[0].activity.calls, len(trace.findings())) == (1, 0)
    assert trace.proof.proven


def test_queries_of_the_documentation(trace: Trace) -> None:
    """Each runs, and has rows."""
    assert len(QUERIES) == 5
    for query in QUERIES[:4]:
        assert trace.query(query).fetchall(), query
    assert trace.query(QUERIES[4]).fetchall() == []


def test_query_prints_rows(place: Path) -> None:
    """In three forms, none of which has characters that a terminal would obey."""

    def asked(*words: str) -> str:
        return served.lo2io("query", place, *words, check=True).stdout

    comm = "select comm, '=1' as x from calls where id = 3"
    assert "\x1b" not in asked(comm)
    assert asked("--to", "csv", comm) == '"comm","x"\n"\\x1b[2J","\'=1"\n'
    assert json.loads(asked("--to", "json", "--filter", "latency > 10ms", "select id from calls")) == {"id": 2}
    listed = served.lo2io("query", place, check=True).stdout
    assert "calls: 3 rows" in listed
    assert "ring_io" not in listed


@pytest.mark.parametrize("sql", ["selec", "select nothing from calls", "select call::int from calls"])
def test_a_wrong_query_is_one_error(place: Path, sql: str) -> None:
    """Whether DuckDB notices while it reads the query or the rows."""
    done = served.lo2io("query", place, "--to", "csv", sql)
    assert (done.returncode, "Traceback" in done.stderr) == (UsageError.exit_code, False)
    assert done.stderr.startswith("lo2io: query the trace: ")


def test_rows_that_csv_cannot_hold(place: Path) -> None:
    """Lists, say."""
    done = served.lo2io("query", place, "--to", "csv", "select [1] as x")
    assert (done.returncode, "--to json" in done.stderr) == (UsageError.exit_code, True)


def test_without_duckdb_tables_are_there(trace: Trace, monkeypatch: pytest.MonkeyPatch) -> None:
    """Views and queries say what is missing."""
    monkeypatch.setitem(sys.modules, "duckdb", None)
    assert isinstance(trace.operations.to_arrow(), pa.Table)
    with pytest.raises(UsageError, match="import duckdb"):
        _ = trace.calls


def test_recording_needs_one_thing_to_record(tmp_path: Path) -> None:
    """A command, or processes."""
    for wrong in ({}, {"command": ["true"], "pid": 1}):
        with pytest.raises(UsageError, match="either"):
            lo2io.record(output=tmp_path / "T", **wrong)
