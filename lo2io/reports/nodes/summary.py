"""The report of many nodes: their sums added up, and what each of them did.

In: the tables of :mod:`lo2io.reports.nodes.sums`, one after the other. Out: :class:`NodesSummary`. Its sums are exact.
Percentiles are as exact as those of one node. For paths without a row on some node, the summary gives bounds.
"""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lo2io.reports.nodes.outliers import Outlier, find_outliers
from lo2io.reports.nodes.places import FOLDER, PATTERN
from lo2io.reports.nodes.sums import (
    ADDED,
    CALL,
    CALL_BIN,
    DEVICE,
    DEVICE_BIN,
    FILE,
    FINDING,
    KEYS,
    NODE,
    OTHER,
    PROCESS,
    RANK,
    RANK_PROCESS,
)
from lo2io.reports.summary.histogram import Latency, LatencyHistograms
from lo2io.reports.summary.overlap import Overlap
from lo2io.reports.summary.summary import Activity

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    Row = dict[str, Any]

SCHEMA: Final = "lo2io-nodes-summary"
SCHEMA_VERSION: Final = 1
MAX_ROWS: Final = 100
"""Rows of processes, files and ranks that are listed."""
MAX_OF_HOST: Final = 10
"""Rows of processes that are listed for each host."""
_WEIGHTS: Final = np.dtype([("kind", np.int64), ("key", np.int64), ("time_ns", np.int64), ("nr", np.int64)])
_AT_ONCE: Final = 100_000
"""Rows are added up when more than this, and more than twice what the last adding up left, are in memory."""
COMPARED: Final = ("bytes_read", "bytes_written", "time_ns", "errors", "device_p99_ns")
"""Fields of a host's row by which it may stand out."""


@dataclass(frozen=True, slots=True)
class HostFacts:
    """What is known of a node beside its sums."""

    host: str
    clock: str
    """How its times were aligned with those of the first node."""
    error_ns: int | None
    """Its times are right within this; None: nobody knows."""
    span_ns: int


@dataclass(frozen=True, slots=True)
class HostProcess:
    """The processes of one name, of one rank, on one node."""

    rank: int | None
    """None: they belong to no rank."""
    name: str | None
    processes: int
    activity: Activity
    overlap: Overlap | None


@dataclass(frozen=True, slots=True)
class HostRow:
    """A node. ``device_p99_ns`` is that of the disk's operation with most time; None: no request ended."""

    host: str
    verdict: str
    """How complete its recording is: ``complete``, ``incomplete``, ``not proven`` or ``short``."""
    span_ns: int
    clock: str
    error_ns: int | None
    processes: int
    ranks: tuple[int, ...]
    activity: Activity
    device_p99_ns: int | None
    overlap: Overlap | None
    """Of its processes' time with I/O under way; None: unknown."""
    by_rank: tuple[HostProcess, ...]
    """Its processes by rank and name: those with the most time in calls, at most 10, the ranks in order."""
    nr_by_rank: int
    """Rows that ``by_rank`` would have without a limit."""


@dataclass(frozen=True, slots=True)
class NodesCall:
    """A system call on all nodes."""

    name: str
    hosts: int
    activity: Activity
    latency: Latency
    share: float
    """Its part of the time of all calls, 0 … 1."""


@dataclass(frozen=True, slots=True)
class NodesDevice:
    """Requests of one operation on all disks: a node's name of a disk means nothing on another one."""

    operation: str
    hosts: int
    disks: int
    requests: int
    errors: int
    bytes: int
    device: Latency
    """From issue to completion."""


@dataclass(frozen=True, slots=True)
class NodesProcess:
    """The processes of one name on all nodes."""

    name: str | None
    hosts: int
    processes: int
    activity: Activity
    overlap: Overlap | None
    """None: on one of the nodes it is unknown."""


@dataclass(frozen=True, slots=True)
class RankRow:
    """The processes of a rank."""

    rank: int
    host: str
    processes: int
    activity: Activity
    overlap: Overlap | None


@dataclass(frozen=True, slots=True)
class NodesFile:
    """A path on all nodes. Nodes without a row for it may add no more than ``more_ns`` and ``more_bytes``."""

    path: str | None
    hosts: int
    activity: Activity
    more_ns: int
    more_bytes: int


