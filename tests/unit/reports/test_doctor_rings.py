"""The doctor's statements about io_uring: whether programs have rings, and what a trace can have about them."""

from __future__ import annotations

import errno
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest

from lo2io.catalog.catalog import load_catalog
from lo2io.kernel import access
from lo2io.kernel.access import Attempt
from lo2io.model import Role
from lo2io.reports.doctor.rings import RingFacts, ask_rings, describe_rings

if TYPE_CHECKING:
    from collections.abc import Callable

DATA = Path(__file__).parents[2] / "data"
CATALOG = load_catalog()
YES = Attempt(0)
INSTEAD = "and what they do instead is recorded"
FOLLOWED = "requests in rings are followed from submission to completion"
SHORT = "of writes done in part only the result is known"


@pytest.fixture
def answer(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Sets the kernel's answer to io_uring_setup without a place for its parameters."""

    def answers(number: int) -> None:
        monkeypatch.setattr(access.abi, "libc", SimpleNamespace(syscall=lambda *_: -1))
        monkeypatch.setattr(access.ctypes, "get_errno", lambda: number)

    answers(errno.EFAULT)
    return answers


def ask(tracefs: Path, root: Path, *, readable: bool = True) -> RingFacts:
    """The facts of a kernel."""
    return ask_rings(CATALOG, tracefs, root, readable=readable)


def root_with(folder: Path, value: str) -> Path:
    """A root whose ``kernel.io_uring_disabled`` has a value."""
    setting = folder / "proc/sys/kernel/io_uring_disabled"
    setting.parent.mkdir(parents=True)
    setting.write_text(f"{value}\n", encoding="ascii")
    return folder


@pytest.mark.usefixtures("answer")
def test_a_kernel_with_everything(tmp_path: Path) -> None:
    """17 tracepoints; the old name of one is not missed."""
    facts = ask(DATA / "6.18", root_with(tmp_path, "0"))
    assert facts == RingFacts(YES, "0", there=17)
    assert describe_rings(facts) == (True, "on; 17 of 17 tracepoints", FOLLOWED)
    assert ask(DATA / "6.1", tmp_path) == facts


@pytest.mark.usefixtures("answer")
def test_an_older_kernel(tmp_path: Path) -> None:
    """5.10.223 lacks five, and three others do not say which request they speak of."""
    facts = ask(DATA / "5.10", tmp_path)
    assert facts.disabled == ""
    assert facts.there == 12
    missing = ("req_failed", "task_work_run", "local_work_run", "cqe_overflow", "short_write")
    assert set(facts.missing) == {f"io_uring:io_uring_{name}" for name in missing}
    assert facts.unnamed == {Role.RING_FILE_GET, Role.RING_COMPLETE}
    followed, found, meaning = describe_rings(facts)
    assert followed
    assert found == f"on; 12 of 17 tracepoints; not {', '.join(facts.missing)}"
    assert meaning.split("; ") == [
        FOLLOWED,
        "completions of requests that were refused at once are orphans",
        "requests whose completion finds no room stay in flight",
        SHORT,
        "completions are matched by user_data and order, which the trace says of each",
        "descriptors are given to the request that the thread submits",
    ]


@pytest.mark.usefixtures("answer")
def test_one_tracepoint_missing(tmp_path: Path) -> None:
    """Named, with what follows."""
    shutil.copytree(DATA / "6.18", tmp_path / "tracefs")
    shutil.rmtree(tmp_path / "tracefs/events/io_uring/io_uring_short_write")
    _, found, meaning = describe_rings(ask(tmp_path / "tracefs", tmp_path))
    assert found == "on; 16 of 17 tracepoints; not io_uring:io_uring_short_write"
    assert meaning == f"{FOLLOWED}; {SHORT}"


@pytest.mark.parametrize("name", ["submit_req", "complete", "*"])
@pytest.mark.usefixtures("answer")
def test_without_begin_or_end_there_are_no_requests(tmp_path: Path, name: str) -> None:
    """Rings, and nothing to see of what happens in them: a reservation."""
    shutil.copytree(DATA / "6.18", tmp_path / "tracefs")
    for folder in (tmp_path / "tracefs/events/io_uring").glob(f"io_uring_{name}"):
        shutil.rmtree(folder)
    followed, found, meaning = describe_rings(ask(tmp_path / "tracefs", tmp_path))
    assert not followed
    assert found.startswith("on; 0 of 17 tracepoints" if name == "*" else "on; 16 of 17 tracepoints; not io_uring:")
    assert meaning == "its calls and the block requests they cause are recorded, the requests in the rings are not"


def test_a_kernel_without_io_uring(answer: Callable[[int], None], tmp_path: Path) -> None:
    """Nothing is missing, for no program has a ring."""
    answer(errno.ENOSYS)
    facts = ask(tmp_path, tmp_path)
    assert describe_rings(facts) == (True, "this kernel has none", f"programs do without rings, {INSTEAD}")


@pytest.mark.parametrize(
    ("value", "error", "found", "meaning"),
    [
        ("2", errno.EPERM, "off: kernel.io_uring_disabled is 2", f"programs do without rings, {INSTEAD}"),
        (
            "1",
            errno.EFAULT,
            "for privileged users and kernel.io_uring_group only: kernel.io_uring_disabled is 1",
            f"programs of other users do without rings, {INSTEAD}",
        ),
        (
            "0",
            errno.EPERM,
            "refused here (EPERM: Operation not permitted)",
            "programs under the same restrictions do without rings",
        ),
    ],
)
def test_rings_that_are_refused(
    answer: Callable[[int], None], tmp_path: Path, *, value: str, error: int, found: str, meaning: str
) -> None:
    """By the setting, or by what seccomp lets a container do."""
    answer(error)
    facts = ask(DATA / "6.18", root_with(tmp_path, value))
    assert describe_rings(facts) == (True, f"{found}; 17 of 17 tracepoints", meaning)


@pytest.mark.usefixtures("answer")
def test_a_tracefs_that_cannot_be_read(tmp_path: Path) -> None:
    """The doctor says nothing about the tracepoints."""
    facts = ask(tmp_path, root_with(tmp_path, "0"), readable=False)
    assert describe_rings(facts) == (
        True,
        "on; its tracepoints could not be read",
        "it is not known whether requests in rings can be followed",
    )


def test_the_running_kernel_makes_no_ring_for_the_question() -> None:
    """Whatever it answers, no descriptor is left behind."""
    before = set(Path("/proc/self/fd").iterdir())
    access.try_io_uring()
    assert len(set(Path("/proc/self/fd").iterdir())) == len(before)
