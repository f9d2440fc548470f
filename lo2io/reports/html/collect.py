"""The numbers behind the pictures, gathered in one more pass over the operations and the requests of rings and devices.

In: a trace and its sums. Out: :class:`Pictures`, plain lists ready for JSON. Bytes count at the time when a call ends;
time is spread over the bins in which it passes. Points are either complete, or a fair sample that says how many rows it
stands for. Memory does not grow with the trace.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from lo2io.model import UNKNOWN_I64
from lo2io.native._lib import ffi, lib
from lo2io.native.columns import allocate_rows, pointer_to
from lo2io.reports.html.grid import PointSums, Presence, Smallest, Taken, TimeGrid, scatter_keys, time_grid
from lo2io.reports.html.lanes import CLASSES, HUES, Lanes
from lo2io.reports.summary.adding import native_rows
from lo2io.reports.summary.tally import OPERATION_COLUMNS, read_ahead
from lo2io.trace.columns import latest_end
from lo2io.units import SECTOR_BYTES

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from lo2io.model import Columns
    from lo2io.reports.summary.owners import Owners
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
"""Bins of latency per power of two, as the native part has them."""
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

    def native(self) -> dict[str, Any]:
        """A ``lo2_activity_grid`` over the same sums."""
        read, written = (pointer_to(each.sums, "int64_t") for each in (self.read, self.written))
        return {"read": read, "written": written, "time": self.time.edges}

    def plain(self) -> dict[str, Any]:
        """The numbers of each lane, as JSON has them."""
        return {name: values.tolist() for name, values in self._values().items()}

    def total(self) -> dict[str, Any]:
        """The numbers of all lanes together."""
        return {name: values.sum(axis=0).tolist() for name, values in self._values().items()}

    def _values(self) -> dict[str, NDArray[np.int64]]:
        return {"read": self.read.sums, "written": self.written.sums, "time_ns": self.time.time_ns}


def latency_bin(durations_ns: NDArray[np.int64]) -> NDArray[np.int64]:
    """Bin of each latency. A power of two has four bins; bin 0 is below 1 ns."""
    durations_ns = np.ascontiguousarray(durations_ns, np.int64)
    bins = np.empty(len(durations_ns), np.int64)
    lib.lo2_latency_bins(len(bins), *(pointer_to(values, "int64_t") for values in (durations_ns, bins)))
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
        kinds = {opcode["number"]: opcode["kind"] for opcode in meta.get("opcodes", ())}
        self._reads, self._writes = (
            np.array([kinds.get(number) in {kind, "copy"} for number in range(256)]) for kind in ("read", "write")
        )
        """By opcode."""
        self._only_writes = np.array([call["kind"] == "write" for call in meta["calls"]], np.bool_)
        """By call."""
        self._devices = requests.devices
        self._whole = trace.completeness.proven and not trace.completeness.lost
        self._make(self._heat, self._fine)
        self._tasks = _task_lanes(trace, owners, lanes, self._stop_ns)
        self._file_lanes = lanes.files.of(np.arange(owners.nr_groups))
        self._native = self._as_native()
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

    def _as_native(self) -> Any:
        """A ``lo2_pictures *``, which points to the arrays of this object."""
        native = ffi.new("lo2_pictures *")
        native.context, native.tasks = self._context.native, pointer_to(self._tasks, "lo2_task_lanes")
        native.file_lane, native.other_files = pointer_to(self._file_lanes, "int64_t"), self._lanes.files.others
        native.heat, native.fine = self._heat.native(0)[0], self._fine.native(0)[0]
        native.processes, native.files = self.processes.native(), self.files.native()
        native.busy, native.latency = self.busy.edges, pointer_to(self.latency.sums, "int64_t")
        native.slices, native.points = self.slices.native(), self.file_points.native()
        return native

    def _add_operations(self, rows: Columns) -> None:
        native, kept = native_rows(rows)
        slices, points = Taken(native.nr), Taken(native.nr)
        lib.lo2_pictures_add_calls(self._native, native, slices.native, points.native)
        del kept
        ends = self._ends(rows, slices.rows)
        names = ("id", "call", "begin_time_ns", "bytes_result", "error")
        facts = {name: rows[name][slices.rows] for name in names}
        groups = self._owners.groups(rows["handle"][slices.rows])
        self.slices.keep(slices, {**facts, "group": groups, "end_time_ns": ends})
        self._keep_points(rows, points, self._ends(rows, points.rows), self._only_writes[rows["call"][points.rows]])

    def _ends(self, rows: Columns, which: NDArray[np.int64]) -> NDArray[np.int64]:
        """The ends of some calls, as the native part has them."""
        begin, end = rows["begin_time_ns"][which], rows["end_time_ns"][which]
        task = np.minimum(rows["task"][which], len(self._tasks) - 1)
        return np.maximum(np.where(end != UNKNOWN_I64, end, self._tasks["last_ns"][task]), begin)

    def _keep_points(self, rows: Columns, points: Taken, end: NDArray[np.int64], write: NDArray[np.bool_]) -> None:
        facts = {
            "time_ns": end,
            "offset_bytes": rows["offset_bytes"][points.rows],
            "bytes": rows["bytes_result"][points.rows],
            "write": write,
        }
        self.file_points.keep(points, facts)

    def _add_latency(self, lane: NDArray[np.int64], end: NDArray[np.int64], duration: NDArray[np.int64]) -> None:
        self.latency.add(lane * _LATENCY_BINS + latency_bin(duration), end, np.ones(len(end), np.int64))

    def _add_ring_requests(self, rows: Columns) -> None:
        submit, complete = rows["submit_time_ns"], rows["complete_time_ns"]
        begin = np.where(submit != UNKNOWN_I64, submit, self._heat.start_ns)
        end = np.maximum(np.where(complete != UNKNOWN_I64, complete, self._stop_ns), begin)
        self.rings.add(self._lanes.rings.of(rows["ring"]), begin, end)
        opcode = rows["opcode"].astype(np.int64) & 0xFF
        moved = {**rows, "end_time_ns": end, "reads": self._reads[opcode], "writes": self._writes[opcode]}
        native, kept = native_rows(moved, "lo2_moved_rows")
        points = Taken(native.nr)
        lib.lo2_pictures_add_moved(self._native, native, points.native)
        del kept
        which = opcode[points.rows]
        self._keep_points(rows, points, end[points.rows], self._writes[which] & ~self._reads[which])

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


def _task_lanes(trace: Trace, owners: Owners, lanes: ChosenLanes, stop_ns: int) -> NDArray[Any]:
    """For each task its lanes, and when it ended, or else the trace; the last one stands for unknown tasks.

    A call that was never left, such as exit(2), lasts until then.
    """
    tasks = allocate_rows("lo2_task_lanes", owners.nr_tasks + 1)
    numbers = np.arange(len(tasks), dtype=np.uint32)
    tasks["process"] = lanes.processes.of(owners.processes(numbers))
    tasks["thread"] = lanes.threads.of(numbers)
    tasks["last_ns"] = stop_ns
    for part in trace.batches("threads", ["task", "exit_time_ns"]):
        ended = part["exit_time_ns"]
        tasks["last_ns"][part["task"]] = np.where(ended == UNKNOWN_I64, stop_ns, np.minimum(ended, stop_ns))
    return tasks


def _rounded(values: NDArray[np.float64]) -> Any:
    """Round to three decimals: pictures show no more, and the file stays small."""
    return values.round(3).tolist()
