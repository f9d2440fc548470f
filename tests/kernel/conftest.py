"""Tests on the running kernel: their requirements, and common fixtures.

``@pytest.mark.requires("root", "tracefs", "perf", "block:block_rq_issue", "fio")`` skips a test, with the reason, if
something is missing: ``root``, ``tracefs`` (mounted and readable), ``perf`` (the Python binding), ``events`` (this user
may open events on every CPU), a tracepoint by its full name, or a program in PATH. With LO2IO_RUN_KERNEL_TESTS=1 in the
environment, such a test fails instead, so that CI is never green without having tested.

``@pytest.mark.alone`` is for tests of the whole machine: its CPUs, its disks, all its processes. ``make test`` runs two
of the others at a time.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest
from build.rawspool import EVENTS, work
from workloads import served
from workloads.disks import loop_device
from workloads.rings import GROUPS, WITHOUT_RINGS, Run, run

from lo2io.capture.events import native, opened
from lo2io.capture.options import RecordOptions
from lo2io.errors import Lo2ioError
from lo2io.kernel import binding, sysfs, tracefs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

FORCE = "LO2IO_RUN_KERNEL_TESTS"

_SPIN = """
import os, sys
os.sched_setaffinity(0, {int(sys.argv[1])})
os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
print("spinning", flush=True)
parent = os.getppid()
while os.getppid() == parent:
    for _ in range(1_000_000):
        pass
"""


def pytest_configure(config: pytest.Config) -> None:
    """Make the markers known."""
    config.addinivalue_line("markers", "alone: looks at the whole machine, so no other test may run beside it")
    config.addinivalue_line("markers", "requires(*names): skip, with the reason, where something is missing")


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip or fail where a required thing is missing."""
    for marker in item.iter_markers("requires"):
        for name in marker.args:
            reason = missing(name)
            if reason:
                (pytest.fail if os.environ.get(FORCE) == "1" else pytest.skip)(reason)


def missing(name: str) -> str:
    """The reason why ``name`` cannot be used here, or an empty string."""
    if name == "root":
        return "" if os.geteuid() == 0 else "needs root"
    try:
        if name == "perf":
            binding.find_binding()
        elif name == "tracefs":
            next((tracefs.find_tracefs() / "events").iterdir())
        elif name == "events":
            opened.probe_lost(sysfs.read_online_cpus()[0])
        elif ":" in name:
            return "" if tracefs.event_exists(tracefs.find_tracefs(), name) else f"this kernel has no {name}"
        else:
            return "" if shutil.which(name) else f"{name} is not installed"
    except (Lo2ioError, OSError) as error:
        return f"needs {name}: {error}"
    return ""


@pytest.fixture(scope="session", autouse=True)
def _server_ends() -> Iterator[None]:
    """The server that ``served.lo2io`` may start ends with the last test."""
    yield
    served.close()


@pytest.fixture
def busy_cpus() -> Iterator[None]:
    """A spinner of the lowest class on each CPU.

    Some virtual machines deliver no sample while a CPU's current task is the idle task or a thread of process 1
    (docs/how-to/losses.md). Tests that want every sample keep all CPUs awake, and compare with the counts all the same.
    """
    with keep_busy():
        yield


@contextlib.contextmanager
def keep_busy() -> Iterator[None]:
    """``busy_cpus`` for fixtures that outlive a test."""
    spinners = [
        subprocess.Popen([sys.executable, "-S", "-c", _SPIN, str(cpu)], stdout=subprocess.PIPE)
        for cpu in sysfs.read_online_cpus()
    ]
    try:
        for spinner in spinners:
            assert spinner.stdout is not None
            assert spinner.stdout.readline() == b"spinning\n"
        yield
    finally:
        for spinner in spinners:
            spinner.kill()
            spinner.communicate()


@pytest.fixture(scope="session")
def awake() -> Callable[[], contextlib.AbstractContextManager[None]]:
    """``keep_busy``, for fixtures of other modules that outlive a test."""
    return keep_busy


@pytest.fixture(scope="session")
def rings(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Run]:
    """A group of scenarios of the workload ``rings``, recorded once for all tests; disk: a loop device."""
    runs: dict[str, Run | None] = {}

    def recorded(group: str) -> Run:
        if group not in runs:
            runs[group] = None
            folder = tmp_path_factory.mktemp(f"rings-{group}")
            with keep_busy(), loop_device(folder / "image") as device:
                runs[group] = run(folder, {**GROUPS, **WITHOUT_RINGS}[group], "--device", device)
        found = runs[group]
        assert found is not None, f"recording the group {group} has failed before"
        return found

    return recorded


@pytest.fixture
def loop(tmp_path: Path) -> Iterator[Path]:
    """A block device of the test's own: 16 MiB, backed by a sparse file."""
    with loop_device(tmp_path / "image") as device:
        yield device


@pytest.fixture(params=[native.NativeSource.name, pytest.param("python-perf", marks=pytest.mark.requires("perf"))])
def opener(request: pytest.FixtureRequest) -> str:
    """Each opener in turn: one interface, the same tests."""
    return str(request.param)


@pytest.fixture
def until() -> Callable[[Callable[[], object]], object]:
    """Wait until a condition is true, however slow the machine; returns its value."""

    def wait(condition: Callable[[], object]) -> object:
        end = time.monotonic() + 60
        while not (value := condition()):
            assert time.monotonic() < end, "what was waited for did not happen within a minute"
            time.sleep(0.005)
        return value

    return wait


@pytest.fixture
def public(tmp_path: Path) -> Path:
    """A folder to which everybody may write."""
    for folder in (tmp_path, *list(tmp_path.parents)[:2]):
        folder.chmod(0o755)
    tmp_path.chmod(0o777)
    return tmp_path


@pytest.fixture
def options(tmp_path: Path, opener: str) -> RecordOptions:
    """Two events as perf samples, a spool of its own, each opener in turn."""
    return RecordOptions(
        spool=tmp_path / "spool", events=EVENTS, backend="perf", names="proc", opener=opener, command=work()
    )


_RECORDER = """
import json, sys
from pathlib import Path
from lo2io.capture.recording import RecordOptions, record
from lo2io.errors import Lo2ioError
arguments = json.loads(sys.argv[1])
for name in ("events", "command", "pids"):
    arguments[name] = tuple(arguments.get(name, ()))
arguments["optional"] = frozenset(arguments.get("optional", ()))
try:
    options = RecordOptions(**{**arguments, "spool": Path(arguments["spool"])})
    result = record(options, lambda notice: print(">", notice.text, file=sys.stderr))
except Lo2ioError as error:
    print(f"{type(error).__name__}: {error}; {error.remedy}", file=sys.stderr)
    sys.exit(error.exit_code)
sys.exit(result.exit_code)
"""


@pytest.fixture
def recorder(tmp_path: Path) -> Callable[..., list[str]]:
    """The command line of a process that records by itself, for tests of signals, exit codes, streams and rights."""
    import json  # noqa: PLC0415

    def command_line(*, prefix: tuple[str, ...] = (), **options: object) -> list[str]:
        script = tmp_path / "recorder.py"
        script.write_text(_RECORDER, encoding="utf-8")
        return [*prefix, sys.executable, str(script), json.dumps(options)]

    return command_line
