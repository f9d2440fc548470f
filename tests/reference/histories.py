"""Histories of system calls that a kernel could produce, and possible damage by recording.

A hypothesis strategy draws small integers, which :class:`Machine` reads as moves: enter a call, let the kernel do its
work, leave, fork, exec, exit, look into /proc. So every drawing makes sense, and shrinks to few moves. The work of a
call happens anywhere between its entry and its exit, on tables like the kernel's.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st

from reference.kernel import O_CLOEXEC, Call, Kernel, Thread

History = list[tuple[str, tuple[Any, ...], dict[str, Any]]]
CALLS = (
    "read",
    "write",
    "read",
    "write",
    "pread64",
    "preadv2",
    "pwrite64",
    "lseek",
    "openat",
    "openat",
    "creat",
    "openat2",
    "socket",
    "close",
    "close",
    "dup",
    "dup2",
    "dup3",
    "fcntl",
    "ioctl",
    "close_range",
    "copy_file_range",
    "fsync",
    "sync",
    "newfstat",
    "unshare",
    "memfd_create",
    "writev",
    "sendfile64",
)
STEPS = (0, 1, 1, 1, 7, 7, 1_500, 6_000)
"""Nanoseconds between moves: equal times, close neighbours, and more than a fact's margin."""


@dataclass
class Machine(Kernel):
    """Threads, their tables, and the records that they cause.

    Every move takes the thread and two numbers to choose by, which it may ignore.
    """

    cpus: int
    now: int = 100_000
    history: History = field(default_factory=list)
    threads: list[Thread] = field(default_factory=list)
    next_tid: int = 100
    free_tids: list[int] = field(default_factory=list)
    past: list[tuple[int, int]] = field(default_factory=list)
    sectors: int = 0
    asked: list[int] = field(default_factory=list)
    calls: tuple[str, ...] = CALLS

    def record(self, method: str, *args: Any, **options: Any) -> None:
        """One call of the builder."""
        self.history.append((method, args, options))

    def start(self, count: int, *, flags: int) -> None:
        """Processes from before the trace, with two descriptors each."""
        for _ in range(count):
            thread = self._thread(None)
            self.record("fact_task", self.now, thread.pid, thread.tid, comm=b"old", flags=flags)
            for fd in (0, 1):
                thread.table[fd] = self._file(2)
        self.now += 10_000

    def _thread(self, parent: Thread | None, pid: int | None = None, *, reuse: bool = False) -> Thread:
        if reuse and self.free_tids:
            tid = self.free_tids.pop(0)
        else:
            tid, self.next_tid = self.next_tid, self.next_tid + 1
        thread = Thread(pid or tid, tid, parent.cpu if parent else tid % self.cpus, {}, set())
        self.threads.append(thread)
        return thread

    # -- moves

    def move(self, kind: int, who: int, what: int, salt: int, step: int) -> None:
        """One move; the numbers pick a possible one."""
        self.now += STEPS[step % len(STEPS)]
        if not self.threads:
            return
        thread = self.threads[who % len(self.threads)]
        moves = (self.call, self.call, self.call, self.call, self.call, self.work, self.whole, self.whole)
        moves += (self.fork, self.exec, self.end, self.look, self.migrate, self.whole, self.call, self.name)
        moves += (self.attach, self.switch, self.switch, self.request)
        chosen = moves[kind % len(moves)]
        if chosen not in (self.attach, self.look, self.switch):
            self._run(thread, 0)
        chosen(thread, what, salt)

    def _run(self, thread: Thread, previous: int, state: int = 0) -> None:
        """Only a thread with a CPU can do something."""
        if not thread.runs:
            self.record("switch", self.now, thread.cpu, previous, thread.tid, state)
            thread.runs = True

    def switch(self, thread: Thread, what: int, salt: int) -> None:
        """Leave the CPU to another thread or to none, or come back, perhaps on another one."""
        if not thread.runs:
            thread.cpu = what % self.cpus
            self._run(thread, 0)
            return
        state = (0, 0x100, 1, 2, 2, 0x80)[salt % 6]
        waiting = [other for other in self.threads if not other.runs]
        thread.runs = False
        if waiting and what % 2:
            waiting[0].cpu = thread.cpu
            self._run(waiting[0], thread.tid, state)
        else:
            self.record("switch", self.now, thread.cpu, thread.tid, 0, state)

    def request(self, thread: Thread, what: int, salt: int) -> None:  # noqa: ARG002 - as all moves
        """A request goes to a disk, or the disk completes the oldest one."""
        fields = {"dev": 8 << 20, "nr_sector": 8, "rwbs": b"R"}
        if what % 2 and self.asked:
            self.record("block", self.now, thread.cpu, 0, "rq_complete", sector=self.asked.pop(0), **fields)
        else:
            self.sectors += 8
            self.asked.append(self.sectors)
            self.record("block", self.now, thread.cpu, thread.tid, "rq_issue", sector=self.sectors, **fields)

    def call(self, thread: Thread, what: int, salt: int) -> None:
        """Enter a call, or leave the pending one."""
        if thread.call is None:
            name = self.calls[what % len(self.calls)]
            thread.call = Call(name, self._args(name, what // len(self.calls), salt), salt)
            self.record("enter", self.now, thread.cpu, thread.tid, name, **thread.call.args)
        else:
            self.work(thread, what, salt)
            call, thread.call = thread.call, None
            self.record("exit", self.now, thread.cpu, thread.tid, call.name, call.ret)

    def whole(self, thread: Thread, what: int, salt: int) -> None:
        """A call from entry to exit, without other moves of this thread in between."""
        if thread.call is None:
            self.call(thread, what, salt)
            self.now += 1
        self.call(thread, what, salt)

    def work(self, thread: Thread, what: int, salt: int) -> None:  # noqa: ARG002 - as all moves
        """The kernel does the call's work."""
        call = thread.call
        if call is not None and not call.done:
            call.ret, call.done = self._do(thread, call), True

    def migrate(self, thread: Thread, what: int, salt: int) -> None:  # noqa: ARG002 - as all moves
        """Continue on another CPU."""
        thread.cpu = what % self.cpus

    def name(self, thread: Thread, what: int, salt: int) -> None:  # noqa: ARG002 - as all moves
        """prctl(PR_SET_NAME)."""
        self.record("comm", self.now, thread.cpu, thread.pid, thread.tid, b"name%d" % (what % 3))

    def attach(self, thread: Thread, what: int, salt: int) -> None:
        """A write to cgroup.procs or, for a single thread, to cgroup.threads."""
        self.record("attach", self.now, thread.cpu, thread.tid, b"/moved%d" % (salt % 3), what % 3 // 2)

    def fork(self, thread: Thread, what: int, salt: int) -> None:
        """fork, vfork, a new thread, or a process that shares the table."""
        if thread.call is not None or len(self.threads) > 5:
            return
        is_thread, shares = what % 3 == 1, what % 3 > 0
        name = ("clone", "clone3", "vfork")[salt % 3]
        flags = 0x400 if shares else 0
        if shares and not is_thread:
            name = "clone"
        self.record(
            "enter", self.now, thread.cpu, thread.tid, name, **({"clone_flags": flags} if name == "clone" else {})
        )
        child = self._thread(thread, thread.pid if is_thread else None, reuse=salt % 4 == 3)
        child.table = thread.table if shares else dict(thread.table)
        child.cloexec = thread.cloexec if shares else set(thread.cloexec)
        self.now += 1
        self.record("fork", self.now, thread.cpu, child.pid, child.tid, thread.pid, thread.tid)
        self.now += 1
        if salt % 5:
            self.record("exit", self.now, child.cpu, child.tid, name, 0)
        self.record("exit", self.now, thread.cpu, thread.tid, name, child.tid)

    def exec(self, thread: Thread, what: int, salt: int) -> None:
        """Other threads of the process die, tables part, descriptors close; the caller may be any thread.

        A program with rights of its own has an EXIT during its exec. Execs need not be recorded.
        """
        if thread.call is not None:
            return
        if salt % 4:
            self.record("enter", self.now, thread.cpu, thread.tid, "execve")
        for other in [t for t in self.threads if t.pid == thread.pid and t is not thread]:
            self._gone(other)
        self.now += 1
        thread.tid = thread.pid
        thread.table = {fd: file for fd, file in thread.table.items() if fd not in thread.cloexec}
        thread.cloexec = set()
        self.record("comm", self.now, thread.cpu, thread.pid, thread.tid, b"prog%d" % (what % 2), is_exec=True)
        self.now += 1
        if salt % 3 == 0:
            self.record("task_exit", self.now, thread.cpu, thread.pid, thread.tid)
            self.now += what % 2
        if salt % 5 == 0:
            where = {"address": 0xF7FC_8000 << 16 * (what % 2), "name": b"[vdso]"}
            self.record("mapping", self.now, thread.cpu, thread.pid, thread.tid, **where)
        if salt % 4:
            self.record("exit", self.now, thread.cpu, thread.tid, "execve", 0)

    def end(self, thread: Thread, what: int, salt: int) -> None:  # noqa: ARG002 - as all moves
        """A thread ends, or its whole process."""
        doomed = [t for t in self.threads if t.pid == thread.pid] if what % 2 else [thread]
        for each in doomed:
            self._gone(each)

    def _gone(self, thread: Thread) -> None:
        self.threads.remove(thread)
        if thread.tid != thread.pid or all(t.pid != thread.pid for t in self.threads):
            self.free_tids.append(thread.tid)
        self.past.append((self.now, thread.tid))
        self.record("task_exit", self.now, thread.cpu, thread.pid, thread.tid)

    def look(self, thread: Thread, what: int, salt: int) -> None:
        """A fact from /proc: usually the truth, sometimes an old one."""
        begin = self.now - (0, 5, 3_000)[salt % 3]
        if what % 7 == 6:
            if salt % 3 == 1:
                command = b"prog%d\0-x\0" % (what % 2) if what % 5 else b"prog: title\0\0"
                self.record("fact_command", self.now, thread.pid, command, begin=begin, cut=what % 3 == 0)
            if salt % 3 == 2:
                self.record("fact_rank", self.now, thread.pid, what, begin=begin)
            cgroup = (what % 2, b"/seen%d" % (salt % 3)) if salt % 4 else None
            self.record("fact_task", self.now, thread.pid, thread.tid, begin=begin, comm=b"seen", cgroup=cgroup)
            return
        for fd, file in sorted(thread.table.items()):
            if (fd + what) % 2:
                self.record(
                    "fact_fd",
                    self.now,
                    thread.pid,
                    fd,
                    b"/f/%d" % file.inode,
                    begin=begin,
                    inode=file.inode,
                    mode=0o010600 if file.inode % 5 == 4 else 0o100644,
                    position=None if what % 5 == 4 else file.position + (what % 6 == 5),
                    open_flags=file.flags | (O_CLOEXEC if fd in thread.cloexec else 0),
                )


SPREAD = 1_000
"""The factor by which :func:`spread` multiplies times."""
SMALL = st.integers(0, 2**10)
MOVES = st.lists(st.tuples(SMALL, st.integers(0, 7), SMALL, SMALL, st.integers(0, 7)), max_size=60)


@st.composite
def call_histories(draw: st.DrawFn, *, cpus: int = 2, flags: int = 0, damage: bool = True) -> History:
    """A history, and damage in it: records dropped, LOST records, neighbours swapped."""
    machine = Machine(cpus)
    machine.start(draw(st.integers(1, 3)), flags=flags)
    for move in draw(MOVES):
        machine.move(*move)
    history = machine.history
    if damage:
        for at, what in draw(st.lists(st.tuples(SMALL, st.integers(0, 2)), max_size=6)):
            history = spoil(history, at, what)
    return history


def spoil(history: History, at: int, what: int) -> History:
    """Lose a sample, report a loss, or swap two records."""
    if not history:
        return history
    at %= len(history)
    method, args, _ = history[at]
    if what == 0 and method in ("enter", "exit", "block", "switch", "task_exit"):
        return history[:at] + history[at + 1 :]
    if what == 1 and not method.startswith("fact"):
        return [*history[:at], ("lost", (args[0], args[1], 3), {}), *history[at:]]
    if what == 2 and at + 1 < len(history):
        return [*history[:at], history[at + 1], history[at], *history[at + 2 :]]
    return history


def spread(history: History) -> History:
    """The same history sorted by time, with times drawn apart, so that equal ones differ."""
    found, last, rank = [], -1, 0
    for method, args, options in sorted(history, key=lambda record: record[1][0]):
        rank = rank + 1 if args[0] == last else 0
        last = args[0]
        begin = {"begin": options["begin"] * SPREAD} if "begin" in options else {}
        found.append((method, (args[0] * SPREAD + rank, *args[1:]), options | begin))
    return found
