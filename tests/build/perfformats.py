"""Layouts of the tracepoints that tests use, and their ``format`` texts in the kernel's own syntax.

Arguments of system calls have the names of ``/sys/kernel/tracing/events/syscalls/*/format`` on Linux 6.18 (8 bytes each
from offset 16 on). Block events are those of 6.18 and, to show that no layout is hard-coded, of 5.10 (``rwbs`` of 8
bytes, no ``ioprio``: ``include/trace/events/block.h`` of both). io_uring's are those of ``tests/data``.

>>> layout = enter_layout("close")
>>> layout.names, layout.text(700).splitlines()[0]
(['__syscall_nr', 'fd'], 'name: sys_enter_close')
>>> layout.pack(700, 10, {"fd": 3})[16:].hex()
'0300000000000000'
"""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

HEADER_PAGE = "\tfield: u64 timestamp;\toffset:0;\tsize:8;\tsigned:0;\n"
COMMON = (
    ("unsigned short common_type", 0, 2, 0),
    ("unsigned char common_flags", 2, 1, 0),
    ("unsigned char common_preempt_count", 3, 1, 0),
    ("int common_pid", 4, 4, 1),
)
CALL_ARGS = {
    "read": "unsigned int fd, char * buf, size_t count",
    "write": "unsigned int fd, const char * buf, size_t count",
    "pread64": "unsigned int fd, char * buf, size_t count, loff_t pos",
    "pwrite64": "unsigned int fd, const char * buf, size_t count, loff_t pos",
    "preadv2": "unsigned long fd, const struct iovec * vec, unsigned long vlen, unsigned long pos_l, "
    "unsigned long pos_h, rwf_t flags",
    "pwritev2": "unsigned long fd, const struct iovec * vec, unsigned long vlen, unsigned long pos_l, "
    "unsigned long pos_h, rwf_t flags",
    "readahead": "int fd, loff_t offset, size_t count",
    "writev": "unsigned long fd, const struct iovec * vec, unsigned long vlen",
    "openat": "int dfd, const char * filename, int flags, umode_t mode",
    "openat2": "int dfd, const char * filename, struct open_how * how, size_t usize",
    "creat": "const char * pathname, umode_t mode",
    "socket": "int family, int type, int protocol",
    "memfd_create": "const char * uname, unsigned int flags",
    "close": "unsigned int fd",
    "close_range": "unsigned int fd, unsigned int max_fd, unsigned int flags",
    "dup": "unsigned int fildes",
    "dup2": "unsigned int oldfd, unsigned int newfd",
    "dup3": "unsigned int oldfd, unsigned int newfd, int flags",
    "fcntl": "unsigned int fd, unsigned int cmd, unsigned long arg",
    "ioctl": "unsigned int fd, unsigned int cmd, unsigned long arg",
    "lseek": "unsigned int fd, off_t offset, unsigned int whence",
    "fsync": "unsigned int fd",
    "sync": "",
    "ftruncate": "unsigned int fd, off_t length",
    "newfstat": "unsigned int fd, struct stat * statbuf",
    "mmap": "unsigned long addr, unsigned long len, unsigned long prot, unsigned long flags, unsigned long fd, "
    "unsigned long off",
    "copy_file_range": "int fd_in, loff_t * off_in, int fd_out, loff_t * off_out, size_t len, unsigned int flags",
    "sendfile64": "int out_fd, int in_fd, loff_t * offset, size_t count",
    "clone": "unsigned long clone_flags, unsigned long newsp, int * parent_tidptr, int * child_tidptr, "
    "unsigned long tls",
    "clone3": "struct clone_args * uargs, size_t size",
    "vfork": "",
    "unshare": "unsigned long unshare_flags",
    "execve": "const char * filename, const char *const * argv, const char *const * envp",
    "io_uring_setup": "u32 entries, struct io_uring_params * params",
    "io_uring_enter": "unsigned int fd, u32 to_submit, u32 min_complete, u32 flags, const void * argp, size_t argsz",
    "io_uring_register": "unsigned int fd, unsigned int opcode, void * arg, unsigned int nr_args",
    "io_setup": "unsigned nr_events, aio_context_t * ctxp",
    "io_submit": "aio_context_t ctx_id, long nr, struct iocb * * iocbpp",
    "io_getevents": "aio_context_t ctx_id, long min_nr, long nr, struct io_event * events, "
    "struct __kernel_timespec * timeout",
    "io_destroy": "aio_context_t ctx",
    "futex": "u32 * uaddr, int op, u32 val, const struct __kernel_timespec * utime, u32 * uaddr2, u32 val3",
    "futex_wait": "void * uaddr, unsigned long val, unsigned long mask, unsigned int flags, "
    "struct __kernel_timespec * timeout, clockid_t clockid",
    "futex_waitv": "struct futex_waitv * waiters, unsigned int nr_futexes, unsigned int flags, "
    "struct __kernel_timespec * timeout, clockid_t clockid",
}
PATH_FIELD = "__filename_val"
"""The string that some calls have since 6.19."""
_SIGNED = ("int ", "off_t ", "loff_t ", "long ")
_SECTORS = (("dev_t dev", 4, 0), ("sector_t sector", 8, 0), ("unsigned int nr_sector", 4, 0))
_BYTES, _ERROR, _CMD = ("unsigned int bytes", 4, 0), ("int error", 4, 1), ("__data_loc char[] cmd", 4, 0)
_FIELD = re.compile(r"field:([^;]+);\s*offset:(\d+);\s*size:(\d+);\s*signed:([01]);")
_IOPRIO, _COMM = ("unsigned short ioprio", 2, 0), ("char comm[16]", 16, 0)


