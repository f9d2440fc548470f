"""CPUs that go and come, without a kernel: what is opened, what is reported, and in which order."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from lo2io.capture import opening
from lo2io.capture.events.opened import OpenEvents
from lo2io.capture.hotplug import Hotplug, Moves
from lo2io.errors import AccessError
from lo2io.model import Absence
from lo2io.spool.writer import SpoolWriter

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


class Logged(OpenEvents):
    """Notes all calls of it."""

    log: list[str]

    def switch_leaders(self, *, on: bool) -> None:
        """Without a kernel."""
        self.log.append(f"leaders {on}")

    def switch_tracepoints(self, *, on: bool) -> None:
        """Without a kernel."""
        self.log.append(f"tracepoints {on}")

    def switch_off(self, cpu: int) -> None:
        """Without a kernel."""
        self.log.append(f"off {cpu}")

    def unmap(self) -> None:
        """Nothing is mapped."""
        self.log.append("unmap")

    def close(self) -> None:
        """Nothing is open."""
        self.log.append("close")


def events(*cpus: int, first_fd: int) -> Logged:
    """Two tracepoints on each CPU; fds are numbers only."""
    fds = iter(range(first_fd, first_fd + 99))
    return Logged(
        opener="native",
        clock="monotonic",
        scope="system",
        cpus=cpus,
        names=("a", "b"),
        leaders=[[next(fds)] for _ in cpus],
        tracepoints=[[[next(fds)] for _ in cpus] for _ in range(2)],
        rings=[SimpleNamespace(fill_bytes=0, cpu=cpu) for cpu in cpus],  # type: ignore[misc]
        ring_bytes=4096,
        ring_bytes_wanted=4096,
        has_lost=True,
        sampled=tuple(range(len(cpus))),
    )


@dataclass
class Machine:
    """A machine with CPUs 0 and 1 that is being recorded."""

    root: Path
    opened: OpenEvents
    writer: SpoolWriter
    online: set[int] = field(default_factory=lambda: {0, 1})
    left: set[int] = field(default_factory=set)
    came: set[int] = field(default_factory=set)
    log: list[str] = field(default_factory=list)
    wanted: Callable[[int], bool] = lambda _: True
    is_draining: bool = True
    drains: bool = True
    start_ns: int = 7
    absences: tuple[Absence, ...] = ()

    def to_spool_clock(self, monotonic_ns: int) -> int:
        """The clocks are the same."""
        return monotonic_ns

    def read(self) -> Moves:
        """As the kernel's messages report."""
        found = Moves(frozenset(self.left), frozenset(self.came))
        self.left, self.came = set(), set()
        return found

    def close(self) -> None:
        """Nobody listens."""

    def drain_now(self) -> None:
        """In place of the drain thread."""
        if self.drains:
            for ring in self.opened.rings:
                ring.fill_bytes = 0  # type: ignore[misc]

    def watch(self, leaders: list[int], index: int) -> None:
        """As the session calls it."""
        assert self.opened.leaders[index] == leaders
        self.log.append(f"ring {index} of {self.opened.ring_cpus[index]}")

    def reopen(self, cpu: int) -> OpenEvents:
        """Opens events for a CPU."""
        self.log.append(f"open {cpu}")
        made = events(cpu, first_fd=100)
        made.log = self.log
        return made

    def hotplug(self, **options: Any) -> Hotplug:
        """The object under test."""
        session: Any = self
        assert isinstance(self.opened, Logged)
        self.opened.log = self.log
        return Hotplug(
            session,
            self.writer,
            lambda notice: self.log.append(notice.text.partition(":")[0]),
            messages=self,
            root=self.root,
            **{"reopen": self.reopen, "is_wanted": self.wanted, "rescan": lambda _: self.log.append("rescan")}
            | options,
        )

    def look(self, hotplug: Hotplug) -> list[str]:
        """The effects of a look."""
        self.log.clear()
        folder = self.root / "sys/devices/system/cpu"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "online").write_text(",".join(map(str, sorted(self.online))))
        hotplug.look()
        return list(self.log)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    """The machine at the start."""
    return Machine(tmp_path, events(0, 1, first_fd=10), SpoolWriter(tmp_path / "spool", (0, 1)))


ADDED = ["leaders True", "tracepoints True", "rescan"]


def test_nothing_happens(machine: Machine) -> None:
    """The usual case."""
    assert machine.look(machine.hotplug()) == []


