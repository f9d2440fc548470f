"""System calls, and the stretches without a CPU amid them, as slices of their threads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from lo2io.exports.perfetto.packets import INSTANT, NAMED, OPEN, TEXT, Note, Slices
from lo2io.exports.perfetto.scene import at_threads, last_of_threads
from lo2io.model import UNKNOWN_I64, UNKNOWN_U32
from lo2io.native._lib import lib
from lo2io.trace.columns import OFF_STATE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from lo2io.exports.perfetto.scene import Scene
    from lo2io.model import Columns

_NOTES: Final = (*("id", "cpu", "fd", "offset_bytes", "bytes_request", "bytes_result", "result", "error", "flags"),)
_COLUMNS: Final = (*_NOTES, "begin_time_ns", "end_time_ns", "task", "call", "status", "handle", "handle2")
_OFF_COLUMNS: Final = ("task", "begin_time_ns", "wake_time_ns", "end_time_ns", "state", "reason")
_RUN_QUEUE: Final = "run queue"
_IN_FLIGHT: Final = 1
_NON_BLOCKING: Final = ", non-blocking"
"""A part of the names of non-blocking calls in other tools' traces (``otf2/foreign/tables.py``)."""


def draw_calls(scene: Scene) -> None:
    """Write both tables.

    In a track, an end closes the slice that began last. So inner slices are written first: if inner and outer slice end
    at the same time, the inner one must end first.

    Raises:
        TraceError: A table cannot be read.
    """
    last = np.full(1, OPEN)
    for batch in scene.batches("operations", ("task", "begin_time_ns")):
        last = last_of_threads(batch["task"], batch["begin_time_ns"], last)
    _draw_off_cpu(scene, last)
    labels = [call["name"] for call in scene.trace.metadata["calls"]]
    names = scene.writer.names(labels)
    apart = np.array(["foreign" in scene.trace.metadata and _NON_BLOCKING in label for label in labels], np.bool_)
    paths = _Paths(scene)
    for batch in scene.batches("operations", _COLUMNS):
        track, end = _places(scene, batch, last, apart[batch["call"]])
        notes = [*scene.notes("operations", batch, _NOTES), *scene.file_notes(batch), *paths.next(batch["id"])]
        notes.append(_status(scene, batch))
        scene.writer.slices(Slices("call", names[batch["call"]], track, batch["begin_time_ns"], end, notes))
        scene.rows += len(end)


def _draw_off_cpu(scene: Scene, last_call: NDArray[np.int64]) -> None:
    """Write each stretch: the wait by its reason, or by its state if the reason is not known; then the run queue."""
    reasons = scene.trace.metadata.get("wait_reasons", ())
    labels = (*OFF_STATE, _RUN_QUEUE, *(f"waits: {reason}" for reason in reasons))
    names = scene.writer.names(labels)
    columns = _OFF_COLUMNS if reasons else _OFF_COLUMNS[:-1]  # a lo2io that knew no reasons wrote the trace
    for batch in scene.batches("off_cpu", columns):
        tasks, begin, end = (batch[name] for name in ("task", "begin_time_ns", "end_time_ns"))
        # Without an end, the thread's last call goes on. In an earlier call, the thread came back unseen.
        goes_on = begin >= at_threads(tasks, last_call)
        end = np.where(end != UNKNOWN_I64, end, np.where(goes_on, _thread_end(scene, tasks, begin), INSTANT))
        track, wake = scene.tracks.threads(tasks), batch["wake_time_ns"]
        woken = (wake != UNKNOWN_I64) & (batch["state"] != OFF_STATE.index("preempted"))
        reason = batch["reason"].astype(np.intp) if reasons else np.zeros(len(begin), np.intp)
        which = np.where(reason > lib.LO2_WAIT_UNKNOWN, len(OFF_STATE) + 1 + reason, batch["state"])
        waits = ~woken | (wake > begin)
        until = np.where(woken, wake, end)
        scene.writer.slices(Slices("off CPU", names[which[waits]], track[waits], begin[waits], until[waits]))
        queued = woken & (end > wake)
        queue = np.full(np.count_nonzero(queued), names[len(OFF_STATE)])
        scene.writer.slices(Slices("off CPU", queue, track[queued], wake[queued], end[queued]))
        scene.rows += len(begin)


