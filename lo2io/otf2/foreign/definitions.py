"""Definitions of another tool's trace as lo2io's tables of threads, handles, files and devices.

Facts that a definition lacks are unknown, e.g. ids of processes and threads, for which OTF2 has no field. Properties
that lo2io writes (``docs/reference/otf2.md``) are understood in any tool's archive.
"""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from lo2io.model import UNKNOWN_U32, BlockDevice
from lo2io.otf2.library import UNDEFINED_U32
from lo2io.otf2.read.definitions import HANDLE_PRE_CREATED, LOCATION_CPU_THREAD
from lo2io.trace.columns import NAME_SOURCE, ORIGIN
from lo2io.trace.reader import TABLES
from lo2io.units import kernel_dev

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from lo2io.model import Columns
    from lo2io.otf2.foreign.calls import HandleUse
    from lo2io.otf2.read.definitions import Definitions

_STRING: Final = 11
"""OTF2_TYPE_STRING."""
_NO_NUMBER: Final = 4095
"""Major number for disks whose own number is not known. Linux gives it to no device."""
_TYPES: Final = {
    "pipe": stat.S_IFIFO,
    "socket": stat.S_IFSOCK,
    "character device": stat.S_IFCHR,
    "block device": stat.S_IFBLK,
    "symbolic link": stat.S_IFLNK,
}
_STATUS: Final = {
    1 << 0: os.O_CLOEXEC, 1 << 1: os.O_APPEND, 1 << 2: os.O_NONBLOCK, 1 << 3: os.O_ASYNC, 1 << 4: os.O_SYNC,
    1 << 5: os.O_DSYNC, 1 << 6: os.O_DIRECT, 1 << 7: os.O_NOATIME,
}  # fmt: skip
"""OTF2_IoStatusFlag → O_*."""
_CREATION: Final = {
    1 << 0: os.O_CREAT, 1 << 1: os.O_TRUNC, 1 << 2: os.O_DIRECTORY, 1 << 3: os.O_EXCL, 1 << 4: os.O_NOCTTY,
    1 << 5: os.O_NOFOLLOW, 1 << 6: os.O_PATH,
}  # fmt: skip
"""OTF2_IoCreationFlag → O_*."""
_ACCESS: Final = (os.O_RDONLY, os.O_WRONLY, os.O_RDWR)


def make_columns(table: str, rows: int, **known: Any) -> Columns:
    """Columns of a table for its writer: the given ones, and the others filled with unknown or zero."""
    columns: Columns = {}
    for column in TABLES[table]:
        if column.kind == "number":
            dtype = np.dtype(column.dtype)
            given = known.pop(column.name, None)
            if given is None:
                columns[column.name] = np.full(rows, 0 if column.null is None else column.null, dtype)
            else:
                columns[column.name] = np.asarray(given).astype(dtype)
    return columns | {name: np.asarray(values, np.uint32) for name, values in known.items()}


class Texts:
    """Texts of a table's rows, concatenated."""

    def __init__(self) -> None:
        self.text = bytearray()

    def columns(self, name: str, values: Collection[bytes]) -> dict[str, list[int]]:
        """Add these texts; return the columns with their offsets and lengths."""
        offsets, lengths = [], []
        for value in values:
            offsets.append(len(self.text))
            lengths.append(len(value))
            self.text += value
        return {f"{name}_offset": offsets, f"{name}_length": lengths}


class Properties:
    """Properties of definitions, by their names: numbers, and strings as text."""

    def __init__(self, definitions: Definitions, record: str) -> None:
        self._of: dict[int, dict[str, int | str]] = {}
        for ref, name, kind, value in definitions.unnamed.get(record, ()):
            fact = definitions.text(value & UNDEFINED_U32) if kind == _STRING else value
            self._of.setdefault(ref, {})[definitions.text(name)] = fact

    def number(self, ref: int, name: str) -> int | None:
        """The value of a numeric property; None: there is none."""
        value = self._of.get(ref, {}).get(name)
        return value if isinstance(value, int) else None

    def text(self, ref: int, name: str) -> str | None:
        """The value of a text property; None: there is none."""
        value = self._of.get(ref, {}).get(name)
        return value if isinstance(value, str) else None

    def device(self, ref: int) -> tuple[int, int] | None:
        """Major and minor number from the property ``Device``."""
        return _numbers(self.text(ref, "Device") or "")


