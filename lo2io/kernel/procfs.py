"""Reads of ``/proc``: tasks, file descriptors, mounts. A process that ends during a read is left out.

Every function takes the ``root`` under which ``proc`` lies, so that tests can build one. Formats: proc(5).
"""

from __future__ import annotations

import contextlib
import os
import re
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from lo2io.frozen import dataclass
from lo2io.model import Mount

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ROOT = Path("/")
_GONE = (FileNotFoundError, ProcessLookupError, NotADirectoryError, PermissionError)
"""Errors about a task that has ended, or that belongs to another user."""
_STAT_PPID = 1
_STAT_FLAGS = 6
_STAT_START = 19
_OCTAL = re.compile(rb"\\([0-7]{3})")
_MOUNT_FIELDS = 6
_PF_KTHREAD = 0x00200000
"""include/linux/sched.h"""
_CHUNK_BYTES = 64 << 10
RING_LINK = b"anon_inode:[io_uring]"
"""The link of an io_uring's descriptor."""
_FDINFO_BASES = {
    b"pos": 10, b"flags": 8, b"mnt_id": 10,
    b"SqMask": 0, b"CqMask": 0, b"SqThread": 10, b"UserFiles": 10, b"UserBufs": 10,
}  # fmt: skip
"""Key of a line of fdinfo that is read → base of its number; 0: as written."""
MAX_COMMAND_BYTES = 4096
"""The most bytes of a command line: as many as the programs in the kernel read (LO2_MAX_COMMAND)."""
CGROUP_V1_ORDER = (b"perf_event", b"blkio", b"memory", b"pids", b"cpu")
"""Controllers of cgroup v1 whose path shows the container of a process, best first."""
_CONTAINER = re.compile(
    # With cgroupfs the folder's name is the container's id; with systemd's driver it is RUNTIME-ID.scope; containerd
    # without that driver has SLICE:RUNTIME:ID. A process that watches a container (crio-conmon-ID.scope) does not
    # match.
    r"(?:(?:.*:)?(?:docker|cri-containerd|containerd|nerdctl|crio|libpod)[-:]([0-9a-f]{12,64})|([0-9a-f]{64}))"
    r"(?:\.scope)?"
)
_SHORT_ID = re.compile(r"[0-9a-f]{12,63}")
_RUNTIME_FOLDERS = ("docker", "libpod", "libpod_parent", "crio")


_CODE = re.compile(rb"([0-9a-f]+)-([0-9a-f]+) ..x. ([0-9a-f]+) ([0-9a-f]+:[0-9a-f]+) ([0-9]+) *(.*)")
"""A line of ``/proc/PID/maps``."""


class CodeState(NamedTuple):
    """A line of ``/proc/PID/maps`` about code."""

    begin: int
    end: int
    offset: int
    file: tuple[bytes, int]
    """Device and inode; the inode is 0 without a file."""
    path: bytes
    """As written there: empty without a file, ``[vdso]`` and its like, or a path."""


@dataclass(frozen=True, slots=True)
class TaskStat:
    """One line of ``/proc/PID/task/TID/stat``."""

    tid: int
    comm: bytes
    state: str
    """The state by proc(5): R, S, D, Z, T …"""
    ppid: int
    start_ticks: int
    """Start in clock ticks after boot. It tells a task from a later one of the same number."""
    is_kernel: bool = False
    """True for a kernel thread, which has neither user memory nor descriptors."""


@dataclass(frozen=True, slots=True)
class RingState:
    """Facts of fdinfo about an io_uring. None: the kernel does not tell, or could not at that moment.

    Kernels before 5.16 do not tell sizes. If the ring's lock is taken (io_uring/fdinfo.c does not wait for it), a
    kernel may not tell an existing SQ thread, or nothing at all.
    """

    sq_entries: int | None = None
    cq_entries: int | None = None
    poller: int | None = None
    """tid of the SQ thread."""
    nr_files: int | None = None
    """Number of registered files."""
    nr_buffers: int | None = None


