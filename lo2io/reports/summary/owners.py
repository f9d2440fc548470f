"""The process and the file of each operation.

In: the tables of threads, handles and files. Out: for each task the number of its process, for each handle the
number of its file group. Memory: some bytes a handle and a file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from lo2io.model import UNKNOWN_U32
from lo2io.native.columns import pointer_to
from lo2io.reports.summary.file_types import file_types

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from lo2io.trace.reader import Trace

_DSYNC: Final = {"alpha": 0o40000}
"""O_DSYNC on machines where it is not 010000; O_SYNC includes it (arch/*/include/uapi/asm/fcntl.h)."""


class Owners:
    """The process and the file group that an operation belongs to.

    Processes have the numbers 0 … ``nr_processes - 1``; one more number stands for unknown. File groups: first the
    named files by their number, then the unnamed handles of each process, then calls without a handle.
    """

    def __init__(self, trace: Trace) -> None:
        task, process = trace.column("threads", "task"), trace.column("threads", "process")
        self.process_ids, rows = np.unique(process, return_inverse=True)
        self.nr_processes = len(self.process_ids)
        self.nr_tasks = int(task.max(initial=0)) + 1
        self._process_of_task = np.full(self.nr_tasks + 1, self.nr_processes, np.int64)
        self._process_of_task[task] = rows
        files = trace.column("files", "file")
        self.nr_files = int(files.max()) + 1 if len(files) else 0
        self.nr_groups = self.nr_files + self.nr_processes + 2
        self.no_handle = self.nr_groups - 1
        self._dsync = np.uint32(_DSYNC.get(trace.metadata["machine"], 0o10000))
        self._is_synced = np.zeros(1, np.bool_)
        """For each handle, True if it was opened with O_DSYNC or O_SYNC: each write waits for the device."""
        self._group_of_handle = self._groups(trace)
        self.types, self.waits = file_types(trace, self.nr_groups)
        """The :class:`FileType` of each file group, and True if calls on it wait for another side to write or read."""

    def _groups(self, trace: Trace) -> NDArray[np.int32]:
        groups = np.full(1, self.no_handle, np.int32)
        for batch in trace.batches("handles", ["handle", "process", "file", "open_flags"]):
            handle, file, flags = batch["handle"], batch["file"], batch["open_flags"]
            short = int(handle.max(initial=0)) + 2 - len(groups)
            if short > 0:
                groups = np.append(groups, np.full(max(short, len(groups)), self.no_handle, np.int32))
            if len(groups) > len(self._is_synced):
                self._is_synced = np.append(self._is_synced, np.zeros(len(groups) - len(self._is_synced), np.bool_))
            self._is_synced[handle] = (flags != UNKNOWN_U32) & (flags & self._dsync != 0)
            groups[handle] = self.files(file, self.nr_files + self.process_rows(batch["process"]))
        return groups

    def process_rows(self, process: NDArray[np.uint32]) -> NDArray[np.intp]:
        """Number of the process for each row of the table ``threads``."""
        if not self.nr_processes:
            return np.zeros(len(process), np.intp)
        index = np.searchsorted(self.process_ids, process).clip(0, self.nr_processes - 1)
        return np.where(self.process_ids[index] == process, index, self.nr_processes)

    def files(self, file: NDArray[np.uint32], otherwise: NDArray[np.intp] | int) -> NDArray[np.intp]:
        """The number of each file, or another number for files that are unknown, or not in the trace."""
        return np.where(file < self.nr_files, file, otherwise).astype(np.intp)

    def processes(self, task: NDArray[np.uint32]) -> NDArray[np.intp]:
        """Process of each task."""
        return _look_up(self._process_of_task, task)

    def groups(self, handle: NDArray[np.uint32]) -> NDArray[np.intp]:
        """File group of each handle."""
        return _look_up(self._group_of_handle, handle)

    def tell(self, context: Any) -> None:
        """Point a ``lo2_sum_context`` to the tables that this object looks up."""
        tables = (
            ("process_of_task", "nr_tasks", self._process_of_task, "int64_t"),
            ("group_of_handle", "nr_handles", self._group_of_handle, "int32_t"),
            ("is_synced", "nr_synced", self._is_synced, "bool"),
        )
        for name, count, table, native in tables:
            setattr(context, name, pointer_to(table, native))
            setattr(context, count, len(table))
        context.type_of_group, context.waits = pointer_to(self.types, "uint8_t"), pointer_to(self.waits, "bool")


def _look_up(table: NDArray[Any], index: NDArray[np.uint32]) -> NDArray[Any]:
    """``table[index]``. The table's last entry stands for all indices outside (unknown is UINT32_MAX)."""
    return table[np.minimum(index, len(table) - 1)]
