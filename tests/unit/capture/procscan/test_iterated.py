"""The facts about threads that an iterator tells of, in a /proc that a test builds."""

from __future__ import annotations

import os
import struct
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

from lo2io.bpf import looks as bpf_looks
from lo2io.capture.procscan import iterated
from lo2io.capture.procscan.iterated import IteratedScanner
from lo2io.kernel import procfs
from lo2io.spool import facts
from lo2io.spool.facts import FACT_COMMAND, FACT_FD, FACT_RING, FACT_TASK, TASK_COMPAT, TASK_FROM_EXEC, TASK_SELECT

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


@dataclass
class Sink:
    """Keeps the records, taken apart: kind, begin, end, all after the times."""

    records: list[tuple[int, int, int, bytes]] = field(default_factory=list)

    def append(self, views: Sequence[memoryview | bytes]) -> int:
        """Take them apart."""
        content, at = b"".join(views), 0
        while at < len(content):
            kind, _, size, end, begin = struct.unpack_from("<IHHQQ", content, at)
            self.records.append((kind, begin, end, content[at + 24 : at + size]))
            at += size
        assert at == len(content)
        return len(content)

    def of(self, kind: int) -> list[tuple[int, int, bytes]]:
        """The records of a kind since the last call of this function for it."""
        found = [each[1:] for each in self.records if each[0] == kind]
        self.records = [each for each in self.records if each[0] != kind]
        return found

    def tasks(self) -> list[tuple[int, int, int, int, bytes]]:
        """Process, thread, parent, flags and name of each TASK fact."""
        return [(*struct.unpack_from("<IIII", body), body[16:32].rstrip(b"\0")) for _, _, body in self.of(FACT_TASK)]

    def commands(self) -> list[tuple[int, bytes]]:
        """Process and text of each COMMAND fact."""
        return [
            (struct.unpack_from("<I", body)[0], body[16 : 16 + struct.unpack_from("<I", body, 8)[0]])
            for _, _, body in self.of(FACT_COMMAND)
        ]


@dataclass
class Machine:
    """Iterators and a /proc."""

    root: Path
    threads: dict[int, bytes] = field(default_factory=dict)
    descriptors: list[bytes] = field(default_factory=list)
    closed: bool = False

    def add(self, pid: int, *, tid: int = 0, born_ns: int = 0, run: int = 1, is_kernel: int = 0, **of: Any) -> None:
        """A thread, and the command line and cgroup of its process."""
        record = bpf_looks._TASK.pack(born_ns, run, 7, of.get("cgroup", 1), pid, tid or pid, 1, is_kernel, b"p%d" % pid)
        self.threads[tid or pid] = record
        folder = self.root / f"proc/{pid}"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "cmdline").write_bytes(of.get("command", b"" if is_kernel else b"run%d\0" % run))
        (folder / "cgroup").write_bytes(b"0::/c%d\n" % of.get("cgroup", 1))

    def tasks(self) -> list[bytes]:
        """As the iterator tells them."""
        return list(self.threads.values())

    def files(self) -> list[bytes]:
        """As the iterator tells them."""
        return self.descriptors

    def close(self) -> None:
        """Note it."""
        self.closed = True


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    """Init and a kernel thread."""
    found = Machine(tmp_path)
    found.add(1)
    found.add(2, is_kernel=1)
    return found


def scanner(machine: Machine, sink: Sink, **options: Any) -> IteratedScanner:
    """A scanner that has listed the threads once."""
    made = IteratedScanner(sink, 60, pytest.fail, machine, root=machine.root, **options)  # type: ignore[arg-type]
    made.scan_tasks(TASK_SELECT | TASK_FROM_EXEC)
    return made


def test_each_thread_is_told_at_each_look(machine: Machine) -> None:
    """With cgroup and command line of its process; the command is marked, at the first look alone."""
    machine.add(7)
    machine.add(7, tid=8)
    sink = Sink()
    made = scanner(machine, sink, command=7)
    marked = TASK_SELECT | TASK_FROM_EXEC
    first = sink.records[0][3]
    assert first[32:] == struct.pack("<II", 0, 3) + b"/c1" + bytes(5)
    assert sink.tasks() == [
        (1, 1, 1, 0, b"p1"),
        (2, 2, 1, 0, b"p2"),
        (7, 7, 1, marked, b"p7"),
        (7, 8, 1, marked, b"p7"),
    ]
    assert sink.commands() == [(1, b"run1\0"), (7, b"run1\0")]
    made.scan_tasks(0)
    assert [row[3] for row in sink.tasks()] == [0, 0, 0, 0]
    assert sink.commands() == [(1, b"run1\0"), (7, b"run1\0")]


def test_programs_of_32_bits_are_marked(machine: Machine) -> None:
    """By their first thread, whose process has the vector."""
    machine.add(7)
    machine.add(7, tid=8)
    (machine.root / "proc/7/auxv").write_bytes(struct.pack("<4I", 32, 0xF7FC_8000, 0, 0))
    sink = Sink()
    scanner(machine, sink)
    assert [row[3] for row in sink.tasks()] == [0, 0, TASK_COMPAT, 0]


