"""What is drained from a buffer makes room in it."""

from __future__ import annotations

from types import SimpleNamespace

from lo2io.capture.events.ring import RELEASE_BYTES
from lo2io.capture.session import Session


class Buffer:
    """A buffer with bytes in it: each may be taken once."""

    def __init__(self, content: bytes) -> None:
        self.content = content
        self.tail = 0

    @property
    def fill_bytes(self) -> int:
        """Bytes that are not released."""
        return len(self.content) - self.tail

    def peek(self, size: int) -> list[memoryview]:
        """The oldest ones."""
        return [memoryview(self.content)[self.tail : self.tail + size]]

    def release(self, size: int) -> None:
        """Give their place back."""
        self.tail += size


class File:
    """Takes bytes."""

    def __init__(self) -> None:
        self.content = b""

    def append(self, views: list[memoryview]) -> int:
        """Write all of them."""
        self.content += b"".join(views)
        return sum(map(len, views))


def test_each_byte_is_written_once_and_released() -> None:
    """Of perf's buffers and of the programs', in steps."""
    content = bytes(range(251)) * (2 * RELEASE_BYTES // 251) + b"end"
    for drain, rings in (("drain_ring", "rings"), ("drain_kernel_ring", "_kernel_rings")):
        session, buffer, file = Session.__new__(Session), Buffer(content), File()
        kernel = SimpleNamespace(ring_place=lambda _: (0, False))
        session.opened = SimpleNamespace(rings=[buffer], kernel=kernel)  # type: ignore[assignment]
        session._writer = SimpleNamespace(rings=[file])  # type: ignore[assignment]
        session._kernel_rings = [buffer] if rings == "_kernel_rings" else []  # type: ignore[list-item]
        session._between = None
        session.file_of = lambda _cpu, _of_samples, file=file: file  # type: ignore[method-assign,misc]
        getattr(session, drain)(0)
        assert (file.content == content, buffer.fill_bytes) == (True, 0)


def test_what_finds_no_room_on_the_disk_is_released_unwritten() -> None:
    """A full buffer would not take the record by which the clocks are compared once more."""
    session, buffers = Session.__new__(Session), [Buffer(b"calls"), Buffer(b"samples")]
    session.opened = SimpleNamespace(rings=buffers[:1])  # type: ignore[assignment]
    session._kernel_rings, session._ended_ns = buffers[1:], 1  # type: ignore[assignment]
    session._drain_rest()
    assert [buffer.fill_bytes for buffer in buffers] == [0, 0]
