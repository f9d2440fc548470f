"""io_uring: each request as a slice of its ring, with phases and its way through threads and workers; rings' counters.

A phase lasts from one known point of a request to the next, and is named after the first of the two. If a request was
executed once and has no other points, the end of the execution is known, too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from lo2io.exports.perfetto.packets import OPEN, Note, Slices
from lo2io.exports.perfetto.scene import (
    ENDED_BY,
    LINKED,
    WOKEN,
    at_threads,
    earliest,
    flow,
    instants,
    last_of_threads,
    latest,
)
from lo2io.model import UNKNOWN_I64, UNKNOWN_U32
from lo2io.native._lib import lib

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from lo2io.exports.perfetto.scene import Scene
    from lo2io.model import Columns

    Times = NDArray[np.int64]
    Flags = NDArray[np.bool_]

_POINTS: Final = {
    "submit_time_ns": "queued",
    "issue_time_ns": "issued",
    "punt_time_ns": "punted",
    "poll_arm_time_ns": "polling",
    "wake_time_ns": "woken",
    "work_begin_time_ns": "working",
    "work_end_time_ns": "worked",
}
"""Column of a point in a request's life → phase from this point on. The order holds for points of equal time."""
_EXECUTING, _WAITING = "executing", "waiting"
_NOTES: Final = (
    *("id", "user_data", "status", "path", "sqe_flags", "traits", "inferred", "fd", "offset_bytes", "bytes_request"),
    *("bytes_result", "result", "error", "cqe_flags", "nr_completions", "nr_polls", "nr_punts", "op_flags"),
    *("file_index", "buffer_index", "queued_ns", "executing_ns", "waiting_ns", "notify_time_ns"),
    *("previous", "culprit", "worker", "waker_tid"),
)
_COLUMNS: Final = (*_NOTES, *_POINTS, "complete_time_ns", "ring", "task", "opcode", "handle", "handle2", "waker")
_WORKS: Final = ("id", "ring", "task", "opcode", "inferred", "queue_time_ns", "begin_time_ns", "end_time_ns")
_COUNTERS: Final = {
    "in_flight": "in flight",
    "punted": "with workers",
    "workers": "workers",
    "cq_least": "completions to collect, at least",
    "cq_most": "completions to collect, at most",
}
_IN_FLIGHT: Final = 1
_LINK_FLAGS: Final = 1 << 2 | 1 << 3
"""IOSQE_IO_LINK and IOSQE_IO_HARDLINK (include/uapi/linux/io_uring.h)."""


def draw_rings(scene: Scene) -> None:
    """Write requests of rings, executions by workers, and rings' counters.

    Raises:
        TraceError: A table cannot be read.
    """
    names = opcode_names(scene)
    for batch in scene.batches("ring_requests", _COLUMNS):
        _draw_requests(scene, batch, names)
    _draw_works(scene, names)
    _draw_states(scene)


def opcode_names(scene: Scene) -> NDArray[np.uint32]:
    """Names of slices by opcode."""
    known = {opcode["number"]: opcode["name"] for opcode in scene.trace.metadata.get("opcodes", ())}
    last = max(known, default=-1)
    labels = [known.get(code, f"opcode {code}") for code in range(last + 1)]
    named = scene.writer.names(labels)
    return np.concatenate([named, np.full(256 - len(named), scene.writer.name("unknown opcode"), np.uint32)])


def _draw_requests(scene: Scene, batch: Columns, names: NDArray[np.uint32]) -> None:
    ids, complete = batch["id"], batch["complete_time_ns"]
    points = [batch[name] for name in _POINTS]
    begin = earliest(*points, complete)
    end = np.where(complete != UNKNOWN_I64, complete, latest(*points))
    # Without a known end, a request ends at its last known point. A request in flight has no end.
    end = np.where((complete == UNKNOWN_I64) & (batch["status"] == _IN_FLIGHT), OPEN, end)
    drawn = begin != OPEN
    scene.rows += int(drawn.sum())
    scene.undrawn += int((~drawn).sum())
    ring = np.full(len(ids), 0, np.uint64)
    track = np.full(len(ids), 0, np.uint64)
    for number in np.unique(batch["ring"]).tolist():
        mine = (batch["ring"] == number) & drawn
        ring[mine] = scene.tracks.ring(number)
        track[mine] = scene.tracks.lanes(scene.tracks.ring(number), begin[mine], end[mine])
    label = names[batch["opcode"].astype(np.int64)]
    _draw_submissions(scene, batch, label)
    notes = [*scene.notes("ring_requests", batch, _NOTES), *scene.file_notes(batch)]
    linked = (batch["sqe_flags"].astype(np.int64) & _LINK_FLAGS) != 0
    flows = [flow(ids, 0, drawn), flow(ids, LINKED, linked), flow(batch["previous"], LINKED, batch["previous"] != 0)]
    scene.writer.slices(Slices("ring request", label, track, begin, end, notes, flows).rows(drawn))
    _draw_phases(scene, batch, track, end, drawn)
    _draw_completions(scene, batch, label, ring, linked)


def _draw_submissions(scene: Scene, batch: Columns, label: NDArray[np.uint32]) -> None:
    """Draw submissions and wake-ups as moments in the tracks of the threads that did them."""
    notes = scene.notes("ring_requests", batch, ("id",))
    for category, tasks, time, kind in (
        ("submit", batch["task"], batch["submit_time_ns"], 0),
        ("wake", batch["waker"], batch["wake_time_ns"], WOKEN),
    ):
        there = (time != UNKNOWN_I64) & (tasks != UNKNOWN_U32)
        if not there.any():
            continue
        track = np.zeros(len(time), np.uint64)
        track[there] = scene.tracks.threads(tasks[there])
        flows = [flow(batch["id"], kind, there)]
        scene.writer.slices(Slices(category, label, track, time, instants(len(time)), notes, flows).rows(there))


