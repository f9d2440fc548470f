"""A second process finishes a recording: it gets the folders, its exit code comes back, and so does its absence."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from lo2io.capture.options import RecordRequest
from lo2io.cli.standby import Standby, interruptible
from lo2io.folder import Folder
from lo2io.signals import interrupted_by_signals

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

REQUEST = RecordRequest(command=("true",))


@pytest.fixture
def trace(tmp_path: Path) -> Folder:
    """The folder of a trace that has a spool."""
    folder = Folder.open_or_make(tmp_path / "T")
    folder.make("spool").write("spool.json", b"{}")
    return folder


def hand_over(
    standby: Standby, trace: Folder, exit_code: int = 0, meanwhile: Callable[[], None] = lambda: None
) -> int | None:
    """Hand the recording over."""
    with trace.enter("spool") as spool:
        return standby.hand_over(REQUEST, exit_code, spool, trace, meanwhile)


def test_lo2io_does_its_rest_while_the_process_works(trace: Folder) -> None:
    """The process works when the rest begins, and lo2io waits for neither before the other."""

    def finish(*_: object) -> int:
        trace.write("begun", b"")
        _wait_for(trace, "rest")
        return 6

    def rest() -> None:
        _wait_for(trace, "begun")
        trace.write("rest", b"")

    assert hand_over(Standby(lambda: None, finish), trace, meanwhile=rest) == 6


def _wait_for(trace: Folder, name: str) -> None:
    for _ in range(1000):
        if trace.is_file(name):
            return
        time.sleep(0.01)
    raise TimeoutError(name)


def test_the_work_is_done_elsewhere(trace: Folder) -> None:
    """Another process has the request and the folders, and is what lo2io's exit code comes from."""

    def finish(request: RecordRequest, exit_code: int, spool: Folder, there: Folder) -> int:
        there.write("made", b"%d %s" % (os.getpid(), spool.read("spool.json")))
        spool.discard()
        return exit_code + len(request.command)

    trace.lock()
    assert hand_over(Standby(lambda: None, finish), trace, 5) == 6
    pid, content = trace.read("made").split()
    assert int(pid) != os.getpid()
    assert content == b"{}"
    assert trace.names() == ["made"]
    with Folder.open(trace.path) as other, pytest.raises(Exception, match="uses it"):  # this process still has the lock
        other.lock()


def test_whoever_ignores_sigchld_gets_the_exit_code_too(trace: Folder) -> None:
    """A program that ignores SIGCHLD hands that on to what it starts. Then the kernel keeps no child to wait for."""
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        assert hand_over(Standby(lambda: None, lambda _, code, *__: code + 1), trace, 5) == 6
    finally:
        signal.signal(signal.SIGCHLD, before)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may undo a nice value")
def test_it_works_as_lo2io_is_scheduled(trace: Folder) -> None:
    """`nice` and `chrt` hold for converting, too."""
    read, write = os.pipe()

    def prepare() -> None:
        os.write(write, b"x")  # from here on, the process gives way

    def finish(*_: object) -> int:
        return 10 * os.sched_getscheduler(0) + os.getpriority(os.PRIO_PROCESS, 0)

    recorder = os.fork()
    if recorder == 0:
        os.setpriority(os.PRIO_PROCESS, 0, 7)
        os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
        standby = Standby(prepare, finish)
        os.read(read, 1)
        os._exit(hand_over(standby, trace) or 0)
    os.close(write)
    os.close(read)
    assert os.waitstatus_to_exitcode(os.waitpid(recorder, 0)[1]) == 10 * os.SCHED_BATCH + 7


def test_a_process_that_has_gone_has_done_nothing(trace: Folder) -> None:
    """If it could not import, lo2io does the work itself."""

    def prepare() -> None:
        raise ImportError

    assert hand_over(Standby(prepare, lambda *_: 0), trace) is None


def test_a_process_that_goes_amid_its_work(trace: Folder) -> None:
    """The caller gets an error, since half of the work may be done."""

    def finish(*_: object) -> int:
        os.kill(os.getpid(), signal.SIGKILL)
        return 0

    with pytest.raises(ChildProcessError):
        hand_over(Standby(lambda: None, finish), trace)


def test_it_ends_with_lo2io() -> None:
    """Also amid its imports: a reader of lo2io's output would wait for it."""
    read, write = os.pipe()
    recorder = os.fork()
    if recorder == 0:
        Standby(_never, lambda *_: 0)
        os._exit(0)
    os.close(write)
    os.waitpid(recorder, 0)
    assert select.select([read], [], [], 10)[0], "somebody still has the pipe's other end"
    assert os.read(read, 1) == b""
    os.close(read)


def _never() -> None:
    time.sleep(60)


def test_it_holds_no_output_before_the_work(trace: Folder, capfd: pytest.CaptureFixture[str]) -> None:
    """A reader of lo2io's output waits until its last holder has closed it."""
    before: list[Path] = []

    def prepare() -> None:
        before.append(Path("/proc/self/fd/1").readlink())

    def finish(*_: object) -> int:
        print("summary of", *before, flush=True)
        print("a message", file=sys.stderr, flush=True)
        return 0

    assert hand_over(Standby(prepare, finish), trace) == 0
    assert capfd.readouterr() == (f"summary of {os.devnull}\n", "a message\n")


@pytest.mark.parametrize(("prepare", "within"), [(lambda: None, _never), (lambda: time.sleep(0.5), lambda: None)])
def test_a_signal_interrupts_the_work_alone(
    trace: Folder, prepare: Callable[[], None], within: Callable[[], None]
) -> None:
    """It reaches the process amid the work, and one that comes before waits until the work has begun."""

    def finish(*_: object) -> int:
        try:
            with interrupted_by_signals(), interruptible(contextlib.nullcontext()):
                within()
        except KeyboardInterrupt as interrupt:
            return int(interrupt.args[0])
        return 0

    standby = Standby(prepare, finish)
    with interrupted_by_signals():
        threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGTERM)).start()
        assert hand_over(standby, trace) == signal.SIGTERM


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_amid_the_report_is_no_failure_of_converting(trace: Folder, number: signal.Signals) -> None:
    """The trace is whole by then, so lo2io ends as by the signal."""

    def finish(*_: object) -> int:
        with interrupted_by_signals(), interruptible(contextlib.nullcontext()):
            pass  # converting
        _never()
        return 0

    default = signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL
    before = signal.signal(number, default)  # under nohup or in the background, it is ignored
    try:
        standby = Standby(lambda: None, finish)
        with interrupted_by_signals():
            threading.Timer(0.2, os.kill, (os.getpid(), number)).start()
            assert hand_over(standby, trace) == 128 + number
    finally:
        signal.signal(number, before)


def test_a_signal_after_the_work_takes_no_exit_code_away(trace: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    """Work and report are whole, and only the exit code is left to be told."""

    @contextlib.contextmanager
    def then_a_signal() -> Iterator[None]:
        yield
        os.kill(os.getpid(), signal.SIGTERM)

    def finish(*_: object) -> int:
        with interruptible(contextlib.nullcontext()):
            return 6

    monkeypatch.setattr("lo2io.cli.standby.private_umask", then_a_signal)
    assert hand_over(Standby(lambda: None, finish), trace) == 6
