"""The rights of this process: its capabilities and limits, and trials whether it can open events and rings.

lo2io asks the kernel, never its version. Only trials tell whether recording works; settings explain a refusal.

Facts: capabilities(7), perf_event_open(2), Documentation/admin-guide/sysctl/kernel.rst, ``perf_mmap`` and
``perf_event_open`` in kernel/events/core.c, ``perf_trace_event_perm`` in kernel/trace/trace_event_perf.c, Linux 6.18.
"""

from __future__ import annotations

import ctypes
import errno
import os
import resource
import time
from pathlib import Path

from lo2io.errnos import error_name
from lo2io.frozen import dataclass
from lo2io.kernel import abi

ROOT = Path("/")
CAPABILITIES = {
    "CAP_DAC_READ_SEARCH": 2,
    "CAP_IPC_LOCK": 14,
    "CAP_SYS_PTRACE": 19,
    "CAP_SYS_ADMIN": 21,
    "CAP_SYS_NICE": 23,
    "CAP_PERFMON": 38,
    "CAP_BPF": 39,
}
"""Name of a capability that matters here → its bit (include/uapi/linux/capability.h)."""

NO_BUILD_IDS = "this kernel does not tell the build ids of mapped files (Linux 5.12 and later do)"
_IO_URING_SETUP = 425
"""The call's number on every architecture except Alpha."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """An event that was opened and closed again, or the kernel's refusal."""

    error: int
    """The refusal's errno; 0: the kernel opened the event."""

    @property
    def ok(self) -> bool:
        """True if the kernel opened the event."""
        return self.error == 0

    def __str__(self) -> str:
        return "works" if self.ok else f"{error_name(self.error)}: {os.strerror(self.error)}"


@dataclass(frozen=True, slots=True)
class Attempts:
    """The answers of perf_event_open(2)."""

    any_task: Attempt
    """A software event of every task on a CPU. Recording per CPU needs it."""
    own_task: Attempt
    """A software event of this task, in user mode only. ``--scope inherit`` needs it."""
    tracepoint: Attempt | None
    """A tracepoint of every task, with its raw data; None: the tracepoint's id could not be read."""
    own_tracepoint: Attempt | None
    """A system call's tracepoint of this task; None: the tracepoint's id could not be read."""
    clockid: Attempt
    """An event with a chosen clock (CLOCK_MONOTONIC)."""
    lost: Attempt
    """An event with a count of its lost samples (``PERF_FORMAT_LOST``, Linux 6.0)."""
    cgroup: Attempt | None
    """An event of every task of a cgroup on a CPU. ``--cgroup`` needs it. None: there is no cgroup to try."""


def read_capabilities(root: Path = ROOT) -> frozenset[str]:
    """The capabilities among :data:`CAPABILITIES` that are effective.

    Raises:
        OSError: ``proc/self/status`` does not exist.
    """
    for line in (root / "proc/self/status").read_text(encoding="utf-8", errors="replace").splitlines():
        key, _, value = line.partition(":")
        if key == "CapEff":
            bits = int(value, 16)
            return frozenset(name for name, bit in CAPABILITIES.items() if bits >> bit & 1)
    return frozenset()


def read_paranoid(root: Path = ROOT) -> int | None:
    """``perf_event_paranoid``; None: this kernel has no perf events."""
    return _read_int(root / "proc/sys/kernel/perf_event_paranoid")


def read_perf_mlock_bytes(root: Path = ROOT) -> int | None:
    """The bytes that each user may lock for buffers of one CPU, besides RLIMIT_MEMLOCK; None: no perf events here."""
    kib = _read_int(root / "proc/sys/kernel/perf_event_mlock_kb")
    return None if kib is None else kib << 10


def read_limit(number: int) -> tuple[int | None, int | None]:
    """Soft and hard value of the limit with this ``RLIMIT_`` number; None: unlimited."""
    soft, hard = resource.getrlimit(number)
    return _limit(soft), _limit(hard)


def largest_ring_bytes(cpus: int, mlock_bytes: int, memlock_bytes: int | None, page_bytes: int) -> int | None:
    """The largest buffer that every CPU can have, for users that the limits bind.

    Args:
        cpus: Number of CPUs that get a buffer.
        mlock_bytes: The result of :func:`read_perf_mlock_bytes`.
        memlock_bytes: RLIMIT_MEMLOCK; None: unlimited.
        page_bytes: Size of a page. Each buffer takes one page more than its size.

    Returns:
        Bytes, a power of two of at least a page; 0: not even a page; None: unlimited.
    """
    if memlock_bytes is None:
        return None
    per_cpu = mlock_bytes + memlock_bytes // cpus - page_bytes
    return 0 if per_cpu < page_bytes else 1 << (per_cpu.bit_length() - 1)


