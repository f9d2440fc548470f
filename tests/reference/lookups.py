"""Which file a call met: the one that its slot held, or an unknown one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lo2io.model import CallKind, Returns
from reference.fds import DUPLICATED, OPENED, UNSEEN, Description, End, Handle, Table, Tables
from reference.positions import can_move

if TYPE_CHECKING:
    from reference.engine import Reference
    from reference.pending import Pending
    from reference.tasks import Task

EBADF, F_SETFL = 9, 4
O_RDONLY, O_WRONLY, O_ACCMODE, O_PATH = 0, 1, 3, 0o10000000
PATH_COMMANDS = (0, 1, 2, 3, 1030)
"""F_DUPFD, F_GETFD, F_SETFD, F_GETFL, F_DUPFD_CLOEXEC: fcntl's commands that O_PATH allows (check_fcntl_cmd)."""
RANGE_UNSHARE, RANGE_CLOEXEC = 2, 4
MASK32 = 2**32 - 1
OPENS = (CallKind.OPEN, CallKind.RING_SETUP)
NAMES_NO_HANDLE = (*OPENS, CallKind.CLOSE_RANGE, CallKind.CLONE, CallKind.UNSHARE)


class Lookups:
    """Decides which handles calls met."""

    def __init__(self, engine: Reference) -> None:
        self.engine = engine
        self.tables = Tables(lambda: engine.now)

    @staticmethod
    def claim(op: Pending) -> None:
        """A handle's first use is the first row that names it."""
        for bit, handle in enumerate((op.handle, op.handle2)):
            if handle is not None and not handle.wanted and op.task.recorded:
                handle.wanted = True
                op.claimed.add(handle)
                op.first_use |= (handle.origin not in (OPENED, DUPLICATED)) << bit

    def confirm(self, op: Pending, *, met: bool = True) -> None:
        """The call keeps its handles if their slots were constant since its entry; else it has none."""
        for bit, name in enumerate(("handle", "handle2")):
            handle, fd = getattr(op, name), (op.fd, op.fd2)[bit]
            if handle is None:
                continue
            if bit and op.handle is None and op.fd == op.fd2:
                op.handle2, op.doubtful = None, {bit for zero in op.doubtful for bit in (zero, 1)}
                continue
            slot, closes = op.task.table.slots.get(fd), op.spec.kind is CallKind.CLOSE
            here = slot is not None and slot.handle is handle and slot.since <= op.time
            table = op.task.table
            spent = closes and any(end.op is op and end.spent for end in table.ends)
            steady = (table.is_safe if spent else table.is_steady)(fd, op.time, op)
            missed = not met and not closes and not is_open_otherwise(op, handle, bit)
            certain = (closes or here) and steady and self.engine.gaps.spare(op.time) and not missed
            if certain and not self._is_believed(op, handle, fd, met=met):
                continue
            if not certain:
                op.doubtful.add(bit)
            self._doubt(op, handle, fd)
            if closes:
                handle.end(None)
            elif certain and slot is not None:
                self.forget(op.task.table, fd, slot.since)
            elif missed and slot is not None and slot.handle is handle and _tells_by_ebadf(op, handle):
                self.forget(op.task.table, fd, self.engine.now)
            setattr(op, name, None)
        if met or op.spec.kind is not CallKind.CLOSE:
            self.claim(op)

    def _is_believed(self, op: Pending, handle: Handle, fd: int, *, met: bool) -> bool:
        """True if an unseen exchange was possible, the recorded name may be the old file's, and no fact confirms it."""
        files = self.engine.files
        if not files.ends_unseen or (handle.description.name is None and handle.description.identity is None):
            return False
        if op.spec.kind is CallKind.CLOSE:
            return not met or not files.has_no_rivals(op.task)
        return fd not in op.confirmed

    def _doubt(self, op: Pending, handle: Handle | None, fd: int) -> None:
        """The call may have moved, or made append, what its slot holds now and what the slot seemed to hold."""
        slot, now = op.task.table.slots.get(fd), self.engine.now
        both = [each for each in (handle and handle.description, slot and slot.description) if each is not None]
        if handle is not None and handle.description in op.moves:
            handle.description.moving.remove(op)
            op.moves.remove(handle.description)
            handle.description.move_to(None)
            handle.description.last_moved = now
            op.position = None
        if slot is not None and can_move(op):
            slot.description.position, slot.description.last_moved = None, now
        if op.spec.kind is CallKind.FCNTL and op.values["flags"] & MASK32 == F_SETFL:
            for description in both:
                description.append = None

    @staticmethod
    def forget(table: Table, fd: int, since: int) -> None:
        """The slot has been unknown since then."""
        slot = table.slots.pop(fd, None)
        table.changed[fd] = since
        if slot is not None and slot.own:
            slot.handle.end(None)

    def see_unseen(self, op: Pending, ret: int) -> None:
        """An fd whose opening was not seen gets a handle when a call on it succeeds, or closes it."""
        error = -ret if ret < 0 else 0
        closes, copies = op.spec.kind is CallKind.CLOSE, op.spec.kind is CallKind.COPY
        proven = closes or (ret >= 0 and not (copies and op.values.get("count") == 0))
        if error == EBADF or op.spec.kind in NAMES_NO_HANDLE:
            return
        if op.handle is None and op.fd >= 0 and "fd" in op.values and 0 not in op.doubtful:
            if proven or self._is_found(op, op.fd):
                op.handle = self.unseen(op.task, op.fd, op.time, op)
            self._doubt(op, None, op.fd)
        if op.spec.kind is CallKind.COPY and op.handle2 is None and op.fd2 >= 0 and 1 not in op.doubtful:
            same = op.fd2 == op.fd
            if same:
                op.handle2 = op.handle
            elif proven or self._is_found(op, op.fd2):
                op.handle2 = self.unseen(op.task, op.fd2, op.time, op)
            self._doubt(op, None, op.fd2)
        self.claim(op)

    def _is_found(self, op: Pending, fd: int) -> bool:
        """Since the entry, a fact has filled the slot with a file that was there before the entry."""
        table, slot = op.task.table, op.task.table.slots.get(fd)
        here = slot is not None and slot.since <= op.time
        return here and table.is_steady(fd, op.time, op) and self.engine.gaps.spare(op.time)

    def unseen(self, task: Task, fd: int, since: int, op: Pending | None = None) -> Handle:
        """A handle for a slot that seemed empty at ``since``, and was used then."""
        table, closing = task.table, op is not None and op.spec.kind is CallKind.CLOSE
        slot, steady = (
            table.slots.get(fd),
            op is None or (table.is_steady(fd, since, op) and self.engine.gaps.spare(since)),
        )
        found = slot is not None and slot.since <= since
        if slot is not None and found and steady:
            # Since the entry, a fact has filled the slot with a file that was there before the entry.
            if closing:
                table.take(fd, self.engine.now)
            return self.tables.use(slot, task, fd)
        if found and closing:
            self.forget(table, fd, self.engine.now)
        handle = self.tables.make(task, fd, UNSEEN, Description(None), None)
        if closing:
            return handle
        if slot is None and steady and (op is None or table.last_change(fd) <= since):
            table.find(fd, handle)
        else:
            handle.end(None)
        return handle


