"""What is opened, attached and selected, of whatever the kernel would say."""

from __future__ import annotations

import mmap
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock, call

import pytest

from lo2io.capture import recording
from lo2io.capture.events import native, programs
from lo2io.capture.events.opened import INHERIT, SYSTEM
from lo2io.capture.procscan.iterated import IteratedScanner
from lo2io.capture.procscan.machine import MachineScanner
from lo2io.capture.session import Session
from lo2io.errors import AccessError, CaptureError
from lo2io.kernel import abi
from lo2io.spool.writer import DiskFullError


@pytest.mark.parametrize(("scope", "tasks"), [(SYSTEM, (-1,)), (INHERIT, (7, 8))])
def test_events_are_opened_for_all_tasks_or_for_the_chosen_ones(
    scope: str, tasks: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """On each CPU: a leader with a buffer, and each event. Who inherits sees no events of the kernel."""
    opened = Mock()
    monkeypatch.setattr(native, "_open_tasks", opened)
    monkeypatch.setattr(native, "_join", Mock())
    monkeypatch.setattr(native, "probe_lost", lambda cpu: cpu == 0)
    monkeypatch.setattr(native, "_probe_lost_of", lambda _: True)
    monkeypatch.setattr(native, "open_rings", lambda *given: [Mock(size=given[1])])
    opened.side_effect = lambda *given: given[4].append(9)
    request: Any = SimpleNamespace(
        scope=scope,
        cpus=(0, 1),
        tids=(7, 8),
        events=(("a:b", 5),),
        ring_bytes=4096,
        wants_mappings=False,
        code=False,
        cgroup=None,
    )
    found = native.NativeSource().open(request)
    assert (found.names, found.leaders, found.tracepoints) == (("a:b",), [[9], [9]], [[[9], [9]]])
    assert found.has_lost
    assert [each.args[1:4] for each in opened.mock_calls] == [
        (tasks, 0, "a software event"), (tasks, 1, "a software event"), (tasks, 0, "a:b"), (tasks, 1, "a:b"),
    ]  # fmt: skip
    own = abi.INHERIT | abi.EXCLUDE_KERNEL | abi.EXCLUDE_HV
    assert {each.args[0].flags & own for each in opened.mock_calls} == {own if scope == INHERIT else 0}


@pytest.mark.parametrize("refused", [False, True])
def test_programs_see_calls_once_all_else_is_attached(refused: bool) -> None:
    """If they cannot be attached, they are unloaded."""
    loaded = Mock(bell_fd=-1, samples=(), layers=("cache",))
    loaded.attach_raw.side_effect = OSError("no") if refused else None
    request: Any = SimpleNamespace(cpus=(), ring_bytes=4096, calls=True, hook="raw")
    if refused:
        with pytest.raises(OSError, match="no"):
            programs.Kernel(loaded, request, ())
        loaded.close.assert_called_once_with()
    else:
        assert programs.Kernel(loaded, request, ()).layers == ("cache",)
        loaded.attach_raw.assert_called_once_with()


@pytest.mark.parametrize(("system", "chosen"), [(False, [call(5), call(6)]), (True, [])])
def test_programs_follow_the_roots_unless_everybody_is_recorded(
    system: bool, chosen: list[object], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before the first look at /proc, and before events are taken."""
    order = Mock()
    monkeypatch.setattr(recording, "FactScanner", lambda *_, **__: order.scanner)
    monkeypatch.setattr("lo2io.capture.procscan.machine.MachineScanner", lambda *_, **__: order.scanner)
    session: Any = order.session
    session.opened.kernel = order.kernel
    order.kernel.layers = ()
    options = SimpleNamespace(system=system, is_flight=False, scan_period_s=1.0, command=("true",))
    plan: Any = SimpleNamespace(options=options, roots=(5, 6), note=print, cgroup=None)
    recording._start(session, Mock(), plan)
    assert order.kernel.select.mock_calls == chosen
    names = [name for name, *_ in order.mock_calls]
    expected = ["session.begin", *["kernel.select"] * len(chosen), "scanner.look_first"]
    assert names == [*expected, "session.enable"]


@pytest.mark.parametrize(
    ("is_flight", "has_programs", "refused", "iterates"),
    [(True, True, False, True), (True, True, True, False), (True, False, False, False), (False, True, False, False)],
)
def test_flight_recorders_look_by_iterators(
    is_flight: bool, has_programs: bool, refused: bool, iterates: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If programs load at all, and the kernel takes the iterators; else by /proc, as all other recordings."""
    error = AccessError("load", "no", "be root")
    monkeypatch.setattr("lo2io.bpf.looks.Looks", Mock(side_effect=error if refused else None))
    session: Any = Mock()
    session.opened.kernel = SimpleNamespace(layers=()) if has_programs else None
    options = SimpleNamespace(system=True, is_flight=is_flight, scan_period_s=1.0)
    plan: Any = SimpleNamespace(options=options, roots=(), note=print, cgroup=None)
    found = recording._make_scanner(session, Mock(), plan)
    assert isinstance(found, IteratedScanner if iterates else MachineScanner)


@pytest.mark.parametrize(
    "error", [DiskFullError(Path("S"), "full"), OSError("no"), CaptureError("x", "y", "z"), ValueError("odd")]
)
def test_a_failed_write_leaves_no_view_of_a_buffer(error: Exception) -> None:
    """A buffer with a view left cannot be unmapped. The recording ends early, and why is kept."""
    buffer = mmap.mmap(-1, 4096)

    def write() -> None:
        view = memoryview(buffer)[:5]
        assert len(view) == 5
        raise error

    session: Any = Session.__new__(Session)
    session._failure, session.opened, session._tell = None, Mock(), Mock()
    with session._failing():
        write()
    buffer.close()
    assert session._ended_ns > 0
    session._tell.assert_called_once()
    assert (session._failure is None) == isinstance(error, DiskFullError)
