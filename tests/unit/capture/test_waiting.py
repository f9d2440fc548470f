"""Signals while a command ends: to whom they are said."""

from __future__ import annotations

import os
import signal
import threading
from typing import TYPE_CHECKING

import pytest

from lo2io.capture.waiting import BlockedSignals, wait_for_command

if TYPE_CHECKING:
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
