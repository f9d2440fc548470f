"""One mapped buffer that lo2io's programs in the kernel write: finished records in, views of their bytes out.

The mapping (kernel/bpf/ringbuf.c, Linux 6.18) has a page with the reader's position, which user space writes, a page
with the kernel's position, and the data twice in a row. So no record is cut at the buffer's end. The kernel first
reserves a record and finishes it later. The reader may read up to the first record that is not finished.
"""

from __future__ import annotations

import mmap

from lo2io.capture.events.ring import PAGE_BYTES
from lo2io.native._lib import ffi, lib


class KernelRing:
    """A BPF ring buffer of ``size`` bytes (a power of two), mapped through the map ``fd``.

    Attributes:
        fd: The map's descriptor, which the caller owns. It becomes readable when a program wakes the reader.
        size: Size in bytes.

    Raises:
        OSError: The kernel does not map the buffer.
    """

    def __init__(self, fd: int, size: int) -> None:
        self.fd = fd
        self.size = size
        self._own = mmap.mmap(fd, PAGE_BYTES)
        self._kernels = mmap.mmap(fd, PAGE_BYTES + 2 * size, prot=mmap.PROT_READ, offset=PAGE_BYTES)
        own, kernels = memoryview(self._own), memoryview(self._kernels)
        self._tail = own[:8].cast("Q")
        self._head = kernels[:8].cast("Q")
        self._data = kernels[PAGE_BYTES:]
        self._views = (own, kernels, self._tail, self._head, self._data)
        self._finished = int(self._tail[0])

    @property
    def fill_bytes(self) -> int:
        """Bytes of finished records that are not yet released. Only the drain thread may call this."""
        with ffi.from_buffer("uint8_t[]", self._data) as data, ffi.from_buffer("uint64_t[]", self._head) as head:
            self._finished = lib.lo2_finished_records(data, self.size, self._finished, head)
        return int(self._finished - self._tail[0])

    @property
    def head(self) -> int:
        """Bytes that the kernel has written, or begun to write, since the buffer was made."""
        return int(self._head[0])

    @property
    def taken(self) -> float:
        """The share of the buffer that is not free. Any thread may call this."""
        return float(self._head[0] - self._tail[0]) / self.size

    def peek(self, limit: int) -> list[memoryview]:
        """Views of up to ``limit`` of the oldest bytes that :attr:`fill_bytes` has counted. Without bytes, no view."""
        length = min(self._finished - self._tail[0], limit)
        start = self._tail[0] % self.size
        return [self._data[start : start + length]] if length else []

    def release(self, length: int) -> None:
        """Give the oldest ``length`` bytes back to the kernel."""
        self._tail[0] += length

    def close(self) -> None:
        """Unmap the buffer. A second call does nothing. The map's fd stays open."""
        for view in self._views:
            view.release()
        self._own.close()
        self._kernels.close()
