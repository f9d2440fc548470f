"""The kernel refuses one system call, as a container's seccomp filter does, or processes beyond a cgroup's limit.

It is a message, and the command's exit code.
"""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from workloads import refused
from workloads.machine import remove_cgroup
from workloads.served import lo2io

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.requires("root", "tracefs", "events")
with_filter = pytest.mark.skipif(platform.machine() != "x86_64", reason="the filter has the numbers of x86-64")
EXIT_CODE = 7
"""The command's."""
COMMAND = ("--", "sh", "-c", "echo ran; exit 7")
CGROUPS = ("/sys/fs/cgroup", "/sys/fs/cgroup/unified", "/sys/fs/cgroup/pids")
"""Where version 2 is mounted, or the hierarchy of version 1 that counts processes."""
CASES = [*((call, "EPERM") for call in refused.NUMBERS), *((call, "EAGAIN") for call in ("fork", "waitid", "eventfd2"))]


def with_refusal(call: str, error: str, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Run lo2io without this call."""
    line = [sys.executable, "-S", refused.__file__, call, error, sys.executable, "-m", "lo2io", *map(str, arguments)]
    return subprocess.run(line, capture_output=True, text=True, check=False, timeout=60)


@with_filter
@pytest.mark.parametrize(("call", "error"), CASES)
def test_a_refused_call_is_a_message(tmp_path: Path, call: str, error: str) -> None:
    """Without a traceback. If the command has begun, it runs to its end, and its exit code is lo2io's."""
    trace = tmp_path / "T"
    ended = with_refusal(call, error, "record", "-q", "-o", trace, *COMMAND)
    assert "Traceback" not in ended.stderr
    assert ended.stderr.strip()
    assert (ended.returncode == EXIT_CODE) == (ended.stdout == "ran\n"), ended.stderr
    if ended.returncode != EXIT_CODE:
        assert ended.returncode in {1, 2, 3, 6}
        assert not trace.exists()
    elif not (trace / "traces.otf2").exists():
        assert f"`lo2io convert {trace}/spool -o {trace}`" in ended.stderr
        assert lo2io("convert", trace / "spool", "-o", trace).returncode == 0


@with_filter
@pytest.mark.parametrize("call", ["eventfd2", "ioctl", "sched_setaffinity", "rt_sigtimedwait"])
def test_a_flight_recorder_without_a_call_is_a_message(tmp_path: Path, call: str) -> None:
    """It has more threads and descriptors than a recording."""
    line = ("system-wide", "-q", "--last", "1s", "-o", tmp_path / "T", *COMMAND)
    ended = with_refusal(call, "EPERM", *line)
    assert "Traceback" not in ended.stderr
    assert ended.stderr.strip()
    assert ended.returncode in {1, 3, 6, EXIT_CODE}


@pytest.fixture
def group() -> Iterator[Path]:
    """A cgroup whose processes and threads the kernel counts."""
    for root in CGROUPS:
        folder = Path(root, f"lo2io-test-{os.getpid()}")
        try:
            folder.mkdir()
        except OSError:
            continue
        try:
            if (folder / "pids.max").exists():
                yield folder
                return
        finally:
            remove_cgroup(folder)
    pytest.skip("no cgroup with the controller pids can be made")


@pytest.mark.parametrize("line", [("record",), ("system-wide", "--last", "1s")], ids=["record", "flight"])
def test_a_cgroup_without_room_for_a_process_is_a_message(tmp_path: Path, group: Path, line: tuple[str, ...]) -> None:
    """``pids.max``: the kernel answers fork and clone with EAGAIN, each time a little later, until there is room."""
    enter = ("sh", "-c", f'echo $$ > {group}/cgroup.procs; exec "$@"', "sh", sys.executable, "-m", "lo2io")
    found = {}
    for most in range(1, 40, 3):
        (group / "pids.max").write_text(str(most))
        trace = tmp_path / str(most)
        ended = subprocess.run(
            [*enter, *line, "-q", "-o", trace, *COMMAND], capture_output=True, text=True, check=False, timeout=60
        )
        assert "Traceback" not in ended.stderr, most
        found[most] = ended.returncode
        assert ended.returncode == (EXIT_CODE if ended.stdout else 6), ended.stderr
        if (trace / "traces.otf2").exists():
            break
        assert "the cgroup's pids.max" in ended.stderr
        assert ended.stdout or not trace.exists()
    assert {6, EXIT_CODE} == {*found.values()}, found
