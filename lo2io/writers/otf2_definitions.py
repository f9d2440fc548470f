"""The definitions of a trace: clock, system tree, processes, threads, regions, files, handles, devices.

References: locations, handles, regions and the strings of block operations were numbered by the native loop in the
order of first use; all else is numbered here. What readers rely on is stated at each place.
"""

from __future__ import annotations

import ctypes
import os
import stat
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lo2io._native._lib import lib
from lo2io.model import UNKNOWN_U32, CallKind, CallSpec
from lo2io.units import split_kernel_dev
from lo2io.writers.otf2_handles import HandleTable
from lo2io.writers.otf2_library import UNDEFINED_U32, value
from lo2io.writers.otf2_rows import FileRow, Rows, TaskRow, known, realtime_at, request_operation

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lo2io.model import BlockDevice, Mount, SpoolMeta
    from lo2io.writers.otf2_archive import Definitions

NS_RESOLUTION = 1_000_000_000
HOST_NODE = 0
"""The system tree's root."""
POSIX_PARADIGM, BLOCK_PARADIGM = 0, 1

ATTRIBUTES = {
    "offset": ("Offset", "File offset of the operation in bytes", "TYPE_UINT64"),
    "process_id": ("ProcessId", "Process that submitted the request", "TYPE_UINT64"),
    "thread_id": ("ThreadId", "Thread that submitted the request", "TYPE_UINT64"),
    "error": ("errno", "Error number of the operation that failed", "TYPE_UINT32"),
    "sector": ("Sector", "First sector of the request, in units of 512 bytes", "TYPE_UINT64"),
    "operation": ("Operation", "Operation and flags in the manner of the kernel's rwbs", "TYPE_STRING"),
    "in_flight": (
        "InFlight",
        "1: the call had not returned, or its return was lost; this is not the time of its return",
        "TYPE_UINT8",
    ),
    "access_unknown": (
        "AccessModeUnknown",
        "1: the flags of this open are not known; READ_WRITE excludes nothing",
        "TYPE_UINT8",
    ),
}
"""Member of ``lo2_otf2_attributes`` → name, description, type. The references are the places in this order."""

_KINDS = {
    CallKind.READ: "I/O read",
    CallKind.WRITE: "I/O write",
    CallKind.SYNC: "I/O sync",
    CallKind.COPY: "I/O copy",
    CallKind.OPEN: "I/O open and close",
    CallKind.CLOSE: "I/O open and close",
    CallKind.CLOSE_RANGE: "I/O open and close",
    CallKind.SEEK: "I/O seek",
    CallKind.DUP: "I/O descriptors",
    CallKind.DUP_TO: "I/O descriptors",
    CallKind.FCNTL: "I/O descriptors",
    CallKind.IOCTL: "I/O descriptors",
    CallKind.CLONE: "Processes",
    CallKind.UNSHARE: "Processes",
    CallKind.META: "I/O metadata",
}


@dataclass(slots=True)
class Trace:
    """All that definitions are made of."""

    meta: SpoolMeta
    calls: Sequence[CallSpec]
    rows: Rows
    native: Any
    """``lo2_otf2_writer *``."""
    start_ns: int
    stop_ns: int

    @property
    def view(self) -> Any:
        """``lo2_otf2_view *``, read anew: references may have been given out since."""
        return lib.lo2_otf2_state(self.native)


