"""A mapped buffer of perf, in a file in place of the kernel's memory."""

from __future__ import annotations

import os
import struct
from typing import TYPE_CHECKING

from lo2io.capture.events.ring import PAGE_BYTES, Ring
from lo2io.kernel.abi import HEAD_OFFSET, SIZE_OFFSET, TAIL_OFFSET

if TYPE_CHECKING:
    from pathlib import Path

SIZE = 4096


def test_what_waits_is_shown_in_its_order_and_given_back(tmp_path: Path) -> None:
    """It begins at the tail, ends at the head, and goes on at the buffer's start. The kernel sees the new tail."""
    head, tail = SIZE + 6, SIZE - 4
    content = bytearray(PAGE_BYTES + SIZE)
    for place, value in ((HEAD_OFFSET, head), (TAIL_OFFSET, tail), (SIZE_OFFSET, SIZE)):
        struct.pack_into("=Q", content, place, value)
    content[PAGE_BYTES : PAGE_BYTES + 6], content[-4:] = b"behind", b"from"
    (tmp_path / "ring").write_bytes(content)
    fd = os.open(tmp_path / "ring", os.O_RDWR)
    ring = Ring(fd, SIZE)
    os.close(fd)
    assert (ring.size, ring.fill_bytes, ring.head) == (SIZE, 10, head)
    assert b"".join(map(bytes, ring.peek(ring.fill_bytes))) == b"frombehind"
    assert b"".join(map(bytes, ring.peek(7))) == b"frombeh"
    ring.release(7)
    assert ring.fill_bytes == 3
    assert b"".join(map(bytes, ring.peek(3))) == b"ind"
    ring.release(3)
    assert ring.fill_bytes == 0
