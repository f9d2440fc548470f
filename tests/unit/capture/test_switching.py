"""In which order events start and end, without a kernel."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from lo2io.capture.events import opened as source
from lo2io.capture.events import programs
from lo2io.capture.events.opened import OpenEvents
from lo2io.capture.events.programs import Kernel
from lo2io.kernel import abi

SUBMIT, ISSUE, COMPLETE = 10, 20, 30


@pytest.mark.parametrize(("on", "order"), [(True, [COMPLETE, ISSUE, SUBMIT]), (False, [SUBMIT, ISSUE, COMPLETE])])
def test_ends_begin_first_and_end_last(monkeypatch: pytest.MonkeyPatch, *, on: bool, order: list[int]) -> None:
    """Events are switched one by one: otherwise, some requests would seem in flight for ever."""
    switched: list[int] = []

    def switch(fds: list[int], *, on: bool) -> None:
        switched.extend(fds)

    monkeypatch.setattr(source, "_switch", switch)
    opened = OpenEvents(
        opener="native",
        clock="monotonic",
        scope="system",
        cpus=(0, 1),
        names=("submit", "issue", "complete"),
        leaders=[],
        tracepoints=[[[fd], [fd + 1]] for fd in (SUBMIT, ISSUE, COMPLETE)],
        rings=[],
        ring_bytes=4096,
        ring_bytes_wanted=4096,
        has_lost=True,
    )
    opened.switch_tracepoints(on=on)
    assert switched == [fd + cpu for fd in order for cpu in (0, 1)]


def test_one_cpu_is_switched_off_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """So are the programs' counters of that CPU. A CPU that came back has two buffers."""
    switched: list[tuple[int, bool]] = []
    monkeypatch.setattr(source, "_switch", lambda fds, *, on: switched.extend((fd, on) for fd in fds))
    told: list[int] = []
    kernel: Any = SimpleNamespace(count_no_more=told.append)
    rings: Any = [None] * 3
    opened = OpenEvents(
        opener="native",
        clock="monotonic",
        scope="system",
        cpus=(0, 5),
        names=("submit", "issue"),
        leaders=[[1], [2], [3]],
        tracepoints=[[[fd], [fd + 1, fd + 2]] for fd in (SUBMIT, ISSUE)],
        rings=rings,
        ring_bytes=4096,
        ring_bytes_wanted=4096,
        has_lost=True,
        added=(5,),
        kernel=kernel,
    )
    opened.switch_off(5)
    assert sorted(switched) == [(fd, False) for fd in (2, 3, SUBMIT + 1, SUBMIT + 2, ISSUE + 1, ISSUE + 2)]
    assert told == [5]


def test_the_counters_of_one_cpu_are_switched_off_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """The newest of each event, and what tells page faults. Older counters died with the CPU."""
    done: list[tuple[int, int]] = []
    monkeypatch.setattr(programs, "ioctl", lambda fd, what: done.append((fd, what)))
    kernel = Kernel.__new__(Kernel)
    kernel._counting = {("issue", 0): [1], ("issue", 5): [2, 3], ("complete", 5): [4]}
    kernel._faults = {0: 6, 5: 7}
    kernel.count_no_more(5)
    assert sorted(done) == [(fd, abi.IOC_DISABLE) for fd in (3, 4, 7)]
