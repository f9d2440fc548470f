"""A ring that programs in the kernel write, played by a file: only finished records are handed on, in order."""

from __future__ import annotations

import mmap
import os
import struct
from typing import TYPE_CHECKING

import pytest

from lo2io.capture.events.bpf_ring import KernelRing

if TYPE_CHECKING:
    from collections.abc import Iterator

PAGE = mmap.PAGESIZE
SIZE = 2 * PAGE
BUSY, PASSED_OVER = 1 << 31, 1 << 30
HEADER = struct.Struct("<II")


class Producer:
    """The kernel's side, as kernel/bpf/ringbuf.c has it: the data twice in a row behind two pages of positions."""

    def __init__(self) -> None:
        self.fd = os.memfd_create("ring")
        os.truncate(self.fd, 2 * PAGE + 2 * SIZE)
        self.memory = mmap.mmap(self.fd, 2 * PAGE + 2 * SIZE)
        self.position = 0

    @property
    def released(self) -> int:
        """The reader's position."""
        return int.from_bytes(self.memory[:8], "little")

    def put(self, content: bytes, flags: int = 0) -> int:
        """Reserve and write a record; where it begins."""
        begin = self.position
        record = HEADER.pack(len(content) | flags, 0) + content
        record += bytes(-len(record) % 8)
        first = min(len(record), SIZE - begin % SIZE)
        self._write(begin % SIZE, record[:first])
        self._write(0, record[first:])
        self.position += len(record)
        self.memory[PAGE : PAGE + 8] = self.position.to_bytes(8, "little")
        return begin

    def finish(self, begin: int, length: int) -> None:
        """A record that was reserved is written now."""
        self._write(begin % SIZE, length.to_bytes(4, "little"))

    def _write(self, at: int, content: bytes) -> None:
        for start in (2 * PAGE + at, 2 * PAGE + SIZE + at):
            self.memory[start : start + len(content)] = content


@pytest.fixture
def rings() -> Iterator[tuple[Producer, KernelRing]]:
    """The kernel's side and the reader's."""
    producer = Producer()
    ring = KernelRing(producer.fd, SIZE)
    yield producer, ring
    ring.close()
    ring.close()
    producer.memory.close()
    os.close(producer.fd)


def take(ring: KernelRing) -> bytes:
    """All that can be read, released."""
    content = b"".join(bytes(view) for view in ring.peek(ring.fill_bytes))
    ring.release(len(content))
    return content


def test_finished_records_come_out_as_they_lie(rings: tuple[Producer, KernelRing]) -> None:
    """With their headers and what pads them; those that were given up again, too."""
    producer, ring = rings
    assert (ring.fill_bytes, ring.peek(100)) == (0, [])
    producer.put(b"x" * 16)
    producer.put(b"y" * 3, PASSED_OVER)
    expected = HEADER.pack(16, 0) + b"x" * 16 + HEADER.pack(3 | PASSED_OVER, 0) + b"y" * 3 + bytes(5)
    assert ring.fill_bytes == len(expected) == ring.head
    assert ring.taken == len(expected) / SIZE
    assert take(ring) == expected
    assert (ring.fill_bytes, producer.released) == (0, len(expected))


def test_nothing_behind_an_unfinished_record_is_read(rings: tuple[Producer, KernelRing]) -> None:
    """A later record would come before it in the file."""
    producer, ring = rings
    producer.put(b"a" * 8)
    begin = producer.put(b"b" * 8, BUSY)
    producer.put(b"c" * 8)
    assert take(ring) == HEADER.pack(8, 0) + b"a" * 8
    assert take(ring) == b""
    producer.finish(begin, 8)
    assert take(ring) == b"".join(HEADER.pack(8, 0) + letter * 8 for letter in (b"b", b"c"))


def test_bytes_may_be_taken_in_any_pieces(rings: tuple[Producer, KernelRing]) -> None:
    """Round and round, a record is read from where it begins, wherever the pieces end."""
    producer, ring = rings
    expected, found = b"", b""
    for number in range(300):
        content = bytes([number % 251]) * (number % 97)
        producer.put(content)
        expected += HEADER.pack(len(content), 0) + content + bytes(-len(content) % 8)
        while ring.fill_bytes > 40:
            (piece,) = ring.peek(40)
            found += bytes(piece)
            piece.release()
            ring.release(40)
    found += take(ring)
    assert len(expected) > 2 * SIZE
    assert found == expected


def test_a_length_that_cannot_be_ends_the_walk(rings: tuple[Producer, KernelRing]) -> None:
    """No record is longer than the kernel's position allows."""
    producer, ring = rings
    begin = producer.put(b"z" * 8)
    producer.finish(begin, 4000)
    assert ring.fill_bytes == 0
