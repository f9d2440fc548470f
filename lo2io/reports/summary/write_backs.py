"""Who caused the disk's writes, and why: bytes of files' data by dirtying process, by file, and by the kernel's reason.

In: the tables of charges, of requests and of files. Out: a :class:`WriteBackSummary`. Memory grows with the number of
requests, processes and files.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

import numpy as np

from lo2io.frozen import dataclass
from lo2io.model import UNKNOWN_I64, UNKNOWN_U32
from lo2io.reports.summary.histogram import Latency, LatencyHistograms
from lo2io.trace.columns import CHARGED, WRITE_REASON

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from lo2io.model import Columns
    from lo2io.reports.summary.owners import Owners
    from lo2io.reports.summary.sums import TraceSums
    from lo2io.trace.reader import Trace

    Integers = NDArray[np.int64]

MAX_ROWS: Final = 100
"""Processes and files listed by the bytes that were written for them."""
_COLUMNS: Final = (
    "request", "charged", "task", "tid", "file", "bytes", "first_dirtied_ns", "issue_time_ns", "complete_time_ns",
)  # fmt: skip
_UNKNOWN: Final = CHARGED.index("unknown")


@dataclass(frozen=True, slots=True)
class WriteBackRow:
    """Bytes of files' data that disks wrote for one process, of one file, or for one reason.

    Requests that failed count, too.
    """

    kind: str
    """``process``; ``others``: processes that were not recorded; ``unknown``: nobody knows who; ``file``; ``reason``;
    ``all``."""
    path: str | None
    """Of a file: its path, if anybody who is recorded had opened it."""
    pid: int | None
    process: str | None
    reason: str | None
    """Of a reason: the kernel's name of it; ``none``: no worker wrote back, as for fsync(2), or it is not known."""
    bytes_written_back: int
    bytes_deferred: int
    """Of them, in requests that another process sent, such as a worker of the kernel."""
    device_time_ns: int
    """From issue to completion of each request, in proportion to this row's part of the request's bytes."""
    bytes_unwritten: int
    """In pages that were dirty, and that no request had carried when the recording ended; deleted files' pages, too."""
    until_disk: Latency
    """From the first dirtying of a run of pages to the end of the request with these pages; one for each run."""


@dataclass(frozen=True, slots=True)
class WriteBackSummary:
    """The part of the report about who caused the disk's writes."""

    total: WriteBackRow
    processes: tuple[WriteBackRow, ...]
    """Most bytes first."""
    files: tuple[WriteBackRow, ...]
    """The same; one row has all files without a name."""
    reasons: tuple[WriteBackRow, ...]
    """The same; unwritten pages have no reason."""


class _Requests:
    """Of each request: the process that sent it, its bytes, and its reason. Of an unknown one: nobody, 1 byte, none."""

    def __init__(self, trace: Trace, owners: Owners) -> None:
        unknown: Columns = {
            "id": np.zeros(1, np.uint64),
            "task": np.full(1, UNKNOWN_U32, np.uint32),
            "bytes_issued": np.zeros(1, np.int64),
            "reason": np.zeros(1, np.int8),
        }
        batches = [unknown, *trace.batches("requests", tuple(unknown))]
        joined = {name: np.concatenate([rows[name] for rows in batches]) for name in unknown}
        order = np.argsort(joined["id"])  # the unknown one's id is the lowest
        self._ids = joined["id"][order]
        self.process = owners.processes(joined["task"][order])
        self.bytes = np.maximum(joined["bytes_issued"][order], 1)
        self.reason = joined["reason"][order].astype(np.int64)

    def at(self, request: NDArray[np.uint64]) -> Integers:
        """Places of these requests in the arrays."""
        place = np.searchsorted(self._ids, request).clip(max=len(self._ids) - 1)
        return np.where(self._ids[place] == request, place, 0)


class _Sums:
    """Sums by a number: columns are written back, deferred, device time, unwritten."""

    def __init__(self, nr: int) -> None:
        self.numbers = np.zeros((nr, 4), np.int64)

    def add(self, place: Integers, numbers: Integers) -> None:
        np.add.at(self.numbers, place, numbers)

    def most(self) -> list[int]:
        """The places with bytes: most written, then most unwritten first."""
        written, unwritten = self.numbers[:, 0], self.numbers[:, 3]
        order = np.lexsort((-unwritten, -written))
        chosen: list[int] = order[(written + unwritten)[order] > 0][:MAX_ROWS].tolist()
        return chosen


