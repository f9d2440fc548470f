"""Ranks of one node meet, in processes of their own: who leads, who waits, and what becomes of them."""

from __future__ import annotations

import os
import signal
import time
from typing import TYPE_CHECKING, NoReturn

import pytest

from lo2io.capture import meeting
from lo2io.capture.launchers import Place
from lo2io.capture.meeting import Meeting, meet
from lo2io.errors import CaptureError, CommandError
from lo2io.model.job import Job

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

OUTCOME_DIED = 99


def place(rank: int, size: int | None = None) -> Place:
    """A rank of one job."""
    return Place(Job("test", "n1", "1", "2"), rank, size)


def start(act: Callable[[], int]) -> int:
    """A process that ends with the function's result."""
    pid = os.fork()
    if pid == 0:
        _end(act)
    return pid


def _end(act: Callable[[], int]) -> NoReturn:
    code = OUTCOME_DIED
    try:
        code = act()
    except CaptureError:
        code = CaptureError.exit_code
    finally:
        os._exit(code)


def follow(memory: Path, rank: int) -> Callable[[], int]:
    """Meet as a rank that does not lead: the result is what the leader decided."""

    def act() -> int:
        found = meet(memory, place(rank), memory / "T")
        return found if isinstance(found, int) else OUTCOME_DIED

    return act


def lead(memory: Path, rank: int = 0) -> Meeting:
    """Meet as the first one."""
    found = meet(memory, place(rank), memory / "T")
    assert isinstance(found, Meeting)
    return found


def code_of(pid: int) -> int:
    """The exit code of a child, once it has ended."""
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def test_all_ranks_go_on_together(tmp_path: Path) -> None:
    """The leader sees every rank with its pid, and nobody goes on before it says so. Nothing stays in the folder."""
    with lead(tmp_path, 2) as met:
        pids = {rank: start(follow(tmp_path, rank)) for rank in (0, 1, 3)}
        met.gather(4)
        assert [(each.rank, each.pid) for each in met.ranks] == [(2, os.getpid()), *sorted(pids.items())]
        assert not met.missing
        assert all(os.waitpid(pid, os.WNOHANG) == (0, 0) for pid in pids.values())
        met.release()
        assert [code_of(pid) for pid in pids.values()] == [0, 0, 0]
    assert not list(tmp_path.iterdir())


def test_a_failed_leader_ends_all_with_its_code(tmp_path: Path) -> None:
    """If the command cannot be started, no rank starts its own, and each ends with the leader's code."""
    pid = -1

    def fail() -> None:
        nonlocal pid
        with lead(tmp_path) as met:
            pid = start(follow(tmp_path, 1))
            met.gather(2)
            raise CommandError("start 'x'", "not found", exit_code=127)

    with pytest.raises(CommandError):
        fail()
    assert code_of(pid) == 127
    assert not list(tmp_path.iterdir())


def test_a_killed_leader_leaves_nobody_waiting(tmp_path: Path) -> None:
    """The kernel lets the leader's lock go. The next one finds a usable folder, and no rank of the former meeting."""
    ready, told = os.pipe()

    def lead_until_killed() -> int:
        with lead(tmp_path) as met:
            met.gather(2)
            os.write(told, b"!")
            signal.pause()
        return 0

    leader = start(lead_until_killed)
    while not list(tmp_path.glob("*/leader")):
        time.sleep(0.01)
    follower = start(follow(tmp_path, 1))
    os.read(ready, 1)
    os.kill(leader, signal.SIGKILL)
    assert code_of(leader) == -signal.SIGKILL
    assert code_of(follower) == CaptureError.exit_code
    with lead(tmp_path) as met:
        met.gather(1)
        assert len(met.ranks) == 1


def test_a_killed_rank_is_not_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a killed rank left in the folder is no rank that waits."""
    monkeypatch.setattr(meeting, "UNTOLD_PATIENCE_S", 0.3)
    with lead(tmp_path) as met:
        pid = start(follow(tmp_path, 1))
        while not list(tmp_path.glob("*/1-*")):
            time.sleep(0.01)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        met.gather(None)
        assert met.others == ()


def test_missing_ranks_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A rank that does not run under lo2io must not stop the others for ever."""
    monkeypatch.setattr(meeting, "PATIENCE_S", 0.3)
    with lead(tmp_path) as met:
        pid = start(follow(tmp_path, 1))
        met.gather(3)
        assert (len(met.ranks), met.missing) == (2, 1)
        met.release()
        assert code_of(pid) == 0


def test_a_rank_that_came_too_late_meets_anew(tmp_path: Path) -> None:
    """It waited at the old meeting, but the leader had counted already: it leads a meeting of its own."""

    def come_late() -> int:
        found = meet(tmp_path, place(1), tmp_path / "T")
        return found if isinstance(found, int) else 7

    with lead(tmp_path) as met:
        met.gather(1)
        pid = start(come_late)
        while not list(tmp_path.glob("*/1-*")):
            time.sleep(0.01)
        met.release()
        assert code_of(pid) == 7


def test_other_jobs_and_outputs_meet_elsewhere(tmp_path: Path) -> None:
    """Each step, node and output has a meeting of its own."""
    jobs = [
        Job("test", "n1", "1", "2"),
        Job("test", "n2", "1", "2"),
        Job("test", "n1", "1", "3"),
        Job("x", "n1", "1", "2"),
    ]
    meetings = [meet(tmp_path, Place(job, 0, None), tmp_path / "T") for job in jobs]
    meetings.append(meet(tmp_path, Place(jobs[0], 0, None), tmp_path / "U"))
    assert all(isinstance(found, Meeting) for found in meetings)
    assert len(list(tmp_path.iterdir())) == 5
    for found in meetings:
        assert isinstance(found, Meeting)
        with found:
            found.release()


@pytest.mark.parametrize("kind", ["open to others", "link"])
def test_a_foreign_folder_is_refused(tmp_path: Path, kind: str) -> None:
    """Another user could make the folder first, and be told of all pids, or decide for all."""
    with lead(tmp_path) as met:
        (name,) = [entry.name for entry in tmp_path.iterdir()]
        met.release()
    if kind == "link":
        (tmp_path / "elsewhere").mkdir(mode=0o700)
        (tmp_path / name).symlink_to("elsewhere")
    else:
        (tmp_path / name).mkdir(mode=0o700)
        (tmp_path / name).chmod(0o770)
    with pytest.raises(CaptureError):
        lead(tmp_path)
    if kind == "link":
        assert not list((tmp_path / "elsewhere").iterdir())
