"""How calls are recorded, and who names their files: the consequences of options, before any attempt."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lo2io.capture import backend
from lo2io.capture.backend import FEW_CALLS, WITHOUT_PROGRAMS, BackendChoice, choose_backend, choose_hook
from lo2io.capture.checks import check_options
from lo2io.capture.options import RecordOptions
from lo2io.errors import UsageError
from lo2io.kernel.cgroups import Cgroup
from lo2io.kernel.tracefs import parse_format
from lo2io.model.events import Event

FORMATS = Path(__file__).parents[2] / "data/6.18/events/syscalls"
CALLS = ("syscalls:sys_enter_read", "syscalls:sys_exit_read", "block:block_rq_issue")
V1, V2 = Cgroup("/a", Path("/sys/a"), b"perf_event"), Cgroup("/a", Path("/sys/a"), b"")


@pytest.fixture(autouse=True)
def _by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backend, "BY_DEFAULT", True)


def options(**changes: Any) -> RecordOptions:
    """Options of a recorded command."""
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
        ({"hook": "single"}, BackendChoice("bpf", "kernel", required=True)),
        ({"names": "proc"}, WITHOUT_PROGRAMS),
        ({"backend": "perf", "names": "proc"}, WITHOUT_PROGRAMS),
        ({"opener": "python-perf"}, WITHOUT_PROGRAMS),
        ({"scope": "inherit"}, BackendChoice("perf", "proc", "--scope inherit")),
        ({"scope": "inherit", "names": "proc"}, WITHOUT_PROGRAMS),
        ({"system": True, "last_s": 1.0, "command": ()}, BackendChoice("bpf", "kernel")),
    ],
)
def test_what_is_tried(asked: dict[str, Any], choice: BackendChoice) -> None:
    """The best back end for the options. Obstacles are known, unless the user requested them."""
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
        ({"backend": "ebpf"}, "there is no such choice"),
        ({"names": "kernels"}, "there is no such choice"),
        ({"hook": "both"}, "there is no such choice"),
        ({"hook": "raw", "backend": "perf"}, "perf events record the calls, each at its own tracepoints"),
        ({"hook": "single", "names": "proc"}, "perf events record the calls, each at its own tracepoints"),
        ({"hook": "raw", "scope": "inherit"}, "--scope inherit cannot use programs in the kernel"),
        ({"backend": "bpf", "names": "proc"}, "programs that record calls also name the calls' files"),
        ({"backend": "bpf", "opener": "python-perf"}, "--opener python-perf cannot use programs in the kernel"),
        ({"names": "kernel", "scope": "inherit"}, "--scope inherit cannot use programs in the kernel"),
    ],
)
def test_what_contradicts_itself(asked: dict[str, Any], answer: str) -> None:
    """Such options are refused before anything is opened."""
    with pytest.raises(UsageError) as caught:
        check_options(options(**asked))
    assert caught.value.answer == answer


def entry(name: str, more: str = "") -> Event:
    """A call's entry, as the kernel describes it."""
    text = (FORMATS / name / "format").read_text(encoding="ascii").replace("\nprint fmt", f"{more}\nprint fmt")
    layout = parse_format(text)
    return Event(f"syscalls:{name}", layout.id, text, layout)


STRING = "\tfield:__data_loc char[] __filename_val;\toffset:48;\tsize:4;\tsigned:0;\n"


@pytest.mark.parametrize(
    ("asked", "nr_calls", "more", "hook"),
    [
        ("auto", 1, "", "single"),
        ("auto", FEW_CALLS, "", "single"),
        ("auto", FEW_CALLS + 1, "", "raw"),
        ("auto", 1, STRING, "raw"),
        ("raw", 1, "", "raw"),
        ("single", 99, STRING, "single"),
    ],
)
def test_few_calls_are_watched_singly(asked: str, nr_calls: int, more: str, hook: str) -> None:
    """Unless the kernel then reads strings out of everybody's memory; what the user says holds in any case."""
    events = [entry("sys_enter_openat", more), entry("sys_exit_openat")] * nr_calls
    assert choose_hook(asked, events) == hook
