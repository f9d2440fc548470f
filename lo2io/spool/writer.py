"""Writes a spool. In: buffers' bytes, facts and ``spool.json``. Out: a directory.

Files of buffers and facts only grow. ``spool.json`` is replaced as a whole. Space for the last ``spool.json`` is put
aside at the start, so that it can be written even if the recording has filled the disk. The directory is held open and
locked while it is written.
"""

from __future__ import annotations

import contextlib
import errno
import os
from typing import TYPE_CHECKING, Self

from lo2io.errors import CaptureError, UsageError
from lo2io.folder import Folder
from lo2io.spool.format import (
    CLOCKS_NAME,
    FACTS_NAME,
    META_NAME,
    NEW_META_NAME,
    RESERVE_NAME,
    dump_meta,
    events_name,
    kernel_name,
    ring_name,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from lo2io.model import SpoolMeta
    from lo2io.spool.sinks import Sink, WriteBehind

_RESERVE_EXTRA = 256 << 10
"""Bytes put aside beyond three times the first ``spool.json``, for counts and notices, which come only at the end."""
FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO})
"""Errors of write(2) that make further writes useless: disk, quota or file size used up, device broken."""


class DiskFullError(Exception):
    """The spool's disk is full. All earlier records are whole."""

    def __init__(self, path: Path, answer: str) -> None:
        super().__init__(f"{path}: {answer}")
        self.path = path
        self.answer = answer


