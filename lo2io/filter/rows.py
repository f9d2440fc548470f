"""Decides which rows of the engine's tables pass a filter, by their columns and subjects.

In: columns, and the rows of threads, files and handles. Out: arrays of bools. A comparison of a field that a row does
not have (the path of a block request, the size of an open, an unknown thread's name) does not hold.
"""

from __future__ import annotations

import os
import stat
from dataclasses import field
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from lo2io.filter.for_events import find_device
from lo2io.filter.language import Comparison, Filter, below_cgroup
from lo2io.frozen import dataclass
from lo2io.model import UNKNOWN_I64, UNKNOWN_U32, CallKind, RequestOp, RingPath
from lo2io.model.number_sets import NumberSet
from lo2io.units import SECTOR_BYTES, kernel_dev, split_kernel_dev

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from lo2io.model import Batch, BlockDevice, CallSpec, Columns, Mount

    Flags = NDArray[np.bool_]

NR_OPCODES = 256
"""The number of opcodes: an opcode is a byte."""
_BATCHES = frozenset({CallKind.RING_ENTER, CallKind.AIO_SUBMIT, CallKind.AIO_COLLECT})
_ORDER = {"<": np.less, "<=": np.less_equal, ">": np.greater, ">=": np.greater_equal}


@dataclass(frozen=True, slots=True)
class Criteria:
    """The user's choice. If the object is false, everything passes."""

    filter: Filter = field(default_factory=Filter)
    requests_of_cgroup: str = ""
    """Requests of disks and of rings must come from a thread of this cgroup or one below it; calls may come from any.
    This is the part of ``--cgroup`` that is left to converting: the kernel knows a call's cgroup, but a request
    completes in any thread."""

    def __bool__(self) -> bool:
        return bool(self.filter) or bool(self.requests_of_cgroup)


class Machine(Protocol):
    """The facts about a recording that matching needs: ``SpoolMeta``, or the same from a trace's metadata."""

    @property
    def devices(self) -> Sequence[BlockDevice]: ...  # noqa: D102
    @property
    def mounts(self) -> Sequence[Mount]: ...  # noqa: D102


class Numbered:
    """A column indexed by number. It is as long as the highest number that was set."""

    def __init__(self, dtype: type[Any], missing: Any) -> None:
        self._missing = missing
        self._array: NDArray[Any] = np.full(64, missing, dtype)

    def put(self, numbers: NDArray[Any], values: Any) -> None:
        """Set the values of some numbers. All other numbers have the default value."""
        if not len(numbers):
            return
        need = int(numbers.max()) + 1
        if need > len(self._array):
            more = np.full(max(need, 2 * len(self._array)), self._missing, self._array.dtype)
            more[: len(self._array)] = self._array
            self._array = more
        self._array[numbers] = values

    def at(self, numbers: NDArray[Any]) -> NDArray[Any]:
        """The values of some numbers."""
        inside = numbers < len(self._array)
        found = np.full(len(numbers), self._missing, self._array.dtype)
        found[inside] = self._array[numbers[inside]]
        return found

    def where(self) -> NDArray[np.intp]:
        """The numbers with a true value."""
        return np.flatnonzero(self._array)


