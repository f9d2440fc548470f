"""The kernel's own accounts of I/O, read after sampling has begun, when the command ends, and before sampling ends.

So everything that an account counts happened during sampling. ``convert/reconcile.py`` compares accounts and samples.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, TypeAlias

from lo2io.kernel import accounts
from lo2io.model import Usage
from lo2io.units import NS_PER_S

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path
    from resource import struct_rusage

    from lo2io.model import Account, ClockSync

Readings: TypeAlias = tuple[accounts.Reading, ...]


class Accounting:
    """The accounts of one recording. Make the object after sampling has begun and before the command runs.

    Args:
        command: The command's process, if there is one.
        cgroup: The folder of the cgroup that is recorded, if only one is.

    Attributes:
        last: The accounts that :meth:`end` read.
        usage: The command's usage, once the command has ended.
    """

    def __init__(self, command: int | None = None, cgroup: Path | None = None) -> None:
        self._cgroup = cgroup
        self._first = accounts.snapshot(command, cgroup)
        self._process: Readings = ()
        self.last: Readings = ()
        self._began_ns = time.monotonic_ns()
        self.usage: Usage | None = None

    def ended(self, pid: int) -> None:
        """Read a process' account. Call this while the process is a zombie: its account still holds its children's.

        The first process is the command. The accounts of processes that outlived the command are added to its own.
        """
        self._process = accounts.add(self._process, accounts.read_process(pid))

    def command_used(self, used: struct_rusage) -> None:
        """Keep what wait4(2) returned when the command ended."""
        self.usage = Usage(
            wall_ns=time.monotonic_ns() - self._began_ns,
            user_ns=round(used.ru_utime * NS_PER_S),
            system_ns=round(used.ru_stime * NS_PER_S),
            major_faults=used.ru_majflt,
            minor_faults=used.ru_minflt,
            voluntary_switches=used.ru_nvcsw,
            involuntary_switches=used.ru_nivcsw,
        )

    def look(self) -> Readings:
        """The accounts as they are now, without the command's."""
        return accounts.snapshot(cgroup=self._cgroup)

    def end(self) -> None:
        """Read the accounts a last time, while sampling still goes on."""
        self.last = self.look()

    def accounts(self, to_spool_clock: Callable[[int], int]) -> tuple[Account, ...]:
        """The kernel's counts between the two readings.

        Args:
            to_spool_clock: Turns CLOCK_MONOTONIC into the samples' clock.
        """
        return accounts.difference(self._first, (*self._process, *self.last), to_spool_clock)


def window_accounts(begin: Readings, end: Readings, syncs: Sequence[ClockSync]) -> tuple[Account, ...]:
    """The kernel's counts during a flight recorder's window.

    Args:
        begin: The accounts, read after the last buffer came to the window's first border.
        end: The accounts, read before the first buffer came to the window's last border.
        syncs: The window's comparisons of the clocks.
    """

    def to_spool_clock(monotonic_ns: int) -> int:
        sync = min(syncs, key=lambda each: abs(each.monotonic_ns - monotonic_ns))
        return sync.time_ns + monotonic_ns - sync.monotonic_ns

    return accounts.difference(begin, end, to_spool_clock)
