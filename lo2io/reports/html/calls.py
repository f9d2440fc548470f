"""Pictures of calls, and of what requests of rings move: sums over time by process, file, thread and class.

In: batches of operations and of requests of rings. Out: sums by lane, and chosen rows. The busiest processes, files and
threads get a lane, and they are known only when all calls are summed up. Where there are few, each gets a lane of its
own at first, and the pictures are gathered with the sums. Else they take one more pass over the calls.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from lo2io.frozen import dataclass
from lo2io.model import UNKNOWN_I64
from lo2io.native._lib import ffi, lib
from lo2io.native.columns import allocate_rows, pointer_to
from lo2io.reports.html.grid import PointSums, Presence, Smallest, Taken, TimeGrid, time_grid
from lo2io.reports.html.lanes import CLASSES, ChosenLanes
from lo2io.reports.summary.adding import native_rows

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from lo2io.model import Columns
    from lo2io.reports.summary.adding import RowContext
    from lo2io.reports.summary.owners import Owners
    from lo2io.reports.summary.paths import Paths
    from lo2io.trace.reader import Trace

HEAT_BINS: Final = 240
"""Time bins of heat maps and curves: as many as a page's width can show."""
TIMELINE_BINS: Final = 2_000
"""Time bins of the timeline: more, so that a reader can zoom in."""
MAX_SLICES: Final = 60
"""The longest operations of each thread and class, which are drawn one by one."""
MAX_POINTS: Final = 2_500
"""Points drawn for each file or device."""
LATENCY_BINS: Final = int(lib.LO2_NR_LATENCIES)
MAX_EVERYONE: Final = (1_000, 1_000, 64)
"""At most so many processes, files and threads get lanes at first: they take up to 8, 125 and 850 kB each."""


@dataclass(frozen=True, slots=True)
class CallLanes:
    """Lane of each process, file group and task, by the owners' numbers; and the number of lanes of each kind."""

    of: tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]
    nr: tuple[int, int, int]
    other_files: int
    """From this lane on, files have no points."""


def everyone(owners: Owners, paths: Paths) -> CallLanes | None:
    """A lane for each process, each path and each task; None: there are too many."""
    files = np.unique(paths.of, return_inverse=True)[1].astype(np.int64)
    nr = (owners.nr_processes + 1, int(files.max(initial=0)) + 1, owners.nr_tasks + 1)
    if any(number > limit for number, limit in zip(nr, MAX_EVERYONE, strict=True)):
        return None
    return CallLanes((np.arange(nr[0]), files, np.arange(nr[2])), nr, nr[1])


def busiest(owners: Owners, lanes: ChosenLanes) -> CallLanes:
    """The lanes that are drawn."""
    of = (
        lanes.processes.of(np.arange(owners.nr_processes + 1)),
        lanes.files.of(np.arange(owners.nr_groups)),
        lanes.threads.of(np.arange(owners.nr_tasks + 1)),
    )
    return CallLanes(of, (len(lanes.processes), len(lanes.files), len(lanes.threads)), lanes.files.others)


def grids(trace: Trace) -> tuple[TimeGrid, TimeGrid]:
    """The bins of heat maps, and those of the timeline."""
    start = trace.metadata["start_ns"]
    return time_grid(start, last_ns(trace), HEAT_BINS), time_grid(start, last_ns(trace), TIMELINE_BINS)


def last_ns(trace: Trace) -> int:
    """The end of the pictures."""
    return int(max(trace.metadata["stop_ns"], trace.metadata["start_ns"] + 1))


class Activity:
    """Bytes read and written by each lane over time, and its time in calls."""

    def __init__(self, read: PointSums, written: PointSums, time: Presence) -> None:
        self.read, self.written, self.time = read, written, time

    def native(self) -> dict[str, Any]:
        """A ``lo2_activity_grid`` over the same sums."""
        read, written = (pointer_to(each.sums, "int64_t") for each in (self.read, self.written))
        return {"read": read, "written": written, "time": self.time.edges}

    def regrouped(self, lane_of: NDArray[np.int64], lanes: int) -> Activity:
        """The same with other lanes."""
        read, written = (each.regrouped(lane_of, lanes) for each in (self.read, self.written))
        return Activity(read, written, self.time.regrouped(lane_of, lanes))

    def plain(self) -> dict[str, Any]:
        """The numbers of each lane, as JSON has them."""
        return {name: values.tolist() for name, values in self._values().items()}

    def total(self) -> dict[str, Any]:
        """The numbers of all lanes together."""
        return {name: values.sum(axis=0).tolist() for name, values in self._values().items()}

    def _values(self) -> dict[str, NDArray[np.int64]]:
        return {"read": self.read.sums, "written": self.written.sums, "time_ns": self.time.time_ns}


