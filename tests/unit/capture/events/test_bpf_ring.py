"""A buffer that programs in the kernel write, played by a file: only finished records are handed on, in order."""

from __future__ import annotations

import mmap
import os
import struct
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lo2io.native._lib import ffi, lib

from lo2io.capture.events.bpf_ring import Bell, KernelRing

if TYPE_CHECKING:
    from collections.abc import Iterator

SIZE = 8192
WRITER = 1 << lib.LO2_WRITERS_SHIFT
HEADER = struct.Struct("<II")


def framed(content: bytes) -> bytes:
    """A record as it lies in the buffer."""
    return HEADER.pack(len(content), 0) + content + bytes(-len(content) % 8)


class Producer:
    """The programs' side, as lo2io/bpf/programs/buffers.h has it."""

    def __init__(self) -> None:
        self.fd = os.memfd_create("ring")
        length = lib.LO2_BUFFER_HEAD + SIZE + lib.LO2_BUFFER_SLACK
        os.truncate(self.fd, length)
        self.memory = mmap.mmap(self.fd, length)
        self.held = ffi.from_buffer(self.memory)
        self.buffer = ffi.cast("struct lo2_bpf_buffer *", self.held)

    def put(self, content: bytes) -> bool:
        """Write a record, unless there is no room."""
        record, begin = framed(content), int(self.buffer.taken) % WRITER
        if begin + len(record) - self.buffer.tail > SIZE:
            return False
        at = lib.LO2_BUFFER_HEAD + begin % SIZE
        self.memory[at : at + len(record)] = record
        if begin % SIZE + len(record) >= SIZE:
            self.buffer.crossed = begin + len(record)
        self.buffer.taken += len(record)
        return True

    def close(self) -> None:
        """Unmap and close."""
        ffi.release(self.held)
        self.memory.close()
        os.close(self.fd)


@pytest.fixture
def rings() -> Iterator[tuple[Producer, KernelRing]]:
    """The programs' side and the reader's."""
    producer = Producer()
    ring = KernelRing(producer.fd, SIZE)
    yield producer, ring
    ring.close()
    ring.close()
    producer.close()


def take(ring: KernelRing, limit: int = SIZE) -> bytes:
    """Up to ``limit`` of the bytes that can be read, released."""
    views = ring.peek(min(ring.fill_bytes, limit))
    content = b"".join(map(bytes, views))
    for view in views:
        view.release()
    ring.release(len(content))
    return content


def test_records_come_out_as_they_lie(rings: tuple[Producer, KernelRing]) -> None:
    """With their frames and what pads them."""
    producer, ring = rings
    assert (ring.fill_bytes, ring.peek(100)) == (0, [])
    producer.put(b"x" * 16)
    producer.put(b"y" * 3)
    expected = framed(b"x" * 16) + framed(b"y" * 3)
    assert ring.fill_bytes == len(expected)
    assert ring.taken == len(expected) / SIZE
    assert take(ring) == expected
    assert (ring.fill_bytes, producer.buffer.tail) == (0, len(expected))


def test_nothing_is_read_while_a_program_writes(rings: tuple[Producer, KernelRing]) -> None:
    """What was finished before stays readable."""
    producer, ring = rings
    producer.put(b"a" * 8)
    assert ring.fill_bytes == 16
    producer.buffer.taken += WRITER
    producer.put(b"b" * 8)
    assert ring.fill_bytes == 16
    assert take(ring) == framed(b"a" * 8)
    producer.buffer.taken -= WRITER
    assert take(ring) == framed(b"b" * 8)


@pytest.mark.parametrize("place", range(lib.LO2_MAX_SAMPLED))
def test_nothing_is_read_while_an_event_is_marked(rings: tuple[Producer, KernelRing], place: int) -> None:
    """Each event's program has a mark of its own, and moves the position before the record is finished."""
    producer, ring = rings
    producer.put(b"a" * 8)
    assert ring.fill_bytes == 16
    producer.buffer.writing[place] = 1
    producer.put(b"b" * 8)
    assert ring.fill_bytes == 16
    assert take(ring) == framed(b"a" * 8)
    producer.buffer.writing[place] = 0
    assert take(ring) == framed(b"b" * 8)


def test_marks_lie_beside_the_position() -> None:
    """In the same cache line of 64 bytes. What the reader writes lies in another one."""
    lines = {name: ffi.offsetof("struct lo2_bpf_buffer", name) // 64 for name in ("tail", "taken", "writing")}
    assert lines["tail"] < lines["taken"] == lines["writing"]
    assert (ffi.offsetof("struct lo2_bpf_buffer", "writing") + lib.LO2_MAX_SAMPLED - 1) // 64 == lines["taken"]


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(0, 900), min_size=30, max_size=100), st.integers(50, 1000))
def test_bytes_may_be_taken_in_any_pieces(lengths: list[int], piece: int) -> None:
    """Round and round: no record is cut, wherever the pieces end, and full buffers take nothing."""
    producer = Producer()
    ring = KernelRing(producer.fd, SIZE)
    expected, found = b"", b""
    for number, length in enumerate(lengths):
        content = bytes([number % 251]) * length
        while not producer.put(content):
            found += take(ring, piece)
        expected += framed(content)
    while ring.fill_bytes:
        found += take(ring, piece)
    ring.close()
    producer.close()
    assert found == expected


def test_a_record_that_ends_with_the_data(rings: tuple[Producer, KernelRing]) -> None:
    """The next one lies at their start, and both can be read at once."""
    producer, ring = rings
    producer.put(b"a" * (SIZE // 2 - 8))
    assert len(take(ring)) == SIZE // 2
    producer.put(b"b" * (SIZE // 2 - 8))
    producer.put(b"c" * 8)
    assert [bytes(view[8:9]) for view in ring.peek(ring.fill_bytes)] == [b"b", b"c"]


def test_a_bell_is_silent_after_it_was_heard() -> None:
    """The reader's position becomes the kernel's."""
    fd = os.memfd_create("bell")
    os.truncate(fd, 2 * mmap.PAGESIZE)
    with mmap.mmap(fd, 2 * mmap.PAGESIZE) as memory:
        memory[mmap.PAGESIZE : mmap.PAGESIZE + 8] = (48).to_bytes(8, "little")
        bell = Bell(fd)
        bell.silence()
        bell.close()
        bell.close()
        assert memory[:8] == (48).to_bytes(8, "little")
    os.close(fd)
