"""The numbers behind the pictures, gathered in one more pass over the operations and the requests of rings and devices.

In: a trace and its sums. Out: :class:`Pictures`, plain lists ready for JSON. Bytes count at the time when a call ends;
time is spread over the bins in which it passes. Points are either complete, or a fair sample that says how many rows it
stands for. Memory does not grow with the trace.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from lo2io.model import UNKNOWN_I64, CallClass, CallKind
from lo2io.reports.html.grid import PointSums, Presence, Smallest, TimeGrid, scatter_keys, time_grid
from lo2io.reports.html.lanes import CLASSES, HUES, Lanes
from lo2io.reports.summary.tally import OPERATION_COLUMNS, read_ahead
from lo2io.trace.columns import latest_end
from lo2io.units import SECTOR_BYTES

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from lo2io.model import Columns
    from lo2io.reports.summary.sums import TraceSums
    from lo2io.trace.reader import Trace

HEAT_BINS: Final = 240
"""Time bins of heat maps and curves: as many as a page's width can show."""
TIMELINE_BINS: Final = 2_000
"""Time bins of the timeline: more, so that a reader can zoom in."""
MAX_SLICES: Final = 60
"""The longest operations of each thread and class, which are drawn one by one."""
MAX_POINTS: Final = 2_500
"""Points drawn for each file or device."""
STEPS: Final = 4
"""Bins of latency per power of two."""
_LATENCY_BINS: Final = 48 * STEPS
_MERGED: Final = 2
"""The status of a request that was merged into another."""
_READ_OR_WRITE: Final = 2
"""Requests with an operation below this number move data: 0 reads, 1 writes."""
_RING_REQUESTS: Final = (
    "id", "ring", "submit_time_ns", "complete_time_ns", "task", "opcode", "handle", "handle2", "offset_bytes",
    "bytes_result",
)  # fmt: skip
_REQUESTS: Final = (
    "id", "device", "operation", "status", "insert_time_ns", "issue_time_ns", "complete_time_ns", "end_latest_ns",
    "sector", "bytes_result",
)  # fmt: skip
_READS: Final = np.array([kind in {CallClass.READ, CallClass.COPY} for kind in CallClass])
_WRITES: Final = np.array([kind in {CallClass.WRITE, CallClass.COPY} for kind in CallClass])


@dataclass(frozen=True, slots=True)
class ChosenLanes:
    """The processes, files, threads, devices and rings that get a lane of their own."""

    processes: Lanes
    files: Lanes
    threads: Lanes
    devices: Lanes
    rings: Lanes


class _Activity:
    """Bytes read and written by each lane over time, and its time in calls."""

    def __init__(self, grid: TimeGrid, lanes: int) -> None:
        self.read, self.written = PointSums(grid, lanes), PointSums(grid, lanes)
        self.time = Presence(grid, lanes)

    def plain(self) -> dict[str, Any]:
        """The numbers of each lane, as JSON has them."""
        return {name: values.tolist() for name, values in self._values().items()}

    def total(self) -> dict[str, Any]:
        """The numbers of all lanes together."""
        return {name: values.sum(axis=0).tolist() for name, values in self._values().items()}

    def _values(self) -> dict[str, NDArray[np.int64]]:
        return {"read": self.read.sums, "written": self.written.sums, "time_ns": self.time.time_ns}


def latency_bin(durations_ns: NDArray[np.int64]) -> NDArray[np.int64]:
    """Bin of each latency. A power of two has four bins, read off the double's bits; bin 0 is below 1 ns."""
    bits = np.maximum(durations_ns, 0).astype(np.float64).view(np.int64)
    bins: NDArray[np.int64] = ((bits >> 50) - (1023 * STEPS) + 1).clip(0, _LATENCY_BINS - 1)
    return bins


