"""Which process is looked at when, and what is written about it, in a /proc that a test builds."""

from __future__ import annotations

import os
import struct
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from unittest.mock import Mock

import pytest

from lo2io.capture.procscan import machine, process
from lo2io.capture.procscan.machine import MachineScanner
from lo2io.capture.procscan.process import FactScanner
from lo2io.model.notices import Notice
from lo2io.spool.facts import FACT_FD, FACT_RING, FACT_TASK, TASK_COMPAT, TASK_FROM_EXEC, TASK_SELECT
from lo2io.spool.writer import DiskFullError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

KERNEL_FLAG = 0x00200000


@dataclass
class Sink:
    """Keeps facts."""

    full: bool = False
    tasks: list[tuple[int, int, int, int, bytes]] = field(default_factory=list)
    fds: list[tuple[int, int]] = field(default_factory=list)
    rings: list[tuple[int, ...]] = field(default_factory=list)
    order: list[tuple[int, int]] = field(default_factory=list)
    """Kind and descriptor."""

    def append(self, views: Sequence[memoryview | bytes]) -> int:
        """Take them apart."""
        content = b"".join(views)
        if self.full:
            raise DiskFullError(machine.Path("facts"), "No space left on device")
        position = 0
        while position < len(content):
            kind, _, size = struct.unpack_from("<IHH", content, position)
            if kind == FACT_TASK:
                *numbers, comm = struct.unpack_from("<IIII16s", content, position + 24)
                self.tasks.append((*numbers, comm.rstrip(b"\0")))
            elif kind == FACT_FD:
                self.fds.append(struct.unpack_from("<Ii", content, position + 48))
                self.order.append((kind, self.fds[-1][1]))
            elif kind == FACT_RING:
                self.rings.append(struct.unpack_from("<IiIIiII", content, position + 24))
                self.order.append((kind, self.rings[-1][1]))
            position += size
        assert position == len(content)
        return len(content)


@dataclass
class Proc:
    """A /proc with tasks and files."""

    root: Path
    last_pid: int = 0

    def add(self, pid: int, *threads: int, ppid: int = 1, flags: int = 0, fds: tuple[int, ...] = ()) -> None:
        """A process and its threads."""
        for tid in (pid, *threads):
            for folder in (f"proc/{pid}/task/{tid}", f"proc/{pid}"):
                (self.root / folder).mkdir(parents=True, exist_ok=True)
                line = f"{tid if 'task' in folder else pid} (p{pid}) S {ppid} 0 0 0 0 {flags}{' 0' * 12} 99 0\n"
                (self.root / folder / "stat").write_text(line)
        for name in ("fd", "fdinfo"):
            (self.root / f"proc/{pid}/{name}").mkdir(exist_ok=True)
        for fd in fds:
            self.open(pid, fd)
        self.last_pid = max(self.last_pid, pid, *threads)
        self.tell()

    def tell(self) -> None:
        """The kernel reports its last number."""
        (self.root / "proc/loadavg").write_text(f"0.1 0.2 0.3 1/99 {self.last_pid}\n")

    def open(self, pid: int, fd: int) -> None:
        """A file it opens."""
        (self.root / "file").touch()
        (self.root / f"proc/{pid}/fd/{fd}").symlink_to(self.root / "file")
        (self.root / f"proc/{pid}/fdinfo/{fd}").write_text("pos:\t0\nflags:\t0100002\nmnt_id:\t5\n")

    def remove(self, pid: int) -> None:
        """The process ends."""
        import shutil  # noqa: PLC0415

        shutil.rmtree(self.root / f"proc/{pid}")


@pytest.fixture
def proc(tmp_path: Path) -> Proc:
    """Init, a kernel thread, and lo2io."""
    found = Proc(tmp_path)
    found.add(1, fds=(0,))
    found.add(2, flags=KERNEL_FLAG)
    found.add(50, fds=(0, 1))
    return found


@dataclass
class Clock:
    """Time that the test moves; each look takes ``cost`` seconds."""

    now: float = 1000.0
    cost: float = 0.0

    def __call__(self) -> float:
        """The time now."""
        self.now += self.cost
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """In place of time.monotonic."""
    found = Clock()
    monkeypatch.setattr(machine.time, "monotonic", found)
    return found