class Writer:
    """Writes the definitions of one trace, each kind once, what is referred to before what refers to it."""

    def __init__(self, definitions: Definitions, trace: Trace) -> None:
        self._out = definitions
        self._trace = trace
        self._names: set[str] = set()
        self._next_node = HOST_NODE + 1
        self._next_group = 0
        self._next_file = 0
        self._proxies: set[int] = set()
        self._device_handles: dict[int, tuple[str, int]] = {}
        self._files: dict[int, int] = {}
        self._string_type = value("TYPE_STRING")

    def write_all(self) -> None:
        """Everything, in order."""
        self._clock_and_strings()
        self._paradigms()
        self._attributes()
        self._node(HOST_NODE, self._trace.meta.hostname or "localhost", "host", UNDEFINED_U32)
        for domain in ("MACHINE", "SHARED_MEMORY"):
            self._out.write("SystemTreeNodeDomain", HOST_NODE, value(f"SYSTEM_TREE_DOMAIN_{domain}"))
        self._regions()
        self._processes()
        self._devices()
        self._handles()

    # ---- small things ----

    def _unique(self, name: str) -> int:
        """A string for a node, group or location: ViTE aborts when two of them bear the same name."""
        candidate, count = name, 1
        while candidate in self._names:
            count += 1
            candidate = f"{name} ({count})"
        self._names.add(candidate)
        return self._out.string(candidate)

    def _node(self, ref: int, name: str, class_name: str, parent: int) -> None:
        self._out.write("SystemTreeNode", ref, self._unique(name), self._out.string(class_name), parent)

    def _text_property(self, record: str, ref: int, name: str, text: str) -> None:
        self._out.write(record, ref, self._out.string(name), self._string_type, self._out.string(text))

    def _number_property(self, record: str, ref: int, name: str, number: int) -> None:
        self._out.write(record, ref, self._out.string(name), value("TYPE_UINT64"), number)

    def _clock_and_strings(self) -> None:
        trace = self._trace
        span = trace.stop_ns - trace.start_ns
        realtime = realtime_at(trace.meta.syncs, trace.start_ns)
        self._out.write("ClockProperties", NS_RESOLUTION, trace.start_ns, span, realtime)
        self._out.string("")
        strings = trace.view.strings
        used = {strings[code]: code for code in range(256) if known(strings[code])}
        for ref in sorted(used):
            self._out.string(request_operation(used[ref]), ref)

    def _paradigms(self) -> None:
        serial, of_os = value("IO_PARADIGM_CLASS_SERIAL"), value("IO_PARADIGM_FLAG_OS")
        for ref, identification, name in (
            (POSIX_PARADIGM, "POSIX", "POSIX I/O"),
            (BLOCK_PARADIGM, "block_io", "Linux block layer"),
        ):
            strings = self._out.string(identification), self._out.string(name)
            self._out.write("IoParadigm", ref, *strings, serial, of_os, 0, None, None, None)

    def _attributes(self) -> None:
        for ref, (name, description, kind) in enumerate(ATTRIBUTES.values()):
            self._out.write("Attribute", ref, self._out.string(name), self._out.string(description), value(kind))

    def _regions(self) -> None:
        groups: dict[str, list[int]] = {}
        regions = self._trace.view.regions
        used = {regions[code]: spec for code, spec in enumerate(self._trace.calls) if known(regions[code])}
        for ref, spec in sorted(used.items(), key=lambda item: item[0]):
            role = value(f"REGION_ROLE_{spec.region_role.upper()}")
            names = (self._out.string(text) for text in (spec.abi_name, spec.name, spec.summary))
            none = value("PARADIGM_NONE"), value("REGION_FLAG_NONE")
            self._out.write("Region", ref, *names, role, *none, self._out.string(""), 0, 0)
            groups.setdefault(_KINDS[spec.kind], []).append(ref)
        # Viewers colour by these groups.
        for ref, (name, members) in enumerate(sorted(groups.items())):
            array = (ctypes.c_uint64 * len(members))(*members)
            kind, paradigm, flags = value("GROUP_TYPE_REGIONS"), value("PARADIGM_NONE"), value("GROUP_FLAG_NONE")
            self._out.write("Group", ref, self._out.string(name), kind, paradigm, flags, len(members), array)

    # ---- processes and threads ----

    def _task_of(self, location: Any) -> TaskRow:
        """The row of a location's thread; threads the engine gave none stand alone in their process."""
        row = self._trace.rows.tasks.get(location.key)
        if row is not None:
            return row
        process = UNKNOWN_U32 + 1 + location.pid  # beyond every process of the table
        return TaskRow(location.key, process, location.pid, location.tid, UNKNOWN_U32, 0, "")

    def _processes(self) -> None:
        view = self._trace.view
        threads: dict[int, list[tuple[int, TaskRow]]] = {}
        for location in range(view.nr_locations):
            if view.locations[location].kind == lib.LO2_OTF2_TASK:
                row = self._task_of(view.locations[location])
                self._proxies.add(view.locations[location].handle)
                threads.setdefault(row.process, []).append((location, row))
        names = {row.process: row.comm for row in self._trace.rows.tasks.values() if row.tid == row.pid}
        groups: dict[int, int] = {}
        for process in sorted(threads):
            row = threads[process][0][1]
            if not known(row.pid):
                location, _ = threads[process][0]
                self._location(location, "no thread recorded", self._location_group("no process recorded", HOST_NODE))
                continue
            group = groups[process] = self._location_group(
                f"{names.get(process) or row.comm or 'process'} [{row.pid}]",
                HOST_NODE,
                groups.get(row.parent_process, UNDEFINED_U32),
            )
            self._number_property("LocationGroupProperty", group, "Process ID", row.pid)
            for location, thread in threads[process]:
                self._location(location, f"thread {thread.comm or 'of process'} {thread.tid}", group)
                self._number_property("LocationProperty", location, "Thread ID", thread.tid)
                self._number_property("LocationProperty", location, "lo2io task", thread.task)

    def _location_group(self, name: str, node: int, creator: int = UNDEFINED_U32) -> int:
        ref, self._next_group = self._next_group, self._next_group + 1
        self._out.write("LocationGroup", ref, self._unique(name), value("LOCATION_GROUP_TYPE_PROCESS"), node, creator)
        return ref

    def _location(self, ref: int, name: str, group: int) -> None:
        count = self._trace.view.locations[ref].nr_events
        self._out.write("Location", ref, self._unique(name), value("LOCATION_TYPE_CPU_THREAD"), count, group)

    # ---- block devices ----

    def _devices(self) -> None:
        """A PROCESS group of one CPU_THREAD location per device: the only kind of location every reader handles."""
        view = self._trace.view
        found = [i for i in range(view.nr_locations) if view.locations[i].kind == lib.LO2_OTF2_DEVICE]
        if not found:
            return
        devices = {device.device: device for device in self._trace.meta.devices}
        parent, self._next_node = self._next_node, self._next_node + 1
        self._node(parent, "block devices", "block devices", HOST_NODE)
        for location in found:
            number = view.locations[location].key
            major, minor = split_kernel_dev(number)
            name = devices[number].name if number in devices else f"dev {major}:{minor}"
            node, self._next_node = self._next_node, self._next_node + 1
            self._node(node, name, "block device", parent)
            self._text_property("SystemTreeNodeProperty", node, "Device", f"{major}:{minor}")
            self._describe_device(node, devices.get(number))
            self._location(location, f"{name} requests", self._location_group(f"block {name}", node))
            file = self._file(f"/dev/{name}" if number in devices else name, node)
            self._device_handles[view.locations[location].handle] = (name, file)

    def _describe_device(self, node: int, device: BlockDevice | None) -> None:
        if device is None:
            return
        if device.scheduler:
            self._text_property("SystemTreeNodeProperty", node, "Scheduler", device.scheduler)
        if device.model:
            self._text_property("SystemTreeNodeProperty", node, "Model", device.model)
        if device.rotational is not None:
            self._text_property("SystemTreeNodeProperty", node, "Rotational", "yes" if device.rotational else "no")
        if device.size_bytes is not None:
            self._number_property("SystemTreeNodeProperty", node, "Size in bytes", device.size_bytes)

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
            # The names Score-P gives these properties.
            self._text_property("IoFileProperty", ref, "Mount Point", mount.mount_point)
            self._text_property("IoFileProperty", ref, "Mount Source", mount.source)
            self._text_property("IoFileProperty", ref, "File system", mount.fs_type)
        if row.inode:
            device = f"{os.major(row.device)}:{os.minor(row.device)}"
            self._text_property("IoFileProperty", ref, "Device", device)
            self._number_property("IoFileProperty", ref, "Inode", row.inode)
        if row.mode and not stat.S_ISREG(row.mode) and not stat.S_ISDIR(row.mode):
            self._text_property("IoFileProperty", ref, "Type", _file_type(row.mode))
        return ref

    def _mount_of(self, row: FileRow) -> Mount | None:
        """By its id; mounts that came or went while recording are not known, and devices may be mounted twice."""
        return next((mount for mount in self._trace.meta.mounts if mount.id == row.mount), None)

    def _name_of_file(self, number: int) -> tuple[int, int] | None:
        row = self._trace.rows.files.get(number)
        if row is None or not row.path:
            return None
        return self._out.string(row.path), self._file_of_row(number, row)

    def _handles(self) -> None:
        """In the order of their references, which readers demand."""
        trace = self._trace
        table = HandleTable(trace.native, trace.rows.handles())
        table.name_by_file(self._name_of_file)
        table.name_by_fd(self._out.string)
        for ref in self._proxies - {UNKNOWN_U32}:
            # What sync(2) flushes is everything: a proxy without a file.
            flags = value("IO_HANDLE_FLAG_PRE_CREATED") | value("IO_HANDLE_FLAG_ALL_PROXY")
            table.replace(ref, self._out.string("sync"), UNDEFINED_U32, flags, value("IO_ACCESS_MODE_WRITE_ONLY"))
        for ref, (name, file) in self._device_handles.items():
            flags, access = value("IO_HANDLE_FLAG_PRE_CREATED"), value("IO_ACCESS_MODE_READ_WRITE")
            table.replace(ref, self._out.string(name), file, flags, access, paradigm=BLOCK_PARADIGM)
        self._out.handles(table.native())


def _file_type(mode: int) -> str:
    kinds = (
        (stat.S_ISFIFO, "pipe"),
        (stat.S_ISSOCK, "socket"),
        (stat.S_ISCHR, "character device"),
        (stat.S_ISBLK, "block device"),
        (stat.S_ISLNK, "symbolic link"),
    )
    return next((name for test, name in kinds if test(mode)), "anonymous inode")
