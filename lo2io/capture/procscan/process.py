"""Facts from ``/proc`` about the recorded tasks, read at the start, now and then, and at the stop.

System calls give the numbers of file descriptors, ``/proc`` their names. A look says what a descriptor was between two
times. Converting decides whether that proves a name, because it knows how long each descriptor was open.
"""

from __future__ import annotations

import abc
import contextlib
import itertools
import os
import threading
import time
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING

from lo2io.capture.launchers import find_rank_in
from lo2io.kernel import procfs
from lo2io.kernel.elf import read_build_id
from lo2io.model.notices import Notice
from lo2io.spool import facts
from lo2io.spool.writer import DiskFullError
from lo2io.units import NS_PER_S

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from lo2io.spool.sinks import Sink

EARLY_S = (0.005, 0.02, 0.05)
"""Times of the first scans after the start. Many programs do not live longer."""
SELDOM_S = 60.0
"""Rest between two scans if programs in the kernel tell names. They never name files that are open but not used."""
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
RANKS_S = (0.1, 0.3, 1.0, 3.0, 10.0)
"""Times after the start at which a scanner with ``seldom`` looks for ranks. Only /proc shows ranks, and launchers need
some time to start them."""
FIRST_LOOK_S, LAST_LOOK_S = 30.0, 1.0
"""The longest times that looks at all descriptors of a machine may take before and after a recording."""
REST_FACTOR = 50
"""The rest after a scan is this many times as long as the scan, so scans take at most 2 % of one CPU."""
WRITTEN_AT_ONCE = 256
"""Facts are written in pieces of so many descriptors or threads: a process may have half a million descriptors."""
_MAX_BUILD_IDS = 65536
_MAX_PASSES = 20
"""The most passes over a process, for one that starts threads faster than they can be listed."""


