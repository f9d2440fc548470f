"""The tables of many nodes as one: `lo2io.open(T)` and `lo2io query T` of a directory with folders `host=NAME`."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
from build.merged_traces import small_cluster, write_correction
from workloads import served

import lo2io
from lo2io.api.queries import VIEWS, Queries
from lo2io.cluster.merge import merge
from lo2io.cluster.nodes import HOSTS
from lo2io.errors import TraceError, UsageError
from lo2io.trace.reader import TABLES

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from lo2io.cluster.nodes import Nodes

MS = 1_000_000
S = 1000 * MS
CORRECTIONS: dict[str, list[tuple[int, int]]] = {
    "a": [(0, 0), (S, 0)],
    "b": [(0, 7), (9 * MS, 1_000), (20 * MS, -30_000), (S, 40_000)],
    "c": [(0, 1_000 * S)],
}


@pytest.fixture(scope="module", autouse=True)
def server() -> Iterator[None]:
    """The server that runs the commands ends with the last test."""
    yield
    served.close()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three hosts with the same trace, whose clocks are corrected by lines of several points."""
    found = small_cluster(tmp_path_factory.mktemp("nodes") / "T", CORRECTIONS, "system")
    for host, points in CORRECTIONS.items():
        write_correction(found / f"host={host}", points)
    return found


def rows_of_parts(cluster: Path, name: str) -> list[dict[str, Any]]:
    """The rows of all hosts, each read alone, with the host, and times corrected one by one."""
    times = [column.name for column in TABLES[name] if column.is_time]
    rows = []
    for host, points in CORRECTIONS.items():
        correction = write_correction(cluster / f"host={host}", points)
        for row in getattr(lo2io.open(cluster / f"host={host}"), name).to_arrow().to_pylist():
            known = {column: correction.one(row[column]) for column in times if row[column] is not None}
            rows.append({"host": host, **row, **known})
    return rows


def test_each_table_is_its_parts(cluster: Path) -> None:
    """Read as batches and by DuckDB, each table has the rows of all hosts, with times right to the nanosecond."""
    whole = lo2io.open(cluster)
    assert set(whole.tables) == {HOSTS, *TABLES, *VIEWS}
    corrected = set()
    for name in TABLES:
        expected = rows_of_parts(cluster, name)
        table = getattr(whole, name)
        assert table.to_arrow().to_pylist() == expected, name
        assert len(table) == len(expected)
        asked = table.duckdb().to_arrow_table().to_pylist()
        assert sorted(map(repr, asked)) == sorted(map(repr, expected)), name
        corrected |= {column.name for column in TABLES[name] if column.is_time and expected}
    assert {"begin_time_ns", "complete_time_ns", "open_time_ns"} <= corrected
    assert whole.operations.to_arrow(["id", "host"]).column_names == ["host", "id"]


def test_views_join_rows_of_one_host(cluster: Path) -> None:
    """Each host's rows have the names that they have in the host's own trace: hosts number their rows alike."""
    whole = lo2io.open(cluster)
    for view in VIEWS:
        expected = []
        for host in CORRECTIONS:
            rows = getattr(lo2io.open(cluster / f"host={host}"), view).to_arrow().to_pylist()
            expected += [{"host": host, **row} for row in rows]
        alike = [name for name in (expected[0] if expected else ()) if not name.endswith("_ns") and name != "begin_s"]
        found = getattr(whole, view).to_arrow().to_pylist()
        kept = [{name: row[name] for name in alike} for row in found]
        assert sorted(map(repr, kept)) == sorted(repr({name: row[name] for name in alike}) for row in expected), view
    begins = dict(whole.query("select host, min(begin_s) from calls group by host").fetchall())
    assert 0 <= begins["a"] < 1
    assert begins["c"] > 999


