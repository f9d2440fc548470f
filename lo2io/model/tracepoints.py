"""The meaning of tracepoints: roles of samples, kinds of calls, and the entries of ``tracepoints/*.toml``."""

from __future__ import annotations

import enum
from dataclasses import field
from typing import TYPE_CHECKING

from lo2io.frozen import dataclass

if TYPE_CHECKING:
    from collections.abc import Mapping


class Role(enum.IntEnum):
    """The effect of a tracepoint's sample on an operation (``enum lo2_role``)."""

    IGNORED = 0
    ENTER = 1
    EXIT = 2
    RQ_INSERT = 3
    RQ_ISSUE = 4
    RQ_COMPLETE = 5
    RQ_REQUEUE = 6
    RQ_MERGE = 7
    BIO_FRONTMERGE = 8
    BIO_FLUSH = 9
    SCHED_SWITCH = 10
    CGROUP_ATTACH = 11
    RING_CREATE = 12
    RING_REGISTER = 13
    RING_SUBMIT = 14
    RING_REFUSE = 15
    RING_FILE_GET = 16
    RING_PUNT = 17
    RING_POLL_ARM = 18
    RING_WAKE = 19
    RING_TASK_WORK = 20
    RING_LOCAL_WORK = 21
    RING_LINK = 22
    RING_FAIL_LINK = 23
    RING_DEFER = 24
    RING_WAIT = 25
    RING_OVERFLOW = 26
    RING_SHORT_WRITE = 27
    RING_COMPLETE = 28


class CallClass(enum.IntEnum):
    """The purpose of a call. Each call belongs to one class, and reports sum calls up by class."""

    READ = 0
    WRITE = 1
    COPY = 2
    SYNC = 3
    OPEN = 4
    CLOSE = 5
    SEEK = 6
    STAT = 7
    DIRECTORY = 8
    NAME = 9
    ATTRIBUTE = 10
    LOCK = 11
    POLL = 12
    MEMORY = 13
    RING = 14
    DESCRIPTOR = 15
    SOCKET = 16
    PROCESS = 17
    FUTEX = 18
    OTHER = 19
    PIPE = 20
    """Reads, writes and copies of pipes."""
    TERMINAL = 21
    """Reads, writes and copies of terminals."""
    SPECIAL = 22
    """Reads, writes and copies of other devices and of made-up files. Sockets have ``SOCKET``, eventfds ``POLL``."""

    @classmethod
    def of_kind(cls, kind: CallKind) -> CallClass:
        """The class with the name of a kind, or ``OTHER`` if no class has this name."""
        return cls.__members__.get(kind.name, cls.OTHER)


class CallKind(enum.IntEnum):
    """The effect of a system call on fds and positions (``enum lo2_call_kind``)."""

    META = 0
    OPEN = 1
    CLOSE = 2
    CLOSE_RANGE = 3
    READ = 4
    WRITE = 5
    SEEK = 6
    SYNC = 7
    DUP = 8
    DUP_TO = 9
    FCNTL = 10
    COPY = 11
    CLONE = 12
    UNSHARE = 13
    IOCTL = 14
    RING_SETUP = 15
    RING_ENTER = 16
    AIO_SETUP = 17
    AIO_SUBMIT = 18
    AIO_COLLECT = 19
    AIO_DESTROY = 20
    RING_REGISTER = 21


class Returns(enum.IntEnum):
    """The return value of a successful call (``enum lo2_returns``)."""

    ZERO = 0
    BYTES = 1
    FD = 2
    OFFSET = 3
    COUNT = 4
    VALUE = 5


class RequestOp(enum.IntEnum):
    """The operation of a block request (``enum lo2_rq_op``)."""

    READ = 0
    WRITE = 1
    FLUSH = 2
    DISCARD = 3
    SECURE_ERASE = 4
    WRITE_ZEROES = 5
    ZONE = 6
    OTHER = 7