def latency_edges_ns() -> list[float]:
    """Lower edge of each bin of latency."""
    steps = np.arange(_LATENCY_BINS - 1)
    return [0.0, *((1 + steps % STEPS / STEPS) * 2.0 ** (steps // STEPS)).tolist()]


class Pictures:
    """All that is drawn. The constructor gathers the numbers; :meth:`plain` hands them out."""

    def __init__(self, sums: TraceSums, lanes: ChosenLanes) -> None:
        trace, owners, requests = sums.trace, sums.owners, sums.requests
        meta = trace.metadata
        self._context = sums.context
        self._owners, self._lanes = owners, lanes
        self._stop_ns = max(meta["stop_ns"], meta["start_ns"] + 1)
        self._heat = time_grid(meta["start_ns"], self._stop_ns, HEAT_BINS)
        self._fine = time_grid(meta["start_ns"], self._stop_ns, TIMELINE_BINS)
        self._way = np.array([CallClass.of_kind(CallKind[call["kind"].upper()]) for call in meta["calls"]], np.int64)
        """For each call, what it does with bytes, whatever answers it: the class that it has on storage."""
        self._opcode_class = np.full(256, CallClass.OTHER, np.int64)
        for opcode in meta.get("opcodes", ()):
            self._opcode_class[opcode["number"]] = CallClass.of_kind(CallKind[opcode["kind"].upper()])
        self._devices = requests.devices
        self._last_ns = _last_moments(trace, self._stop_ns)
        self._whole = trace.completeness.proven and not trace.completeness.lost
        self._make(self._heat, self._fine)
        for batch in read_ahead(trace.batches("operations", OPERATION_COLUMNS)):
            self._add_operations(batch)
        for batch in read_ahead(trace.batches("ring_requests", _RING_REQUESTS)):
            self._add_ring_requests(batch)
        for batch in read_ahead(trace.batches("requests", _REQUESTS)):
            self._add_requests(batch)

    def _make(self, heat: TimeGrid, fine: TimeGrid) -> None:
        lanes, nr = self._lanes, len(CLASSES)
        self.processes, self.files = _Activity(heat, len(lanes.processes)), _Activity(heat, len(lanes.files))
        self.busy = Presence(fine, len(lanes.threads) * nr)
        self.slices = Smallest(len(lanes.threads) * nr, MAX_SLICES)
        self.latency = PointSums(heat, (nr + 2 * len(lanes.devices)) * _LATENCY_BINS)
        self.file_points = Smallest(len(lanes.files), MAX_POINTS)
        self.device_points = Smallest(len(lanes.devices), MAX_POINTS)
        self.device_bytes = PointSums(heat, len(lanes.devices) * 2)
        self.queued, self.served = (Presence(heat, len(lanes.devices)) for _ in range(2))
        self.served_fine = Presence(fine, len(lanes.devices))
        self.rings = Presence(heat, len(lanes.rings))

    def _add_operations(self, rows: Columns) -> None:
        begin, ended = rows["begin_time_ns"], rows["end_time_ns"] != UNKNOWN_I64
        last = self._last_ns[np.minimum(rows["task"], len(self._last_ns) - 1)]
        end = np.maximum(np.where(ended, rows["end_time_ns"], last), begin)
        rows = self._context.derive(rows)
        process, files = self._lanes.processes.of(rows["process"]), self._lanes.files.of(rows["group"])
        self._add_moved(rows, end, self._way[rows["call"]], (process, files))
        self.processes.time.add(process, begin, end)
        self.files.time.add(files, begin, end)
        thread = self._lanes.threads.of(rows["task"]) * len(CLASSES) + rows["class"]
        self.busy.add(thread, begin, end)
        facts = {name: rows[name] for name in ("id", "call", "begin_time_ns", "bytes_result", "error", "group")}
        duration = end - begin
        longest = np.uint64(2**63) - duration.astype(np.uint64)
        self.slices.add(thread, longest, {**facts, "end_time_ns": end})
        self._add_latency(rows["class"][ended], end[ended], duration[ended])

    def _add_moved(
        self,
        rows: Columns,
        end: NDArray[np.int64],
        which: NDArray[np.int64],
        lanes: tuple[NDArray[np.int64], NDArray[np.int64]],
    ) -> None:
        """Add bytes, and the offsets of accesses. ``lanes``: each row's process, and the file (that a copy reads)."""
        process, file = lanes
        moved = np.maximum(rows["bytes_result"], 0)  # the unknown is less than 0
        written, copies = file, which == CallClass.COPY
        if copies.any():
            written = np.where(copies, self._lanes.files.of(self._owners.groups(rows["handle2"])), file)
        for name, does, lane in (("read", _READS, file), ("written", _WRITES, written)):
            amounts = moved * does[which]
            getattr(self.processes, name).add(process, end, amounts)
            getattr(self.files, name).add(lane, end, amounts)
        known = np.flatnonzero(
            (rows["offset_bytes"] != UNKNOWN_I64)
            & (moved * (_READS | _WRITES)[which] > 0)
            & (file < self._lanes.files.others)
        )
        points = {
            "time_ns": end[known],
            "offset_bytes": rows["offset_bytes"][known],
            "bytes": moved[known],
            "write": which[known] == CallClass.WRITE,
        }
        self.file_points.add(file[known], scatter_keys(rows["id"][known]), points)

    def _add_latency(self, lane: NDArray[np.int64], end: NDArray[np.int64], duration: NDArray[np.int64]) -> None:
        self.latency.add(lane * _LATENCY_BINS + latency_bin(duration), end, np.ones(len(end), np.int64))

    def _add_ring_requests(self, rows: Columns) -> None:
        submit, complete = rows["submit_time_ns"], rows["complete_time_ns"]
        begin = np.where(submit != UNKNOWN_I64, submit, self._heat.start_ns)
        end = np.maximum(np.where(complete != UNKNOWN_I64, complete, self._stop_ns), begin)
        self.rings.add(self._lanes.rings.of(rows["ring"]), begin, end)
        which = self._opcode_class[rows["opcode"].astype(np.int64) & 0xFF]
        process = self._lanes.processes.of(self._owners.processes(rows["task"]))
        self._add_moved(rows, end, which, (process, self._lanes.files.of(self._owners.groups(rows["handle"]))))

    def _add_requests(self, rows: Columns) -> None:
        lane = self._lanes.devices.of(np.searchsorted(self._devices, rows["device"]))
        insert, issue, complete = (rows[f"{name}_time_ns"] for name in ("insert", "issue", "complete"))
        alive = rows["status"] != _MERGED  # a merged request goes on as part of the other
        done = latest_end(rows)
        if not self._whole:
            alive &= done != UNKNOWN_I64  # the completion may be lost, so the time in the device is unknown
        done = np.where(done != UNKNOWN_I64, done, self._stop_ns)
        served = (issue != UNKNOWN_I64) & alive
        queued = (insert != UNKNOWN_I64) & alive
        left = np.where(issue != UNKNOWN_I64, issue, done)
        self.queued.add(lane[queued], insert[queued], left[queued])
        self.served.add(lane[served], issue[served], done[served])
        self.served_fine.add(lane[served], issue[served], done[served])
        self._add_request_latency(lane, (queued & (issue != UNKNOWN_I64), insert, issue), 0)
        self._add_request_latency(lane, (served & (complete != UNKNOWN_I64), issue, complete), 1)
        moved = rows["bytes_result"] * (rows["bytes_result"] != UNKNOWN_I64)
        some = (moved > 0) & alive & (rows["operation"] < _READ_OR_WRITE)
        is_write = rows["operation"].astype(np.int64)
        self.device_bytes.add(lane[some] * 2 + is_write[some], done[some], moved[some])
        points = {
            "time_ns": done[some],
            "offset_bytes": rows["sector"][some].astype(np.int64) * SECTOR_BYTES,
            "bytes": moved[some],
            "write": is_write[some] == 1,
        }
        self.device_points.add(lane[some], scatter_keys(rows["id"][some]), points)

    def _add_request_latency(
        self, lane: NDArray[np.int64], phase: tuple[NDArray[np.bool_], NDArray[np.int64], NDArray[np.int64]], part: int
    ) -> None:
        which, begin, end = phase
        row = len(CLASSES) + 2 * lane[which] + part
        self._add_latency(row, end[which], end[which] - begin[which])

    def plain(self, calls: Sequence[str], groups: Mapping[int, str]) -> dict[str, Any]:
        """The numbers as JSON has them; times are ns since the trace's start.

        Args:
            calls: Names of the calls by number.
            groups: Names of the file groups that the slices name (:meth:`slice_groups`).
        """
        lanes = self._lanes
        return {
            "heat": {"bin_ns": self._heat.bin_ns, "bins": self._heat.bins},
            "fine": {"bin_ns": self._fine.bin_ns, "bins": self._fine.bins},
            "classes": list(CLASSES),
            "hues": list(HUES),
            "processes": {"names": lanes.processes.names, **self.processes.plain()},
            "files": {"names": lanes.files.names, **self.files.plain()},
            "all": self.processes.total(),
            "threads": {"names": lanes.threads.names, "busy": self._busy()},
            "slices": self._slices(calls, groups),
            "latency": self._latencies(),
            "devices": self._device_pictures(),
            "file_points": self._points(self.file_points, lanes.files.names),
            "device_points": self._points(self.device_points, lanes.devices.names),
            "rings": {"names": lanes.rings.names, "in_flight": _rounded(self.rings.mean)},
        }

    def slice_groups(self) -> set[int]:
        """File groups of the operations that are drawn one by one."""
        rows = self.slices.rows()
        return set(rows["group"].tolist()) if rows else set()

    def _busy(self) -> list[dict[str, Any]]:
        """Share of the time by thread and class, bin by bin, as [first bin, shares], without empty bins at the ends."""
        mean = self.busy.mean.reshape(len(self._lanes.threads), len(CLASSES), -1)
        rows = []
        for thread, which in np.argwhere(mean.any(axis=2)).tolist():
            used = np.flatnonzero(mean[thread, which])
            first, last = int(used[0]), int(used[-1])
            share = _rounded(mean[thread, which, first : last + 1])
            rows.append({"thread": thread, "class": which, "first": first, "share": share})
        return rows

    def _slices(self, calls: Sequence[str], groups: Mapping[int, str]) -> dict[str, Any]:
        rows = self.slices.rows()
        if not rows:
            return {"thread": []}
        names = sorted(set(groups.values()))
        number = {name: index for index, name in enumerate(names)}
        moved = [None if value == UNKNOWN_I64 else value for value in rows["bytes_result"].tolist()]
        return {
            "thread": (rows["lane"] // len(CLASSES)).tolist(),
            "class": (rows["lane"] % len(CLASSES)).tolist(),
            "id": rows["id"].tolist(),
            "begin_ns": (rows["begin_time_ns"] - self._heat.start_ns).tolist(),
            "duration_ns": (rows["end_time_ns"] - rows["begin_time_ns"]).tolist(),
            "call": [calls[call] for call in rows["call"].tolist()],
            "bytes": moved,
            "error": rows["error"].tolist(),
            "file": [number[groups[group]] for group in rows["group"].tolist()],
            "files": names,
        }

    def _latencies(self) -> dict[str, Any]:
        """Counts by bin of latency and of time, by class and by device and phase, from least to most."""
        names = [*CLASSES]
        for device in self._lanes.devices.names:
            names += [f"{device}: queue", f"{device}: device"]
        counts = self.latency.sums.reshape(len(names), _LATENCY_BINS, -1)
        used = np.flatnonzero(counts.any(axis=(0, 2)))
        low, high = (int(used[0]), int(used[-1]) + 1) if len(used) else (0, 0)
        rows = [
            {"name": name, "counts": counts[row, low:high].tolist()}
            for row, name in enumerate(names)
            if counts[row].any()
        ]
        return {"edges_ns": [*latency_edges_ns(), 2.0**48][low : high + 1], "rows": rows}

    def _device_pictures(self) -> dict[str, Any]:
        moved = self.device_bytes.sums.reshape(len(self._lanes.devices), 2, -1)
        return {
            "names": self._lanes.devices.names,
            "read": moved[:, 0].tolist(),
            "written": moved[:, 1].tolist(),
            "queued": _rounded(self.queued.mean),
            "served": _rounded(self.served.mean),
            "busy": _rounded(self.served_fine.mean),
        }

    def _points(self, chosen: Smallest, names: Sequence[str]) -> list[dict[str, Any]]:
        rows = chosen.rows()
        pictures = []
        for lane in np.flatnonzero(chosen.seen).tolist():
            which = np.flatnonzero(rows["lane"] == lane)
            which = which[np.argsort(rows["time_ns"][which], kind="stable")]
            pictures.append(
                {
                    "name": names[lane],
                    "of": int(chosen.seen[lane]),
                    "time_ns": (rows["time_ns"][which] - self._heat.start_ns).tolist(),
                    "offset_bytes": rows["offset_bytes"][which].tolist(),
                    "bytes": rows["bytes"][which].tolist(),
                    "write": rows["write"][which].astype(int).tolist(),
                }
            )
        return pictures


def _last_moments(trace: Trace, stop_ns: int) -> NDArray[np.int64]:
    """When each task ended, or else the trace. A call that was never left, such as exit(2), lasts until then."""
    parts = list(trace.batches("threads", ["task", "exit_time_ns"]))
    nr_tasks = max((int(part["task"].max(initial=0)) for part in parts), default=0) + 1
    last: NDArray[np.int64] = np.full(nr_tasks + 1, stop_ns, np.int64)
    for part in parts:
        last[part["task"]] = np.where(part["exit_time_ns"] == UNKNOWN_I64, stop_ns, part["exit_time_ns"])
    return np.minimum(last, np.int64(stop_ns))


def _rounded(values: NDArray[np.float64]) -> Any:
    """Round to three decimals: pictures show no more, and the file stays small."""
    return values.round(3).tolist()