def scanner(proc: Proc, sink: Sink, **options: Any) -> MachineScanner:
    """A scanner that has looked at everything once."""
    made = MachineScanner(sink, 0.1, pytest.fail, skip=frozenset({50}), root=proc.root, **options)
    made.scan_tasks(TASK_SELECT | TASK_FROM_EXEC)
    made.scan_fds()
    return made


def test_everybody_is_known_at_the_start(proc: Proc, clock: Clock) -> None:
    """Every thread by name and parent; descriptors of all but kernel threads and lo2io; the command is marked."""
    proc.add(7, 8, 9, ppid=1, fds=(3, 4))
    proc.add(60, ppid=50)
    sink = Sink()
    scanner(proc, sink, command=60)
    marked = TASK_SELECT | TASK_FROM_EXEC
    assert sorted(sink.tasks) == [
        (1, 1, 1, 0, b"p1"),
        (2, 2, 1, 0, b"p2"),
        (7, 7, 1, 0, b"p7"),
        (7, 8, 1, 0, b"p7"),
        (7, 9, 1, 0, b"p7"),
        (50, 50, 1, 0, b"p50"),
        (60, 60, 50, marked, b"p60"),
    ]
    assert sorted(sink.fds) == [(1, 0), (7, 3), (7, 4)]


def test_programs_of_32_bits_are_marked(proc: Proc, clock: Clock) -> None:
    """By the first thread of each."""
    proc.add(7, 8)
    (proc.root / "proc/7/auxv").write_bytes(struct.pack("<4I", 32, 0xF7FC_8000, 0, 0))
    sink = Sink()
    scanner(proc, sink)
    assert [row[:4] for row in sink.tasks if row[3]] == [(7, 7, 1, TASK_COMPAT)]


