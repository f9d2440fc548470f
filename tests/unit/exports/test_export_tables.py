"""Parquet and CSV have the content of the tables, and the queries of docs/how-to/export.md agree with the rows."""

from __future__ import annotations

import csv
import json
import re
import statistics
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from build.tablemaker import CALLS, CLOSE, COPY, FSYNC, OPENAT, READ, READV, WRITE, WRITEV, make_batch, write_trace

from lo2io.errors import UsageError
from lo2io.exports.formats import export
from lo2io.exports.tables import csv as tables_as_csv
from lo2io.exports.tables import tabular
from lo2io.exports.tables.tabular import describe
from lo2io.trace.names import DIRECTORY, METADATA_FILE
from lo2io.trace.reader import TABLES, Trace, open_trace
from lo2io.trace.selection.selection import select

if TYPE_CHECKING:
    from collections.abc import Mapping

PAGE = (Path(__file__).parents[3] / "docs/how-to/export.md").read_text(encoding="utf-8")
MS = 1_000_000
Row = dict[str, Any]


def ignore(_: float) -> None:
    """Progress that nobody watches."""


def known_rows() -> Mapping[str, list[Row]]:
    """Three files, one read in sequence and one at random; two threads; failures; calls in flight."""
    calls: list[Row] = []

    def call(code: int, begin_ms: int, length_us: int, **more: Any) -> None:
        begin = begin_ms * MS
        calls.append(
            {"id": len(calls) + 1, "call": code, "begin_time_ns": begin, "end_time_ns": begin + 1000 * length_us}
            | {"task": 0, "pid": 100, "tid": 100, "handle": 0, "fd": 3}
            | more
        )

    call(OPENAT, 0, 7)
    call(OPENAT, 1, 9, error=2, result=-2, handle=2**32 - 1, fd=-1)
    for n in range(6):
        call(READ, 10 + n, 20 + n, offset_bytes=4096 * n, bytes_request=4096, bytes_result=4096, result=4096)
        call(READ, 210 + n, 40 + n, offset_bytes=8192 * (n * 5 % 6), bytes_request=512, bytes_result=512, handle=1)
        call(WRITE, 110 + 100 * n, 30, bytes_request=10, bytes_result=10, handle=2, task=1, tid=101)
    call(COPY, 700, 50, bytes_request=99, bytes_result=98, handle2=2)
    call(CLOSE, 800, 1, closes=1)
    calls.append({**calls[-1], "id": 99, "end_time_ns": -(2**63), "status": 1})
    device = {"device": 254 << 20, "task": 0, "tid": 100}
    requests = [
        {
            "id": 200 + n,
            "operation": n % 2,
            "insert_time_ns": n,
            "issue_time_ns": 2 * n,
            "complete_time_ns": 5 * n,
            **device,
        }
        for n in range(1, 8)
    ]
    rings = [
        {
            "id": 300 + n,
            "opcode": (READV, WRITEV, FSYNC)[n % 3],
            "path": 1 + n % 2,
            "queued_ns": 10 * n,
            "user_data": 2**64 - n,
        }
        for n in range(1, 9)
    ]
    return {
        "operations": calls,
        "requests": [*requests, {"id": 222, "status": 1, "insert_time_ns": 9, **device}],
        "ring_requests": rings,
        "tasks": [
            {"task": 0, "pid": 100, "tid": 100, "comm": b"reader"},
            {"task": 1, "process": 0, "pid": 100, "tid": 101, "comm": b'a "b",\n\xe2\x82\xac'},
        ],
        "files": [
            {"file": 0, "path": b"/seq", "mode": 0o100644},
            {"file": 1, "path": b"/random", "inode": 2**63 + 1},
            {"file": 2, "path": b"/raw\xff\n,x"},
        ],
        "handles": [{"handle": n, "file": n, "fd": 3, "used": 1, "task": 0} for n in range(3)],
        "paths": [
            {"operation": 2, "source": 3, "path": b"", "directory": b"/home"},
            {"operation": 2, "place": 1, "source": 0},
        ],
    }