def test_a_view_is_read_node_by_node(cluster: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A condition on the host leaves the others unread; other conditions, counts and joins of a view have all rows."""
    whole = lo2io.open(cluster)
    rows = whole.calls.to_arrow().to_pylist()
    assert whole.query("select count(*) from calls").fetchall() == [(len(rows),)]
    assert len(whole.calls) == len(rows) == len(whole.operations)
    slow = sorted((row["host"], row["id"]) for row in rows if (row["latency_ns"] or 0) > 1000)
    asked = whole.query("select host, id from calls where latency_ns > 1000 order by all").fetchall()
    assert asked == slow != []
    pairs = "select count(*) from calls a join calls b on a.host = b.host and a.id = b.id where a.path = b.path"
    assert whole.query(pairs).fetchall() == [(sum(row["path"] is not None for row in rows),)]
    read: list[str] = []
    turn_to = Queries._turn_to

    def noted(one: Queries, nodes: Nodes) -> None:
        read.append(nodes.nodes[0].host)
        turn_to(one, nodes)

    monkeypatch.setattr(Queries, "_turn_to", noted)
    of_one = "select id from calls where host = 'b' and latency_ns > 1000 order by id"
    assert lo2io.open(cluster).query(of_one).fetchall() == [(number,) for host, number in slow if host == "b"]
    assert read == ["b"]


def test_hosts_tell_their_doubt(cluster: Path) -> None:
    """The table `hosts` has a row for each: how its clock was aligned, and within what its times are right."""
    rows = lo2io.open(cluster).hosts.to_arrow(["host", "number", "clock", "error_ns"]).to_pylist()
    assert rows == [{"host": host, "number": at, "clock": "kept", "error_ns": None} for at, host in enumerate("abc")]


def test_clocks_are_aligned_as_merging_does(tmp_path: Path) -> None:
    """Without `clock.arrow` they are aligned in memory, and nothing is written. Merging yields the same.

    The merged archive opens as the tables of its hosts, and without any of them as an archive.
    """
    directory = small_cluster(tmp_path / "T", "ab")
    before = sorted(directory.rglob("*"))
    whole = lo2io.open(directory)
    rows = whole.hosts.to_arrow().to_pylist()
    assert [row["clock"] for row in rows] == ["reference", "realtime"]
    assert sorted(directory.rglob("*")) == before
    assert (whole.metadata["start_ns"], whole.metadata["stop_ns"]) == (rows[0]["start_ns"], rows[0]["stop_ns"])
    merge(directory)
    assert lo2io.open(directory).hosts.to_arrow().to_pylist() == rows
    with lo2io.open(directory / "traces.otf2") as merged:
        assert merged.hosts.to_arrow().to_pylist() == rows
    for host in "ab":
        shutil.rmtree(directory / f"host={host}" / "lo2io")
    for path in (directory, directory / "traces.otf2"):
        with lo2io.open(path) as archive:
            assert archive.tables[0] == "operations"
            assert archive.operations.to_arrow(["id"]).num_rows > 0


def test_a_part_has_a_span_of_the_common_clock(cluster: Path) -> None:
    """Of each host that recorded then, the rows that its own selection leaves; other hosts are named as left out."""
    whole = lo2io.open(cluster)
    part = whole.filter("operation == read").between(0, 900.0)
    expected = []
    for host in "ab":
        ids = lo2io.open(cluster / f"host={host}").filter("operation == read").operations.to_arrow(["id"])["id"]
        expected += [(host, number.as_py()) for number in ids]
    assert expected
    assert part.query("select host, id from operations order by all").fetchall() == sorted(expected)
    assert {row["host"]: row["left_out"] for row in part.hosts.to_arrow().to_pylist()} == {
        **dict.fromkeys("ab"), "c": "it recorded at another time",
    }  # fmt: skip
    begin = whole.query("select max(begin_time_ns) from operations where host = 'b'").fetchall()[0][0]
    later = whole.part(begin=f"@{begin}", end=f"@{begin + 1}").operations.to_arrow().to_pylist()
    assert (begin, "b") in {(row["begin_time_ns"], row["host"]) for row in later}
    assert len(later) < len(whole.operations)
    with pytest.raises(UsageError, match="no node recorded then"):
        whole.part(begin="100000s")


def test_one_host(cluster: Path) -> None:
    """The trace of a host sums up alone; that of all says so."""
    whole = lo2io.open(cluster)
    alone = lo2io.open(cluster / "host=b")
    assert whole.host("b").summary().activity == alone.summary().activity
    assert whole.host("b").operations.to_arrow() == alone.operations.to_arrow()
    with pytest.raises(UsageError, match="it has many hosts"):
        whole.findings()
    with pytest.raises(UsageError, match="no such host"):
        whole.host("nobody")
    with pytest.raises(UsageError, match="no such host"):
        alone.host("b")


def test_hosts_of_other_versions_and_without_a_trace(tmp_path: Path) -> None:
    """A table or column that an earlier lo2io did not write has no rows or nulls; a host without a trace is named."""
    directory = small_cluster(tmp_path / "T", "ab", "system")
    old = directory / "host=b" / "lo2io"
    (old / "threads.arrow").rename(old / "former")
    with pa.OSFile(str(old / "former")) as file, pa.ipc.open_file(file) as reader:
        former = reader.read_all().drop_columns(["rank"])
    with pa.OSFile(str(old / "threads.arrow"), "wb") as file, pa.ipc.new_file(file, former.schema) as writer:
        writer.write_table(former)
    metadata = json.loads((old / "metadata.json").read_bytes())
    del metadata["tables"]["clock_readings"]
    (old / "metadata.json").unlink()  # it has a second name
    (old / "metadata.json").write_text(json.dumps(metadata), encoding="utf-8")
    (directory / "host=none" / "spool").mkdir(parents=True)
    whole = lo2io.open(directory)
    assert whole.hosts.to_arrow(["host", "number"]).to_pylist()[-1] == {"host": "none", "number": None}
    for rows in (whole.threads.to_arrow(), whole.query("select * from threads").to_arrow_table()):
        chosen = rows.filter(np.array(rows["host"].to_pylist()) == "b")
        assert len(chosen) == len(former)
        assert set(chosen["rank"].to_pylist()) == {None}
    assert {row["host"] for row in whole.clock_readings.to_arrow().to_pylist()} <= {"a"}
    assert whole.query("select count(*) from clock_readings where host = 'b'").fetchall() == [(0,)]
    shutil.rmtree(directory / "host=a")
    shutil.rmtree(directory / "host=b")
    with pytest.raises(TraceError, match="no host has a whole trace"):
        lo2io.open(directory)


def test_query_of_many_hosts(cluster: Path) -> None:
    """`lo2io query T` lists and asks the tables of all hosts."""
    listed = served.lo2io("query", cluster, check=True).stdout
    assert listed.startswith("hosts: 3 rows\n    host, number")
    sql = "select host, count(*) as n from calls group by host order by host"
    asked = served.lo2io("query", cluster, "--to", "json", sql, check=True).stdout
    (nr,) = {json.loads(line)["n"] for line in asked.splitlines()}
    assert [json.loads(line)["host"] for line in asked.splitlines()] == ["a", "b", "c"]
    assert nr == len(lo2io.open(cluster / "host=a").operations)
