"""Threads: which are recorded, and how their births and ends change fd tables."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from lo2io.model import CallKind
from reference.fds import LONG_AGO, Table
from reference.kernel_records import NO_USAGE

if TYPE_CHECKING:
    from reference.engine import Reference
    from reference.fds import Description
    from reference.kernel_files import Left
    from reference.pending import Pending
    from reference.ring_objects import Ring

CLONE_FILES = 0x400
SELECT, FROM_EXEC, COMPAT = 1, 2, 4
WORKER = 1
KERNEL_NAMES = {1: b"iou-wrk-", 2: b"iou-sqp-"}
LONGEST_CGROUP = 1023
"""The kernel's buffer for a path. A path that fills it may have been cut off."""


@dataclass(eq=False)
class Process:
    """One process, though pids are used again."""

    index: int
    pid: int | None
    ppid: int | None
    parent: Process | None
    cgroup: bytes | None = None
    hierarchy: int = 0
    moved: int = LONG_AGO
    """When an event told its cgroup."""
    command: bytes = b""
    """Its arguments, separated by zero bytes; empty: unknown."""
    command_cut: bool = False
    command_since: int = LONG_AGO
    """Its last exec."""
    rank: int | None = None
    forks: int = 0
    """Processes that it has made."""
    compat: bool = False
    """It runs a program of 32 bits that was counted."""
    whole: bool = False
    """It, or its exec, began in the trace."""
    setups: list[Pending] = field(default_factory=list)
    """io_setup calls whose contexts are not known yet."""
    several_setups: bool = False
    tasks: list[Task] = field(default_factory=list)

    @property
    def alive(self) -> list[Task]:
        """Its living threads."""
        return [task for task in self.tasks if not task.ended]

    @property
    def recorded(self) -> bool:
        """True if one of its threads is recorded."""
        return any(task.recorded for task in self.tasks)


@dataclass(eq=False)
class Task:
    """One thread, though tids are used again."""

    index: int
    process: Process
    tid: int
    start: int | None
    comm: bytes
    recorded: bool
    table: Table
    from_exec: bool = False
    ended: bool = False
    exit: int | None = None
    in_exec: bool = False
    """No record of it has followed the COMM of its exec."""
    exec_exit: int | None = None
    """Time of an EXIT that came then, and that no record has followed."""
    pending: Pending | None = None
    cgroup: bytes | None = None
    """Its process' cgroup at its end."""
    command: bytes = b""
    """Its process' command at its end."""
    command_cut: bool = False
    rank: int | None = None
    """Its process' rank at its end."""
    ppid: int | None = None
    """As known at its end."""
    entered: bool = False
    """It has made a call."""
    left: Left | None = None
    """The call that it left last."""
    held: list[dict[str, Any]] = field(default_factory=list)
    request_gone: int = 0
    """When a block request of its own ended the last time."""
    told: Description | None = None
    """The description in the last fact about a request; None: the fact proved nothing."""
    kernels: bool = False
    """The kernel made it: it never runs in user mode."""
    owner: Task | None = None
    """A worker's owner."""
    serves: list[Ring] = field(default_factory=list)
    """The rings among whose workers it counts."""
    uses: list[Ring] = field(default_factory=list)
    """The rings to which it has submitted."""
    usage: dict[str, int | None] = field(default_factory=NO_USAGE.copy)
    """Its usage, by column."""

    @property
    def kind(self) -> int:
        """By the name that the kernel gave: a worker of an io_uring, a poller, or any other thread."""
        if self.entered:
            return 0
        return next((kind for kind, name in KERNEL_NAMES.items() if self.comm.startswith(name)), 0)

    def lives(self) -> None:
        """A record came that only a living thread causes."""
        self.in_exec, self.exec_exit = False, None


