"""Facts about every process of the machine, from the kernel's iterators.

A look at everything is so cheap that a flight recorder can take one for each segment. Iterators tell no command line
and no cgroup's path. So ``/proc`` is asked for them once, and the answer holds as long as the iterator tells the same
of the thread. A process may also write a title over its arguments, which no iterator tells. So ``/proc`` is asked
again for some threads at each look.
"""

from __future__ import annotations

import itertools
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from lo2io.bpf.looks import parse_task
from lo2io.capture.procscan.process import (
    FIRST_LOOK_S,
    LAST_LOOK_S,
    REST_FACTOR,
    WRITTEN_AT_ONCE,
    FactWriter,
    Scanner,
    pack_command_facts,
    pack_descriptor,
)
from lo2io.kernel import procfs
from lo2io.spool import facts

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lo2io.bpf.looks import Looks
    from lo2io.model.notices import Notice
    from lo2io.spool.sinks import Sink

_ASKED_AGAIN = 50
"""The number of threads whose command line and cgroup are read again at each look, those of the oldest answer first."""


class _Task(NamedTuple):
    """A thread's facts without their times."""

    pid: int
    born_ns: int
    """CLOCK_BOOTTIME."""
    has_code: bool
    """True: the first thread of a program. A command that has not begun is no program yet."""
    task: Sequence[bytes]
    command: Sequence[bytes]


class IteratedScanner(Scanner):
    """Looks at every process. The iterators take little time; what ``/proc`` tells of rings may take long.

    Args:
        sink: The spool's facts.
        period_s: The longest time between two looks; 0: only at the start and the stop.
        tell: Called with a notice if the facts had to stop.
        looks: The iterators. The scanner closes them when it ends.
        command: The command that is about to start; 0: there is none.
        controller: Names the hierarchy whose cgroups are told, as for ``procfs.read_cgroup``.
        root: Where ``proc`` lies.
        code: As for :class:`~lo2io.capture.procscan.process.FactWriter`.
    """

    first_look_s, last_look_s = FIRST_LOOK_S, LAST_LOOK_S

    def __init__(
        self,
        sink: Sink,
        period_s: float,
        tell: Callable[[Notice], None],
        looks: Looks,
        *,
        command: int = 0,
        controller: bytes | None = None,
        root: Path = Path("/"),
        code: bool = False,
    ) -> None:
        super().__init__(FactWriter(sink, tell, root, controller, code=code), period_s, seldom=True)
        self._looks = looks
        self._command = command
        self._controller = controller
        self._root = root
        self._code = code
        self._known: dict[bytes, _Task] = {}
        """The iterator's record of a thread → its facts, those of the oldest answer first."""

    def scan_tasks(self, flags: int) -> None:
        """TASK and COMMAND facts of every thread.

        One pass is enough: an iterator meets each thread that lives all the time, and FORK records tell of the rest.

        Args:
            flags: Flags of the command's facts. Other facts have no flags.
        """
        begin = time.monotonic_ns()
        alive = self._looks.tasks()
        for at in range(0, len(alive), WRITTEN_AT_ONCE):
            self._write(alive[at : at + WRITTEN_AT_ONCE], begin, flags)
        self._forget(alive)

    def scan_fds(self) -> None:
        """Write FD facts of every living process, and RING facts of its rings."""
        for piece in self._looks.files():
            self._writer.append([piece])
            for pid, fd in facts.read_descriptors(piece, procfs.RING_LINK):
                if self._writer.is_late():
                    break
                ring = procfs.read_fd(pid, fd, self._root, lists=self._writer.lists_of(pid))
                if ring is not None and pid != os.getpid():
                    self._writer.append(list(pack_descriptor(pid, ring)))

    def stop(self) -> None:
        """End the thread, and look a last time, with each command line as it is then."""
        super().stop()
        self._looks.close()

    def _look_last(self) -> None:
        self._known.clear()
        self.scan_tasks(0)
        self.scan_fds()

    def abandon(self) -> None:
        """End the thread, without another look."""
        super().abandon()
        self._looks.close()

    def _rescan_flags(self) -> int:
        return 0

    def _look(self) -> float:
        begin = time.monotonic()
        self.scan_tasks(0)
        self.scan_fds()
        return max(self._period_s, REST_FACTOR * (time.monotonic() - begin))

    def _write(self, records: Sequence[bytes], begin_ns: int, flags: int) -> None:
        """Write the facts of some threads, which were listed after a time."""
        found = [self._facts_of(record, flags) for record in records]
        boot_ns = time.clock_gettime_ns(time.CLOCK_BOOTTIME)  # first: else a birth could be taken for an earlier one
        lived_ns, now = self._writer.lived_at_ns, time.monotonic_ns()
        times = facts.pack_times(begin_ns, now)
        lived_times, lived_boot_ns = times, 0
        if lived_ns is not None:
            lived_times, lived_boot_ns = facts.pack_times(lived_ns, lived_ns), lived_ns + boot_ns - now
        content = [(lived_times if each.born_ns < lived_boot_ns else times).join(each.task) for each in found]
        content.extend(times.join(each.command) for each in found if each.command)
        self._writer.append(content)
        for each in found if self._code else ():
            if each.has_code:
                self._writer.write_code(each.pid)

    def _facts_of(self, record: bytes, flags: int) -> _Task:
        """The facts of a thread, from the last look if the thread has not changed since."""
        known = self._known.get(record)
        if known is not None:
            return known
        task = parse_task(record)
        is_first, begin = task.tid == task.pid, time.monotonic_ns()
        is_user = is_first and not task.is_kernel
        marks = flags if task.pid == self._command else 0
        cgroup = procfs.read_cgroup(task.pid, self._root, self._controller) if is_first else None
        command = procfs.read_command(task.pid, self._root) if is_user else None
        compat = facts.TASK_COMPAT if is_user and procfs.is_compat(task.pid, self._root) else 0
        fact = facts.pack_task(
            begin_ns=begin,
            end_ns=begin,
            pid=task.pid,
            tid=task.tid,
            ppid=task.ppid,
            comm=task.comm,
            flags=marks | compat,
            cgroup=cgroup,
        )
        found = _Task(
            task.pid,
            task.born_ns,
            is_user and not marks & facts.TASK_FROM_EXEC,
            facts.without_times([fact]),
            facts.without_times(pack_command_facts(task.pid, command, begin, self._root)) if command else (),
        )
        if not marks and (command or not is_user):  # without a command line, it is amid an exec
            self._known[record] = found
        return found

    def _forget(self, alive: Sequence[bytes]) -> None:
        """Forget threads that have ended or changed, and those that are to be asked again."""
        for record in self._known.keys() - alive:
            del self._known[record]
        for record in list(itertools.islice(self._known, _ASKED_AGAIN)):
            del self._known[record]