@pytest.fixture(name="trace")
def known_trace(tmp_path: Path) -> Trace:
    """The rows above."""
    return write_trace(tmp_path / "T", [make_batch(**known_rows())])


def plain(table: pa.Table) -> list[Row]:
    """Rows as Python has them."""
    rows: list[Row] = table.to_pylist()
    return rows


# ---- Parquet ----


@pytest.mark.parametrize("compression", ["zstd", "snappy", "none"])
def test_parquet_is_the_tables(trace: Trace, tmp_path: Path, compression: str) -> None:
    """Every table with its columns, types, nulls, units and descriptions."""
    written = export(trace, "parquet", tmp_path / "P", ignore, options=[f"compression={compression}"])
    assert written.rows == sum(trace.rows(name) for name in TABLES)
    assert written.size_bytes == sum(file.stat().st_size for file in (tmp_path / "P").iterdir())
    for name, columns in TABLES.items():
        found = pq.read_table(tmp_path / "P" / f"{name}.parquet")
        assert plain(found) == plain(trace.table(name)), name
        assert [field.remove_metadata() for field in found.schema] == [f.remove_metadata() for f in trace.schema(name)]
        for column in columns:
            said = found.schema.field(column.name).metadata
            assert said[b"description"].decode() == column.text
            assert said.get(b"unit", b"").decode() == column.unit
    codec = pq.ParquetFile(tmp_path / "P/operations.parquet").metadata.row_group(0).column(0).compression
    assert codec == {"none": "UNCOMPRESSED"}.get(compression, compression.upper())


def test_parquet_says_what_it_is(trace: Trace, tmp_path: Path) -> None:
    """A file alone tells its columns and its recording to who knows no Arrow."""
    export(trace, "parquet", tmp_path / "P", ignore)
    facts = pq.read_metadata(tmp_path / "P/operations.parquet").metadata
    columns = {each["column"]: each for each in json.loads(facts[b"lo2io.columns"])}
    assert columns["end_time_ns"] == {
        "column": "end_time_ns",
        "type": "int64",
        "unit": "ns",
        "null": True,
        "description": "exit of the call; null: in flight",
    }
    assert columns["call"]["type"] == "text"
    assert json.loads(facts[b"lo2io.command"]) == ["dd", "if=/dev/zero"]
    assert json.loads(facts[b"lo2io.selection"]) is None
    assert json.loads((tmp_path / "P" / METADATA_FILE).read_text()) == json.loads(json.dumps(trace.metadata))


