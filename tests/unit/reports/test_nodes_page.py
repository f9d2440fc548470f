"""The page of many nodes, read back: its numbers are the JSON's, its names are text, its long tables are bounded."""

from __future__ import annotations

import json
from dataclasses import replace
from html.parser import HTMLParser
from typing import TYPE_CHECKING, Any

import build
import pytest
from build.made_hosts import host_with
from build.merged_traces import small_cluster, write_correction
from workloads import served

import lo2io
from lo2io.errors import UsageError
from lo2io.reports.html.nodes_page import render_nodes_html
from lo2io.reports.html.nodes_sheets import MAX_ROWS
from lo2io.reports.nodes import sums as node_sums
from lo2io.reports.nodes.outliers import Outlier
from lo2io.reports.nodes.summary import HostRow, NodesFinding, RankRow
from lo2io.reports.words import printable

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from lo2io.reports.nodes.summary import NodesSummary

VOID = {"meta", "input", "link", "br", "img", "hr"}
HOST = "<b>n\x1b&amp;\u202e"
PATH = "/data/<script>boom()</script>\n"


@pytest.fixture(scope="module", autouse=True)
def server() -> Iterator[None]:
    """The server that runs the commands ends with the last test."""
    yield
    served.close()


class Read(HTMLParser):
    """A page: its elements, cards and tables. Elements that do not nest are an error."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.cards: dict[str, float] = {}
        self.notes: dict[str, str] = {}
        self.tables: dict[str, list[dict[str, Any]]] = {}
        self.marked: list[tuple[str, str]] = []
        self._open: list[str] = []
        self._heads: list[str] = []
        self._cell: dict[str, str | None] | None = None
        self._text = ""
        self._section = ""
        self.feed(page)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note an element, a card's value, a table's row."""
        facts = dict(attrs)
        self.tags.append(tag)
        self._open += [] if tag in VOID else [tag]
        self._text = ""
        if tag == "section":
            self._section = facts["id"] or ""
        elif tag == "table":
            self._heads, self.tables[self._section] = [], []
        elif tag == "tr" and self._heads:
            self.tables[self._section].append({})
        elif tag == "dd":
            self.cards[facts["data-card"] or ""] = float(facts["data-value"] or "")
        elif tag == "td":
            self._cell = facts

    def handle_endtag(self, tag: str) -> None:
        """Note what a heading, a cell or a paragraph says."""
        assert self._open.pop() == tag
        if tag == "th":
            self._heads.append(self._text)
        elif tag == "td":
            assert self._cell is not None
            row = self.tables[self._section][-1]
            value = self._cell.get("data-value")
            head = self._heads[len(row)]
            row[head] = self._text if value is None else float(value)
            if "marked" in (self._cell["class"] or ""):
                self.marked.append((row["host"], head))
        elif tag == "p":
            self.notes[self._section] = f"{self.notes.get(self._section, '')}{self._text}\n"

    def handle_data(self, data: str) -> None:
        """Collect text."""
        self._text += data

    def column(self, table: str, heading: str) -> list[Any]:
        """The cells of a column: values of numbers, else texts."""
        return [row[heading] for row in self.tables[table]]


def activity_of(row: dict[str, Any]) -> dict[str, float]:
    """The columns of a row's activity, as the JSON has it."""
    of = row["activity"]
    return {
        "calls": of["calls"], "reads": of["reads"], "writes": of["writes"], "read": of["bytes_read"],
        "written": of["bytes_written"], "time": of["time_ns"], "errors": of["errors"],
    }  # fmt: skip