class RingPath(enum.IntEnum):
    """The way of a ring's request to its end (``enum lo2_ring_path``)."""

    UNKNOWN = 0
    INLINE = 1
    DEVICE = 2
    POLL = 3
    WORKER = 4
    REFUSED = 5
    CANCELLED = 6


class RingStatus(enum.IntEnum):
    """The end of a ring's request (``enum lo2_ring_status``)."""

    COMPLETED = 0
    IN_FLIGHT = 1
    CANCELLED = 2
    REFUSED = 3
    TORN_DOWN = 4
    SILENT = 5
    UNSEEN = 6


class OpcodeTrait(enum.IntFlag):
    """The meaning of a request's fields for an opcode of io_uring, and its end (``enum lo2_opcode_trait``)."""

    FILE = 1
    TWO_FILES = 2
    LOOKS_UP = 4
    OFFSET = 8
    LENGTH = 16
    COUNTED = 32
    MAY_VECTOR = 64
    RANGE = 128
    NEW_SIZE = 256
    FIXED_BUFFER = 512
    QUEUES = 1024
    POLLED = 2048
    REPEATS = 4096
    NOTIFIES = 8192
    UNBOUNDED = 16384
    READINESS = 32768
    TIMES_OUT = 65536
    OPEN_FLAGS = 131072
    CHANGES_PLACES = 262144
    UNKNOWN = 524288
    NONE = 0


class IocbCommand(enum.IntEnum):
    """The command of a libaio request: ``IOCB_CMD_...`` of include/uapi/linux/aio_abi.h."""

    PREAD = 0
    PWRITE = 1
    FSYNC = 2
    FDSYNC = 3
    POLL = 5
    NOOP = 6
    PREADV = 7
    PWRITEV = 8


@dataclass(frozen=True, slots=True)
class OpcodeSpec:
    """One opcode of io_uring in ``tracepoints/io_uring.toml``."""

    number: int
    name: str
    """The kernel's name for it: ``READ_FIXED``."""
    kind: CallKind
    """Its effect on descriptors, as the kind of a system call."""
    returns: Returns
    io_mode: str
    """``read``, ``write``, ``flush`` or ``none``."""
    summary: str = ""
    traits: OpcodeTrait = OpcodeTrait.NONE
    iocbs: tuple[IocbCommand, ...] = ()
    """The commands of libaio that do the same."""


@dataclass(frozen=True, slots=True)
class FieldLayout:
    """One field of a tracepoint's raw data, as in the kernel's ``format`` file.

    ``offset`` and ``size`` are bytes. ``is_data_loc`` marks a dynamic array: 4 bytes that hold
    ``length << 16 | offset``. ``is_array`` marks an array of fixed size (``char rwbs[10]``).
    """

    name: str
    ctype: str
    offset: int
    size: int
    signed: bool
    is_array: bool = False
    is_data_loc: bool = False


@dataclass(frozen=True, slots=True)
class EventFormat:
    """A tracepoint of one kernel: full name, id (= common_type), and fields in file order."""

    name: str
    """``subsystem:event``."""
    id: int
    fields: tuple[FieldLayout, ...]

    def field(self, name: str) -> FieldLayout | None:
        """The first field with this name, or None."""
        return next((f for f in self.fields if f.name == name), None)


@dataclass(frozen=True, slots=True)
class CompatArgument:
    """The source of a 64-bit call's argument in the same call of a 32-bit program."""

    low: int = 0
    """The number of the argument, or of its low half, from 1 (``ebx``) to 6 (``ebp``); 0: the value is zero."""
    high: int = 0
    """The number of the argument with the high half; 0: none."""
    meaning: str = ""
    """``signed``: extended by its sign; ``pages``: counts pages of 4 KiB; ``lock``: a command of fcntl64, whose locks
    have numbers of their own; ``result``: points to 64 bits that are the call's result. Each is a ``LO2_COMPAT_...`` of
    ``lo2io/bpf/programs/config.h``."""