@dataclass(frozen=True, slots=True)
class NodesPlace:
    """The files of a folder, or of a pattern, on all nodes.

    Nodes without a row for it may add no more than ``more_ns`` and ``more_bytes``.
    """

    name: str | None
    hosts: int
    files: int
    """Paths that were used, added up over the nodes with a row."""
    activity: Activity
    more_ns: int
    more_bytes: int


@dataclass(frozen=True, slots=True)
class NodesFinding:
    """A finding on several nodes."""

    rule: str
    hosts: tuple[str, ...]
    nr: int
    cost_ns: int
    subject: str
    """That of the most expensive one."""


@dataclass(frozen=True, slots=True)
class NodesSummary:
    """The page of many nodes."""

    schema: str
    schema_version: int
    directory: str
    span_ns: int
    """From the first node's start to the last one's end, by the clock of all."""
    error_ns: int | None
    """Times of all nodes are right within this; None: nobody knows."""
    activity: Activity
    hosts: tuple[HostRow, ...]
    left_out: Mapping[str, str]
    """Host → why it is not among these sums."""
    nr_summed: int
    """Hosts that had no sums, so that their tables were read."""
    outliers: tuple[Outlier, ...]
    findings: tuple[NodesFinding, ...]
    calls: tuple[NodesCall, ...]
    devices: tuple[NodesDevice, ...]
    processes: tuple[NodesProcess, ...]
    """By time in calls, at most 100; ``ranks`` and ``files``, too."""
    ranks: tuple[RankRow, ...]
    nr_ranks: int
    files: tuple[NodesFile, ...]
    nr_files: int
    """Paths with a row on some node."""
    other_files: int
    """Paths that have no row, added up over nodes."""
    folders: tuple[NodesPlace, ...]
    """By time in calls, at most 100; ``patterns``, too: paths whose numbers are replaced by stars."""
    nr_folders: int
    """Folders with a row on some node."""
    patterns: tuple[NodesPlace, ...]
    nr_patterns: int
    overlap: Overlap | None = None
    """The sum of the nodes that know their own; None: no node does."""
    nr_without_overlap: int = 0
    """Nodes that do not."""

    @property
    def nr_rank_rows(self) -> int:
        """Rows that ``ranks`` would have without a limit: a rank whose processes are on several hosts has several."""
        return sum(len(host.ranks) for host in self.hosts)

    @property
    def verdicts(self) -> dict[str, int]:
        """Verdict → on how many hosts."""
        found: dict[str, int] = defaultdict(int)
        for host in self.hosts:
            found[host.verdict] += 1
        return dict(found)


def to_json(summary: NodesSummary) -> str:
    """The summary as JSON. Keys are the names of the dataclasses' fields. A schema version only gains keys."""
    return json.dumps(asdict(summary), indent=2, ensure_ascii=True)


def add_up(
    directory: str,
    nodes: Callable[[], Iterable[tuple[HostFacts, pa.Table]]],
    *,
    span_ns: int,
    left_out: Mapping[str, str],
    nr_summed: int = 0,
) -> NodesSummary:
    """Add the sums of nodes up.

    Args:
        directory: That of the recording.
        nodes: Yields each node and its sums, which are taken one after the other. It is called twice: the first time
            shows which paths are the largest, and the second time only their rows are kept in memory.
        span_ns: From the first start to the last end.
        left_out: Host → why it is not among the nodes.
        nr_summed: Hosts that had no sums.
    """
    adder = _Adder()
    for facts, table in nodes():
        adder.add(facts, table)
    named, numbers = adder.largest(table for _, table in nodes())
    rows = adder.rows() | named
    hosts = tuple(sorted(adder.hosts, key=lambda host: (-host.activity.time_ns, host.host)))
    total = _activity({name: sum(row[name] or 0 for row in rows[NODE]) for name in ADDED})
    return NodesSummary(
        schema=SCHEMA,
        schema_version=SCHEMA_VERSION,
        directory=directory,
        span_ns=span_ns,
        error_ns=_error_of(hosts),
        activity=total,
        hosts=hosts,
        left_out=dict(left_out),
        nr_summed=nr_summed,
        outliers=_outliers(hosts),
        findings=_findings(adder.findings),
        calls=tuple(_calls(rows, total.time_ns)),
        devices=tuple(_devices(rows, adder.disks)),
        processes=_processes(rows[PROCESS]),
        ranks=tuple(sorted(adder.ranks, key=lambda row: (-row.activity.time_ns, row.rank, row.host)))[:MAX_ROWS],
        nr_ranks=len({row.rank for row in adder.ranks}),
        files=tuple(_files(rows)),
        nr_files=numbers[FILE],
        other_files=sum(row["members"] for row in rows[OTHER[FILE]]),
        folders=tuple(_places(rows, FOLDER)),
        nr_folders=numbers[FOLDER],
        patterns=tuple(_places(rows, PATTERN)),
        nr_patterns=numbers[PATTERN],
        overlap=_overlap_of_all(hosts),
        nr_without_overlap=sum(host.overlap is None for host in hosts),
    )