@dataclass(frozen=True)
class Layout:
    """A tracepoint: declaration, offset, size and signedness of each field after the common ones."""

    name: str
    fields: tuple[tuple[str, int, int, int], ...]
    print_fmt: str = '"%d", REC->common_pid'

    @cached_property
    def names(self) -> list[str]:
        """Field names, in order."""
        return [_name(decl) for decl, *_ in self.fields]

    def text(self, event_id: int) -> str:
        """The ``format`` file."""
        rows = [
            f"\tfield:{decl};\toffset:{offset};\tsize:{size};\tsigned:{signed};\n"
            for decl, offset, size, signed in (*COMMON, *self.fields)
        ]
        body = "".join(rows[:4]) + "\n" + "".join(rows[4:])
        return f"name: {self.name.split(':')[1]}\nID: {event_id}\nformat:\n{body}\nprint fmt: {self.print_fmt}\n"

    def pack(self, event_id: int, tid: int, values: Mapping[str, int | bytes]) -> bytes:
        """The raw data of one sample. Strings of dynamic length follow the fields."""
        unknown = set(values) - set(self.names)
        if unknown:
            raise KeyError(f"{self.name} has no {', '.join(sorted(unknown))}")
        raw = bytearray(max((o + s for _, o, s, _ in self.fields), default=8))
        struct.pack_into("<HBBi", raw, 0, event_id, 0, 0, tid)
        for decl, offset, size, _ in self.fields:
            value = values.get(_name(decl), 0)
            if decl.startswith("__data_loc"):
                text = (value if isinstance(value, bytes) else b"") + b"\0"
                value = len(text) << 16 | len(raw)
                raw += text
            if isinstance(value, bytes):
                raw[offset : offset + size] = value[:size].ljust(size, b"\0")
            else:
                raw[offset : offset + size] = (value & ((1 << 8 * size) - 1)).to_bytes(size, "little")
        return bytes(raw)


@cache
def _name(decl: str) -> str:
    return decl.rsplit(maxsplit=1)[-1].split("[", maxsplit=1)[0].lstrip("*")


def _layout(name: str, fields: tuple[tuple[str, int, int], ...]) -> Layout:
    """The fields in a row, each aligned as in C."""
    rows, end = [], 8
    for decl, size, signed in fields:
        align = 1 if decl.startswith("char ") else size
        end += -end % align
        rows.append((decl, end, size, signed))
        end += size
    return Layout(name, tuple(rows))


