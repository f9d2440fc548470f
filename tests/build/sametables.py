"""Compares two traces of one run: row by row, thread by thread.

Pids, tids, CPUs and descriptors are the run's own, and must be equal. Times are not compared, for each recorder reads
the clock at its own place in the kernel; but the order of each thread's calls is. Numbers that a trace gives out (ids,
handles, tasks, files, descriptions) must correspond one to one.

With ``more``, the right trace may know what the left one does not: an offset, a name, flags, and that a slot changed
unseen (the left handle is two on the right, of which the later *appeared unseen*). It may never know less, and what
both know must be equal. There is one exception: it may have no offset where it knows that the file is a pipe, a
socket, a character device or an anonymous inode (of no type), for these have none.

>>> from build.tablemaker import make_batch, write_trace
>>> from workloads.record import Recorded
>>> parts = [make_batch(operations=[{"id": 1, "tid": 10, "fd": 3, "bytes_result": size}]) for size in (512, 1)]
>>> left, right = (Recorded(write_trace(folder / str(n), [part]), 0, "", "") for n, part in enumerate(parts))
>>> differences(left, right, more=False)
['thread 10, call 0 read(3): bytes_result: 512 and 1']
"""

from __future__ import annotations

import os
import stat
from collections import defaultdict
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from workloads.record import Recorded

Row = dict[str, Any]

EXACT = frozenset({
    "pid", "tid", "call", "status", "closes", "cpu", "fd", "bytes_result", "result", "error",
})  # fmt: skip
"""Columns of operations that must be equal."""
KNOWN = frozenset({"offset_bytes", "bytes_request", "flags"})
"""Equal, or with ``more`` unknown to the left (flags: 0, of openat2, whose flags are in the program's memory)."""
FREE = frozenset({"id", "begin_time_ns", "end_time_ns", "task", "offset_source", "first_use"})
LAYERED = frozenset({
    "run_queue_ns", "blocked_ns", "cache", "cache_missed_pages", "cache_ahead_pages", "cache_wait_ns",
})  # fmt: skip
"""Columns of layers, which perf does not record."""
FREE |= LAYERED
"""Not compared: the trace's numbers, times, and how a value is known."""
HANDLES = frozenset({"handle", "handle2"})
ATTACHED = {"paths": frozenset({"operation"}), "iocbs": frozenset({"operation", "handle", "request"})}
"""Tables whose rows belong to an operation, with the columns of numbers that the trace gives out."""
FILE = ("path", "mode", "device", "inode", "mount")
"""What both may know about a file."""


