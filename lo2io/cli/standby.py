"""A process that imports what follows a recording while the recording starts, and then converts and reports.

The imports take a tenth of a second, most of it under Python's own lock, so a thread could not spare the user that
time. The start of a recording leaves one CPU idle for about as long::

    lo2io      start ─────── command ─── stop ─ hand over ─ close events ┄┄┄┄┄ exit code
    standby    └ fork ─ imports (SCHED_IDLE) ┄┄┄┄┄┄┄┄┄┄ └ convert ── summary ─┘

The process ends when lo2io does, however that ends. If the process has gone, lo2io does the work itself.
"""

from __future__ import annotations

import _socket
import contextlib
import os
import signal
import sys
from typing import TYPE_CHECKING, NamedTuple, NoReturn, TypeVar

from lo2io.cli import streams
from lo2io.cli.ending import run_to_end
from lo2io.folder import Folder, private_umask
from lo2io.signals import end_with, ended_by_signals

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from lo2io.capture.options import RecordRequest

    Finish = Callable[[RecordRequest, int, Folder, Folder], int]
    """Converts and reports a recording: the request, the command's exit code, the spool, the trace's folder."""

_T = TypeVar("_T")
_MOST_BYTES = 1 << 20
_OUTPUTS = (1, 2)
_MOST_FDS = len(_OUTPUTS) + 3
_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Work(NamedTuple):
    """A recording to convert. The descriptors of its folders are sent beside it."""

    request: RecordRequest
    exit_code: int
    """The command's."""
    spool: Path
    trace: Path
    parent: Path | None
    """The folder in which lo2io made the trace's; None: that folder existed before."""


class Standby:
    """Forks the process. Call this before the process has threads.

    Args:
        prepare: Imports what :attr:`finish` needs.
        finish: Converts and reports, and returns the exit code. It makes itself :func:`interruptible`.
    """

    def __init__(self, prepare: Callable[[], None], finish: Finish) -> None:
        # The module socket takes 3 ms to import, and lo2io needs its functions at the end only.
        self._socket, theirs = _socket.socketpair(_socket.AF_UNIX, _socket.SOCK_SEQPACKET)
        parent = os.getpid()
        self._pid = os.fork()
        if self._pid == 0:
            self._socket.close()
            _stand_by(parent, theirs, prepare, finish)
        theirs.close()

    def hand_over(
        self,
        request: RecordRequest,
        exit_code: int,
        spool: Folder,
        trace: Folder,
        meanwhile: Callable[[], None] = lambda: None,
    ) -> int | None:
        """Let the process convert and report, once. Signals to lo2io are passed on to the process.

        Args:
            request: The user's choices.
            exit_code: The command's.
            spool: The folder of the spool.
            trace: The folder of the trace.
            meanwhile: Called while the process works.

        Returns:
            The exit code; None: the process has gone, and has done nothing.

        Raises:
            ChildProcessError: The process has gone amid its work.
        """
        import pickle
        import socket

        folders = [folder for folder in (spool, trace, trace.parent) if folder is not None]
        work = Work(request, exit_code, spool.path, trace.path, trace.parent.path if trace.parent else None)
        answer, sent = None, 0
        with contextlib.suppress(OSError):  # else the process gives no way
            os.sched_setscheduler(self._pid, os.sched_getscheduler(0), os.sched_getparam(0))
        with _passing_signals(self._pid):
            with socket.socket(fileno=self._socket.detach()) as theirs:
                with contextlib.suppress(OSError):  # the process has gone
                    sent = socket.send_fds(theirs, [pickle.dumps(work)], [*_OUTPUTS, *(each.fd for each in folders)])
                meanwhile()
                with contextlib.suppress(OSError):  # the process has gone, and had not read what was sent
                    answer = theirs.recv(1) if sent else None
            with contextlib.suppress(ChildProcessError):  # whoever started lo2io ignores SIGCHLD
                os.waitpid(self._pid, 0)  # so its CPU time is lo2io's
        if answer == b"":
            raise ChildProcessError
        return answer[0] if answer else None


@contextlib.contextmanager
def _passing_signals(pid: int) -> Iterator[None]:
    """Signals that end lo2io go to the process, which undoes its unfinished work."""

    def pass_on(number: int, _: object) -> None:
        with contextlib.suppress(ProcessLookupError):  # it has just ended
            os.kill(pid, number)

    before = {number: handler for number in _ENDING if callable(handler := signal.getsignal(number))}
    for number in before:
        signal.signal(number, pass_on)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _stand_by(parent: int, end: _socket.socket, prepare: Callable[[], None], finish: Finish) -> NoReturn:
    """In the child: leave lo2io's process group, prepare, and wait for work."""
    try:
        end_with(parent, signal.SIGKILL)
        _let_go_of_output()
        os.setpgid(0, 0)  # lo2io passes the terminal's signals on
        signal.signal(signal.SIGTTOU, signal.SIG_IGN)  # the terminal takes messages from another group, too
        signal.pthread_sigmask(signal.SIG_BLOCK, _ENDING)
        _give_way()
        prepare()
        import socket

        own = socket.socket(fileno=end.detach())
        content, fds, *_ = socket.recv_fds(own, _MOST_BYTES, _MOST_FDS)
        if content:
            import pickle

            own.send(bytes([_finish(pickle.loads(content), fds, finish) & 0xFF]))  # noqa: S301 - lo2io's own
    finally:
        os._exit(0)  # without work, nobody waits for a message


@contextlib.contextmanager
def interruptible(context: contextlib.AbstractContextManager[_T]) -> Iterator[_T]:
    """In the process: from the start of this context on, signals interrupt the work. Before, the process holds them."""
    with context as value:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _ENDING)
        yield value


def _let_go_of_output() -> None:
    """Hold no output, so that a reader of lo2io's refusal need not wait for the end of this process, too."""
    nowhere = os.open(os.devnull, os.O_RDWR)
    for number in _OUTPUTS:
        os.dup2(nowhere, number)
    os.close(nowhere)


def _give_way() -> None:
    """Run only on idle CPUs, if this process may undo that: if it may lower its nice value."""
    with contextlib.suppress(OSError):
        own = os.getpriority(os.PRIO_PROCESS, 0)
        os.setpriority(os.PRIO_PROCESS, 0, own - 1)
        os.setpriority(os.PRIO_PROCESS, 0, own)
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))


def _finish(work: Work, fds: list[int], finish: Finish) -> int:
    """The exit code of converting and reporting. Messages of errors are those of any command.

    Args:
        work: What to do.
        fds: Descriptors of lo2io's output, then those of the folders.
        finish: Does it.
    """
    for number in _OUTPUTS:
        os.dup2(fds[0], number)
        os.close(fds.pop(0))
    parent = Folder(fds[2], work.parent) if work.parent is not None else None
    trace = Folder(fds[1], work.trace, parent)
    spool = Folder(fds[0], work.spool, trace)

    def to_its_end() -> NoReturn:
        with ended_by_signals():
            try:
                code = finish(work.request, work.exit_code, spool, trace)
                streams.flush()  # a reader may let this wait, which a signal must be able to end
            finally:
                signal.pthread_sigmask(signal.SIG_BLOCK, _ENDING)  # a signal from here on would take the exit code away
        sys.exit(code)

    with private_umask():
        try:
            run_to_end(to_its_end)
        except SystemExit as end:
            return int(end.code or 0)
        except BaseException:  # noqa: BLE001 - as Python does at the end of a process
            sys.excepthook(*sys.exc_info())
            return 1
    return 0
