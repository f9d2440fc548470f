"""The accounts of a recording, and of a flight recorder's windows."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from dataclasses import replace
from typing import TYPE_CHECKING

from lo2io.capture.accounts import Accounting, window_accounts
from lo2io.kernel.accounts import DISK_NAMES, DISKSTATS, PROCESS_NAMES, Reading, read_process
from lo2io.model import ClockSync

if TYPE_CHECKING:
    import pytest


def reading(reads: int, begin_ns: int) -> Reading:
    """A disk's, that took 7 ns to read."""
    return Reading(DISKSTATS, "sda", 8 << 20, DISK_NAMES, (reads, 0, 0, 0, 0, 0, 0), begin_ns, begin_ns + 7)


def test_a_windows_times_by_the_next_comparison() -> None:
    """The clocks drift apart: each border is converted by its own comparison."""
    syncs = (ClockSync(1000, 0, 0, 1), ClockSync(5500, 4000, 0, 1))
    (account,) = window_accounts((reading(3, 100),), (reading(10, 3900),), syncs)
    assert account.values[0] == 7
    assert (account.begin_ns, account.end_ns) == (1100, 5400)
    assert (account.begin_slack_ns, account.end_slack_ns) == (7, 7)


def test_a_window_without_a_look_has_no_accounts() -> None:
    """A border without a look gives no numbers."""
    sync = (ClockSync(0, 0, 0, 1),)
    assert window_accounts((), (reading(1, 5),), sync) == ()
    assert window_accounts((reading(1, 5),), (), sync) == ()


def test_a_command_is_looked_at_while_it_is_a_zombie() -> None:
    """Its I/O between the two looks, and none of before."""
    script = "import os; r = os.read(0, 1); os.write(1, bytes(1000)); os.write(1, bytes(234))"
    command = subprocess.Popen(
        [sys.executable, "-S", "-c", script], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, bufsize=0
    )
    assert command.stdin is not None
    accounting = Accounting(command.pid)
    command.stdin.write(b"x")
    os.waitid(os.P_PID, command.pid, os.WEXITED | os.WNOWAIT)
    accounting.ended(command.pid)
    command.communicate()
    accounting.end()
    (account,) = [each for each in accounting.accounts(lambda time_ns: time_ns) if each.source == "proc_io"]
    numbers = dict(zip(account.names, account.values, strict=True))
    assert (account.subject, numbers["wchar"], numbers["syscw"]) == (str(command.pid), 1234, 2)
    assert account.begin_ns < account.end_ns


def test_processes_that_outlive_the_command_are_added_to_its_account(monkeypatch: pytest.MonkeyPatch) -> None:
    """A daemon that it left behind is no child of it any more, and is read at its own end."""
    (own,) = read_process(os.getpid())
    accounting = Accounting(os.getpid())
    (before,) = (each for each in accounting._first if each.source == own.source)
    for number in (1000, 30):
        values = tuple(number + value for value in before.values) if number == 1000 else (number,) * len(own.values)
        told = (replace(before, values=values),)
        monkeypatch.setattr("lo2io.kernel.accounts.read_process", lambda _, told=told: told)
        accounting.ended(os.getpid())
    (account,) = [each for each in accounting.accounts(lambda time_ns: time_ns) if each.source == own.source]
    assert (account.names, account.values) == (PROCESS_NAMES, (1030,) * len(PROCESS_NAMES))


def test_what_the_command_used_is_what_the_kernel_told() -> None:
    """Each number of wait4(2) has its name."""
    accounting = Accounting()
    numbers = [1.5, 0.25, *range(14)]
    accounting.command_used(resource.struct_rusage(numbers))
    used = accounting.usage
    assert used is not None
    assert (used.user_ns, used.system_ns) == (1_500_000_000, 250_000_000)
    assert (used.minor_faults, used.major_faults) == (4, 5)
    assert (used.voluntary_switches, used.involuntary_switches) == (12, 13)
