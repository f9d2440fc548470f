"""Definitions of locations that threads and rings share, and of the group of all processes without an own group.

The native loop decides which thread has which location at which time (``lo2io/native/otf2/threads.c``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from lo2io.kernel.procfs import container_id
from lo2io.native._lib import lib
from lo2io.otf2.write.parts import HOST_NODE

if TYPE_CHECKING:
    from lo2io.otf2.write.parts import Parts, Trace
    from lo2io.otf2.write.rows import TaskRow

COMMON: Final = 0
"""The index that stands for all processes without a location group."""
LIFE_ATTRIBUTES: Final = {
    "life_process": ("Process ID", "Process of the thread that has this location from here on", "UINT64"),
    "life_thread": ("Thread ID", "Thread that has this location from here on", "UINT64"),
    "life_task": ("lo2io task", "Thread that has this location from here on: its row in the tables", "UINT64"),
}
"""Members of ``lo2_otf2_attributes`` after those of rings. Only traces with shared locations define them."""
LIFE: Final = "thread in turn"
"""Canonical name of the regions that stand for a thread's life on a shared location."""
_FURTHER: Final = "further processes"
_RING_THREADS: Final = {lib.LO2_TASK_RING_WORKER: "worker", lib.LO2_TASK_RING_POLLER: "SQ thread"}
"""Kind of thread that the kernel makes for a ring → its purpose."""


def life_words(trace: Trace, task: int) -> tuple[str, str]:
    """Name and description of the region that stands for a thread's life on a shared location."""
    row = trace.rows.tasks.get(task)
    if row is None:
        return f"thread of task {task}", "A thread on a location that threads have in turn"
    words = [f"Thread {row.tid} of process {row.pid}"]
    if row.cgroup:
        words.append(f"cgroup {row.cgroup}")
        container = container_id(row.cgroup)
        words += [f"container {container}"] if container else []
    return f"thread {row.comm or 'of process'} {row.tid}", ", ".join(words)


class Groups:
    """The location groups of processes."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._of: dict[int, tuple[int, str]] = {}
        self._of_index: dict[int, tuple[int, str]] = {}
        self._common: int | None = None

    def add(self, process: int, index: int, group: int, name: str) -> None:
        """Add a process with a group of its own. ``index`` is the process' number in the native loop."""
        self._of[process] = group, name
        if index != COMMON:
            self._of_index[index] = group, name

    def find(self, process: int) -> int | None:
        """The group of a process, by the process' number in the tables; None: it has no group of its own."""
        return self._of[process][0] if process in self._of else None

    def shared(self, location: Any) -> tuple[int, str]:
        """The group of a shared location, and the name of the processes that use the location."""
        if location.group != COMMON and location.group in self._of_index:
            return self._of_index[location.group]
        return self.common(), _FURTHER

    def common(self) -> int:
        """The group of all processes without a group of their own."""
        if self._common is None:
            view = self._parts.trace.view
            all_shared = (view.locations[i] for i in range(view.nr_locations) if view.locations[i].shared)
            kinds = {location.kind for location in all_shared if location.group not in self._of_index}
            # A PROCESS group must have a location of a thread.
            kind = "PROCESS" if lib.LO2_OTF2_TASK in kinds else "UNKNOWN"
            self._common = self._parts.group(_FURTHER, HOST_NODE, kind=kind)
        return self._common


def write_shared_threads(parts: Parts, groups: Groups) -> None:
    """Write the locations that threads use in turn. A location with a single thread has the thread's name."""
    trace = parts.trace
    view = trace.view
    for ref in range(view.nr_locations):
        location = view.locations[ref]
        if location.kind != lib.LO2_OTF2_TASK or not location.shared:
            continue
        group, whose = groups.shared(location)
        row = trace.rows.tasks.get(location.key)
        if location.nr_users == 1 and row is not None:
            parts.location(ref, f"thread {row.comm or 'of process'} {row.tid}", group)
            write_thread(parts, ref, row)
        else:
            what = "io_uring workers" if location.worker else "threads"
            parts.location(ref, f"{what} of {whose} in turn", group)


def write_thread(parts: Parts, location: int, row: TaskRow) -> None:
    """Write the properties of a location that belongs to one thread."""
    parts.number_property("LocationProperty", location, "Thread ID", row.tid)
    parts.number_property("LocationProperty", location, "lo2io task", row.task)
    if row.kind in _RING_THREADS:
        parts.text_property("LocationProperty", location, "io_uring", _RING_THREADS[row.kind])
