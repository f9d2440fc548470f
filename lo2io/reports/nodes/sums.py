"""The sums of one node, as rows that add up with those of other nodes.

In: a trace. Out: a table, which the node keeps as ``lo2io/summary.arrow``. So a report of a thousand nodes reads a
thousand small files. ``docs/reference/cluster.md`` says what its rows mean.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from lo2io.model import UNKNOWN_U32
from lo2io.reports.nodes.places import FOLDER, PATTERN, places
from lo2io.reports.summary.file_types import FileType
from lo2io.reports.summary.io import device_name
from lo2io.reports.summary.names import file_names
from lo2io.reports.summary.summary import summarize
from lo2io.reports.summary.sums import gather
from lo2io.reports.summary.tally import NR_REQUEST_OPS
from lo2io.trace.columns import REQUEST_OPERATION
from lo2io.trace.names import table_file

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from numpy.typing import NDArray

    from lo2io.reports.summary.histogram import Latency
    from lo2io.reports.summary.summary import Summary
    from lo2io.reports.summary.sums import TraceSums
    from lo2io.reports.summary.tally import Sums
    from lo2io.trace.reader import Trace

SUMS_FILE: Final = table_file("summary")
KEYS: Final = ("kind", "name", "detail", "rank", "bin")
"""Rows of several nodes with the same keys become one. A node has each combination once, but of findings."""
ADDED: Final = (
    "nr", "members", "errors", "reads", "writes", "bytes_read", "bytes_written", "time_ns", "most_bytes", "most_ns",
    "io_ns", "overlapped_ns", "unoverlapped_ns", "unknown_ns", "overlap_lacks",
)  # fmt: skip
"""Columns of numbers that add up."""
VERSION: Final = 3
SCHEMA: Final = pa.schema(
    [
        *(pa.field(name, pa.utf8()) for name in KEYS[:3]),
        *(pa.field(name, pa.int64()) for name in (*KEYS[3:], *ADDED, "min_ns", "max_ns", "p99_ns")),
    ],
    {"format": "lo2io-sums", "version": str(VERSION)},
)
NODE, CALL, CALL_BIN, DEVICE, DEVICE_BIN, PROCESS, RANK, RANK_PROCESS, FILE, OTHER_FILES, FINDING = (
    "node", "call", "call latency", "device", "device latency", "process", "rank", "process of a rank", "file",
    "other files", "finding",
)  # fmt: skip
"""Kinds of rows, beside those of places."""
OTHER: Final = {FILE: OTHER_FILES, FOLDER: "other folders", PATTERN: "other patterns"}
"""Kind of which a node has only the largest rows → the kind of the row that sums up the others."""
MOST_FILES: Final = 1_000
"""So many paths with the most time have rows, and so many with the most bytes."""


def sum_up(trace: Trace) -> pa.Table:
    """Sum a trace, or a part of one, up.

    Raises:
        TraceError: A table is missing or damaged.
    """
    sums = gather(trace)
    summary = summarize(trace, sums)
    rows = [_node(summary, sums), *_calls(sums), *_devices(sums), *_processes(sums), *_files(sums), *_findings(summary)]
    return pa.Table.from_pylist(rows, SCHEMA)


def _activity(sums: Sums, key: Any) -> dict[str, int]:
    names = ("errors", "reads", "writes", "bytes_read", "bytes_written", "time_ns")
    return {"nr": int(sums.calls[key].sum()), **{name: int(getattr(sums, name)[key].sum()) for name in names}}


def _overlap(sums: TraceSums, key: Any) -> dict[str, int]:
    """``overlap_lacks``: 1 where nobody knows, so that a sum over hosts is known to lack something."""
    found = sums.overlap.of(key)
    return {"overlap_lacks": 1} if found is None else asdict(found)


def _latency(latency: Latency) -> dict[str, int]:
    if not latency.nr:
        return {}
    return {"min_ns": latency.min_ns, "max_ns": latency.max_ns, "p99_ns": latency.p99_ns}


def _bins(counts: NDArray[np.int64], **key: Any) -> Iterator[dict[str, Any]]:
    for number in np.flatnonzero(counts).tolist():
        yield {**key, "bin": number, "nr": int(counts[number])}


def _node(summary: Summary, sums: TraceSums) -> dict[str, Any]:
    total = _activity(sums.operations.by_call, slice(None))
    return {
        "kind": NODE,
        "name": summary.verdict,
        "members": summary.nr_processes,
        **total,
        **_overlap(sums, slice(None)),
    }


def _calls(sums: TraceSums) -> Iterator[dict[str, Any]]:
    tally = sums.operations
    for number, call in enumerate(sums.trace.metadata["calls"]):
        if tally.by_call.calls[number]:
            latency = _latency(tally.latency_of_call(number))
            yield {"kind": CALL, "name": call["name"], **_activity(tally.by_call, number), **latency}
            yield from _bins(tally.latency_counts(number), kind=CALL_BIN, name=call["name"])


def _devices(sums: TraceSums) -> Iterator[dict[str, Any]]:
    """The time is that at the device: from issue to completion."""
    tally = sums.requests
    for key in np.flatnonzero(tally.requests).tolist():
        device, number = divmod(key, NR_REQUEST_OPS)
        operation = REQUEST_OPERATION[number]
        name = {"name": device_name(sums.trace.metadata, int(tally.devices[device])), "detail": operation}
        latency = tally.device.latency(key)
        moved = {"read": "bytes_read", "write": "bytes_written"}.get(operation)
        yield {
            "kind": DEVICE, **name, "nr": int(tally.requests[key]), "errors": int(tally.errors[key]),
            **({moved: int(tally.bytes[key])} if moved else {}), "time_ns": latency.total_ns, **_latency(latency),
        }  # fmt: skip
        yield from _bins(tally.device.counts(key), kind=DEVICE_BIN, **name)


def _processes(sums: TraceSums) -> Iterator[dict[str, Any]]:
    """A row for the processes of each name, of each rank, and of each name in one rank or outside of all ranks."""
    tally, busy = sums.operations.by_process, np.flatnonzero(sums.operations.by_process.calls).tolist()
    names, ranks = sums.people.names(busy), _ranks(sums)
    by_name, by_rank, by_both = defaultdict(list), defaultdict(list), defaultdict(list)
    for row in busy:
        by_name[names.get(row)].append(row)
        by_both[ranks.get(row), names.get(row)].append(row)
        if row in ranks:
            by_rank[ranks[row]].append(row)
    for name, rows in by_name.items():
        yield {"kind": PROCESS, "name": name, "members": len(rows), **_activity(tally, rows), **_overlap(sums, rows)}
    for rank, rows in by_rank.items():
        yield {"kind": RANK, "rank": rank, "members": len(rows), **_activity(tally, rows), **_overlap(sums, rows)}
    for (own, name), rows in by_both.items():
        keys = {"kind": RANK_PROCESS, "rank": own, "name": name}
        yield {**keys, "members": len(rows), **_activity(tally, rows), **_overlap(sums, rows)}


def _ranks(sums: TraceSums) -> dict[int, int]:
    """Process → its rank in the job; others have none."""
    ranks: dict[int, int] = {}
    for batch in sums.trace.batches("threads", ["process", "rank"]):
        known = batch["rank"] != UNKNOWN_U32
        rows = sums.owners.process_rows(batch["process"][known])
        ranks.update(zip(rows.tolist(), batch["rank"][known].tolist(), strict=True))
    return ranks


def _files(sums: TraceSums) -> Iterator[dict[str, Any]]:
    """Paths, folders and patterns with the most time or bytes, and of each kind the sum of all others.

    ``most_…`` is the same in all rows of a kind: nothing without a row has more than this. So a report knows how much a
    node without a row for a path may add to that path.
    """
    by_path = sums.operations.by_group.merged(sums.paths)
    used = np.flatnonzero((by_path.calls > 0) | (by_path.writes > 0))
    stored = used[(used < sums.owners.nr_files) & (sums.owners.types[used] <= FileType.STORAGE)]
    top, most, rest = _top(by_path, stored)
    names = file_names(sums.trace, sums.owners, sums.people, top.tolist())
    groups = defaultdict(list)
    for key in top.tolist():  # a path may stand for files of several devices
        groups[names[key].path].append(key)
    for path, keys in groups.items():
        yield {"kind": FILE, "name": path, "members": len(keys), **_activity(by_path, keys), **most}
    if len(rest):
        yield {"kind": OTHER_FILES, "members": len(rest), **_activity(by_path, rest), **most}
    for kind in (FOLDER, PATTERN):
        found = places(sums.trace, kind, by_path, stored)
        top, most, rest = _top(found.sums, np.arange(len(found.names)))
        for row in top.tolist():
            members = {"members": int(found.files[row])}
            yield {"kind": kind, "name": found.names[row], **members, **_activity(found.sums, row), **most}
        if len(rest):
            members = {"members": int(found.files[rest].sum())}
            yield {"kind": OTHER[kind], **members, **_activity(found.sums, rest), **most}


def _top(sums: Sums, keys: NDArray[np.intp]) -> tuple[NDArray[np.intp], dict[str, int], NDArray[np.intp]]:
    """The keys that get rows, the most time and the most bytes of any other key, and all other keys."""
    moved = sums.bytes_read + sums.bytes_written
    top = np.union1d(_largest(sums.time_ns, keys), _largest(moved, keys))
    rest = np.setdiff1d(keys, top)
    return top, {"most_ns": int(sums.time_ns[rest].max(initial=0)), "most_bytes": int(moved[rest].max(initial=0))}, rest


def _largest(weight: NDArray[np.int64], keys: NDArray[np.intp]) -> NDArray[np.intp]:
    return keys[np.argsort(-weight[keys], kind="stable")][:MOST_FILES]


def _findings(summary: Summary) -> Iterable[dict[str, Any]]:
    for finding in summary.findings:
        yield {"kind": FINDING, "name": finding.rule, "detail": finding.subject, "nr": 1, "time_ns": finding.cost_ns}