def _places(
    scene: Scene, batch: Columns, last: NDArray[np.int64], apart: NDArray[np.bool_]
) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
    """The track and the end of each call. The track is the thread's; calls that do not nest there get lanes."""
    tasks, begin, end = (batch[name] for name in ("task", "begin_time_ns", "end_time_ns"))
    is_last = begin == at_threads(tasks, last)
    unseen = np.where(apart, OPEN, np.where(is_last, _thread_end(scene, tasks, begin), INSTANT))
    end = np.where(end != UNKNOWN_I64, end, unseen)
    track = scene.tracks.threads(tasks)
    unknown = tasks == UNKNOWN_U32
    if unknown.any():
        parent = scene.tracks.top("unknown threads")
        track[unknown] = scene.tracks.lanes(parent, begin[unknown], end[unknown], "calls")
    for task in np.unique(tasks[apart & ~unknown]).tolist():
        mine = apart & (tasks == task)
        track[mine] = scene.tracks.lanes(int(track[mine][0]), begin[mine], end[mine], "non-blocking")
    return track, end


def _status(scene: Scene, batch: Columns) -> Note:
    ended = int(scene.writer.labels(["in flight"])[0])
    return Note("status", np.where(batch["status"] == _IN_FLIGHT, ended, 0), NAMED, 0)


def _thread_end(scene: Scene, tasks: NDArray[np.uint32], begin: NDArray[np.int64]) -> NDArray[np.int64]:
    """The end of a call in flight: the end of its thread, if that was seen."""
    exits = at_threads(tasks, scene.exits)
    return np.where(exits >= begin, exits, OPEN)


class _Paths:
    """The paths given to calls, read along with the batches of calls. Both tables have the same order."""

    def __init__(self, scene: Scene) -> None:
        self._batches = self._read(scene)
        self._waiting: list[tuple[int, int, str]] = []

    def next(self, ids: NDArray[np.uint64]) -> list[Note]:
        """Notes of the first and second paths of these calls. A note without any path is left out."""
        rows = {int(operation): row for row, operation in enumerate(ids.tolist())} if self._fill() else {}
        found: tuple[dict[int, bytes], dict[int, bytes]] = ({}, {})
        while self._fill() and (row := rows.get(self._waiting[-1][0])) is not None:
            _, place, path = self._waiting.pop()
            found[place > 0][row] = path.encode(errors="replace")
        return [_texts(name, texts, len(ids)) for name, texts in zip(("path", "path2"), found, strict=True) if texts]

    def _fill(self) -> bool:
        while not self._waiting:
            batch = next(self._batches, None)
            if batch is None:
                return False
            self._waiting = batch[::-1]
        return True

    @staticmethod
    def _read(scene: Scene) -> Iterator[list[tuple[int, int, str]]]:
        for rows in scene.trace.text_batches("paths", ("operation", "place", "path", "directory")):
            columns: Any = rows
            yield [
                (operation, place, _whole(path, directory))
                for operation, place, path, directory in zip(*columns, strict=True)
            ]


def _whole(path: str | None, directory: str | None) -> str:
    """The absolute path if the directory is known, else the path as given; empty: the path is not known."""
    if path is None or path.startswith("/") or directory is None:
        return path or ""
    return f"{directory.rstrip('/')}/{path}" if path else directory


def _texts(name: str, texts: dict[int, bytes], rows: int) -> Note:
    lengths = np.zeros(rows + 1, np.int64)
    for row, value in texts.items():
        lengths[row + 1] = len(value)
    return Note(name, np.cumsum(lengths), TEXT, None, b"".join(texts[row] for row in sorted(texts)))