@dataclass(frozen=True, slots=True)
class CompatCall:
    """A call of 32-bit programs."""

    number: int
    """Its own number, or the first argument of socketcall."""
    args: tuple[CompatArgument, ...]
    """Arguments of the 64-bit call, in order; further ones are zero."""
    is_socketcall: bool = False
    memory: int = 0
    """The number of the argument that points to the others, each a word of 32 bits; 0: all are in registers."""


@dataclass(frozen=True, slots=True)
class CallSpec:
    """One system call in ``tracepoints/syscalls.toml``."""

    name: str
    """Suffix of the tracepoints: ``newfstat`` for ``syscalls:sys_enter_newfstat``."""
    abi_name: str
    """The name that programmers use: ``fstat``. It names the region in the trace."""
    group: str
    core: bool
    """True if it is recorded by default."""
    kind: CallKind
    returns: Returns
    io_mode: str
    """``read``, ``write``, ``flush`` or ``none``: the OTF2 I/O operation mode."""
    region_role: str
    """OTF2 region role: ``file_io`` or ``file_io_metadata`` …"""
    fields: Mapping[str, str]
    """Role (fd, fd2, count, offset, flags, path, wanted, context, address) → field name in the entry's format."""
    vectored: bool = False
    fixed_flags: int | None = None
    """Flags as for open(2), for a call of kind OPEN without a flags argument (creat)."""
    fd_unless: int = 0
    """With any of these bits in ``flags``, the kernel ignores ``fd`` (mmap)."""
    report_class: CallClass = CallClass.OTHER
    """Its class in reports. A transfer may get another class by its file, and ``fcntl`` by its command."""
    waits: bool = False
    """True if it waits for others by its nature, whatever its file is."""
    waits_if: int = 0
    """With any of these bits in ``flags``, it waits (clone)."""
    synced_if: int = 0
    """With any of these bits in ``flags``, a write waits for the device (pwritev2)."""
    accounts: tuple[str, ...] = ()
    """``read``: it adds to rchar and syscr of ``/proc/PID/io``; ``write``: to wchar and syscw."""
    reads_first: bool = False
    """True if its paths are read at its entry: later they mean something else, or their memory is gone."""
    ends_many: bool = False
    """True if it ends descriptors that it does not name one by one."""
    only_slept: bool = False
    """True if programs in the kernel record it only if its thread lost the CPU meanwhile."""
    summary: str = ""
    syncs: str = ""
    """The part of one file that it brings to the device while it runs: ``file`` or ``data``; empty: neither."""
    numbers: Mapping[str, int] = field(default_factory=dict)
    """Machine, as in ``uname -m`` → the call's number."""
    compat: tuple[CompatCall, ...] = ()
    """The same calls of 32-bit programs on x86-64."""

    @property
    def enter_event(self) -> str:
        """Full name of the entry tracepoint."""
        return f"syscalls:sys_enter_{self.name}"

    @property
    def exit_event(self) -> str:
        """Full name of the exit tracepoint."""
        return f"syscalls:sys_exit_{self.name}"


@dataclass(frozen=True, slots=True)
class TracepointSpec:
    """One tracepoint that is no system call: its role, and the role of each field."""

    event: str
    role: Role
    fields: Mapping[str, str]
    """Role (dev, sector …; for io_uring also ctx, req …) → field name in the format."""
    group: str
    core: bool
    optional: bool = False
    """True if recording works on kernels without it."""
    filter: str = ""
    """A filter in the kernel's own syntax. Samples that do not pass are neither taken nor counted."""
    summary: str = ""
    operation: str = ""
    """The operation that it belongs to; empty: none."""
    newer: str = ""
    """The tracepoint that replaced it: a kernel has one of the two."""
    interrupts: bool = False
    """True if the event may happen in an interrupt. A program may then miss some, so perf counts them, too."""
    other_names: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Role → names of the field in other kernels. The first of ``fields`` and these that exists counts."""