@dataclass(frozen=True, slots=True)
class FdState:
    """A file descriptor, true at some time in [begin_ns, end_ns]."""

    fd: int
    path: bytes
    """readlink(2)'s answer, unchanged: a path, ``pipe:[5]``, ``… (deleted)``."""
    device: int
    """``st_dev``."""
    inode: int
    mode: int
    position: int | None
    flags: int | None
    """``O_*`` flags as in fdinfo, with ``O_CLOEXEC``."""
    mount: int | None
    begin_ns: int
    end_ns: int
    ring: RingState | None = None
    """For an io_uring's descriptor, the known facts about the ring."""


def iter_pids(root: Path = ROOT) -> Iterator[int]:
    """Every process."""
    return _iter_numbers(root / "proc")


def iter_tids(pid: int, root: Path = ROOT) -> Iterator[int]:
    """Every thread of a process. Empty if the process has ended."""
    return _iter_numbers(root / f"proc/{pid}/task")


def read_stat(pid: int, tid: int | None = None, root: Path = ROOT) -> TaskStat | None:
    """The state of a thread, or without ``tid`` of the process; None: it has ended."""
    name = f"proc/{pid}/stat" if tid is None else f"proc/{pid}/task/{tid}/stat"
    content = _read(f"{root}/{name}")
    if content is None:
        return None
    # The name may hold spaces and parentheses, so it ends at the last parenthesis.
    head, closing, tail = content.rpartition(b")")
    number, opening, comm = head.partition(b"(")
    fields = tail.split()
    if not (closing and opening) or len(fields) <= _STAT_START:
        return None
    return TaskStat(
        tid=int(number),
        comm=comm,
        state=fields[0].decode("ascii", "replace"),
        ppid=int(fields[_STAT_PPID]),
        start_ticks=int(fields[_STAT_START]),
        is_kernel=bool(int(fields[_STAT_FLAGS]) & _PF_KTHREAD),
    )


def read_last_pid(root: Path = ROOT) -> int | None:
    """The number of the newest task, alive or not; None: the kernel does not tell.

    This is the last word of ``loadavg`` (fs/proc/loadavg.c).
    """
    words = (_read(root / "proc/loadavg") or b"").split()
    return int(words[-1]) if words and words[-1].isdigit() else None


def read_boot_id(root: Path = ROOT) -> str:
    """The random number of this boot, as text; empty: the kernel does not tell (drivers/char/random.c)."""
    return (_read(root / "proc/sys/kernel/random/boot_id") or b"").decode("ascii", "replace").strip()


def read_process_of(tid: int, root: Path = ROOT) -> int | None:
    """The process of a thread; None: there is no such thread."""
    for line in (_read(root / f"proc/{tid}/status") or b"").splitlines():
        key, _, value = line.partition(b":")
        if key == b"Tgid":
            return int(value)
    return None


def read_children(pid: int, root: Path = ROOT) -> tuple[int, ...]:
    """The living children of all threads of ``pid``, in no order.

    Kernels without CONFIG_PROC_CHILDREN have no list of children. Then every process' parent is looked up.
    """
    found: list[int] = []
    for tid in iter_tids(pid, root):
        content = _read(root / f"proc/{pid}/task/{tid}/children")
        if content is None:
            if (root / f"proc/{pid}/task/{tid}/stat").exists():
                return _children_by_parent(pid, root)
            continue
        found.extend(int(number) for number in content.split())
    return tuple(found)


def read_command(pid: int, root: Path = ROOT) -> tuple[bytes, bool] | None:
    """The arguments of a process, each ended by a zero byte, or its title instead; and True if they were cut.

    At most :data:`MAX_COMMAND_BYTES` are read. None: the process has ended, is amid an exec, or is the kernel's.
    """
    try:
        with (root / f"proc/{pid}/cmdline").open("rb") as file:
            content = file.read(MAX_COMMAND_BYTES + 1)
    except OSError:
        return None
    return (content[:MAX_COMMAND_BYTES], len(content) > MAX_COMMAND_BYTES) if content else None


