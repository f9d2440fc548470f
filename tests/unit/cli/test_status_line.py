"""The status line of a recording: its measurements, and how they are shown."""

from __future__ import annotations

import io
import os
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from lo2io.capture import meter
from lo2io.cli.status_line import StatusLine, render
from lo2io.kernel import abi
from lo2io.model.status import Status

if TYPE_CHECKING:
    from collections.abc import Iterator

STATUS = Status(
    elapsed_s=75.4,
    nr_events=9,
    events_per_s=12_345.6,
    bytes_per_s=3 << 20,
    nr_lost=1234,
    ring_fill=0.256,
    spool_bytes=5 << 30,
)


@dataclass
class FakeRing:
    """A ring of 1000 bytes."""

    head: int = 0
    fill_bytes: int = 0
    size: int = 1000


@dataclass
class Machine:
    """CPUs with one event each, whose fd is their number; ``asked`` are those whose count was read."""

    rings: list[FakeRing]
    counts: dict[int, tuple[int, int]]
    asked: list[int] = field(default_factory=list)
    now: float = 100.0
    kernel: Any = None

    def meter(self) -> meter.Meter:
        """The object that measures."""
        opened: Any = SimpleNamespace(
            rings=self.rings,
            has_lost=True,
            tracepoints=[[[cpu] for cpu in range(len(self.rings))]],
            kernel=self.kernel,
        )
        return meter.Meter(opened, lambda: 77, lambda: self.now)


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Iterator[Machine]:
    """Six CPUs."""
    found = Machine([FakeRing() for _ in range(6)], dict.fromkeys(range(6), (0, 0)))

    def read_count(fd: int, *, has_lost: bool) -> tuple[int, int]:
        found.asked.append(fd)
        return found.counts[fd]

    monkeypatch.setattr(abi, "read_count", read_count)
    return found


def test_few_cpus_are_counted_at_a_time(machine: Machine) -> None:
    """Each has its turn; buffers show the activity of the others."""
    gauge = machine.meter()
    for cpu, ring in enumerate(machine.rings):
        ring.head, machine.counts[cpu] = 5000, (100, cpu)
    machine.now += 2
    status = gauge.read()
    assert machine.asked == [0, 1, 2, 3]
    # Four CPUs are known to have had 100 events of 50 bytes; the others' rings have grown as much.
    assert (status.nr_events, status.events_per_s, status.nr_lost) == (600, 300, 0 + 1 + 2 + 3)
    assert (status.bytes_per_s, status.elapsed_s, status.spool_bytes) == (15_000, 2, 77)
    machine.now += 1
    status = gauge.read()
    assert machine.asked[4:] == [4, 5, 0, 1]
    assert (status.nr_events, status.events_per_s, status.bytes_per_s, status.nr_lost) == (600, 0, 0, 15)


def test_the_fullest_ring_counts(machine: Machine) -> None:
    """The one that will overflow first."""
    machine.rings[2].fill_bytes = 700
    assert machine.meter().read().ring_fill == 0.7


def test_the_line() -> None:
    """Every number with its unit."""
    text = "lo2io: 1:15 min · 12.3 k events/s · 3 MiB/s · 1,234 lost · buffers 26% full · spool 5 GiB"
    assert render(STATUS) == text


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.4, "0 s"), (59.9, "59 s"), (60, "1:00 min"), (3599, "59:59 min"), (7384, "2:03 h")]
)
def test_the_time(seconds: float, text: str) -> None:
    """With as many digits as it needs."""
    assert render(Status(seconds, 0, 0, 0, 0, 0, 0)).startswith(f"lo2io: {text} · 0 events/s · 0 B/s")


@pytest.mark.parametrize(("rate", "text"), [(999.4, "999"), (999.6, "1 k"), (999_600, "1 M"), (1.94e6, "1.94 M")])
def test_the_rate(rate: float, text: str) -> None:
    """Three digits."""
    assert f" · {text} events/s" in render(Status(0, 0, rate, 0, 0, 0, 0))


def test_the_line_goes_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """It redraws itself, is cut to the terminal, and is erased once before other output."""
    monkeypatch.setattr("shutil.get_terminal_size", lambda: os.terminal_size((20, 24)))
    stream = io.StringIO()
    line = StatusLine(stream)
    line.clear()
    assert stream.getvalue() == ""
    line.show(STATUS)
    assert stream.getvalue() == f"\r{render(STATUS)[:19]}\x1b[K"
    line.show(None)
    line.clear()
    assert stream.getvalue().endswith("\x1b[K\r\x1b[K")
