"""Three clocks read at one moment: that of samples, CLOCK_MONOTONIC (that of facts) and CLOCK_REALTIME.

Programs cannot read the kernel's perf clock. But renaming a thread leaves a COMM record with this clock's time. So this
thread takes a unique name between two readings of CLOCK_MONOTONIC, and then looks for the record.
"""

from __future__ import annotations

import ctypes
import os
import struct
import time
from typing import TYPE_CHECKING

from lo2io.kernel import abi
from lo2io.model import ClockSync

if TYPE_CHECKING:
    from lo2io.capture.events.opened import OpenEvents

NR_TRIES = 16
"""The number of tries, of which the tightest counts. A try takes about 3 µs."""
_PR_SET_NAME = 15
_PR_GET_NAME = 16
_COMM_OFFSET = abi.RECORD_HEADER.size + 8
"""Header, pid, tid, then the name. The last 8 bytes are the time."""
_TIME = struct.Struct("<Q")


def read_sync(opened: OpenEvents) -> ClockSync | None:
    """Compare the clocks now. The leaders must be enabled.

    Returns:
        The tightest reading, or None if no record came back (a full buffer).
    """
    if opened.clock == "monotonic":
        return min((_read_monotonic() for _ in range(NR_TRIES)), key=lambda sync: sync.error_ns)
    name = ctypes.create_string_buffer(abi.COMM_BYTES)
    abi.libc.prctl(_PR_GET_NAME, name)
    marks = dict(_leave_mark(index) for index in range(NR_TRIES))
    abi.libc.prctl(_PR_SET_NAME, name)
    found = [sync for ring in opened.rings for kind, record in ring.iter_records() if kind == abi.RECORD_COMM
             and (sync := _match(record, marks)) is not None]  # fmt: skip
    return min(found, key=lambda sync: sync.error_ns, default=None)


def _read_monotonic() -> ClockSync:
    before = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
    realtime = time.clock_gettime_ns(time.CLOCK_REALTIME)
    after = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
    middle = (before + after) // 2
    return ClockSync(time_ns=middle, monotonic_ns=middle, realtime_ns=realtime, error_ns=(after - before + 1) // 2)


def _leave_mark(index: int) -> tuple[bytes, tuple[int, int, int, int]]:
    """Rename this thread. Returns the name, and the clocks around it."""
    mark = b"lo2io-%02x%s" % (index, os.urandom(3).hex().encode())
    name = ctypes.c_char_p(mark)
    prctl, monotonic, realtime = abi.libc.prctl, time.CLOCK_MONOTONIC, time.CLOCK_REALTIME
    first = time.clock_gettime_ns(monotonic)
    prctl(_PR_SET_NAME, name)
    second = time.clock_gettime_ns(monotonic)
    real = time.clock_gettime_ns(realtime)
    third = time.clock_gettime_ns(monotonic)
    return mark, (first, second, real, third)


def _match(record: bytes, marks: dict[bytes, tuple[int, int, int, int]]) -> ClockSync | None:
    """The clocks by a COMM record, if its name is one of the marks."""
    name = record[_COMM_OFFSET : _COMM_OFFSET + abi.COMM_BYTES].split(b"\0", 1)[0]
    if name not in marks:
        return None
    first, second, real, third = marks[name]
    middle = (first + second) // 2
    return ClockSync(
        time_ns=_TIME.unpack(record[-8:])[0],
        monotonic_ns=middle,
        # CLOCK_REALTIME was read between the second and third reading. Move it back to the middle of the first two.
        realtime_ns=real - ((second + third) // 2 - middle),
        error_ns=(third - first + 1) // 2,
    )
