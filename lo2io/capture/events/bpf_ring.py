"""One mapped buffer that lo2io's programs in the kernel write: finished records in, views of their bytes out.

``lo2io/bpf/programs/config.h`` says how records lie there. A program may write a record while this module looks, and
another program may interrupt it. The reader may read up to a position before which all records are finished.
"""

from __future__ import annotations

import mmap

from lo2io.capture.events.ring import PAGE_BYTES
from lo2io.native._lib import ffi, lib

_TAIL, _TAKEN, _CROSSED = (ffi.offsetof("struct lo2_bpf_buffer", name) // 8 for name in ("tail", "taken", "crossed"))
_POSITION = (1 << lib.LO2_WRITERS_SHIFT) - 1
"""The bits of ``taken`` that are the position."""


class KernelRing:
    """A ``struct lo2_bpf_buffer`` with ``size`` bytes of data (a power of two), mapped through the map ``fd``.

    Attributes:
        fd: The map's descriptor, which the caller owns.
        size: Size of the data in bytes.

    Raises:
        OSError: The kernel does not map the buffer.
    """

    def __init__(self, fd: int, size: int) -> None:
        self.fd = fd
        self.size = size
        length = lib.LO2_BUFFER_HEAD + size + lib.LO2_BUFFER_SLACK
        self._memory = mmap.mmap(fd, -(-length // PAGE_BYTES) * PAGE_BYTES)
        self._all = memoryview(self._memory)
        self._words = self._all[: lib.LO2_BUFFER_HEAD].cast("Q")
        self._data = self._all[lib.LO2_BUFFER_HEAD :]
        self._finished = int(self._words[_TAIL])
        self._crossed = 0
        """The end of the last record that crossed the end of the data, as far as it matters for unread bytes."""

    @property
    def fill_bytes(self) -> int:
        """Bytes of finished records that are not yet released. Only the drain thread may call this."""
        with ffi.from_buffer("struct lo2_bpf_buffer *", self._memory) as buffer:
            self._finished = int(lib.lo2_finished_records(buffer, self._finished))
        return int(self._finished - self._words[_TAIL])

    @property
    def head(self) -> int:
        """Bytes that programs have written, or begun to write, since the buffer was made. Any thread may call this."""
        return int(self._words[_TAKEN] & _POSITION)

    @property
    def tail(self) -> int:
        """Bytes that were released since then."""
        return int(self._words[_TAIL])

    @property
    def memory(self) -> mmap.mmap:
        """The whole ``struct lo2_bpf_buffer``, for the native part."""
        return self._memory

    @property
    def taken(self) -> float:
        """The share of the buffer that is not free. Any thread may call this."""
        return float(self.head - self._words[_TAIL]) / self.size

    def peek(self, limit: int) -> list[memoryview]:
        """Views of up to ``limit`` of the oldest bytes that :attr:`fill_bytes` has counted: one or two, or none."""
        begin = self._words[_TAIL]
        end = min(self._finished, begin + limit)
        if begin >= self._crossed:  # else a part of this record was read, and a next one may have crossed by now
            self._crossed = self._words[_CROSSED]
        middle = self._crossed if begin < self._crossed <= end else end
        return [self._view(*part) for part in ((begin, middle), (middle, end)) if part[0] < part[1]]

    def _view(self, begin: int, end: int) -> memoryview:
        """The bytes between two positions, in one piece."""
        turn = self._crossed - self._crossed % self.size  # the position at which the data end
        start = begin - turn + self.size if turn <= begin < self._crossed else begin % self.size
        return self._data[start : start + end - begin]

    def release(self, length: int) -> None:
        """Give the oldest ``length`` bytes back to the programs."""
        self._words[_TAIL] += length

    def close(self) -> None:
        """Unmap the buffer. A second call does nothing. The map's fd stays open."""
        for view in (self._words, self._data, self._all):
            view.release()
        self._memory.close()


class Bell:
    """A BPF ring buffer whose records mean nothing: programs wake the reader with them.

    Args:
        fd: The map's descriptor, which the caller owns. It is readable until :meth:`silence`.

    Raises:
        OSError: The kernel does not map the buffer.
    """

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self._reader = mmap.mmap(fd, PAGE_BYTES)
        self._kernel = mmap.mmap(fd, PAGE_BYTES, prot=mmap.PROT_READ, offset=PAGE_BYTES)

    def silence(self) -> None:
        """Take all records out."""
        self._reader[:8] = self._kernel[:8]

    def close(self) -> None:
        """Unmap the buffer. A second call does nothing."""
        self._reader.close()
        self._kernel.close()