class FactWriter:
    """Looks at one process at a time and writes facts about it.

    Args:
        sink: The spool's facts.
        tell: Called with a notice if the facts had to stop.
        root: Where ``proc`` lies.
        controller: Names the hierarchy whose cgroups are told, as for ``procfs.read_cgroup``.
        code: Tell also which files processes have mapped as code.
    """

    def __init__(
        self,
        sink: Sink,
        tell: Callable[[Notice], None],
        root: Path = Path("/"),
        controller: bytes | None = None,
        *,
        code: bool = False,
    ) -> None:
        self.is_over = False
        """True if the disk is full or the scanner was stopped. Then nothing is written."""
        self.lived_at_ns: int | None = None
        """A time of CLOCK_MONOTONIC. Facts of threads born earlier state that the threads lived at this time."""
        self._sink = sink
        self._tell = tell
        self._root = root
        self._controller = controller
        self._commands: dict[int, tuple[bytes, bool]] = {}
        """Process → command line of the last COMMAND fact, and whether it was cut."""
        self._code = code
        self._build_ids: dict[tuple[bytes, int], str] = {}
        """Device and inode of a file → its build id."""
        self.until: float | None = None
        """``time.monotonic`` at which looks at descriptors end, even if there are further ones; None: they see all."""
        self._lists: dict[int, procfs.ListingTime] = {}
        """Owner of a process → the time for fdinfo of the owner's processes."""

    def write_threads(self, pid: int, flags: int, seen: set[int]) -> bool:
        """Write TASK facts of a process' new threads, the first one with the cgroup.

        Returns:
            True if the process has user memory. Kernel threads have none, and no descriptors.
        """
        records: list[bytes] = []
        is_kernel = False
        tells_code = self._code and pid not in seen and not flags & facts.TASK_FROM_EXEC
        for tid in sorted(procfs.iter_tids(pid, self._root), key=lambda tid: tid != pid):
            begin = time.monotonic_ns()
            stat = None if tid in seen else procfs.read_stat(pid, tid, self._root)
            if stat is None:
                continue
            cgroup = None if records else procfs.read_cgroup(pid, self._root, self._controller)
            compat = facts.TASK_COMPAT if tid == pid and procfs.is_compat(pid, self._root) else 0
            seen.add(tid)
            is_kernel = is_kernel or stat.is_kernel
            end = time.monotonic_ns()
            if self.lived_at_ns is not None and _was_born(stat, self.lived_at_ns):
                begin = end = self.lived_at_ns
            records.append(
                facts.pack_task(
                    begin_ns=begin,
                    end_ns=end,
                    pid=pid,
                    tid=tid,
                    ppid=stat.ppid,
                    comm=stat.comm,
                    flags=flags | compat,
                    cgroup=cgroup,
                )
            )
        self.append(records)
        if not is_kernel:
            self.write_command(pid)
            if tells_code:
                self.write_code(pid)
        return not is_kernel

    def write_code(self, pid: int) -> None:
        """Write MAPPING facts of the code that a process has mapped. perf tells what it maps from now on."""
        begin = time.monotonic_ns()
        states = list(procfs.iter_code(pid, self._root))
        end = time.monotonic_ns()
        for at in range(0, len(states), WRITTEN_AT_ONCE):
            found = [
                facts.MappingFact(
                    pid,
                    state.begin,
                    state.end,
                    state.offset,
                    self._build_id(pid, state) if state.file[1] else "",
                    state.path.decode(errors="surrogateescape"),
                )
                for state in states[at : at + WRITTEN_AT_ONCE]
            ]
            self.append([facts.pack_mapping(begin_ns=begin, end_ns=end, mapping=each) for each in found])

    def _build_id(self, pid: int, state: procfs.CodeState) -> str:
        """The build id of a mapped file; empty: not known. A file keeps it as long as it has its inode.

        Since the line was read, the process may have mapped another file there. So the id is kept for further processes
        only if the opened file is certainly that of the line.
        """
        known = self._build_ids.get(state.file)
        if known is not None:
            return known
        build_id, is_certain = "", False
        with contextlib.suppress(OSError):
            # The link leads to the mapped file itself, whatever has its name now, and in whichever namespace.
            place = self._root / f"proc/{pid}/map_files/{state.begin:x}-{state.end:x}"
            fd = os.open(place, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
            try:
                status = os.fstat(fd)
                numbers = os.major(status.st_dev), os.minor(status.st_dev)
                is_certain = (b"%02x:%02x" % numbers, status.st_ino) == state.file
                build_id = read_build_id(fd)
            finally:
                os.close(fd)
        if is_certain and len(self._build_ids) < _MAX_BUILD_IDS:
            self._build_ids[state.file] = build_id
        return build_id

    def write_fds(self, pid: int) -> int:
        """Write FD facts of a process, and RING facts of its rings.

        Returns:
            0 if no descriptor was seen: the process has ended, or has none. Else a number that changes when the number,
            device or inode of any descriptor changes.
        """
        self.write_command(pid)
        seen = 0
        states = procfs.iter_fds(pid, self._root, lists=self.lists_of(pid))
        while piece := list(itertools.islice(states, WRITTEN_AT_ONCE)):
            self.append([record for state in piece for record in pack_descriptor(pid, state)])
            seen += sum(1 + hash((state.fd, state.device, state.inode)) % (1 << 61) for state in piece)
            if self.is_late():
                break
        return seen

    def is_late(self) -> bool:
        """True if looks at descriptors are to end now."""
        return self.is_over or (self.until is not None and time.monotonic() > self.until)

    def lists_of(self, pid: int) -> procfs.ListingTime | None:
        """The time for fdinfo of a process, which it shares with its owner's other processes; None: it has ended."""
        try:
            owner = os.stat(f"{self._root}/proc/{pid}").st_uid  # noqa: PTH116 - for every process of the machine
        except OSError:
            return None
        return self._lists.setdefault(owner, procfs.ListingTime())

    def forget_commands(self) -> None:
        """Write each command line at the next look, even if it is the same: after an exec it is a new fact."""
        self._commands.clear()
        self._build_ids.clear()  # so that the memory for them stays bounded

    def forget(self, pid: int) -> None:
        """A process has ended."""
        self._commands.pop(pid, None)

    def write_command(self, pid: int) -> None:
        """Write a COMMAND fact, and a RANK fact of a rank, if the command line has changed since the last one."""
        begin = time.monotonic_ns()
        command = procfs.read_command(pid, self._root)
        if command is None:
            self._commands.pop(pid, None)
        elif self._commands.get(pid) != command:
            self._commands[pid] = command
            self.append(pack_command_facts(pid, command, begin, self._root))

    def tell(self, text: str) -> None:
        """Give the user a notice."""
        self._tell(Notice(text))

    def append(self, records: Sequence[bytes]) -> None:
        """Write records, if the writer is not over."""
        if not records or self.is_over:
            return
        try:
            self._sink.append([b"".join(records)])
        except DiskFullError as error:
            self.give_up(str(error))

    def give_up(self, why: str) -> None:
        """Stop writing facts, with a notice."""
        if self.is_over:
            return
        self.is_over = True
        self.tell(f"no names are looked up any more: {why}")


def pack_command_facts(pid: int, command: tuple[bytes, bool], begin_ns: int, root: Path) -> list[bytes]:
    """The COMMAND fact of a process, and the RANK fact of a rank.

    Args:
        pid: The process.
        command: The result of ``procfs.read_command``.
        begin_ns: CLOCK_MONOTONIC before that was read.
        root: The folder above ``proc``.
    """
    content, cut = command
    end = time.monotonic_ns()
    records = [facts.pack_command(begin_ns=begin_ns, end_ns=end, pid=pid, command=content, cut=cut)]
    rank = find_rank_in(procfs.read_environment(pid, root))
    if rank is not None:
        records.append(facts.pack_rank(begin_ns=begin_ns, end_ns=time.monotonic_ns(), pid=pid, rank=rank))
    return records


def pack_descriptor(pid: int, state: procfs.FdState) -> Iterator[bytes]:
    """The records about one descriptor: the FD fact, then the RING fact if it is a ring."""
    yield facts.pack_fd(
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
    ring = state.ring
    if ring is not None:
        yield facts.pack_ring(
            begin_ns=state.begin_ns,
            end_ns=state.end_ns,
            pid=pid,
            fd=state.fd,
            sq_entries=ring.sq_entries,
            cq_entries=ring.cq_entries,
            poller=ring.poller,
            nr_files=ring.nr_files,
            nr_buffers=ring.nr_buffers,
        )


def _was_born(stat: procfs.TaskStat, monotonic_ns: int) -> bool:
    """True if a thread was certainly born before a time. The kernel tells births in ticks of CLOCK_BOOTTIME."""
    asleep_ns = time.clock_gettime_ns(time.CLOCK_BOOTTIME) - time.monotonic_ns()
    return stat.start_ticks < (monotonic_ns + asleep_ns) * _TICKS_PER_S // NS_PER_S


def _after(seconds: float | None) -> float | None:
    """``time.monotonic`` after some seconds; None: never."""
    return None if seconds is None else time.monotonic() + seconds


class Scanner(abc.ABC):
    """A thread that looks at processes again and again. Subclasses choose the processes and the times.

    Args:
        writer: Writes the facts.
        period_s: Rest between two scans; longer if scans take long. 0: scan only at the start and the stop.
        seldom: True if programs in the kernel tell names. Then the period is much longer, without early scans.
    """

    first_look_s: float | None = None
    """The longest time that the look at descriptors before the recording may take; None: as long as it takes."""
    last_look_s: float | None = None
    """The same for the look at the end."""

    def __init__(self, writer: FactWriter, period_s: float, *, seldom: bool = False) -> None:
        self._writer = writer
        self._period_s = max(period_s, SELDOM_S) if seldom and period_s > 0 else period_s
        self._early_s: tuple[float, ...] = () if seldom else EARLY_S
        self._wake = threading.Event()
        self._over = False
        self._rescans: deque[int] = deque(maxlen=1)
        self._thread = threading.Thread(target=self._run, name="lo2io-scan", daemon=True)

    @abc.abstractmethod
    def scan_tasks(self, flags: int) -> None:
        """TASK facts of every thread of the processes, until a pass finds no new one: FORK records tell of the rest."""

    @abc.abstractmethod
    def scan_fds(self) -> None:
        """FD facts of every process that lives; the dead are forgotten."""

    @abc.abstractmethod
    def _look(self) -> float:
        """Look at the processes that are due; return the time to rest."""

    def _look_early(self) -> None:
        """Look soon after the start."""
        self._look()

    def look_first(self, flags: int) -> None:
        """Look at everything before the recording begins.

        A failure ends the looks with a notice, and not the recording.

        Raises:
            OSError: lo2io may not open further files, say.
        """
        try:
            self.scan_tasks(flags)
            self._writer.until = _after(self.first_look_s)
            self.scan_fds()
            if self._writer.is_late() and not self._writer.is_over:
                self._writer.tell("some open files have no names: they could not all be looked up before the recording")
        except OSError:
            raise
        except Exception as error:  # noqa: BLE001 - a process must not keep others from being recorded
            self._fail(error)
        self._writer.until = None

    def start(self) -> None:
        """Start the thread that scans again and again."""
        if self._period_s > 0 and not self._writer.is_over:
            self._thread.start()

    def rescan(self, after_ns: int) -> None:
        """Request a new look at everything soon. Call this from any thread.

        Args:
            after_ns: A time of CLOCK_MONOTONIC. Facts of threads born earlier state that the threads lived then.
        """
        self._rescans.append(after_ns)
        self._wake.set()

    def stop(self) -> None:
        """End the thread, and look a last time at living processes. A failure is a notice, as in the thread."""
        self._end_thread()
        if self._writer.is_over:
            return
        try:
            self._writer.until = _after(self.last_look_s)
            self._look_last()
        except Exception as error:  # noqa: BLE001 - the recording is whole without these facts
            self._fail(error)

    def _look_last(self) -> None:
        self._writer.forget_commands()
        self.scan_fds()

    def _fail(self, error: Exception) -> None:
        self._writer.give_up(f"{type(error).__name__}: {error}")

    def abandon(self) -> None:
        """End the thread, without another look."""
        self._writer.is_over = True
        self._end_thread()

    def _end_thread(self) -> None:
        self._over = True
        self._writer.until = time.monotonic()  # a last look follows, or none
        self._wake.set()
        if self._thread.ident is not None:
            self._thread.join()

    def _run(self) -> None:
        try:
            self._look_again_and_again()
        except Exception as error:  # noqa: BLE001 - else the user would not learn why names are missing
            self._fail(error)

    def _look_again_and_again(self) -> None:
        begin = time.monotonic()
        for delay in self._early_s:
            if self._sleep(begin + delay - time.monotonic()):
                return
            self._look_early()
        rest = self._period_s
        while not self._sleep(rest):
            rest = self._look()

    def _sleep(self, seconds: float) -> bool:
        """Rest, and do requested looks meanwhile. Return True if the scanner is to end."""
        end = time.monotonic() + seconds
        while not self._over and (left := end - time.monotonic()) > 0:
            self._wake.wait(left)
            self._wake.clear()
            if self._rescans and not self._over:
                self._writer.lived_at_ns = self._rescans.pop()
                self._writer.forget_commands()  # the last facts may be in a part that is removed
                self.scan_tasks(self._rescan_flags())
                self._writer.lived_at_ns = None
                self.scan_fds()
        return self._over

    def _rescan_flags(self) -> int:
        """Flags of TASK facts in a requested look."""
        return facts.TASK_SELECT


class FactScanner(Scanner):
    """Looks at some processes and all that they start.

    Args:
        sink: The spool's facts.
        pids: Processes to look at, with all that they start later.
        period_s: Rest between two scans; longer if scans take long. 0: scan only at the start and the stop.
        tell: Called with a notice if the facts had to stop.
        root: The folder above ``proc``.
        seldom: As for :class:`Scanner`.
        recorded: Returns the living recorded processes that programs in the kernel know. Without it, a process whose
            parent ends before a look at that parent is never found.
        code: As for :class:`FactWriter`.
    """

    def __init__(
        self,
        sink: Sink,
        pids: Iterable[int],
        period_s: float,
        tell: Callable[[Notice], None],
        root: Path = Path("/"),
        *,
        seldom: bool = False,
        recorded: Callable[[], Iterable[int]] = tuple,
        code: bool = False,
    ) -> None:
        super().__init__(FactWriter(sink, tell, root, code=code), period_s, seldom=seldom)
        self.pids = dict.fromkeys(pids)
        self._early_s = RANKS_S if seldom else EARLY_S
        self._seldom = seldom
        self._recorded = recorded
        self._root = root
        self._foreign = {child for pid in self.pids for child in procfs.read_children(pid, root)}

    def scan_tasks(self, flags: int) -> None:
        """TASK facts of every thread of the processes, until a pass finds no new one: FORK records tell of the rest."""
        seen: set[int] = set()
        for _ in range(_MAX_PASSES):
            before = len(seen)
            for pid in list(self.pids):
                self._writer.write_threads(pid, flags, seen)
            if len(seen) == before:
                return

    def scan_fds(self) -> None:
        """Write FD facts of every living process and its new descendants. Forget processes that have ended."""
        self.pids.update(dict.fromkeys(self._recorded()))
        pending, known = list(self.pids), set(self.pids) | self._foreign
        while pending and not self._writer.is_over:
            pid = pending.pop()
            new = [child for child in procfs.read_children(pid, self._root) if child not in known]
            known.update(new)
            pending.extend(new)
            self.pids.update(dict.fromkeys(new))
            if not self._writer.write_fds(pid) and procfs.read_stat(pid, root=self._root) is None:
                self.pids.pop(pid, None)
                self._writer.forget(pid)

    def _look_early(self) -> None:
        if not self._seldom:
            self._look()
            return
        for pid in {*self.pids, *self._recorded()}:
            self._writer.write_command(pid)

    def _look(self) -> float:
        begin = time.monotonic()
        self.scan_fds()
        return max(self._period_s, REST_FACTOR * (time.monotonic() - begin))
