"""The meaning of the tests' tracepoints, not read from tracepoints/: the oracle has its own knowledge."""

from __future__ import annotations

from dataclasses import dataclass, replace

from lo2io.catalog.catalog import PAGE_FAULT, load_catalog
from lo2io.model import CallKind, CallSpec, OpcodeSpec, Returns, Role, TracepointSpec

O_CREAT_WRONLY_TRUNC = 0o1101
O_RDWR = 2
MAP_ANONYMOUS = 0x20
RING_FLAGS = 0o2000002
"""O_RDWR and O_CLOEXEC: the flags of every ring's descriptor."""


@dataclass(frozen=True)
class Specs:
    """The parts of a catalog that the engine uses."""

    calls: tuple[CallSpec, ...]
    tracepoints: tuple[TracepointSpec, ...]
    opcodes: tuple[OpcodeSpec, ...]

    @property
    def rows(self) -> tuple[CallSpec, ...]:
        """What operations may be, as in the catalog."""
        return (*self.calls, PAGE_FAULT)


def _call(name: str, kind: CallKind, returns: Returns, roles: str = "", **more: object) -> CallSpec:
    """``roles`` reads ``fd=fd count=count``."""
    fields = dict(pair.split("=") for pair in roles.split())
    return CallSpec(name, name, "test", True, kind, returns, "none", "file_io", fields, **more)  # type: ignore[arg-type]


def _calls() -> tuple[CallSpec, ...]:
    kind, returns = CallKind, Returns
    opened = "flags=flags path=filename"
    return (
        _call("read", kind.READ, returns.BYTES, "fd=fd count=count"),
        _call("write", kind.WRITE, returns.BYTES, "fd=fd count=count"),
        _call("pread64", kind.READ, returns.BYTES, "fd=fd count=count offset=pos"),
        _call("pwrite64", kind.WRITE, returns.BYTES, "fd=fd count=count offset=pos"),
        _call("preadv2", kind.READ, returns.BYTES, "fd=fd count=vlen offset=pos_l flags=flags", vectored=True),
        _call("writev", kind.WRITE, returns.BYTES, "fd=fd count=vlen", vectored=True),
        _call("openat", kind.OPEN, returns.FD, opened),
        _call("openat2", kind.OPEN, returns.FD, "path=filename"),
        _call("creat", kind.OPEN, returns.FD, fixed_flags=O_CREAT_WRONLY_TRUNC),
        _call("socket", kind.OPEN, returns.FD),
        _call("memfd_create", kind.OPEN, returns.FD, fixed_flags=O_RDWR),
        _call("close", kind.CLOSE, returns.ZERO, "fd=fd"),
        _call("close_range", kind.CLOSE_RANGE, returns.ZERO, "fd=fd fd2=max_fd flags=flags"),
        _call("dup", kind.DUP, returns.FD, "fd=fildes"),
        _call("dup2", kind.DUP_TO, returns.FD, "fd=oldfd fd2=newfd"),
        _call("dup3", kind.DUP_TO, returns.FD, "fd=oldfd fd2=newfd flags=flags"),
        _call("fcntl", kind.FCNTL, returns.VALUE, "fd=fd flags=cmd count=arg"),
        _call("ioctl", kind.IOCTL, returns.VALUE, "fd=fd flags=cmd"),
        _call("lseek", kind.SEEK, returns.OFFSET, "fd=fd offset=offset flags=whence"),
        _call("fsync", kind.SYNC, returns.ZERO, "fd=fd"),
        _call("sync", kind.SYNC, returns.ZERO),
        _call("ftruncate", kind.META, returns.ZERO, "fd=fd"),
        _call("newfstat", kind.META, returns.ZERO, "fd=fd"),
        _call("mmap", kind.META, returns.VALUE, "fd=fd count=len flags=flags", fd_unless=MAP_ANONYMOUS),
        _call("copy_file_range", kind.COPY, returns.BYTES, "fd=fd_in fd2=fd_out count=len flags=flags"),
        _call("sendfile64", kind.COPY, returns.BYTES, "fd=in_fd fd2=out_fd count=count"),
        _call("clone", kind.CLONE, returns.VALUE, "flags=clone_flags"),
        _call("clone3", kind.CLONE, returns.VALUE),
        _call("vfork", kind.CLONE, returns.VALUE),
        _call("unshare", kind.UNSHARE, returns.ZERO, "flags=unshare_flags"),
        _call("execve", kind.META, returns.ZERO, reads_first=True),
        _call("io_uring_setup", kind.RING_SETUP, returns.FD, "count=entries", vectored=True, fixed_flags=RING_FLAGS),
        _call(
            "io_uring_enter",
            kind.RING_ENTER,
            returns.COUNT,
            "fd=fd count=to_submit wanted=min_complete flags=flags",
            vectored=True,
        ),
        _call("io_uring_register", kind.RING_REGISTER, returns.VALUE, "fd=fd flags=opcode"),
        _call("io_setup", kind.AIO_SETUP, returns.ZERO, "count=nr_events", vectored=True),
        _call("io_submit", kind.AIO_SUBMIT, returns.COUNT, "context=ctx_id count=nr", vectored=True),
        _call("io_getevents", kind.AIO_COLLECT, returns.COUNT, "context=ctx_id wanted=min_nr count=nr", vectored=True),
        _call("io_destroy", kind.AIO_DESTROY, returns.ZERO, "context=ctx"),
        _call("futex", kind.META, returns.VALUE, "flags=op address=uaddr"),
        _call("futex_wait", kind.META, returns.VALUE, "flags=flags address=uaddr"),
        _call("futex_waitv", kind.META, returns.VALUE, "flags=flags"),
        replace(_call("readahead", kind.META, returns.ZERO, "fd=fd count=count offset=offset"), group="advice"),
        _call("pwritev2", kind.WRITE, returns.BYTES, "fd=fd count=vlen offset=pos_l flags=flags", vectored=True),
    )


def _tracepoint(event: str, role: Role, extra: str) -> TracepointSpec:
    fields = {name: name for name in f"dev sector nr_sector rwbs {extra}".split()}
    return TracepointSpec(f"block:block_{event}", role, fields, "block", core=True)


SPECS = Specs(
    _calls(),
    (
        _tracepoint("rq_insert", Role.RQ_INSERT, "bytes"),
        _tracepoint("rq_issue", Role.RQ_ISSUE, "bytes"),
        _tracepoint("rq_merge", Role.RQ_MERGE, "bytes"),
        _tracepoint("rq_requeue", Role.RQ_REQUEUE, ""),
        _tracepoint("rq_complete", Role.RQ_COMPLETE, "error"),
        _tracepoint("bio_frontmerge", Role.BIO_FRONTMERGE, ""),
        _tracepoint("bio_queue", Role.BIO_FLUSH, ""),
        TracepointSpec(
            "sched:sched_switch",
            Role.SCHED_SWITCH,
            {"prev_tid": "prev_pid", "prev_state": "prev_state", "next_tid": "next_pid"},
            "sched",
            core=False,
        ),
        TracepointSpec(
            "cgroup:cgroup_attach_task",
            Role.CGROUP_ATTACH,
            {"tid": "pid", "path": "dst_path", "hierarchy": "dst_root"},
            "cgroup",
            core=False,
        ),
        *(spec for spec in load_catalog().tracepoints if spec.role >= Role.RING_CREATE),
    ),
    load_catalog().opcodes,
)
CALL_NAMES = tuple(call.name for call in SPECS.calls)
