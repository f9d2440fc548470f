"""perf_event_open(2): numbers and structures of the kernel's header.

Source: include/uapi/linux/perf_event.h, Linux 6.18.
"""

from __future__ import annotations

import ctypes
import os
import struct
from fcntl import ioctl
from typing import TYPE_CHECKING

from lo2io.errors import CaptureError

if TYPE_CHECKING:
    from collections.abc import Iterable

TYPE_SOFTWARE = 1
TYPE_TRACEPOINT = 2
COUNT_SW_PAGE_FAULTS_MAJ, COUNT_SW_DUMMY = 6, 9
SAMPLE_TIME = 1 << 2
SAMPLE_RAW = 1 << 10
FORMAT_ID = 1 << 2
FORMAT_LOST = 1 << 4
"""Since Linux 6.0: read(2) also returns how many samples of this event found the buffer full."""
FLAG_PID_CGROUP = 1 << 2
FLAG_FD_CLOEXEC = 1 << 3
IOC_ENABLE = 0x2400
IOC_DISABLE = 0x2401
IOC_SET_OUTPUT = 0x2405
IOC_SET_FILTER = 0x4000_2406 | struct.calcsize("P") << 16
IOC_ID = 0x8000_2407 | struct.calcsize("P") << 16
RECORD_COMM = 3
RECORD_SAMPLE = 9
COMM_BYTES = 16
HEAD_OFFSET = 1024
"""Offset of ``data_head`` in the buffer's control page. ``data_tail`` and ``data_size`` follow."""
TAIL_OFFSET = 1032
SIZE_OFFSET = 1048
RECORD_HEADER = struct.Struct("<IHH")
SAMPLE_TYPE = SAMPLE_TIME | SAMPLE_RAW

DISABLED = 1 << 0
INHERIT = 1 << 1
EXCLUDE_KERNEL = 1 << 5
EXCLUDE_HV = 1 << 6
MMAP = 1 << 8
COMM = 1 << 9
TASK = 1 << 13
WATERMARK = 1 << 14
SAMPLE_ID_ALL = 1 << 18
MMAP2 = 1 << 23
COMM_EXEC = 1 << 24
USE_CLOCKID = 1 << 25
BUILD_ID = 1 << 34
"""Since Linux 5.12: MMAP2 has the file's build id."""
CODE = MMAP | MMAP2 | BUILD_ID
"""Flags of an event that tells mappings of code with the files' build ids."""

_SYSCALL_NUMBER = {"x86_64": 298, "ppc64": 319, "ppc64le": 319, "s390x": 331}
_SYSCALL_GENERIC = 241
"""asm-generic/unistd.h: aarch64, riscv64, loongarch64."""

libc = ctypes.CDLL(None, use_errno=True)


class EventAttr(ctypes.Structure):
    """``struct perf_event_attr``, PERF_ATTR_SIZE_VER5; the bit fields are one word of the flags above."""

    _fields_ = (
        ("type", ctypes.c_uint32),
        ("size", ctypes.c_uint32),
        ("config", ctypes.c_uint64),
        ("sample_period", ctypes.c_uint64),
        ("sample_type", ctypes.c_uint64),
        ("read_format", ctypes.c_uint64),
        ("flags", ctypes.c_uint64),
        ("wakeup_watermark", ctypes.c_uint32),
        ("bp_type", ctypes.c_uint32),
        ("config1", ctypes.c_uint64),
        ("config2", ctypes.c_uint64),
        ("branch_sample_type", ctypes.c_uint64),
        ("sample_regs_user", ctypes.c_uint64),
        ("sample_stack_user", ctypes.c_uint32),
        ("clockid", ctypes.c_int32),
        ("sample_regs_intr", ctypes.c_uint64),
        ("aux_watermark", ctypes.c_uint32),
        ("sample_max_stack", ctypes.c_uint16),
        ("reserved_2", ctypes.c_uint16),
    )


def event_open(attr: EventAttr, pid: int, cpu: int, flags: int = 0) -> int:
    """Call perf_event_open(2). The new fd is closed on exec.

    Args:
        attr: The event.
        pid: The task, or with ``FLAG_PID_CGROUP`` an open folder of the cgroup; -1: every task.
        cpu: The CPU; -1: every CPU.
        flags: Further flags.

    Raises:
        OSError: The kernel refuses.
    """
    attr.size = ctypes.sizeof(attr)
    number = _SYSCALL_NUMBER.get(os.uname().machine, _SYSCALL_GENERIC)
    fd = libc.syscall(
        ctypes.c_long(number),
        ctypes.byref(attr),
        ctypes.c_int(pid),
        ctypes.c_int(cpu),
        ctypes.c_int(-1),
        ctypes.c_ulong(FLAG_FD_CLOEXEC | flags),
    )
    if fd < 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))
    return int(fd)


def event_id(fd: int) -> int:
    """The kernel's number of an open event. Numbers ascend in the order of opening."""
    buffer = bytearray(8)
    ioctl(fd, IOC_ID, buffer)
    return int.from_bytes(buffer, "little")


def read_count(fd: int, *, has_lost: bool) -> tuple[int, int]:
    """The count of an event, and the number of its samples that found the buffer full (0 if the kernel does not tell).

    Raises:
        CaptureError: The answer has another size than the read format demands.
    """
    size = 24 if has_lost else 16
    content = os.read(fd, size)
    if len(content) != size:
        raise CaptureError("read an event's count", f"{len(content)} bytes instead of {size}", "report this kernel")
    values = struct.unpack(f"<{size // 8}Q", content)
    return values[0], values[2] if has_lost else 0


def sum_counts(fds: Iterable[int], *, has_lost: bool) -> tuple[int, int]:
    """The sums of counts and of lost samples of several events, such as an event's instances on one CPU.

    Raises:
        CaptureError: As for :func:`read_count`.
    """
    pairs = [read_count(fd, has_lost=has_lost) for fd in fds]
    return sum(count for count, _ in pairs), sum(lost for _, lost in pairs)
