"""A trace for Perfetto's page (ui.perfetto.dev) and its trace processor: track events, in protobuf.

Times are those of the trace, on a clock that Perfetto knows. Snapshots of several clocks stand at the beginning.
``docs/how-to/perfetto.md`` says what is drawn where.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from lo2io.exports.perfetto.calls import draw_calls
from lo2io.exports.perfetto.disks import draw_disks
from lo2io.exports.perfetto.packets import NUMBER, OPEN, TEXT, Note, PacketWriter, Slices
from lo2io.exports.perfetto.pages import draw_pages, written_requests
from lo2io.exports.perfetto.rings import draw_rings
from lo2io.exports.perfetto.scene import Scene, last_of_threads
from lo2io.exports.perfetto.tracks import Tracks
from lo2io.exports.target import ExportSummary
from lo2io.model import UNKNOWN_I64, UNKNOWN_U32

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from numpy.typing import NDArray

    from lo2io.exports.target import Progress
    from lo2io.trace.reader import Trace

CLOCKS: Final = {"realtime": 1, "monotonic": 3, "monotonic_raw": 5, "boottime": 6, "perf": 10}
"""Numbers of ``builtin_clock.proto``."""
_READ_TWICE: Final = ("operations", "ring_works")
_READ: Final = ("off_cpu", "requests", "ring_requests", "ring_states", "write_backs")


def export(trace: Trace, target: Path, progress: Progress) -> ExportSummary:
    """Write a trace for Perfetto.

    Memory grows with the numbers of threads, handles, disks' intervals and write-backs. Up to 2²¹ block requests are
    sorted at a time.

    Args:
        trace: The trace to write.
        target: The file to make.
        progress: Called with the finished share.

    Raises:
        TraceError: A table cannot be read.
        OSError: The file cannot be written.
    """
    clock = CLOCKS.get(str(trace.metadata["clock"]), CLOCKS["perf"])
    with target.open("wb", buffering=1 << 20) as file:
        writer = PacketWriter(file, clock)
        writer.begin(_snapshots(trace.metadata, clock))
        rows = sum(trace.rows(name) * 2 for name in _READ_TWICE) + sum(trace.rows(name) for name in _READ)
        tracks = Tracks(trace, writer)
        scene = Scene(trace, writer, tracks, progress, rows, _paths_of_handles(trace, writer), _exits(trace))
        _draw_recording(scene)
        _draw_losses(scene)
        draw_calls(scene)
        draw_rings(scene)
        draw_pages(scene, draw_disks(scene, written_requests(scene)))
    notes = (f"{scene.undrawn:,} rows have no time and are not drawn",) if scene.undrawn else ()
    return ExportSummary(scene.rows, notes=notes)


def _snapshots(metadata: Mapping[str, Any], clock: int) -> list[dict[int, int]]:
    """Snapshots of the clocks. A snapshot is left out if a clock was set back since the previous one."""
    found: list[dict[int, int]] = []
    for sync in metadata.get("syncs", ()):
        now = {CLOCKS["monotonic"]: sync["monotonic_ns"], CLOCKS["realtime"]: sync["realtime_ns"]}
        now[clock] = sync["time_ns"]
        if not found or all(now[each] > found[-1][each] for each in now):
            found.append(now)
    return found


def _paths_of_handles(trace: Trace, writer: PacketWriter) -> NDArray[np.int64]:
    """Write the files' paths. Return for each handle the number of its file's path; 0: none."""
    named = np.zeros(1, np.bool_)
    for numbers, paths in trace.text_batches("files", ("file", "path")):
        rows: list[tuple[int, str]] = [
            (int(file), str(path)) for file, path in zip(numbers, paths, strict=True) if path is not None
        ]
        writer.intern_texts(1, rows)
        last = max((file for file, _ in rows), default=0)
        if last >= len(named):
            named = np.concatenate([named, np.zeros(max(last + 1, 2 * len(named)) - len(named), np.bool_)])
        named[[file for file, _ in rows]] = True
    found = np.zeros(1, np.int64)
    for batch in trace.batches("handles", ("handle", "file")):
        handles, files = batch["handle"].astype(np.int64), batch["file"].astype(np.int64)
        last = int(handles.max(initial=0))
        if last >= len(found):
            found = np.concatenate([found, np.zeros(max(last + 1, 2 * len(found)) - len(found), np.int64)])
        has_name = files < len(named)
        has_name[has_name] = named[files[has_name]]
        found[handles[has_name]] = files[has_name] + 1
    return found


def _exits(trace: Trace) -> NDArray[np.int64]:
    found = np.full(1, OPEN)
    for batch in trace.batches("threads", ("task", "exit_time_ns")):
        found = last_of_threads(batch["task"], batch["exit_time_ns"], found)
    return found


def _draw_recording(scene: Scene) -> None:
    """Draw a slice over the whole trace, with notes about the recording and its completeness."""
    meta = scene.trace.metadata
    facts = {
        "command": " ".join(meta.get("command", ())),
        **{key: str(meta[key]) for key in ("hostname", "kernel", "machine", "mode", "filter") if meta.get(key)},
        **{f"lo2io_{key}": str(meta[key]) for key in ("recorded_by", "converted_by") if meta.get(key)},
    }
    notes = [_text_note(name, value) for name, value in facts.items() if value]
    notes += [
        Note(name, np.array([int(value)]), NUMBER, None)
        for name, value in meta["completeness"].items()
        if isinstance(value, (int, bool))
    ]
    start, stop = np.array([meta["start_ns"]]), np.array([meta["stop_ns"]])
    track = np.array([scene.tracks.top("Recording")], np.uint64)
    scene.writer.slices(Slices("recording", scene.writer.names(["recording"]), track, start, stop, notes))


def _text_note(name: str, value: str) -> Note:
    text = value.encode(errors="replace")
    return Note(name, np.array([0, len(text)]), TEXT, None, text)


def _draw_losses(scene: Scene) -> None:
    """Draw the gaps of each CPU. An unknown start or end of a gap is the recording's."""
    meta = scene.trace.metadata
    for batch in scene.trace.batches("losses", ("cpu", "begin_time_ns", "end_time_ns", "lost")):
        begin, end = batch["begin_time_ns"], batch["end_time_ns"]
        first = np.where(end == UNKNOWN_I64, meta["start_ns"], np.minimum(meta["start_ns"], end))
        begin = np.where(begin == UNKNOWN_I64, first, begin)
        end = np.where(end == UNKNOWN_I64, np.maximum(meta["stop_ns"], begin), end)
        track = np.zeros(len(begin), np.uint64)
        for cpu in np.unique(batch["cpu"]).tolist():
            mine = batch["cpu"] == cpu
            name = "all CPUs" if cpu == UNKNOWN_U32 else f"CPU {cpu}"
            parent = scene.tracks.child(scene.tracks.top("Lost records"), name)
            track[mine] = scene.tracks.lanes(parent, begin[mine], end[mine], "lost")
        names = np.full(len(begin), scene.writer.name("lost"), np.uint32)
        notes = scene.notes("losses", batch, ("lost", "cpu"))
        scene.writer.slices(Slices("loss", names, track, begin, end, notes))
        scene.rows += len(begin)