def _numbers(text: str) -> tuple[int, int] | None:
    """Two numbers from a text like ``8:1``."""
    major, colon, minor = text.partition(":")
    return (int(major), int(minor)) if colon and major.isdecimal() and minor.isdecimal() else None


class Threads:
    """The locations that are threads: their rows of the table, and the thread of each location.

    Args:
        definitions: The trace's definitions.
        callers: Locations with calls.
        requesters: Locations with requests to disks. They are threads only if they also have calls.
    """

    def __init__(self, definitions: Definitions, callers: Collection[int], requesters: Collection[int]) -> None:
        groups, own = Properties(definitions, "LocationGroupProperty"), Properties(definitions, "LocationProperty")
        locations = {
            ref: values for ref, values in definitions.table("location").items() if values[1] == LOCATION_CPU_THREAD
        }
        known = {ref for ref in locations if own.number(ref, "Thread ID") is not None}
        wanted = known or (locations.keys() - set(requesters))
        self.locations = sorted((wanted | set(callers)) & definitions.table("location").keys())
        self.tids = [_u32(own.number(ref, "Thread ID")) for ref in self.locations]
        all_locations = definitions.table("location")
        self.groups = [all_locations[ref][3] for ref in self.locations]
        self.pids = [_u32(groups.number(group, "Process ID")) for group in self.groups]
        self.names = [
            _name_of(definitions, ref, group, pid)
            for ref, group, pid in zip(self.locations, self.groups, self.pids, strict=True)
        ]
        self.task_of = {ref: task for task, ref in enumerate(self.locations)}

    def columns(self, texts: Texts) -> Columns:
        """The table's columns. Start and end of a thread are not known."""
        rows = len(self.locations)
        names = texts.columns("comm", [name.encode(errors="surrogateescape") for name in self.names])
        nowhere = {f"{name}_{part}": [0] * rows for name in ("cgroup", "cmdline") for part in ("offset", "length")}
        nowhere["cmdline_cut"] = [0] * rows
        return make_columns(
            "threads",
            rows,
            task=range(rows),
            process=self.groups,
            pid=self.pids,
            tid=self.tids,
            **names,
            **nowhere,
        )


def _u32(number: int | None) -> int:
    return UNKNOWN_U32 if number is None or not 0 <= number < UNKNOWN_U32 else number


def _name_of(definitions: Definitions, location: int, group: int, pid: int) -> str:
    """The name of the location's group without lo2io's suffix ``[pid]``; without a group, the location's name."""
    if group not in definitions.table("location-group"):
        return definitions.name("location", location)
    return definitions.name("location-group", group).removesuffix(f" [{pid}]")


def file_columns(definitions: Definitions, texts: Texts) -> Columns:
    """Rows of the files table: every file and directory, numbered in the order of their references."""
    facts = Properties(definitions, "IoFileProperty")
    refs = sorted(definitions.table("file"))
    devices = [facts.device(ref) for ref in refs]
    sources = [facts.text(ref, "Name Source") for ref in refs]
    return make_columns(
        "files",
        len(refs),
        file=range(len(refs)),
        mode=[
            stat.S_IFDIR if definitions.table("file")[ref][2] else _TYPES.get(facts.text(ref, "Type") or "", 0)
            for ref in refs
        ],
        device=np.array([0 if device is None else os.makedev(*device) for device in devices], np.uint64),
        inode=np.array([facts.number(ref, "Inode") or 0 for ref in refs], np.uint64),
        name_source=[NAME_SOURCE.index(source) if source in NAME_SOURCE else 0 for source in sources],
        **texts.columns("path", [_bytes(definitions, definitions.table("file")[ref][0]) for ref in refs]),
    )