class CallPictures:
    """Sums over time, the longest calls, and points of accesses.

    Args:
        trace: Has the threads' ends and the calls' kinds.
        owners: The process and the file group of each operation.
        context: How rows of operations are looked up.
        lanes: Where each is drawn.
    """

    def __init__(self, trace: Trace, owners: Owners, context: RowContext, lanes: CallLanes) -> None:
        self._made_of = trace, owners, context
        self.lanes = lanes
        heat, fine = self._grids = grids(trace)
        processes, files, threads = lanes.nr
        self.processes, self.files = (
            Activity(PointSums(heat, nr), PointSums(heat, nr), Presence(heat, nr)) for nr in (processes, files)
        )
        self.busy = Presence(fine, threads * len(CLASSES))
        self.slices = Smallest(threads * len(CLASSES), MAX_SLICES)
        self.latency = PointSums(heat, len(CLASSES) * LATENCY_BINS)
        self.points = Smallest(files, MAX_POINTS)
        self._only_writes = np.array([call["kind"] == "write" for call in trace.metadata["calls"]], np.bool_)
        self._tasks = _tasks(trace, owners, lanes)
        self._point()

    def _point(self) -> None:
        """Make the ``lo2_pictures``, which points to the arrays of this object."""
        self._native = native = ffi.new("lo2_pictures *")
        native.context, native.tasks = self._made_of[2].native, pointer_to(self._tasks, "lo2_task_lanes")
        native.file_lane, native.other_files = pointer_to(self.lanes.of[1], "int64_t"), self.lanes.other_files
        native.heat, native.fine = (grid.native(0)[0] for grid in self._grids)
        native.processes, native.files = self.processes.native(), self.files.native()
        native.busy, native.latency = self.busy.edges, pointer_to(self.latency.sums, "int64_t")
        native.slices, native.points = self.slices.native(), self.points.native()

    def regrouped(self, lanes: CallLanes) -> CallPictures:
        """The same with fewer lanes."""
        trace, owners, context = self._made_of
        new = CallPictures(trace, owners, context, lanes)
        process, file, thread = (np.zeros(nr, np.int64) for nr in self.lanes.nr)
        for found, old, drawn in zip((process, file, thread), self.lanes.of, lanes.of, strict=True):
            found[old] = drawn
        of_class = (thread[:, None] * len(CLASSES) + np.arange(len(CLASSES))).ravel()
        processes, files, threads = lanes.nr
        new.processes, new.files = self.processes.regrouped(process, processes), self.files.regrouped(file, files)
        new.busy = self.busy.regrouped(of_class, threads * len(CLASSES))
        new.slices = self.slices.regrouped(of_class, threads * len(CLASSES))
        new.latency = self.latency
        new.points = self.points.regrouped(np.where(file < lanes.other_files, file, -1), files)
        new._point()
        return new

    def add(self, rows: Columns) -> None:
        """Add calls with the columns of :data:`~lo2io.reports.summary.tally.OPERATION_COLUMNS`."""
        native, kept = native_rows(rows)
        slices, points = Taken(native.nr), Taken(native.nr)
        lib.lo2_pictures_add_calls(self._native, native, slices.native, points.native)
        del kept
        names = ("id", "call", "begin_time_ns", "bytes_result", "error")
        facts = {name: rows[name][slices.rows] for name in names}
        groups = self._made_of[1].groups(rows["handle"][slices.rows])
        self.slices.keep(slices, {**facts, "group": groups, "end_time_ns": self._ends(rows, slices.rows)})
        self._keep_points(rows, points, self._ends(rows, points.rows), self._only_writes[rows["call"][points.rows]])

    def add_moved(self, rows: Columns) -> None:
        """Add the bytes of rings' requests: their columns, and whether each ``reads`` and ``writes``."""
        native, kept = native_rows(rows, "lo2_moved_rows")
        points = Taken(native.nr)
        lib.lo2_pictures_add_moved(self._native, native, points.native)
        del kept
        writes = rows["writes"][points.rows] & ~rows["reads"][points.rows]
        self._keep_points(rows, points, rows["end_time_ns"][points.rows], writes)

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
        self.points.keep(points, facts)


def _tasks(trace: Trace, owners: Owners, lanes: CallLanes) -> NDArray[Any]:
    """The lanes and the end of each task; without an end, the trace's. The last row stands for unknown tasks.

    A call that was never left, such as exit(2), lasts until the end of its task.
    """
    stop = last_ns(trace)
    tasks = allocate_rows("lo2_task_lanes", owners.nr_tasks + 1)
    tasks["process"] = lanes.of[0][owners.processes(np.arange(len(tasks), dtype=np.uint32))]
    tasks["thread"] = lanes.of[2]
    tasks["last_ns"] = stop
    for part in trace.batches("threads", ["task", "exit_time_ns"]):
        ended = part["exit_time_ns"]
        tasks["last_ns"][part["task"]] = np.where(ended == UNKNOWN_I64, stop, np.minimum(ended, stop))
    return tasks
