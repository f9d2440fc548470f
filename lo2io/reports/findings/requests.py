"""Rules about what block requests carried, and for whom: swapped-out memory, another process' writes, cached images.

Each rule takes the sums and gives findings. Rows are block requests of ``requests``. Without the layer that it needs, a
rule finds nothing. Thresholds: docs/reference/findings.md. Memory: 60 B for each request.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from lo2io.model import UNKNOWN_I64
from lo2io.model.number_sets import distinct
from lo2io.reports.findings.calls import process_names
from lo2io.reports.findings.finding import Finding
from lo2io.reports.summary.io import device_name
from lo2io.reports.words import printable
from lo2io.trace.columns import CHARGED, PART_KIND, REQUEST_OPERATION
from lo2io.units import format_bytes, format_duration

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import NDArray

    from lo2io.model import Columns
    from lo2io.reports.findings.finding import Where
    from lo2io.reports.summary.sums import TraceSums

    Times = NDArray[np.int64]
    Ids = NDArray[np.uint64]
    Chosen = NDArray[np.bool_]
    Places = NDArray[np.intp]

DEAR_NS: Final = 100_000_000
"""Least time: nobody notices less."""
OFTEN: Final = 0.1
"""Least part of the recording that the requests take."""
MANY: Final = 100
"""Least number of reads."""
SOME: Final = 20
"""Least number of reads without others' writes. Their mean is the measure."""
SLOWER: Final = 2.0
"""Least ratio of the means. Medians would hide the few reads that wait for long."""
LEAST_TWICE: Final = 16 << 20
"""Least number of bytes that went through two page caches."""

_READ: Final = REQUEST_OPERATION.index("read")
_SWAP, _FILE = PART_KIND.index("swap"), PART_KIND.index("file")
_DIRTIED: Final = CHARGED.index("dirtied")
_NOBODY: Final = -1
_COLUMNS: Final = ("id", "device", "operation", "task", "insert_time_ns", "issue_time_ns", "complete_time_ns")


def swapping(sums: TraceSums) -> list[Finding]:
    """A process reads its memory back from swap again and again."""
    swapped = _swapped(sums)
    if not len(swapped):
        return []
    requests = _requests(sums, swapped)
    requests = {name: values[requests["operation"] == _READ] for name, values in requests.items()}
    least_ns = max(DEAR_NS, OFTEN * sums.span_ns)
    found = []
    for process in distinct(requests["process"][requests["process"] < sums.owners.nr_processes]).tolist():
        own = {name: values[requests["process"] == process] for name, values in requests.items()}
        time_ns, number = _union_ns(own["begin"], own["end"]), len(own["id"])
        if number >= MANY and time_ns >= least_ns:
            found.append(
                _finding(
                    "swapping",
                    "",
                    f"{number:,} reads brought memory back from swap",
                    {"reads": number, "read_ns": time_ns},
                    ids=own["id"],
                    cost_ns=time_ns,
                    process=process,
                )
            )
    return found


def write_back_storm(sums: TraceSums) -> list[Finding]:
    """A process' reads take longer while the disk writes what another process has dirtied."""
    dirtied, owners = _dirtied(sums)
    if not len(dirtied):
        return []
    requests = _requests(sums)
    place = np.searchsorted(dirtied, requests["id"]).clip(max=len(dirtied) - 1)
    owner = np.where(dirtied[place] == requests["id"], owners[place], _NOBODY)
    least_ns = max(DEAR_NS, OFTEN * sums.span_ns)
    storms = []
    reads = (requests["operation"] == _READ) & (requests["process"] < sums.owners.nr_processes)
    for device in distinct(requests["device"][owner != _NOBODY]).tolist():
        at = requests["device"] == device
        writes = np.flatnonzero(at & (owner != _NOBODY))
        for process, own in _by_process(requests, np.flatnonzero(reads & at)):
            storm = _Storm(requests, own, writes[owner[writes] != process])
            if storm.fits and storm.cost_ns >= least_ns:
                storms.append((device, process, _most_often(owner[storm.writes]), storm))
    names = process_names(sums, {writer for _, _, writer, _ in storms if writer < sums.owners.nr_processes})
    return [
        _storm_finding(
            device_name(sums.trace.metadata, device),
            process,
            names.get(writer, "processes that were not recorded"),
            storm,
        )
        for device, process, writer, storm in storms
    ]


