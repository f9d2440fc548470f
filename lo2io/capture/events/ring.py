"""One mapped perf buffer: bytes that the kernel wrote in, views of them out.

The protocol (perf_event_open(2), and kernel/events/ring_buffer.c): the kernel moves ``data_head`` after it has written
bytes. The reader moves ``data_tail`` after it has read them. Neither passes the other.
"""

from __future__ import annotations

import mmap
from typing import TYPE_CHECKING

from lo2io.kernel.abi import HEAD_OFFSET, RECORD_HEADER, SIZE_OFFSET, TAIL_OFFSET

if TYPE_CHECKING:
    from collections.abc import Iterator

PAGE_BYTES = mmap.PAGESIZE
RELEASE_BYTES = 512 << 10
"""The kernel gets space back in steps of this size, so it need not wait until a whole buffer is written to the disk."""


class Ring:
    """A buffer of ``size`` bytes (a power of two), mapped through the event ``fd`` that owns it.

    Raises:
        OSError: EPERM: the user may not lock this much memory; ENOMEM: there is not enough memory.
    """

    def __init__(self, fd: int, size: int) -> None:
        self._map = mmap.mmap(fd, PAGE_BYTES + size)
        view = memoryview(self._map)
        # These are loads and stores of one aligned u64. Releasing the GIL around writev orders them after the data's.
        self._head = view[HEAD_OFFSET : HEAD_OFFSET + 8].cast("Q")
        self._tail = view[TAIL_OFFSET : TAIL_OFFSET + 8].cast("Q")
        with view[SIZE_OFFSET : SIZE_OFFSET + 8].cast("Q") as field:
            self.size = field[0] or size
        self._data = view[PAGE_BYTES : PAGE_BYTES + self.size]
        self._views = (view, self._head, self._tail, self._data)

    @property
    def fill_bytes(self) -> int:
        """Bytes that are written and not yet released."""
        return int(self._head[0] - self._tail[0])

    @property
    def head(self) -> int:
        """Bytes that the kernel has written since the buffer was opened."""
        return int(self._head[0])

    @property
    def tail(self) -> int:
        """Bytes that were released since then."""
        return int(self._tail[0])

    @property
    def head_view(self) -> memoryview:
        """``data_head`` itself, for the native part."""
        return self._head

    def peek(self, limit: int) -> list[memoryview]:
        """Views of up to ``limit`` of the oldest bytes: one, or two if the bytes wrap at the buffer's end, or none."""
        tail = self._tail[0]
        length = min(self._head[0] - tail, limit)
        start = tail % self.size
        first = min(length, self.size - start)
        pieces = [self._data[start : start + first]] if length else []
        if length > first:
            pieces.append(self._data[: length - first])
        return pieces

    def release(self, length: int) -> None:
        """Give the oldest ``length`` bytes back to the kernel."""
        self._tail[0] += length

    def iter_records(self) -> Iterator[tuple[int, bytes]]:
        """Type and whole bytes of each record in the buffer. Nothing is released."""
        content = b"".join(self.peek(self.size))
        position = 0
        while position + RECORD_HEADER.size <= len(content):
            kind, _, size = RECORD_HEADER.unpack_from(content, position)
            if size < RECORD_HEADER.size:
                return
            yield kind, content[position : position + size]
            position += size

    def close(self) -> None:
        """Unmap the buffer. A second call does nothing."""
        for view in self._views:
            view.release()
        self._map.close()
