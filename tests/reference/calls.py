"""Pairs entries with exits, and follows the effects of calls on fds and positions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lo2io.model import CallKind, Returns
from reference.fds import (
    BEFORE,
    DUPLICATED,
    O_APPEND,
    O_CLOEXEC,
    OPENED,
    UNSEEN,
    Description,
    Handle,
    Slot,
    Table,
    compare_position,
    learn_flags,
    new_description,
)
from reference.kernel_files import Left
from reference.lookups import (
    EBADF,
    F_SETFL,
    MASK32,
    NAMES_NO_HANDLE,
    OPENS,
    RANGE_CLOEXEC,
    RANGE_UNSHARE,
    Lookups,
    closed_amid_dup2,
    ends_begin,
    ends_over,
    is_moved,
    known_of,
    perhaps_replaced,
)
from reference.pending import Pending
from reference.positions import Offset, begin_moving, end_moving, offset_of, signed, told_offset
from reference.tasks import CLONE_FILES

if TYPE_CHECKING:
    from reference.engine import Reference
    from reference.tasks import Task

F_DUPFD, F_SETFD, F_DUPFD_CLOEXEC = 0, 2, 1030
FIONCLEX, FIOCLEX = 0x5450, 0x5451
ABSENT = -1


class Calls:
    """The system calls of every recorded thread."""

    def __init__(self, engine: Reference) -> None:
        self.engine = engine
        self.lookups = Lookups(engine)
        self.tables = self.lookups.tables

    # -- entry

    def enter(self, task: Task, time: int, cpu: int, call: int, values: dict[str, Any]) -> None:
        """``sys_enter``."""
        self.engine.rings.requests.thread(task, time, "call")
        if task.pending is not None:
            self.in_flight(task.pending)
        task.entered, spec = True, self.engine.specs.calls[call]
        op = task.pending = Pending(task, call, spec, time, cpu, values, table=task.table)
        op.unseen = not self.engine.sched.layer or bool(values.pop("unfollowed", 0))
        op.shared = task.table.users > 1
        if values.get("flags", 0) & spec.fd_unless:
            values.pop("fd", None)
        op.fd = signed(values["fd"], 32) if "fd" in values else -1
        op.fd2 = signed(values["fd2"], 32) if "fd2" in values else -1
        self.engine.rings.batches.by_number(op)
        if spec.kind is CallKind.CLOSE:
            op.taken = task.table.take(op.fd, time)
            if op.taken is not None:
                op.handle = self.tables.use(op.taken, task, op.fd)
        elif spec.kind not in NAMES_NO_HANDLE:
            op.handle = self._resolve(op, op.fd)
            if spec.kind is CallKind.COPY:
                op.handle2 = self._resolve(op, op.fd2)
        begin_moving(op)
        if op.moves and op.shared and any(is_moved(self.engine, task.table, fd, op) for fd in known_of(op)):
            op.overlapped = True
        ends_begin(op)
        self.engine.rings.batches.entered(op)

    def _resolve(self, op: Pending, fd: int) -> Handle | None:
        slot = op.task.table.slots.get(fd)
        return None if slot is None else self.tables.use(slot, op.task, fd)

    # -- exit

    def exit(self, task: Task, time: int, call: int, ret: int) -> None:
        """``sys_exit``."""
        self.engine.rings.requests.thread(task, time, "call")
        op = task.pending
        spec = self.engine.specs.calls[call]
        if op is None or op.call != call:
            born = op is None and spec.kind is CallKind.CLONE and ret == 0
            self.engine.totals["nr_orphan_exits"] += task.recorded and not born
            if op is not None:
                self.in_flight(op)
            task.left = Left(None, time, ret)
            return
        self.engine.sched.back(task, time)
        task.pending = None
        error = -ret if -4095 <= ret < 0 else 0
        task.left = Left(op, time, ret)
        self.engine.files.due(task, op, arguments_only=True)
        self.lookups.confirm(op, met=error != EBADF)
        self.lookups.see_unseen(op, ret)
        self.engine.rings.seen(op)
        offset, position, told = told_offset(op, ret, offset_of(op, of_its_file=self._met(op)))
        end_moving(op, time, ret)
        if told:
            op.moves[0].move_to(position)
        row = self._row(op, offset) | {"end_time_ns": time, "status": 0, "result": ret, "error": error}
        row |= op.shares
        row["bytes_result"] = ret if op.spec.returns is Returns.BYTES and not error else None
        self._use_value(op, row)
        ended: list[Handle] = []
        if not error:
            ended = self._effects(op, time, ret, row)
        if op.spec.kind is CallKind.CLOSE:
            self._closed(op, error, time, row)
        row["handle"], row["handle2"] = op.handle, op.handle2
        if op.spec.kind is CallKind.CLOSE and error == EBADF:
            row["handle"] = None
        row |= self.engine.cache.judge(op, row, completed=True)
        self._emit(row, self.engine.rings.batches.row(op, ret, time))
        if op.new_flags is not None and task.recorded:
            self._tell(op.handle, task, time, kind=1, flags=op.new_flags)
        for handle in ended:
            self._destroy(handle, task, time)
        task.left.row = row if task.recorded else None
        self.engine.files.due(task, op)
        ends_over(op, time)
        if op.spec.kind < CallKind.RING_SETUP:
            self.engine.block.call_over(task, op.time, time)

    @staticmethod
    def _closed(op: Pending, error: int, time: int, row: dict[str, Any]) -> None:
        if error != EBADF:
            closed_amid_dup2(op, time)
        if op.handle is not None:
            op.handle.end(None if error == EBADF else time)
            row["closes"] = int(error != EBADF)

    @staticmethod
    def _use_value(op: Pending, row: dict[str, Any]) -> None:
        """Use the values behind the call's pointers, if BPF programs have read them."""
        if op.told_value is None:
            return
        if op.spec.vectored and op.told_value >= 0:
            row["bytes_request"] = op.told_value
        elif op.spec.kind is CallKind.OPEN and "flags" not in op.values and op.spec.fixed_flags is None:
            op.values["flags"] = row["flags"] = op.told_value & MASK32

    def _met(self, op: Pending) -> bool:
        """True if no other file can have replaced the descriptor's unseen, or a fact of this call tells the file."""
        return not self.engine.files.ends_unseen or op.fd in op.confirmed

    def in_flight(self, op: Pending, ended: int | None = None) -> None:
        """A call whose exit was not seen, perhaps because its thread ended."""
        self.engine.sched.back(op.task, None)
        op.task.pending = None
        self.lookups.confirm(op)
        offset = offset_of(op, of_its_file=self._met(op))
        end_moving(op, self.engine.now, None)
        if op.spec.kind is CallKind.CLOSE and op.handle is not None:
            op.handle.end(ended)
        self.engine.totals["nr_in_flight_calls"] += op.task.recorded
        nothing = {"end_time_ns": None, "status": 1, "result": None, "error": 0, "bytes_result": None}
        nothing |= {"handle": op.handle, "handle2": op.handle2}
        row = self._row(op, offset) | nothing
        row |= self.engine.cache.judge(op, row, completed=False)
        self._emit(row, self.engine.rings.batches.row(op, None, None))
        if not self.engine.over:  # a call in flight at the end of the trace may go on
            perhaps_replaced(op, self.engine.now)
            ends_over(op, self.engine.now)
        op.task.left = Left(op, self.engine.now, None)
        self.engine.files.due(op.task)

    def _row(self, op: Pending, offset: Offset) -> dict[str, Any]:
        spec, values = op.spec, op.values
        counted = "count" in values and not spec.vectored and spec.kind is not CallKind.FCNTL
        flags = values.get("flags", 0)
        return {
            "begin_time_ns": op.time,
            "task": op.task,
            "process": op.task.process.index,
            "tid": op.task.tid,
            "pid": op.task.process.pid,
            "call": spec.name,
            "offset_source": offset[1],
            "offset_bytes": offset[0],
            "cpu": op.cpu,
            "fd": -1 if spec.kind in OPENS else op.fd,
            "flags": flags & MASK32,
            "bytes_request": values["count"] if counted else None,
            "closes": 0,
            "first_use": op.first_use,
            "run_queue_ns": None,
            "blocked_ns": None,
            "fuse_requests": 0,
            "fuse_ns": 0,
        }

    def _emit(self, row: dict[str, Any], batch: dict[str, Any] | None) -> None:
        if not row["task"].recorded:
            self.engine.totals["nr_own_calls"] += self.engine.all_tasks
            return
        for handle in (row["handle"], row["handle2"]):
            if handle is not None:
                handle.used = True
        if batch is not None:
            self.engine.batches.append(batch | {"operation": len(self.engine.operations)})
        self.engine.operations.append(row)

    def _destroy(self, handle: Handle, task: Task, time: int) -> None:
        """A handle event, if a used handle ended outside of the calls that name it."""
        if handle.wanted and task.recorded:
            handle.used = True
            self._tell(handle, task, time, kind=0, flags=0)

    def _tell(self, handle: Handle | None, task: Task, time: int, *, kind: int, flags: int) -> None:
        row = {"before": len(self.engine.operations), "time_ns": time, "task": task, "handle": handle, "kind": kind}
        self.engine.handle_events.append(row | {"flags": flags})

    # -- effects

    def _effects(  # noqa: C901 - one case per row of the document's table
        self, op: Pending, time: int, ret: int, row: dict[str, Any]
    ) -> list[Handle]:
        """The effects of a successful call; returns the handles that ended."""
        kind, flags, table = op.spec.kind, row["flags"], op.task.table
        if kind in OPENS and not self.engine.rings.has_no_descriptor(op):
            known = row["flags"] if "flags" in op.values else op.spec.fixed_flags
            op.handle = self._install(op, ret, OPENED, new_description(known), time)
            row["fd"] = ret
            path = op.values.get("path")
            paired = self.engine.gaps.spare(op.time)  # else entry and exit may be of two calls
            if paired and path and not path.endswith(b"...") and op.handle.description.name is None:
                op.handle.description.name = (0, 0, 0, MASK32, path)
                op.handle.description.name_source = 2
            self._set_cloexec(table, ret, on=bool((known or 0) & O_CLOEXEC))
            self.engine.rings.installed(op, op.handle)
        elif kind is CallKind.DUP or (kind is CallKind.FCNTL and flags in (F_DUPFD, F_DUPFD_CLOEXEC)):
            self._duplicate(op, ret, time, cloexec=kind is CallKind.FCNTL and flags == F_DUPFD_CLOEXEC)
        elif kind is CallKind.DUP_TO and op.fd != op.fd2:
            slot = table.take(op.fd2, time)
            if slot is not None and slot.own:
                slot.handle.end(time)
            self._duplicate(op, op.fd2, time, cloexec=bool(flags & O_CLOEXEC))
            return [slot.handle] if slot is not None and slot.own else []
        elif kind is CallKind.FCNTL and flags == F_SETFD:
            self._set_cloexec_of(op, on=bool(op.values["count"] & 1))
        elif kind is CallKind.IOCTL and flags in (FIOCLEX, FIONCLEX):
            self._set_cloexec_of(op, on=flags == FIOCLEX)
        elif kind is CallKind.FCNTL and flags == F_SETFL and op.handle is not None:
            op.handle.description.append = bool(op.values["count"] & O_APPEND)
            op.new_flags = op.values["count"] & MASK32
        elif kind is CallKind.UNSHARE and flags & CLONE_FILES:
            self.engine.tasks.unshare(op.task, op)
        elif kind is CallKind.CLOSE_RANGE:
            return self._close_range(op, time, flags)
        return []

    def _install(self, op: Pending, fd: int, origin: int, description: Description, time: int) -> Handle:
        """Put a new handle into a slot. The slot's old handle ended unseen."""
        slot = op.task.table.slots.get(fd)
        op.found_since = None if slot is None else slot.since
        if is_moved(self.engine, op.task.table, fd):
            # a call under way on this number may have moved it
            description.position, description.last_moved = None, time
        self.lookups.forget(op.task.table, fd, time)
        op.made = self.tables.make(op.task, fd, origin, description, time)
        op.task.table.put(fd, op.made, time)
        if op.spec.kind is not CallKind.DUP_TO:  # the number was free
            for end in op.task.table.ends:
                end.spent |= end.fd == fd and not (end.blind or end.tainted) and end.until is None
        return op.made

    def _duplicate(self, op: Pending, fd: int, time: int, *, cloexec: bool) -> None:
        if op.handle is None:
            self.lookups.forget(op.task.table, fd, time)
            return
        op.handle2 = self._install(op, fd, DUPLICATED, op.handle.description, time)
        op.handle2.parent = op.handle
        op.handle2.open_flags = op.handle.open_flags
        self._set_cloexec(op.task.table, fd, on=cloexec)

    @staticmethod
    def _set_cloexec(table: Table, fd: int, *, on: bool) -> None:
        slot = table.slots.get(fd)
        if slot is not None:
            slot.cloexec = slot.handle.cloexec = on

    def _set_cloexec_of(self, op: Pending, *, on: bool) -> None:
        slot = op.task.table.slots.get(op.fd)
        if slot is not None and slot.handle is op.handle:
            self._set_cloexec(op.task.table, op.fd, on=on)
        elif op.doubtful:  # nobody knows whether the slot's file will outlive an exec
            self.lookups.forget(op.task.table, op.fd, self.engine.now)

    def _close_range(self, op: Pending, time: int, flags: int) -> list[Handle]:
        if flags & RANGE_UNSHARE:
            self.engine.tasks.unshare(op.task, op)
        table, ended = op.task.table, []
        for fd in sorted(table.slots):
            if not op.fd & MASK32 <= fd <= op.fd2 & MASK32:
                continue
            if flags & RANGE_CLOEXEC:
                slot = table.slots[fd]
                slot.cloexec = True
                if slot.own:
                    slot.handle.cloexec = True
            else:
                ended += self._end_slot(table, fd, time)
        return ended

    @staticmethod
    def _end_slot(table: Table, fd: int, time: int) -> list[Handle]:
        slot = table.take(fd, time)
        if slot is None or not slot.own:
            return []
        slot.handle.end(time)
        return [slot.handle]

    def close_on_exec(self, task: Task, time: int) -> None:
        """Exec ends the handles that are close-on-exec."""
        for fd in sorted(fd for fd, slot in task.table.slots.items() if slot.cloexec):
            for handle in self._end_slot(task.table, fd, time):
                self._destroy(handle, task, time)

    # -- facts

    def fact(self, values: dict[str, Any]) -> None:
        """``FD``: a descriptor from /proc, true at some moment between begin - margin and end + margin (now)."""
        found = self.engine.tasks.table_of(values["pid"])
        if found is None or values["jumped"]:
            self.engine.totals["nr_names_refused"] += 1
            return
        task, table = found
        if self.engine.all_tasks and not (task.recorded or task.from_exec):
            return
        if self.engine.files.ends_unseen:
            self.engine.totals["nr_names_refused"] += 1
            return
        slot = table.slots.get(values["fd"])
        since = table.last_change(values["fd"]) if slot is None else slot.since
        steady = table.is_steady(values["fd"], values["begin"]) and self.engine.gaps.spare(values["begin"])
        if since > values["begin"] or not steady:
            self.engine.totals["nr_names_refused"] += 1
            return
        self.engine.totals["nr_names_verified"] += 1
        if slot is None:
            origin = BEFORE if values["end"] <= self.engine.meta.start_ns else UNSEEN
            handle = self.tables.make(task, values["fd"], origin, Description(None), None)
            handle.description.first_use = None  # a look is not a use
            table.find(values["fd"], handle)
            slot = table.slots[values["fd"]]
        self._learn(slot, values, moved=is_moved(self.engine, table, values["fd"]))

    @staticmethod
    def _learn(slot: Slot, values: dict[str, Any], *, moved: bool) -> None:
        description = slot.description
        if description.name is None or description.name_source == 2:
            description.name = tuple(values[key] for key in ("mode", "device", "inode", "mount", "path"))  # type: ignore[assignment]
            description.name_source = 1
        learn_flags(slot, values["open_flags"])
        compare_position(description, values["mode"], None if moved else values["position"], values["begin"])
