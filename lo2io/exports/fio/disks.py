"""Checks that a replay may write to a disk.

In: a disk's path, and the trace. Out: an error, unless the path is a block device that is not in use, and on which the
trace was not recorded. A replay destroys the disk's contents; the user named the disk for that.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING

from lo2io.errors import UsageError
from lo2io.units import kernel_dev

if TYPE_CHECKING:
    from lo2io.trace.reader import Trace


def check_disk(trace: Trace | None, path: Path) -> None:
    """Refuse a path that is no disk, a disk in use, and a disk that holds the original files.

    Args:
        trace: The trace. None: the replay uses the originals.
        path: The disk to write to.

    Raises:
        UsageError: The replay must not write to the disk.
    """
    tried = f"replay on {path}"
    try:
        status = path.stat()
        if not stat.S_ISBLK(status.st_mode):
            raise UsageError(tried, "it is neither a folder nor a block device", "name one of them with --on")
        # The kernel refuses O_EXCL for a device that is mounted, swapped to, or part of another (open(2)).
        os.close(os.open(path, os.O_RDONLY | os.O_EXCL | os.O_CLOEXEC))
    except OSError as error:
        remedy = "unmount it, or name another" if path.exists() else "name a folder or a block device with --on"
        raise UsageError(tried, error.strerror or str(error), remedy) from error
    if trace is not None and _relatives(status.st_rdev) & _recorded(trace):
        remedy = "name another, or overwrite the originals with --in-place"
        raise UsageError(tried, "the trace was recorded on it", remedy)


def disk_size(path: Path) -> int:
    """Bytes of a block device.

    Raises:
        OSError: The device cannot be opened.
    """
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.lseek(fd, 0, os.SEEK_END)
    finally:
        os.close(fd)


def _relatives(device: int) -> set[int]:
    """The kernel's numbers of a disk and its partitions, or of a partition and its disk."""
    found = {kernel_dev(os.major(device), os.minor(device))}
    folder = Path(f"/sys/dev/block/{os.major(device)}:{os.minor(device)}")
    try:
        places = [folder, folder.resolve().parent, *(entry for entry in folder.iterdir() if entry.is_dir())]
    except OSError:
        return found
    for place in places:
        try:
            major, minor = map(int, (place / "dev").read_text(encoding="ascii").split(":"))
        except (OSError, ValueError):
            continue
        found.add(kernel_dev(major, minor))
    return found


def _recorded(trace: Trace) -> set[int]:
    """The disks with requests in the trace, and the disks of files in the trace."""
    found: set[int] = set()
    for batch in trace.batches("requests", ["device"]):
        found.update(set(batch["device"].tolist()))
    for batch in trace.batches("files", ["device"]):
        found.update({kernel_dev(os.major(device), os.minor(device)) for device in set(batch["device"].tolist())})
    return found