def read_environment(pid: int, root: Path = ROOT) -> bytes:
    """The environment with which a process began: each ``NAME=value`` ended by a zero byte. Empty: it is not known."""
    try:
        return _read(f"{root / 'proc'}/{pid}/environ") or b""
    except OSError:  # it is amid an exec, or another user's
        return b""


def iter_code(pid: int, root: Path = ROOT) -> Iterator[CodeState]:
    """The pieces of files, and of memory without a file, that a process has mapped as code."""
    content = _read(root / f"proc/{pid}/maps")
    for line in (content or b"").splitlines():
        match = _CODE.match(line)
        if match:
            begin, end, offset = (int(match[number], 16) for number in (1, 2, 3))
            yield CodeState(begin, end, offset, (match[4], int(match[5])), match[6])


def read_cgroup(pid: int, root: Path = ROOT, controller: bytes | None = None) -> tuple[int, bytes] | None:
    """The cgroup of a process: hierarchy number (0: v2) and path; None: the process has ended.

    With ``controller``, the hierarchy of this v1 controller counts (empty: v2), if it exists. Otherwise v2 counts. But
    if the process is in the root of v2, the first hierarchy of :data:`CGROUP_V1_ORDER` counts in which it is not in the
    root: some machines mount both versions and have their containers in v1. Format: cgroups(7).
    """
    found: dict[bytes, tuple[int, bytes]] = {}
    for line in (_read(root / f"proc/{pid}/cgroup") or b"").split(b"\n"):
        number, first, rest = line.partition(b":")
        controllers, second, path = rest.partition(b":")
        if first and second and number.isdigit() and path.startswith(b"/"):
            # The first one counts, should several hierarchies have the same controller or name.
            for name in controllers.split(b","):
                found.setdefault(name, (int(number), path))
    if controller in found:
        return found[controller]
    best = found.get(b"")
    if best is None or best[1] == b"/":
        named = (found[name] for name in CGROUP_V1_ORDER if name in found)
        best = next((cgroup for cgroup in named if cgroup[1] != b"/"), best)
    return best or next(iter(found.values()), None)


def container_id(path: str) -> str | None:
    """The id of the container whose cgroup has this path; None: the path names no container.

    The function knows the paths of docker, containerd, cri-o, podman and Kubernetes, with both of their cgroup drivers.
    For containers within containers, it returns the inner one.
    """
    parts = path.split("/")
    for parent, name in zip(reversed(parts[:-1]), reversed(parts[1:]), strict=True):
        match = _CONTAINER.fullmatch(name)
        if match:
            return match[1] or match[2]
        if parent in _RUNTIME_FOLDERS and _SHORT_ID.fullmatch(name):
            return name
    return None


def iter_fds(pid: int, root: Path = ROOT, clock: Callable[[], int] = time.monotonic_ns) -> Iterator[FdState]:
    """Every open file descriptor of a process that could be read. Empty if the process has ended or is another user's.

    Args:
        pid: The process.
        root: The folder above ``proc``.
        clock: Returns nanoseconds. It is read before and after the reads of each descriptor.
    """
    for fd in _iter_numbers(Path(f"{root / 'proc'}/{pid}/fd")):
        state = read_fd(pid, fd, root, clock)
        if state is not None:
            yield state


def read_fd(pid: int, fd: int, root: Path = ROOT, clock: Callable[[], int] = time.monotonic_ns) -> FdState | None:
    """One descriptor of a process, as for :func:`iter_fds`; None: it has been closed."""
    folder = f"{root / 'proc'}/{pid}"
    begin = clock()
    try:
        path = os.readlink(b"%b/fd/%d" % (os.fsencode(folder), fd))  # noqa: PTH115 - bytes, and as called above
        status = os.stat(f"{folder}/fd/{fd}")  # noqa: PTH116 - no Path per descriptor
    except OSError:
        return None
    info = _parse_fdinfo(_read(f"{folder}/fdinfo/{fd}") or b"")
    return FdState(
        fd, path, status.st_dev, status.st_ino, status.st_mode,
        info.get(b"pos"), info.get(b"flags"), info.get(b"mnt_id"), begin, clock(),
        _ring_state(info) if path == RING_LINK else None,
    )  # fmt: skip


