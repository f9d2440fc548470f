"""Reads of ``/proc``: tasks, file descriptors, mounts. A process that ends during a read is left out.

Names that users choose stand in these files: of threads, files, mounts and cgroups. The kernel escapes no more of them
than blanks, tabs, newlines and backslashes, so newlines alone divide lines. No content of a name makes the functions
raise an error.

Every function takes the ``root`` under which ``proc`` lies, so that tests can build one. Formats: proc(5).
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import re
import struct
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from lo2io.frozen import dataclass
from lo2io.kernel.abi import libc
from lo2io.model import Mount

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ROOT = Path("/")
_OURS = {errno.EMFILE, errno.ENFILE}
"""Errors about the reader. All others are about the task: it has ended, it is another user's, its name is too long."""
_STAT_PPID = 1
_STAT_FLAGS = 6
_STAT_START = 19
_OCTAL = re.compile(rb"\\([0-7]{3})")
_MOUNT_FIELDS = 6
_PF_KTHREAD = 0x00200000
"""include/linux/sched.h"""
_CHUNK_BYTES = 64 << 10
_MOST_U32 = (1 << 32) - 2
"""The largest number that a fact of 32 bits can tell: the next one stands for an unknown number."""
_MOST_DIGITS = 20
_MAX_ENVIRONMENT_BYTES = 8 << 20
"""More than the kernel takes at an exec (fs/exec.c, bprm_stack_limits). A process may claim more later: prctl(2)."""
RING_LINK = b"anon_inode:[io_uring]"
"""The link of an io_uring's descriptor."""
_AT_FDCWD, _AT_STATX_DONT_SYNC = -100, 0x4000
"""include/uapi/linux/fcntl.h"""
_STATX_WANTED, _STATX_BYTES = 0x103, 256
"""Type, mode and inode, and the size of struct statx: include/uapi/linux/stat.h."""
_STATX = struct.Struct("<28xH2xQ96xII")
_STATX_CALL = getattr(libc, "statx", None)
_LISTING_NS, _LISTING_SHARE = 500_000_000, 50
_SHORT_LIST_NS = 100_000
_MAX_LIST_BYTES = 16 << 20
"""The most bytes of fdinfo, and of the list of mappings, that are read."""
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


_CODE = re.compile(
    rb"([0-9a-f]{1,16})-([0-9a-f]{1,16}) ..x. ([0-9a-f]{1,16}) ([0-9a-f]+:[0-9a-f]+) ([0-9]{1,20}) *(.*)", re.DOTALL
)
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