def summarize_write_backs(sums: TraceSums) -> WriteBackSummary | None:
    """Sum up the charges; None: the layer was not recorded, or no page of a file was dirtied or written.

    Raises:
        TraceError: A table is missing or damaged.
    """
    trace, owners = sums.trace, sums.owners
    if "dirty" not in trace.metadata.get("layers", ()) or not trace.rows("write_backs"):
        return None
    by_process, by_file = _Sums(owners.nr_processes + 2), _Sums(owners.nr_files + 1)
    by_reason = _Sums(len(WRITE_REASON))
    requests = _Requests(trace, owners)
    for rows in trace.batches("write_backs", _COLUMNS):
        process = _process_of(rows, owners)
        numbers = _numbers(rows, process, requests)
        by_process.add(process, numbers)
        by_file.add(_file_of(rows, owners), numbers)
        written = rows["request"] != 0
        by_reason.add(_reason_of(rows, requests)[written], numbers[written])
    shown, files, reasons = by_process.most(), by_file.most(), by_reason.most()
    late = _latencies(trace, owners, requests, (shown, files, reasons))
    names = sums.people.names({place for place in shown if place < owners.nr_processes})
    paths = trace.texts("files", "file", "path", [place for place in files if place < owners.nr_files])
    times = iter(late)
    total = _row(by_process.numbers.sum(axis=0), next(times), "all")
    processes = [
        replace(
            _row(by_process.numbers[place], next(times), _kind(place, owners)),
            pid=sums.people.pid(place) if place < owners.nr_processes else None,
            process=names.get(place),
        )
        for place in shown
    ]
    of_files = [replace(_row(by_file.numbers[place], next(times), "file"), path=paths.get(place)) for place in files]
    of_reasons = [
        replace(_row(by_reason.numbers[place], next(times), "reason"), reason=WRITE_REASON[place]) for place in reasons
    ]
    return WriteBackSummary(total, tuple(processes), tuple(of_files), tuple(of_reasons))


def _process_of(rows: Columns, owners: Owners) -> Integers:
    """The charged process. Two more numbers stand for processes that are not recorded, and for unknown ones."""
    known = owners.processes(rows["task"])
    return np.where(rows["charged"] == _UNKNOWN, owners.nr_processes + 1, known)


def _file_of(rows: Columns, owners: Owners) -> Integers:
    return owners.files(rows["file"], owners.nr_files)


def _reason_of(rows: Columns, requests: _Requests) -> Integers:
    return requests.reason[requests.at(rows["request"])]


def _kind(place: int, owners: Owners) -> str:
    return "process" if place < owners.nr_processes else "others" if place == owners.nr_processes else "unknown"


def _numbers(rows: Columns, process: Integers, requests: _Requests) -> Integers:
    """Shape (rows, 4): what :class:`_Sums` adds."""
    size = rows["bytes"].astype(np.int64)
    numbers = np.zeros((len(size), 4), np.int64)
    written = rows["request"] != 0
    numbers[~written, 3] = size[~written]
    numbers[written, 0] = size[written]
    places = requests.at(rows["request"][written])
    numbers[written, 1] = size[written] * (requests.process[places] != process[written])
    issue, complete = rows["issue_time_ns"][written], rows["complete_time_ns"][written]
    lasted = np.where((complete != UNKNOWN_I64) & (issue != UNKNOWN_I64), complete - issue, 0)
    numbers[written, 2] = np.rint(lasted * (size[written] / requests.bytes[places])).astype(np.int64)
    return numbers


def _latencies(
    trace: Trace, owners: Owners, requests: _Requests, shown: tuple[list[int], list[int], list[int]]
) -> list[Latency]:
    """Times of all rows, then of the shown processes, files and reasons; memory: 48 KiB each."""
    late = LatencyHistograms(1 + sum(map(len, shown)))
    places = [np.full(nr, -1) for nr in (owners.nr_processes + 2, owners.nr_files + 1, len(WRITE_REASON))]
    first = 1
    for place, chosen in zip(places, shown, strict=True):
        place[chosen] = first + np.arange(len(chosen))
        first += len(chosen)
    for rows in trace.batches("write_backs", _COLUMNS):
        known = (rows["first_dirtied_ns"] != UNKNOWN_I64) & (rows["complete_time_ns"] != UNKNOWN_I64)
        lasted = (rows["complete_time_ns"] - rows["first_dirtied_ns"])[known]
        late.add(np.zeros(len(lasted)), lasted)
        keys = _process_of(rows, owners), _file_of(rows, owners), _reason_of(rows, requests)
        for number in (place[key] for place, key in zip(places, keys, strict=True)):
            late.add(number[known & (number >= 0)], lasted[number[known] >= 0])
    return [late.latency(number) for number in range(first)]


def _row(numbers: Integers, until_disk: Latency, kind: str) -> WriteBackRow:
    written, deferred, device_ns, unwritten = numbers.tolist()
    return WriteBackRow(kind, None, None, None, None, written, deferred, device_ns, unwritten, until_disk)