def _bytes(definitions: Definitions, string: int) -> bytes:
    """The bytes of a string, in any encoding."""
    values = definitions.table("string").get(string)
    return definitions.text(string).encode() if values is None else bytes(values[0])


def handle_columns(
    definitions: Definitions,
    uses: Mapping[int, HandleUse],
    threads: Threads,
    files: Columns,
    times: Mapping[str, Any],
) -> Columns:
    """Rows of the handles table. Handles keep their OTF2 numbers.

    Args:
        definitions: The trace's definitions.
        uses: Facts about handles from their events.
        threads: The threads of locations.
        files: The files' columns.
        times: ``open`` and ``close`` of ``sorted(definitions.table("handle"))`` in ns.
    """
    table = definitions.table("handle")
    refs = sorted(table)
    file_of = {ref: row for row, ref in enumerate(sorted(definitions.table("file")))}
    states = {ref: (access, 0, flags) for ref, access, flags in definitions.unnamed["IoPreCreatedHandleState"]}
    rows: dict[str, list[int]] = {
        name: [] for name in ("process", "task", "origin", "name_source", "used", "parent", "file", "open_flags")
    }
    for ref in refs:
        use, values = uses.get(ref), table[ref]
        task = None if use is None or use.location is None else threads.task_of.get(use.location)
        file = file_of.get(values[1], UNKNOWN_U32)
        modes = states.get(ref) if use is None or use.modes is None else use.modes
        rows["task"].append(UNKNOWN_U32 if task is None else task)
        rows["process"].append(UNKNOWN_U32 if task is None else threads.groups[task])
        rows["origin"].append(ORIGIN.index(_origin(use, values[3])))
        rows["name_source"].append(0 if file == UNKNOWN_U32 else int(files["name_source"][file]))
        rows["used"].append(task is not None)
        rows["parent"].append(values[5] if values[5] in table else UNKNOWN_U32)
        rows["file"].append(file)
        rows["open_flags"].append(UNKNOWN_U32 if modes is None else open_flags(*modes))
    return make_columns(
        "handles", len(refs), handle=refs, open_time_ns=times["open"], close_time_ns=times["close"], **rows
    )


def _origin(use: HandleUse | None, flags: int) -> str:
    if use is not None and use.origin is not None:
        return use.origin
    return "open before the trace" if flags & HANDLE_PRE_CREATED else "appeared unseen"


def open_flags(access: int, creation: int, status: int) -> int:
    """OTF2's modes as flags of open(2). Access modes that Linux does not have count as read-only."""
    flags = _ACCESS[access] if access < len(_ACCESS) else os.O_RDONLY
    for known, given in ((_CREATION, creation), (_STATUS, status)):
        for bit, flag in known.items():
            flags |= flag if given & bit else 0
    return flags


def block_devices(definitions: Definitions, handles: Collection[int]) -> dict[int, BlockDevice]:
    """The disk of each of these handles. A disk with an unknown number gets a number that no disk has."""
    files, nodes = Properties(definitions, "IoFileProperty"), Properties(definitions, "SystemTreeNodeProperty")
    names: dict[str, int] = {}
    found = {}
    for handle in sorted(handles):
        name_ref, file = definitions.table("handle")[handle][:2]
        known = definitions.table("file").get(file)
        name = definitions.text(name_ref) if known is None else definitions.text(known[0])
        name = name.removeprefix("/dev/").removeprefix("dev ")  # lo2io writes "dev 8:0" for a disk without a name
        number = files.device(file) or (nodes.device(known[1]) if known is not None else None) or _numbers(name)
        unnumbered = kernel_dev(_NO_NUMBER, names.setdefault(name, len(names)))
        found[handle] = BlockDevice(kernel_dev(*number) if number else unnumbered, name, None, None, None)
    return found