def read_mounts(pid: int | str = "self", root: Path = ROOT) -> tuple[Mount, ...]:
    """The mounts that a process sees, from ``mountinfo``. Empty if the process has ended."""
    content = _read(root / f"proc/{pid}/mountinfo") or b""
    return tuple(mount for line in content.splitlines() if (mount := _parse_mount(line)) is not None)


def _parse_mount(line: bytes) -> Mount | None:
    """Parse ``36 35 98:0 /root /mnt rw,noatime master:1 - ext4 /dev/root rw``; None: the line has another form."""
    before, dash, after = line.partition(b" - ")
    fields, rest = before.split(), after.split(b" ")
    if not dash or len(fields) < _MOUNT_FIELDS or len(rest) < 2:  # noqa: PLR2004 - file system type and source
        return None
    major, _, minor = fields[2].partition(b":")
    return Mount(
        id=int(fields[0]),
        device=os.makedev(int(major), int(minor)),
        mount_point=unescape_mount(fields[4]),
        fs_type=unescape_mount(rest[0]),
        source=unescape_mount(rest[1]),
    )


def unescape_mount(text: bytes) -> str:
    r"""The text of a field of mountinfo, which has ``\040`` for a space.

    The kernel's mangle() escapes blanks, backslash and # in this way (fs/proc_namespace.c).
    """
    return os.fsdecode(_OCTAL.sub(lambda match: bytes([int(match[1], 8) & 0xFF]), text))


def _parse_fdinfo(content: bytes) -> dict[bytes, int]:
    """The numbers of the known lines. ``flags`` is octal.

    The first line of a key counts. Further down, old kernels print names of files, which may hold newlines.
    """
    values: dict[bytes, int] = {}
    for line in content.splitlines():
        key, _, value = line.partition(b":")
        base = _FDINFO_BASES.get(key)
        if base is not None and key not in values:
            with contextlib.suppress(ValueError):
                values[key] = int(value, base)
    return values


def _ring_state(info: dict[bytes, int]) -> RingState | None:
    """The state of a ring from the lines of io_uring_show_fdinfo (io_uring/fdinfo.c; fs/io_uring.c before 6.0)."""
    sq_mask, cq_mask, poller = (info.get(key) for key in (b"SqMask", b"CqMask", b"SqThread"))
    state = RingState(
        sq_entries=None if sq_mask is None else sq_mask + 1,
        cq_entries=None if cq_mask is None else cq_mask + 1,
        poller=None if poller is None or poller <= 0 else poller,
        nr_files=info.get(b"UserFiles"),
        nr_buffers=info.get(b"UserBufs"),
    )
    return None if state == RingState() else state


def _children_by_parent(pid: int, root: Path) -> tuple[int, ...]:
    parents = ((child, read_stat(child, root=root)) for child in iter_pids(root))
    return tuple(child for child, stat in parents if stat is not None and stat.ppid == pid)


def _iter_numbers(folder: Path) -> Iterator[int]:
    try:
        names = os.listdir(folder)  # noqa: PTH208 - called ten times a second for every process: no Path per entry
    except _GONE:
        return
    for name in names:
        if name.isdecimal():
            yield int(name)


def _read(path: Path | str) -> bytes | None:
    """Read a file, without a file object: this is called for every descriptor of the machine."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except _GONE:
        return None
    try:
        chunks = []
        while chunk := os.read(fd, _CHUNK_BYTES):
            chunks.append(chunk)
        return b"".join(chunks)
    except _GONE:
        return None
    finally:
        os.close(fd)
