"""What the kernel counts itself, read when sampling has begun, when the command has ended, and before sampling ends.

So whatever an account counts happened while samples were taken. It does not know how the two are compared.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lo2io.kernel import accounts

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from lo2io.model import Account


class Accounting:
    """The accounts of one recording; made right after sampling has begun, and before the command is let go.

    Args:
        command: The command's process, if there is one.
        cgroup: The folder of the cgroup that is recorded, if only one is.
    """

    def __init__(self, command: int | None = None, cgroup: Path | None = None) -> None:
        self._cgroup = cgroup
        self._first = accounts.snapshot(command, cgroup)
        self._process: tuple[accounts.Reading, ...] = ()
        self._last: tuple[accounts.Reading, ...] = ()

    def command_ended(self, pid: int) -> None:
        """To be called while the command is a zombie: its account goes with it, and holds its children's till then."""
        self._process = accounts.read_process(pid)

    def end(self) -> None:
        """The last look, while samples are still taken."""
        self._last = accounts.snapshot(cgroup=self._cgroup)

    def accounts(self, to_spool_clock: Callable[[int], int]) -> tuple[Account, ...]:
        """What was counted in between.

        Args:
            to_spool_clock: Turns CLOCK_MONOTONIC into the samples' clock.
        """
        return accounts.difference(self._first, (*self._process, *self._last), to_spool_clock)
