"""Requests that make descriptors of registered files, or registered files where one expects descriptors."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from build.ringrig import PID, A
from build.sqerig import FIXED_FILE, SqeRig

if TYPE_CHECKING:
    from pathlib import Path

ACCEPT, READ, FIXED_FD_INSTALL = 13, 22, 54
CHOSEN = 2**32 - 1
"""IORING_FILE_INDEX_ALLOC: the kernel chooses the place."""
MORE = 2
OPENED, BY_RING, REGISTERED = 0, 5, 6


@pytest.fixture(params=["before", "after", "within"])
def rig(tmp_path: Path, request: pytest.FixtureRequest) -> SqeRig:
    """A process with a ring of eight places; SQEs come before, after or within the records of their submissions."""
    rig = SqeRig(tmp_path, request.param)
    rig.setup()
    rig.event("register", ctx=A, opcode=2, nr_files=8, nr_bufs=0, ret=0)
    return rig


def handles(rig: SqeRig, fd: int) -> list[tuple[int, int | None]]:
    """Origin and close time of those of a number, in the order they were made."""
    found = sorted((h for h in rig.rows["handles"] if h["fd"] == fd), key=lambda h: h["handle"])
    return [(h["origin"], h["close_time_ns"]) for h in found]


@pytest.mark.parametrize(("file_index", "result", "place"), [(4, 0, 3), (CHOSEN, 6, 6)])
def test_accept_into_a_place_is_no_descriptor(rig: SqeRig, file_index: int, result: int, place: int) -> None:
    """The result is 0 or a place: a descriptor of this number does not change."""
    rig.call("openat", result, dfd=-100)
    rig.request(1, result, opcode=ACCEPT, fd=7, file_index=file_index)
    rig.call("read", 5, fd=result, count=5)
    rig.run()
    assert handles(rig, result) == [(OPENED, None)]
    assert rig.of("ring_requests", "fd", "file_index") == [(7, place)]


def test_each_accept_of_many_has_its_place(rig: SqeRig) -> None:
    """A multi-shot accept replaces the file in each place that the kernel chooses, and changes no descriptor."""
    rig.told(1, b"older", file=0x1000, slot=True)
    rig.request(1, 10, opcode=READ, fd=1, flags=FIXED_FILE, length=10, file=0x1000)
    rig.ask(2, opcode=ACCEPT, fd=7, file_index=CHOSEN, user_data=4)
    rig.event("complete", ctx=A, req=0, user_data=4, res=0, cflags=MORE)
    filled = rig.event("complete", ctx=A, req=0, user_data=4, res=1, cflags=MORE)
    rig.run()
    assert handles(rig, -1) == [(REGISTERED, filled)]
    assert handles(rig, 0) == handles(rig, 1) == []
    assert rig.rows["ring_requests"][-1]["file_index"] == 1


@pytest.mark.parametrize("opcode", [ACCEPT, FIXED_FD_INSTALL])
def test_a_descriptor_comes_of_a_registered_file(rig: SqeRig, opcode: int) -> None:
    """ACCEPT on a registered listener and FIXED_FD_INSTALL return one, and the place stays as it is."""
    rig.told(2, b"listener", file=0x1000, slot=True)
    opened = rig.request(1, 9, opcode=opcode, fd=2, flags=FIXED_FILE, file=0x1000)
    rig.call("read", 5, fd=9, count=5)
    rig.run()
    assert handles(rig, 9) == [(BY_RING, None)]
    assert [row["open_time_ns"] for row in rig.rows["handles"] if row["fd"] == 9] == [opened]
    assert handles(rig, -1) == [(REGISTERED, None)]
    assert rig.of("ring_requests", "fd", "file_index") == [(-1, 2)]


def test_from_a_place_into_a_place(rig: SqeRig) -> None:
    """The request's place is the listener's; the one it fills holds nothing known, and no descriptor is made."""
    rig.told(6, b"older", file=0x2000, slot=True)
    rig.request(1, 10, opcode=READ, fd=6, flags=FIXED_FILE, length=10, file=0x2000)
    rig.told(2, b"listener", file=0x1000, slot=True, inode=2)
    filled = rig.request(2, 6, opcode=ACCEPT, fd=2, flags=FIXED_FILE, file=0x1000, file_index=CHOSEN)
    rig.run()
    assert handles(rig, -1) == [(REGISTERED, filled), (REGISTERED, None)]
    assert handles(rig, 6) == []
    assert rig.of("ring_requests", "file_index") == [6, 2]
    assert rig.of("ring_requests", "pid") == [PID, PID]
