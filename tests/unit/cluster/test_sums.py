"""`lo2io report T` of many nodes: the sums of all are the sums of each."""

from __future__ import annotations

import io
import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
from build.made_hosts import host_with
from build.merged_traces import replicate, small_cluster, write_correction
from build.small_machine import spool_of_a_small_machine
from workloads import served

import lo2io
from lo2io.cluster.sums import write_sums
from lo2io.errors import TraceError, UsageError
from lo2io.model import UNKNOWN_U32
from lo2io.reports.nodes import summary as node_summary
from lo2io.reports.nodes import sums as node_sums
from lo2io.reports.nodes.outliers import find_outliers
from lo2io.reports.summary.histogram import LatencyHistograms
from lo2io.reports.summary.overlap import Overlap
from lo2io.reports.text.nodes import render_nodes
from lo2io.reports.text.page import report_console
from lo2io.trace.reader import open_trace

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from lo2io.reports.nodes.summary import NodesSummary

FIELDS = ("calls", "errors", "reads", "writes", "bytes_read", "bytes_written", "time_ns")


@pytest.fixture(scope="module", autouse=True)
def server() -> Iterator[None]:
    """The server that runs the commands ends with the last test."""
    yield
    served.close()


def report(directory: Path) -> NodesSummary:
    """The report of all hosts."""
    return lo2io.open(directory).hosts_summary()


def test_sums_are_the_sums_of_the_reports(tmp_path: Path) -> None:
    """Of calls, processes, files, disks and findings; with the sums that hosts keep and without them."""
    directory = small_cluster(tmp_path / "T", "abc", "system")
    whole = report(directory)
    assert (whole.nr_summed, [host.host for host in whole.hosts]) == (3, ["a", "b", "c"])
    alone = [lo2io.open(directory / f"host={host}").summary() for host in "abc"]
    for name in FIELDS:
        assert getattr(whole.activity, name) == sum(getattr(each.activity, name) for each in alone)
    for call in whole.calls:
        rows = [row for each in alone for row in each.calls if row.name == call.name]
        assert (call.hosts, call.activity.calls) == (3, sum(row.activity.calls for row in rows))
        assert call.latency.nr == sum(row.latency.nr for row in rows)
        one = rows[0].latency
        assert (call.latency.p50_ns, call.latency.p99_ns, call.latency.max_ns) == (one.p50_ns, one.p99_ns, one.max_ns)
    assert len(whole.calls) == len(alone[0].calls) > 1
    disk = whole.devices[0]
    rows_of_disk = [row for row in alone[0].devices if row.operation == disk.operation]
    assert (disk.hosts, disk.requests) == (3, 3 * sum(row.requests for row in rows_of_disk))
    assert disk.device.nr == 3 * sum(row.device.nr for row in rows_of_disk)
    assert sum(process.processes for process in whole.processes) == sum(host.processes for host in whole.hosts)
    assert {row.rule: row.nr for row in whole.findings} == {
        rule: 3 * sum(each.rule == rule for each in alone[0].findings) for rule in {f.rule for f in alone[0].findings}
    }
    for host in "abc":
        write_sums(directory / f"host={host}")
    kept = report(directory)
    assert kept.nr_summed == 0
    assert kept.hosts == whole.hosts
    assert (kept.calls, kept.devices, kept.files, kept.processes) == (
        *(whole.calls, whole.devices, whole.files, whole.processes),
    )


def test_histograms_add_up_exactly() -> None:
    """The histogram of the counts of two hosts is that of all their durations."""
    random = np.random.default_rng(5)
    durations = [random.integers(0, 10**at, 500) for at in (4, 8)]
    counts, together = np.zeros(1, np.int64), LatencyHistograms(1)
    for each in durations:
        one = LatencyHistograms(1)
        one.add(np.zeros(500, np.intp), each)
        together.add(np.zeros(500, np.intp), each)
        counts = counts + one.counts(0)
    both = np.concatenate(durations)
    added = LatencyHistograms.of_counts(counts, int(both.sum()), int(both.min()), int(both.max()))
    assert added.latency(0) == together.latency(0)


