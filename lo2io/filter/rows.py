"""Which rows of the engine's tables pass a filter, by their columns and subjects.

In: columns, and the rows that say what threads, files and handles are. Out: arrays of bools. A comparison about what a
row does not have (the path of a request, the size of an open, the name of a thread nobody knows) does not hold.
"""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from lo2io.filter.for_events import find_device
from lo2io.filter.language import Comparison, Filter, below_cgroup
from lo2io.model import UNKNOWN_I64, UNKNOWN_U32, CallKind, RequestOp, RingPath
from lo2io.model.number_sets import NumberSet
from lo2io.units import SECTOR_BYTES, kernel_dev, split_kernel_dev

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from lo2io.model import Batch, BlockDevice, CallSpec, Columns, Mount

    Flags = NDArray[np.bool_]

NR_OPCODES = 256
"""An opcode is a byte."""
_BATCHES = frozenset({CallKind.RING_ENTER, CallKind.AIO_SUBMIT, CallKind.AIO_COLLECT})
_ORDER = {"<": np.less, "<=": np.less_equal, ">": np.greater, ">=": np.greater_equal}


@dataclass(frozen=True, slots=True)
class Criteria:
    """What the user chose. False: everything passes."""

    filter: Filter = field(default_factory=Filter)
    requests_of_cgroup: str = ""
    """Requests, of disks and of rings, must come from a thread of this cgroup or of one below it; calls may come from
    any. What ``--cgroup`` leaves to converting: the kernel tells a call's cgroup, but a request completes in any
    thread."""

    def __bool__(self) -> bool:
        return bool(self.filter) or bool(self.requests_of_cgroup)


class Machine(Protocol):
    """What matching needs of a recording: ``SpoolMeta``, or its like from a trace's metadata."""

    @property
    def devices(self) -> Sequence[BlockDevice]: ...  # noqa: D102
    @property
    def mounts(self) -> Sequence[Mount]: ...  # noqa: D102


class Numbered:
    """A column by number. It is as long as the highest number that was set."""

    def __init__(self, dtype: type[Any], missing: Any) -> None:
        self._missing = missing
        self._array: NDArray[Any] = np.full(64, missing, dtype)

    def put(self, numbers: NDArray[Any], values: Any) -> None:
        """Set some; a number without a value has none of its own."""
        if not len(numbers):
            return
        need = int(numbers.max()) + 1
        if need > len(self._array):
            more = np.full(max(need, 2 * len(self._array)), self._missing, self._array.dtype)
            more[: len(self._array)] = self._array
            self._array = more
        self._array[numbers] = values

    def at(self, numbers: NDArray[Any]) -> NDArray[Any]:
        """The values of some."""
        inside = numbers < len(self._array)
        found = np.full(len(numbers), self._missing, self._array.dtype)
        found[inside] = self._array[numbers[inside]]
        return found

    def where(self) -> NDArray[np.intp]:
        """The numbers of all that are true."""
        return np.flatnonzero(self._array)


class Matcher:
    """Learns what threads, files and handles are, and says which rows pass.

    Args:
        criteria: What the user chose.
        meta: What was recorded: its devices and mounts.
        calls: By the codes of ``operations.call``.
    """

    def __init__(self, criteria: Criteria, meta: Machine, calls: Sequence[CallSpec]) -> None:
        self.filter = criteria.filter
        self._devices = _Devices(meta.devices, meta.mounts)
        operations = self.filter.operations()
        self._calls = np.array([call.name in operations.calls for call in calls] or [False], np.bool_)
        self.batch_calls = np.array([call.kind in _BATCHES for call in calls] or [False], np.bool_)
        """By the codes of ``operations.call``: what has a row of batches."""
        self.path_calls = np.array([_takes_path(call) for call in calls] or [False], np.bool_)
        """Likewise, what may have rows of paths."""
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
        """Whether a call's own columns decide, without its thread or file."""
        return not self._of_tasks and not self._of_files

    @property
    def ring_columns_suffice(self) -> bool:
        """The same of rings' requests."""
        return self.columns_suffice and not self._own

    # ---- what is learnt ----

    def learn(self, batch: Batch) -> None:
        """Take what a batch says of threads, files and handles."""
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
        """Rows of the files table; UNKNOWN_U32 where there is none."""
        return self._handle_file.at(handles)

    def _by_numbers(self, rows: Columns, span: tuple[NDArray[Any], NDArray[Any]], size: NDArray[Any]) -> Flags:
        """Rows whose duration, size and numbers are as asked for. A number they have no column of is their thread's."""
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
        """Calls whose thread and files pass. All must be known.

        Calls without a handle are about the paths they were given, which are looked up where ``ids`` are.
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
        """Requests of rings whose submitter and files pass. All must be known."""
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
        """Requests of threads of the cgroup that was to be recorded."""
        return self._task_asks.at(task) if self._own else np.ones(len(task), np.bool_)

    def requests_by_subjects(self, task: NDArray[Any]) -> Flags:
        """Requests whose thread passes. It must be known."""
        passes = self.requests_recorded(task)
        if self._of_tasks:
            passes &= self._task_passes.at(task)
        for comparison in self.filter.of("pid"):
            pid = self._task_pid.at(task)
            passes &= _compare(comparison, pid, pid != UNKNOWN_U32)
        return passes


def whole_path(directory: str, path: str) -> str:
    """A path behind the directory it starts at; dots and symbolic links in it stay."""
    return f"{directory.rstrip('/')}/{path.lstrip('/')}" if path else directory


def _takes_path(call: CallSpec) -> bool:
    return not call.fields.keys().isdisjoint(("path", "path2"))


def _opcodes(chosen: Filter) -> Flags:
    """Which opcodes pass, by number; those without a name only where nothing is said of what a request does."""
    passes = np.zeros(NR_OPCODES, np.bool_)
    named = chosen.operations().opcodes
    passes[list(named)] = True
    if named and not chosen.of("operation", "opcode"):
        passes[:] = True
    return passes


def _passes_via(chosen: Filter, path: RingPath) -> bool:
    """A way that is not known is none."""
    return not (comparisons := chosen.of("via")) or (
        path is not RingPath.UNKNOWN and all(one.accepts(path.name.lower()) is not one.negative for one in comparisons)
    )


class _Devices:
    """Which names the device of a file or a request bears: its own, its disk's, its partition's, and their numbers."""

    def __init__(self, devices: Sequence[BlockDevice], mounts: Sequence[Mount]) -> None:
        self._devices = devices
        self._by_number = {device.device: device for device in devices}
        self._sources = {mount.id: mount.source for mount in mounts}

    def of_file(self, st_dev: int, mode: int, mount: int, path: str) -> frozenset[str]:
        """Empty: it lies on no block device that is known."""
        found = self._by_number.get(kernel_dev(os.major(st_dev), os.minor(st_dev)))
        if stat.S_ISBLK(mode):  # the file is the device
            found = find_device(path.removeprefix("/dev/"), self._devices)
        elif found is None:  # file systems of several devices have a number of their own
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
        """Requests whose disk, or the partition that their first sector lies in, bears a name."""
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
    r"""Names are bytes to the kernel; in filters and tables they are UTF-8, other bytes as ``\\xNN``."""
    places = zip(columns[f"{name}_offset"].tolist(), columns[f"{name}_length"].tolist(), strict=True)
    return [text[at : at + length].decode("utf-8", errors="backslashreplace") for at, length in places]
