"""The doctor on the running kernel: its statements are true."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from workloads.served import lo2io

from lo2io.kernel import access
from lo2io.kernel.idle import TIMER_EVENT, try_idle
from lo2io.kernel.sysfs import read_online_cpus
from lo2io.kernel.tracefs import find_tracefs

LO2IO = Path(sys.executable).parent / "lo2io"
NOBODY = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--inh-caps=-all", "--bounding-set=-all")


def doctor(*prefix: str) -> tuple[int, dict[str, dict[str, str]]]:
    """Exit code, and the checks by name."""
    done = subprocess.run(
        [*prefix, str(LO2IO), "doctor", "--json"], capture_output=True, text=True, check=False, cwd="/"
    )
    loaded = json.loads(done.stdout)
    assert loaded["exit_code"] == done.returncode
    return done.returncode, {check["name"]: check for check in loaded["checks"]}


@pytest.mark.requires("root", "tracefs", "events")
def test_who_can_record_is_told_so(tmp_path: Path) -> None:
    """Exit code 0, and a recording does work."""
    code, checks = doctor()
    assert (code, checks["perf events"]["status"]) == (0, "ok")
    done = lo2io("record", "-q", "-o", str(tmp_path / "T"), "--", "true")
    assert done.returncode == 0


@pytest.mark.requires("root", "tracefs", "events")
def test_who_can_record_a_cgroup_is_told_so(tmp_path: Path) -> None:
    """The doctor's statement about cgroups agrees with a recording of one."""
    _, checks = doctor()
    command = ["system-wide", "-q", "--cgroup", "/", "--duration", "100ms", "-o", str(tmp_path / "T")]
    done = lo2io(*command)
    assert (done.returncode == 0) == (checks["cgroup events"]["status"] == "ok"), done.stderr


@pytest.mark.requires("root", "tracefs", "events", "setpriv")
def test_who_cannot_record_is_told_why() -> None:
    """Exit code 3 with a remedy for each failure, and a recording is refused with the same code."""
    code, checks = doctor(*NOBODY)
    if checks["tracefs"]["status"] == "ok":
        pytest.skip("everybody may read tracefs on this machine")
    assert code == 3
    assert all(check["remedy"] for check in checks.values() if check["status"] == "fail")
    assert "remount" in checks["tracefs"]["remedy"]
    # pytest's own folders are closed to others.
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o777)
        command = [*NOBODY, str(LO2IO), "record", "-o", f"{folder}/T", "--", "true"]
        done = subprocess.run(command, check=False, cwd="/", capture_output=True, text=True)
    assert done.returncode == 3, done.stderr


@pytest.mark.requires("root", "tracefs", "events", "setpriv")
def test_one_capability_is_enough_for_events() -> None:
    """CAP_PERFMON alone opens every task's events; the doctor asks the kernel, not the user's name."""
    script = f"from lo2io.kernel.access import *; print(try_events({read_online_cpus()[0]}, None).any_task.ok)"
    for capability, answer in (("+perfmon", "True"), ("-perfmon", "False")):
        arguments = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
        arguments += [f"--inh-caps=-all,{capability}", f"--ambient-caps=-all,{capability}"]
        command = [*arguments, sys.executable, "-c", script]
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd="/")
        expected = answer if (access.read_paranoid() or 0) > 0 else "True"
        assert done.stdout.strip() == expected, done.stderr


@pytest.mark.requires("root", "tracefs", "events", "timer:hrtimer_expire_entry")
def test_what_idle_cpus_deliver_is_what_a_recording_gets() -> None:
    """No more is delivered than the kernel counted, and the doctor warns exactly if some are missing."""
    number = access.read_event_id(find_tracefs(), TIMER_EVENT)
    assert number is not None
    tried = try_idle(number, read_online_cpus(), has_lost=True)
    assert 0 <= tried.delivered <= tried.counted
    assert tried.counted > 0
    _, checks = doctor()
    found = checks["idle CPUs"]["found"]
    words = re.match(r"of ([\d,]+) timers that the kernel counted ([\d,]+) were delivered", found)
    counted, delivered = (int(number.replace(",", "")) for number in words.groups()) if words else (0, 0)
    assert checks["idle CPUs"]["status"] == ("warn" if delivered < counted else "ok")