def test_proc_is_asked_again_only_after_a_change(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """An exec, another cgroup and a new process are changes; what /proc did not tell is asked again, too."""
    monkeypatch.setattr(iterated, "_ASKED_AGAIN", 0)
    asked = []
    real = procfs.read_command
    monkeypatch.setattr(procfs, "read_command", lambda pid, root: asked.append(pid) or real(pid, root))
    machine.add(5)
    machine.add(6, command=b"")
    sink = Sink()
    made = scanner(machine, sink)
    assert asked == [1, 5, 6]
    asked.clear()
    machine.add(5, run=2)
    machine.add(1, cgroup=2)
    made.scan_tasks(0)
    assert asked == [1, 5, 6]
    asked.clear()
    made.scan_tasks(0)
    assert asked == [6]
    assert sink.commands()[-2:] == [(1, b"run1\0"), (5, b"run2\0")]
    del machine.threads[5]
    made.scan_tasks(0)
    assert [parse.pid for parse in map(bpf_looks.parse_task, made._known)] == [2, 1]


def test_a_title_is_read_again_after_some_looks(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """No record tells of a new title, so some processes are asked again at each look, and all at the end."""
    monkeypatch.setattr(iterated, "_ASKED_AGAIN", 1)
    machine.add(5)
    sink = Sink()
    made = scanner(machine, sink)
    for pid in (1, 5):
        (machine.root / f"proc/{pid}/cmdline").write_bytes(b"title%d\0" % pid)
    told = []
    for _ in range(3):
        sink.records.clear()
        made.scan_tasks(0)
        told.append([text for _, text in sink.commands()])
    assert told == [[b"title1\0", b"run1\0"], [b"title1\0", b"run1\0"], [b"title1\0", b"title5\0"]]
    (machine.root / "proc/5/cmdline").write_bytes(b"last\0")
    sink.records.clear()
    made.stop()
    assert sink.commands() == [(1, b"title1\0"), (5, b"last\0")]
    assert machine.closed


def test_older_threads_are_stated_to_have_lived_at_the_border(machine: Machine) -> None:
    """Younger ones, and command lines, have the time of the look."""
    boot_ns = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
    border = time.monotonic_ns() - 10**9
    machine.add(1, born_ns=boot_ns - 2 * 10**9)
    machine.add(5, born_ns=boot_ns - 5 * 10**8)
    sink = Sink()
    made = scanner(machine, sink)
    sink.records.clear()
    before = time.monotonic_ns()
    made._writer.lived_at_ns = border
    made.scan_tasks(0)
    of = {struct.unpack_from("<I", body)[0]: (begin, end) for begin, end, body in sink.of(FACT_TASK)}
    assert of[1] == of[2] == (border, border)
    assert before <= of[5][0] <= of[5][1] <= time.monotonic_ns()
    assert all(before <= begin <= end for begin, end, _ in sink.of(FACT_COMMAND))


def test_rings_are_described_by_proc(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """After the iterator's facts, and for no file whose name only begins or ends like a ring's."""
    rings = (5, b"anon_inode:[io_uring]"), (6, b"/x/anon_inode:[io_uring]"), (7, b"anon_inode:[io_uring]")
    rings += ((8, b"anon_inode:[io_uring] (deleted)"),)
    for pid, path in rings:
        fact = facts.pack_fd(begin_ns=1, end_ns=2, pid=pid, fd=3, path=path, device=0, inode=0, mode=0)
        machine.descriptors.append(fact)
    ring = procfs.RingState(8, 16, None, 1, 2)
    state = procfs.FdState(3, procfs.RING_LINK, 0, 0, 0, 0, 0, 0, 3, 4, ring)
    monkeypatch.setattr(procfs, "read_fd", lambda pid, fd, _, **__: state if (pid, fd) == (5, 3) else None)
    machine.descriptors[:] = [b"".join(machine.descriptors)]
    assert facts.read_descriptors(machine.descriptors[0], procfs.RING_LINK) == [(5, 3), (7, 3)]
    sink = Sink()
    scanner(machine, sink).scan_fds()
    assert [struct.unpack_from("<Ii", body, 24) for _, _, body in sink.of(FACT_FD)] == [
        (5, 3),
        (6, 3),
        (7, 3),
        (8, 3),
        (5, 3),
    ]
    assert [struct.unpack_from("<IiII", body) for _, _, body in sink.of(FACT_RING)] == [(5, 3, 8, 16)]


def test_one_descriptor_is_read_like_all(tmp_path: Path) -> None:
    """A closed one is not there."""
    with (tmp_path / "x").open("wb") as file:
        number = file.fileno()
        one = procfs.read_fd(os.getpid(), number)
        (found,) = (each for each in procfs.iter_fds(os.getpid()) if each.fd == number)
        assert one is not None
        assert (one.path, one.inode, one.flags) == (found.path, found.inode, found.flags)
    assert procfs.read_fd(os.getpid(), number) is None