def test_one_goes_and_comes_back(machine: Machine) -> None:
    """Its new ring's bytes go to the file of the old one; its counts are the sum of both."""
    hotplug = machine.hotplug()
    machine.online = {0}
    assert machine.look(hotplug) == ["CPU 1 went offline"]
    machine.online = {0, 1}
    before = time.monotonic_ns()
    assert machine.look(hotplug) == ["open 1", "ring 2 of 1", *ADDED, "CPU 1 came online"]
    (absence,) = machine.absences
    assert absence.begin_ns < before < (absence.end_ns or 0) < time.monotonic_ns()
    assert machine.opened.cpus == (0, 1)
    assert [len(fds) for fds in machine.opened.tracepoints[0]] == [1, 2]
    assert machine.writer.rings[2] is machine.writer.rings[1]
    assert (hotplug.new_cpus, machine.look(hotplug)) == ((), [])


def test_one_is_back_before_anybody_looked(machine: Machine) -> None:
    """The kernel's message tells that its events are dead."""
    hotplug = machine.hotplug()
    machine.left = machine.came = {1}
    found = machine.look(hotplug)
    assert [(each.cpu, each.begin_ns) for each in machine.absences] == [(1, machine.start_ns)]
    assert [found[0], found[1], found[-1]] == ["CPU 1 went offline", "open 1", "CPU 1 came online"]


def test_one_that_went_without_a_message(machine: Machine) -> None:
    """The CPU slept with the machine. Its events may be alive, so they are switched off before others replace them.

    Each such message is about one sleep. Events since the last look may be missing.
    """
    hotplug = machine.hotplug()
    for nr in (1, 2):
        machine.came = {1}
        found = machine.look(hotplug)
        assert found[:3] == ["off 1", "CPU 1 went offline", "open 1"]
        assert found[-1] == "CPU 1 came online"
        assert [each.cpu for each in machine.absences] == [1] * nr
        assert machine.look(hotplug) == []


@pytest.mark.parametrize("late", [False, True])
def test_the_message_of_a_return_that_was_seen_is_no_second_one(machine: Machine, late: bool) -> None:
    """The kernel may send it before or after lo2io finds the CPU in the list. A second message is about a sleep."""
    hotplug = machine.hotplug()
    machine.left, machine.online = {1}, {0}
    machine.look(hotplug)
    machine.online, machine.came = {0, 1}, set() if late else {1}
    assert machine.look(hotplug)[-1] == "CPU 1 came online"
    machine.came = {1} if late else set()
    assert machine.look(hotplug) == []
    assert len(machine.absences) == 1
    machine.came = {1}
    assert "off 1" in machine.look(hotplug)


def test_a_message_that_never_came_is_not_awaited_for_ever(machine: Machine) -> None:
    """The next time the CPU goes, a message of its return is awaited anew."""
    hotplug = machine.hotplug()
    machine.left, machine.online = {1}, {0}
    machine.look(hotplug)
    machine.online = {0, 1}
    machine.look(hotplug)
    machine.left, machine.came = {1}, {1}
    found = machine.look(hotplug)
    assert (found[0], found[-1]) == ("CPU 1 went offline", "CPU 1 came online")  # known to be dead, so not switched off
    machine.came = {1}
    assert "off 1" in machine.look(hotplug)


def test_one_that_nobody_knew(machine: Machine) -> None:
    """It gets a file of its own, and is added to the spool's list."""
    hotplug = machine.hotplug()
    machine.online = {0, 1, 5}
    assert machine.look(hotplug)[:2] == ["open 5", "ring 2 of 5"]
    assert machine.opened.cpus == machine.writer.cpus == (0, 1, 5)
    assert [len(fds) for fds in machine.opened.tracepoints[1]] == [1, 1, 1]
    assert machine.opened.sampled == (0, 1, 2)
    assert [cpu.cpu for cpu in hotplug.new_cpus] == [5]
    assert (machine.root / "spool/cpu-0005.ring").exists()
    machine.online = {0, 1}
    machine.look(hotplug)
    machine.online = {0, 1, 5}
    machine.look(hotplug)
    assert machine.opened.ring_cpus == (0, 1, 5, 5)
    assert machine.writer.rings[3] is machine.writer.rings[2]
    assert [cpu.cpu for cpu in hotplug.new_cpus] == [5]


def test_one_that_was_not_chosen(machine: Machine) -> None:
    """Its tasks are followed; nothing is sampled."""
    machine.wanted = lambda cpu: cpu != 5
    machine.online = {0, 1, 5}
    found = machine.look(machine.hotplug())
    assert "leaders True" in found
    assert "tracepoints True" not in found
    assert machine.opened.sampled == (0, 1)
    assert [each.cpu for each in machine.absences] == [5]  # forks there were not told


