"""The tables beside the trace: what goes in comes out, unknown is null, and no half-written file has a name."""

from __future__ import annotations

import json
import os
import struct
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
from build.tablemaker import (
    CALLS,
    COMPLETE,
    META,
    OPCODES,
    OPENAT,
    READ,
    WRITE,
    make_batch,
    meta,
    repeat_operation,
    write_trace,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from lo2io.catalog.wait_reasons import load_reasons
from lo2io.errors import TraceError
from lo2io.model import UNKNOWN_I64, UNKNOWN_U32, Completeness, EventCompleteness, Totals
from lo2io.model.command_lines import command_line
from lo2io.native.columns import column_dtypes
from lo2io.reports.summary.name_counts import count_names
from lo2io.reports.summary.owners import Owners
from lo2io.trace import reader, writer
from lo2io.trace.writer import TableWriter

REFERENCE = Path(__file__).parents[3] / "docs" / "reference" / "tables.md"

NATIVE = {"operations": "operation", "handles": "handle", "files": "file", "threads": "task", "requests": "request"}
NATIVE |= {"losses": "loss", "off_cpu": "off_cpu", "ring_requests": "ring_request", "ring_works": "ring_work"}
NATIVE |= {"ring_states": "ring_state", "batches": "batch", "rings": "ring"}
if TYPE_CHECKING:
    from collections.abc import Callable

LABELS = {"calls": [call.abi_name for call in CALLS], "opcodes": writer.opcode_labels(OPCODES)}
LABELS["reasons"] = list(load_reasons().names)
TEXTS = {"files": ("path",), "threads": ("comm", "cgroup", "cmdline")}
SIMPLE = {"int64": (-(2**63), 2**63 - 1), "uint64": (0, 2**64 - 1), "uint32": (0, 2**32 - 1), "int32": (-(2**31), 5)}
SIMPLE |= {"uint16": (0, 2**16 - 1), "int16": (-(2**15), 2**15 - 1), "uint8": (0, 255), "bool": (0, 1)}


@pytest.mark.parametrize(("table", "struct"), NATIVE.items())
def test_each_native_column_has_its_place(table: str, struct: str) -> None:
    """A column added to columns.h or ring_columns.h must be added to the schema, with the same type."""
    native = {name: str(dtype) for name, dtype in column_dtypes(struct).items()}
    left_out = {f"{name}_{part}" for name in ("path", "comm", "cgroup", "cmdline") for part in ("offset", "length")}
    left_out |= {"before"} if table == "off_cpu" else set()  # a place in the operations: for writers of one order
    left_out |= {"fuse_requests", "fuse_ns"} if table == "operations" else set()  # sums, for writers
    owners = {"operations": {"process"}, "ring_works": {"process", "pid", "tid"}, "ring_states": {"process"}}
    left_out |= owners.get(table, set())  # for writers: the tables of threads and rings have them
    numbers = {column.name: column.dtype for column in reader.TABLES[table] if column.kind == "number"}
    numbers.pop("operation" if table == "off_cpu" else "", None)  # the writer finds it: test_stretches.py
    assert {name: dtype.replace("bool", "uint8") for name, dtype in numbers.items()} == {
        name: dtype for name, dtype in native.items() if name not in left_out
    }


def describe(column: reader.Column) -> str:
    """The column's line in ``docs/reference/tables.md``."""
    kind = str(column.arrow_type).partition("<")[0].replace("string", "utf8")
    null = " yes " if column.nullable else " "
    if isinstance(column.labels, tuple):
        codes = ", ".join(f"{code} {label}" for code, label in enumerate(column.labels))
        return f"| `{column.name}` | {kind} | |{null}| {column.text}: {codes} |"
    unit = f" {column.unit} " if column.unit else " "
    return f"| `{column.name}` | {kind} |{unit}|{null}| {column.text} |"


@pytest.mark.parametrize("table", reader.TABLES)
def test_the_reference_describes_every_column(table: str) -> None:
    """Docs and schema say the same; a changed column prints the line the docs need."""
    section = REFERENCE.read_text().partition(f"### {table}\n")[2].partition("\n### ")[0].partition("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("| `")]
    assert lines == [describe(column) for column in reader.TABLES[table]]


def row_of(table: str) -> st.SearchStrategy[dict[str, Any]]:
    """A row of any values the columns can hold, unknown ones often."""
    values: dict[str, st.SearchStrategy[Any]] = {}
    for column in reader.TABLES[table]:
        if column.kind != "number":
            continue
        low, high = SIMPLE[column.dtype]
        if column.labels is not None:
            high = len(LABELS[column.labels] if isinstance(column.labels, str) else column.labels) - 1
        elif column.name in reader.ROW_NUMBERS and column.dtype == "uint32":
            high = reader.NUMBERS_FREE - 1  # larger ones are refused in a trace as small as this
        value = st.integers(low, high)
        values[column.name] = value if column.null is None else st.one_of(st.just(column.null), value)
    values |= dict.fromkeys(TEXTS.get(table, ()), st.binary(max_size=12))
    return st.fixed_dictionaries(values)


def expected(table: str, row: dict[str, Any]) -> dict[str, Any]:
    """The values of a row that a reader must see."""
    seen: dict[str, Any] = {}
    for column in reader.TABLES[table]:
        if column.kind != "number":
            if column.name == "container":
                seen["container"] = None  # no random bytes are one's id
                continue
            raw = row[column.name.removesuffix("_bytes")]
            shown = raw.decode(errors="backslashreplace") or None
            exact = raw if raw.decode(errors="replace").encode() != raw else None
            if column.name == "cmdline":
                shown = command_line(shown or "") or None
            seen[column.name] = exact if column.kind == "bytes" else shown
            continue
        value = row[column.name]
        if column.labels is not None:
            value = (LABELS[column.labels] if isinstance(column.labels, str) else column.labels)[value]
        elif column.dtype == "bool":
            value = bool(value)
        seen[column.name] = None if column.null is not None and row[column.name] == column.null else value
    return seen


@pytest.mark.parametrize("table", sorted(NATIVE.keys() - {"off_cpu"}))
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_round_trip(table: str, data: st.DataObject, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Rows of several batches come back in order, whatever they hold."""
    parts = data.draw(st.lists(st.lists(row_of(table), max_size=4), max_size=3))
    source = "tasks" if table == "threads" else table
    trace = write_trace(tmp_path_factory.mktemp("t"), [make_batch(**{source: part}) for part in parts])
    rows = [row for part in parts for row in part]
    assert trace.table(table).to_pylist() == [expected(table, row) for row in rows]
    assert trace.rows(table) == len(rows)
    for column in reader.TABLES[table]:
        if column.kind == "number":
            assert trace.column(table, column.name).tolist() == [row[column.name] for row in rows]


def test_a_batch_may_be_filled_again_after_write(tmp_path: Path) -> None:
    """The writer keeps nothing of the engine's memory, neither of rows it gathers nor of rows it writes at once."""
    small = make_batch(operations=[{"id": 1, "fd": 3}])
    large = repeat_operation({"id": 7, "fd": 3}, writer.CHUNK_ROWS)
    with TableWriter(tmp_path, META, CALLS) as out:
        for batch in (large, small):
            out.write(batch)
            batch.operations["id"][:] = 99
        out.close(Totals(), COMPLETE, 0, 1)
    ids = reader.open_trace(tmp_path).column("operations", "id")
    assert ids[0] == 7
    assert ids[-1] == 1


def test_chunks_keep_order_and_bound_memory(tmp_path: Path) -> None:
    """Many batches of odd sizes make few record batches, in order, none much larger than the largest of them."""
    sizes = [3, writer.CHUNK_ROWS // 2 - 1, writer.CHUNK_ROWS, 1, writer.CHUNK_ROWS - 2, 5]
    batches = [repeat_operation({}, size) for size in sizes]
    first = 0
    for batch, size in zip(batches, sizes, strict=True):
        batch.operations["id"][:] = np.arange(first, first + size)
        first += size
    trace = write_trace(tmp_path, batches)
    parts = [part["id"] for part in trace.batches("operations", ["id"])]
    assert np.array_equal(np.concatenate(parts), np.arange(first))
    assert len(parts) <= 4
    assert max(map(len, parts)) < 2 * writer.CHUNK_ROWS


def test_long_texts_bound_a_chunk(tmp_path: Path) -> None:
    """Few rows make a record batch if their texts are long, and none is lost."""
    paths = [b"%06d" % number + b"x" * 250_000 for number in range(150)]
    trace = write_trace(tmp_path, [make_batch(files=[{"file": n, "path": path}]) for n, path in enumerate(paths)])
    parts = [part.column("path").to_pylist() for part in trace.record_batches("files", ["path"])]
    assert [text.encode() for part in parts for text in part] == paths
    assert len(parts) > 1
    assert max(sum(map(len, part)) for part in parts) < writer.CHUNK_BYTES + 300_000


def test_units_and_clock_stand_in_the_file(tmp_path: Path) -> None:
    """A stranger with nothing but the Arrow file learns units, meanings, clock and version."""
    write_trace(tmp_path, [])
    schema = pa.ipc.open_file(pa.OSFile(str(tmp_path / "lo2io/operations.arrow"))).schema
    assert schema.metadata[b"clock"] == b"perf"
    assert schema.metadata[b"schema_version"] == b"1"
    assert schema.field("begin_time_ns").metadata[b"unit"] == b"ns"
    assert schema.field("bytes_result").metadata[b"unit"] == b"B"
    assert not schema.field("begin_time_ns").nullable
    assert all(field.metadata[b"description"] for field in schema)


def test_two_calls_of_one_name_stay_apart(tmp_path: Path) -> None:
    """A dictionary's entries must differ: calls that share an ABI name go by their tracepoints."""
    calls = (CALLS[5], meta_call := CALLS[5].__class__(**{**_fields(CALLS[5]), "name": "fstat_old"}))
    assert writer.call_labels(calls) == ("newfstat", meta_call.name)
    assert writer.call_labels(CALLS)[5] == "fstat"
    with TableWriter(tmp_path, META, calls) as out:
        out.write(make_batch(operations=[{"call": 1}]))
        out.close(Totals(), COMPLETE, 0, 1)
    assert reader.open_trace(tmp_path).operations["call"].to_pylist() == ["fstat_old"]


def _fields(spec: Any) -> dict[str, Any]:
    return {name: getattr(spec, name) for name in spec.__dataclass_fields__}


def test_opcodes_go_by_name_or_number(tmp_path: Path) -> None:
    """The catalog's by name, newer ones by number, unseen ones unknown. Codes are the kernel's."""
    rows = [{"id": at, "opcode": opcode} for at, opcode in enumerate((1, len(OPCODES), 254, 255))]
    trace = write_trace(tmp_path, [make_batch(ring_requests=rows, ring_works=rows)])
    for table in ("ring_requests", "ring_works"):
        labels = trace.table(table)["opcode"].to_pylist()
        assert labels == ["READV", f"opcode {len(OPCODES)}", "opcode 254", "unknown"]
        assert trace.column(table, "opcode").tolist() == [1, len(OPCODES), 254, 255]
    assert trace.metadata["opcodes"][1] == {"number": 1, "name": "READV", "kind": "read", "io_mode": "read"}
    assert trace.metadata["sample_rate"] == 1


def test_fuse_opcodes_go_by_name_or_number(tmp_path: Path) -> None:
    """255 stands for all that are larger, such as CUSE_INIT, which starts a device of a CUSE server."""
    trace = write_trace(tmp_path, [make_batch(fuse_requests=[{"opcode": opcode} for opcode in (1, 254, 255)])])
    assert trace.table("fuse_requests")["opcode"].to_pylist() == ["LOOKUP", "opcode 254", "other"]
    assert trace.column("fuse_requests", "opcode").tolist() == [1, 254, 255]


def test_a_trace_of_an_earlier_version_has_no_rings(tmp_path: Path) -> None:
    """Tables that it lacks have their columns and no rows; columns that it lacks are unknown throughout."""
    trace = write_trace(tmp_path, [make_batch(requests=[{"id": 4}, {"id": 5}])])
    metadata = json.loads((tmp_path / "lo2io/metadata.json").read_text())
    for table in ("ring_requests", "rings"):
        (tmp_path / f"lo2io/{table}.arrow").unlink()
        del metadata["tables"][table]
    (tmp_path / "lo2io/metadata.json").write_text(json.dumps(metadata))
    requests = trace.requests.drop_columns(["ring_request"])
    with pa.ipc.new_file(pa.OSFile(str(tmp_path / "lo2io/requests.arrow"), "wb"), requests.schema) as file:
        file.write_table(requests)
    old = reader.open_trace(tmp_path)
    assert old.ring_requests.num_rows == old.rings.num_rows == old.rows("rings") == 0
    assert old.rings.schema == reader.arrow_schema("rings", "perf")
    assert old.table("rings", ["ring", "fd"]).schema.names == ["ring", "fd"]
    assert list(old.batches("ring_requests", ["id", "opcode"])) == []
    (part,) = old.batches("requests", ["ring_request", "id"])
    assert {name: array.tolist() for name, array in part.items()} == {"ring_request": [0, 0], "id": [4, 5]}


def test_paths_keep_their_exact_bytes(tmp_path: Path) -> None:
    """Newlines, UTF-8, other encodings, an escape written out: each path is unchanged."""
    paths = [b"/a\nb", "/\u00fc".encode(), b"/\xfc", rb"/\xfc", b"", b"/" + b"x" * 4000]
    batch = make_batch(files=[{"file": index, "path": path} for index, path in enumerate(paths)])
    files = write_trace(tmp_path, [batch]).files.to_pylist()
    assert [row["path"] for row in files] == ["/a\nb", "/ü", r"/\xfc", r"/\xfc", None, "/" + "x" * 4000]
    assert [row["path_bytes"] for row in files] == [None, None, b"/\xfc", None, None, None]


def test_containers_are_read_from_cgroups(tmp_path: Path) -> None:
    """The id stands in the path the runtime gave; other cgroups are no containers; unknown is null."""
    number = "0123456789abcdef" * 4
    paths = [f"/system.slice/docker-{number}.scope".encode(), b"/user.slice", b""]
    batch = make_batch(tasks=[{"task": i, "cgroup": path, "comm": b"c"} for i, path in enumerate(paths)])
    threads = write_trace(tmp_path, [batch]).threads.to_pylist()
    assert [row["cgroup"] for row in threads] == [f"/system.slice/docker-{number}.scope", "/user.slice", None]
    assert [row["container"] for row in threads] == [number, None, None]


def test_devices_completeness_and_metadata(tmp_path: Path) -> None:
    """The spool's metadata and the proof are in the tables and the metadata, whole."""
    events = (
        EventCompleteness("a:b", 1, 10, 2, 7),
        EventCompleteness("a:c", 0, None, 0, 5),
        EventCompleteness("a:d", 0, 3, 0, 9, slack=4),
    )
    proof = Completeness(3, 1, 4, 5, 6, 12, False, events)
    odd = meta(command=("cat", "\udcff"), notices=("ring halved",))
    trace = write_trace(
        tmp_path, [make_batch(operations=[{}])], spool=odd, totals=Totals(nr_late=4), completeness=proof, span=(5, 9)
    )
    assert trace.completeness == proof
    assert trace.table("completeness")["slack"].to_pylist() == [0, 0, 4]
    assert trace.table("completeness")["vanished"].to_pylist() == [1, 0, 0]
    assert trace.devices.to_pylist()[1] == {
        "device": 254 << 20, "name": "vda", "scheduler": None, "rotational": None, "size_bytes": None, "model": None,
    }  # fmt: skip
    assert trace.devices["rotational"].to_pylist() == [1, None]
    assert trace.metadata["command"] == ["cat", "\udcff"]
    assert (trace.metadata["start_ns"], trace.metadata["stop_ns"]) == (5, 9)
    assert trace.metadata["totals"]["nr_late"] == 4
    assert trace.metadata["notices"] == ["ring halved"]
    assert trace.metadata["calls"][READ] == {
        "name": "read", "tracepoint": "read", "group": "core", "kind": "read", "class": "read",
    }  # fmt: skip
    assert trace.metadata["tables"]["operations"] == {"file": "operations.arrow", "rows": 1}
    assert "formats" not in trace.metadata


def test_projection_gives_only_what_was_asked(tmp_path: Path) -> None:
    """Columns come by name, in any order, with the engine's values for unknown."""
    rows = [{"call": WRITE, "handle": 5, "closes": 1}, {"call": OPENAT}]
    trace = write_trace(tmp_path, [make_batch(operations=rows)])
    (part,) = trace.batches("operations", ["handle", "call", "closes", "end_time_ns"])
    assert {name: array.tolist() for name, array in part.items()} == {
        "handle": [5, UNKNOWN_U32],
        "call": [WRITE, OPENAT],
        "closes": [True, False],
        "end_time_ns": [UNKNOWN_I64, UNKNOWN_I64],
    }


def test_nothing_is_left_of_a_conversion_that_failed(tmp_path: Path) -> None:
    """Neither tables nor metadata: a trace is whole, or it is none."""
    out = TableWriter(tmp_path, META, CALLS)
    out.write(make_batch(operations=[{}]))
    with pytest.raises(RuntimeError), out:
        raise RuntimeError
    assert list((tmp_path / "lo2io").iterdir()) == []
    with pytest.raises(TraceError):
        reader.open_trace(tmp_path)


def test_no_parts_remain_after_close(tmp_path: Path) -> None:
    """Every file has its name, and there are no others."""
    write_trace(tmp_path, [])
    names = {path.name for path in (tmp_path / "lo2io").iterdir()}
    assert names == {f"{table}.arrow" for table in reader.TABLES} | {"metadata.json"}


def test_full_disk_is_an_error_with_a_remedy(tmp_path: Path) -> None:
    """ENOSPC, as /dev/full gives it, becomes a TraceError that names the directory and what to do."""
    (tmp_path / "lo2io").mkdir()
    (tmp_path / "lo2io" / "operations.arrow.part").symlink_to("/dev/full")
    with TableWriter(tmp_path, META, CALLS) as out, pytest.raises(TraceError) as caught:
        out.write(repeat_operation({}, writer.CHUNK_ROWS))
    assert str(tmp_path) in caught.value.tried
    assert "No space left" in caught.value.answer
    assert "lo2io convert" in caught.value.remedy
    assert not (tmp_path / "lo2io/metadata.json").exists()


def test_a_place_nobody_can_write_is_a_trace_error(tmp_path: Path) -> None:
    """A file where the directory should be."""
    (tmp_path / "lo2io").write_text("in the way")
    with pytest.raises(TraceError, match=str(tmp_path)):
        TableWriter(tmp_path, META, CALLS)


@pytest.mark.parametrize(
    ("content", "answer"),
    [
        (None, "No such file"),
        ("{", "Expecting"),
        ("[]", "lo2io did not write"),
        ('{"format": "other"}', "lo2io did not write"),
        (json.dumps({"format": reader.FORMAT, "schema_version": 99}), "schema version 99"),
    ],
)
def test_what_is_no_trace_is_refused(tmp_path: Path, content: str | None, answer: str) -> None:
    """Each with the finding and the remedy."""
    (tmp_path / "lo2io").mkdir()
    if content is not None:
        (tmp_path / "lo2io/metadata.json").write_text(content)
    with pytest.raises(TraceError) as caught:
        reader.open_trace(tmp_path)
    assert answer in caught.value.answer
    assert caught.value.remedy
    assert caught.value.exit_code == 5


@pytest.mark.parametrize(
    ("change", "answer"),
    [
        ({"stop_ns": 2**64 - 1}, "'stop_ns': 18446744073709551615 does not fit"),
        ({"stop_ns": "1"}, "'stop_ns' is no time"),
        ({"mode": 7}, "'mode' is no str"),
        ({"calls": 7}, "'calls' is no list"),
        ({"calls": [7]}, "'calls' holds"),
        ({"calls": [{"class": "CO0Y"}]}, "a call's 'class' is 'CO0Y'"),
        ({"calls": [{"class": ["copy"]}]}, "a call's 'class' is ['copy']"),
        ({"calls": [{"class": "sync", "waits": "yes"}]}, "a call's 'waits' is 'yes'"),
        ({"calls": [{"class": "sync", "synced_if": 2**32}]}, "a call's 'synced_if' is 4294967296"),
        ({"devices": [{"device": 2**70}]}, "'device'"),
        ({"hostname": "\ud800"}, "surrogates not allowed"),
        ({"tables": []}, "'tables' is no dict"),
        ({"tables": {"operations": {"rows": -1}}}, "no number of rows"),
    ],
)
def test_damaged_metadata_is_a_trace_error(tmp_path: Path, change: dict[str, Any], answer: str) -> None:
    """With the file and the key, before anything is computed from it."""
    write_trace(tmp_path, [])
    file = tmp_path / "lo2io/metadata.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **change}))
    with pytest.raises(TraceError) as caught:
        reader.open_trace(tmp_path)
    assert answer in caught.value.answer
    assert str(file) in caught.value.answer


@pytest.mark.parametrize("key", ["stop_ns", "machine", "clock", "completeness"])
def test_a_missing_key_is_a_trace_error_where_it_is_needed(tmp_path: Path, key: str) -> None:
    """Also in objects inside."""
    write_trace(tmp_path, [])
    file = tmp_path / "lo2io/metadata.json"
    metadata = json.loads(file.read_text())
    del metadata[key]
    file.write_text(json.dumps(metadata))
    with pytest.raises(TraceError, match=f"'{key}' is missing"):
        reader.open_trace(tmp_path).metadata[key]


def test_a_column_whose_name_is_no_text_is_a_trace_error(tmp_path: Path) -> None:
    """Where its name is looked for among those of the file."""
    trace = write_trace(tmp_path, [make_batch(operations=[{}])])
    file = tmp_path / "lo2io/operations.arrow"
    file.write_bytes(file.read_bytes().replace(b"cache_wait_ns", b"cache\xe5wait_ns"))
    with pytest.raises(TraceError, match=r"operations\.arrow"):
        list(trace.batches("operations", ["id", "cache_wait_ns"]))


@pytest.mark.parametrize("kind", [pa.int64(), pa.bool_(), pa.dictionary(pa.int8(), pa.utf8())])
def test_a_column_without_rows_is_an_array_without_elements(kind: pa.DataType) -> None:
    """Whether Arrow has a buffer for it or none."""
    for column in (pa.array([], kind), pa.array([None], kind).slice(0, 0)):
        assert reader.as_numpy(column).shape == (0,)


@pytest.mark.timeout(30)
def test_a_fifo_in_place_of_the_metadata_stops_nobody(tmp_path: Path) -> None:
    """It has no end that a reader could wait for."""
    (tmp_path / "lo2io").mkdir()
    os.mkfifo(tmp_path / "lo2io/metadata.json")
    with pytest.raises(TraceError, match="no regular file"):
        reader.open_trace(tmp_path)


def test_the_otf2_file_names_the_trace_too(tmp_path: Path) -> None:
    """Users give what Vampir takes."""
    write_trace(tmp_path, [])
    assert reader.open_trace(tmp_path / "traces.otf2").path == tmp_path


def test_a_damaged_or_missing_table_is_a_trace_error(tmp_path: Path) -> None:
    """Cut off or gone, the error names the file."""
    trace = write_trace(tmp_path, [make_batch(operations=[{}] * 100)])
    file = tmp_path / "lo2io/operations.arrow"
    file.write_bytes(file.read_bytes()[:-100])
    with pytest.raises(TraceError, match=r"operations\.arrow"):
        trace.table("operations")
    (tmp_path / "lo2io/files.arrow").unlink()
    with pytest.raises(TraceError, match=r"files\.arrow"):
        trace.column("files", "inode")


@pytest.mark.timeout(30)
def test_a_fifo_in_place_of_a_table_stops_nobody(tmp_path: Path) -> None:
    """Opening it would wait for a writer."""
    trace = write_trace(tmp_path, [make_batch(operations=[{}])])
    (tmp_path / "lo2io/operations.arrow").unlink()
    os.mkfifo(tmp_path / "lo2io/operations.arrow")
    with pytest.raises(TraceError, match=r"operations\.arrow: .*no regular file"):
        trace.table("operations")


@pytest.mark.parametrize(
    ("table", "column", "number"),
    [
        ("operations", "handle", 2**31),
        ("operations", "task", 2**32 - 2),
        ("threads", "task", 2**32 - 1),
        ("handles", "file", reader.NUMBERS_FREE + 2**20),
    ],
)
def test_a_number_of_a_row_beyond_any_table_is_a_trace_error(
    tmp_path: Path, table: str, column: str, number: int
) -> None:
    """Readers make arrays as long as the highest number: 8 to 32 GiB for these. Unknown stays unknown."""
    rows: list[dict[str, Any]] = [{}] * 5
    batches = [rows, [*rows, {column: number}]]
    trace = write_trace(tmp_path, [make_batch(**{{"threads": "tasks"}.get(table, table): part}) for part in batches])
    with pytest.raises(TraceError, match=rf"{table}\.arrow: batch 0: row 10: {column} {number} is beyond the"):
        trace.column(table, column)


def rewrite(file: Path, change: Callable[[pa.Table], pa.Table]) -> None:
    """Write a changed table in place of the file."""
    with pa.ipc.open_file(file.read_bytes()) as found:
        table = change(found.read_all())
    with pa.ipc.new_file(file, table.schema) as out:
        out.write_table(table)


@pytest.mark.parametrize(
    ("table", "column", "kind"),
    [
        ("files", "path", pa.large_utf8()),
        ("operations", "begin_time_ns", pa.int8()),
        ("operations", "closes", pa.int64()),
        ("operations", "call", pa.utf8()),
        ("operations", "call", pa.dictionary(pa.uint16(), pa.utf8())),
        ("operations", "call", pa.dictionary(pa.int16(), pa.large_utf8())),
    ],
)
def test_a_column_of_another_type_is_a_trace_error(tmp_path: Path, table: str, column: str, kind: pa.DataType) -> None:
    """Native code would take its memory for that of the type that lo2io writes."""
    trace = write_trace(tmp_path, [make_batch(operations=[{}] * 3, files=[{}] * 3)])

    def cast(rows: pa.Table) -> pa.Table:
        return rows.set_column(rows.schema.names.index(column), column, rows[column].cast(kind))

    rewrite(tmp_path / f"lo2io/{table}.arrow", cast)
    with pytest.raises(TraceError, match=rf"{table}\.arrow: the column {column} has the type .* instead of"):
        list(trace.batches(table, [column]) if table == "operations" else trace.record_batches(table, [column]))


def test_codes_may_be_wider_than_lo2io_writes_them(tmp_path: Path) -> None:
    """Versions differ in that."""
    trace = write_trace(tmp_path, [make_batch(operations=[{"call": 1}])])
    wide = pa.dictionary(pa.int32(), pa.utf8())
    rewrite(
        tmp_path / "lo2io/operations.arrow",
        lambda rows: rows.set_column(rows.schema.names.index("call"), "call", rows["call"].cast(wide)),
    )
    assert trace.column("operations", "call").tolist() == [1]


@pytest.mark.parametrize("code", [-1, len(CALLS), len(CALLS) + 3])
def test_a_code_without_a_label_of_lo2ios_is_a_trace_error(tmp_path: Path, code: int) -> None:
    """The file's own labels prove nothing: arrays have an element for each call of the metadata."""
    trace = write_trace(tmp_path, [make_batch(operations=[{}] * 3)])
    labels = [f"call {number}" for number in range(len(CALLS) + 10)]
    codes = pa.DictionaryArray.from_arrays(
        pa.array([0, 0, max(code, 0)], pa.int16(), mask=np.array([False, False, code < 0])), pa.array(labels)
    )
    if code < 0:  # under a null, where Arrow looks for no label
        raw = pa.Array.from_buffers(pa.int16(), 3, [pa.py_buffer(b"\x03"), pa.py_buffer(np.array([0, 0, code], "i2"))])
        codes = pa.DictionaryArray.from_arrays(raw, pa.array(labels))
    rewrite(
        tmp_path / "lo2io/operations.arrow",
        lambda rows: rows.set_column(rows.schema.names.index("call"), "call", codes),
    )
    with pytest.raises(TraceError, match=rf"batch 0: row 2: call has the code {code}, and there are {len(CALLS)}"):
        trace.column("operations", "call")


def test_two_columns_of_one_name_are_a_trace_error(tmp_path: Path) -> None:
    """Nobody could tell which of them is meant."""
    trace = write_trace(tmp_path, [make_batch(operations=[{}])])
    rewrite(tmp_path / "lo2io/operations.arrow", lambda rows: rows.append_column("task", rows["task"]))
    with pytest.raises(TraceError, match="two columns have the same name"):
        trace.table("operations")


@pytest.mark.parametrize("change", [{"lost": None}, {"another": 1}])
def test_a_proof_with_other_members_is_a_trace_error(tmp_path: Path, change: dict[str, Any]) -> None:
    """The error names the key."""
    write_trace(tmp_path, [])
    path = tmp_path / "lo2io/metadata.json"
    metadata = json.loads(path.read_text())
    proof = {**metadata["completeness"], **change}
    metadata["completeness"] = {key: value for key, value in proof.items() if value is not None}
    path.write_text(json.dumps(metadata))
    with pytest.raises(TraceError, match="'completeness'"):
        _ = reader.open_trace(tmp_path).completeness


def test_a_column_that_claims_gigabytes_is_a_trace_error(tmp_path: Path) -> None:
    """Before each compressed column stands its size: what is there does not have it."""
    trace = write_trace(tmp_path, [repeat_operation({"begin_time_ns": 5}, 1000)])
    file = tmp_path / "lo2io/operations.arrow"
    head, frame = struct.pack("<q", 8_000), b"\x04\x22\x4d\x18"  # of LZ4
    content = file.read_bytes()
    assert head + frame in content
    for size in (8 << 30, 1 << 46, -5):
        file.write_bytes(content.replace(head + frame, struct.pack("<q", size) + frame))
        with pytest.raises(TraceError, match=r"operations\.arrow: batch 0: "):
            trace.table("operations")


def test_text_that_is_none_is_a_trace_error(tmp_path: Path) -> None:
    """A byte that UTF-8 does not have: Arrow reads it, and Python would fail where it is printed."""
    trace = write_trace(tmp_path, [make_batch(tasks=[{"comm": b"a-command"}])])
    file = tmp_path / "lo2io/threads.arrow"
    content = file.read_bytes()
    assert b"a-command" in content
    file.write_bytes(content.replace(b"a-command", b"a-\xffommand"))
    with pytest.raises(TraceError, match=r"threads\.arrow: batch 0: .*UTF8"):
        trace.table("threads")


def test_rows_that_the_metadata_claim_take_no_memory(tmp_path: Path) -> None:
    """Arrays are as long as the tables, not as what is said of them."""
    write_trace(tmp_path, [make_batch(handles=[{"file": 0}], files=[{}], tasks=[{}])])
    path = tmp_path / "lo2io/metadata.json"
    metadata = json.loads(path.read_text())
    for name in ("handles", "files"):
        metadata["tables"][name]["rows"] = 1 << 50
    path.write_text(json.dumps(metadata))
    trace = reader.open_trace(tmp_path)
    assert count_names(trace)
    assert Owners(trace).nr_files == 1
