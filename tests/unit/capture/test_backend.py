"""What calls are recorded by, and who names their files: what follows from the options, before anything is tried."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lo2io.capture import backend
from lo2io.capture.backend import WITHOUT_PROGRAMS, BackendChoice, choose_backend
from lo2io.capture.checks import check_options
from lo2io.capture.options import RecordOptions
from lo2io.errors import UsageError
from lo2io.kernel.cgroups import Cgroup

CALLS = ("syscalls:sys_enter_read", "syscalls:sys_exit_read", "block:block_rq_issue")
V1, V2 = Cgroup("/a", Path("/sys/a"), b"perf_event"), Cgroup("/a", Path("/sys/a"), b"")


@pytest.fixture(autouse=True)
def _by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backend, "BY_DEFAULT", True)


def options(**changes: Any) -> RecordOptions:
    """Of a command that is recorded."""
    return RecordOptions(Path("S"), CALLS, **({"command": ("true",)} | changes))


@pytest.mark.parametrize(
    ("asked", "choice"),
    [
        ({}, BackendChoice("bpf", "kernel")),
        ({"opener": "native"}, BackendChoice("bpf", "kernel")),
        ({"backend": "bpf"}, BackendChoice("bpf", "kernel", required=True)),
        ({"backend": "perf"}, BackendChoice("perf", "kernel")),
        ({"backend": "perf", "names": "kernel"}, BackendChoice("perf", "kernel", required=True)),
        ({"names": "kernel"}, BackendChoice("bpf", "kernel", required=True)),
        ({"names": "proc"}, WITHOUT_PROGRAMS),
        ({"backend": "perf", "names": "proc"}, WITHOUT_PROGRAMS),
        ({"opener": "python-perf"}, WITHOUT_PROGRAMS),
        ({"scope": "inherit"}, BackendChoice("perf", "proc", "--scope inherit")),
        ({"scope": "inherit", "names": "proc"}, WITHOUT_PROGRAMS),
        (
            {"system": True, "last_s": 1.0, "command": ()},
            BackendChoice("perf", "proc", "a recording that keeps only its newest part"),
        ),
    ],
)
def test_what_is_tried(asked: dict[str, Any], choice: BackendChoice) -> None:
    """The best that goes with what was asked for; what stands in its way is known, unless it was asked for itself."""
    assert choose_backend(options(**asked), CALLS, None) == choice


def test_cgroups_of_version_1() -> None:
    """Programs can tell those of version 2 only."""
    assert choose_backend(options(), CALLS, V2) == BackendChoice("bpf", "kernel")
    assert choose_backend(options(), CALLS, V1) == BackendChoice("perf", "proc", "a cgroup of version 1")
    with pytest.raises(UsageError, match="a cgroup of version 1"):
        choose_backend(options(backend="bpf"), CALLS, V1)


def test_without_calls_there_is_nothing_to_tell() -> None:
    """Block requests alone need no programs."""
    assert choose_backend(options(), ("block:block_rq_issue",), None) == WITHOUT_PROGRAMS
    assert choose_backend(options(), ("io_uring:io_uring_complete",), None).needs_programs


@pytest.mark.parametrize(
    ("asked", "answer"),
    [
        ({"backend": "ebpf"}, "no such choice"),
        ({"names": "kernels"}, "no such choice"),
        ({"backend": "bpf", "names": "proc"}, "programs that record calls tell about their files, too"),
        ({"backend": "bpf", "opener": "python-perf"}, "--opener python-perf knows no programs in the kernel"),
        ({"names": "kernel", "scope": "inherit"}, "--scope inherit knows no programs in the kernel"),
        (
            {"backend": "bpf", "system": True, "command": (), "max_bytes": 1 << 30},
            "a recording that keeps only its newest part knows no programs in the kernel",
        ),
    ],
)
def test_what_contradicts_itself(asked: dict[str, Any], answer: str) -> None:
    """It is refused before anything is opened."""
    with pytest.raises(UsageError) as caught:
        check_options(options(**asked))
    assert caught.value.answer == answer