def test_pieces_and_progress(trace: Trace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Long tables are written in row groups, and the share that is done grows to 1."""
    monkeypatch.setattr(tabular, "PIECE_ROWS", 1)
    monkeypatch.setattr("lo2io.trace.writer.CHUNK_ROWS", 4)
    rows = known_rows()["operations"]
    parts = [make_batch(operations=rows[at : at + 4]) for at in range(0, 20, 4)]
    long = write_trace(tmp_path / "long", parts)
    shares: list[float] = []
    export(long, "parquet", tmp_path / "P", shares.append, options=["tables=operations"])
    file = pq.ParquetFile(tmp_path / "P/operations.parquet")
    assert [file.metadata.row_group(n).num_rows for n in range(file.num_row_groups)] == [4] * 5
    assert shares == [0.2, 0.4, 0.6, 0.8, 1.0, 1.0]
    assert plain(file.read()) == plain(long.table("operations"))


def test_what_an_earlier_trace_lacks_is_unknown(trace: Trace, tmp_path: Path) -> None:
    """Tables and columns keep their places, whatever lo2io recorded."""
    folder = trace.path / DIRECTORY
    (folder / "iocbs.arrow").unlink()
    kept = trace.table("handles").drop_columns(["name_source", "open_flags"])
    with pa.ipc.new_file(folder / "handles.arrow", kept.schema) as file:
        file.write_table(kept)
    metadata = json.loads((folder / METADATA_FILE).read_text())
    del metadata["tables"]["iocbs"]
    (folder / METADATA_FILE).write_text(json.dumps(metadata))
    export(open_trace(trace.path), "parquet", tmp_path / "P", ignore)
    found = pq.read_table(tmp_path / "P/handles.parquet")
    assert found.schema.names == [column.name for column in TABLES["handles"]]
    assert found["name_source"].null_count == found.num_rows == 3
    assert pq.read_table(tmp_path / "P/iocbs.parquet").schema.names == [column.name for column in TABLES["iocbs"]]


def test_chosen_tables_of_a_part(trace: Trace, tmp_path: Path) -> None:
    """The export has the selection, in the requested tables."""
    part = select(trace, ["operation == sys_read"], end="210ms")
    export(part, "parquet", tmp_path / "P", ignore, options=["tables=operations:calls"])
    names = sorted(file.name for file in (tmp_path / "P").iterdir())
    assert names == ["calls.parquet", "lo2io-export.json", "metadata.json", "operations.parquet"]
    found = pq.read_table(tmp_path / "P/operations.parquet")
    assert found["begin_time_ns"].to_pylist() == [n * MS for n in range(10, 16)]
    assert json.loads((tmp_path / "P" / METADATA_FILE).read_text())["selection"]["end_ns"] == 210 * MS
    with pytest.raises(UsageError, match="export the table 'x'"):
        export(trace, "parquet", tmp_path / "Q", ignore, options=["tables=x"])
    assert not (tmp_path / "Q").exists()


# ---- CSV ----


def from_csv(text: str, kind: pa.DataType) -> Any:
    """A field as the column's type has it; the reader below keeps quotes."""
    if not text:
        return None
    if pa.types.is_binary(kind):
        return bytes.fromhex(text[1:-1])
    if text.startswith('"'):
        return text[1:-1].replace('""', '"')
    return text == "true" if pa.types.is_boolean(kind) else int(text)


def test_csv_is_the_tables(trace: Trace, tmp_path: Path) -> None:
    """Field by field; unknown is empty, an empty text a pair of quotes, bytes are hexadecimal."""
    export(trace, "csv", tmp_path / "C", ignore)
    field = re.compile(r'("(?:[^"]|"")*"|[^,\n]*)([,\n])')
    for name in TABLES:
        text = (tmp_path / "C" / f"{name}.csv").read_text(encoding="utf-8")
        lines: list[list[str]] = [[]]
        for value, end in field.findall(text):
            lines[-1].append(value)
            lines += [[]] if end == "\n" else []
        schema = trace.schema(name)
        assert [each[1:-1] for each in lines[0]] == schema.names
        rows = [
            {each.name: from_csv(value, each.type) for each, value in zip(schema, line, strict=True)}
            for line in lines[1:-1]
        ]
        assert rows == plain(trace.table(name)), name
    with (tmp_path / "C/files.csv").open(newline="") as file:
        assert [row["path"] for row in csv.DictReader(file)] == ["/seq", "/random", "/raw\\xff\n,x"]


HOSTILE = {
    b"=cmd|' /C calc'!A0": "'=cmd|' /C calc'!A0",
    b"+1": "'+1",
    b"-bash": "'-bash",
    b"@SUM(A1)": "'@SUM(A1)",
    b"\t=1": "'\t=1",
    "\uff1d1".encode(): "'\uff1d1",
    b"/a\x1b[31mred\x07": "/a\\x1b[31mred\\x07",
    "/c1\x9b31m".encode(): "/c1\\x9b31m",
    b"\r=1": "'\\x0d=1",
    b"/plain=+-@\n\t": "/plain=+-@\n\t",
    b"": "",
}


def test_csv_of_several_threads_is_in_order(trace: Trace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However few rows each of them takes."""
    export(trace, "csv", tmp_path / "whole", ignore)
    monkeypatch.setattr(tables_as_csv, "_PART_ROWS", 3)
    export(trace, "csv", tmp_path / "parts", ignore)
    whole, parts = (
        {path.name: path.read_bytes() for path in (tmp_path / name).iterdir()} for name in ("whole", "parts")
    )
    assert whole == parts


@pytest.mark.parametrize("text", ["safe", "raw"])
def test_csv_neither_speaks_to_terminals_nor_computes(tmp_path: Path, text: str) -> None:
    """Names of files and processes are anybody's. With text=raw they are as recorded."""
    files = [{"file": index, "path": path} for index, path in enumerate(HOSTILE)]
    write_trace(tmp_path / "T", [make_batch(operations=[], files=files)])
    export(open_trace(tmp_path / "T"), "csv", tmp_path / "C", ignore, options=["tables=files", f"text={text}"])
    content = (tmp_path / "C/files.csv").read_bytes()
    assert (b"\x1b" in content) == (text == "raw")
    with (tmp_path / "C/files.csv").open(newline="", encoding="utf-8") as file:
        found = [row["path"] for row in csv.DictReader(file)]
    assert found == [safe if text == "safe" else path.decode() for path, safe in HOSTILE.items()]


def test_csv_says_what_columns_mean(trace: Trace, tmp_path: Path) -> None:
    """One line a column, in a table of its own."""
    export(trace, "csv", tmp_path / "C", ignore, options=["tables=operations:calls"])
    with (tmp_path / "C/columns.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["column"] for row in rows if row["table"] == "operations"] == trace.schema("operations").names
    assert [row["column"] for row in rows if row["table"] == "calls"] == ["call", "tracepoint", "event_group", "kind"]
    assert next(row for row in rows if row["column"] == "bytes_result")["unit"] == "B"
    with (tmp_path / "C/calls.csv").open(newline="") as file:
        assert [row["call"] for row in csv.DictReader(file)] == [call.abi_name for call in CALLS]


# ---- the documentation's queries ----


def blocks(language: str) -> list[str]:
    """The page's blocks of code."""
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, flags=re.DOTALL | re.MULTILINE)


@pytest.fixture(name="answers")
def given_answers(trace: Trace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[list[tuple[Any, ...]]]:
    """DuckDB's answer to each query."""
    export(trace, "parquet", tmp_path / "T.parquet", ignore)
    monkeypatch.chdir(tmp_path)
    with duckdb.connect() as connection:
        return [connection.sql(query).fetchall() for query in blocks("sql")]


def test_the_queries_of_the_documentation(answers: list[list[tuple[Any, ...]]], trace: Trace) -> None:
    """Against sums over the rows that were written."""
    rows = known_rows()["operations"]
    names = ["/seq", "/random", "/raw\\xff\n,x"]
    ended = [row for row in rows if row["end_time_ns"] > 0]
    length = {row["id"]: row["end_time_ns"] - row["begin_time_ns"] for row in ended}
    meaning, files, calls, slow, tenths, order = answers
    assert [each["column"] for each in json.loads(meaning[0][0])] == trace.schema("operations").names

    expected = []
    for handle, path in enumerate(names):
        mine = [row for row in rows if row["handle"] == handle]
        moved = [sum(row["bytes_result"] for row in mine if row["call"] == code) or None for code in (READ, WRITE)]
        seconds = sum(length.get(row["id"], 0) for row in mine) / 1e9
        expected.append((path, len(mine), *moved, pytest.approx(seconds)))
    assert files == sorted(expected, key=lambda row: -row[4].expected)

    found = defaultdict(list)
    for row in rows:
        found[CALLS[row["call"]].abi_name].append(row)
    for name, nr, errors, median, p99, longest in calls:
        times = sorted(length[row["id"]] for row in found[name] if row["id"] in length)
        assert (nr, errors) == (len(found[name]), sum(1 for row in found[name] if row.get("error")))
        assert (median, p99, longest) == (times[(len(times) - 1) // 2], times[-1], times[-1])
    assert sorted(row[0] for row in calls) == sorted(found)

    slowest = sorted(ended, key=lambda row: (-length[row["id"]], row["id"]))[:10]
    assert [row[0] for row in slow] == [row["id"] for row in slowest]
    assert slow[0][1:5] == ("reader", 100, "copy_file_range", "/seq")
    assert slow[1][1:] == ("reader", 100, "read", "/random", slowest[1]["offset_bytes"], 512, 0.045)

    by_tenth = defaultdict(lambda: [None, None])
    for row in rows:
        sums = by_tenth[row["begin_time_ns"] // (100 * MS)]
        if row["call"] in (READ, WRITE):
            sums[row["call"]] = (sums[row["call"]] or 0) + row["bytes_result"]
    assert tenths == [(tenth, *sums) for tenth, sums in sorted(by_tenth.items())]
    assert order == [("/random", 6, 0), ("/seq", 6, 5)]


def test_the_other_readers_of_the_documentation(answers: list[Any], trace: Trace) -> None:
    """Polars and pandas read the same files, and agree with the rows."""
    del answers  # the fixture has written it
    said: dict[str, Any] = {}
    for block in blocks("python"):
        exec(block, said)  # noqa: S102 - the page's own
    done = [row for row in known_rows()["requests"] if not row.get("status")]
    expected = []
    for code, name in enumerate(("read", "write")):
        mine = [row for row in done if row["operation"] == code]
        queue = statistics.median(row["issue_time_ns"] - row["insert_time_ns"] for row in mine)
        device = statistics.median(row["complete_time_ns"] - row["issue_time_ns"] for row in mine)
        expected.append(("vda", name, len(mine), queue, device))
    assert isinstance(said["waits"], pl.DataFrame)
    assert said["waits"].rows() == expected
    ways = defaultdict(list)
    for row in plain(trace.ring_requests):
        ways[row["opcode"], row["path"]].append(row["queued_ns"])
    assert isinstance(said["ways"], pd.DataFrame)
    assert {key: tuple(row) for key, row in zip(said["ways"].index, said["ways"].to_numpy(), strict=True)} == {
        key: (len(times), statistics.median(times)) for key, times in ways.items()
    }


def test_damaged_descriptions_are_text() -> None:
    """What is no UTF-8 in a column's unit or description is shown as unknown characters."""
    field = pa.field("fd", pa.int32(), metadata={"description": b"a \xff", "unit": b"\xfe"})
    (told,) = describe(pa.schema([field]))
    assert (told["description"], told["unit"]) == ("a \ufffd", "\ufffd")


@pytest.mark.parametrize(("text", "shown"), [("safe", "'=1+1"), ("raw", "=1+1")])
def test_what_is_said_of_columns_computes_nothing(
    trace: Trace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, shown: str
) -> None:
    """Another tool's table may have any name of a column."""
    column = {"column": "=1+1", "type": "int64", "unit": "", "meaning": ""}
    monkeypatch.setattr(tables_as_csv, "describe", lambda _: [column])
    export(trace, "csv", tmp_path / "C", ignore, options=[f"text={text}", "tables=threads"])
    rows = csv.DictReader((tmp_path / "C/columns.csv").read_text("utf-8").splitlines())
    assert [row["column"] for row in rows] == [shown]


def test_texts_of_parquet_are_coded(trace: Trace, tmp_path: Path) -> None:
    """Each text of a column stands once; numbers are written one by one."""
    export(trace, "parquet", tmp_path / "P", ignore, options=["tables=threads"])
    group = pq.ParquetFile(tmp_path / "P/threads.parquet").metadata.row_group(0)
    columns = [group.column(place) for place in range(group.num_columns)]
    assert {column.path_in_schema: column.has_dictionary_page for column in columns}.items() >= {
        ("comm", True), ("task", False), ("pid", False),
    }  # fmt: skip