def _error_of(hosts: Sequence[HostRow]) -> int | None:
    """The largest error of the hosts' times; None: one is unknown."""
    errors = [host.error_ns for host in hosts]
    return None if None in errors else max((error or 0 for error in errors), default=0)


def _overlap_of_all(hosts: Sequence[HostRow]) -> Overlap | None:
    known = [host.overlap for host in hosts if host.overlap is not None]
    return (
        Overlap(**{name: sum(getattr(each, name) for each in known) for name in Overlap.__slots__}) if known else None
    )


def _outliers(hosts: Sequence[HostRow]) -> tuple[Outlier, ...]:
    compared = {what: [_number(host, what) for host in hosts] for what in COMPARED}
    return find_outliers([host.host for host in hosts], compared)


class _Adder:
    """Adds up rows with the same keys. What a node's own rows tell of it is kept."""

    def __init__(self) -> None:
        self.hosts: list[HostRow] = []
        self.ranks: list[RankRow] = []
        self.findings: list[tuple[str, Row]] = []
        self.disks: dict[str, dict[str, int]] = defaultdict(dict)
        """Operation → host → its disks that had such requests."""
        self._named: list[NDArray[Any]] = []
        self._waiting: list[pa.Table] = []
        self._room = _AT_ONCE

    def add(self, facts: HostFacts, table: pa.Table) -> None:
        kinds = [NODE, DEVICE, RANK, RANK_PROCESS, FINDING]
        own = _by_kind(table.filter(pc.is_in(table["kind"], pa.array(kinds))))
        self.findings += [(facts.host, row) for row in own[FINDING]]
        self.ranks += [
            RankRow(row["rank"], facts.host, row["members"], _activity(row), _overlap(row)) for row in own[RANK]
        ]
        for row in own[DEVICE]:
            disks = self.disks[row["detail"]]
            disks[facts.host] = disks.get(facts.host, 0) + 1
        (node,) = own[NODE]
        busiest = max(own[DEVICE], key=lambda row: row["time_ns"], default=None)
        self.hosts.append(
            HostRow(
                host=facts.host,
                verdict=node["name"],
                span_ns=facts.span_ns,
                clock=facts.clock,
                error_ns=facts.error_ns,
                processes=node["members"],
                ranks=tuple(sorted(row["rank"] for row in own[RANK])),
                activity=_activity(node),
                device_p99_ns=busiest["p99_ns"] if busiest else None,
                overlap=_overlap(node),
                by_rank=_by_rank(own[RANK_PROCESS]),
                nr_by_rank=len(own[RANK_PROCESS]),
            )
        )
        self._named.append(_weights(table.filter(pc.is_in(table["kind"], pa.array(OTHER)))))
        self._waiting.append(_once(table.filter(pc.invert(pc.is_in(table["kind"], pa.array([*OTHER, RANK_PROCESS]))))))
        if sum(each.num_rows for each in self._waiting) > self._room:
            self._waiting = [_grouped(self._waiting)]
            self._room = max(_AT_ONCE, 2 * self._waiting[0].num_rows)

    def rows(self) -> dict[str, list[Row]]:
        """The rows of each kind but files and places, one for each combination of keys; ``hosts``: number of nodes."""
        return _by_kind(_grouped(self._waiting)) if self._waiting else defaultdict(list)

    def largest(self, tables: Iterable[pa.Table]) -> tuple[dict[str, list[Row]], dict[str, int]]:
        """The rows of files and places with the most time, and how many files and places have rows.

        Args:
            tables: Those that were added, once more.
        """
        wanted, numbers = np.zeros(0, np.int64), {}
        for kind, weights in _by_kind_of_name(self._named).items():
            keys, places = np.unique(weights["key"], return_inverse=True)
            time, nr = (_summed(places, weights[name], len(keys)) for name in ("time_ns", "nr"))
            order = np.lexsort((-nr, -time))
            last = order[:MAX_ROWS][-1:]
            tied = (time == time[last]) & (nr == nr[last]) if len(last) else np.zeros(0, np.bool_)
            wanted = np.concatenate([wanted, keys[order[:MAX_ROWS]], keys[tied]])
            numbers[kind] = len(keys)
        rows: dict[str, list[Row]] = defaultdict(list)
        chosen = [_once(_chosen(table, wanted)) for table in tables]
        if chosen:
            whole = _grouped(chosen)
            order = pc.sort_indices(whole, [("time_ns", "descending"), ("nr", "descending"), ("name", "ascending")])
            for kind, each in _by_kind(whole.take(order)).items():
                rows[kind] = each[:MAX_ROWS]
        return rows, numbers


