"""lo2io's threads run apart from recorded ones, as far as they may."""

from __future__ import annotations

import errno
import os
import threading
from types import SimpleNamespace

import pytest

from lo2io.capture import threads

ALLOWED = {0, 2, 5}


@pytest.fixture
def moves(monkeypatch: pytest.MonkeyPatch) -> list[set[int]]:
    """The requests of a thread on CPU 2 that may run on three CPUs."""
    asked: list[set[int]] = []
    libc = SimpleNamespace(sched_getcpu=lambda: 2)
    monkeypatch.setattr(threads, "abi", SimpleNamespace(libc=libc))
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(ALLOWED))
    monkeypatch.setattr(os, "sched_setaffinity", lambda _, cpus: asked.append(set(cpus)))
    return asked


def test_a_thread_leaves_the_cpus_and_may_come_back(moves: list[set[int]]) -> None:
    """It goes to the other CPUs on which it may run, and then may run on all again."""
    threads.leave_cpus({2, 5})
    assert moves == [{0}, ALLOWED]


@pytest.mark.parametrize("cpus", [{0, 5}, set(), {0, 1, 2, 5}])
def test_a_thread_stays_where_it_is_in_nobodys_way_or_has_no_other_place(moves: list[set[int]], cpus: set[int]) -> None:
    """Somewhere else, or nowhere to go."""
    threads.leave_cpus(cpus)
    assert moves == []


def test_cpus_that_go_offline_meanwhile_are_no_error(moves: list[set[int]], monkeypatch: pytest.MonkeyPatch) -> None:
    """The drain thread goes on where it is."""

    def refuse(_: int, cpus: set[int]) -> None:
        moves.append(cpus)
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))

    monkeypatch.setattr(os, "sched_setaffinity", refuse)
    threads.leave_cpus({2})
    assert moves == [{0, 5}]


def test_waiting_for_cpus_goes_on_where_moving_is_forbidden(
    moves: list[set[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A seccomp filter may refuse each move, the last one, too."""

    def refuse(_: int, cpus: set[int]) -> None:
        moves.append(cpus)
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr(os, "sched_setaffinity", refuse)
    threads.run_on_each((0, 2))
    assert moves == [{0}, {2}, ALLOWED]


@pytest.mark.parametrize("allowed", [True, False])
def test_a_thread_goes_first_for_a_while(monkeypatch: pytest.MonkeyPatch, *, allowed: bool) -> None:
    """Afterwards it has the nice value that it had, which any user may ask for."""
    nice = [3]

    def set_nice(_which: int, thread: int, value: int) -> None:
        assert thread == threading.get_native_id()
        if value < nice[-1] and not allowed:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        nice.append(value)

    monkeypatch.setattr(os, "getpriority", lambda *_: nice[-1])
    monkeypatch.setattr(os, "setpriority", set_nice)
    with threads.going_first():
        assert nice[-1] == (-20 if allowed else 3)
    assert nice[-1] == 3