def read_event_id(tracefs: Path, event: str) -> int | None:
    """The id of the tracepoint ``subsystem:name``; None: it does not exist or may not be read."""
    return _read_int(tracefs / "events" / event.replace(":", "/") / "id")


def try_events(cpu: int, tracepoint_id: int | None, cgroup: Path | None = None) -> Attempts:
    """Open each kind of event that recording needs, disabled, and close it at once.

    Args:
        cpu: An online CPU.
        tracepoint_id: Id of a system call's tracepoint; None: it could not be read.
        cgroup: Folder of a cgroup in the hierarchy that perf knows; None: there is none.
    """
    user = abi.EXCLUDE_KERNEL | abi.EXCLUDE_HV
    # Clock and lost counts are tried with an event of this task, which every user may open.
    return Attempts(
        any_task=_try(abi.TYPE_SOFTWARE, abi.COUNT_SW_DUMMY, -1, cpu),
        own_task=_try(abi.TYPE_SOFTWARE, abi.COUNT_SW_DUMMY, 0, -1, flags=user),
        tracepoint=None if tracepoint_id is None else _try(abi.TYPE_TRACEPOINT, tracepoint_id, -1, cpu),
        own_tracepoint=None if tracepoint_id is None else _try(abi.TYPE_TRACEPOINT, tracepoint_id, 0, -1, flags=user),
        clockid=_try(abi.TYPE_SOFTWARE, abi.COUNT_SW_DUMMY, 0, -1, flags=user | abi.USE_CLOCKID),
        lost=_try(abi.TYPE_SOFTWARE, abi.COUNT_SW_DUMMY, 0, -1, flags=user, read_format=abi.FORMAT_LOST),
        cgroup=None if cgroup is None else _try_cgroup(cgroup, cpu),
    )


def try_io_uring() -> Attempt:
    """Try whether this process may make rings. Called without parameters, io_uring_setup(2) only checks the right.

    ENOSYS: the kernel has no io_uring. EPERM: io_uring is disabled, or seccomp refuses it.
    """
    made = abi.libc.syscall(ctypes.c_long(_IO_URING_SETUP), ctypes.c_uint(1), None)
    answer = 0 if made == 0 else ctypes.get_errno()
    return Attempt(0 if answer == errno.EFAULT else answer)


def read_io_uring_disabled(root: Path = ROOT) -> str:
    """``kernel.io_uring_disabled``: 0, 1 (not for privileged users and ``io_uring_group``), 2; empty: no such file."""
    try:
        return (root / "proc/sys/kernel/io_uring_disabled").read_text(encoding="ascii").strip()
    except OSError:
        return ""


def _try_cgroup(folder: Path, cpu: int) -> Attempt:
    try:
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        return Attempt(error.errno or 0)
    try:
        return _try(abi.TYPE_SOFTWARE, abi.COUNT_SW_DUMMY, fd, cpu, open_flags=abi.FLAG_PID_CGROUP)
    finally:
        os.close(fd)


def _try(
    kind: int, config: int, pid: int, cpu: int, *, flags: int = 0, read_format: int = 0, open_flags: int = 0
) -> Attempt:
    """Call perf_event_open(2) and close(2)."""
    attr = abi.EventAttr(
        type=kind,
        config=config,
        sample_period=1,
        sample_type=abi.SAMPLE_TYPE,
        read_format=read_format,
        flags=flags | abi.DISABLED,
        clockid=time.CLOCK_MONOTONIC if flags & abi.USE_CLOCKID else 0,
    )
    try:
        fd = abi.event_open(attr, pid, cpu, open_flags)
    except OSError as error:
        return Attempt(error.errno or 0)
    os.close(fd)
    return Attempt(0)


def _limit(value: int) -> int | None:
    return None if value == resource.RLIM_INFINITY else value


def _read_int(path: Path) -> int | None:
    try:
        return int(path.read_text(encoding="ascii"))
    except (OSError, ValueError):
        return None


def tells_code(cpu: int) -> bool:
    """True if this kernel tells mappings of code with the build ids of the files (Linux 5.12)."""
    attr = abi.EventAttr(type=abi.TYPE_SOFTWARE, config=abi.COUNT_SW_DUMMY, flags=abi.DISABLED | abi.CODE)
    try:
        os.close(abi.event_open(attr, -1, cpu))
    except OSError:
        return False
    return True
