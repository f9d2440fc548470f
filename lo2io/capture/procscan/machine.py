"""Facts from ``/proc`` about every process of the machine, at a low cost.

Every process gets a look before the recording begins and one at its end. In between, a new process gets looks soon and
often; as long as its descriptors do not change, the looks become rarer. The kernel's last process number shows whether
there are new processes: ``/proc`` is listed only when that number has changed.
"""

from __future__ import annotations

import heapq
import time
from pathlib import Path
from typing import TYPE_CHECKING

from lo2io.capture.procscan.process import FIRST_LOOK_S, LAST_LOOK_S, REST_FACTOR, FactWriter, Scanner
from lo2io.kernel import procfs

if TYPE_CHECKING:
    from collections.abc import Callable

    from lo2io.model.notices import Notice
    from lo2io.spool.sinks import Sink

_SHARE = 0.003
"""The share of one CPU that repeated looks at known processes may take."""
_SOON_S, _RARELY_S = 0.005, 60.0
"""The shortest and the longest time between two looks at one process."""
_OLD_S = 1.0
"""Processes that are older than the recording count as changed this long before it."""
_COST_FACTOR = 300
"""The time to the next look is at least this many times as long as the look took."""
_MAX_PASSES = 20


class _Process:
    """The last look at a process.

    Attributes:
        changed: ``time.monotonic`` of the look that last showed other descriptors than the one before.
        due: When the next look is due.
        cost_s: How long the last look took.
        seen: The result of that look's ``write_fds``; 0: no descriptor was seen.
    """

    __slots__ = ("changed", "cost_s", "due", "seen")

    def __init__(self, changed: float) -> None:
        self.changed = changed
        self.due = changed
        self.cost_s = 0.0
        self.seen = 0


class MachineScanner(Scanner):
    """Looks at every process.

    The looks at the start and the end have a time limit, so that one process cannot delay the recording of all others.

    Args:
        sink: The spool's facts.
        period_s: Time between two searches for new processes. 0: only at the start and the stop.
        tell: Called with a notice if the facts had to stop.
        command: The command that is about to start; 0: there is none.
        skip: Processes whose descriptors are not looked at: lo2io's own.
        controller: Names the hierarchy whose cgroups are told, as for ``procfs.read_cgroup``.
        root: Where ``proc`` lies.
        seldom: As for :class:`Scanner`.
        code: As for :class:`~lo2io.capture.procscan.process.FactWriter`.
    """

    first_look_s, last_look_s = FIRST_LOOK_S, LAST_LOOK_S

    def __init__(
        self,
        sink: Sink,
        period_s: float,
        tell: Callable[[Notice], None],
        *,
        command: int = 0,
        skip: frozenset[int] = frozenset(),
        controller: bytes | None = None,
        root: Path = Path("/"),
        seldom: bool = False,
        code: bool = False,
    ) -> None:
        super().__init__(FactWriter(sink, tell, root, controller, code=code), period_s, seldom=seldom)
        self._root = root
        self._processes: dict[int, _Process] = {}
        self._command = command
        self._ignored = set(skip)
        self._skip = skip
        self._queue: list[tuple[float, int]] = []
        self._last_pid: int | None = None
        self._looked = time.monotonic()

    def scan_tasks(self, flags: int) -> None:
        """TASK facts of every thread, until a pass finds no new one: FORK records tell of the rest.

        Args:
            flags: Flags of the command's facts. Other facts have no flags.
        """
        seen: set[int] = set()
        now = time.monotonic()
        for _ in range(_MAX_PASSES):
            before = len(seen)
            for pid in procfs.iter_pids(self._root):
                is_command = pid == self._command
                has_fds = self._writer.write_threads(pid, flags if is_command else 0, seen)
                if has_fds and pid not in self._ignored:
                    self._processes.setdefault(pid, _Process(now if is_command else now - _OLD_S))
                elif not has_fds:
                    self._ignored.add(pid)
            if len(seen) == before:
                break

    def scan_fds(self) -> None:
        """Write FD facts of every living process, the last changed first. Forget processes that have ended."""
        self._find_new()
        latest = sorted(self._processes.items(), key=lambda item: -item[1].changed)
        for pid, process in latest:
            if self._writer.is_late():
                return
            self._look_at(pid, process)
        self._queue = [(process.due, pid) for pid, process in self._processes.items()]
        heapq.heapify(self._queue)

    def _rescan_flags(self) -> int:
        return 0

    def _look(self) -> float:
        """Look at new processes at once. Look at others that are due, as far as the allowed cost permits."""
        begin = time.monotonic()
        allowed, self._looked = _SHARE * (begin - self._looked), begin
        for pid in self._find_new():
            if not self._writer.is_late():
                self._look_at(pid, self._processes[pid])
            self._requeue(pid)
        took = time.monotonic() - begin
        start = time.monotonic()
        while self._queue and self._queue[0][0] <= start and time.monotonic() - start < allowed:
            _, pid = heapq.heappop(self._queue)
            process = self._processes.get(pid)
            if process is not None and not self._writer.is_late():
                self._look_at(pid, process)
                self._requeue(pid)
        return max(self._period_s, REST_FACTOR * took)

    def _requeue(self, pid: int) -> None:
        process = self._processes.get(pid)
        if process is not None:
            heapq.heappush(self._queue, (process.due, pid))

    def _find_new(self) -> list[int]:
        """Find new processes, and forget those that have ended."""
        last_pid = procfs.read_last_pid(self._root)
        if last_pid is not None and last_pid == self._last_pid:
            return []
        self._last_pid = last_pid
        alive = set(procfs.iter_pids(self._root))
        for pid in self._processes.keys() - alive:
            del self._processes[pid]
            self._writer.forget(pid)
        self._ignored &= alive | self._skip
        new = sorted(alive - self._processes.keys() - self._ignored)
        now = time.monotonic()
        for pid in new:
            self._processes[pid] = _Process(now)
        return new

    def _look_at(self, pid: int, process: _Process) -> None:
        begin = time.monotonic()
        seen = self._writer.write_fds(pid)
        now = time.monotonic()
        process.cost_s = now - begin
        if seen != process.seen:
            process.changed = process.changed if not process.seen else now
            process.seen = seen
        if not seen and procfs.read_stat(pid, root=self._root) is None:
            self._processes.pop(pid, None)
            self._writer.forget(pid)
        quiet = min(now - process.changed, _RARELY_S)
        process.due = now + max(_SOON_S, quiet, _COST_FACTOR * process.cost_s)
