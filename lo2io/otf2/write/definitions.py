"""The definitions of a trace: clock, attributes, processes, threads, files and handles. Other modules write the rest.

The native loop numbers locations, handles, regions, calling contexts, metrics and the strings of devices and block
operations, in the order of first use. All other references are numbered here. Comments name the demands of readers.
"""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING, Any

from lo2io.kernel.procfs import container_id
from lo2io.model import UNKNOWN_U32
from lo2io.model.command_lines import process_name
from lo2io.native._lib import lib
from lo2io.otf2.library import UNDEFINED_U32
from lo2io.otf2.values import value
from lo2io.otf2.write.handles import MOST_REFS, HandleTable, name_used
from lo2io.otf2.write.metrics import write_metrics
from lo2io.otf2.write.parts import HOST_NODE, MACHINE_NODE, Parts, Trace
from lo2io.otf2.write.regions import write_contexts, write_regions
from lo2io.otf2.write.rings import (
    RING_ATTRIBUTES,
    define_ring_handles,
    kinds_of_ring_handles,
    ring_texts,
    write_ring_metrics,
)
from lo2io.otf2.write.rows import FileRow, TaskRow, given_paths, known, realtime_at, request_operation
from lo2io.otf2.write.shared import COMMON, LIFE_ATTRIBUTES, Groups, write_shared_threads, write_thread
from lo2io.otf2.write.system import DeviceFile, write_cpus, write_devices
from lo2io.trace.columns import NAME_SOURCE

if TYPE_CHECKING:
    from lo2io.model import Mount
    from lo2io.otf2.write.archive import Definitions

NS_RESOLUTION = 1_000_000_000
BLOCK_PARADIGM = 1
"""Calls are of paradigm 0, POSIX."""
RING_PARADIGMS = {0: ("io_uring", "Linux io_uring"), 1: ("libaio", "Linux native asynchronous I/O")}
"""Kind of ring → identification and name. Of these only paradigms in use are written, as the last ones: readers demand
numbers without gaps."""

ATTRIBUTES = {
    "offset": ("Offset", "File offset of the operation in bytes", "UINT64"),
    "process_id": ("ProcessId", "Process that submitted the request", "UINT64"),
    "thread_id": ("ThreadId", "Thread that submitted the request", "UINT64"),
    "error": ("errno", "Error number of the operation that failed", "UINT32"),
    "sector": ("Sector", "First sector of the request, in units of 512 bytes", "UINT64"),
    "operation": (
        "Operation",
        "Of a disk's request: operation and flags in the manner of the kernel's rwbs; of a ring's: its opcode",
        "STRING",
    ),
    "in_flight": (
        "InFlight",
        "1: what is left here had not ended, or its end was lost; this is not the time of its end",
        "UINT8",
    ),
    "access_unknown": (
        "AccessModeUnknown",
        "1: the flags of this open are not known; READ_WRITE excludes nothing",
        "UINT8",
    ),
    "event": ("Event", "What a sample saw of the request: insert, issue, complete or merge", "STRING"),
    "device": ("Device", "Disk of the request", "STRING"),
    "bytes": ("Bytes", "Bytes asked for (insert), issued (issue), moved in all (complete)", "UINT64"),
    "request_id": ("RequestId", "The request's id in lo2io's tables, and its matching id", "UINT64"),
    "queue_latency": ("QueueLatency", "Time from insert to issue in ns", "UINT64"),
    "device_latency": ("DeviceLatency", "Time from issue to completion in ns", "UINT64"),
    "given_path": ("Path", "Path that the call was given, after the directory it starts in", "STRING"),
    "given_path2": ("Path 2", "Second path that the call was given, likewise: the new name", "STRING"),
}
"""Member of ``lo2_otf2_attributes`` → name, description, type. The references are the places in this order."""
CACHE_ATTRIBUTES = {
    "cache": ("Cache", "What the read found in the page cache: none, memory, hit, wait or miss", "STRING"),
    "missed_pages": ("Missed pages", "Pages of the read that it put into the page cache itself", "UINT64"),
    "ahead_pages": ("Ahead pages", "Other pages of the file that the read put into the page cache", "UINT64"),
}
"""Further attributes, for traces with such reads only."""
PART_ATTRIBUTES = {
    "inode": ("Inode", "Of the one file whose bytes the request carried, as in the file's property", "UINT64"),
}
"""Further attributes, for traces with such requests only."""
END_ATTRIBUTES = {
    "end_inferred": (
        "EndInferred",
        "1: nobody saw this request end; here is the latest moment at which it may have ended",
        "UINT8",
    ),
    "end_earliest": ("EndEarliest", "The earliest such moment, as a time stamp of the trace", "UINT64"),
}
"""Further attributes, for traces with inferred ends only."""
WAIT_ATTRIBUTES = {
    "woken_by": ("Woken by", "Thread that ran where this one was woken; 0: an interrupt on an idle CPU", "UINT64"),
}
"""Further attributes, for traces with wakeups only."""
WRITE_BACK_ATTRIBUTES = {
    "reason": ("Reason", "Why a worker of the kernel wrote pages back with this request: the kernel's name", "STRING"),
    "charged_to": ("Charged to", "The one thread that caused all writes of files' data in this request", "UINT64"),
}
"""Further attributes, for traces with such requests only."""
TOLD_ATTRIBUTES = {
    "call_id": ("Call id", "The call's id in lo2io's tables, and its matching id: lo2io why T --call ID", "UINT64"),
    "run_queue": ("Run queue", "Time in ns in which the call's thread could run, and others had the CPUs", "UINT64"),
    "blocked": ("Blocked", "Time in ns in which the call's thread waited: the sum of its waits", "UINT64"),
    "fuse_requests": (
        "FUSE requests",
        "Requests that the call's thread sent to servers of FUSE file systems",
        "UINT64",
    ),
    "fuse_time": ("FUSE time", "Time in ns of those that ended before the call did, added up", "UINT64"),
    "nr_requests": ("Block requests", "Requests that the call's thread submitted to disks meanwhile", "UINT64"),
    "first_request": ("First block request", "RequestId, and matching id, of the first of these", "UINT64"),
    "last_request": (
        "Last block request",
        "Of the last of these: they are the requests of this ThreadId from the first id to the last one",
        "UINT64",
    ),
}
"""Further attributes, for traces with calls that waited, or sent requests, only."""
STACK_ATTRIBUTES = {
    "call_stack": ("Call stack", "The functions of the program that led to the call, the outermost first", "STRING"),
}
"""Further attributes, for traces with programs' stacks only."""
SAMPLE_EVENTS = ("insert", "issue", "complete", "merge")
"""Values of the attribute ``Event``. Their strings follow the empty string."""