def _by_process(requests: Columns, places: Places) -> Iterator[tuple[int, Places]]:
    """The processes with enough of these requests, and the places of each."""
    ordered = places[np.argsort(requests["process"][places], kind="stable")]
    processes, first, numbers = np.unique(requests["process"][ordered], return_index=True, return_counts=True)
    for process, begin, number in zip(processes.tolist(), first.tolist(), numbers.tolist(), strict=True):
        if number >= MANY + SOME:
            yield process, ordered[begin : begin + number]


def double_caching(sums: TraceSums) -> list[Finding]:
    """A loop device's image is read and written through the page cache, which holds the files on the device as well."""
    images = {
        device["device"]: device["image"]
        for device in sums.trace.metadata.get("devices", ())
        if device.get("image") and device.get("image_direct") is False
    }
    if not images:
        return []
    requests = _requests(sums, devices=list(images))
    ids, sizes = _cached(sums, requests["id"])
    place = np.searchsorted(ids, requests["id"]).clip(max=max(len(ids) - 1, 0))
    found = []
    for device, image in images.items():
        own = np.flatnonzero(requests["device"] == device)
        own = own[ids[place[own]] == requests["id"][own]] if len(ids) else own[:0]
        nr_bytes = int(sizes[place[own]].sum())
        if nr_bytes >= LEAST_TWICE:
            found.append(
                _finding(
                    "double-caching",
                    device_name(sums.trace.metadata, device),
                    f"{format_bytes(nr_bytes)} of files on it went through the page cache twice: as these files, and "
                    f"as the image {printable(image)}",
                    {"bytes": nr_bytes, "requests": len(own)},
                    ids=requests["id"][own],
                )
            )
    return found


REQUEST_RULES: Final[dict[str, Callable[[TraceSums], list[Finding]]]] = {
    "swapping": swapping,
    "write-back-storm": write_back_storm,
    "double-caching": double_caching,
}


class _Storm:
    """Reads of a process at a device, those beside others' writes and those without, and what the former cost."""

    def __init__(self, requests: Columns, own: Places, others: Places) -> None:
        begin, end = requests["begin"], requests["end"]
        beside = _overlap(begin[own], end[own], begin[others], end[others])
        lasted = end[own] - begin[own]
        self.ids: Ids = requests["id"][own][beside]
        self.nr_calm = int(np.count_nonzero(~beside))
        self.fits, self.cost_ns = False, 0
        if len(self.ids) < MANY or self.nr_calm < SOME:
            return
        self.calm_ns, self.beside_ns = int(lasted[~beside].mean()), int(lasted[beside].mean())
        self.cost_ns = len(self.ids) * (self.beside_ns - self.calm_ns)
        self.fits = self.beside_ns >= SLOWER * self.calm_ns
        touched = _overlap(begin[others], end[others], begin[own], end[own])
        self.writes: Places = others[touched]


def _most_often(processes: NDArray[np.int64]) -> int:
    values, times = np.unique(processes, return_counts=True)
    return int(values[np.argmax(times)])


def _storm_finding(device: str, process: int, writer: str, storm: _Storm) -> Finding:
    """Name the process whose writes were most often beside the reads."""
    return _finding(
        "write-back-storm",
        "",
        f"{len(storm.ids):,} reads from {device} ran beside write-back that others had caused, most often {writer}; "
        f"they took {format_duration(storm.beside_ns)} on average, its other reads {format_duration(storm.calm_ns)}",
        {
            "reads": len(storm.ids),
            "other_reads": storm.nr_calm,
            "writes": len(storm.writes),
            "beside_mean_ns": storm.beside_ns,
            "other_mean_ns": storm.calm_ns,
        },
        ids=storm.ids,
        cost_ns=storm.cost_ns,
        process=process,
    )


