"""Waiting for the end of a recording: the end of the command or the processes, a time, or the user's wish.

All signals with a meaning are blocked, and the main thread fetches them one at a time. So no handler interrupts other
code. A terminal sends its signals to its whole foreground group, which includes the command. lo2io passes on to the
command only signals that a process sends to lo2io.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import threading
import time
from collections import deque
from typing import TYPE_CHECKING, Any, Self

from lo2io.errors import UsageError
from lo2io.kernel.procfs import read_process_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from resource import struct_rusage

FORWARDED = frozenset(
    {signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2, signal.SIGALRM}
)
ENDING = frozenset({signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT})
"""Signals that end a recording without a command."""
_WAITED = FORWARDED | {signal.SIGCHLD}
_PR_SET_CHILD_SUBREAPER = 36
"""include/uapi/linux/prctl.h"""
_MAX_WAIT_S = 1.0
"""The longest time until lo2io notices a signal that another thread got."""
SI_KERNEL = 0x80
"""``si_code`` of a signal from a terminal (include/uapi/asm-generic/siginfo.h)."""


class BlockedSignals:
    """A context in which this module's signals wait to be fetched. Signals left at its end take their usual effect.

    Libraries' own threads (OpenBLAS starts some) do not block these signals. The kernel gives a signal to such a
    thread, unless the main thread is just waiting. So there are handlers, too, which only remember the signal.

    Attributes:
        before: The mask outside of the context. The command gets this mask.
        ignored: Signals that are ignored outside of the context only. The command ignores them, too.
        own: lo2io's actions on signals of its own, at any time. These signals are not fetched.
        ticks: Functions to call again and again while lo2io waits for signals.
        tick_s: Time between these calls, if no signal comes.
        is_over: Asked at the same times. True ends the waiting, as the end of the time does.

    Args:
        once: Signals that mean the same thing however often they come. One that has come is ignored from the end of the
            context on.
    """

    def __init__(self, once: frozenset[int] = frozenset()) -> None:
        self.before: frozenset[int] = frozenset()
        self.ignored: frozenset[int] = frozenset()
        self.own: dict[int, Callable[[], object]] = {}
        self.ticks: list[Callable[[], None]] = []
        self.tick_s = _MAX_WAIT_S
        self.is_over: Callable[[], bool] = lambda: False
        self._once = once
        self._came: set[int] = set()
        self._caught: deque[int] = deque()
        self._handlers: dict[int, Any] = {}

    def __enter__(self) -> Self:
        self.before = frozenset(signal.pthread_sigmask(signal.SIG_BLOCK, _WAITED))
        for number in _WAITED:
            handler = signal.getsignal(number)
            if handler is not None:  # None: not installed by Python, so it stays
                self._handlers[number] = handler
                # With SIGCHLD ignored, children would vanish unseen.
                signal.signal(number, signal.SIG_DFL if number == signal.SIGCHLD else self._catch)
        self.ignored = frozenset(number for number, handler in self._handlers.items() if handler == signal.SIG_IGN)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._handlers.items():
            # A signal for the recording must not kill lo2io while it converts.
            is_done = number in self.own or number in self._once & self._came
            signal.signal(number, signal.SIG_IGN if is_done else handler)
        signal.pthread_sigmask(signal.SIG_SETMASK, self.before)
        while self._caught:
            signal.raise_signal(self._caught.popleft())

    def fetch(self, deadline: float | None = None) -> tuple[int, bool] | None:
        """The next signal, and True if a terminal sent it to the whole group. None: the time is over."""
        while True:
            found = self._wait(deadline)
            if found is not None and found[0] in self.own:
                self.own[found[0]]()
            elif found is not None:
                return found
            elif deadline is not None and time.monotonic() >= deadline:
                return None
            else:
                for tick in self.ticks:
                    tick()
                if self.is_over():
                    return None

    def _wait(self, deadline: float | None) -> tuple[int, bool] | None:
        """The same as :meth:`fetch`, but None after a while in any case."""
        if self._caught:
            self._came.add(self._caught[0])
            return self._caught.popleft(), False
        rest = min(_MAX_WAIT_S, self.tick_s)
        if deadline is not None:
            rest = max(0.0, min(rest, deadline - time.monotonic()))
        info = signal.sigtimedwait(_WAITED, rest)
        if info is None:
            return None
        self._came.add(info.si_signo)
        # A terminal that goes away tells only the leader of its session (tty_signal_session_leader, tty_jobctrl.c).
        alone = info.si_signo == signal.SIGHUP and os.getsid(0) == os.getpid()
        return info.si_signo, info.si_code == SI_KERNEL and not alone

    def is_ending(self) -> bool:
        """True if a signal that ends a recording has come. The signal is fetched."""
        fetched = self.fetch(time.monotonic())
        return fetched is not None and fetched[0] in ENDING

    def forget(self) -> None:
        """Drop the pending signals."""
        with contextlib.suppress(OSError):  # the command's exit code is known, and must not be lost for this
            while (info := signal.sigtimedwait(_WAITED, 0)) is not None:
                self._came.add(info.si_signo)
        self._came.update(self._caught)
        self._caught.clear()

    def came(self, number: int) -> None:
        """A signal has reached the command. lo2io may get it later, from the same sender."""
        self._came.add(number)

    def _catch(self, number: int, _: object) -> None:
        self._caught.append(number)


def wait_for_command(
    pid: int,
    signals: BlockedSignals,
    ended: Callable[[int], None] = lambda _: None,
    duration_s: float | None = None,
    used: Callable[[struct_rusage], None] = lambda _: None,
) -> int | None:
    """Wait for a child to end, and pass signals on to it.

    Args:
        pid: The child.
        signals: The blocked signals, which are fetched here.
        ended: Called with ``pid`` while the child is a zombie: ``/proc`` still has its last figures.
        duration_s: The longest time to wait.
        used: Called with the usage of the child and the children that it waited for.

    Returns:
        Its exit code, 128 + n if signal n killed it. None: the time is over, and the child goes on.
    """
    deadline = None if duration_s is None else time.monotonic() + duration_s
    while True:
        if os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT):
            # Signals during the child's life were meant for it. Whoever sees that the child is gone means lo2io.
            signals.forget()
            ended(pid)
            _, status, usage = os.wait4(pid, 0)
            used(usage)
            if os.WIFSIGNALED(status):
                signals.came(os.WTERMSIG(status))
            code = os.waitstatus_to_exitcode(status)
            return code if code >= 0 else 128 - code
        fetched = signals.fetch(deadline)
        if fetched is None:
            return None
        if fetched[0] in FORWARDED and not fetched[1]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, fetched[0])


def outlive(pid: int) -> int | None:
    """Wait for a child without the rest of this module: the kernel may have refused what the rest needs.

    As in system(3), SIGINT and SIGQUIT are ignored here: a terminal sends them to the child, too. Other signals are
    passed on.

    Returns:
        Its exit code as from :func:`wait_for_command`; None: there is no such child, or the kernel lets nobody wait.
    """

    def pass_on(number: int, _: object) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)

    for number in FORWARDED:
        signal.signal(number, signal.SIG_IGN if number in {signal.SIGINT, signal.SIGQUIT} else pass_on)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, FORWARDED)
    with contextlib.suppress(OSError):
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        return code if code >= 0 else 128 - code
    with contextlib.suppress(OSError):
        found = os.waitid(os.P_PID, pid, os.WEXITED)
        if found is not None:
            return found.si_status if found.si_code == os.CLD_EXITED else 128 + found.si_status
    return None


def adopt_orphans() -> None:
    """Make this process the parent of all its descendants whose own parent ends (prctl(2), PR_SET_CHILD_SUBREAPER)."""
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def wait_for_descendants(signals: BlockedSignals, ended: Callable[[int], None] = lambda _: None) -> None:
    """Wait until no child is left, or a signal says to stop. Children that live then are left alone.

    All descendants become children in the end, if :func:`adopt_orphans` was called before the first of them existed.

    Args:
        signals: The blocked signals, which are fetched here.
        ended: Called with each child's pid while the child is a zombie, as in :func:`wait_for_command`.
    """
    while True:
        try:
            child = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return
        if child is not None:
            ended(child.si_pid)
            os.waitpid(child.si_pid, 0)
            continue
        fetched = signals.fetch()
        if fetched is None or fetched[0] in ENDING:
            return


def wait_for_end(signals: BlockedSignals, duration_s: float | None = None) -> None:
    """Wait until the time or the recording is over, or a signal says to stop."""
    deadline = None if duration_s is None else time.monotonic() + duration_s
    while (fetched := signals.fetch(deadline)) is not None:
        if fetched[0] in ENDING:
            return


def wait_for_processes(pids: Sequence[int], signals: BlockedSignals, duration_s: float | None = None) -> None:
    """Wait until all the processes have ended, the time is over, or a signal says to stop. They are left alone."""
    fds = []
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):  # it has ended already
            fds.append(os.pidfd_open(pid))
    try:
        with Watch(fds) as watch:
            wait_for_watched(watch, signals, duration_s)
    finally:
        for fd in fds:
            os.close(fd)


def wait_for_watched(watch: Watch, signals: BlockedSignals, duration_s: float | None = None) -> None:
    """Wait until all watched processes have ended, the time is over, or a signal says to stop."""
    deadline = None if duration_s is None else time.monotonic() + duration_s
    while not watch.is_over:
        fetched = signals.fetch(deadline)
        if fetched is None or fetched[0] in ENDING:
            return


def check_processes(pids: Sequence[int]) -> None:
    """See that each pid is a process.

    Raises:
        UsageError: A pid does not exist, or is a thread.
    """
    for pid in pids:
        process = read_process_of(pid)
        if process is None:
            raise UsageError(f"record process {pid}", "there is no such process", "name one that runs")
        if process != pid:
            raise UsageError(f"record process {pid}", f"it is a thread of process {process}", f"name {process}")


class Watch:
    """A thread that waits for processes to end and then wakes the main thread, which waits for signals.

    Args:
        fds: A pidfd of each process. They stay the caller's, and open while the processes are watched.

    Attributes:
        is_over: True if all processes have ended.
    """

    def __init__(self, fds: Sequence[int]) -> None:
        self.is_over = not fds
        self._fds = tuple(fds)
        self._waiter = threading.main_thread().ident or 0
        self._stop = os.eventfd(0, os.EFD_CLOEXEC)
        self._thread = threading.Thread(target=self._run, name="lo2io-watch", daemon=True)

    def _run(self) -> None:
        poll = select.poll()
        for fd in (*self._fds, self._stop):
            poll.register(fd, select.POLLIN)
        alive = set(self._fds)
        while alive:
            for fd, _ in poll.poll():
                if fd == self._stop:
                    return
                poll.unregister(fd)
                alive.discard(fd)
        self.is_over = True
        signal.pthread_kill(self._waiter, signal.SIGCHLD)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        os.eventfd_write(self._stop, 1)
        self._thread.join()
        os.close(self._stop)
