"""The kernel refuses one system call, as a container's seccomp filter does: a message, and the command's exit code."""

from __future__ import annotations

import platform
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from workloads import refused
from workloads.served import lo2io

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [
    pytest.mark.requires("root", "tracefs", "events"),
    pytest.mark.skipif(platform.machine() != "x86_64", reason="the filter has the numbers of x86-64"),
]
EXIT_CODE = 7
"""The command's."""
CASES = [*((call, "EPERM") for call in refused.NUMBERS), *((call, "EAGAIN") for call in ("fork", "waitid", "eventfd2"))]


def with_refusal(call: str, error: str, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Run lo2io without this call."""
    line = [sys.executable, "-S", refused.__file__, call, error, sys.executable, "-m", "lo2io", *map(str, arguments)]
    return subprocess.run(line, capture_output=True, text=True, check=False, timeout=60)


@pytest.mark.parametrize(("call", "error"), CASES)
def test_a_refused_call_is_a_message(tmp_path: Path, call: str, error: str) -> None:
    """Without a traceback. If the command has begun, it runs to its end, and its exit code is lo2io's."""
    trace = tmp_path / "T"
    ended = with_refusal(call, error, "record", "-q", "-o", trace, "--", "sh", "-c", "echo ran; exit 7")
    assert "Traceback" not in ended.stderr
    assert ended.stderr.strip()
    assert (ended.returncode == EXIT_CODE) == (ended.stdout == "ran\n"), ended.stderr
    if ended.returncode != EXIT_CODE:
        assert ended.returncode in {1, 2, 3, 6}
        assert not trace.exists()
    elif not (trace / "traces.otf2").exists():
        assert f"`lo2io convert {trace}/spool -o {trace}`" in ended.stderr
        assert lo2io("convert", trace / "spool", "-o", trace).returncode == 0


@pytest.mark.parametrize("call", ["eventfd2", "ioctl", "sched_setaffinity", "rt_sigtimedwait"])
def test_a_flight_recorder_without_a_call_is_a_message(tmp_path: Path, call: str) -> None:
    """It has more threads and descriptors than a recording."""
    line = ("system-wide", "-q", "--last", "1s", "-o", tmp_path / "T", "--", "sh", "-c", "exit 7")
    ended = with_refusal(call, "EPERM", *line)
    assert "Traceback" not in ended.stderr
    assert ended.stderr.strip()
    assert ended.returncode in {1, 3, 6, EXIT_CODE}
