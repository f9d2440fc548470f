"""The rows behind an OTF2 trace's definitions: handles, files, threads, losses. They are kept until the end.

Memory grows with the number of these rows, not with that of operations. Of handles, only the newest are in memory.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING, Any

import numpy as np

from lo2io.frozen import dataclass
from lo2io.model import UNKNOWN_U32, Batch, RequestOp
from lo2io.model.command_lines import command_line
from lo2io.native._lib import ffi
from lo2io.otf2.library import UNDEFINED_U64
from lo2io.otf2.write.spill import Spill

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from pathlib import Path

    from lo2io.model import ClockSync


@dataclass(frozen=True, slots=True)
class FileRow:
    r"""One row of the files table. In ``path``, bytes that are not UTF-8 are escaped (``\\\\xff``)."""

    mode: int
    device: int
    inode: int
    mount: int
    path: str
    name_source: int = 0
    """The source that proved the name, as in the table."""


@dataclass(frozen=True, slots=True)
class TaskRow:
    """One row of the tasks table."""

    task: int
    process: int
    pid: int
    tid: int
    parent_process: int
    exit_time_ns: int
    comm: str
    cgroup: str = ""
    """The process' last cgroup; empty: unknown."""
    kind: int = 0
    """``enum lo2_task_kind``."""
    cmdline: str = ""
    """The process' last command line; empty: unknown."""
    rank: int = UNKNOWN_U32
    """The process' rank in a job."""


@dataclass(frozen=True, slots=True)
class RingRow:
    """One row of the rings table."""

    ring: int
    kind: int
    context: int
    process: int
    pid: int
    fd: int
    sq_entries: int
    cq_entries: int
    flags: int


MAX_DRIFT = 1_000
"""Clocks that differ by more than one part in this many did not drift. One was set (adjtimex(2): 500 ppm at most)."""
HANDLE_DTYPE = np.dtype(
    [("handle", np.uint32), ("fd", np.int32), ("file", np.uint32), ("open_flags", np.uint32), ("used", np.uint8)]
)
"""The fields of a row of handles that definitions need."""


def text_at(text: bytes, offset: int, length: int) -> str:
    """A piece of a batch's text, as UTF-8 for readers of OTF2. Other bytes, which paths may have, are escaped."""
    return text[offset : offset + length].decode("utf-8", errors="backslashreplace")


class Rows:
    """Collects rows of all batches, as copies.

    Args:
        folder: Where a file for many rows of handles is made.
        without_data: Numbers of the opcodes whose requests carry no data.
    """

    def __init__(self, folder: Path, without_data: Collection[int] = ()) -> None:
        self._without_data = np.zeros(256, np.bool_)
        self._without_data[[*without_data]] = True
        self.handles = Spill(folder, HANDLE_DTYPE)
        """Rows of :data:`HANDLE_DTYPE`, in the order of the batches."""
        self.files: dict[int, FileRow] = {}
        self.tasks: dict[int, TaskRow] = {}
        self.rings: dict[int, RingRow] = {}
        self.losses: list[tuple[int, int, int, int]] = []
        """CPU, start and end in ns, number of records."""
        self.nr_without_data = 0

    def add(self, batch: Batch) -> None:
        """Take the rows of a batch that definitions need.

        Raises:
            OSError: There are so many handles that they are written to a file, and that fails.
        """
        if len(batch.handles["handle"]):
            rows = np.empty(len(batch.handles["handle"]), HANDLE_DTYPE)
            for name in HANDLE_DTYPE.fields or ():
                rows[name] = batch.handles[name]
            self.handles.append(rows)
        self._add_files(batch)
        self._add_tasks(batch)
        self._add_rings(batch)
        if batch.ring_requests:
            self.nr_without_data += int(np.count_nonzero(self._without_data[batch.ring_requests["opcode"]]))
        losses = batch.losses
        columns = (losses["cpu"], losses["begin_time_ns"], losses["end_time_ns"], losses["lost"])
        self.losses.extend(zip(*(column.tolist() for column in columns), strict=True))

    def _add_files(self, batch: Batch) -> None:
        names = ("file", "mode", "device", "inode", "mount", "name_source", "path_offset", "path_length")
        rows = zip(*(batch.files[name].tolist() for name in names), strict=True)
        for file, mode, device, inode, mount, source, offset, length in rows:
            self.files[file] = FileRow(mode, device, inode, mount, text_at(batch.text, offset, length), source)

    def _add_tasks(self, batch: Batch) -> None:
        numbers = ("task", "process", "pid", "tid", "parent_process", "exit_time_ns", "kind", "rank")
        places = [f"{text}_{part}" for text in ("comm", "cgroup", "cmdline") for part in ("offset", "length")]
        rows = zip(*(batch.tasks[name].tolist() for name in (*numbers, *places)), strict=True)
        for task, process, pid, tid, parent, exit_time, kind, rank, *at in rows:
            comm, cgroup, raw = (text_at(batch.text, *at[place : place + 2]) for place in (0, 2, 4))
            line = command_line(raw)
            self.tasks[task] = TaskRow(task, process, pid, tid, parent, exit_time, comm, cgroup, kind, line, rank)

    def _add_rings(self, batch: Batch) -> None:
        columns = [batch.rings[name].tolist() for name in RingRow.__slots__] if batch.rings else []
        self.rings |= {row.ring: row for row in (RingRow(*values) for values in zip(*columns, strict=True))}