class ListingTime:
    """How much CPU time reads of fdinfo may take: half a second at first, and later a fiftieth of the time.

    An epoll, an inotify and a ring list there what they watch; any file lists its locks. The kernel makes the whole
    list at each read, also for each copy of a descriptor. A read of up to 0.1 ms is free.

    Args:
        clock: The time in nanoseconds.
        used: The CPU time of this thread in nanoseconds.
    """

    def __init__(
        self, clock: Callable[[], int] = time.monotonic_ns, used: Callable[[], int] = time.thread_time_ns
    ) -> None:
        self._clock, self._used = clock, used
        self._left_ns = _LISTING_NS
        self._at_ns = clock()

    def read(self, path: str) -> bytes:
        """The content of fdinfo. Empty: no time is left, or the descriptor has been closed."""
        if self._left_ns <= 0:
            now = self._clock()
            self._left_ns = min(_LISTING_NS, self._left_ns + (now - self._at_ns) // _LISTING_SHARE)
            self._at_ns = now
            if self._left_ns <= 0:
                return b""
        begin = self._used()
        content = _read(path, _MAX_LIST_BYTES)
        spent_ns = self._used() - begin - _SHORT_LIST_NS
        if spent_ns > 0:
            self._left_ns -= spent_ns
            self._at_ns = self._clock()
        return content or b""


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


def is_compat(pid: int, root: Path = ROOT) -> bool:
    """True if a process runs a program of 32 bits.

    Each entry of its auxiliary vector is a key and a value, of the program's word size (create_elf_tables in
    fs/binfmt_elf.c). Keys are small. So what would be the keys of 64 bits are larger only if entries are shorter.
    False if the process has ended, or if the caller may not read the vector.
    """
    content = _read(f"{root}/proc/{pid}/auxv") or b""
    keys = memoryview(content[: len(content) // 8 * 8]).cast("Q")[::2]
    return any(key >> 32 for key in keys)


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
    for line in _lines(_read(root / f"proc/{tid}/status")):
        key, _, value = line.partition(b":")
        if key == b"Tgid":
            return _number(value.strip())
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

    At most :data:`MAX_COMMAND_BYTES` are read. None: the process has ended, is in an exec, or is the kernel's.
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
        return _read(f"{root / 'proc'}/{pid}/environ", _MAX_ENVIRONMENT_BYTES) or b""
    except OSError:
        return b""


def iter_code(pid: int, root: Path = ROOT) -> Iterator[CodeState]:
    """The pieces of files, and of memory without a file, that a process has mapped as code."""
    content = _read(root / f"proc/{pid}/maps", _MAX_LIST_BYTES) or b""
    for line in _lines(content[: content.rfind(b"\n")]):  # the last line may be cut
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
    for line in _lines(_read(root / f"proc/{pid}/cgroup")):
        number, first, rest = line.partition(b":")
        controllers, second, path = rest.partition(b":")
        if first and second and number.isdigit() and path.startswith(b"/"):
            # If several hierarchies have the same controller or name, the first one counts.
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


def iter_fds(
    pid: int,
    root: Path = ROOT,
    clock: Callable[[], int] = time.monotonic_ns,
    lists: ListingTime | None = None,
) -> Iterator[FdState]:
    """Every open file descriptor of a process that could be read. Empty if the process has ended or is another user's.

    Args:
        pid: The process.
        root: The folder above ``proc``.
        clock: Returns nanoseconds. It is read before and after the reads of each descriptor.
        lists: Bounds the time for fdinfo. If no time is left, a descriptor has neither position, flags nor mount, and a
            ring has no facts. None: there is no bound.
    """
    for fd in _iter_numbers(Path(f"{root / 'proc'}/{pid}/fd")):
        state = read_fd(pid, fd, root, clock, lists)
        if state is not None:
            yield state


def read_fd(
    pid: int,
    fd: int,
    root: Path = ROOT,
    clock: Callable[[], int] = time.monotonic_ns,
    lists: ListingTime | None = None,
) -> FdState | None:
    """One descriptor of a process, as for :func:`iter_fds`; None: it has been closed."""
    folder = f"{root / 'proc'}/{pid}"
    begin = clock()
    try:
        path = os.readlink(b"%b/fd/%d" % (os.fsencode(folder), fd))  # noqa: PTH115 - bytes, and as called above
        device, inode, mode = _identity(f"{folder}/fd/{fd}")
    except OSError:
        return None
    place = f"{folder}/fdinfo/{fd}"
    info = _parse_fdinfo((lists.read(place) if lists else _read(place, _MAX_LIST_BYTES)) or b"")
    return FdState(
        fd, path, device, inode, mode,
        info.get(b"pos"), info.get(b"flags"), info.get(b"mnt_id"), begin, clock(),
        _ring_state(info) if path == RING_LINK else None,
    )  # fmt: skip


def _identity(path: str) -> tuple[int, int, int]:
    """Device, inode and mode of a file as the kernel knows them.

    stat(2) would ask the server of a network or FUSE file system, which may never answer.

    Raises:
        OSError: There is no such file.
    """
    answer = ctypes.create_string_buffer(_STATX_BYTES)
    if _STATX_CALL is None or _STATX_CALL(_AT_FDCWD, os.fsencode(path), _AT_STATX_DONT_SYNC, _STATX_WANTED, answer):
        status = os.stat(path)  # noqa: PTH116 - no Path per descriptor. Some C libraries and sandboxes have no statx
        return status.st_dev, status.st_ino, status.st_mode
    mode, inode, major, minor = _STATX.unpack_from(answer)
    return os.makedev(major, minor), inode, mode


def read_mounts(pid: int | str = "self", root: Path = ROOT) -> tuple[Mount, ...]:
    """The mounts that a process sees, from ``mountinfo``. Empty if the process has ended."""
    lines = _lines(_read(root / f"proc/{pid}/mountinfo"))
    return tuple(mount for line in lines if (mount := _parse_mount(line)) is not None)


def _parse_mount(line: bytes) -> Mount | None:
    """Parse ``36 35 98:0 /root /mnt rw,noatime master:1 - ext4 /dev/root rw``; None: the line has another form."""
    before, dash, after = line.partition(b" - ")
    fields, rest = before.split(b" "), after.split(b" ")
    if not dash or len(fields) < _MOUNT_FIELDS or len(rest) < 2:  # noqa: PLR2004 - file system type and source
        return None
    major, _, minor = fields[2].partition(b":")
    number, device = _number(fields[0]), (_number(major), _number(minor))
    if number is None or device[0] is None or device[1] is None:
        return None
    return Mount(
        id=number,
        device=os.makedev(device[0], device[1]),
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

    A ring's file names come before ``UserBufs`` and after all other known lines. Old kernels escape nothing in them. So
    the last line of that key counts, and the first line of any other.
    """
    values: dict[bytes, int] = {}
    for line in _lines(content):
        key, _, value = line.partition(b":")
        base = _FDINFO_BASES.get(key)
        if base is not None and (key not in values or key == b"UserBufs") and len(value) <= 2 * _MOST_DIGITS:
            with contextlib.suppress(ValueError):
                values[key] = int(value, base)
    return values


def _ring_state(info: dict[bytes, int]) -> RingState | None:
    """The state of a ring from the lines of io_uring_show_fdinfo (io_uring/fdinfo.c; fs/io_uring.c before 6.0)."""
    known = {key: number for key, number in info.items() if 0 <= number < _MOST_U32}
    sq_mask, cq_mask, poller = (known.get(key) for key in (b"SqMask", b"CqMask", b"SqThread"))
    state = RingState(
        sq_entries=None if sq_mask is None else sq_mask + 1,
        cq_entries=None if cq_mask is None else cq_mask + 1,
        poller=poller if poller and poller < 1 << 31 else None,
        nr_files=known.get(b"UserFiles"),
        nr_buffers=known.get(b"UserBufs"),
    )
    return None if state == RingState() else state


def _children_by_parent(pid: int, root: Path) -> tuple[int, ...]:
    parents = ((child, read_stat(child, root=root)) for child in iter_pids(root))
    return tuple(child for child, stat in parents if stat is not None and stat.ppid == pid)


def _iter_numbers(folder: Path) -> Iterator[int]:
    try:
        names = os.listdir(folder)  # noqa: PTH208 - called ten times a second for every process: no Path per entry
    except OSError as error:
        if error.errno in _OURS:
            raise
        return
    for name in names:
        if name.isdecimal():
            yield int(name)


def _lines(content: bytes | None) -> list[bytes]:
    """The lines of a file of ``/proc``."""
    return content.split(b"\n") if content else []


def _number(text: bytes) -> int | None:
    """A number of at most 32 bits; None: the text is none."""
    number = int(text) if text.isdigit() and len(text) <= _MOST_DIGITS else -1
    return number if 0 <= number <= _MOST_U32 else None


def _read(path: Path | str, most: int | None = None) -> bytes | None:
    """Read a file, without a file object: this is called for every descriptor of the machine.

    Args:
        path: The file.
        most: End after about so many bytes. None: read all.

    Raises:
        OSError: One of :data:`_OURS`. All others give None.
    """
    fd = -1
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        chunks, size = [], 0
        while (most is None or size < most) and (chunk := os.read(fd, _CHUNK_BYTES)):
            chunks.append(chunk)
            size += len(chunk)
        return b"".join(chunks)
    except OSError as error:
        if error.errno in _OURS:
            raise
        return None
    finally:
        if fd >= 0:
            os.close(fd)
