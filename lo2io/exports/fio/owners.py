"""The owners of actions (processes, threads, disks), and the files that fio can open.

In: a trace's tables of threads, handles, files and devices. Out: arrays from these tables' numbers to jobs and names.
Memory: some bytes for each handle, file and thread.
"""

from __future__ import annotations

import re
import stat
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from lo2io.model import UNKNOWN_U32
from lo2io.model.file_systems import KERNEL_FILE_SYSTEMS, KERNEL_FOLDERS

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from lo2io.trace.reader import Trace

UNNAMED: Final = -1
"""In place of a file's number: the name is not known."""
ALIKE: Final = -2
"""In place of a file's number: the file cannot be read again, such as a pipe, a socket, a terminal or a kernel's
file."""
DIRECT, DSYNC, FULL_SYNC = 1, 2, 4
"""Modes of an open file: O_DIRECT; O_DSYNC; O_SYNC, whose flags include O_DSYNC."""
_O_DIRECT: Final = {"aarch64": 0o200000, "armv7l": 0o200000, "ppc64le": 0o400000, "ppc64": 0o400000}
"""O_DIRECT by machine. All other machines have 0o40000 (include/uapi/asm-generic/fcntl.h)."""
_O_DSYNC, _O_FULL_SYNC = 0o10000, 0o4000000
_KERNEL_FOLDERS: Final = tuple(folder.encode() for folder in KERNEL_FOLDERS)
_UNFIT: Final = re.compile(r"[^A-Za-z0-9._+-]+")


class Names:
    """The files of actions. Each path has a number."""

    def __init__(self, trace: Trace) -> None:
        self.paths: list[bytes] = []
        """Each file's whole name, or the known part of it."""
        file_of = self._of_files(trace)
        direct = _O_DIRECT.get(str(trace.metadata.get("machine")), 0o40000)
        self._files = np.full(1, UNNAMED, np.int64)
        self._modes = np.zeros(1, np.uint8)
        for batch in trace.batches("handles", ["handle", "file", "open_flags"]):
            handle, file = batch["handle"].astype(np.intp), batch["file"]
            short = int(handle.max(initial=0)) + 2 - len(self._files)
            if short > 0:
                short = max(short, len(self._files))
                self._files = np.append(self._files, np.full(short, UNNAMED, np.int64))
                self._modes = np.append(self._modes, np.zeros(short, np.uint8))
            self._files[handle] = file_of[np.minimum(file, len(file_of) - 1)]
            flags = np.where(batch["open_flags"] == UNKNOWN_U32, 0, batch["open_flags"])
            modes = np.where(flags & direct, DIRECT, 0) | np.where(flags & _O_DSYNC, DSYNC, 0)
            self._modes[handle] = modes | np.where(flags & _O_FULL_SYNC, FULL_SYNC, 0)

    def files(self, handle: NDArray[np.uint32]) -> NDArray[np.int64]:
        """Number of each handle's file in ``paths``, or ``UNNAMED`` or ``ALIKE``."""
        return self._files[np.minimum(handle, len(self._files) - 1)]

    def modes(self, handle: NDArray[np.uint32]) -> NDArray[np.uint8]:
        """The modes of each handle's open; 0 if they are not known."""
        return self._modes[np.minimum(handle, len(self._modes) - 1)]

    def _of_files(self, trace: Trace) -> NDArray[np.int64]:
        """Row of files → number in ``paths``. The last entry is for handles without a file."""
        kernel_devices = {m["device"] for m in trace.metadata["mounts"] if m["fs_type"] in KERNEL_FILE_SYSTEMS}
        numbers: dict[bytes, int] = {}
        file_of = np.full(int(trace.column("files", "file").max(initial=0)) + 2, UNNAMED, np.int64)
        for batch in trace.text_batches("files", ["file", "mode", "device", "path", "path_bytes"]):
            for file, mode, device, path, exact in zip(*batch, strict=True):
                if path is None:
                    continue
                name = exact if exact is not None else path.encode()
                if not _is_data(mode, name) or device in kernel_devices:
                    file_of[file] = ALIKE
                    continue
                file_of[file] = numbers.setdefault(name, len(self.paths))
                if len(numbers) > len(self.paths):
                    self.paths.append(name)
        return file_of


def _is_data(mode: int | None, name: bytes) -> bool:
    """True if the file holds data that can be read again. If its mode is unknown, its path decides."""
    if mode is None:
        return not name.startswith(_KERNEL_FOLDERS)
    return stat.S_ISREG(mode) or stat.S_ISBLK(mode)


class Owners:
    """The jobs of processes or threads."""

    def __init__(self, trace: Trace, by: str) -> None:
        self._labels: dict[int, str] = {}
        tasks = trace.column("threads", "task")
        self._of_task = np.full(int(tasks.max(initial=0)) + 2, UNKNOWN_U32, np.int64)
        for batch in trace.text_batches("threads", ["task", "process", "pid", "tid", "comm"]):
            for task, process, pid, tid, comm in zip(*batch, strict=True):
                owner = process if by == "process" else task
                self._of_task[task] = owner
                number = pid if by == "process" else tid
                if owner not in self._labels or (by == "process" and tid == pid):
                    self._labels[owner] = _label(by, number, comm)

    def of_tasks(self, task: NDArray[np.uint32]) -> NDArray[np.int64]:
        """The process, or the thread, of each task."""
        return self._of_task[np.minimum(task, len(self._of_task) - 1)]

    def label(self, owner: int) -> str:
        """A label for names of files. Labels may repeat: pids and tids are used again."""
        return self._labels.get(owner, "unknown")


def _label(by: str, number: int | None, comm: str | None) -> str:
    words = [by, "unknown" if number is None else str(number), _UNFIT.sub("_", comm or "")]
    return "-".join(word for word in words if word)


class Devices:
    """The jobs of disks. A job's file is its disk."""

    def __init__(self, trace: Trace) -> None:
        self.names = _DeviceNames()
        self._numbers = np.zeros(0, np.uint32)
        rows = sorted(zip(*(trace.table("devices")[name].to_pylist() for name in ("device", "name")), strict=True))
        self._numbers = np.array([device for device, _ in rows], np.uint32)
        self.names.paths = [b"/dev/" + str(name).replace("!", "/").encode() for _, name in rows]

    def files(self, device: NDArray[np.uint32]) -> NDArray[np.int64]:
        """Number of each device's name in ``names.paths``, or ``UNNAMED``."""
        if not len(self._numbers):
            return np.full(len(device), UNNAMED, np.int64)
        row = np.minimum(np.searchsorted(self._numbers, device), len(self._numbers) - 1)
        found: NDArray[Any] = np.where(self._numbers[row] == device, row, UNNAMED)
        return found.astype(np.int64)

    def label(self, owner: int) -> str:
        """A label for names of files."""
        row = int(self.files(np.array([owner], np.uint32))[0])
        node = b"" if row < 0 else self.names.paths[row].removeprefix(b"/dev/")
        name = node.decode(errors="replace") or f"{owner >> 20}_{owner & 0xFFFFF}"
        return f"device-{_UNFIT.sub('_', name)}"


class _DeviceNames(Names):
    """The names of disks, from the table of devices."""

    def __init__(self) -> None:
        self.paths = []