def _draw_phases(scene: Scene, batch: Columns, track: NDArray[np.uint64], end: Times, drawn: Flags) -> None:
    """Draw phases as slices within the requests' slices."""
    phases = (*_POINTS.values(), _EXECUTING, _WAITING)
    names = scene.writer.names(phases)
    once = _executed_once(batch)
    executed = np.where(once, batch["issue_time_ns"] + np.where(once, batch["executing_ns"], 0), OPEN)
    times = np.stack([*(batch[name] for name in _POINTS), np.full(len(end), OPEN), executed], axis=1)
    issued = phases.index("issued")
    times[once, phases.index(_EXECUTING)] = times[once, issued]
    times[once, issued] = OPEN
    limit = np.where(end == OPEN, np.iinfo(np.int64).max, end)
    times[(times == OPEN) | (times >= limit[:, None]) | ~drawn[:, None]] = np.iinfo(np.int64).max
    order = np.argsort(times, axis=1, kind="stable")
    times = np.take_along_axis(times, order, axis=1)
    for rank in range(len(phases)):
        begin = times[:, rank]
        then = times[:, rank + 1] if rank + 1 < len(phases) else np.full(len(end), np.iinfo(np.int64).max)
        until = np.where(then == np.iinfo(np.int64).max, end, then)
        shown = (begin != np.iinfo(np.int64).max) & (until != begin)
        if not shown.any():
            continue
        name = names[order[:, rank]]
        woken = shown & (order[:, rank] == phases.index("woken")) & (batch["waker"] != UNKNOWN_U32)
        flows = [flow(batch["id"], WOKEN, woken)]
        scene.writer.slices(Slices("phase", name, track, begin, until, [], flows).rows(shown))


def _executed_once(batch: Columns) -> Flags:
    """True for requests that have no point but their issue. Their executing time follows the issue."""
    later = ("punt_time_ns", "poll_arm_time_ns", "wake_time_ns", "work_begin_time_ns", "work_end_time_ns")
    alone = np.logical_and.reduce([batch[name] == UNKNOWN_I64 for name in later])
    once: Flags = alone & (batch["issue_time_ns"] != UNKNOWN_I64) & (batch["executing_ns"] != UNKNOWN_I64)
    return once


def _draw_completions(
    scene: Scene, batch: Columns, label: NDArray[np.uint32], ring: NDArray[np.uint64], linked: Flags
) -> None:
    """Draw completions as moments in a track of the ring. A failure has flows to the requests that it ended."""
    time, ids = batch["complete_time_ns"], batch["id"]
    there = time != UNKNOWN_I64
    track = np.zeros(len(ids), np.uint64)
    for uuid in np.unique(ring[there]).tolist():
        track[ring == uuid] = scene.tracks.child(uuid, "completions")
    failed = linked & ((batch["error"] != 0) | ((batch["traits"].astype(np.int64) & lib.LO2_TRAIT_SHORT) != 0))
    flows = [flow(ids, ENDED_BY, failed), flow(batch["culprit"], ENDED_BY, batch["culprit"] != 0)]
    notes = scene.notes("ring_requests", batch, ("id", "result", "error"))
    slices = Slices("completion", label, track, time, instants(len(ids)), notes, flows, flow(ids, 0, there))
    scene.writer.slices(slices.rows(there))


def _draw_works(scene: Scene, names: NDArray[np.uint32]) -> None:
    last = np.full(1, OPEN)
    for batch in scene.batches("ring_works", ("task", "begin_time_ns")):
        last = last_of_threads(batch["task"], batch["begin_time_ns"], last)
    for batch in scene.batches("ring_works", _WORKS):
        tasks, begin, end = (batch[name] for name in ("task", "begin_time_ns", "end_time_ns"))
        drawn = (begin != UNKNOWN_I64) & (tasks != UNKNOWN_U32)
        exits = at_threads(tasks, scene.exits)
        goes_on = begin == at_threads(tasks, last)
        end = np.where(end != UNKNOWN_I64, end, np.where(goes_on, np.where(exits >= begin, exits, OPEN), begin))
        track = np.zeros(len(begin), np.uint64)
        track[drawn] = scene.tracks.threads(tasks[drawn])
        notes = scene.notes("ring_works", batch, ("id", "ring", "inferred"))
        known = drawn & (batch["queue_time_ns"] != UNKNOWN_I64)
        notes.append(Note("queued_ns", np.where(known, begin - np.where(known, batch["queue_time_ns"], 0), OPEN)))
        label = names[batch["opcode"].astype(np.int64)]
        flows = [flow(batch["id"], 0, drawn)]
        scene.writer.slices(Slices("worker", label, track, begin, end, notes, flows).rows(drawn))
        scene.rows += int(drawn.sum())
        scene.undrawn += int((~drawn).sum())


def _draw_states(scene: Scene) -> None:
    for batch in scene.batches("ring_states", ("time_ns", "ring", *_COUNTERS)):
        for number in np.unique(batch["ring"]).tolist():
            ring, mine = scene.tracks.ring(number), batch["ring"] == number
            for column, name in _COUNTERS.items():
                there = mine & (batch[column] != UNKNOWN_U32)
                track = np.full(int(there.sum()), scene.tracks.counter(ring, name), np.uint64)
                scene.writer.counters(track, batch["time_ns"][there], batch[column][there].astype(np.int64))
        scene.rows += len(batch["ring"])
