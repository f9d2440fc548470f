"""A process' rights are read from the kernel's own files, and tried."""

from __future__ import annotations

import errno
import resource
from typing import TYPE_CHECKING

import pytest

from lo2io.kernel import access

if TYPE_CHECKING:
    from pathlib import Path

MIB = 1 << 20


def write(root: Path, path: str, text: str) -> None:
    """Write a file under a root of the test's own."""
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_text(text)


def test_capabilities_by_bit(tmp_path: Path) -> None:
    """Bit 38 is CAP_PERFMON, bit 14 CAP_IPC_LOCK; the permitted set does not count."""
    bits = 1 << 38 | 1 << 14
    write(tmp_path, "proc/self/status", f"Name:\tx\nCapPrm:\t{1 << 21:016x}\nCapEff:\t{bits:016x}\n")
    assert access.read_capabilities(tmp_path) == {"CAP_PERFMON", "CAP_IPC_LOCK"}
    write(tmp_path, "proc/self/status", "Name:\tx\n")
    assert access.read_capabilities(tmp_path) == set()


def test_settings(tmp_path: Path) -> None:
    """Settings of perf as the kernel prints them; none where there are no perf events."""
    assert access.read_paranoid(tmp_path) is None
    assert access.read_perf_mlock_bytes(tmp_path) is None
    write(tmp_path, "proc/sys/kernel/perf_event_paranoid", "-1\n")
    write(tmp_path, "proc/sys/kernel/perf_event_mlock_kb", "516\n")
    assert access.read_paranoid(tmp_path) == -1
    assert access.read_perf_mlock_bytes(tmp_path) == 516 * 1024


def test_unlimited_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """RLIM_INFINITY is no number to reckon with."""
    monkeypatch.setattr(resource, "getrlimit", lambda _number: (7, resource.RLIM_INFINITY))
    assert access.read_limit(resource.RLIMIT_MEMLOCK) == (7, None)


@pytest.mark.parametrize(
    ("cpus", "mlock", "memlock", "ring"),
    [
        (2, 516 * 1024, 8 * MIB, 4 * MIB),  # Debian 12 with two CPUs: measured on Linux 6.18
        (64, 516 * 1024, 64 * 1024, 512 * 1024),
        (1, 4096, 4096, 4096),
        (1, 0, 4096, 0),
        (4, 0, None, None),
    ],
)
def test_largest_ring(cpus: int, mlock: int, memlock: int | None, ring: int | None) -> None:
    """Each CPU's ring is a power of two, and takes a page more."""
    assert access.largest_ring_bytes(cpus, mlock, memlock, 4096) == ring


def test_event_id(tmp_path: Path) -> None:
    """An id is read by the event's full name."""
    write(tmp_path, "events/block/block_rq_issue/id", "1234\n")
    assert access.read_event_id(tmp_path, "block:block_rq_issue") == 1234
    assert access.read_event_id(tmp_path, "block:block_rq_insert") is None


def test_tries_answer_with_the_kernels_errno() -> None:
    """An event that no kernel has is refused; the attempt has the errno, and no try raises."""
    tries = access.try_events(0, 0xFFFF_FFFF)
    assert tries.tracepoint is not None
    assert not tries.tracepoint.ok
    assert access.Attempt(errno.EACCES).ok is False
    assert str(access.Attempt(errno.EACCES)) == "EACCES: Permission denied"
    assert str(access.Attempt(0)) == "works"


def test_no_tracepoint_is_tried_without_an_id() -> None:
    """Without tracefs nothing is known about tracepoints, which is not a refusal."""
    tries = access.try_events(0, None)
    assert tries.tracepoint is None
    assert tries.own_tracepoint is None


def test_no_folder_but_a_cgroup_is_accepted(tmp_path: Path) -> None:
    """Another folder, and a missing one, are refused with an errno; without a cgroup, nothing is tried."""
    ordinary, gone = (access.try_events(0, None, path).cgroup for path in (tmp_path, tmp_path / "gone"))
    assert ordinary is not None
    assert ordinary.error in {errno.EBADF, errno.EACCES, errno.EPERM, errno.EINVAL, errno.ENOSYS}
    assert gone == access.Attempt(errno.ENOENT)
    assert access.try_events(0, None).cgroup is None
