"""Which open file a descriptor stands for, as BPF programs saw it: the slow engine's rules."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lo2io.model import CallKind
from reference.cache import kind_of
from reference.fds import BEFORE, S_IFIFO, UNSEEN, Description, Slot, compare_position, learn_flags
from reference.kernel_names import SLOT, name_of
from reference.lookups import is_moved
from reference.sharing import table_told

if TYPE_CHECKING:
    from reference.engine import Reference
    from reference.fds import Handle
    from reference.pending import Pending
    from reference.tasks import Task

Fact = dict[str, Any]
OF_RESULT, OF_ARGUMENT, OF_REQUEST = 0, 1, 2
EBADF, KERNEL, BTRFS, MQUEUE, MOST_FDS = 9, 3, 0x9123683E, 0x19800202, 1 << 20
DUPS = (CallKind.DUP, CallKind.DUP_TO, CallKind.FCNTL)
ENDING = ("close", "close_range", "dup2", "dup3")


@dataclass(eq=False)
class Left:
    """The call that a thread left last."""

    op: Pending | None
    end: int
    result: int | None
    """None: the exit was not seen."""
    row: dict[str, Any] | None = None

    def is_of(self, time: int) -> bool:
        """True if a fact of that time is about this call."""
        return self.op is not None and self.result is not None and self.op.time <= time <= self.end


@dataclass(frozen=True)
class Sight:
    """A fact, with its call."""

    values: Fact
    left: Left | None
    op: Pending | None
    """The call that its thread has not left yet."""

    @property
    def fd(self) -> int:
        """The descriptor."""
        return int(self.values["fd"])

    @property
    def is_result(self) -> bool:
        """True if the fact is about the call's result."""
        return bool(self.values["of"] == OF_RESULT)

    @property
    def begin(self) -> int:
        """The call's start; the fact's own time if the call is not known."""
        of_call = self.left is not None and self.left.op is not None
        return self.left.op.time if of_call else int(self.values["time"])  # type: ignore[union-attr]

    @property
    def made(self) -> Handle | None:
        """The handle that the call put into a slot."""
        return self.left.op.made if self.left is not None and self.left.op is not None else None