class Writer:
    """Writes the definitions of one trace. A definition comes before all that refer to it."""

    def __init__(self, definitions: Definitions, trace: Trace) -> None:
        self._out = definitions
        self._trace = trace
        self._parts = Parts(definitions, trace)
        self._next_file = 0
        self._files: dict[int, int] = {}
        kinds = sorted(set(kinds_of_ring_handles(trace)))
        self._ring_paradigms = {kind: BLOCK_PARADIGM + 1 + number for number, kind in enumerate(kinds)}

    def write_all(self) -> None:
        """Write all definitions in order."""
        self._clock_and_strings()
        self._paradigms()
        self._attributes()
        self._parts.node("machine", "machine", UNDEFINED_U32, ("MACHINE",))
        self._parts.node(self._trace.meta.hostname or "localhost", "node", MACHINE_NODE, ("SHARED_MEMORY",))
        write_regions(self._parts)
        write_contexts(self._parts, samples=self._trace.layout.samples)
        self._processes()
        write_cpus(self._parts)
        handles = write_devices(self._parts)
        write_metrics(self._parts)
        self._handles(handles)

    def _clock_and_strings(self) -> None:
        trace = self._trace
        span = trace.stop_ns - trace.start_ns
        realtime = realtime_at(trace.meta.syncs, trace.start_ns)
        self._out.write("ClockProperties", NS_RESOLUTION, trace.start_ns, span, realtime)
        self._out.string("")
        if trace.layout.samples:
            for event in SAMPLE_EVENTS:
                self._out.string(event)
        view = trace.view
        devices = (view.devices[index] for index in range(view.nr_devices))
        used = {device.string: trace.device_name(device.number) for device in devices if known(device.string)}
        codes = ((code, view.strings[code]) for code in range(256))
        used |= {ref: request_operation(code) for code, ref in codes if known(ref)}
        used |= ring_texts(trace) | given_paths(trace.view)
        for ref in sorted(used):
            self._out.string(used[ref], ref)

    def _paradigms(self) -> None:
        serial, of_os = value("IO_PARADIGM_CLASS_SERIAL"), value("IO_PARADIGM_FLAG_OS")
        rings = (RING_PARADIGMS[kind] for kind in self._ring_paradigms)
        named = (("POSIX", "POSIX I/O"), ("block_io", "Linux block layer"), *rings)
        for ref, (identification, name) in enumerate(named):
            strings = self._out.string(identification), self._out.string(name)
            self._out.write("IoParadigm", ref, *strings, serial, of_os, 0, None, None, None)

    def _attributes(self) -> None:
        """Write groups of attributes up to the last that events use. otf2-print refuses gaps between references."""
        view = self._trace.view
        groups = (
            (ATTRIBUTES, True),
            (TOLD_ATTRIBUTES, view.tells_calls),
            (RING_ATTRIBUTES, view.uses_rings),
            (LIFE_ATTRIBUTES, view.shares_threads),
            (END_ATTRIBUTES, view.has_unseen_ends),
            (CACHE_ATTRIBUTES, view.uses_cache),
            (PART_ATTRIBUTES, view.uses_parts),
            (WAIT_ATTRIBUTES, view.has_wakers),
            (WRITE_BACK_ATTRIBUTES, view.has_write_backs),
            (STACK_ATTRIBUTES, view.has_stacks),
        )
        last = max(index for index, (_, used) in enumerate(groups) if used)
        attributes = [attribute for group, _ in groups[: last + 1] for attribute in group.values()]
        for ref, (name, description, kind) in enumerate(attributes):
            self._out.write(
                "Attribute", ref, self._out.string(name), self._out.string(description), value(f"TYPE_{kind}")
            )

    # ---- processes and threads ----

    def _task_of(self, location: Any) -> TaskRow:
        """The row of a location's thread. A thread without a row is alone in its process."""
        row = self._trace.rows.tasks.get(location.key)
        if row is not None:
            return row
        process = UNKNOWN_U32 + 1 + location.pid  # beyond every process of the table
        return TaskRow(location.key, process, location.pid, location.tid, UNKNOWN_U32, 0, "")

    def _processes(self) -> None:
        view = self._trace.view
        threads: dict[int, list[tuple[int, TaskRow]]] = {}
        for location in range(view.nr_locations):
            found = view.locations[location]
            if found.kind == lib.LO2_OTF2_TASK and not (found.shared and found.group == COMMON):
                row = self._task_of(found)
                threads.setdefault(row.process, []).append((location, row))
        rows = self._trace.rows.tasks.values()
        names = {row.process: process_name(row.comm, row.cmdline) for row in rows if row.tid == row.pid}
        lines = {row.process: row.cmdline for row in rows if row.cmdline}
        cgroups = {row.process: row.cgroup for row in rows if row.cgroup}
        groups = Groups(self._parts)
        for process in sorted(threads):
            first, row = threads[process][0]
            if not known(row.pid):
                group = self._parts.group("no process recorded", HOST_NODE)
                self._parts.location(first, "no thread recorded", group)
                continue
            name = f"{names.get(process) or row.comm or 'process'} [{row.pid}]"
            name = f"rank {row.rank}: {name}" if known(row.rank) else name
            creator = groups.find(row.parent_process)
            group = self._parts.group(name, HOST_NODE, UNDEFINED_U32 if creator is None else creator)
            groups.add(process, view.locations[first].group, group, name)
            self._parts.number_property("LocationGroupProperty", group, "Process ID", row.pid)
            if known(row.rank):
                self._parts.number_property("LocationGroupProperty", group, "MPI rank", row.rank)
            if process in lines:
                self._parts.text_property("LocationGroupProperty", group, "Command Line", lines[process])
            self._containment(group, cgroups.get(process, ""))
            for location, thread in threads[process]:
                if view.locations[location].shared:
                    continue
                self._parts.location(location, f"thread {thread.comm or 'of process'} {thread.tid}", group)
                write_thread(self._parts, location, thread)
        write_shared_threads(self._parts, groups)
        self._process_metrics(groups)
        write_ring_metrics(self._parts, groups)

    def _containment(self, group: int, cgroup: str) -> None:
        """Write the process' cgroup, and its container if the cgroup's path holds the id of one."""
        if not cgroup:
            return
        self._parts.text_property("LocationGroupProperty", group, "Cgroup", cgroup)
        container = container_id(cgroup)
        if container:
            self._parts.text_property("LocationGroupProperty", group, "Container", container)

    def _process_metrics(self, groups: Groups) -> None:
        """Write a metric location for each process that moved bytes, in its group or a shared one."""
        view = self._trace.view
        for location in range(view.nr_locations):
            if view.locations[location].kind == lib.LO2_OTF2_PROCESS_METRICS:
                row = self._task_of(view.locations[location])
                group, name = groups.find(row.process), f"metrics of process {row.pid}"
                if group is None or view.locations[location].shared:
                    group, whose = groups.shared(view.locations[location])
                    name = f"metrics of {whose}"
                self._parts.location(location, name, group, "METRIC")
                self._parts.scopes[location] = ("LOCATION_GROUP", group)

    # ---- files and handles ----

    def _file(self, name: str, scope: int, record: str = "IoRegularFile") -> int:
        ref, self._next_file = self._next_file, self._next_file + 1
        self._out.write(record, ref, self._out.string(name), scope)
        return ref

    def _file_of_row(self, number: int, row: FileRow) -> int:
        if number in self._files:
            return self._files[number]
        record = "IoDirectory" if stat.S_ISDIR(row.mode) else "IoRegularFile"
        ref = self._files[number] = self._file(row.path, HOST_NODE, record)
        mount = self._mount_of(row)
        if mount is not None:
            # Score-P uses the same names for these properties.
            self._parts.text_property("IoFileProperty", ref, "Mount Point", mount.mount_point)
            self._parts.text_property("IoFileProperty", ref, "Mount Source", mount.source)
            self._parts.text_property("IoFileProperty", ref, "File system", mount.fs_type)
        if row.inode:
            device = f"{os.major(row.device)}:{os.minor(row.device)}"
            self._parts.text_property("IoFileProperty", ref, "Device", device)
            self._parts.number_property("IoFileProperty", ref, "Inode", row.inode)
        if row.name_source:
            self._parts.text_property("IoFileProperty", ref, "Name Source", NAME_SOURCE[row.name_source])
        if row.mode and not stat.S_ISREG(row.mode) and not stat.S_ISDIR(row.mode):
            self._parts.text_property("IoFileProperty", ref, "Type", _file_type(row.mode))
        return ref

    def _mount_of(self, row: FileRow) -> Mount | None:
        """The file's mount, by id, since a device may be mounted twice. Mounts made after the beginning are unknown."""
        return next((mount for mount in self._trace.meta.mounts if mount.id == row.mount), None)

    def _name_of_file(self, number: int) -> tuple[int, int] | None:
        row = self._trace.rows.files.get(number)
        if row is None or not row.path:
            return None
        return self._out.string(row.path), self._file_of_row(number, row)

    def _handles(self, devices: dict[int, DeviceFile]) -> None:
        """Write the handles in the order of their references, as readers demand; ``devices`` by reference."""
        trace = self._trace
        name_used(trace.native, trace.rows.handles)
        processes = (trace.view.processes[index] for index in range(trace.view.nr_processes))
        syncs = sorted(process.handle for process in processes if known(process.handle))
        count = trace.view.nr_handle_refs
        for first in range(0, count, MOST_REFS):
            table = HandleTable(trace.native, trace.rows.handles, range(first, min(first + MOST_REFS, count)))
            define_ring_handles(self._parts, table, self._ring_paradigms)
            table.name_by_file(self._name_of_file)
            table.name_by_fd(self._out.string)
            for ref in filter(table.__contains__, syncs):
                # sync(2) flushes all files, so its handle is a proxy without a file.
                flags = value("IO_HANDLE_FLAG_PRE_CREATED") | value("IO_HANDLE_FLAG_ALL_PROXY")
                table.replace(ref, self._out.string("sync"), UNDEFINED_U32, flags, value("IO_ACCESS_MODE_WRITE_ONLY"))
            for ref in filter(table.__contains__, devices):
                self._device(table, ref, devices[ref])
            self._out.handles(table.native())

    def _device(self, table: HandleTable, ref: int, device: DeviceFile) -> None:
        flags, access = value("IO_HANDLE_FLAG_PRE_CREATED"), value("IO_ACCESS_MODE_READ_WRITE")
        file = self._file(device.path, device.node)
        table.replace(ref, self._out.string(device.name), file, flags, access, paradigm=BLOCK_PARADIGM)


def _file_type(mode: int) -> str:
    kinds = (
        (stat.S_ISFIFO, "pipe"),
        (stat.S_ISSOCK, "socket"),
        (stat.S_ISCHR, "character device"),
        (stat.S_ISBLK, "block device"),
        (stat.S_ISLNK, "symbolic link"),
    )
    return next((name for test, name in kinds if test(mode)), "anonymous inode")
