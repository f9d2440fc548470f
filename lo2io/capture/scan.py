"""What ``/proc`` says of the recorded tasks: at the start, now and then, and at the stop, as facts in the spool.

The system calls give numbers of file descriptors, ``/proc`` their names. A look at it is a sighting with two times and
no more; whether it proves a name is decided when converting, where it is known how long each descriptor was open.
"""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

from lo2io.kernel import procfs
from lo2io.spool import facts
from lo2io.spool.writer import DiskFullError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from lo2io.spool.writer import Sink

EARLY_S = (0.005, 0.02, 0.05)
"""Scans this long after the start: many programs live no longer."""
REST_FACTOR = 50
"""A scan is followed by a rest of so many times its length: at most 2 % of one CPU."""
_MAX_PASSES = 20
"""A process that starts threads faster than they can be listed is not waited for."""


class FactScanner:
    """Looks at the recorded processes and writes what it sees.

    Args:
        file: The spool's facts.
        pids: Processes to look at, with all they start later.
        period_s: Rest between two scans; longer where they take long. 0: only at the start and the stop.
        tell: Called with a notice if the facts had to stop.
        root: Where ``proc`` lies.
    """

    def __init__(
        self,
        file: Sink,
        pids: Iterable[int],
        period_s: float,
        tell: Callable[[str], None],
        root: Path = Path("/"),
    ) -> None:
        self.pids = dict.fromkeys(pids)
        self._file = file
        self._period_s = period_s
        self._tell = tell
        self._root = root
        self._foreign = {child for pid in self.pids for child in procfs.read_children(pid, root)}
        self._full = False
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="lo2io-scan", daemon=True)

    def scan_tasks(self, flags: int) -> None:
        """TASK facts of every thread of the processes, until a pass finds no new one: FORK records tell of the rest."""
        seen: set[int] = set()
        for _ in range(_MAX_PASSES):
            before = len(seen)
            for pid in self.pids:
                self._scan_threads(pid, flags, seen)
            if len(seen) == before:
                return

    def scan_fds(self) -> None:
        """FD facts of every process that lives, and of what they started meanwhile; the dead are forgotten."""
        pending, known = list(self.pids), set(self.pids) | self._foreign
        while pending and not self._full:
            pid = pending.pop()
            new = [child for child in procfs.read_children(pid, self._root) if child not in known]
            known.update(new)
            pending.extend(new)
            self.pids.update(dict.fromkeys(new))
            if not self._scan_process(pid) and procfs.read_stat(pid, root=self._root) is None:
                self.pids.pop(pid, None)

    def start(self) -> None:
        """Scan again and again from here on, in a thread."""
        if self._period_s > 0:
            self._thread.start()

    def stop(self) -> None:
        """End the thread; look a last time at those that live."""
        self._stop.set()
        if self._thread.ident is not None:
            self._thread.join()
        self.scan_fds()

    def abandon(self) -> None:
        """End the thread, without another look."""
        self._full = True
        self._stop.set()
        if self._thread.ident is not None:
            self._thread.join()

    def _run(self) -> None:
        begin = time.monotonic()
        for delay in EARLY_S:
            if self._stop.wait(max(0.0, begin + delay - time.monotonic())):
                return
            self.scan_fds()
        took = 0.0
        while not self._stop.wait(max(self._period_s, REST_FACTOR * took)):
            begin = time.monotonic()
            self.scan_fds()
            took = time.monotonic() - begin

    def _scan_threads(self, pid: int, flags: int, seen: set[int]) -> None:
        records = []
        for tid in sorted(procfs.iter_tids(pid, self._root), key=lambda tid: tid != pid):
            begin = time.monotonic_ns()
            stat = None if tid in seen else procfs.read_stat(pid, tid, self._root)
            if stat is not None:
                seen.add(tid)
                end = time.monotonic_ns()
                records.append(
                    facts.pack_task(
                        begin_ns=begin, end_ns=end, pid=pid, tid=tid, ppid=stat.ppid, comm=stat.comm, flags=flags
                    )
                )
        self._append(records)

    def _scan_process(self, pid: int) -> bool:
        """FD facts of one process; whether there were any."""
        records = [
            facts.pack_fd(
                begin_ns=state.begin_ns,
                end_ns=state.end_ns,
                pid=pid,
                fd=state.fd,
                path=state.path,
                device=state.device,
                inode=state.inode,
                mode=state.mode,
                position=state.position,
                open_flags=state.flags,
                mount=state.mount,
            )
            for state in procfs.iter_fds(pid, self._root)
        ]
        self._append(records)
        return bool(records)

    def _append(self, records: Sequence[bytes]) -> None:
        if not records or self._full:
            return
        try:
            self._file.append([b"".join(records)])
        except DiskFullError as error:
            self._full = True
            self._tell(f"no names are looked up any more: {error}")
