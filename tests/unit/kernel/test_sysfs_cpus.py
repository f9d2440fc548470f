"""Programs and CPUs that come later: each CPU's buffer, and where events are counted."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from lo2io.capture.events import programs
from lo2io.errors import CaptureError

if TYPE_CHECKING:
    from collections.abc import Sequence


class Programs:
    """Loaded ones whose counters say which CPU they are of, and that may get no more rings."""

    layers = ()
    has_events = True
    samples = (
        SimpleNamespace(name="io_uring:io_uring_complete", type=1, counted=False),
        SimpleNamespace(name="block:block_rq_complete", type=2, counted=True),
    )

    def count_by(self, event_fd: int, sample: Any, cpu: int) -> None:
        """Take a perf event that counts."""

    def sample_ring_fd(self, cpu: int) -> int:
        """The buffer for events."""
        return 2000 + cpu

    def read_sample_counts(self) -> dict[str, list[tuple[int, int]]]:
        """As many as the CPU's number, one of them lost."""
        return {sample.name: [(cpu, 1) for cpu in self.cpus] for sample in self.samples}

    def __init__(self, cpus: Sequence[int]) -> None:
        self.cpus = tuple(cpus)
        self.refuses = False

    bell_fd = 5

    def attach_raw(self) -> None:
        """Without programs."""

    def needs_event(self, _call: int) -> bool:
        """False for all calls."""
        return False

    def ring_fd(self, cpu: int) -> int:
        """A number that is no descriptor."""
        return 1000 + cpu

    def add_cpu(self, cpu: int) -> None:
        """With or without a buffer, as memory allows; the CPU's events are counted in both cases."""
        if cpu not in self.cpus:
            self.cpus = (*self.cpus, cpu)
        if self.refuses:
            raise CaptureError("make a buffer", "no memory", "record again")

    def read_counts(self) -> list[list[tuple[int, int, int]]]:
        """For each event, 10 times its CPU's number, a half of them lost."""
        return [[(10 * cpu, 5 * cpu, 0) for cpu in self.cpus] for _ in range(2)]


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch) -> programs.Kernel:
    """Programs of one call on CPUs 0 and 1."""
    monkeypatch.setattr(programs, "KernelRing", lambda fd, size: SimpleNamespace(fd=fd, size=size))
    monkeypatch.setattr(programs, "Bell", lambda fd: SimpleNamespace(fd=fd))
    monkeypatch.setattr(programs.abi, "event_open", lambda *_: 3)
    monkeypatch.setattr(programs, "ioctl", lambda *_: 0)
    monkeypatch.setattr(programs.abi, "sum_counts", lambda fds, **_: (100 * len(fds), 0))
    event = [SimpleNamespace(name=name) for name in ("enter", "exit")]
    request = SimpleNamespace(cpus=(0, 1), ring_bytes=4096, calls=True, hook="raw")
    calls = [SimpleNamespace(enter=event[0], leave=event[1])]
    return programs.Kernel(cast("Any", Programs((0, 1))), cast("Any", request), cast("Any", calls))


def programs_of(kernel: programs.Kernel) -> Programs:
    """The object that plays the kernel."""
    return cast("Programs", kernel._programs)


def test_a_cpu_without_a_ring_takes_no_other_ones_place(kernel: programs.Kernel) -> None:
    """Its events count as lost; the buffer of the next CPU that comes is that CPU's."""
    programs_of(kernel).refuses = True
    with pytest.raises(CaptureError):
        kernel.add_cpu(2)
    programs_of(kernel).refuses = False
    kernel.add_cpu(3)
    places = [kernel.ring_place(index) for index in range(len(kernel.rings))]
    assert places == [(cpu, of_samples) for cpu in (0, 1, 3) for of_samples in (False, True)]
    assert [ring.fd for ring in kernel.rings] == [1000, 2000, 1001, 2001, 1003, 2003]
    (enters, _, completions, of_disks) = kernel.read_counts((0, 1, 2, 3))
    assert completions.counts == (0, 1, 2, 3)
    assert of_disks.counts == (100, 100, 0, 100)
    assert of_disks.lost == (1, 1, 1, 1)
    assert enters.counts == (0, 10, 20, 30)
    assert enters.lost == (0, 5, 10, 15)


def test_a_cpu_that_got_no_ring_may_get_one_when_it_comes_again(kernel: programs.Kernel) -> None:
    """The CPU is counted once."""
    programs_of(kernel).refuses = True
    with pytest.raises(CaptureError):
        kernel.add_cpu(2)
    programs_of(kernel).refuses = False
    kernel.add_cpu(2)
    assert kernel.cpus == (0, 1, 2)
    assert kernel.read_counts((2,))[0].counts == (20,)
    kernel.count_again(2)
    assert kernel.read_counts((2,))[3].counts == (200,)
