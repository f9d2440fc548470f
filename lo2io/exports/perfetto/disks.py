"""Block requests as slices of their disks, and counters of each disk: depth of queues, bandwidth."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Final

import numpy as np

from lo2io.exports.perfetto.packets import INSTANT, OPEN, Slices
from lo2io.exports.perfetto.scene import earliest, flow, instants
from lo2io.model import UNKNOWN_I64, UNKNOWN_U32
from lo2io.trace.columns import REQUEST_OPERATION, latest_end
from lo2io.units import NS_PER_S

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from lo2io.exports.perfetto.scene import Scene
    from lo2io.model import Columns

    Times = NDArray[np.int64]

_NOTES: Final = (
    *("id", "tid", "sector", "bytes_request", "bytes_issued", "bytes_result", "error", "status", "flags"),
    *("nr_requeues", "nr_merges", "nr_completions", "ring_request", "end_earliest_ns", "end_latest_ns"),
)
_COLUMNS: Final = (*_NOTES, "device", "task", "operation", "insert_time_ns", "issue_time_ns", "complete_time_ns")
_IN_FLIGHT, _MERGED, _END_UNKNOWN = 1, 2, 4
_READ, _WRITE = 0, 1
_AT_A_TIME: Final = 1 << 21
"""The number of rows that are sorted at a time."""
_INTERVALS: Final = 2000
"""The most intervals for which a bandwidth is drawn."""
_SHORTEST_NS: Final = 100_000


def draw_disks(scene: Scene, wanted: NDArray[np.uint64]) -> dict[int, int]:
    """Write block requests, and the counters of each disk. Return the track of each of the wanted requests.

    Raises:
        TraceError: A table cannot be read.
    """
    names = scene.writer.names(REQUEST_OPERATION)
    phases = scene.writer.names(("queue", "device"))
    bandwidth = _Bandwidth(scene)
    marks: list[int] = []
    tracks: dict[int, int] = {}
    seen = 0
    for batch in scene.batches("requests", _COLUMNS):
        placed = _draw_requests(scene, batch, names, phases)
        chosen = np.isin(batch["id"], wanted)
        tracks |= zip(batch["id"][chosen].tolist(), placed[chosen].tolist(), strict=True)
        bandwidth.add(batch)
        seen += len(batch["id"])
        if seen >= _AT_A_TIME * (len(marks) + 1):
            marks.append(int(_times(batch)[2].max()))
    bandwidth.write()
    _draw_depths(scene, marks)
    return tracks


def _times(batch: Columns) -> tuple[Times, Times, Times]:
    """The times at which requests were queued, were issued and ended. ``OPEN``: it did not happen, or is not known."""
    queued, issued, end = batch["insert_time_ns"], batch["issue_time_ns"], latest_end(batch)
    end = np.where(end == UNKNOWN_I64, OPEN, np.maximum(end, np.maximum(queued, issued)))
    return queued, issued, end


def _draw_requests(
    scene: Scene, batch: Columns, names: NDArray[np.uint32], phases: NDArray[np.uint32]
) -> NDArray[np.uint64]:
    """Draw requests and their phases. Return the track of each; 0: it is not drawn."""
    queued, issued, end = _times(batch)
    begin = earliest(queued, issued, end)
    # A merged request is a moment: its end is not known. So is a request that ended unseen.
    end = np.where(end == OPEN, np.where(batch["status"] == _IN_FLIGHT, OPEN, INSTANT), end)
    drawn = begin != OPEN
    scene.rows += int(drawn.sum())
    scene.undrawn += int((~drawn).sum())
    track, ids = np.zeros(len(begin), np.uint64), batch["id"]
    for device in np.unique(batch["device"]).tolist():
        mine = (batch["device"] == device) & drawn
        track[mine] = scene.tracks.lanes(scene.tracks.disk(device), begin[mine], end[mine])
    label = names[batch["operation"]]
    _draw_submissions(scene, batch, label, begin)
    cause = batch["ring_request"]
    flows = [flow(ids, 0, drawn), flow(cause, 0, cause != 0)]
    notes = scene.notes("requests", batch, _NOTES)
    scene.writer.slices(Slices("block request", label, track, begin, end, notes, flows).rows(drawn))
    for phase, start, then in ((0, queued, issued), (1, issued, end)):
        until = np.where(then == OPEN, end, then)
        shown = (start != OPEN) & (until != INSTANT) & ((until == OPEN) | (until > start))
        name = np.full(len(begin), phases[phase], np.uint32)
        scene.writer.slices(Slices("phase", name, track, start, until).rows(shown))
    return track


def _draw_submissions(scene: Scene, batch: Columns, label: NDArray[np.uint32], begin: Times) -> None:
    """Draw submissions as moments in the tracks of the submitting threads."""
    tasks = batch["task"]
    there = (tasks != UNKNOWN_U32) & (begin != OPEN)
    if not there.any():
        return
    track = np.zeros(len(tasks), np.uint64)
    track[there] = scene.tracks.threads(tasks[there])
    notes = scene.notes("requests", batch, ("id",))
    slices = Slices("submit", label, track, begin, instants(len(tasks)), notes, [flow(batch["id"], 0, there)])
    scene.writer.slices(slices.rows(there))


def _draw_depths(scene: Scene, marks: list[int]) -> None:
    """Draw the number of queued requests and the number at the disk, at each change.

    The changes are sorted for one part of the trace at a time. Between two marks lie about as many rows as memory
    allows.
    """
    depths: dict[tuple[int, str], int] = {}
    borders = [OPEN, *sorted(set(marks)), np.iinfo(np.int64).max]
    for first, behind in pairwise(borders):
        found: dict[tuple[int, str], list[tuple[Times, Times]]] = {}
        columns = ("device", "status", "insert_time_ns", "issue_time_ns", "complete_time_ns", "end_latest_ns")
        for batch in scene.trace.batches("requests", columns):
            for device, name, times, change in _changes(batch):
                inside = (times > first) & (times <= behind)
                if inside.any():
                    chosen = times[inside]
                    found.setdefault((device, name), []).append((chosen, np.full(len(chosen), change)))
        for key, parts in found.items():
            depths[key] = _write_depth(scene, key, parts, depths.get(key, 0))


def _changes(batch: Columns) -> Iterator[tuple[int, str, Times, int]]:
    """Device, counter, times of the counter's changes, and the change."""
    queued, issued, end = _times(batch)
    counts = ~np.isin(batch["status"], (_MERGED, _END_UNKNOWN))
    for device in np.unique(batch["device"]).tolist():
        mine = (batch["device"] == device) & counts
        waited = mine & (queued != OPEN)
        left = np.where(issued != OPEN, issued, end)
        served = mine & (issued != OPEN)
        for name, times, change in (
            ("queued", queued[waited], 1),
            ("queued", left[waited], -1),
            ("in flight", issued[served], 1),
            ("in flight", end[served], -1),
        ):
            yield device, name, times[times != OPEN], change


