"""lo2io from Python, and `lo2io query`: views have the names that belong to their rows."""

from __future__ import annotations

import inspect
import json
import os
import re
import sys
import types
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from build.tablemaker import COPY, OPENAT, READ, WRITE, make_batch, write_trace
from workloads import served

import lo2io
from lo2io.api.queries import VIEWS
from lo2io.errors import UsageError
from lo2io.model import BlockDevice
from lo2io.reports.summary.summary import to_json
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
    """These names, members and arguments are promised; one that goes needs a new major version. Others are no names."""
    assert all(getattr(lo2io, name) for name in lo2io.__all__)
    assert set(lo2io.__all__) == {"Lo2ioError", "Recording", "Table", "Trace", "open", "record"}
    promised = {
        lo2io.Trace: "between close filter findings has_hosts host hosts_summary html part path metadata proof query"
        " summary tables",
        lo2io.Table: "batches columns duckdb name schema to_arrow to_pandas to_polars",
        lo2io.Recording: "exit_code messages output stop trace",
    }
    for kind, names in promised.items():
        documented = re.findall(r"^ +(\w+): ", kind.__doc__ or "", re.MULTILINE)
        assert {*documented, *(name for name in vars(kind) if name[0] != "_")} == set(names.split())
    arguments = {name: list(inspect.signature(getattr(lo2io, name)).parameters) for name in ("open", "record")}
    assert arguments == {"open": ["path"], "record": ["command", "pid", "output", "options"]}
    assert (Path(lo2io.__file__).parent / "py.typed").exists()
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


def test_an_error_inside_of_a_property_is_shown(trace: Trace, monkeypatch: pytest.MonkeyPatch) -> None:
    """Python asks for the attribute once more; that must not say that there is none."""
    monkeypatch.setattr("lo2io.api.trace.summarize", lambda _: None.nothing)  # type: ignore[attr-defined]
    with pytest.raises(AttributeError, match="'NoneType' object has no attribute 'nothing'"):
        _ = trace._summary


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


def test_relations_of_duckdb(trace: Trace) -> None:
    """Of a table and of a view; they can be asked again, and one can join the other."""
    calls, operations = trace.calls.duckdb(), trace.operations.duckdb()
    assert calls.filter("latency_ns > 10000000").project("path").fetchall() == [("/in",)]
    assert operations.aggregate("sum(bytes_result)::int").fetchall() == [(4106,)]
    assert len(calls.join(operations, "id").fetchall()) == len(calls.fetchall()) == 3
    assert trace.filter("latency > 10ms").operations.duckdb().project("id").fetchall() == [(2,)]


def test_results_are_those_of_the_command_line(trace: Trace, place: Path, tmp_path: Path) -> None:
    """Of the whole trace and of a part: the numbers of `report --json`, and the page of `report --html`."""
    parts = {
        (): trace,
        ("--filter", "latency > 10ms"): trace.filter("latency > 10ms"),
        ("--from", "0.025s", "--until", "-1ms"): trace.between(0.025, -0.001),
        ("--from", "10ms", "--until", "0.03s", "--filter", "operation == read"): trace.filter(
            "operation == read"
        ).between("10ms", 0.03),
    }
    calls = []
    for options, part in parts.items():
        told = json.loads(served.lo2io("report", place, "--json", *options, check=True).stdout)
        mine = json.loads(to_json(part.summary()))
        calls.append(mine["activity"]["calls"])
        assert mine["calls"] == told["calls"]
    assert calls == [3, 1, 2, 1]

    shares: list[float] = []
    served.lo2io("report", place, "--html", tmp_path / "page", "--filter", "latency > 10ms", check=True)
    page = trace.part(["latency > 10ms"]).html(shares.append)
    assert page == (tmp_path / "page").read_text(encoding="utf-8")
    assert shares == sorted(shares)
    assert shares[-1] == 1.0


def test_findings_are_those_of_the_command_line(tmp_path: Path) -> None:
    """Here 100 writes, each of which is a sync."""
    write_trace(
        tmp_path / "T",
        [
            make_batch(
                tasks=[{"task": 0, "process": 7, "pid": 100, "tid": 100}],
                files=[{"file": 4, "path": b"/log"}],
                handles=[{"handle": 0, "file": 4, "fd": 3, "open_flags": os.O_RDWR | os.O_DSYNC}],
                operations=[call(number, 10 + number, 500, WRITE, bytes_result=8192) for number in range(100)],
            )
        ],
        span=(5 * MS, 200 * MS),
    )
    told = json.loads(served.lo2io("report", tmp_path / "T", "--json", check=True).stdout)["findings"]
    (finding,) = lo2io.open(tmp_path / "T").findings()
    assert (finding.rule, finding.subject, finding.cost_ns) == ("sync-per-write", "/log", 50 * MS)
    assert told == json.loads(json.dumps([finding.as_dict()]))


def test_a_part_has_its_rows_only(trace: Trace) -> None:
    """Also in SQL, where a view names several tables."""
    slow = trace.filter("latency > 10ms")
    assert slow.query("select id from CALLS").fetchall() == [(2,)]
    assert trace.between("30ms").operations.to_arrow(["id"]).to_pydict() == {"id": [3]}
    assert (slow.summary().calls[0].activity.calls, len(trace.findings())) == (1, 0)
    assert trace.proof.proven


def test_python_of_the_documentation(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The page's first program reads a trace."""
    (tmp_path / "first").symlink_to(place)
    monkeypatch.chdir(tmp_path)
    program = re.search(r"^```python\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
    assert program
    code = program[1].replace("between(2, -1)", "between(0.015, -0.001)")
    exec(code, names := vars(types.ModuleType("page")))  # noqa: S102 - the documentation is our own
    assert len(names["slow"].calls) == 1
    assert capsys.readouterr().out.startswith("3 ['id'")


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
