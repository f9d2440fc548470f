"""Looks at all threads and descriptors of the machine, by the kernel's iterators: cheaper than ``/proc``.

Facts: Documentation/bpf/bpf_iterators.rst of Linux 6.18.
"""

from __future__ import annotations

import contextlib
import os
import struct
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from lo2io.bpf import libbpf
from lo2io.bpf.prepared import PreparedObject
from lo2io.bpf.refusals import refused

if TYPE_CHECKING:
    from collections.abc import Iterator

OBJECT = Path(__file__).parent / "programs" / "looks.bpf.o"
_TASK = struct.Struct("<QQQQIIII16s")
"""``struct lo2_look_task`` of ``programs/looks.h``."""


class LookTask(NamedTuple):
    """A thread at the time of a look."""

    born_ns: int
    """CLOCK_BOOTTIME."""
    exec: int
    cgroups: int
    cgroup: int
    pid: int
    tid: int
    ppid: int
    is_kernel: int
    comm: bytes
    """16 bytes: after the first zero byte, all are zero."""


class Looks:
    """The loaded iterators.

    Raises:
        AccessError: The programs were not built, libbpf is not installed, or the kernel refuses.
    """

    def __init__(self) -> None:
        self._undo = contextlib.ExitStack()
        try:
            loaded = PreparedObject(OBJECT)
            self._undo.callback(loaded.close)
            loaded.load()
            self._tasks, self._files = (
                self._link(loaded.program_fd(name)) for name in ("lo2_look_at_task", "lo2_look_at_file")
            )
        except OSError as error:
            self.close()
            raise refused("load the programs that look at tasks", error) from error
        except BaseException:
            self.close()
            raise

    def _link(self, program_fd: int) -> int:
        link = libbpf.link_iterator(program_fd)
        self._undo.callback(os.close, link)
        return link

    def tasks(self) -> list[bytes]:
        """A record of each thread, for :func:`parse_task`."""
        size = _TASK.size
        return [piece[at : at + size] for piece in libbpf.iterate(self._tasks) for at in range(0, len(piece), size)]

    def files(self) -> Iterator[bytes]:
        """FD facts of all descriptors but those of this process, as the spool has them, in pieces of whole records."""
        return libbpf.iterate(self._files)

    def close(self) -> None:
        """Unload the programs."""
        self._undo.close()


def parse_task(record: bytes) -> LookTask:
    """The fields of a record of a thread."""
    return LookTask(*_TASK.unpack(record))
