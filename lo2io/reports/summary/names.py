"""Names of processes and files, looked up for the few that are shown.

In: a trace and its owners. Out: pids, names and paths; None without a name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from lo2io.model import UNKNOWN_U32
from lo2io.model.command_lines import process_name
from lo2io.trace.reader import as_numpy

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from numpy.typing import NDArray

    from lo2io.reports.summary.owners import Owners
    from lo2io.trace.reader import Trace


class People:
    """Pids and names of processes, by the owners' numbers. The last number stands for unknown processes."""

    def __init__(self, trace: Trace, owners: Owners) -> None:
        self._pids = np.full(owners.nr_processes + 1, -1, np.int64)
        self._leaders = np.full(owners.nr_processes + 1, -1, np.int64)
        self.threads = np.zeros(owners.nr_processes + 1, np.int64)
        self._trace = trace
        leading: list[NDArray[Any]] = []
        for batch in trace.batches("threads", ["task", "pid", "tid"]):
            process = owners.processes(batch["task"])
            np.add.at(self.threads, process, 1)
            self._pids[process] = np.where(batch["pid"] == UNKNOWN_U32, -1, batch["pid"].astype(np.int64))
            self._leaders[process] = batch["task"]
            leading.append(batch["task"][batch["pid"] == batch["tid"]])
        for tasks in leading:
            self._leaders[owners.processes(tasks)] = tasks

    def pid(self, row: int) -> int | None:
        """The process's pid."""
        return int(self._pids[row]) if self._pids[row] >= 0 else None

    def names(self, rows: Collection[int]) -> dict[int, str | None]:
        """The name of each of these processes, with its title or script if the command line shows one."""
        comms, lines = (self.texts(column, rows) for column in ("comm", "cmdline"))
        return {row: process_name(comms.get(row), lines.get(row)) for row in comms.keys() | lines.keys()}

    def texts(self, column: str, rows: Iterable[int]) -> dict[int, str | None]:
        """A text of the leaders of these processes."""
        tasks = {int(self._leaders[row]): row for row in rows if self._leaders[row] >= 0}
        found = self._trace.texts("threads", "task", column, tasks.keys())
        return {tasks[task]: text for task, text in found.items()}


class FileName(NamedTuple):
    """The name of a file group.

    Fields are those of :class:`~lo2io.reports.summary.summary.FileRow`. A further kind is ``given``: a call's path.
    """

    kind: str
    path: str | None
    pid: int | None
    process: str | None


def file_names(trace: Trace, owners: Owners, people: People, groups: Iterable[int]) -> dict[int, FileName]:
    """The names of these file groups, by the numbers of ``Owners.groups``."""
    wanted = sorted(set(groups))
    paths = trace.texts("files", "file", "path", [group for group in wanted if group < owners.nr_files])
    processes = {group: group - owners.nr_files for group in wanted if owners.nr_files <= group < owners.no_handle}
    process_names = people.names(processes.values())
    names = {}
    for group in wanted:
        if group < owners.nr_files:
            names[group] = FileName("named", paths.get(group), None, None)
        elif group in processes:
            process = processes[group]
            names[group] = FileName("unnamed", None, people.pid(process), process_names.get(process))
        else:
            names[group] = FileName("none", None, None, None)
    return names


def given_paths(trace: Trace, operations: Collection[int]) -> dict[int, str]:
    """The first path argument of each of these calls, with the directory in which it starts; only known ones."""
    found: dict[int, str] = {}
    wanted = np.fromiter(operations, np.int64, len(operations))
    for batch in trace.record_batches("paths", ["operation", "place", "path", "directory"]) if len(wanted) else ():
        numbers = as_numpy(batch.column("operation"))
        for row in np.flatnonzero(np.isin(numbers, wanted) & (as_numpy(batch.column("place")) == 0)).tolist():
            path, directory = (batch.column(name)[row].as_py() for name in ("path", "directory"))
            if path:
                found[int(numbers[row])] = path if path.startswith("/") or not directory else f"{directory}/{path}"
    return found