class Comparison:
    """Two traces, and their differences; the texts name the row."""

    def __init__(self, left: Recorded, right: Recorded, *, more: bool, pids: Collection[int] | None) -> None:
        self.more = more
        operations = [_having(side.trace.operations, "pid", pids) for side in (left, right)]
        self.rows = [table.to_pylist() for table in operations]
        self.handles = [{row["handle"]: row for row in side.trace.handles.to_pylist()} for side in (left, right)]
        self.files = [{row["file"]: row for row in side.trace.files.to_pylist()} for side in (left, right)]
        self.attached = [
            {table: _by_operation(side, table, None if pids is None else rows["id"]) for table in ATTACHED}
            for side, rows in zip((left, right), operations, strict=True)
        ]
        self.found: list[str] = []
        self.pairs: dict[int, set[int]] = defaultdict(set)
        """Handles of the left trace, and their counterparts on the right."""

    def run(self) -> list[str]:
        """All differences, in the order of the calls."""
        for tid, left, right in self._threads():
            names = [[row["call"] for row in rows] for rows in (left, right)]
            if names[0] != names[1]:
                self.found.append(f"thread {tid}: calls differ: {first_difference(*names)}")
                continue
            for index, (a, b) in enumerate(zip(left, right, strict=True)):
                self._compare(f"thread {tid}, call {index} {a['call']}({a['fd']})", a, b)
        self._compare_handles()
        return self.found

    def _threads(self) -> Iterator[tuple[int, list[Row], list[Row]]]:
        sides: list[dict[int, list[Row]]] = []
        for rows in self.rows:
            threads: dict[int, list[Row]] = defaultdict(list)
            for row in sorted(rows, key=lambda row: (row["begin_time_ns"], row["id"])):
                threads[row["tid"]].append(row)
            sides.append(threads)
        for tid in sorted(set(sides[0]) | set(sides[1])):
            yield tid, sides[0].get(tid, []), sides[1].get(tid, [])

    def _compare(self, where: str, a: Row, b: Row) -> None:
        for column in sorted(EXACT):
            if a[column] != b[column]:
                self.found.append(f"{where}: {column}: {a[column]} and {b[column]}")
        for column in sorted(KNOWN):
            if self.more and column == "flags" and a["call"] == "openat2" and a[column] == 0:
                self._known(where, column, None, b[column])
            elif not (column == "offset_bytes" and self.more and b[column] is None and self._stands_nowhere(b)):
                self._known(where, column, a[column], b[column])
        for column in sorted(HANDLES):
            self._pair(where, column, a[column], b[column])
        for table in ATTACHED:
            one, other = (side[table].get(row["id"], []) for side, row in zip(self.attached, (a, b), strict=True))
            if one != other and not (self.more and not one):
                self.found.append(f"{where}: {table}: {one} and {other}")

    def _known(self, where: str, what: str, a: object, b: object) -> None:
        if a != b and not (self.more and a is None):
            self.found.append(f"{where}: {what}: {a} and {b}")

    def _pair(self, where: str, column: str, a: int | None, b: int | None) -> None:
        if a is None or b is None:
            self._known(where, column, a, b)
            return
        self.pairs[a].add(b)

    def _open_flags(self, a: Row, b: Row) -> tuple[int | None, int | None]:
        """Their flags. What /proc said of a handle that appeared unseen has O_CLOEXEC as it was at the look."""
        flags: tuple[int | None, int | None] = (a["open_flags"], b["open_flags"])
        if None in flags or not self.more or a["origin"] != "appeared unseen":
            return flags
        return flags[0] & ~os.O_CLOEXEC, flags[1] & ~os.O_CLOEXEC  # type: ignore[operator]

    def _stands_nowhere(self, row: Row) -> bool:
        """True if the right trace knows that the row's file has no position."""
        handle = self.handles[1].get(row["handle"])
        file = self.files[1].get(handle["file"]) if handle else None
        return file is not None and stat.S_IFMT(file["mode"] or 0) in {0, stat.S_IFCHR, stat.S_IFIFO, stat.S_IFSOCK}

    def _file(self, side: int, handle: int) -> Row:
        return self.files[side].get(self.handles[side][handle]["file"], dict.fromkeys(FILE))

    def _compare_handles(self) -> None:
        descriptions: dict[int, set[int]] = defaultdict(set)
        back: dict[int, set[int]] = defaultdict(set)
        for left, rights in self.pairs.items():
            a = self.handles[0][left]
            for right in rights:
                back[right].add(left)
                b = self.handles[1][right]
                if a["description"] is not None and b["description"] is not None:
                    descriptions[b["description"]].add(a["description"])
                where = f"handle {left} of fd {a['fd']} ({a['origin']}) and {right}"
                for column in FILE:
                    self._known(where, column, self._file(0, left)[column], self._file(1, right)[column])
                if len(rights) == 1:
                    for column in ("fd", "origin", "close_on_exec"):
                        guessed = column == "close_on_exec" and self.more and a["open_flags"] is None
                        if a[column] != b[column] and not guessed:
                            self.found.append(f"{where}: {column}: {a[column]} and {b[column]}")
                    self._known(where, "open_flags", *self._open_flags(a, b))
            unseen = [self.handles[1][each]["origin"] == "appeared unseen" for each in rights]
            if len(rights) > 1 and not (self.more and sum(unseen) >= len(rights) - 1):
                self.found.append(f"handle {left} of fd {a['fd']} ({a['origin']}) is {sorted(rights)} on the right")
        self.found += [f"handles {sorted(a)} are {b} on the right" for b, a in back.items() if len(a) > 1]
        self.found += [f"descriptions {sorted(a)} are {b} on the right" for b, a in descriptions.items() if len(a) > 1]


def _having(table: pa.Table, column: str, values: Collection[int] | pa.ChunkedArray | None) -> pa.Table:
    """The rows with one of these values, without making Python's rows of the others; None: all rows."""
    if values is None:
        return table
    wanted = values if isinstance(values, pa.ChunkedArray) else pa.array(sorted(values))
    return table.filter(pc.is_in(table[column], wanted.cast(table[column].type)))