def test_example_of_the_builder(tmp_path: Path) -> None:
    """It shows the true result."""
    build.run_example("made_hosts", tmp_path)


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two hosts with disks, five with a rank each and markup as names, one of them slow, and one without a trace."""
    folder = tmp_path_factory.mktemp("nodes") / "T"
    small_cluster(folder, "ab", "system")
    for number in range(5):
        slow = 100 if number == 3 else 1
        host_with(folder, f"{HOST}{number}", [(PATH, slow * (20 + number), 4096), ("/out", 9, -7)], rank=number)
    (folder / "host=none").mkdir()
    write_correction(folder / "host=a", [(0, 5)])
    return folder


def test_numbers_are_the_json_s(directory: Path, tmp_path: Path) -> None:
    """Each table has the rows of its list, in its order. There is neither a place for pictures nor their script."""
    target = tmp_path / "page.html"
    assert served.lo2io("report", directory, "--html", target, check=True).stdout == f"{target}\n"
    told = json.loads(served.lo2io("report", directory, "--json", check=True).stdout)
    page = Read(target.read_text())
    for table, key, name in (
        ("hosts", "hosts", "host"), ("ranks", "ranks", "rank"), ("processes", "processes", "process"),
        ("files", "files", "file"), ("folders", "folders", "folder"), ("patterns", "patterns", "pattern"),
    ):  # fmt: skip
        rows = page.tables[table]
        assert [{head: row[head] for head in activity_of(told[key][0])} for row in rows] == [
            activity_of(row) for row in told[key]
        ]
        assert len({row[name] for row in rows}) == len(rows) > 1
    assert page.column("hosts", "ranks") == [", ".join(map(str, row["ranks"])) for row in told["hosts"]]
    assert page.column("hosts", "recording") == [row["verdict"] for row in told["hosts"]]
    assert page.column("hosts", "recorded") == [row["span_ns"] for row in told["hosts"]]
    for head, key in (("right within", "error_ns"), ("disk p99", "device_p99_ns")):
        assert page.column("hosts", head) == [-1 if row[key] is None else row[key] for row in told["hosts"]]
    assert page.column("ranks", "rank") == [row["rank"] for row in told["ranks"]]
    for head, key in (("p50", "p50_ns"), ("p99", "p99_ns"), ("max", "max_ns"), ("time", "total_ns")):
        assert page.column("calls", head) == [row["latency"][key] for row in told["calls"]]
        assert page.column("devices", head) == [row["device"][key] for row in told["devices"]]
    assert page.column("devices", "requests") == [row["requests"] for row in told["devices"]]
    assert page.column("outliers", "MADs") == [row["mads"] for row in told["outliers"]]
    heads = {"bytes_written": "written", "time_ns": "time"}
    odd = sorted((printable(each["host"]), heads[each["what"]]) for each in told["outliers"])
    assert sorted(page.marked) == odd
    assert len({head for _, head in odd}) == 2
    assert {row["host"] for row in page.tables["hosts"] if row["stands out by"]} == {host for host, _ in odd}
    assert [(row["host"], row["why"]) for row in page.tables["missing"]] == [
        *told["left_out"].items(), *((row["host"], "") for row in told["hosts"] if row["verdict"] != "complete"),
    ]  # fmt: skip
    assert page.cards["calls"] == told["activity"]["calls"]
    assert page.cards["times right within"] == (-1 if told["error_ns"] is None else told["error_ns"])
    assert (page.cards["hosts"], page.cards["ranks"]) == (len(told["hosts"]), told["nr_ranks"])
    assert "7 hosts had no sums" in page.notes["notes"]
    assert page.tags.count("script") == 1
    assert not {"figure", "noscript", "select"} & set(page.tags)


def test_names_are_text(directory: Path) -> None:
    """Of hosts, files and folders; unprintable characters are escaped, as on the terminal."""
    text = lo2io.open(directory).html()
    page = Read(text)
    assert "b" not in page.tags
    assert "<b>n\\x1b&amp;\\u202e3" in page.column("hosts", "host")
    assert "/data/<script>boom()</script>\\n" in page.column("files", "file")
    assert "\x1b" not in text


def test_a_page_is_not_overwritten(directory: Path, tmp_path: Path) -> None:
    """Without --force; nor does a page land in the recording."""
    target = tmp_path / "page.html"
    served.lo2io("report", directory, "--html", target, "--filter", "operation == read", check=True)
    part = target.read_text()
    refused = served.lo2io("report", directory, "--html", target)
    assert (refused.returncode, "--force" in refused.stderr) == (UsageError.exit_code, True)
    assert target.read_text() == part
    served.lo2io("report", directory, "--html", target, "--force", check=True)
    assert Read(part).cards["calls"] < Read(target.read_text()).cards["calls"]
    refused = served.lo2io("report", directory, "--html", directory / "page.html")
    assert (refused.returncode, "choose another place" in refused.stderr) == (UsageError.exit_code, True)


def test_bounds_have_columns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where hosts kept no row for a path, the most that it may be stands beside what it is."""
    monkeypatch.setattr(node_sums, "MOST_FILES", 1)
    host_with(tmp_path / "T", "a", [("/x", 900, 10), ("/y", 500, -5)])
    host_with(tmp_path / "T", "b", [("/y", 700, 3), ("/x", 200, 1)])
    page = Read(lo2io.open(tmp_path / "T").html())
    assert [(row["file"], row["time"], row["time at most"], row["bytes at most"]) for row in page.tables["files"]] == [
        ("/x", 900_000, 1_100_000, 11), ("/y", 700_000, 1_200_000, 8)
    ]  # fmt: skip
    assert "Hosts keep no row for 2 further files." in page.notes["files"]


