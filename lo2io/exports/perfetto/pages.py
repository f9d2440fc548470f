"""The page cache: who dirtied what a request writes, how much is dirty, and how many reads find their pages there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from lo2io.exports.perfetto.disks import interval_ns
from lo2io.exports.perfetto.packets import Slices
from lo2io.exports.perfetto.scene import DIRTIED, flow, instants
from lo2io.model import UNKNOWN_I64, UNKNOWN_U32
from lo2io.trace.columns import CACHE_VERDICT

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from lo2io.exports.perfetto.scene import Scene
    from lo2io.model import Columns

_NOTES: Final = ("request", "offset_bytes", "bytes", "tid")
_COLUMNS: Final = (*_NOTES, "task", "first_dirtied_ns", "last_dirtied_ns", "issue_time_ns")
_READS: Final = (("operations", "end_time_ns"), ("ring_requests", "complete_time_ns"))
"""Tables with reads, and the time at which they count."""
_TRACK: Final = "Page cache"
_PER_CENT: Final = 100


def written_requests(scene: Scene) -> NDArray[np.uint64]:
    """The requests that wrote pages somebody had dirtied, in the order of their ids."""
    parts = [batch["request"] for batch in scene.trace.batches("write_backs", ("request",))]
    requests = np.concatenate([np.zeros(0, np.uint64), *parts])
    found: NDArray[np.uint64] = np.unique(requests[requests != 0])
    return found


def draw_pages(scene: Scene, tracks: Mapping[int, int]) -> None:
    """Draw the ways from threads that dirtied pages to requests, and the counters of the page cache.

    Args:
        scene: The trace and its writer.
        tracks: The track of each of :func:`written_requests`.

    Raises:
        TraceError: A table cannot be read.
    """
    changes: list[tuple[NDArray[np.int64], NDArray[np.int64]]] = []
    rows = 0
    for batch in scene.batches("write_backs", _COLUMNS):
        number = np.arange(rows + 1, rows + 1 + len(batch["request"]), dtype=np.uint64)
        rows += len(number)
        _draw_ways(scene, batch, number, tracks)
        changes += _changes(batch)
    if changes:
        _draw_dirty(scene, *(np.concatenate(column) for column in zip(*changes, strict=True)))
    scene.rows += rows
    if "cache" in scene.trace.metadata.get("layers", ()):
        _draw_hits(scene)


def _draw_ways(scene: Scene, batch: Columns, number: NDArray[np.uint64], tracks: Mapping[int, int]) -> None:
    """Draw a moment in the thread that dirtied the first page, one at the disk that wrote it, and an arrow."""
    request, begin, issued = batch["request"], batch["first_dirtied_ns"], batch["issue_time_ns"]
    track = np.array([tracks.get(each, 0) for each in request.tolist()], np.uint64)
    written = (track != 0) & (issued != UNKNOWN_I64)
    by_thread = written & (batch["task"] != UNKNOWN_U32) & (begin != UNKNOWN_I64)
    ways = [flow(number, DIRTIED, by_thread)]
    notes = [*scene.notes("write_backs", batch, _NOTES)]
    at_once = instants(len(number))
    if by_thread.any():
        place = np.zeros(len(number), np.uint64)
        place[by_thread] = scene.tracks.threads(batch["task"][by_thread])
        name = np.full(len(number), scene.writer.name("dirties pages"), np.uint32)
        scene.writer.slices(Slices("dirty", name, place, begin, at_once, notes, ways).rows(by_thread))
    name = np.full(len(number), scene.writer.name("writes pages back"), np.uint32)
    scene.writer.slices(Slices("write-back", name, track, issued, at_once, notes, ways).rows(written))


def _changes(batch: Columns) -> list[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """Times at which bytes have become dirty, or are no longer, and how many."""
    dirtied, issued, size = batch["last_dirtied_ns"], batch["issue_time_ns"], batch["bytes"].astype(np.int64)
    known = dirtied != UNKNOWN_I64
    sent = known & (issued != UNKNOWN_I64)
    return [(dirtied[known], size[known]), (issued[sent], -size[sent])]


def _draw_dirty(scene: Scene, times: NDArray[np.int64], changes: NDArray[np.int64]) -> None:
    if not len(times):
        return
    order = np.argsort(times, kind="stable")
    times, sizes = times[order], np.cumsum(changes[order])
    last = np.append(times[1:] != times[:-1], True)
    counter = scene.tracks.counter(scene.tracks.top(_TRACK), "dirty, at least", "B")
    scene.writer.counters(np.full(int(last.sum()), counter, np.uint64), times[last], sizes[last])


def _draw_hits(scene: Scene) -> None:
    """Draw the share of reads that hit, at the start of each interval in which reads ended."""
    start = int(scene.trace.metadata["start_ns"])
    width = interval_ns(int(scene.trace.metadata["stop_ns"]) - start)
    counts: dict[int, Any] = {}
    hit, wait, miss = (CACHE_VERDICT.index(verdict) for verdict in ("hit", "wait", "miss"))
    for table, ended in _READS:
        for batch in scene.batches(table, ("cache", ended)):
            chosen = np.isin(batch["cache"], (hit, wait, miss)) & (batch[ended] != UNKNOWN_I64)
            places, where = np.unique((batch[ended][chosen] - start) // width, return_inverse=True)
            found = np.zeros((len(places), 2), np.int64)
            np.add.at(found, where, np.column_stack([batch["cache"][chosen] == hit, np.ones(len(where), np.bool_)]))
            for place, pair in zip(places.tolist(), found, strict=True):
                counts[place] = counts.get(place, 0) + pair
    if not counts:
        return
    shares = [int(_PER_CENT * hits // reads) for hits, reads in (counts[place] for place in sorted(counts))]
    counter = scene.tracks.counter(scene.tracks.top(_TRACK), "hits of reads", "%")
    track = np.full(len(counts), counter, np.uint64)
    scene.writer.counters(track, start + np.array(sorted(counts)) * width, np.array(shares, np.int64))
