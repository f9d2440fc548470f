"""Histories of io_uring that a kernel could produce, and possible damage by recording.

As in :mod:`reference.histories`, a strategy draws small integers and a machine reads them as moves. There are few
rings, request addresses and values of user_data, so that they collide.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import strategies as st

from reference.histories import SMALL, STEPS, History
from reference.ring_kernel import ADDRESSES, CANCELLED, DEFER_TASKRUN, SQPOLL, USER_DATA, Ring, RingKernel, Thread

if TYPE_CHECKING:
    from collections.abc import Callable


class RingMachine(RingKernel):
    """Moves of threads. Each takes a thread and two numbers to choose by."""

    def move(self, kind: int, who: int, what: int, salt: int, step: int) -> None:
        """One move; the numbers pick a possible one."""
        self.now += STEPS[step % len(STEPS)]
        thread = self.threads[who % len(self.threads)] if self.threads else None
        if thread is None:
            return
        moves: tuple[Callable[[Thread, int, int], None], ...] = (
            *(self.create, self.enter, self.enter, self.submit, self.submit, self.submit, self.leave),
            *(self.progress, self.progress, self.progress, self.progress, self.progress, self.progress),
            *(self.wait, self.message, self.register, self.close, self.end, self.other, self.disk, self.aio),
        )
        moves[kind % len(moves)](thread, what, salt)

    # -- rings

    def create(self, thread: Thread, what: int, salt: int) -> None:
        """io_uring_setup; with SQPOLL a thread is born first."""
        if thread.call or not self.contexts:
            return
        ctx = self.contexts.pop(what % len(self.contexts))
        flags = (0, 0, SQPOLL, DEFER_TASKRUN)[salt % 4]
        ring = Ring(ctx, 3 + len(self.rings), thread.pid, flags, free=[ctx + 16 * i for i in range(ADDRESSES)])
        if salt % 5 == 4:
            self.rings.append(ring)  # older than the trace
            return
        self.record("enter", self.now, thread.cpu, thread.tid, "io_uring_setup", entries=4)
        self.now += 1
        if flags & SQPOLL:
            ring.poller = self._born(thread, b"iou-sqp-%d" % thread.pid)
        self.event(thread, "create", ctx=ctx, fd=ring.fd, sq_entries=4, cq_entries=8, flags=flags)
        self.record("exit", self.now + 1, thread.cpu, thread.tid, "io_uring_setup", ring.fd)
        self.now += 1
        self.rings.append(ring)

    def register(self, thread: Thread, what: int, salt: int) -> None:
        """Files or buffers."""
        for ring in self._own(thread)[:1]:
            self.event(
                thread,
                "register",
                ctx=ring.ctx,
                opcode=salt % 3,
                nr_files=what % 5,
                nr_bufs=salt % 4,
                ret=-(what % 7 == 6),
            )

    def close(self, thread: Thread, what: int, salt: int) -> None:
        """The ring's descriptor is closed; requests are torn down, silently or with completions."""
        own = self._own(thread)
        if not own or thread.call or salt % 3:
            return
        ring = own[what % len(own)]
        self.record("enter", self.now, thread.cpu, thread.tid, "close", fd=ring.fd)
        self.now += 1
        self.record("exit", self.now, thread.cpu, thread.tid, "close", 0)
        for request in list(ring.requests):
            if what % 2:
                self._complete(thread, request, CANCELLED)
        self.rings.remove(ring)
        self.contexts.append(ring.ctx)

    # -- calls

    def enter(self, thread: Thread, what: int, salt: int) -> None:
        """io_uring_enter."""
        own = self._own(thread)
        if own and not thread.call:
            thread.ring, thread.call, thread.submitted = own[what % len(own)], "io_uring_enter", 0
            args = {"fd": thread.ring.fd, "to_submit": salt % 4, "min_complete": what % 3, "flags": what % 2}
            self.record("enter", self.now, thread.cpu, thread.tid, "io_uring_enter", **args)

    def leave(self, thread: Thread, what: int, salt: int) -> None:
        """The call returns how many it took, or an error."""
        if thread.call:
            result = -4 if salt % 9 == 8 and not thread.submitted else thread.submitted
            self.record("exit", self.now, thread.cpu, thread.tid, thread.call, result)
            thread.call, thread.ring = "", None
        elif what % 2:
            self.enter(thread, what, salt)

    def wait(self, thread: Thread, what: int, salt: int) -> None:  # noqa: ARG002 - as all moves
        """The thread is about to sleep for completions."""
        if thread.ring is not None:
            self.event(thread, "cqring_wait", ctx=thread.ring.ctx, min_events=what % 3)

    def aio(self, thread: Thread, what: int, salt: int) -> None:
        """A call of libaio."""
        if thread.call:
            return
        name, args, result = (
            ("io_setup", {"nr_events": 16}, 0),
            ("io_submit", {"ctx_id": 0x7F00 + what % 2, "nr": 2}, 2),
            ("io_getevents", {"ctx_id": 0x7F00 + what % 2, "min_nr": 1, "nr": 8}, 1),
            ("io_destroy", {"ctx": 0x7F00 + what % 2}, 0),
        )[salt % 4]
        self.record("enter", self.now, thread.cpu, thread.tid, name, **args)
        self.now += 3
        self.record("exit", self.now, thread.cpu, thread.tid, name, -22 if salt % 11 == 10 else result)

    # -- other events

    def message(self, thread: Thread, what: int, salt: int) -> None:
        """Another ring's MSG_RING arrives: a completion without a request."""
        for ring in self._own(thread)[-1:]:
            fields = {"ctx": ring.ctx, "req": 0, "user_data": 77 if what % 2 else salt % USER_DATA}
            self.event(thread, "complete", **fields, res=5, cflags=0)

    def disk(self, thread: Thread, what: int, salt: int) -> None:
        """A block request of this thread or of a worker."""
        self.sectors += 8
        actor = self.workers[what % len(self.workers)] if self.workers and salt % 2 else thread
        fields = {"dev": 8 << 20, "sector": 8 * self.sectors, "nr_sector": 8, "rwbs": b"R"}
        self.record("block", self.now, actor.cpu, actor.tid, "rq_insert", **fields)
        self.record("block", self.now + 1, actor.cpu, actor.tid, "rq_issue", **fields)
        self.now += 1

    def other(self, thread: Thread, what: int, salt: int) -> None:
        """A call of no ring, or a worker is switched."""
        if self.workers and salt % 2:
            worker = self.workers[what % len(self.workers)]
            pair = (worker.tid, 0) if what % 2 else (0, worker.tid)
            self.record("switch", self.now, worker.cpu, *pair, (0, 1, 2)[salt % 3])
        elif not thread.call:
            self.record("enter", self.now, thread.cpu, thread.tid, "read", fd=salt % 6, count=8)
            self.record("exit", self.now + 2, thread.cpu, thread.tid, "read", 8)
            self.now += 2

    def end(self, thread: Thread, what: int, salt: int) -> None:
        """A worker ends, a thread with its workers, or a process with its rings."""
        if salt % 3:
            doomed = self.workers[:1]
        elif what % 2:
            doomed = [t for t in [*self.workers, *self.threads] if t.pid == thread.pid]
            self.contexts += [ring.ctx for ring in self._own(thread)]
            self.rings = [ring for ring in self.rings if ring.pid != thread.pid]
        else:
            doomed = [worker for worker in self.workers if worker.owner == thread.tid] + [thread]
        for each in doomed:
            self.record("task_exit", self.now, each.cpu, each.pid, each.tid)
            (self.workers if each in self.workers else self.threads).remove(each)