def test_one_that_programs_cannot_record(machine: Machine) -> None:
    """It is not recorded until it is offline, or until the end."""

    def refused(_: int) -> None:
        raise OSError

    kernel: Any = SimpleNamespace(cpus=[0, 1], add_cpu=refused)
    machine.opened.kernel = kernel
    hotplug = machine.hotplug()
    machine.online = {0, 1, 5}
    machine.look(hotplug)
    assert [(each.cpu, each.end_ns) for each in machine.absences] == [(5, None)]
    machine.online = {0, 1}
    machine.look(hotplug)
    assert [each.end_ns is None for each in machine.absences] == [False]


def refuse(cpu: int) -> OpenEvents:
    """The kernel's answer."""
    raise AccessError("open", "no")


@pytest.mark.parametrize(
    "options", [{"reopen": None}, {"reopen": refuse}, {"takes_new": False}], ids=["tasks", "kernel", "flight recorder"]
)
def test_what_cannot_be_taken_in(machine: Machine, options: dict[str, Any]) -> None:
    """One notice; when it goes and comes again, another one."""
    hotplug = machine.hotplug(**options)
    machine.online = {0, 1, 5}
    assert machine.look(hotplug) == ["CPU 5 came online and is not recorded"]
    assert machine.look(hotplug) == []
    assert machine.absences == (Absence(5, machine.start_ns, None),)
    machine.online = {0, 1}
    assert machine.look(hotplug) == []
    machine.online = {0, 1, 5}
    assert machine.look(hotplug) == ["CPU 5 came online and is not recorded"]
    first, second = machine.absences
    assert first.begin_ns < (first.end_ns or 0) == second.begin_ns
    assert second.end_ns is None


def test_a_flight_recorder_takes_in_what_comes_back(machine: Machine) -> None:
    """Each segment has files for the CPUs that were there at the start."""
    hotplug = machine.hotplug(takes_new=False)
    machine.online = {0}
    machine.look(hotplug)
    machine.online = {0, 1}
    assert machine.look(hotplug)[-1] == "CPU 1 came online"


def test_the_old_ring_is_emptied_first(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its content comes before that of the new one. If that is impossible, the CPU is left out."""
    hotplug = machine.hotplug()
    machine.online = {0}
    machine.look(hotplug)
    machine.opened.rings[1].fill_bytes = 640  # type: ignore[misc]
    machine.drains = False
    monkeypatch.setattr("lo2io.capture.hotplug._EMPTY_S", 0.01)
    machine.online = {0, 1}
    assert machine.look(hotplug) == ["open 1", "unmap", "close", "CPU 1 came online and is not recorded"]
    machine.online = {0}
    machine.look(hotplug)
    machine.drains = True
    machine.online = {0, 1}
    assert machine.look(hotplug)[-1] == "CPU 1 came online"


def test_after_the_end_nothing_is_opened(machine: Machine) -> None:
    """A full disk has ended the recording."""
    machine.is_draining = False
    machine.online = {0, 1, 5}
    hotplug = machine.hotplug()
    assert (machine.look(hotplug), machine.look(hotplug)) == ([], [])
    assert machine.absences == (Absence(5, machine.start_ns, None),)


def test_one_that_came_and_went_between_two_looks(machine: Machine) -> None:
    """The kernel's message tells that it was there. One that was recorded has lost nothing by going."""
    hotplug = machine.hotplug()
    machine.left = {5}
    assert machine.look(hotplug) == []
    (absence,) = machine.absences
    assert (absence.cpu, absence.begin_ns, absence.end_ns is None) == (5, machine.start_ns, False)
    machine.left, machine.online = {1}, {0}
    assert machine.look(hotplug) == ["CPU 1 went offline"]
    assert machine.absences == (absence,)


def test_events_of_tasks_go_on_where_a_cpu_comes_back(machine: Machine) -> None:
    """Only the events of a CPU die with it."""
    hotplug = machine.hotplug(reopen=None)
    machine.left = {1}
    assert machine.look(hotplug) == ["CPU 1 went offline"]
    for _ in range(2):  # the second one is about a sleep
        machine.came = {1}
        assert machine.look(hotplug) == []
    assert machine.absences == ()


def test_a_filter_that_a_program_applies_is_set_on_no_perf_event(monkeypatch: pytest.MonkeyPatch) -> None:
    """The events of a CPU that comes have the filters of the others; programs apply theirs on every CPU."""
    made = events(2, first_fd=100)
    source = SimpleNamespace(open=lambda _: made)
    monkeypatch.setattr(opening, "select_source", lambda *_: (source, None))
    filtered: list[tuple[str, str]] = []
    monkeypatch.setattr(made, "set_filter", lambda name, text: filtered.append((name, text)))
    filters = [("a", "size > 1"), ("sched:sched_switch", "prev_pid > 1")]
    assert opening.open_cpu(events(0, 1, first_fd=10), (), 2, filters) is made
    assert filtered == [("a", "size > 1")]