def test_the_list_is_read_only_when_there_are_new_ones(
    proc: Proc, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel's last number tells; then the new ones are looked at, at once, and the dead forgotten."""
    sink = Sink()
    made = scanner(proc, sink)
    lists = []
    real = machine.procfs.iter_pids
    monkeypatch.setattr(machine.procfs, "iter_pids", lambda root: lists.append(1) or real(root))
    clock.now += 0.1
    made._look()
    assert lists == []
    proc.add(70, fds=(5,))
    sink.fds.clear()
    made._look()
    assert (lists, (70, 5) in sink.fds) == ([1], True)
    proc.remove(70)
    proc.last_pid += 1
    proc.tell()
    made._look()
    assert 70 not in made._processes


def looks(made: MachineScanner, sink: Sink, clock: Clock, pid: int, seconds: float) -> int:
    """How often a process with one descriptor is looked at."""
    sink.fds.clear()
    end = clock.now + seconds
    while clock.now < end:
        clock.now += 0.1
        made._look()
    return sum(1 for each, _ in sink.fds if each == pid)


def test_quiet_processes_are_looked_at_ever_more_seldom(proc: Proc, clock: Clock) -> None:
    """Each rest is as long as the quiet before it, a minute at most; a change begins it anew."""
    sink = Sink()
    made = scanner(proc, sink)
    proc.add(70, fds=(5,))
    assert looks(made, sink, clock, 70, 1.0) in range(4, 8)
    assert looks(made, sink, clock, 70, 60) in range(5, 9)
    assert looks(made, sink, clock, 70, 600) in range(9, 13)
    (proc.root / "proc/70/fd/5").unlink()
    proc.open(70, 6)
    looks(made, sink, clock, 70, 61)
    assert made._processes[70].changed > clock.now - 62


def test_looking_costs_a_small_share(proc: Proc, clock: Clock) -> None:
    """However many processes are due: here each look takes 1 ms and there are 400."""
    for pid in range(100, 500):
        proc.add(pid, fds=(0,))
    sink = Sink()
    made = scanner(proc, sink)
    sink.fds.clear()
    begin = clock.now
    clock.cost = 0.0002
    spent = 0.0
    while clock.now < begin + 10:
        clock.now += 0.1
        before = clock.now
        made._look()
        spent += clock.now - before
    assert len(set(sink.fds)) == 90, "one in each of 99 passes but the first 9: within a second none is due"
    assert spent < 0.025 * (clock.now - begin)


def test_the_dead_do_no_harm(proc: Proc, clock: Clock) -> None:
    """Processes that end between the list and the look, or during the look."""
    sink = Sink()
    made = scanner(proc, sink)
    proc.add(70, fds=(5,))
    (proc.root / "proc/70/fdinfo/5").unlink()
    proc.add(71)
    made._find_new()
    proc.remove(71)
    proc.last_pid += 1
    proc.tell()
    made.scan_fds()
    assert (70, 5) in sink.fds
    assert 71 not in made._processes


def test_a_ring_is_described_behind_its_descriptor(proc: Proc, clock: Clock) -> None:
    """A reader of the facts knows the descriptor already; other descriptors have no such fact."""
    (proc.root / "proc/1/fd" / "anon_inode:[io_uring]").touch()
    (proc.root / "proc/1/fd/7").symlink_to("anon_inode:[io_uring]")
    (proc.root / "proc/1/fdinfo/7").write_text("pos:\t0\nflags:\t02\nSqMask:\t0x7\nCqMask:\t0xf\nSqThread:\t61\n")
    sink = Sink()
    scanner(proc, sink)
    assert sink.rings == [(1, 7, 8, 16, 61, 0xFFFFFFFF, 0xFFFFFFFF)]
    assert sink.order[sink.order.index((FACT_RING, 7)) - 1] == (FACT_FD, 7)


def test_a_full_disk_ends_the_looking(proc: Proc, clock: Clock) -> None:
    """One notice, and no further facts."""
    told: list[Notice] = []
    sink = Sink(full=True)
    made = MachineScanner(sink, 0.1, told.append, root=proc.root)
    made.scan_tasks(0)
    made.scan_fds()
    (notice,) = told
    assert "no names are looked up any more" in notice.text


def test_an_unexpected_failure_is_told(proc: Proc, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    """The thread that looks ends; without a word nobody would know why names are missing."""
    told: list[Notice] = []
    sink = Sink()
    scanner = MachineScanner(sink, 0.1, told.append, root=proc.root)

    def fail() -> float:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(scanner, "_look", fail)
    monkeypatch.setattr(scanner, "_sleep", lambda _: False)
    scanner._run()
    assert told == [Notice("no names are looked up any more: OSError: [Errno 24] Too many open files")]


def test_one_whose_parents_have_ended_is_looked_at(proc: Proc) -> None:
    """The list of recorded processes names it, for no living process leads to it."""
    proc.add(60, fds=(3,))
    alive = [60]
    sink = Sink()
    made = FactScanner(sink, [60], 0, pytest.fail, proc.root, recorded=lambda: alive)
    made.scan_fds()
    proc.remove(60)
    proc.add(62, ppid=1, fds=(5,))
    proc.add(63, ppid=1, fds=(6,))
    alive[:] = [62]
    made.stop()
    assert sink.fds == [(60, 3), (62, 5)]


def test_births_are_told_in_ticks_of_a_clock_that_goes_on_while_the_machine_sleeps(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Awake for 5 s and asleep for 20 s: what was born in the tick of a time was not certainly born before it."""
    monkeypatch.setattr("time.clock_gettime_ns", lambda _: 25 * 10**9)
    monkeypatch.setattr("time.monotonic_ns", lambda: 5 * 10**9)
    ticks = os.sysconf("SC_CLK_TCK")

    def was_born(start_ticks: int) -> bool:
        return process._was_born(Mock(start_ticks=start_ticks), 2 * 10**9)

    assert [was_born(22 * ticks + more) for more in (-1, 0, 1)] == [True, False, False]


def test_ended_processes_are_forgotten(proc: Proc, clock: Clock) -> None:
    """Else a recording of weeks would keep the command line of each process that there ever was."""
    for pid in (7, 8):
        proc.add(pid, fds=(3,))
        (proc.root / f"proc/{pid}/cmdline").write_bytes(b"app\0")
    found = scanner(proc, Sink())
    followed = FactScanner(Sink(), (7, 8), 0.1, pytest.fail, proc.root)
    followed.scan_fds()
    kept = [each._writer._commands for each in (found, followed)]
    assert [set(each) for each in kept] == [{7, 8}] * 2
    proc.remove(7)
    proc.last_pid += 1
    proc.tell()
    found._find_new()
    followed.scan_fds()
    assert [set(each) for each in kept] == [{8}] * 2


def test_many_descriptors_are_written_in_pieces(proc: Proc, monkeypatch: pytest.MonkeyPatch) -> None:
    """At the end of a recording, one process with half a million of them does not keep all others waiting."""
    monkeypatch.setattr(process, "WRITTEN_AT_ONCE", 3)
    proc.add(7, fds=tuple(range(8)))
    sink = Sink()
    writer = process.FactWriter(sink, pytest.fail, proc.root)
    appended = Mock(wraps=sink.append)
    monkeypatch.setattr(sink, "append", appended)
    seen = writer.write_fds(7)
    assert sorted(fd for _, fd in sink.fds) == list(range(8))
    assert appended.call_count == 3
    assert writer.write_fds(7) == seen > 0
    writer.until = 0.0
    sink.fds.clear()
    assert 0 < writer.write_fds(7) != seen
    assert len(sink.fds) == 3
    assert writer.write_fds(99) == 0


def test_lists_of_one_users_descriptors_take_no_time_from_another(proc: Proc, monkeypatch: pytest.MonkeyPatch) -> None:
    """The processes of one owner share the time for fdinfo."""
    for pid in (7, 8, 9):
        proc.add(pid, fds=(3,))
    owners = {"7": 1000, "8": 1000, "9": 2000}
    stat = os.stat
    found = lambda path: Mock(st_uid=owners.get(str(path).rpartition("/")[2], 0))  # noqa: E731
    monkeypatch.setattr(
        process.os, "stat", lambda path, **more: found(path) if "/proc/" in str(path) else stat(path, **more)
    )
    writer = process.FactWriter(Sink(), pytest.fail, proc.root)
    assert writer.lists_of(7) is writer.lists_of(8) is not writer.lists_of(9)


@pytest.mark.parametrize("late", [False, True])
def test_the_first_look_ends_in_time(proc: Proc, clock: Clock, late: bool) -> None:
    """A notice says that names are missing. The look at the end has a second."""
    proc.add(7, fds=tuple(range(4)))
    told: list[Notice] = []
    sink = Sink()
    found = MachineScanner(sink, 0, told.append, skip=frozenset({50}), root=proc.root)
    clock.cost = 20.0 if late else 0.0
    found.look_first(0)
    assert [each.text for each in told] == (
        ["some open files have no names: they could not all be looked up before the recording"] if late else []
    )
    assert late == (len(sink.fds) < 5)
    clock.cost = 0.0
    sink.fds.clear()
    found.stop()
    assert len(sink.fds) == 5
    sink.fds.clear()
    clock.cost = 0.6
    found.stop()
    assert 0 < len(sink.fds) < 5


class Broken(process.Scanner):
    """A scanner all of whose looks fail."""

    error: Exception = ValueError("odd")

    def scan_tasks(self, flags: int) -> None:
        """The first look."""
        assert flags == 0
        raise self.error

    def scan_fds(self) -> None:
        """The last look."""
        raise self.error

    def _look(self) -> float:
        raise AssertionError


def test_a_failed_look_does_not_end_the_recording(tmp_path: Path) -> None:
    """The notice says why names are missing. But if lo2io may open no more files, a recording does not begin."""
    told: list[Notice] = []
    broken = Broken(process.FactWriter(Sink(), told.append, tmp_path), 0)
    broken.look_first(0)
    assert [each.text for each in told] == ["no names are looked up any more: ValueError: odd"]
    broken.stop()
    assert len(told) == 1
    broken = Broken(process.FactWriter(Sink(), told.append, tmp_path), 0)
    broken.error = OSError(24, "Too many open files")
    with pytest.raises(OSError, match="Too many"):
        broken.look_first(0)
    broken.stop()
    assert len(told) == 2


@pytest.mark.requires("root")
def test_a_build_id_is_kept_for_the_file_of_the_line_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process may map another file between the look at its maps and that at the file."""
    writer = process.FactWriter(Sink(), pytest.fail)
    state = next(each for each in process.procfs.iter_code(os.getpid()) if each.path.startswith(b"/"))
    found = writer._build_id(os.getpid(), state)
    assert writer._build_ids == {state.file: found}
    assert found
    victim = state._replace(file=(state.file[0], state.file[1] + 1))
    assert writer._build_id(os.getpid(), victim) == found
    assert victim.file not in writer._build_ids
    monkeypatch.setattr(process, "read_build_id", pytest.fail)
    assert writer._build_id(os.getpid(), state) == found
    writer.forget_commands()
    assert not writer._build_ids