def enter_layout(call: str, era: str = "6.18") -> Layout:
    """``sys_enter_CALL``; in the era 6.19 with the path as a string."""
    args = [arg for arg in CALL_ARGS[call].split(", ") if arg]
    rows = [(arg, 16 + 8 * i, 8, int(arg.startswith(_SIGNED))) for i, arg in enumerate(args)]
    nr = ("int __syscall_nr", 8, 4, 1)
    if era == "6.19" and call in ("openat", "openat2"):
        rows.append((f"__data_loc char[] {PATH_FIELD}", 16 + 8 * len(args), 4, 0))
    return Layout(f"syscalls:sys_enter_{call}", (nr, *rows))


def exit_layout(call: str) -> Layout:
    """``sys_exit_CALL``."""
    return Layout(f"syscalls:sys_exit_{call}", (("int __syscall_nr", 8, 4, 1), ("long ret", 16, 8, 1)))


def block_layouts(era: str = "6.18") -> list[Layout]:
    """The block events of an era; 5.10 had no ``block_rq_merge``."""
    old = era == "5.10"
    prio = () if old else (_IOPRIO,)
    rwbs = ("char rwbs[8]", 8, 0) if old else ("char rwbs[10]", 10, 0)
    whole = (*_SECTORS, _BYTES, *prio, rwbs, _COMM, _CMD)
    layouts = [_layout(f"block:block_{event}", whole) for event in ("rq_insert", "rq_issue", "rq_merge")]
    return [
        *(layouts[:2] if old else layouts),
        _layout("block:block_rq_requeue", (*_SECTORS, *prio, rwbs, _CMD)),
        _layout("block:block_rq_complete", (*_SECTORS, _ERROR, *prio, rwbs, _CMD)),
        _layout("block:block_bio_frontmerge", (*_SECTORS, rwbs, _COMM)),
        _layout("block:block_bio_queue", (*_SECTORS, rwbs, _COMM)),
    ]


def cgroup_layout() -> Layout:
    """``cgroup_attach_task`` (``include/trace/events/cgroup.h``, 5.10 to 6.18)."""
    numbers = (("int dst_root", 4, 1), ("int dst_level", 4, 1), ("u64 dst_id", 8, 0), ("int pid", 4, 1))
    texts = (("__data_loc char[] dst_path", 4, 0), ("__data_loc char[] comm", 4, 0))
    return _layout("cgroup:cgroup_attach_task", (*numbers, *texts))


SWITCH_PRINT_FMT = (
    '"prev_state=%s%s", (REC->prev_state & 0xff) ? __print_flags(REC->prev_state & 0xff, "|", { 0x00000001, "S" }, '
    '{ 0x00000002, "D" }, { 0x00000004, "T" }, { 0x00000008, "t" }, { 0x00000010, "X" }, { 0x00000020, "Z" }, '
    '{ 0x00000040, "P" }, { 0x00000080, "I" }) : "R", REC->prev_state & 0x100 ? "+" : ""'
)
"""How ``sched_switch`` of 5.10 to 6.18 names states, shortened."""


def switch_layout(print_fmt: str = SWITCH_PRINT_FMT) -> Layout:
    """``sched_switch`` (``include/trace/events/sched.h``, 5.10 to 6.18)."""
    prev = (("char prev_comm[16]", 16, 0), ("pid_t prev_pid", 4, 1), ("int prev_prio", 4, 1), ("long prev_state", 8, 1))
    later = (("char next_comm[16]", 16, 0), ("pid_t next_pid", 4, 1), ("int next_prio", 4, 1))
    return Layout("sched:sched_switch", _layout("", (*prev, *later)).fields, print_fmt)


def ring_layouts(era: str = "6.18") -> list[Layout]:
    """The io_uring events of an era, as in ``tests/data``."""
    folder = Path(__file__).parents[1] / "data" / era / "events" / "io_uring"
    layouts = []
    for path in sorted(folder.glob("*/format")):
        found = _FIELD.findall(path.read_text(encoding="ascii"))
        fields = tuple((decl, int(offset), int(size), int(signed)) for decl, offset, size, signed in found)
        layouts.append(Layout(f"io_uring:{path.parent.name}", fields[len(COMMON) :]))
    return layouts
