"""Histories with BPF programs' facts about files, and the true files that calls met.

Descriptors also come unseen (pipe(2), received over a socket), a fork copies its table at some moment of the call, and
a look into /proc takes time. All times differ.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from build.kernelwriter import OF_ARGUMENT, OF_RESULT, WHOLE
from hypothesis import strategies as st

from reference.histories import CALLS, SMALL, STEPS, History, Machine
from reference.kernel import O_CLOEXEC, Call, File, Thread

MOVED = 4
ADDRESSES = 3
"""Open files share so few addresses, one after another, that freed ones are used again."""
MOVERS = ("read", "write", "lseek", "writev", "preadv2")
OPENS = ("openat", "openat2", "creat", "socket", "memfd_create")
DUPS = ("dup", "dup2", "dup3", "fcntl")
COPIES = ("copy_file_range", "sendfile64")
CONTESTED = ("read", "pread64", "openat", "close", "dup2", "read", "openat", "close", "dup", "lseek", "copy_file_range")
LONG = st.lists(st.tuples(SMALL, st.integers(0, 7), SMALL, SMALL, st.integers(0, 7)), min_size=20, max_size=80)
FDS = ("fd", "fildes", "oldfd", "fd_in", "in_fd")


@dataclass(eq=False)
class Met:
    """The file that a call met at the moment when the kernel did its work."""

    file: File | None = None
    second: File | None = None
    """The file that a copy wrote to, or the result's file."""
    position: int | None = None
    """The position of a call without an offset argument."""
    done: bool = False


def name(file: File) -> bytes:
    """The file's path, which never changes."""
    return b"/f/%d" % file.inode


def first_fd(args: dict[str, int]) -> int:
    """The descriptor in a call's argument."""
    return next((args[role] for role in FDS if role in args), -1)