def _requests(sums: TraceSums, ids: Ids | None = None, devices: Sequence[int] | None = None) -> Columns:
    """Requests whose start and end are known: all, these, or these devices'; with ``process``, ``begin`` and ``end``.

    A request begins when it is queued, or issued where it is not queued.
    """
    parts: list[Columns] = []
    for rows in sums.trace.batches("requests", _COLUMNS):
        queued, issued = rows["insert_time_ns"], rows["issue_time_ns"]
        begin = np.where(queued == UNKNOWN_I64, issued, queued)
        known = (begin != UNKNOWN_I64) & (rows["complete_time_ns"] != UNKNOWN_I64)
        if ids is not None:
            known &= np.isin(rows["id"], ids)
        if devices is not None:
            known &= np.isin(rows["device"], devices)
        part = {"process": sums.owners.processes(rows["task"]), "begin": begin, "end": rows["complete_time_ns"]}
        part |= {name: rows[name] for name in ("id", "device", "operation")}
        parts.append({name: values[known] for name, values in part.items()})
    names = ("id", "device", "operation", "process", "begin", "end")
    return {name: np.concatenate([part[name] for part in parts] or [np.zeros(0, np.int64)]) for name in names}


def _swapped(sums: TraceSums) -> Ids:
    """Ids of the requests that carried swapped memory."""
    batches = sums.trace.batches("request_parts", ("request", "kind"))
    found = [rows["request"][rows["kind"] == _SWAP] for rows in batches]
    return distinct(np.concatenate([np.zeros(0, np.uint64), *found]))


def _cached(sums: TraceSums, of_devices: Ids) -> tuple[Ids, NDArray[np.int64]]:
    """Of these requests, those that carried a file's pages from or to the page cache; ascending, with these bytes."""
    ids, sizes = [np.zeros(0, np.uint64)], [np.zeros(0, np.int64)]
    for rows in sums.trace.batches("request_parts", ("request", "kind", "direct", "bytes")):
        chosen = (rows["kind"] == _FILE) & ~rows["direct"] & np.isin(rows["request"], of_devices)
        ids.append(rows["request"][chosen])
        sizes.append(rows["bytes"][chosen].astype(np.int64))
    found, place = np.unique(np.concatenate(ids), return_inverse=True)
    total = np.zeros(len(found), np.int64)
    np.add.at(total, place, np.concatenate(sizes))
    return found, total


def _dirtied(sums: TraceSums) -> tuple[Ids, NDArray[np.int64]]:
    """The requests that wrote dirtied pages, ascending, and whose pages: the process with the largest run in each."""
    parts = [np.zeros((3, 0), np.uint64)]
    for rows in sums.trace.batches("write_backs", ("request", "charged", "task", "bytes")):
        known = (rows["charged"] == _DIRTIED) & (rows["request"] != 0)
        process = sums.owners.processes(rows["task"]).astype(np.uint64)
        parts.append(np.stack([rows["request"], process, rows["bytes"]]).astype(np.uint64)[:, known])
    request, process, size = np.concatenate(parts, axis=1)
    order = np.lexsort((size, request))
    request, process = request[order], process[order]
    last = np.append(request[1:] != request[:-1], True) if len(request) else np.zeros(0, np.bool_)
    return request[last], process[last].astype(np.int64)


def _overlap(begin: Times, end: Times, other_begin: Times, other_end: Times) -> Chosen:
    """Which of these spans overlap one of the others."""
    begun = np.searchsorted(np.sort(other_begin), end, "left")
    ended = np.searchsorted(np.sort(other_end), begin, "right")
    found: Chosen = begun > ended
    return found


def _union_ns(begin: Times, end: Times) -> int:
    """Length of the time in which one of these spans at least was under way."""
    order = np.argsort(begin)
    begin, end = begin[order], np.maximum.accumulate(end[order])
    reached = np.append(begin[:1], end[:-1])
    return int((end - np.maximum(begin, reached)).clip(min=0).sum())


def _finding(
    rule: str,
    subject: str,
    text: str,
    evidence: dict[str, int | float],
    *,
    ids: Ids,
    cost_ns: int | None = None,
    process: int = -1,
) -> Finding:
    where = _with_ids(ids)
    return Finding(rule, subject, text, evidence, "requests", len(ids), where, cost_ns=cost_ns, process=process)


def _with_ids(ids: Ids) -> Where:
    def where(rows: Columns) -> Chosen:
        found: Chosen = np.isin(rows["id"], ids)
        return found

    return where