def given_paths(view: Any) -> dict[int, str]:
    """Reference of a string → path that a call was given, from the writer's ``lo2_otf2_view``."""
    if not view.nr_given:
        return {}
    last = view.given[view.nr_given - 1]
    texts = bytes(ffi.buffer(view.given_text, last.offset + last.length))
    given = (view.given[index] for index in range(view.nr_given))
    return {path.ref: text_at(texts, path.offset, path.length) for path in given}


def known(reference: int) -> bool:
    """True if a uint32 reference is not unknown."""
    return reference != UNKNOWN_U32


REQUEST_NAMES = {
    RequestOp.READ: "read",
    RequestOp.WRITE: "write",
    RequestOp.FLUSH: "flush",
    RequestOp.DISCARD: "discard",
    RequestOp.SECURE_ERASE: "secure erase",
    RequestOp.WRITE_ZEROES: "write zeroes",
    RequestOp.ZONE: "zone",
    RequestOp.OTHER: "other",
}
_REQUEST_OPS = {
    RequestOp.READ: "R",
    RequestOp.WRITE: "W",
    RequestOp.FLUSH: "F",
    RequestOp.DISCARD: "D",
    RequestOp.SECURE_ERASE: "DE",
    RequestOp.WRITE_ZEROES: "WZ",
    RequestOp.ZONE: "Z",
    RequestOp.OTHER: "N",
}


def request_operation(code: int) -> str:
    """The rwbs-like text of ``operation << 5 | flags`` (block/blktrace.c, blk_fill_rwbs, has the order of letters)."""
    flags = code & 31
    letters = ("F" if flags & 1 else "") + _REQUEST_OPS[RequestOp(code >> 5)]
    return letters + "".join(letter for bit, letter in ((2, "F"), (4, "A"), (8, "S"), (16, "M")) if flags & bit)


def realtime_at(syncs: Sequence[ClockSync], time_ns: int) -> int:
    """CLOCK_REALTIME at a time of the spool's clock, on the line through the two nearest readings of the clocks.

    If the clocks moved apart by more than drift between these readings (the machine slept, or the clock was set), only
    the nearer reading counts. Without any reading, the result is OTF2's undefined timestamp.
    """
    if not syncs:
        return UNDEFINED_U64
    ordered = sorted(syncs, key=lambda sync: sync.time_ns)
    after = min(max(bisect_right([sync.time_ns for sync in ordered], time_ns), 1), len(ordered) - 1)
    first, last = ordered[max(after - 1, 0)], ordered[after]
    span, real = last.time_ns - first.time_ns, last.realtime_ns - first.realtime_ns
    if span <= 0 or abs(real - span) > span // MAX_DRIFT + first.error_ns + last.error_ns:
        near = min(first, last, key=lambda sync: abs(time_ns - sync.time_ns))
        return near.realtime_ns + time_ns - near.time_ns
    return first.realtime_ns + (time_ns - first.time_ns) * real // span