def test_paths_have_bounds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hosts keep rows of their largest paths only. What the others may add is told, and the truth lies within."""
    monkeypatch.setattr(node_sums, "MOST_FILES", 1)
    calls = {
        "a": [("/x", 900, 10), ("/y", 500, -5), ("/z", 30, 4)],
        "b": [("/y", 700, 3), ("/x", 200, 1), ("/w", 100, -2)],
        "c": [("/x", 40, 7)],
    }
    for host, each in calls.items():
        host_with(tmp_path / "T", host, each)
    whole = report(tmp_path / "T")
    rows = {row.path: row for row in whole.files}
    assert (rows["/x"].hosts, rows["/x"].activity.time_ns, rows["/x"].more_ns) == (2, 940_000, 200_000)
    assert (rows["/y"].hosts, rows["/y"].activity.time_ns, rows["/y"].more_ns) == (1, 700_000, 500_000)
    assert (rows["/x"].more_bytes, rows["/y"].more_bytes) == (2, 5)
    assert (whole.nr_files, whole.other_files) == (2, 4)
    for path, row in rows.items():
        true_ns = 1000 * sum(length for each in calls.values() for name, length, _ in each if name == path)
        true_bytes = sum(abs(size) for each in calls.values() for name, _, size in each if name == path)
        moved = row.activity.bytes_read + row.activity.bytes_written
        assert row.activity.time_ns <= true_ns <= row.activity.time_ns + row.more_ns
        assert moved <= true_bytes <= moved + row.more_bytes


def test_the_largest_paths_of_many(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By time, then calls, then name, whichever hosts used them: a path that is small on each host is large on all."""
    calls = {f"n{at}": [(f"/own{at}/x", 70, 1), ("/all/x", 20, 2), (f"/pair{at // 2}/x", 35, 3)] for at in range(6)}
    calls["n6"] = [("/two/x", 30, 1), ("/two/x", 40, 1)]
    for host, each in calls.items():
        host_with(tmp_path / "T", host, each)
    for host in ("n1", "n6"):
        write_sums(tmp_path / "T" / f"host={host}")
    expected: dict[str, list[int]] = {}
    for path, length_us, _ in (call for each in calls.values() for call in each):
        sums = expected.setdefault(path, [0, 0])
        sums[0] -= 1000 * length_us
        sums[1] -= 1
    order = sorted(expected, key=lambda path: (*expected[path], path))
    assert order[:6] == ["/all/x", "/pair0/x", "/pair1/x", "/pair2/x", "/two/x", "/own0/x"]
    for most in range(1, len(order) + 1):
        monkeypatch.setattr(node_summary, "MAX_ROWS", most)
        whole = report(tmp_path / "T")
        assert [row.path for row in whole.files] == order[:most]
        assert [row.name for row in whole.folders] == [path.removesuffix("x") for path in order[:most]]
        assert [(-row.activity.time_ns, -row.activity.calls) for row in whole.files] == [
            tuple(expected[path]) for path in order[:most]
        ]
        assert (whole.nr_files, whole.nr_folders, whole.nr_patterns) == (len(order), len(order), 4)