class AppendFile:
    """A file that grows only by whole writes. A write that does not fit entirely is undone."""

    def __init__(self, folder: Folder, name: str) -> None:
        self.name = name
        self.path = folder.path / name
        """The path for messages."""
        self.fd = folder.create(name)
        self.size = 0

    def append(self, views: Sequence[memoryview | bytes]) -> int:
        """Write all bytes of ``views``; return their number.

        Raises:
            DiskFullError: The bytes do not fit. The file then ends where the previous append ended.
        """
        total = sum(len(view) for view in views)
        try:
            done = os.writev(self.fd, views)
            while done < total:  # after a short write, the next one tells whether a signal or a full disk was the cause
                done += os.writev(self.fd, _rest(views, done))
        except OSError as error:
            if error.errno not in FULL:
                raise
            os.ftruncate(self.fd, self.size)
            os.lseek(self.fd, self.size, os.SEEK_SET)
            raise DiskFullError(self.path, error.strerror or "disk full") from error
        self.size += total
        return total

    def close(self) -> None:
        """Close the file. A second call does nothing."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1


def _rest(views: Iterable[memoryview | bytes], skip: int) -> list[memoryview]:
    """The views without their first ``skip`` bytes."""
    rest = []
    for each in views:
        view = memoryview(each)
        rest.append(view[min(skip, len(view)) :])
        skip -= min(skip, len(view))
    return [view for view in rest if len(view)]


class SpoolWriter:
    """Creates the directory and its files. ``rings[i]`` takes the bytes of the perf buffer of ``cpus[i]``.

    Args:
        path: Directory to create.
        cpus: The CPUs of the buffers.
        kernel_records: True: ``calls[i]`` takes the records of lo2io's programs on ``cpus[i]``. False: there is no
            ``calls[i]``.
        folder: The directory, if it exists already and is locked; None: ``path`` is made.
        behind: Writes the bytes of buffers and clocks; None: whoever brings them waits until they are written.

    Attributes:
        folder: The directory, locked until it is closed. :meth:`close` closes it if the writer made it. Otherwise the
            caller closes it, and may read it first.
        unreserved: Why no space could be put aside, though there was room; empty: space was put aside.

    Raises:
        UsageError: ``path`` exists.
        CaptureError: The directory cannot be created.
    """

    def __init__(
        self,
        path: Path,
        cpus: Sequence[int],
        *,
        kernel_records: bool = False,
        folder: Folder | None = None,
        behind: WriteBehind | None = None,
    ) -> None:
        self.path = path
        self.cpus = tuple(cpus)
        self.calls: tuple[Sink, ...] = ()
        self.events: tuple[Sink, ...] = ()
        self._kernel_records = kernel_records
        self._kernel_events = False
        self._files: list[AppendFile] = []
        self._behind = behind
        self._reserved = -1
        self.unreserved = ""
        self._made_folder = folder is None
        tried = f"create the spool {path}"
        try:
            if folder is None:
                folder = Folder.open_or_make(path.parent).make(path.name)
                folder.lock()
            self.folder = folder
            self.rings, self.facts = self._create()
            if kernel_records:
                self.calls = tuple(self._file(kernel_name(cpu)) for cpu in cpus)
        except FileExistsError as error:
            raise UsageError(tried, "it exists", "name another directory, or remove this one") from error
        except OSError as error:
            raise CaptureError(
                tried, error.strerror or str(error), "name a directory you may write, on a disk with space"
            ) from error

    @property
    def size(self) -> int:
        """Bytes of all buffers' files and facts."""
        return sum(file.size for file in self._files)

    def _create(self) -> tuple[tuple[Sink, ...], Sink]:
        """The files that take each CPU's bytes, and the file of facts."""
        rings = tuple(self._file(ring_name(cpu)) for cpu in self.cpus)
        facts = AppendFile(self.folder, FACTS_NAME)
        self._files.append(facts)
        return rings, facts

    def add_ring(self, cpu: int) -> None:
        """Add a buffer: ``rings`` gets a new file, or once more the file of the CPU's former buffer.

        ``calls`` and ``events`` stay those of ``cpus``. A CPU that comes back uses its former files.

        Raises:
            OSError: A new file cannot be created.
        """
        self.rings = (*self.rings, self._file(ring_name(cpu)))
        if cpu not in self.cpus:
            if self._kernel_records:
                self.calls = (*self.calls, self._file(kernel_name(cpu)))
            if self._kernel_events:
                self.events = (*self.events, self._file(events_name(cpu)))
            self.cpus = (*self.cpus, cpu)

    def take_kernel(self, *, events: bool) -> None:
        """From now on also take the records of lo2io's programs in the kernel: ``calls[i]`` takes those of ``cpus[i]``.

        Args:
            events: True if the programs also record events of tracepoints, which ``events[i]`` takes.

        Raises:
            CaptureError: The files cannot be created.
        """
        self._kernel_records, self._kernel_events = True, events
        try:
            self.calls = tuple(self._file(kernel_name(cpu)) for cpu in self.cpus)
            if events:
                self.events = tuple(self._file(events_name(cpu)) for cpu in self.cpus)
        except OSError as error:
            raise CaptureError(
                f"create the spool {self.path}", error.strerror or str(error), "name a directory on a disk with space"
            ) from error

    def take_clocks(self) -> Sink:
        """Make the file of readings of the machine's clocks. It counts for :attr:`size`.

        Raises:
            CaptureError: The file cannot be created.
        """
        try:
            return self._file(CLOCKS_NAME)
        except OSError as error:
            raise CaptureError(
                f"create the spool {self.path}", error.strerror or str(error), "name a directory on a disk with space"
            ) from error

    def _file(self, name: str) -> Sink:
        """A sink for the spool's file of this name. The file is created if it does not exist."""
        file = next((file for file in self._files if file.name == name), None)
        if file is None:
            file = AppendFile(self.folder, name)
            self._files.append(file)
        return self._behind.of(file) if self._behind else file

    def flush(self) -> None:
        """Wait until all bytes are written that the sinks have taken.

        Raises:
            DiskFullError: There is no room for them.
            OSError: They could not be written.
        """
        if self._behind:
            self._behind.flush()

    def write_meta(self, meta: SpoolMeta) -> None:
        """Replace ``spool.json`` atomically. The first time, also put space aside for the last one.

        Raises:
            CaptureError: The disk has no room for the file.
        """
        content = dump_meta(meta)
        try:
            if meta.complete:
                self._free_reserve()
            try:
                self._write_new_meta(content)
            except OSError:  # the recording has filled the disk before the first ``spool.json``
                self._free_reserve()
                self._write_new_meta(content)
            self.folder.rename(NEW_META_NAME, self.folder, META_NAME)
            if not meta.complete:
                self._reserve_space(3 * len(content) + _RESERVE_EXTRA)
        except OSError as error:
            with contextlib.suppress(OSError):
                self.folder.remove(NEW_META_NAME)
            raise CaptureError(
                f"write {self.path / META_NAME}",
                error.strerror or str(error),
                f"free {len(content)} bytes on this disk, or use another disk",
            ) from error

    def _write_new_meta(self, content: bytes) -> None:
        self.folder.remove(NEW_META_NAME)
        self.folder.write(NEW_META_NAME, content)

    def put_aside(self, size: int) -> None:
        """Put space aside for the first ``spool.json``, if buffers are written before it.

        Args:
            size: The approximate size of the file.

        Raises:
            CaptureError: The disk has no room for the file.
        """
        try:
            self._reserve_space(5 * size + _RESERVE_EXTRA)
        except OSError as error:
            raise CaptureError(
                f"create the spool {self.path}", error.strerror or str(error), "use a disk with space"
            ) from error

    def _reserve_space(self, size: int) -> None:
        """Put at least this many bytes aside.

        If the kernel cannot (ext2, FUSE, NFS before 4.2), glibc writes the bytes, and reads the file for that.
        """
        if self._reserved < 0:
            self._reserved = self.folder.create(RESERVE_NAME)
        try:
            os.posix_fallocate(self._reserved, 0, size)
        except OSError as error:
            if error.errno in FULL:
                raise
            self.unreserved = error.strerror or str(error)

    def _free_reserve(self) -> None:
        if self._reserved >= 0:
            os.close(self._reserved)
            self._reserved = -1
        self.folder.remove(RESERVE_NAME)

    def close(self) -> None:
        """Close every file, and the directory if the writer made it."""
        self._close_files()
        if self._made_folder:
            self.folder.close()
            if self.folder.parent is not None:
                self.folder.parent.close()

    def _close_files(self) -> None:
        if self._behind:
            self._behind.close()
        for file in self._files:
            file.close()
        if self._reserved >= 0:
            os.close(self._reserved)
            self._reserved = -1

    def discard(self) -> None:
        """Remove every file and the directory."""
        self._close_files()
        for name in (*(file.name for file in self._files), META_NAME, RESERVE_NAME):
            self.folder.remove(name)
        self.folder.discard_if_empty()  # another program may have put a file there
        self.folder.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