def _tells_by_ebadf(op: Pending, handle: Handle) -> bool:
    """True if EBADF proves an empty slot: the file is open for the call, which is no message and needs no pipe."""
    spec = op.spec
    if spec.kind not in (CallKind.READ, CallKind.WRITE) or spec.returns is not Returns.BYTES:
        return False
    no_pipe = "offset" in op.values or "flags" not in spec.fields
    return handle.description.flags is not None and (no_pipe if spec.vectored else "count" in op.values)


def is_open_otherwise(op: Pending, handle: Handle, place: int) -> bool:
    """True if the file is not open for this call, so that EBADF proves nothing."""
    flags, kind = handle.description.flags, op.spec.kind
    if flags is None:
        return False
    does = (CallKind.READ, CallKind.WRITE)[place] if kind is CallKind.COPY else kind
    refused = {CallKind.READ: (O_WRONLY, O_ACCMODE), CallKind.WRITE: (O_RDONLY, O_ACCMODE)}.get(does, ())
    command = op.values["flags"] & MASK32 if kind is CallKind.FCNTL else None
    any_file = kind in (CallKind.DUP, CallKind.DUP_TO) or command in PATH_COMMANDS
    return bool(flags & O_PATH and not any_file) or flags & O_ACCMODE in refused


def is_moved(engine: Reference, table: Table, fd: int, but: Pending | None = None) -> bool:
    """True if another thread of the table is in a call that moves the position, whether it knows the file or not."""
    calls = [task.pending for task in engine.tasks.alive.values() if task.table is table and task.pending is not but]
    return any(each and each.shared and can_move(each) and fd in named_by(each) for each in calls)


def named_by(op: Pending) -> tuple[int, ...]:
    """The descriptors that the call reads, writes or moves."""
    return (op.fd, op.fd2) if op.spec.kind is CallKind.COPY else (op.fd,)


def known_of(op: Pending) -> list[int]:
    """Of these, the known ones."""
    handles = (op.handle, op.handle2) if op.spec.kind is CallKind.COPY else (op.handle,)
    return [fd for fd, handle in zip(named_by(op), handles, strict=True) if handle is not None]


def ends_begin(op: Pending) -> None:
    """From its entry on, the call may end what others use."""
    kind, table = op.spec.kind, op.task.table
    if kind is CallKind.CLOSE_RANGE and not op.values.get("flags", 0) & (RANGE_UNSHARE | RANGE_CLOEXEC):
        table.ends.append(End(op, None, op.time, blind=True))
    if kind not in (CallKind.CLOSE, CallKind.DUP_TO):
        return
    fd = op.fd2 if kind is CallKind.DUP_TO else op.fd
    if fd < 0:
        return
    others = [end for end in table.ends if end.fd == fd and end.until is None and not end.spent]
    fresh = End(op, fd, op.time, blind=kind is CallKind.DUP_TO or op.handle is None or bool(others))
    for end in others:
        end.tainted |= fresh.blind and not end.blind
    table.ends.append(fresh)


def perhaps_replaced(op: Pending, time: int) -> None:
    """The end of a dup2 or dup3 was not seen: it may have replaced what its target held."""
    begun = op.table is not None and any(end.op is op for end in op.table.ends)
    if begun and op.spec.kind is CallKind.DUP_TO and op.fd != op.fd2:
        Lookups.forget(op.task.table, op.fd2, time)


def closed_amid_dup2(op: Pending, time: int) -> None:
    """During the close, another thread's dup2 put a file there, which the close may have ended."""
    table = op.task.table
    slot = table.slots.get(op.fd)
    certain = any(end.op is op and not (end.blind or end.spent) for end in table.ends)
    if certain and slot is not None and slot.handle is not op.handle:
        Lookups.forget(table, op.fd, time)


def ends_over(op: Pending, time: int) -> None:
    """The call has ended it."""
    for end in op.table.ends if op.table is not None else ():
        if end.op is op and end.until is None:
            end.until = time
