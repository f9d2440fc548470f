"""docs/explanation/rules/ring-requests.md: the descriptors that requests of rings look up."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from build.requestrig import (
    ACCEPT,
    ASYNC,
    EBADF,
    ECANCELED,
    READ,
    RECV,
    SPLICE,
    RequestRig,
)
from build.ringrig import PID

if TYPE_CHECKING:
    from pathlib import Path

W = 30
"""A worker."""
APPEARED, OPENED_BY_RING = 4, 5
"""Origins of handles."""


@pytest.fixture
def rig(tmp_path: Path) -> RequestRig:
    """Process 10, born in the trace, with a worker."""
    rig = RequestRig(tmp_path)
    rig.worker(W)
    return rig


def test_the_handle_is_that_of_the_look_up(rig: RequestRig) -> None:
    """A file opened under the number later is another one."""
    rig.call("openat", 3, flags=0)
    rig.submit(1, opcode=READ)
    rig.gets(1, 3)
    rig.call("close", 0, fd=3)
    rig.call("openat", 3, flags=0)
    rig.cqe(1, 5)
    first, second = sorted(h["handle"] for h in rig.run().rows["handles"] if h["fd"] == 3)
    assert rig.column("fd", "handle") == [(3, first)]
    assert {h["handle"]: h["used"] for h in rig.rows["handles"]}[first] == 1
    assert first != second


@pytest.mark.parametrize("proof", ["cqe", "arm", "punt", "none"])
def test_a_descriptor_nobody_saw_opened(rig: RequestRig, proof: str) -> None:
    """It appeared unseen, if the kernel found a file there."""
    rig.submit(1, opcode=RECV)
    rig.gets(1, 3)
    if proof == "arm":
        rig.arm(1)
    elif proof == "punt":
        rig.punt(1)
    rig.cqe(1, 5 if proof == "cqe" else EBADF)
    rig.call("read", 1, fd=3, count=1)
    handles = [h for h in rig.run().rows["handles"] if h["fd"] == 3]
    assert [h["origin"] for h in handles] == [APPEARED]
    assert rig.column("fd", "handle") == [(3, None if proof == "none" else handles[0]["handle"])]
    assert rig.of("operations", "handle") == [handles[0]["handle"]]


def test_a_descriptor_that_another_thread_opens_meanwhile(rig: RequestRig) -> None:
    """The request's own lives for it alone."""
    rig.submit(1, opcode=RECV)
    rig.gets(1, 3)
    rig.call("openat", 3, flags=0)
    rig.cqe(1, 5)
    rig.call("read", 1, fd=3, count=1)
    unseen, opened = sorted((h for h in rig.run().rows["handles"] if h["fd"] == 3), key=lambda h: -h["origin"])
    assert rig.column("handle") == [unseen["handle"]]
    assert (unseen["origin"], unseen["close_time_ns"], opened["origin"]) == (APPEARED, None, 0)
    assert rig.of("operations", "handle")[-1] == opened["handle"]


def test_splice_looks_up_two(rig: RequestRig) -> None:
    """The written one first; the fd is the SQE's, which that is."""
    for fd in (3, 4):
        rig.call("openat", fd, flags=0)
    rig.submit(1, opcode=SPLICE, flags=ASYNC)
    rig.punt(1)
    begin = rig.gets(1, 4, tid=W)
    rig.gets(1, 3, tid=W)
    rig.gets(1, 9, tid=W)
    rig.cqe(1, 100, tid=W)
    handles = {h["fd"]: h["handle"] for h in rig.run().rows["handles"]}
    assert rig.column("fd", "handle", "handle2") == [(4, handles[3], handles[4])]
    assert rig.of("ring_works", "begin_time_ns") == [begin]
    assert 9 not in handles


def test_negative_descriptors_are_none(rig: RequestRig) -> None:
    """The kernel looks up even -1."""
    rig.submit(1, opcode=READ)
    rig.gets(1, -1)
    rig.cqe(1, EBADF)
    assert rig.column("fd", "handle") == [(-1, None)]


@pytest.mark.parametrize(("process", "proven"), [(PID, True), (20, False)])
def test_a_submitter_that_has_ended_proves_in_its_process_alone(rig: RequestRig, process: int, proven: bool) -> None:
    """Another one has other descriptors."""
    rig.fork(PID, 11, PID)
    rig.fork(20, 20, 1)
    rig.submit(1, opcode=RECV, tid=11)
    rig.gets(1, 3, tid=11)
    rig.ends(PID, 11)
    rig.cqe(1, ECANCELED, tid=process)
    assert [handle is not None for handle in rig.column("handle")] == [proven]
    assert [h["fd"] for h in rig.rows["handles"] if h["fd"] == 3] == [3] * proven


@pytest.mark.parametrize("fd", [0, 4])
def test_two_requests_prove_the_same_descriptor(rig: RequestRig, fd: int) -> None:
    """In whatever order they looked it up."""
    rig.submit(1, opcode=SPLICE)
    rig.submit(2, opcode=RECV)
    rig.gets(2, fd)
    rig.gets(1, fd)
    rig.cqe(1, 5)
    rig.cqe(2, 5)
    assert rig.all()[0]["handle2"] is not None
    assert len([h for h in rig.run().rows["handles"] if h["fd"] == fd]) == 1
    assert rig.all()[0]["handle2"] == rig.all()[1]["handle"]


def test_a_descriptor_is_proven_before_the_result_takes_effect(rig: RequestRig) -> None:
    """ACCEPT on a descriptor that its own result replaces: both have been there."""
    rig.setup()
    rig.submit(1, opcode=ACCEPT)
    rig.gets(1, 4)
    rig.cqe(1, 4)
    rig.call("read", 1, fd=4, count=1)
    old, new = sorted((h for h in rig.run().rows["handles"] if h["fd"] == 4), key=lambda h: h["handle"])
    assert (rig.only()["handle"], rig.of("operations", "handle")[-1]) == (old["handle"], new["handle"])
    assert (old["origin"], new["origin"]) == (APPEARED, OPENED_BY_RING)


@pytest.mark.parametrize("rate", [1, 10_007])
def test_a_handle_is_used_by_requests_that_are_written(tmp_path: Path, rate: int) -> None:
    """As by calls; then its first use was not a call's."""
    rig = RequestRig(tmp_path, born=False, sample_rate=rate)
    rig.spool.fact_fd(2_000, PID, 3, b"/some/file")
    rig.submit(1, opcode=READ)
    rig.gets(1, 3)
    rig.cqe(1, 5)
    assert [h["used"] for h in rig.run().rows["handles"]] == [int(rate == 1)]