def _write_depth(scene: Scene, key: tuple[int, str], parts: list[tuple[Times, Times]], depth: int) -> int:
    """Write the depth at each time of change; return the last depth."""
    times, changes = (np.concatenate(column) for column in zip(*parts, strict=True))
    order = np.argsort(times, kind="stable")
    times, depths = times[order], depth + np.cumsum(changes[order])
    last = np.append(times[1:] != times[:-1], True)
    device, name = key
    counter = scene.tracks.counter(scene.tracks.disk(device), name)
    scene.writer.counters(np.full(int(last.sum()), counter, np.uint64), times[last], depths[last])
    return int(depths[-1])


class _Bandwidth:
    """Bytes that disks read and wrote, in intervals of equal length."""

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self._start = int(scene.trace.metadata["start_ns"])
        self._width = interval_ns(int(scene.trace.metadata["stop_ns"]) - self._start)
        self._bytes: dict[tuple[int, int], dict[int, int]] = {}

    def add(self, batch: Columns) -> None:
        end, moved = batch["complete_time_ns"], batch["bytes_result"]
        done = (end != UNKNOWN_I64) & (moved > 0)
        for device in np.unique(batch["device"][done]).tolist():
            for operation in (_READ, _WRITE):
                mine = done & (batch["device"] == device) & (batch["operation"] == operation)
                places, where = np.unique((end[mine] - self._start) // self._width, return_inverse=True)
                sums = np.zeros(len(places), np.int64)
                np.add.at(sums, where, moved[mine])
                into = self._bytes.setdefault((device, operation), {})
                for place, size in zip(places.tolist(), sums.tolist(), strict=True):
                    into[place] = into.get(place, 0) + size

    def write(self) -> None:
        """Write a value at the start of each interval with bytes, and 0 after the last of adjacent intervals."""
        for (device, operation), sizes in self._bytes.items():
            if not sizes:
                continue
            places = np.array(sorted({*sizes, *(place + 1 for place in sizes)}), np.int64)
            rates = np.array([sizes.get(place, 0) * NS_PER_S // self._width for place in places.tolist()], np.int64)
            name = f"{REQUEST_OPERATION[operation]} bandwidth"
            counter = self._scene.tracks.counter(self._scene.tracks.disk(device), name, "B/s")
            track = np.full(len(places), counter, np.uint64)
            self._scene.writer.counters(track, self._start + places * self._width, rates)


def interval_ns(span_ns: int) -> int:
    """Length of an interval: 1, 2 or 5 times a power of 10, so that rates in B/s are whole numbers.

    The trace has at most ``_INTERVALS`` intervals.
    """
    power, steps = _SHORTEST_NS, (1, 2, 5)
    while True:
        for step in steps:
            if span_ns <= power * step * _INTERVALS:
                return power * step
        power *= 10