def many(summary: NodesSummary, number: int) -> NodesSummary:
    """The same with so many hosts of 8 ranks each, of which every fourth stands out, and with more of all else."""
    one = replace(summary.hosts[0], verdict="incomplete")
    hosts: list[HostRow] = [
        replace(one, host=f"node{at:05}.example.org", ranks=tuple(range(at, 8 * number, number)))
        for at in range(number)
    ]
    files = tuple(replace(summary.files[0], path=f"/scratch/{'project/' * 20}{at}") for at in range(100))
    return replace(
        summary,
        hosts=tuple(hosts),
        outliers=tuple(Outlier(host.host, "time_ns", 9, 1, 8.0) for host in hosts[::4]),
        left_out={f"gone{at:05}": "it has no trace" for at in range(30)},
        findings=(NodesFinding("small-reads", tuple(host.host for host in hosts), 9, 1000, PATH),),
        processes=summary.processes[1:],
        ranks=tuple(RankRow(at, hosts[at].host, 1, one.activity, one.overlap) for at in range(100)),
        nr_ranks=8 * number,
        files=files,
        nr_files=12_345,
        other_files=0,
        nr_folders=len(summary.folders) + 1,
    )


def test_many_hosts_are_bounded(directory: Path) -> None:
    """The page says how many rows of each table it leaves out. With 1,000 hosts it has at most 3 MB."""
    summary = lo2io.open(directory).hosts_summary()
    text = render_nodes_html(many(summary, MAX_ROWS))
    assert len(text.encode()) < 3_000_000
    page = Read(text)
    assert len(page.tables["hosts"]) == MAX_ROWS
    assert "left out" not in page.notes["hosts"]
    assert page.column("hosts", "ranks")[1] == "1, 1001, 2001, 3001, 4001, 5001, 6001, 7001"
    assert "7900 rows left out." in page.notes["ranks"].replace(",", "")
    assert f"other names made {summary.processes[0].activity.calls} calls." in page.notes["processes"]
    assert "12,245 paths left out." in page.notes["files"]
    assert "1 folder left out." in page.notes["folders"]
    assert "left out." not in page.notes.get("patterns", "")
    assert "node00009.example.org and 990 more" in page.notes["findings"]
    assert "small-reads: 1,000 hosts, 9 times" in text
    more = Read(render_nodes_html(many(summary, MAX_ROWS + 1)))
    assert [len(more.tables[name]) for name in ("hosts", "missing")] == [MAX_ROWS] * 2
    assert "1 host left out." in more.notes["hosts"]
    assert "31 rows left out." in more.notes["missing"]


def test_ranks_of_a_host_are_runs(directory: Path) -> None:
    """Those that follow one another are one; of many runs, the number of the other ranks is told."""
    summary = lo2io.open(directory).hosts_summary()
    ranks = [(0, 1, 2, 3), (4,), (5, 6, 9), tuple(range(0, 40, 2)), ()]
    hosts = tuple(replace(summary.hosts[0], ranks=each) for each in ranks)
    page = Read(render_nodes_html(replace(summary, hosts=hosts)))
    assert page.column("hosts", "ranks") == ["0-3", "4", "5-6, 9", "0, 2, 4, 6, 8, 10, 12, 14, and 12 more", ""]


def test_a_complete_recording_is_green(tmp_path: Path) -> None:
    """Nothing is missing then, and the table of what is missing is not there."""
    for host in "ab":
        host_with(tmp_path / "T", host, [("/x", 9, 1)])
    text = lo2io.open(tmp_path / "T").html()
    assert '<p class="complete" id="completeness">recording: complete on 2 hosts</p>' in text
    assert "missing" not in Read(text).tables
    (tmp_path / "T" / "host=c").mkdir()
    text = lo2io.open(tmp_path / "T").html()
    assert '<p class="incomplete" id="completeness">recording: complete on 2 hosts · 1 host left out</p>' in text
