"""Bytes that wait in memory for a disk: none is lost or changes its place, and no error is."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from lo2io.spool.sinks import WriteBehind

if TYPE_CHECKING:
    from collections.abc import Sequence


class SlowDisk:
    """Keeps what it takes, but takes nothing until it is ``ready``."""

    def __init__(self) -> None:
        self.ready = threading.Event()
        self.taken: list[bytes] = []
        self.full = False

    def append(self, views: Sequence[memoryview | bytes]) -> int:
        """Wait, then keep the bytes."""
        self.ready.wait()
        if self.full:
            raise OSError(28, "No space left on device")
        self.taken.append(b"".join(views))
        return len(self.taken[-1])


def test_nobody_waits_for_the_disk() -> None:
    """Bytes are copied at once, since their memory is used again, and come to each file in their order."""
    disk, other = SlowDisk(), SlowDisk()
    begun: list[str] = []
    behind = WriteBehind(lambda: begun.append(threading.current_thread().name))
    memory = bytearray(b"first")
    assert behind.of(disk).append([memoryview(memory), b" and more"]) == 14
    memory[:] = b"later"
    behind.of(other).append([b"another file"])
    behind.of(disk).append([memoryview(memory)])
    assert disk.taken == other.taken == []
    disk.ready.set()
    other.ready.set()
    behind.flush()
    assert disk.taken == [b"first and more", b"later"]
    assert other.taken == [b"another file"]
    assert begun == ["lo2io-write"]
    behind.close()
    behind.close()


def test_memory_has_a_bound() -> None:
    """Who brings more than fits waits until there is room. A piece beyond the bound goes through alone."""
    disk = SlowDisk()
    behind = WriteBehind(lambda: None, most_bytes=10)
    sink = behind.of(disk)
    with ThreadPoolExecutor() as pool:
        sink.append([b"0123456"])
        later = pool.submit(lambda: (sink.append([b"789a"]), sink.append([b"x" * 20])))
        with pytest.raises(TimeoutError):
            later.result(timeout=0.05)
        assert disk.taken == []
        disk.ready.set()
        later.result()
    behind.close()
    assert disk.taken == [b"0123456", b"789a", b"x" * 20]


def test_an_error_ends_all_writing() -> None:
    """Whoever brings bytes next, or waits for them, gets the error of the first write that failed."""
    disk, other = SlowDisk(), SlowDisk()
    behind = WriteBehind(lambda: None)
    behind.of(disk).append([b"does not fit"])
    behind.of(other).append([b"comes too late"])
    disk.full = True
    disk.ready.set()
    other.ready.set()
    with pytest.raises(OSError, match="No space left"):
        behind.flush()
    with pytest.raises(OSError, match="No space left"):
        behind.of(other).append([b"more"])
    behind.close()
    assert disk.taken == other.taken == []


def test_closing_writes_what_waits() -> None:
    """The thread ends with the last bytes; without bytes, there is no thread."""
    WriteBehind(lambda: None).close()
    disk = SlowDisk()
    behind = WriteBehind(lambda: None)
    for number in range(5):
        behind.of(disk).append([str(number).encode()])
    disk.ready.set()
    behind.close()
    assert disk.taken == [b"0", b"1", b"2", b"3", b"4"]
