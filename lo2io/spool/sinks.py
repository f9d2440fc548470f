"""Takers of bytes. One of them hands the bytes to a thread of its own, for callers who must not wait for a disk.

write(2) waits while the file system commits its journal, and while too many pages are dirty: for tenths of a second. A
buffer that the kernel fills is full within hundredths. So the bytes wait here, and the buffer is free again.
"""

from __future__ import annotations

import threading
from collections import deque
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

MOST_BYTES: Final = 128 << 20
"""Bytes that wait in memory at most: a second of what one CPU records if it does nothing but cheap calls."""


class Sink(Protocol):
    """Takes bytes in order."""

    def append(self, views: Sequence[memoryview | bytes]) -> int:
        """Take all bytes of ``views``; return their number.

        Raises:
            DiskFullError: There is no room for the bytes (``spool/writer.py``).
        """
        ...


class WriteBehind:
    """Writes bytes to files in the order in which they came. The first error ends all writing.

    Args:
        begin: Called by the thread that writes, before all else. The thread starts with the first bytes.
        most_bytes: Bytes that wait in memory at most. Whoever brings more waits.
    """

    def __init__(self, begin: Callable[[], object], most_bytes: int = MOST_BYTES) -> None:
        self._begin = begin
        self._most_bytes = most_bytes
        self._waiting: deque[tuple[Sink, list[bytes], int]] = deque()
        self._held = 0
        """Bytes that wait, and those that are just being written."""
        self._error: Exception | None = None
        self._ended = False
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None

    def of(self, file: Sink) -> Sink:
        """A sink whose bytes this writes to ``file``."""
        return _Behind(self, file)

    def append(self, file: Sink, views: Sequence[memoryview | bytes]) -> int:
        """Take a copy of all bytes of ``views`` for ``file``; return their number.

        Raises:
            DiskFullError: There is no room for earlier bytes.
            OSError: Earlier bytes could not be written.
        """
        parts = [bytes(view) for view in views]
        size = sum(map(len, parts))
        with self._changed:
            self._changed.wait_for(lambda: self._error or not self._held or self._held + size <= self._most_bytes)
            if self._error is not None:
                raise self._error
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="lo2io-write", daemon=True)
                self._thread.start()
            self._waiting.append((file, parts, size))
            self._held += size
            self._changed.notify_all()
        return size

    def flush(self) -> None:
        """Wait until all bytes are written.

        Raises:
            DiskFullError: There is no room for them.
            OSError: They could not be written.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._error or not self._held)
            if self._error is not None:
                raise self._error

    def close(self) -> None:
        """Write what waits, and end the thread. A second call does nothing."""
        with self._changed:
            self._ended = True
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        self._begin()
        while (item := self._next()) is not None:
            file, parts, size = item
            try:
                file.append(parts)
            except Exception as error:  # noqa: BLE001 - raised again in the thread that brings bytes
                self._fail(error)
                return
            with self._changed:
                self._held -= size
                self._changed.notify_all()

    def _next(self) -> tuple[Sink, list[bytes], int] | None:
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._ended)
            return self._waiting.popleft() if self._waiting else None

    def _fail(self, error: Exception) -> None:
        with self._changed:
            self._error = error
            self._waiting.clear()
            self._held = 0
            self._changed.notify_all()


class _Behind:
    def __init__(self, behind: WriteBehind, file: Sink) -> None:
        self._behind = behind
        self._file = file

    def append(self, views: Sequence[memoryview | bytes]) -> int:
        return self._behind.append(self._file, views)