@dataclass
class Witness(Machine):
    """A machine that keeps the truth."""

    every_fact: bool = False
    """Each call tells about its files again; else only about changed ones."""
    closes_are_seen: bool = True
    last: int = 0
    truth: dict[tuple[int, int], Met] = field(default_factory=dict)
    """By thread and time of the entry."""
    told: list[tuple[int | None, None]] = field(default_factory=list)
    """The position after each call, exit by exit."""
    met: dict[int, Met] = field(default_factory=dict)
    leaving: dict[int, Call] = field(default_factory=dict)
    cache: dict[int, tuple[dict[int, File], dict[tuple[int, int], File]]] = field(default_factory=dict)
    """For each table, what was told about a descriptor, and to which process."""
    shares_silently: bool = False
    """Processes share tables by clone3, whose flags no event has."""
    addresses: list[tuple[dict[int, File], int]] = field(default_factory=list)
    looks: dict[int, tuple[int, dict[int, tuple[File, int, int]]]] = field(default_factory=dict)

    def record(self, method: str, *args: Any, **options: Any) -> None:
        """No two records have the same time, except for a call's exit and its facts."""
        time = max(args[0], self.last + 1)
        self.last = self.now = time
        is_seen = self.closes_are_seen or method not in ("enter", "exit") or args[3] != "close"
        if method == "exit" and is_seen:
            self._facts_of_exit(time, *args[1:])
        if method == "enter":
            self._entered(time, args, options)
        if is_seen:
            super().record(method, time, *args[1:], **options)

    # -- facts

    def _entered(self, time: int, args: tuple[Any, ...], options: dict[str, int]) -> None:
        thread = next((thread for thread in self.threads if thread.tid == args[2]), None)
        call = args[3]
        if thread is None:
            return
        self.met[thread.tid] = self.truth[thread.tid, time] = Met()
        if call == "close" and self.closes_are_seen:
            self._fact(time, thread, options["fd"], OF_ARGUMENT)
            self._ended(thread, options["fd"])

    def _known(self, thread: Thread) -> dict[tuple[int, int], File]:
        """The facts told about a table."""
        return self.cache.setdefault(id(thread.table), (thread.table, {}))[1]

    def _ended(self, thread: Thread, fd: int) -> None:
        """The slot's file is told again, to every process."""
        known = self._known(thread)
        for place in [place for place in known if place[0] == fd]:
            del known[place]

    def _address(self, table: dict[int, File]) -> int:
        """The address of a table. A table that nobody uses any more gives its address to the next one."""
        used = [id(thread.table) for thread in self.threads]
        self.addresses = [each for each in self.addresses if id(each[0]) in used]
        found = next((address for each, address in self.addresses if each is table), None)
        if found is None:
            taken = {address for _, address in self.addresses}
            found = next(address for address in range(0x100, 0x10000, 0x100) if address not in taken)
            self.addresses.append((table, found))
        return found

    def exec(self, thread: Thread, what: int, salt: int) -> None:
        """Exec copies a table only if it is shared."""
        was = thread.table
        alone = all(other.table is not was for other in self.threads if other.pid != thread.pid)
        address = self._address(was)
        super().exec(thread, what, salt)
        if alone and thread.table is not was:
            self.addresses = [(thread.table, address), *(each for each in self.addresses if each[1] != address)]

    def _fact(self, time: int, thread: Thread, fd: int, of: int) -> None:
        file, known = thread.table.get(fd), self._known(thread)
        place = fd, thread.pid
        if file is None or (known.get(place) is file and not self.every_fact):
            return
        known[place] = file
        moved = file.inode % 7 == 6 and of == OF_RESULT
        cloexec = O_CLOEXEC if fd in thread.cloexec else 0
        options = {
            "file": 0x1000 * (file.inode % ADDRESSES),
            "inode": file.inode,
            "generation": file.inode + 7,
            "mode": 0o010600 if file.inode % 5 == 4 else 0o100644,
            "position": file.position,
            "open_flags": file.flags & ~O_CLOEXEC | cloexec,
            "of": of,
            "flags": WHOLE | (MOVED if moved else 0),
            "table": self._address(thread.table),
        }
        names = [b"%d" % file.inode, b"f"]
        super().record("kernel_file", time, thread.cpu, thread.tid, fd, names, **options)

    def _facts_of_exit(self, time: int, cpu: int, tid: int, call: str, ret: int) -> None:
        del cpu
        thread = next((thread for thread in self.threads if thread.tid == tid), None)
        if thread is None or thread.tid not in self.leaving:
            self.told.append((None, None))
            return
        args = self.leaving.pop(thread.tid).args
        moves = call in MOVERS and args.get("pos_l", -1) == -1
        now = thread.table.get(first_fd(args)) if moves else None
        self.told.append((None if now is None or now.inode % 5 == 4 else now.position, None))
        if call in ("close", "close_range"):
            self.cache.pop(id(thread.table), None)
            return
        if ret >= 0 and (call in OPENS or (call in DUPS and self.met[tid].second is not None)):
            self._ended(thread, ret)
            self._fact(time, thread, ret, OF_RESULT)
        if call not in DUPS and ret != -9:
            for fd in {first_fd(args), args.get("fd_out", args.get("out_fd", -1))}:
                self._fact(time, thread, fd, OF_ARGUMENT)

    # -- moves

    def _do(self, thread: Thread, call: Call) -> int:
        met = self.met[thread.tid]
        fd, met.done = first_fd(call.args), True
        if call.name in ("clone", "clone3", "vfork"):
            shares = call.salt % 3 > 0
            call.copy = (thread.table, thread.cloexec) if shares else (dict(thread.table), set(thread.cloexec))  # type: ignore[attr-defined]
            return 0
        met.file = thread.table.get(fd) if call.name not in (*OPENS, "close_range", "unshare") else None
        met.position = met.file.position if met.file else None
        if call.name in COPIES:
            met.second = thread.table.get(call.args.get("fd_out", call.args.get("out_fd", -1)))
        result = super()._do(thread, call)
        if call.name in OPENS and result >= 0:
            met.file = thread.table[result]
        made = call.name in ("dup", "dup2", "dup3") or call.args.get("cmd") in (0, 1030)
        if call.name in DUPS and made and result >= 0 and not (call.name == "dup2" and result == fd):
            met.second = thread.table[result]
        return result

    def call(self, thread: Thread, what: int, salt: int) -> None:
        """Enter a call, or leave the pending one. A birth is recorded just before its call is left."""
        call = thread.call
        if call is None or call.name not in ("clone", "clone3", "vfork"):
            if call is not None:
                self.leaving[thread.tid] = call
            super().call(thread, what, salt)
            return
        self.work(thread, what, salt)
        thread.call = None
        is_thread = call.salt % 3 == 1
        child = self._thread(thread, thread.pid if is_thread else None, reuse=call.salt % 4 == 3)
        child.table, child.cloexec = call.copy  # type: ignore[attr-defined]
        if is_thread:
            child.table, child.cloexec = thread.table, thread.cloexec
        self.record("fork", self.now, thread.cpu, child.pid, child.tid, thread.pid, thread.tid)
        self.record("exit", self.now, child.cpu, child.tid, call.name, 0)
        self.record("exit", self.now, thread.cpu, thread.tid, call.name, child.tid)

    def fork(self, thread: Thread, what: int, salt: int) -> None:
        """Enter the call: the kernel copies the table at some moment before its exit."""
        if thread.call is not None or len(self.threads) > 5:
            return
        kind = what % 3
        flags = {"clone_flags": 0x400 if kind else 0} if kind or salt % 2 else {}
        call = "clone" if flags else "vfork"
        if kind and self.shares_silently and salt % 2:
            call, flags = "clone3", {}
        thread.call = Call(call, flags, kind)
        self.record("enter", self.now, thread.cpu, thread.tid, call, **flags)

    def move(self, kind: int, who: int, what: int, salt: int, step: int) -> None:
        """Moves of positions, mostly by calls that overlap."""
        self.now += STEPS[step % len(STEPS)]
        if not self.threads:
            return
        moves = (self.call,) * 8 + (self.work,) * 4 + (self.whole,) * 3
        moves += (self.attach, self.look, self.look, self.fork, self.exec, self.end, self.migrate)
        moves[kind % len(moves)](self.threads[who % len(self.threads)], what, salt)

    def join(self, count: int) -> None:
        """Threads of the first process."""
        first = self.threads[0]
        for _ in range(count):
            thread = self._thread(first, first.pid)
            thread.cpu = thread.tid % self.cpus
            thread.table, thread.cloexec = first.table, first.cloexec
            self.record("fork", self.now, first.cpu, thread.pid, thread.tid, first.pid, first.tid)

    def share(self, count: int) -> None:
        """Processes that share the first one's table, by calls that are not recorded."""
        first = self.threads[0]
        for _ in range(count):
            thread = self._thread(first)
            thread.cpu = thread.tid % self.cpus
            thread.table, thread.cloexec = first.table, first.cloexec
            self.record("fork", self.now, first.cpu, thread.pid, thread.tid, first.pid, first.tid)

    def attach(self, thread: Thread, what: int, salt: int) -> None:
        """A descriptor comes unseen."""
        del salt
        if thread.call is None:
            self._put(thread, self._file(2), cloexec=what % 2 == 1)

    def look(self, thread: Thread, what: int, salt: int) -> None:
        """Begin a look into /proc, or record what it saw."""
        pid = thread.pid
        if pid not in self.looks or salt % 3 == 0:
            seen = {
                fd: (file, file.position, file.flags & ~O_CLOEXEC | (O_CLOEXEC if fd in thread.cloexec else 0))
                for fd, file in thread.table.items()
                if (fd + what) % 2
            }
            self.looks[pid] = self.now - (what % 4 == 3) * 5, seen
            if salt % 3:
                return
        begin, seen = self.looks.pop(pid)
        leader = next((each for each in self.threads if each.tid == pid), None)
        if leader is None or leader.table is not thread.table:
            return
        for fd, (file, position, flags) in sorted(seen.items()):
            mode = 0o010600 if file.inode % 5 == 4 else 0o100644
            options: dict[str, Any] = {"inode": file.inode, "mode": mode, "position": position, "open_flags": flags}
            self.record("fact_fd", self.now, pid, fd, name(file), begin=begin, **options)


@st.composite
def witnessed(draw: st.DrawFn, **options: Any) -> Witness:
    """A machine that has run."""
    calls = draw(st.sampled_from([CALLS, CONTESTED]))
    if options.get("shares_silently"):  # a close_range names no descriptor, so nobody knows in whose table it ends them
        calls = tuple(call for call in calls if call != "close_range")
    machine = Witness(2, nr_fds=draw(st.integers(2, 4)), calls=calls, **options)
    machine.start(draw(st.integers(1, 2)), flags=0)
    machine.join(draw(st.integers(0, 3)))
    if machine.shares_silently:
        machine.share(draw(st.integers(1, 2)))
    for move in draw(LONG):
        machine.move(*move)
    return machine


__all__ = ["COPIES", "DUPS", "History", "Witness", "name", "witnessed"]