def _once(table: pa.Table) -> pa.Table:
    """The rows of one node, with the column ``hosts``."""
    return table.drop_columns(["p99_ns"]).append_column("hosts", pa.array(np.ones(table.num_rows, np.int64)))


def _weights(table: pa.Table) -> NDArray[Any]:
    """What the choice of the largest files and places needs of their rows, 32 bytes each: no text.

    A name is told by its hash of 64 bits, whose key Python chooses at random.
    """
    found = np.zeros(table.num_rows, _WEIGHTS)
    found["kind"] = pc.index_in(table["kind"], pa.array(OTHER)).to_numpy()
    found["key"] = _keys(table)
    found["time_ns"], found["nr"] = (table[name].to_numpy() for name in ("time_ns", "nr"))
    return found


def _keys(table: pa.Table) -> NDArray[np.int64]:
    names = zip(table["kind"].to_pylist(), table["name"].to_pylist(), strict=True)
    return np.fromiter(map(hash, names), np.int64, table.num_rows)


def _chosen(table: pa.Table, keys: NDArray[np.int64]) -> pa.Table:
    named = table.filter(pc.is_in(table["kind"], pa.array(OTHER)))
    return named.filter(pa.array(np.isin(_keys(named), keys)))


def _by_kind_of_name(parts: Iterable[NDArray[Any]]) -> dict[str, NDArray[Any]]:
    whole = np.concatenate([np.zeros(0, _WEIGHTS), *parts])
    return {kind: whole[whole["kind"] == number] for number, kind in enumerate(OTHER)}


def _summed(places: NDArray[np.intp], values: NDArray[np.int64], number: int) -> NDArray[np.int64]:
    sums = np.zeros(number, np.int64)
    np.add.at(sums, places, values)
    return sums


def _grouped(tables: list[pa.Table]) -> pa.Table:
    functions = [*((name, "sum") for name in (*ADDED, "hosts")), ("min_ns", "min"), ("max_ns", "max")]
    found = pa.concat_tables(tables).group_by(list(KEYS)).aggregate(functions)
    plain = {f"{name}_{function}": name for name, function in functions}
    return found.rename_columns([plain.get(name, name) for name in found.column_names]).select(tables[0].column_names)


def _by_kind(table: pa.Table) -> dict[str, list[Row]]:
    found: dict[str, list[Row]] = defaultdict(list)
    for row in table.to_pylist():
        found[row["kind"]].append(row)
    return found


def _activity(row: Mapping[str, Any]) -> Activity:
    names = ("errors", "reads", "writes", "bytes_read", "bytes_written", "time_ns")
    return Activity(calls=row.get("nr") or 0, **{name: row.get(name) or 0 for name in names})


def _overlap(row: Mapping[str, Any]) -> Overlap | None:
    if row["overlap_lacks"]:
        return None
    return Overlap(**{name: row[name] or 0 for name in Overlap.__slots__})


def _number(host: HostRow, what: str) -> int | None:
    found: int | None = host.device_p99_ns if what == "device_p99_ns" else getattr(host.activity, what)
    return found


def _latency(bins: Iterable[Row], total_ns: int, rows: list[Row]) -> Latency:
    """The latency of the sum of histograms, whose extremes are in other rows."""
    counts: dict[int, int] = defaultdict(int)
    for row in bins:
        counts[row["bin"]] += row["nr"]
    if not counts:
        return Latency()
    whole = np.zeros(max(counts) + 1, np.int64)
    whole[list(counts)] = list(counts.values())
    low = min(row["min_ns"] for row in rows if row["min_ns"] is not None)
    high = max(row["max_ns"] for row in rows if row["max_ns"] is not None)
    return LatencyHistograms.of_counts(whole, total_ns, low, high).latency(0)


