"""The type of a file: storage, or something that another program, a person or the kernel answers.

In: the table of files, and the file systems of the metadata's mounts. Out: a type for each file group, and whether a
read or write of it waits for another program. If a file's type was not recorded, its name decides. A file without both
is unknown.
"""

from __future__ import annotations

import enum
import stat
from typing import TYPE_CHECKING, Final

import numpy as np

from lo2io.model.file_systems import KERNEL_FILE_SYSTEMS

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from lo2io.trace.reader import Trace


class FileType(enum.IntEnum):
    """The type of a file, by the side that answers reads and writes."""

    UNKNOWN = 0
    STORAGE = 1
    """A regular file, directory or disk, also on tmpfs."""
    PIPE = 2
    SOCKET = 3
    TERMINAL = 4
    EVENT = 5
    """A kernel object to wait for: eventfd, timerfd, inotify …"""
    SPECIAL = 6
    """Other character devices (/dev/zero …), and files that the kernel makes up while they are read (/proc, /sys …)."""


_OF_MODE: Final = {
    stat.S_IFREG: FileType.STORAGE,
    stat.S_IFDIR: FileType.STORAGE,
    stat.S_IFLNK: FileType.STORAGE,
    stat.S_IFBLK: FileType.STORAGE,
    stat.S_IFIFO: FileType.PIPE,
    stat.S_IFSOCK: FileType.SOCKET,
}
"""Type in a file's mode (inode(7)) → type."""
_S_IFMT: Final = 0o170000
_WAITED_FOR: Final = (FileType.PIPE, FileType.SOCKET, FileType.TERMINAL, FileType.EVENT)
_READY: Final = tuple(f"/dev/{name}" for name in ("null", "zero", "full", "random", "urandom"))
"""Character devices on which nobody waits (null(4), full(4), random(4))."""
_OF_NAME: Final = (
    ("pipe:[", FileType.PIPE),
    ("socket:[", FileType.SOCKET),
    ("anon_inode:", FileType.EVENT),
    *((f"/dev/{name}", FileType.TERMINAL) for name in ("pts/", "tty", "console", "ptmx", "hvc")),
    *((name, FileType.SPECIAL) for name in (*_READY, "/proc/", "/sys/")),
    ("/dev/", FileType.UNKNOWN),  # a disk or not
    ("/", FileType.STORAGE),
)
"""Beginning of a name → type. The first match counts (proc_pid_fd(5); Documentation/admin-guide/devices.txt)."""


def file_types(trace: Trace, nr_groups: int) -> tuple[NDArray[np.uint8], NDArray[np.bool_]]:
    """The :class:`FileType` of each file group, and True if calls on it wait for another side to write or read.

    Args:
        trace: The trace with the table of files.
        nr_groups: The number of groups. Groups after the named files have an unknown type.
    """
    types = np.full(nr_groups, FileType.UNKNOWN, np.uint8)
    devices: list[int] = []
    others: list[int] = []
    mounts = trace.metadata["mounts"]
    made_up = [mount["device"] for mount in mounts if mount["fs_type"] in KERNEL_FILE_SYSTEMS]
    for rows in trace.batches("files", ["file", "mode", "device"]):
        file, kind = rows["file"], rows["mode"] & np.uint32(_S_IFMT)
        for mode, of_mode in _OF_MODE.items():
            types[file[kind == mode]] = of_mode
        stored = types[file] == FileType.STORAGE
        types[file[stored & np.isin(rows["device"], np.array(made_up, np.uint64))]] = FileType.SPECIAL
        devices += file[kind == stat.S_IFCHR].tolist()
        others += file[kind == 0].tolist()
    waits = np.isin(types, (FileType.PIPE, FileType.SOCKET))
    names = trace.texts("files", "file", "path", [*devices, *others])
    for number, name in names.items():
        found = next((of_name for begin, of_name in _OF_NAME if name and name.startswith(begin)), FileType.UNKNOWN)
        types[number], waits[number] = found, found in _WAITED_FOR
    for number in devices:
        types[number] = types[number] if types[number] == FileType.TERMINAL else FileType.SPECIAL
        waits[number] = names.get(number) not in _READY
    return types, waits
