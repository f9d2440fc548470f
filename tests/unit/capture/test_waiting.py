"""Signals while a command ends: to whom they are said."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from typing import TYPE_CHECKING
from unittest.mock import Mock, call

import pytest

from lo2io.capture.waiting import (
    FORWARDED,
    BlockedSignals,
    outlive,
    wait_for_command,
    wait_for_descendants,
    wait_for_end,
    wait_for_processes,
)
from lo2io.signals import interrupted_by_signals

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path
    from resource import struct_rusage


@pytest.fixture
def command() -> int:
    """The pid of a command that has ended, and that nobody has waited for."""
    pid = os.posix_spawn("/bin/true", ["true"], os.environ)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    return pid


def interrupt() -> None:
    """Ctrl-C, to this thread: another one of the test's runner would take it at some later moment."""
    signal.pthread_kill(threading.get_ident(), signal.SIGINT)


def test_a_signal_while_the_command_lived_was_meant_for_it(command: int) -> None:
    """It interrupts nothing of lo2io."""
    with BlockedSignals() as signals:
        interrupt()
        assert wait_for_command(command, signals) == 0
        assert not signals.is_ending()


def test_a_signal_when_the_command_is_gone_is_for_lo2io(command: int) -> None:
    """Also at the first moment at which somebody can see that."""

    def used(_: struct_rusage) -> None:
        interrupt()

    with BlockedSignals() as signals:
        assert wait_for_command(command, signals, used=used) == 0
        assert signals.is_ending()


def test_a_signal_for_lo2io_alone_is_passed_on() -> None:
    """The command has not got it: no terminal sent it to both."""
    pid = os.posix_spawn("/bin/sleep", ["sleep", "60"], os.environ)
    with BlockedSignals() as signals:
        signal.pthread_kill(threading.get_ident(), signal.SIGTERM)
        assert wait_for_command(pid, signals) == 128 + signal.SIGTERM


@pytest.mark.parametrize(("deadly", "is_again"), [(signal.SIGTERM, True), (signal.SIGKILL, False)])
def test_a_signal_that_counts_once(deadly: signal.Signals, *, is_again: bool) -> None:
    """Slurm sends SIGTERM to all processes, twice: the command's end was the first time. Another end was none."""
    pid = os.posix_spawn("/bin/sleep", ["sleep", "60"], os.environ)
    expected = contextlib.nullcontext() if is_again else pytest.raises(KeyboardInterrupt)
    with interrupted_by_signals(), expected, BlockedSignals(frozenset({signal.SIGTERM})) as signals:
        os.kill(pid, deadly)
        assert wait_for_command(pid, signals) == 128 + deadly
        signal.pthread_kill(threading.get_ident(), signal.SIGTERM)  # recording stops


def test_a_signal_that_came_before_counts_once() -> None:
    """The command takes its time after the first one."""
    pid = os.posix_spawn("/bin/sleep", ["sleep", "60"], os.environ)
    with interrupted_by_signals():
        with BlockedSignals(frozenset({signal.SIGTERM})) as signals:
            signal.pthread_kill(threading.get_ident(), signal.SIGTERM)
            assert signals.fetch() == (signal.SIGTERM, False)
            os.kill(pid, signal.SIGKILL)
            wait_for_command(pid, signals)
        signal.pthread_kill(threading.get_ident(), signal.SIGTERM)  # converting
        with pytest.raises(KeyboardInterrupt):
            interrupt()


def test_a_terminals_signal_is_not_passed_on(sleeper: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The command has got it, too. A signal that only wakes lo2io is nothing for the command."""
    kill = Mock()
    monkeypatch.setattr(os, "kill", kill)
    signals = Mock(
        fetch=Mock(side_effect=[(signal.SIGINT, True), (signal.SIGCHLD, False), (signal.SIGTERM, False), None])
    )
    assert wait_for_command(sleeper, signals) is None
    assert kill.mock_calls == [call(sleeper, signal.SIGTERM)]
    monkeypatch.undo()


@pytest.fixture
def sleeper() -> Iterator[int]:
    """The pid of a child that does not end by itself."""
    pid = os.posix_spawn("/bin/sleep", ["sleep", "60"], os.environ)
    yield pid
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)


@pytest.mark.parametrize(
    "wait",
    [
        lambda _, signals: wait_for_end(signals),
        lambda _, signals: wait_for_descendants(signals),
        lambda pid, signals: wait_for_processes([pid], signals),
    ],
)
@pytest.mark.parametrize("numbers", [(signal.SIGINT,), (signal.SIGHUP,), (signal.SIGUSR1, signal.SIGTERM)])
def test_a_signal_that_ends_recordings_ends_the_waiting(
    sleeper: int, wait: Callable[[int, BlockedSignals], None], numbers: tuple[int, ...]
) -> None:
    """SIGUSR1 does not; the kernel hands over the lowest number first. The processes are left alone."""
    with BlockedSignals() as signals:
        for number in numbers:
            signal.pthread_kill(threading.get_ident(), number)
        wait(sleeper, signals)
        assert signals.fetch(time.monotonic()) is None
    os.kill(sleeper, 0)


@pytest.fixture
def _handlers() -> Iterator[None]:
    """Keep the actions on signals."""
    before = {number: signal.getsignal(number) for number in FORWARDED}
    yield
    for number, action in before.items():
        signal.signal(number, action)


@pytest.mark.usefixtures("_handlers")
@pytest.mark.parametrize(("script", "code"), [("exit 0", 0), ("exit 3", 3), ("kill -9 $$", 137)])
def test_a_command_is_outlived(script: str, code: int) -> None:
    """Its exit code is known, as a shell tells it."""
    pid = os.posix_spawn("/bin/sh", ["sh", "-c", script], os.environ)
    assert outlive(pid) == code


@pytest.mark.usefixtures("_handlers")
def test_a_command_that_is_passed_a_signal_while_it_is_outlived(tmp_path: Path) -> None:
    """SIGTERM is for the command, whose exit code tells of it. SIGINT is left to the terminal."""
    ready = tmp_path / "ready"
    script = f"trap 'exit 7' TERM; : > {ready}; while :; do sleep 0.05; done"
    before = signal.getsignal(signal.SIGTERM)
    pid = os.posix_spawn("/bin/sh", ["sh", "-c", script], os.environ)

    def send() -> None:
        while not ready.exists() or signal.getsignal(signal.SIGTERM) == before:
            time.sleep(0.01)
        for number in (signal.SIGINT, signal.SIGTERM):
            os.kill(os.getpid(), number)

    sender = threading.Thread(target=send)
    sender.start()
    assert outlive(pid) == 7
    sender.join()


@pytest.mark.usefixtures("_handlers")
def test_a_command_that_nobody_can_wait_for_has_no_exit_code() -> None:
    """It is no child."""
    assert outlive(1) is None
