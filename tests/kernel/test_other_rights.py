"""Programs with rights of their own, and all that they start, are recorded like others."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections import Counter
from typing import TYPE_CHECKING

import pytest
from workloads.build import build
from workloads.record import Recorded, record
from workloads.served import lo2io
from workloads.sidebyside import gate, go_on, read_all, recorders

from lo2io.trace.reader import open_trace

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager
    from pathlib import Path

# The kernel counts locked memory by user, so recorders of one user would take it from each other.
pytestmark = [
    pytest.mark.alone,
    pytest.mark.requires("root", "tracefs", "events", "setcap", "setpriv", "su", "sudo"),
]

OWN, CHILD = 13, 37
"""Writes of each program, and of the dd that it starts."""
AS_NOBODY = "setpriv --reuid nobody --regid nogroup --clear-groups env"
"""``env``, for setpriv itself keeps root's capabilities until its exec; such a program would then gain none."""
SCRIPT = f"""
./set-uid ./dd-set-uid
./set-gid ./dd-set-gid
{AS_NOBODY} ./set-root ./dd-set-root
{AS_NOBODY} ./with-caps ./dd-with-caps
{AS_NOBODY} ./unreadable ./dd-unreadable
sudo -u nobody sh -c './plain-sudo ./dd-sudo'
su -s /bin/sh nobody -c './plain-su ./dd-su'
"""
GAINED = ("set-uid", "set-gid", "set-root", "with-caps", "unreadable")
"""Programs whose exec ends perf's events of the task …"""
PLAIN = ("plain-sudo", "plain-su")
"""… and some that run under other users."""
CHILDREN = {name: f"dd-{name.removeprefix('plain-')}" for name in (*GAINED, *PLAIN)}
EVENTS = ("-e", "syscalls")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The programs, each under its own name; removed afterwards."""
    made = tmp_path_factory.mktemp("rights")
    for each in (made, *list(made.parents)[:2]):
        each.chmod(0o755)
    if os.statvfs(made).f_flag & os.ST_NOSUID:
        pytest.skip(f"{made} is mounted nosuid")
    program = build("rights")
    for name, dd in CHILDREN.items():
        shutil.copy(program, made / name)
        (made / name).chmod(0o755)
        (made / dd).symlink_to("/bin/dd")
    shutil.chown(made / "set-uid", "nobody")
    shutil.chown(made / "set-gid", group="nogroup")
    for name, mode in (("set-uid", 0o4755), ("set-gid", 0o2755), ("set-root", 0o4755), ("unreadable", 0o711)):
        (made / name).chmod(mode)
    subprocess.run(["setcap", "cap_net_raw+ep", made / "with-caps"], check=True)
    told = subprocess.run(["sh", "-e", "-c", SCRIPT], cwd=made, capture_output=True, text=True, check=True).stdout
    assert [each != "1" for each in told.split()] == [True] * len(GAINED) + [False] * len(PLAIN)
    yield made
    for name in CHILDREN:
        (made / name).unlink()


def writes(recorded: Recorded) -> Counter[str]:
    """For each program, how often it wrote to its output."""
    comms = {row["task"]: row["comm"] for row in recorded.trace.threads.to_pylist()}
    rows = (row for row in recorded.calls("write") if row["bytes_result"] in {1, 512})
    found = Counter(comms[row["task"]] for row in rows)
    return Counter({name: found[name] for name in (*CHILDREN, *CHILDREN.values()) if found[name]})


ALL = Counter(dict.fromkeys(CHILDREN, OWN) | dict.fromkeys(CHILDREN.values(), CHILD))


def assert_families(recorded: Recorded) -> None:
    """Each dd is a child of the program that started it."""
    rows = recorded.trace.threads.to_pylist()
    by_comm = {row["comm"]: row for row in rows}
    for name, dd in CHILDREN.items():
        assert by_comm[dd]["ppid"] == by_comm[name]["pid"]
        assert by_comm[dd]["parent_process"] == by_comm[name]["process"]
        assert by_comm[dd]["cgroup"] == by_comm["sh"]["cgroup"]
        assert None not in {by_comm[name]["start_time_ns"], by_comm[name]["exit_time_ns"]}


SIDES = {
    "bpf": (),
    "perf": ("--backend", "perf"),
    "inherit": ("--scope", "inherit"),
}


@pytest.fixture(scope="module")
def sides(
    folder: Path, tmp_path_factory: pytest.TempPathFactory, awake: Callable[[], AbstractContextManager[None]]
) -> dict[str, Recorded]:
    """One run of the script, recorded by every back end as a running process."""
    traces = tmp_path_factory.mktemp("traces")
    with (
        awake(),
        gate(["sh", "-e", "-c", SCRIPT], cwd=folder) as pid,
        recorders(traces, SIDES, "record", "-p", str(pid), *EVENTS) as running,
    ):
        go_on(pid)
        return read_all(traces, running)


@pytest.mark.parametrize("side", ["bpf", "perf"])
def test_programs_with_rights_of_their_own(sides: dict[str, Recorded], side: str) -> None:
    """All writes of each program and of its child, which has the right parent; no program is missing."""
    assert writes(sides[side]) == ALL
    assert_families(sides[side])
    assert sides[side].trace.completeness.unfollowed == 0


def test_what_perf_cannot_follow_is_said(sides: dict[str, Recorded]) -> None:
    """Per task, the kernel ends the events: the last line has the number of missing programs, and not `complete`."""
    recorded = sides["inherit"]
    gone = {each for name in GAINED for each in (name, CHILDREN[name])}
    assert writes(recorded) == {name: count for name, count in ALL.items() if name not in gone}
    assert recorded.trace.completeness.unfollowed == len(GAINED)
    assert not recorded.trace.completeness.proven
    last = recorded.stderr.splitlines()[-1]
    assert last.startswith("incomplete: ")
    assert f"out of sight since their exec: {len(GAINED)}" in last
    assert "set-uid" in recorded.stderr


@pytest.mark.usefixtures("busy_cpus")
def test_a_command_with_rights_of_its_own(folder: Path, tmp_path: Path) -> None:
    """The command is such a program itself, started as another user."""
    recorded = record(tmp_path / "T", ["./set-root", "./dd-set-root"], "--user", "nobody", *EVENTS, cwd=folder)
    assert writes(recorded) == {"set-root": OWN, "dd-set-root": CHILD}


@pytest.mark.usefixtures("busy_cpus")
def test_of_the_whole_machine(folder: Path, tmp_path: Path) -> None:
    """All have their names, parents and cgroups."""
    words = ["system-wide", "-o", tmp_path / "T", *EVENTS, "--", "sh", "-e", "-c", SCRIPT]
    done = lo2io(*words, cwd=folder)
    assert done.returncode == 0, done.stderr
    recorded = Recorded(open_trace(tmp_path / "T"), 0, done.stdout, done.stderr)
    assert writes(recorded) == ALL
    assert_families(recorded)
