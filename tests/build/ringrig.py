"""Histories of rings written by hand, event by event, and the native engine's rows of them.

A :class:`Rig` is a spool whose clock goes on by itself: each method adds one event or call, and returns its time.

>>> rig = Rig(folder)
>>> times = [rig.setup(), rig.requests(2)]
>>> rig.run().ring()["nr_requests"]
2
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from build.perfwriter import SpoolBuilder
from lo2io.catalog.catalog import load_catalog
from lo2io.convert.engine import Engine
from lo2io.model import UNKNOWN_I64, UNKNOWN_U32
from lo2io.spool.reader import SpoolReader

if TYPE_CHECKING:
    from pathlib import Path

    from lo2io.model import Totals

A, B = 0xFFFF888000001000, 0xFFFF888000002000
"""Addresses of rings in the kernel."""
PID, FD = 10, 5
SQPOLL, NO_FD, MIXED = 1 << 1, 1 << 15, 1 << 18
"""IORING_SETUP_*"""
STEP = 10
TABLES = (
    "operations",
    "handle_events",
    "handles",
    "tasks",
    "requests",
    "request_events",
    "rings",
    "ring_requests",
    "ring_events",
    "ring_works",
    "ring_states",
    "batches",
    "iocbs",
)
_FILE = ("file", "path_offset", "path_length")

Row = dict[str, Any]


class Rig:
    """A spool in system mode.

    The process 10 has one thread and is born in the trace, so its whole life is in the spool.
    """

    builder: type[SpoolBuilder] = SpoolBuilder

    def __init__(self, path: Path, *, born: bool = True, batch_rows: int = 1 << 12, **options: Any) -> None:
        self.spool = self.builder(path / "spool", rings="6.18", start_ns=50_000, **options)
        self.now = 60_000
        self.batch_rows = batch_rows
        self.spool.fact_task(1_000, 1, 1, ppid=0, comm=b"init")
        if born:
            self.fork(PID, PID, 1)
        else:
            self.spool.fact_task(1_000, PID, PID, ppid=1, comm=b"ten")
        self.totals: Totals
        self.rows: dict[str, list[Row]] = {}
        self.paths: dict[int, bytes] = {}
        """The path of each file."""

    def tick(self) -> int:
        """The next event's time."""
        self.now += STEP
        return self.now

    # -- tasks

    def fork(self, pid: int, tid: int, parent: int) -> int:
        """A thread or process of ``parent``."""
        self.spool.fork(self.tick(), 0, pid, tid, 1 if parent == 1 else PID, parent)
        return self.now

    def name(self, pid: int, tid: int, comm: bytes, *, is_exec: bool = False) -> int:
        """Give the thread this name from now on."""
        self.spool.comm(self.tick(), 0, pid, tid, comm, is_exec=is_exec)
        return self.now

    def ends(self, pid: int, tid: int) -> int:
        """A thread exits."""
        self.spool.task_exit(self.tick(), 0, pid, tid)
        return self.now

    def worker(self, tid: int, owner: int = PID, maker: int = PID) -> int:
        """A worker is born; the time is that of its name."""
        self.fork(PID, tid, maker)
        return self.name(PID, tid, b"iou-wrk-%d" % owner)

    # -- calls

    def enter(self, call: str, tid: int = PID, **args: int) -> int:
        """The entry of a call."""
        self.spool.enter(self.tick(), 0, tid, call, **args)
        return self.now

    def leave(self, call: str, ret: int = 0, tid: int = PID) -> int:
        """The exit of that call."""
        self.spool.exit(self.tick(), 0, tid, call, ret)
        return self.now

    def call(self, call: str, ret: int = 0, tid: int = PID, **args: int) -> int:
        """Entry and exit; the time is the exit's."""
        self.enter(call, tid, **args)
        return self.leave(call, ret, tid)

    # -- rings

    def event(self, event: str, tid: int = PID, **fields: int) -> int:
        """An event of io_uring."""
        self.spool.ring(self.tick(), 0, tid, event, **fields)
        return self.now

    def setup(self, ctx: int = A, fd: int = FD, tid: int = PID, *, sq: int = 4, cq: int = 8, flags: int = 0) -> int:
        """A ring is made; the time is that of ``create``."""
        self.enter("io_uring_setup", tid, entries=sq)
        made = self.event("create", tid, ctx=ctx, fd=fd, sq_entries=sq, cq_entries=cq, flags=flags)
        self.leave("io_uring_setup", fd, tid)
        return made

    def submit(
        self, req: int, ctx: int = A, tid: int = PID, *, opcode: int = 0, user_data: int = 0, flags: int = 0
    ) -> int:
        """A request begins."""
        return self.event("submit_req", tid, ctx=ctx, req=req, opcode=opcode, user_data=user_data, flags=flags)

    def complete(self, req: int, res: int = 0, ctx: int = A, tid: int = PID, user_data: int = 0) -> int:
        """A CQE comes."""
        return self.event("complete", tid, ctx=ctx, req=req, res=res, user_data=user_data)

    def requests(self, nr: int, ctx: int = A, tid: int = PID) -> int:
        """So many NOPs, completed at once."""
        for req in range(1, nr + 1):
            self.submit(req, ctx, tid)
        for req in range(1, nr + 1):
            self.complete(req, 0, ctx, tid)
        return self.now

    # -- out

    def run(self, **changes: Any) -> Rig:
        """Run the engine; rows are dicts, and unknown is None."""
        engine = Engine(SpoolReader(self.spool.write(**changes)), load_catalog(), batch_rows=self.batch_rows)
        self.rows = {name: [] for name in TABLES}
        for batch in engine.batches():
            for number, at, size in zip(*(batch.files[name] for name in _FILE), strict=True):
                self.paths[int(number)] = batch.text[at : at + size]
            for name in TABLES:
                columns = getattr(batch, name)
                lists = [_known(array) for array in columns.values()]
                self.rows[name] += [dict(zip(columns, values, strict=True)) for values in zip(*lists, strict=True)]
        self.totals = engine.totals
        self.rows["rings"].sort(key=lambda row: row["ring"])
        return self

    def of(self, table: str, *columns: str) -> list[Any]:
        """Some columns of a table; a single one as plain values."""
        found = [tuple(row[column] for column in columns) for row in self.rows[table]]
        return [values[0] for values in found] if len(columns) == 1 else found

    def ring(self) -> Row:
        """The only ring."""
        (row,) = self.rows["rings"]
        return row


def _known(array: Any) -> list[int | None]:
    unknown = {"i8": UNKNOWN_I64, "u4": UNKNOWN_U32}.get(array.dtype.kind + str(array.dtype.itemsize))
    return [None if value == unknown else int(value) for value in array.tolist()]