def _by_operation(side: Recorded, table: str, ids: pa.ChunkedArray | None) -> dict[int, list[Row]]:
    """The rows of each of these operations, in order; None: of all operations."""
    found: dict[int, list[Row]] = defaultdict(list)
    for row in _having(side.trace.table(table), "operation", ids).to_pylist():
        found[row["operation"]].append({key: value for key, value in row.items() if key not in ATTACHED[table]})
    return {operation: sorted(rows, key=lambda row: row["place"]) for operation, rows in found.items()}


def first_difference(left: Sequence[object], right: Sequence[object]) -> str:
    """The place at which two sequences differ first."""
    for index, (a, b) in enumerate(zip(left, right, strict=False)):
        if a != b:
            return f"{index}: {a} and {b}, of {len(left)} and {len(right)}"
    return f"{len(left)} and {len(right)} of them, equal as far as the shorter goes"


def differences(left: Recorded, right: Recorded, *, more: bool, pids: Collection[int] | None = None) -> list[str]:
    """Differences between the operations of two traces of one run, and between their handles; one text each.

    ``pids``: only these processes', if both traces have others, which began and ended at other times.
    """
    return Comparison(left, right, more=more, pids=pids).run()


def family(recorded: Recorded, pid: int) -> set[int]:
    """A process and all its descendants, by the table of threads."""
    children: dict[int | None, set[int]] = defaultdict(set)
    for row in recorded.trace.threads.to_pylist():
        if row["pid"] != row["ppid"]:
            children[row["ppid"]].add(row["pid"])
    found, new = {pid}, {pid}
    while new:
        new = set().union(*(children[each] for each in new)) - found
        found |= new
    return found


REQUEST_TIMES = frozenset({
    "submit_time_ns", "issue_time_ns", "punt_time_ns", "poll_arm_time_ns", "wake_time_ns", "work_begin_time_ns",
    "work_end_time_ns", "complete_time_ns", "notify_time_ns", "end_before_time_ns", "queued_ns", "executing_ns",
    "waiting_ns",
})  # fmt: skip
"""Times of ring requests: known to both or to neither."""
REQUEST_NUMBERS = frozenset({"id", "ring", "task", "worker", "waker", "previous", "culprit", "handle", "handle2"})
"""Numbers of ring requests that each trace gives out."""
REQUEST_KNOWN = frozenset({"offset_bytes", "bytes_request", "fd", "inferred", "handle", "handle2"})
"""Columns of ring requests that programs read from the request itself, if they may."""


def request_differences(left: Recorded, right: Recorded, *, more: bool) -> list[str]:
    """Differences between the requests of rings of two traces of one run, thread by thread, in order."""
    found = []
    sides: list[dict[object, list[Row]]] = []
    for side in (left, right):
        threads: dict[object, list[Row]] = defaultdict(list)
        rows = side.trace.ring_requests.to_pylist()
        for row in sorted(rows, key=lambda row: (row["submit_time_ns"] or 0, row["id"])):
            threads[row["tid"]].append(row)
        sides.append(threads)
    for tid in set(sides[0]) | set(sides[1]):
        a, b = (side.get(tid, []) for side in sides)
        if [row["user_data"] for row in a] != [row["user_data"] for row in b]:
            texts = [[row["user_data"] for row in rows] for rows in (a, b)]
            found.append(f"thread {tid}: requests differ: {first_difference(*texts)}")
            continue
        for index, (one, other) in enumerate(zip(a, b, strict=True)):
            where = f"thread {tid}, request {index} {one['opcode']} {one['user_data']}"
            found += [f"{where}: {text}" for text in _request(one, other, more=more)]
    return found


def _request(a: Row, b: Row, *, more: bool) -> Iterator[str]:
    for column in sorted((set(a) | set(b)) - LAYERED):
        one, other = a.get(column), b.get(column)
        if column in REQUEST_TIMES | REQUEST_NUMBERS:
            one, other = (value is not None for value in (one, other))
        if one == other or (more and column in REQUEST_KNOWN and (a.get(column) is None or column == "inferred")):
            continue
        yield f"{column}: {a.get(column)} and {b.get(column)}"
