"""The accounts of a recording, and of a flight recorder's windows."""

from __future__ import annotations

import os
import subprocess
import sys

from lo2io.capture.accounts import Accounting, window_accounts
from lo2io.kernel.accounts import DISK_NAMES, DISKSTATS, Reading
from lo2io.model import ClockSync


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