def _calls(rows: Mapping[str, list[Row]], time_ns: int) -> Iterator[NodesCall]:
    bins = _by(rows[CALL_BIN], "name")
    for row in sorted(rows[CALL], key=lambda row: (-row["time_ns"], -row["nr"], row["name"])):
        latency = _latency(bins[row["name"]], row["time_ns"], [row])
        share = row["time_ns"] / time_ns if time_ns else 0.0
        yield NodesCall(row["name"], row["hosts"], _activity(row), latency, share)


def _devices(rows: Mapping[str, list[Row]], disks: Mapping[str, Mapping[str, int]]) -> Iterator[NodesDevice]:
    bins = _by(rows[DEVICE_BIN], "detail")
    found = _by(rows[DEVICE], "detail")
    for operation in sorted(found, key=lambda each: -sum(row["time_ns"] for row in found[each])):
        mine = found[operation]
        yield NodesDevice(
            operation=operation,
            hosts=len(disks[operation]),
            disks=sum(disks[operation].values()),
            requests=sum(row["nr"] for row in mine),
            errors=sum(row["errors"] for row in mine),
            bytes=sum((row["bytes_read"] or 0) + (row["bytes_written"] or 0) for row in mine),
            device=_latency(bins[operation], sum(row["time_ns"] for row in mine), mine),
        )


def _by(rows: Iterable[Row], key: str) -> dict[str, list[Row]]:
    found: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        found[row[key]].append(row)
    return found


def _processes(rows: Iterable[Row]) -> tuple[NodesProcess, ...]:
    ordered = sorted(rows, key=lambda row: (-row["time_ns"], -row["nr"], row["name"] or ""))
    return tuple(
        NodesProcess(row["name"], row["hosts"], row["members"], _activity(row), _overlap(row))
        for row in ordered[:MAX_ROWS]
    )


def _by_rank(rows: Iterable[Row]) -> tuple[HostProcess, ...]:
    most = sorted(rows, key=lambda row: (-row["time_ns"], -row["nr"], row["name"] or ""))[:MAX_OF_HOST]
    found = [HostProcess(row["rank"], row["name"], row["members"], _activity(row), _overlap(row)) for row in most]
    return tuple(sorted(found, key=lambda row: (row.rank is None, row.rank or 0)))


def _files(rows: Mapping[str, list[Row]]) -> Iterator[NodesFile]:
    for row, more_ns, more_bytes in _bounded(rows, FILE):
        yield NodesFile(row["name"], row["hosts"], _activity(row), more_ns, more_bytes)


def _places(rows: Mapping[str, list[Row]], kind: str) -> Iterator[NodesPlace]:
    for row, more_ns, more_bytes in _bounded(rows, kind):
        yield NodesPlace(row["name"], row["hosts"], row["members"], _activity(row), more_ns, more_bytes)


def _bounded(rows: Mapping[str, list[Row]], kind: str) -> Iterator[tuple[Row, int, int]]:
    """Rows of a kind, and the most that nodes without such a row may add.

    ``most_…`` of a path's row is a sum over the nodes that have a row for the path. ``most_…`` of the row for all other
    paths is a sum over all nodes.
    """
    most_ns, most_bytes = (sum(row[name] for row in rows[OTHER[kind]]) for name in ("most_ns", "most_bytes"))
    for row in rows[kind]:
        yield row, most_ns - row["most_ns"], most_bytes - row["most_bytes"]


def _findings(found: Iterable[tuple[str, Row]]) -> tuple[NodesFinding, ...]:
    """By rule, those with most cost first."""
    by_rule: dict[str, list[tuple[str, Row]]] = defaultdict(list)
    for host, row in found:
        by_rule[row["name"]].append((host, row))
    rows = []
    for rule, each in by_rule.items():
        most = max(each, key=lambda pair: pair[1]["time_ns"] or 0)[1]
        cost_ns = sum(row["time_ns"] or 0 for _, row in each)
        rows.append(
            NodesFinding(rule, tuple(dict.fromkeys(host for host, _ in each)), len(each), cost_ns, most["detail"])
        )
    return tuple(sorted(rows, key=lambda row: (-row.cost_ns, row.rule)))