def test_folders_and_patterns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each file counts in one folder and one pattern. Of those that a host keeps no row for, the bound holds."""
    calls = {
        "a": [("/d/out.1.dat", 400, 10), ("/d/out.12.dat", 300, -5), ("/d/e/log", 100, 1), ("/d7", 50, 2)],
        "b": [("/d/out.3.dat", 200, 4), ("/d/e/log", 900, 8), ("/d/x/y", 20, 1)],
    }
    for host, each in calls.items():
        host_with(tmp_path / "T", host, each)
    whole = report(tmp_path / "T")
    told = [(row.name, row.hosts, row.files, row.activity.time_ns) for row in whole.folders]
    assert told == [("/d/e/", 2, 2, 1_000_000), ("/d/", 2, 3, 900_000), ("/", 1, 1, 50_000), ("/d/x/", 1, 1, 20_000)]
    told = [(row.name, row.hosts, row.files, row.activity.time_ns) for row in whole.patterns]
    assert told == [
        ("/d/e/log", 2, 2, 1_000_000), ("/d/out.*.dat", 2, 3, 900_000), ("/d*", 1, 1, 50_000), ("/d/x/y", 1, 1, 20_000)
    ]  # fmt: skip
    for name in FIELDS:
        for rows in (whole.folders, whole.patterns):
            assert sum(getattr(row.activity, name) for row in rows) == getattr(whole.activity, name)
    monkeypatch.setattr(node_sums, "MOST_FILES", 1)
    bounded = report(tmp_path / "T")
    assert [(row.name, row.more_ns) for row in bounded.folders] == [("/d/e/", 100_000), ("/d/", 200_000)]
    true_ns = {row.name: row.activity.time_ns for row in whole.folders}
    for row in bounded.folders:
        assert row.activity.time_ns <= true_ns[row.name] <= row.activity.time_ns + row.more_ns
    assert "/d/out.*.dat" in served.lo2io("report", tmp_path / "T", "--full", check=True).stdout


def test_a_rank_on_several_hosts_has_a_row_on_each(tmp_path: Path) -> None:
    """The heading counts rows, not ranks: it says what is left out."""
    for host in "abcd":
        host_with(tmp_path / "T", host, [("/data", 20, 4096)], rank=7)
    whole = report(tmp_path / "T")
    assert (whole.nr_ranks, whole.nr_rank_rows) == (1, 4)
    pages = []
    for full in (False, True):
        out = io.StringIO()
        render_nodes(whole, report_console(out), full=full)
        pages.append(out.getvalue())
    assert "\nRank (3 of 4) " in pages[0]
    assert "\nRank  " in pages[1]
    assert pages[1].count("\n7 on ") == 4


def test_nodes_have_ranks_and_ranks_have_processes(tmp_path: Path) -> None:
    """What the rows of a node add up to is the node's; a process of no rank stands after those of ranks."""
    processes = [("app", 0), ("helper", 0), ("app", 1), ("daemon", UNKNOWN_U32), ("app", 1)]
    calls = [("/data", 10 * (number + 1), 100) for number in range(10)]
    host_with(tmp_path / "T", "n0", calls, processes=processes)
    host_with(tmp_path / "T", "n1", [("/data", 1, 1)], rank=2)
    whole = report(tmp_path / "T")
    busy, idle = whole.hosts
    found = [(row.rank, row.name, row.processes, row.activity.calls, row.activity.time_ns) for row in busy.by_rank]
    assert found == [
        (0, "helper", 1, 2, 90_000),
        (0, "app", 1, 2, 70_000),
        (1, "app", 2, 4, 260_000),
        (None, "daemon", 1, 2, 130_000),
    ]
    assert busy.nr_by_rank == 4
    for name in ("calls", "bytes_read", "time_ns"):
        assert sum(getattr(row.activity, name) for row in busy.by_rank) == getattr(busy.activity, name)
    assert [(row.rank, row.name) for row in idle.by_rank] == [(2, "app")]
    out = io.StringIO()
    render_nodes(whole, report_console(out), full=True)
    heading = "Node, rank, process"
    _, _, shown = out.getvalue().partition(heading)
    names = [line[: len(heading)].rstrip() for line in shown.splitlines()[1:11]]
    assert names == [
        *("n0", "  rank 0", "    helper", "    app", "  rank 1", "    app", "  of no rank", "    daemon"),
        *("n1", "  rank 2"),
    ]


def test_a_node_lists_its_largest_processes(tmp_path: Path) -> None:
    """Ten of twelve, and the report says how many are left out."""
    processes = [(f"app{number}", number) for number in range(12)]
    host_with(tmp_path / "T", "n0", [("/data", 10 + number, 1) for number in range(12)], processes=processes)
    host_with(tmp_path / "T", "n1", [("/data", 1, 1)], rank=12)
    whole = report(tmp_path / "T")
    assert [row.rank for row in whole.hosts[0].by_rank] == list(range(2, 12))
    assert [host.nr_by_rank for host in whole.hosts] == [12, 1]
    out = io.StringIO()
    render_nodes(whole, report_console(out), full=True)
    _, _, shown = out.getvalue().partition("Node, rank, process")
    table, _, rest = shown.partition("\nand ")
    assert int(rest.split()[0]) + table.count("    app") == 13


def test_overlap_adds_up_over_hosts(tmp_path: Path) -> None:
    """By rank and by name; hosts that do not know theirs are counted, and make the sum of a name unknown."""
    for number in range(2):
        host_with(tmp_path / "T", f"n{number}", [("/data", 20 + number, 4096)], rank=number)
    whole = report(tmp_path / "T")
    assert whole.overlap == whole.processes[0].overlap == Overlap(41_000, 0, 41_000, 0)
    assert [row.overlap for row in whole.ranks] == [Overlap(21_000, 0, 21_000, 0), Overlap(20_000, 0, 20_000, 0)]
    chosen = lo2io.open(tmp_path / "T").filter("latency > 1us").hosts_summary()
    assert (chosen.overlap, chosen.nr_without_overlap) == (None, 2)
    assert [row.overlap for row in (*chosen.hosts, *chosen.processes, *chosen.ranks)] == [None] * 5