class Files:
    """Takes the facts about descriptors."""

    def __init__(self, engine: Reference) -> None:
        self.engine = engine
        meta = engine.meta
        halves = {f"syscalls:sys_{half}_{call}" for call in ENDING for half in ("enter", "exit")}
        self.ends_unseen = bool(meta.chosen_cpus) or not halves <= {*meta.events, *meta.lacking}
        counted = [counts.lost for counts in meta.counts]
        unseen = meta.missed_runs or meta.facts_lost or meta.tasks_lost or meta.absences
        self.records_lost = bool(not meta.complete or None in counted or unseen or any(map(any, counted)))  # type: ignore[arg-type]

    def lost(self) -> None:
        """``LOST``: from now on, calls may be missing."""
        self.records_lost = True

    def told(self, fact: Fact) -> None:
        """``FILE``: waits for the exit of the call in which its thread is."""
        task = self.engine.tasks.of_sample(fact["tid"], create=True)
        if task is None or not (task.recorded or task.from_exec) or fact["flags"] & SLOT:
            return
        if task.pending is not None and fact["of"] != OF_REQUEST:
            task.held.append(fact)
        else:
            self._take(task, fact, task.pending)

    def due(self, task: Task, op: Pending | None = None, *, arguments_only: bool = False) -> None:
        """The call is being left (``op``), or was left."""
        held, task.held = task.held, []
        for fact in held if arguments_only else ():
            table_told(self.engine, task, fact["table"], op)
        for fact in held:
            if arguments_only and fact["of"] != OF_ARGUMENT:
                task.held.append(fact)
            else:
                self._take(task, fact, op)

    def has_no_rivals(self, task: Task) -> bool:
        """True if no other thread of its table runs in user mode."""
        alive = task.process.alive
        return task.table.users == len(alive) and sum(not each.kernels for each in alive) == 1

    def _take(self, task: Task, fact: Fact, op: Pending | None) -> None:
        table_told(self.engine, task, fact["table"], op or task.pending)
        left = task.left if task.left is not None and task.left.is_of(fact["time"]) else None
        at = Sight(fact, None if fact["of"] == OF_REQUEST else left, op)
        missed = at.left is not None and not at.is_result and at.left.result == -EBADF
        holds = 0 <= at.fd < MOST_FDS and not missed
        holds = holds and (self._is_result(task, at) if at.is_result else self._is_constant(task, at.fd, at))
        if not holds or not self._settle(task, at):
            self.engine.totals["nr_files_refused"] += 1
            task.told = None if fact["of"] == OF_REQUEST else task.told
            return
        self.engine.totals["nr_files_told"] += 1
        slot = task.table.slots[at.fd]
        self._learn(slot, at, moved=is_moved(self.engine, task.table, at.fd))
        task.told = slot.description if fact["of"] == OF_REQUEST else task.told
        if at.op is not None and at.left is not None and not at.is_result:
            at.op.confirmed.add(at.fd)
            self._point(at.op, slot.handle, at.fd)

    # -- does the fact hold?

    def _is_constant(self, task: Task, fd: int, at: Sight) -> bool:
        since = self._since(task, fd)
        if since > at.begin or not self._is_steady(task, fd, at):
            return False
        return not self.ends_unseen or self.has_no_rivals(task)

    def _is_steady(self, task: Task, fd: int, at: Sight) -> bool:
        return self.engine.gaps.spare(at.begin) and task.table.is_steady(fd, at.begin, at.op)

    @staticmethod
    def _since(task: Task, fd: int) -> int:
        slot = task.table.slots.get(fd)
        return task.table.last_change(fd) if slot is None else slot.since

    def _is_result(self, task: Task, at: Sight) -> bool:
        if not self.engine.gaps.spare(at.begin) or not task.table.is_safe(at.fd, at.begin, at.op):
            return False
        if at.left is None or at.left.op is None:
            return self._since(task, at.fd) <= at.begin
        if at.left.op.spec.kind is CallKind.DUP_TO and not self._is_steady(task, at.fd, at):
            return False
        filled = at.left.op.found_since
        if at.left.result != at.fd or (filled is not None and filled > at.begin):
            return False
        slot = task.table.slots.get(at.fd)
        return at.made is None or (slot is not None and slot.handle is at.made)

    # -- which description is it?

    def _settle(self, task: Task, at: Sight) -> bool:
        slot = task.table.slots.get(at.fd)
        if slot is None:
            task.table.find(at.fd, self._new(task, at))
            return True
        description = slot.description
        lacking = self.ends_unseen or self.records_lost
        used_before = lacking and description.first_use is not None and description.first_use < at.begin
        if description.identity is not None:
            other = description.identity != identity_of(at.values)
        else:
            other = used_before or (at.is_result and (at.left is None or slot.handle is not at.made))
        if other:
            self._replace(task, slot, at)
            return True
        if description.identity is not None or not at.is_result:
            return True
        op = at.left.op if at.left is not None else None
        return op is None or op.spec.kind not in DUPS or self._is_constant(task, op.fd, at)

    def _new(self, task: Task, at: Sight) -> Handle:
        origin = BEFORE if at.values["time"] <= self.engine.meta.start_ns else UNSEEN
        return self.engine.calls.tables.make(task, at.fd, origin, Description(None), None)

    def _replace(self, task: Task, slot: Slot, at: Sight) -> None:
        """The file that seemed to be in the slot ended at an unknown time."""
        fresh = self._new(task, at)
        row = at.left.row if at.left is not None and at.is_result else None
        if row is not None and row["handle2"] is slot.handle:
            if at.left is not None and at.left.op is not None:
                for handle in at.left.op.claimed & {row["handle"]}:
                    handle.wanted = handle.used = False
            slot.handle.wanted = slot.handle.used = False
            fresh.wanted = fresh.used = True
            row["handle"], row["handle2"], row["first_use"] = None, fresh, 2
        task.table.take(at.fd, at.begin)
        if slot.own:
            slot.handle.end(None)
        task.table.put(at.fd, fresh, at.begin)

    # -- what the fact adds

    @staticmethod
    def _learn(slot: Slot, at: Sight, *, moved: bool) -> None:
        description, values = slot.description, at.values
        learn_flags(slot, values["open_flags"])
        mode = S_IFIFO if values["magic"] == MQUEUE else values["mode"]
        compare_position(description, mode, None if moved else values["position"], values["time"])
        description.identity = identity_of(values)
        description.cached = kind_of(values)
        name = name_of(values)
        if description.name_source == KERNEL or name is None:
            return
        device = values["device"]
        number = 0 if values["magic"] == BTRFS else os.makedev(device >> 20, device & 0xFFFFF)
        description.name = (values["mode"], number, values["inode"], values["mount"], name)
        description.name_source = KERNEL

    @staticmethod
    def _point(op: Pending, handle: Handle, fd: int) -> None:
        """The call met this handle, whatever its slot seemed to hold at the entry."""
        for name, given in (("handle", op.fd), ("handle2", op.fd2 if op.spec.kind is CallKind.COPY else None)):
            held = getattr(op, name)
            if given != fd or held is None or held is handle:
                continue
            if held.description in op.moves and (name == "handle" or op.moves[-1] is held.description):
                held.description.moving.remove(op)
                op.moves.remove(held.description)
                op.position = None
            setattr(op, name, handle)


def identity_of(values: Fact) -> tuple[int, int, int, int]:
    """The facts that tell a file from a later one at the same address."""
    return values["file"], values["device"], values["inode"], values["generation"]