class Tasks:
    """All threads that were seen or announced."""

    def __init__(self, engine: Reference) -> None:
        self.engine = engine
        self.all: list[Task] = []
        self.alive: dict[int, Task] = {}
        self.exited: dict[int, int] = {}
        self.processes: list[Process] = []
        self.pids: dict[int, int] = {}
        """By tid, the pid of the first fact about each thread, also before that fact."""

    def process(self, pid: int | None) -> Process | None:
        """The living process of that pid."""
        if pid is None:
            return None
        return next((p for p in self.processes if p.pid == pid and p.alive), None)

    def _new_process(self, pid: int | None, ppid: int | None, parent: Process | None) -> Process:
        process = Process(len(self.processes), pid, ppid, parent)
        self.processes.append(process)
        return process

    def _new(self, process: Process, tid: int, start: int | None, table: Table, *, recorded: bool) -> Task:
        task = Task(len(self.all), process, tid, start, b"", recorded, table)
        table.users += 1
        process.tasks.append(task)
        self.all.append(task)
        self.alive[tid] = task
        return task

    def _recorded_by_default(self, pid: int | None) -> bool:
        meta = self.engine.meta
        return self.engine.all_tasks and pid != meta.recorder_pid and pid not in meta.own_pids

    def _is_own(self, process: Process | None, pid: int) -> bool:
        """True for lo2io's own processes: the recorder, and those that it forks while it records."""
        return pid == self.engine.meta.recorder_pid or (process is not None and not process.alive[0].recorded)

    def of_sample(self, tid: int, *, create: bool) -> Task | None:
        """The thread of a sample. In system mode, an unknown one is made."""
        task = self.alive.get(tid)
        if task is None and create and self.engine.all_tasks:
            task = self._adopt(self.pids.get(tid, tid), tid, None)
        return task

    def _adopt(self, pid: int, tid: int, ppid: int | None) -> Task:
        """A thread known only from a fact or a sample: of the process that lives under that pid, if any."""
        process = self.process(pid)
        if process is not None:
            known = process.alive[0]
            task = self._new(process, tid, None, known.table, recorded=known.recorded)
            task.from_exec = known.from_exec
            return task
        process = self._new_process(pid, ppid, self.process(ppid))
        return self._new(process, tid, None, Table(LONG_AGO), recorded=self._recorded_by_default(pid))

    # -- records

    def fork(self, time: int, values: dict[str, Any]) -> None:
        """``PERF_RECORD_FORK``."""
        pid, tid = values["pid"], values["tid"]
        parent = self.alive.get(values["ptid"])
        self.end_unseen(self.alive.get(tid))
        if parent is None:
            parent = self._unknown_maker(values)
        else:
            parent.lives()
        if parent is None and pid == values["ppid"] and self.process(pid) is not None:
            self._adopt(pid, tid, None).start = time  # an unknown thread has made a thread of a known process
            return
        if parent is None and not self.engine.all_tasks:
            return
        if parent is not None:
            recorded = parent.recorded
        else:
            recorded = self._recorded_by_default(pid) and not self._is_own(self.process(values["ppid"]), values["ppid"])
        waiting = parent is not None and parent.from_exec
        if not (recorded or waiting or self.engine.all_tasks):
            return
        if parent is not None and parent.process.pid == pid:
            process, table = parent.process, parent.table
        else:
            known = parent is not None and parent.recorded
            if parent is not None:
                parent.process.forks += 1
            process = self._new_process(pid, values["ppid"], parent.process if known else None)
            table = self._table_of_child(parent, time)
            if parent is not None:
                came_from = parent.process
                process.cgroup, process.hierarchy = came_from.cgroup, came_from.hierarchy
                process.moved = came_from.moved
                process.command, process.command_cut = came_from.command, came_from.command_cut
                process.command_since = came_from.command_since
                process.rank, process.compat = came_from.rank, came_from.compat
        process.whole = process.whole or not process.tasks
        task = self._new(process, tid, time, table, recorded=recorded)
        if parent is not None:
            task.comm, task.from_exec = parent.comm, waiting
            self._born(task, parent, time)

    def _unknown_maker(self, values: dict[str, Any]) -> Task | None:
        """On the whole machine: the thread of an unknown process that has made another one of that process."""
        pid = values["pid"]
        if pid == values["ppid"] and self.process(pid) is None and self.engine.all_tasks:
            return self._adopt(pid, values["ptid"], None)
        return None

    def _born(self, task: Task, parent: Task, time: int) -> None:
        """A thread that the kernel makes for a thread in a call, or for one of its own threads."""
        inside = parent.pending is not None and parent.pending.spec.kind is not CallKind.CLONE
        task.kernels = task.process is parent.process and (inside or parent.kernels or parent.kind > 0)
        if parent.pending is not None and task.kernels and parent.pending.child is None:
            parent.pending.child = task
        if task.kind == WORKER:
            self.engine.rings.worker_born(task, time)

    @staticmethod
    def _table_of_child(parent: Task | None, time: int) -> Table:
        if parent is None:
            return Table(time)
        call = parent.pending
        if call is not None and call.spec.kind is CallKind.CLONE and call.values.get("flags", 0) & CLONE_FILES:
            return parent.table
        return parent.table.copy(None if call is None else call.time, time)

    def comm(self, time: int, values: dict[str, Any]) -> None:
        """``PERF_RECORD_COMM``, of an exec or of a new name."""
        task = self.alive.get(values["tid"])
        process = self.process(values["pid"])
        if values["exec"] and values["pid"] == values["tid"] and process is not None:
            task = self._take_over(process, task, time)
        if task is None:
            return
        was = task.kind
        task.comm = values["comm"]
        task.lives()
        task.in_exec = values["exec"]
        if task.kind == WORKER and was != WORKER:
            self.engine.rings.worker_born(task, time)
        if values["exec"]:
            task.process.whole, task.process.compat = True, False
            task.process.command, task.process.command_cut, task.process.command_since = b"", False, time
            self.engine.rings.batches.process_execs(task.process, time)
            if task.from_exec:
                task.start = time
                for each in task.process.alive:  # the others have exited, or their EXIT was lost
                    each.recorded, each.from_exec = True, False
            self.unshare(task, task.pending)
            self.engine.calls.close_on_exec(task, time)

    def mapping(self, values: dict[str, Any]) -> None:
        """``PERF_RECORD_MMAP``: a sign of life; the vDSO of a 32 bit program lies below 4 GiB."""
        task = self.alive.get(values["tid"])
        if task is not None:
            task.lives()
            if values["name"] == b"[vdso]" and values["address"] < 1 << 32:
                self._count_compat(task)

    def _count_compat(self, task: Task) -> None:
        """A program of 32 bits, whose calls may not have been recorded."""
        if self.engine.meta.compat_unseen and task.recorded and not task.process.compat:
            task.process.compat = True
            self.engine.totals["nr_compat_programs"] += 1

    def _take_over(self, process: Process, leader: Task | None, time: int) -> Task | None:
        """Exec by a thread that is not the leader: it goes on under the leader's tid (de_thread in fs/exec.c)."""
        others = [task for task in process.alive if task.tid != process.pid]
        if leader is not None or len(others) != 1 or process.pid is None:
            return leader
        (caller,) = others
        task = self._new(process, process.pid, time, caller.table, recorded=caller.recorded)
        task.pending, caller.pending = caller.pending, None
        if task.pending is not None:
            task.pending.task = task
        task.held, caller.held = caller.held, []
        task.from_exec = caller.from_exec
        self.end(caller, time)
        return task

    def exit(self, time: int, values: dict[str, Any]) -> None:
        """``PERF_RECORD_EXIT``. Right after the COMM of an exec, it may be the end of perf's records only."""
        task = self.alive.get(values["tid"])
        if task is not None and task.in_exec:
            task.in_exec, task.exec_exit = False, time
            return
        self.exited[values["tid"]] = time
        if task is not None:
            self.end(task, time)

    def end_unseen(self, task: Task | None) -> None:
        """The end of a thread, if it has ended, after which no record comes."""
        if task is None:
            return
        self.engine.totals["nr_gone_in_exec"] += task.exec_exit is not None and task.recorded
        self.end(task, task.exec_exit)

    def end(self, task: Task, known: int | None) -> None:
        """A thread's end; ``known`` is None if only its successor proves that."""
        self.engine.rings.requests.thread(task, self.engine.now if known is None else known, "exit")
        if task.pending is not None:
            self.engine.calls.in_flight(task.pending, known)
        self.engine.files.due(task)
        task.ended, task.exit, task.cgroup = True, known, task.process.cgroup
        task.command, task.command_cut = task.process.command, task.process.command_cut
        task.rank = task.process.rank
        task.ppid = task.process.ppid
        del self.alive[task.tid]
        if task.kind == WORKER:
            self.engine.rings.worker_gone(task, self.engine.now)
        self.engine.rings.owner_gone(task, self.engine.now)
        self._leave(task, known)
        if not task.process.alive:
            self.engine.rings.batches.process_execs(task.process, known)
            self.engine.rings.process_ended(task.process, known)

    def _leave(self, task: Task, time: int | None) -> None:
        task.table.users -= 1
        if task.table.users == 0:
            for handle in [slot.handle for slot in task.table.slots.values() if slot.own]:
                handle.end(time)

    def unshare(self, task: Task, op: Pending | None) -> None:
        """During this call, a shared table is copied."""
        if task.table.users > 1:
            copy = task.table.copy(None if op is None else op.time, self.engine.now)
            task.table.users -= 1
            task.table, copy.users = copy, 1

    # -- facts

    def fact(self, values: dict[str, Any]) -> None:
        """``TASK``: a thread from /proc."""
        tid, pid, flags = values["tid"], values["pid"], values["flags"]
        if self.exited.get(tid, LONG_AGO) >= values["begin"]:
            return
        task = self.alive.get(tid)
        fresh = self.process(pid) is None
        if task is None:
            if fresh and not self.engine.all_tasks and not flags & SELECT:
                return
            task = self._adopt(pid, tid, values["ppid"])
        task.comm = task.comm or values["comm"]
        if task.process.ppid is None and task.process.pid == pid:
            parent = self.process(values["ppid"])
            task.process.ppid = values["ppid"]
            task.process.parent = parent if parent is not None and parent.alive[0].recorded else None
        if values.get("cgroup") is not None and task.process.moved <= values["begin"]:
            task.process.hierarchy, task.process.cgroup = values["cgroup"]
        if flags & SELECT and (fresh or not task.recorded):
            for each in task.process.alive:
                each.from_exec = bool(flags & FROM_EXEC)
                each.recorded = not each.from_exec
        if flags & COMPAT and task.process.command_since < values["begin"]:
            self._count_compat(task)

    def command(self, values: dict[str, Any]) -> None:
        """``COMMAND``: a process' cmdline. One that was read before its last exec belongs to an older program."""
        process = self.process(values["pid"])
        if process is not None:
            self._tell_command(process, values["begin"], values)

    def rank(self, values: dict[str, Any]) -> None:
        """``RANK``: a process' rank. An exec keeps it, for it keeps the environment, as a rule."""
        process = self.process(values["pid"])
        if process is not None:
            process.rank = values["rank"]

    def executed(self, time: int, values: dict[str, Any]) -> None:
        """``EXEC``: the arguments of a new program."""
        task = self.of_sample(values["tid"], create=True)
        if task is not None and (task.recorded or task.from_exec):
            self._tell_command(task.process, time, values)

    @staticmethod
    def _tell_command(process: Process, begin: int, values: dict[str, Any]) -> None:
        command = values["command"].rstrip(b"\0")
        if command and process.command_since <= begin:
            process.command, process.command_cut = command, bool(values["cut"])

    def attached(self, time: int, values: dict[str, Any]) -> None:
        """Only the leader moves its process, in the hierarchy of its known cgroup, or into v2's."""
        task = self.alive.get(values["tid"])
        if task is None or task.process.pid != task.tid:
            return
        below_v2s_root = values["hierarchy"] == 0 and len(values["path"]) > 1
        if task.process.hierarchy != values["hierarchy"] and not below_v2s_root:
            return
        task.process.hierarchy = values["hierarchy"]
        task.process.cgroup = values["path"] if len(values["path"]) < LONGEST_CGROUP else None
        task.process.moved = time

    def table_of(self, pid: int) -> tuple[Task, Table] | None:
        """The table in a fact about this process: the leader's, or any thread's if the leader is gone."""
        process = self.process(pid)
        if process is None:
            return None
        task = next((t for t in process.alive if t.tid == pid), process.alive[0])
        return task, task.table
