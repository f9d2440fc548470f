"""The numbers behind the pictures, of operations and of the requests of rings and devices.

In: a trace and its sums. Out: :class:`Pictures`, plain lists ready for JSON. Bytes count at the time when a call ends;
time is spread over the bins in which it passes. Points are either complete, or a fair sample that says how many rows it
stands for. Memory does not grow with the trace.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from lo2io.model import UNKNOWN_I64
from lo2io.native._lib import lib
from lo2io.native.columns import pointer_to
from lo2io.reports.html.calls import LATENCY_BINS, MAX_POINTS, CallPictures, busiest, grids, last_ns
from lo2io.reports.html.grid import PointSums, Presence, Smallest, scatter_keys
from lo2io.reports.html.lanes import CLASSES, HUES
from lo2io.reports.summary.tally import OPERATION_COLUMNS, read_ahead
from lo2io.trace.columns import latest_end
from lo2io.units import SECTOR_BYTES

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from lo2io.model import Columns
    from lo2io.reports.html.grid import TimeGrid
    from lo2io.reports.html.lanes import ChosenLanes
    from lo2io.reports.summary.sums import TraceSums

STEPS: Final = 4
"""Bins of latency per power of two, as the native part has them."""
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


def latency_bin(durations_ns: NDArray[np.int64]) -> NDArray[np.int64]:
    """Bin of each latency. A power of two has four bins; bin 0 is below 1 ns."""
    durations_ns = np.ascontiguousarray(durations_ns, np.int64)
    bins = np.empty(len(durations_ns), np.int64)
    lib.lo2_latency_bins(len(bins), *(pointer_to(values, "int64_t") for values in (durations_ns, bins)))
    return bins


def latency_edges_ns() -> list[float]:
    """Lower edge of each bin of latency."""
    steps = np.arange(LATENCY_BINS - 1)
    return [0.0, *((1 + steps % STEPS / STEPS) * 2.0 ** (steps // STEPS)).tolist()]


class Pictures:
    """All that is drawn. The constructor gathers the numbers; :meth:`plain` hands them out.

    Args:
        sums: The trace and its sums.
        lanes: Who gets a lane.
        gathered: The pictures of all calls, with lanes for everyone; None: they take one more pass over the calls.
    """

    def __init__(self, sums: TraceSums, lanes: ChosenLanes, gathered: CallPictures | None = None) -> None:
        trace, owners = sums.trace, sums.owners
        self._lanes = lanes
        self._stop_ns = last_ns(trace)
        self._heat, self._fine = grids(trace)
        kinds = {opcode["number"]: opcode["kind"] for opcode in trace.metadata.get("opcodes", ())}
        self._reads, self._writes = (
            np.array([kinds.get(number) in {kind, "copy"} for number in range(256)]) for kind in ("read", "write")
        )
        """By opcode."""
        self._devices = sums.requests.devices
        self._whole = trace.completeness.proven and not trace.completeness.lost
        self._make(self._heat, self._fine)
        drawn = busiest(owners, lanes)
        if gathered:
            self.calls = gathered.regrouped(drawn)
        else:
            self.calls = CallPictures(trace, owners, sums.context, drawn)
            for batch in read_ahead(trace.batches("operations", OPERATION_COLUMNS)):
                self.calls.add(batch)
        for batch in read_ahead(trace.batches("ring_requests", _RING_REQUESTS)):
            self._add_ring_requests(batch)
        for batch in read_ahead(trace.batches("requests", _REQUESTS)):
            self._add_requests(batch)

    def _make(self, heat: TimeGrid, fine: TimeGrid) -> None:
        devices = len(self._lanes.devices)
        self.latency = PointSums(heat, 2 * devices * LATENCY_BINS)
        self.device_points = Smallest(devices, MAX_POINTS)
        self.device_bytes = PointSums(heat, devices * 2)
        self.queued, self.served = (Presence(heat, devices) for _ in range(2))
        self.served_fine = Presence(fine, devices)
        self.rings = Presence(heat, len(self._lanes.rings))

    def _add_latency(self, lane: NDArray[np.int64], end: NDArray[np.int64], duration: NDArray[np.int64]) -> None:
        self.latency.add(lane * LATENCY_BINS + latency_bin(duration), end, np.ones(len(end), np.int64))

    def _add_ring_requests(self, rows: Columns) -> None:
        submit, complete = rows["submit_time_ns"], rows["complete_time_ns"]
        begin = np.where(submit != UNKNOWN_I64, submit, self._heat.start_ns)
        end = np.maximum(np.where(complete != UNKNOWN_I64, complete, self._stop_ns), begin)
        self.rings.add(self._lanes.rings.of(rows["ring"]), begin, end)
        opcode = rows["opcode"].astype(np.int64) & 0xFF
        flags = {"reads": self._reads[opcode], "writes": self._writes[opcode]}
        self.calls.add_moved({**rows, "end_time_ns": end, **flags})

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
        row = 2 * lane[which] + part
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
            "processes": {"names": lanes.processes.names, **self.calls.processes.plain()},
            "files": {"names": lanes.files.names, **self.calls.files.plain()},
            "all": self.calls.processes.total(),
            "threads": {"names": lanes.threads.names, "busy": self._busy()},
            "slices": self._slices(calls, groups),
            "latency": self._latencies(),
            "devices": self._device_pictures(),
            "file_points": self._points(self.calls.points, lanes.files.names),
            "device_points": self._points(self.device_points, lanes.devices.names),
            "rings": {"names": lanes.rings.names, "in_flight": _rounded(self.rings.mean)},
        }

    def slice_groups(self) -> set[int]:
        """File groups of the operations that are drawn one by one."""
        rows = self.calls.slices.rows()
        return set(rows["group"].tolist()) if rows else set()

    def _busy(self) -> list[dict[str, Any]]:
        """Share of the time by thread and class, bin by bin, without empty bins at the ends; and the first bin."""
        mean = self.calls.busy.mean.reshape(len(self._lanes.threads), len(CLASSES), -1)
        rows = []
        for thread, which in np.argwhere(mean.any(axis=2)).tolist():
            used = np.flatnonzero(mean[thread, which])
            first, last = int(used[0]), int(used[-1])
            share = _rounded(mean[thread, which, first : last + 1])
            rows.append({"thread": thread, "class": which, "first": first, "share": share})
        return rows

    def _slices(self, calls: Sequence[str], groups: Mapping[int, str]) -> dict[str, Any]:
        rows = self.calls.slices.rows()
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
        counts = np.concatenate([self.calls.latency.sums, self.latency.sums]).reshape(len(names), LATENCY_BINS, -1)
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


def _rounded(values: NDArray[np.float64]) -> Any:
    """Round to three decimals: pictures show no more, and the file stays small."""
    return values.round(3).tolist()