class Matcher:
    """Learns facts about threads, files and handles, and decides which rows pass.

    Args:
        criteria: The user's choice.
        meta: Devices and mounts of the recording.
        calls: The calls, indexed by the codes of ``operations.call``.
    """

    def __init__(self, criteria: Criteria, meta: Machine, calls: Sequence[CallSpec]) -> None:
        self.filter = criteria.filter
        self._devices = _Devices(meta.devices, meta.mounts)
        operations = self.filter.operations()
        self._calls = np.array([call.name in operations.calls for call in calls] or [False], np.bool_)
        self.batch_calls = np.array([call.kind in _BATCHES for call in calls] or [False], np.bool_)
        """Code of ``operations.call`` → True if the call has a row of batches."""
        self.path_calls = np.array([_takes_path(call) for call in calls] or [False], np.bool_)
        """Code of ``operations.call`` → True if the call may have rows of paths."""
        self._requests = np.array([op in operations.requests for op in RequestOp], np.bool_)
        self._opcodes = _opcodes(criteria.filter)
        self._ways = np.array([_passes_via(criteria.filter, path) for path in RingPath], np.bool_)
        self._numbers = self.filter.of("size", "latency", "pid", "tid")
        self._of_tasks = self.filter.of("comm", "cgroup")
        self._of_files = self.filter.of("path", "device")
        self._own = [below_cgroup(criteria.requests_of_cgroup)] if criteria.requests_of_cgroup else []
        self._task_passes, self._task_asks = Numbered(np.bool_, missing=False), Numbered(np.bool_, missing=False)
        self._task_pid = Numbered(np.uint32, UNKNOWN_U32)
        self._file_hits = [Numbered(np.bool_, missing=False) for _ in self._of_files]
        self._given_hits = [NumberSet() for _ in self._of_files]
        self._given = NumberSet()
        """Ids of calls with a path whose directory is known."""
        self._file_has = {field: Numbered(np.bool_, missing=False) for field in ("path", "device")}
        self._handle_file = Numbered(np.uint32, UNKNOWN_U32)

    @property
    def columns_suffice(self) -> bool:
        """True if a call's own columns decide, without its thread or file."""
        return not self._of_tasks and not self._of_files

    @property
    def ring_columns_suffice(self) -> bool:
        """True if the own columns of a ring's request decide."""
        return self.columns_suffice and not self._own

    # ---- what is learnt ----

    def learn(self, batch: Batch) -> None:
        """Take the facts of a batch about threads, files and handles."""
        self._learn_tasks(batch)
        self._learn_files(batch)
        self._learn_paths(batch)
        self._handle_file.put(batch.handles["handle"], batch.handles["file"])

    def _learn_tasks(self, batch: Batch) -> None:
        tasks = batch.tasks
        self._task_pid.put(tasks["task"], tasks["pid"])
        if not self._of_tasks and not self._own:
            return
        comms, cgroups = _texts(tasks, "comm", batch.text), _texts(tasks, "cgroup", batch.text)
        facts = [{"comm": comm, "cgroup": cgroup} for comm, cgroup in zip(comms, cgroups, strict=True)]
        passes = [all(_holds(one, fact[one.field]) for one in self._of_tasks) for fact in facts]
        asks = [all(_holds(one, fact["cgroup"]) for one in self._own) for fact in facts]
        self._task_passes.put(tasks["task"], passes)
        self._task_asks.put(tasks["task"], asks)

    def _learn_files(self, batch: Batch) -> None:
        files = batch.files
        if not self._of_files or not len(files["file"]):
            return
        paths = _texts(files, "path", batch.text)
        rows = zip(*(files[name].tolist() for name in ("device", "mode", "mount")), paths, strict=True)
        names = [self._devices.of_file(device, mode, mount, path) for device, mode, mount, path in rows]
        for comparison, hits in zip(self._of_files, self._file_hits, strict=True):
            if comparison.field == "path":
                hits.put(files["file"], [path != "" and comparison.accepts(path) for path in paths])
            else:
                hits.put(files["file"], [any(map(comparison.accepts, of_file)) for of_file in names])
        self._file_has["path"].put(files["file"], [bool(path) for path in paths])
        self._file_has["device"].put(files["file"], [bool(of_file) for of_file in names])

    def _learn_paths(self, batch: Batch) -> None:
        asked = [(one, hits) for one, hits in zip(self._of_files, self._given_hits, strict=True) if one.field == "path"]
        if not asked:
            return
        known = (batch.paths["source"] != 0) & (batch.paths["directory_length"] != 0)
        rows = {name: column[known] for name, column in batch.paths.items()}
        given, directories = _texts(rows, "path", batch.text), _texts(rows, "directory", batch.text)
        paths = [whole_path(directory, path) for directory, path in zip(directories, given, strict=True)]
        self._given.add(rows["operation"])
        for comparison, hits in asked:
            hits.add(rows["operation"][np.array([comparison.accepts(path) for path in paths], np.bool_)])

    def file_of(self, handles: NDArray[Any]) -> NDArray[np.uint32]:
        """The handles' rows of the files table; UNKNOWN_U32: none."""
        return self._handle_file.at(handles)

    def _by_numbers(self, rows: Columns, span: tuple[NDArray[Any], NDArray[Any]], size: NDArray[Any]) -> Flags:
        """Rows with the wanted duration, size and numbers. A number without a column in the table is the thread's."""
        begin, end = span
        passes = np.ones(len(begin), np.bool_)
        for comparison in self._numbers:
            if comparison.field == "latency":
                passes &= _compare(comparison, end - begin, (begin != UNKNOWN_I64) & (end != UNKNOWN_I64))
            elif comparison.field == "size":
                passes &= _compare(comparison, size, size != UNKNOWN_I64)
            elif comparison.field in rows:
                values = rows[comparison.field]
                passes &= _compare(comparison, values, values != UNKNOWN_U32)
        return passes

    # ---- calls ----

    def calls_by_columns(self, operations: Columns) -> Flags:
        """Calls that their own columns let pass."""
        span = operations["begin_time_ns"], operations["end_time_ns"]
        return self._calls[operations["call"]] & self._by_numbers(operations, span, operations["bytes_request"])

    def calls_by_subjects(
        self, task: NDArray[Any], handle: NDArray[Any], handle2: NDArray[Any], ids: NDArray[Any] | None = None
    ) -> Flags:
        """Calls whose thread and files pass. All subjects must be known.

        A call without a handle is about the paths that it was given. They are looked up if ``ids`` are given.
        """
        passes = self._task_passes.at(task) if self._of_tasks else np.ones(len(task), np.bool_)
        if self._of_files:
            files = self.file_of(handle), self.file_of(handle2)
            bare = (handle == UNKNOWN_U32) & (handle2 == UNKNOWN_U32)
        for comparison, hits, given in zip(self._of_files, self._file_hits, self._given_hits, strict=True):
            hit = hits.at(files[0]) | hits.at(files[1])
            if ids is not None and comparison.field == "path":
                hit |= bare & given.holds(ids)
            if comparison.negative:
                has = self._file_has[comparison.field].at(files[0]) | self._file_has[comparison.field].at(files[1])
                if ids is not None and comparison.field == "path":
                    has |= bare & self._given.holds(ids)
                hit = has & ~hit
            passes &= hit
        return passes

    # ---- requests of rings ----

    def rings_by_columns(self, requests: Columns) -> Flags:
        """Requests of rings that their own columns let pass."""
        passes = self._opcodes[requests["opcode"]] & self._ways[requests["path"]]
        span = requests["submit_time_ns"], requests["complete_time_ns"]
        return passes & self._by_numbers(requests, span, requests["bytes_result"])

    def rings_by_subjects(self, task: NDArray[Any], handle: NDArray[Any], handle2: NDArray[Any]) -> Flags:
        """Requests of rings whose submitter and files pass. All subjects must be known."""
        return self.calls_by_subjects(task, handle, handle2) & self.requests_recorded(task)

    # ---- requests of disks ----

    def requests_by_columns(self, requests: Columns) -> Flags:
        """Requests that their own columns let pass."""
        if self.filter.of("path"):
            return np.zeros(len(requests["id"]), np.bool_)
        inserted, issued = requests["insert_time_ns"], requests["bytes_issued"]
        begin = np.where(inserted == UNKNOWN_I64, requests["issue_time_ns"], inserted)
        size = np.where(issued == UNKNOWN_I64, requests["bytes_request"], issued)
        passes = self._requests[requests["operation"]]
        passes &= self._by_numbers(requests, (begin, requests["complete_time_ns"]), size)
        for comparison in self.filter.of("device"):
            passes &= self._devices.of_requests(comparison, requests) ^ comparison.negative
        return passes

    def requests_recorded(self, task: NDArray[Any]) -> Flags:
        """Requests of threads of the recorded cgroup."""
        return self._task_asks.at(task) if self._own else np.ones(len(task), np.bool_)

    def requests_by_subjects(self, task: NDArray[Any]) -> Flags:
        """Requests whose thread passes. The thread must be known."""
        passes = self.requests_recorded(task)
        if self._of_tasks:
            passes &= self._task_passes.at(task)
        for comparison in self.filter.of("pid"):
            pid = self._task_pid.at(task)
            passes &= _compare(comparison, pid, pid != UNKNOWN_U32)
        return passes