def test_ranks_and_hosts_that_stand_out(tmp_path: Path) -> None:
    """Each rank with its host; the host whose calls take a hundred times as long is found."""
    for number in range(5):
        slow = 100 if number == 3 else 1
        host_with(tmp_path / "T", f"n{number}", [("/data", slow * (20 + number), 4096)], rank=number)
    whole = report(tmp_path / "T")
    assert [(row.rank, row.host) for row in whole.ranks] == [(3, "n3"), (4, "n4"), (2, "n2"), (1, "n1"), (0, "n0")]
    assert [host.ranks for host in whole.hosts] == [(3,), (4,), (2,), (1,), (0,)]
    assert (whole.nr_ranks, whole.processes[0].hosts) == (5, 5)
    (outlier,) = whole.outliers
    assert (outlier.host, outlier.what, outlier.value, outlier.median) == ("n3", "time_ns", 2_300_000, 22_000)


def test_what_stands_out() -> None:
    """More than three MADs from the median; equal hosts never, few hosts never, unknown numbers not at all."""

    def found(*values: int | None) -> list[tuple[str, float]]:
        hosts = [f"n{at}" for at in range(len(values))]
        return [(each.host, each.mads) for each in find_outliers(hosts, {"x": values})]

    assert found(100, 104, 96, 108, 92, 200) == [("n5", 16.3)]
    assert found(100, 104, 96, 108, 92, 110) == []
    assert found(1000, 1000, 1000, 1000, 1029) == []
    assert found(1000, 1000, 1000, 1000, 1040, 0) == [("n5", -100.0), ("n4", 4.0)]
    assert found(1, 1, 500) == []
    assert found(10, None, 12, 11, 9, 90, None) == [("n5", 79.0)]


def test_the_command(tmp_path: Path) -> None:
    """`lo2io report T` prints a page and JSON, also of a part."""
    directory = small_cluster(tmp_path / "T", "ab", "system")
    write_correction(directory / "host=a", [(0, 0)])
    write_correction(directory / "host=b", [(0, 1_000 * 10**9)])
    (directory / "host=none").mkdir()
    page = served.lo2io("report", directory, check=True).stdout
    assert f"{directory}: 2 hosts" in page
    assert "No host stands out." in page
    assert "left out none" in page
    assert "times are right within an unknown error" in page
    assert max(map(len, page.splitlines())) <= 100
    told: dict[str, Any] = json.loads(served.lo2io("report", directory, "--json", check=True).stdout)
    assert told["schema"] == "lo2io-nodes-summary"
    assert told["activity"] == json.loads(json.dumps(told["hosts"][0]["activity"] | {
        name: 2 * told["hosts"][0]["activity"][name] for name in FIELDS
    }))  # fmt: skip
    reads = json.loads(served.lo2io("report", directory, "--json", "--filter", "operation == read").stdout)
    assert 0 < reads["activity"]["calls"] < told["activity"]["calls"]
    early = json.loads(served.lo2io("report", directory, "--json", "--until", "10s").stdout)
    assert [host["host"] for host in early["hosts"]] == ["a"]
    assert early["left_out"]["b"] == "it recorded at another time"
    with pytest.raises(UsageError, match="it is of one machine"):
        lo2io.open(directory / "host=a").hosts_summary()


def test_converting_keeps_the_sums_of_a_node(tmp_path: Path) -> None:
    """Into a folder `host=NAME`, and into no other. Damaged sums are an error that says what to do.

    Sums of another version do not count: the tables do.
    """
    spool = spool_of_a_small_machine(tmp_path / "spool", "system")
    served.lo2io("convert", spool, "-o", tmp_path / "T" / "host=a", check=True)
    served.lo2io("convert", spool, "-o", tmp_path / "other", check=True)
    assert not (tmp_path / "other" / "lo2io" / "summary.arrow").exists()
    replicate(tmp_path / "T" / "host=a", tmp_path / "T" / "host=b")
    assert report(tmp_path / "T").nr_summed == 0
    served.lo2io("convert", spool, "-o", tmp_path / "T" / "host=a", "--force", check=True)
    kept = tmp_path / "T" / "host=b" / "lo2io" / "summary.arrow"
    kept.unlink()
    former = node_sums.sum_up(open_trace(tmp_path / "T" / "host=b")).replace_schema_metadata({"version": "1"})
    with pa.OSFile(str(kept), "wb") as file, pa.ipc.new_file(file, former.schema) as writer:
        writer.write_table(former)
    assert report(tmp_path / "T").nr_summed == 1
    kept.write_bytes(b"ARROW1")
    with pytest.raises(TraceError, match="cannot read the sums") as raised:
        report(tmp_path / "T")
    assert "remove the file" in raised.value.remedy