MOVES = st.lists(st.tuples(SMALL, st.integers(0, 7), SMALL, SMALL, st.integers(0, 7)), max_size=60)
LOSABLE = ("ring", "enter", "exit", "switch", "task_exit", "comm", "fork", "block")


@st.composite
def ring_histories(draw: st.DrawFn, *, cpus: int = 2, flags: int = 0, damage: bool = True) -> History:
    """Histories of rings; ``damage`` loses records and swaps neighbours."""
    machine = RingMachine(cpus)
    machine.start(draw(st.integers(1, 2)), flags)
    if machine.threads:
        machine.create(machine.threads[0], 0, draw(st.integers(0, 4)))
    for move in draw(MOVES):
        machine.move(*move)
    history = machine.history
    if damage:
        for at, what in draw(st.lists(st.tuples(SMALL, st.integers(0, 3)), max_size=8)):
            history = spoil(history, at % len(history), what)
    return history


def spoil(history: History, at: int, what: int) -> History:
    """Lose a record (mostly), report a loss, or swap two records."""
    method, args, _ = history[at]
    if what <= 1 and method in LOSABLE:
        return history[:at] + history[at + 1 :]
    if what == 2 and not method.startswith("fact"):
        return [*history[:at], ("lost", (args[0], args[1], 3), {}), *history[at:]]
    if at + 1 < len(history):
        return [*history[:at], history[at + 1], history[at], *history[at + 2 :]]
    return history