def whole_path(directory: str, path: str) -> str:
    """A path joined to the directory that it starts at. Dots and symbolic links stay."""
    return f"{directory.rstrip('/')}/{path.lstrip('/')}" if path else directory


def _takes_path(call: CallSpec) -> bool:
    return not call.fields.keys().isdisjoint(("path", "path2"))


def _opcodes(chosen: Filter) -> Flags:
    """Number of an opcode → True if it passes.

    Opcodes without a name pass only if no comparison is about operations.
    """
    passes = np.zeros(NR_OPCODES, np.bool_)
    named = chosen.operations().opcodes
    passes[list(named)] = True
    if named and not chosen.of("operation", "opcode"):
        passes[:] = True
    return passes


def _passes_via(chosen: Filter, path: RingPath) -> bool:
    """True if a path passes the comparisons of ``via``. An unknown path passes none."""
    return not (comparisons := chosen.of("via")) or (
        path is not RingPath.UNKNOWN and all(one.accepts(path.name.lower()) is not one.negative for one in comparisons)
    )


class _Devices:
    """The names of a file's or request's device: its own, its disk's, its partition's, and their numbers."""

    def __init__(self, devices: Sequence[BlockDevice], mounts: Sequence[Mount]) -> None:
        self._devices = devices
        self._by_number = {device.device: device for device in devices}
        self._sources = {mount.id: mount.source for mount in mounts}

    def of_file(self, st_dev: int, mode: int, mount: int, path: str) -> frozenset[str]:
        """The names of a file's device. Empty: the file is on no known block device."""
        found = self._by_number.get(kernel_dev(os.major(st_dev), os.minor(st_dev)))
        if stat.S_ISBLK(mode):  # the file is the device
            found = find_device(path.removeprefix("/dev/"), self._devices)
        elif found is None:  # a file system on several devices has a number of its own
            found = find_device(self._sources.get(mount, "").removeprefix("/dev/"), self._devices)
        if found is None:
            return frozenset()
        names = self._names(found.device)
        return names if found.disk is None else names | self._names(found.disk)

    def _names(self, number: int) -> frozenset[str]:
        major, minor = split_kernel_dev(number)
        device = self._by_number.get(number)
        return frozenset({f"{major}:{minor}", *([] if device is None else [device.name])})

    def of_requests(self, comparison: Comparison, requests: Columns) -> Flags:
        """Requests whose disk, or the partition of their first sector, has a name that the comparison accepts."""
        hit = np.zeros(len(requests["id"]), np.bool_)
        for number in np.unique(requests["device"]).tolist():
            here = requests["device"] == number
            if any(map(comparison.accepts, self._names(number))):
                hit |= here
                continue
            for part in self._devices:
                if part.disk != number or part.start_sector is None or part.size_bytes is None:
                    continue
                if any(map(comparison.accepts, self._names(part.device))):
                    sector, end = requests["sector"], part.start_sector + part.size_bytes // SECTOR_BYTES
                    inside = (sector >= part.start_sector) & (sector < end)
                    hit |= here & inside & (requests["operation"] != RequestOp.FLUSH)
        return hit


def _compare(comparison: Comparison, values: NDArray[Any], known: Flags) -> Flags:
    order = _ORDER.get(comparison.operator)
    if order is not None:
        hit: Flags = order(values, comparison.values[0])
    else:
        hit = np.isin(values, np.array(comparison.values, np.int64)) ^ comparison.negative
    return hit & known


def _holds(comparison: Comparison, text: str) -> bool:
    return bool(text) and comparison.accepts(text) is not comparison.negative


def _texts(columns: Columns, name: str, text: bytes) -> list[str]:
    r"""The texts of a column. The kernel's names are bytes; here they are UTF-8, with other bytes as ``\xNN``."""
    places = zip(columns[f"{name}_offset"].tolist(), columns[f"{name}_length"].tolist(), strict=True)
    return [text[at : at + length].decode("utf-8", errors="backslashreplace") for at, length in places]
