"""BPF programs' facts about descriptors: a record for each new fact, whole names, the values of stat(2)."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import select
import socket
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from build.bpffiles import NONE, CallRecord, FileRecord, Record, Rig, join, loaded
from lo2io.native._lib import lib
from workloads.disks import device_number, loop_device

from lo2io.bpf import loader
from lo2io.model import CallFilter
from lo2io.units import kernel_dev

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

pytestmark = pytest.mark.requires("root", "tracefs")

CALLS = (
    *(
        "openat",
        "open_tree",
        "fsopen",
        "close",
        "close_range",
        "read",
        "write",
        "pread64",
        "readv",
        "writev",
        "lseek",
        "dup",
        "dup2",
    ),
    *("dup3", "memfd_create", "memfd_secret", "socket", "epoll_create1", "eventfd2", "pidfd_open"),
)
MAGIC = {
    "pipe": 0x50495045,
    "socket": 0x534F434B,
    "anon_inode": 0x09041934,
    "nsfs": 0x6E736673,
    "pidfd": 0x50494446,
}
O_LARGEFILE = 0o100000
FSOPEN, CLOSE_RANGE, MEMFD_SECRET = 430, 436, 447
"""Their numbers, the same everywhere (asm-generic/unistd.h)."""
libc = ctypes.CDLL(None, use_errno=True)
KEPT: list[object] = []
"""Objects that a child must keep until the program has looked at it."""


@pytest.fixture(scope="module")
def rig() -> Iterator[Rig]:
    """Programs for calls with descriptors: loading them for each test would take the time of the tests."""
    with loaded(CALLS) as made:
        yield made


def system_call(number: int, *arguments: object) -> int:
    """A system call for which Python has no function."""
    result = int(libc.syscall(number, *arguments))
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result


def files(records: Sequence[Record], fd: int | None = None) -> list[FileRecord]:
    """The records of files, or of one descriptor."""
    return [record for record in records if isinstance(record, FileRecord) and fd in (None, record.fd)]


def calls(records: Sequence[Record], name: str) -> list[CallRecord]:
    """The calls of a name."""
    return [record for record in records if isinstance(record, CallRecord) and record.name == name]


def link_of(record: FileRecord) -> bytes | None:
    """The link of such a file in /proc/PID/fd; None: not known."""
    if record.flags & lib.LO2_FILE_PSEUDO:
        assert not record.flags & lib.LO2_FILE_WHOLE
        (name,) = record.names
        named = {
            MAGIC["pipe"]: b"pipe:[%d]" % record.inode,
            MAGIC["socket"]: b"socket:[%d]" % record.inode,
            MAGIC["anon_inode"]: b"anon_inode:" + name,
            MAGIC["nsfs"]: b"%s:[%d]" % (name, record.inode),
            MAGIC["pidfd"]: b"anon_inode:[pidfd]",
        }
        return named.get(record.magic, b"/%s (deleted)" % name)
    if not record.flags & lib.LO2_FILE_WHOLE or record.flags & lib.LO2_FILE_MOVED:
        return None
    return join(record.names) + b" (deleted)" * bool(record.flags & lib.LO2_FILE_DELETED)


def compare_links(rig: Rig, work: Callable[[], list[int]]) -> list[FileRecord]:
    """The records of descriptors that calls of ``work`` returned, each with /proc's name."""

    def look() -> list[tuple[int, bytes]]:
        return [(fd, os.fsencode(Path(f"/proc/self/fd/{fd}").readlink())) for fd in work()]

    links, records = rig.watch(look)
    told = [record for record in files(records) if record.of == lib.LO2_FILE_OF_RESULT]
    assert [(record.fd, link_of(record)) for record in told] == links
    return told


def open_kinds(folder: Path) -> list[int]:
    """A descriptor of each kind that a call returns."""
    (folder / "below").mkdir()
    os.chdir(folder)
    below = os.open("below", os.O_RDONLY | os.O_DIRECTORY)
    poll = select.epoll()
    KEPT.append(poll)
    return [
        *(below, poll.fileno(), os.open("x", os.O_RDWR | os.O_CREAT, dir_fd=below)),
        os.open("below/../below/y", os.O_RDWR | os.O_CREAT),
        os.open(os.fsencode(folder) + b"/line\nbreak \xff\xfe", os.O_RDWR | os.O_CREAT),
        os.open(folder, os.O_RDWR | os.O_TMPFILE),
        os.open(folder, os.O_PATH),
        os.memfd_create("a name"),
        os.eventfd(0),
        os.pidfd_open(os.getpid()),
        socket.socket().detach(),
        socket.socket(socket.AF_UNIX).detach(),
        *(os.open(name, os.O_RDONLY) for name in ("/", "/dev/null", "/proc/self/status", "/sys/kernel", "/dev/shm")),
        *(os.open(f"/proc/self/ns/{name}", os.O_RDONLY) for name in ("mnt", "pid_for_children", "net")),
        os.memfd_create("huge", os.MFD_HUGETLB),
        system_call(MEMFD_SECRET, 0),
        system_call(FSOPEN, b"tmpfs", 0),
    ]


def test_every_kind_is_named_as_proc_names_it(rig: Rig, tmp_path: Path) -> None:
    """Files, directories, devices, and files without a directory: one record each, which gives the same name."""
    told = compare_links(rig, lambda: open_kinds(tmp_path))
    assert [record.names[-1:] for record in told[:2]] == [(tmp_path.parts[1].encode(),), (b"[eventpoll]",)]
    assert told[4].names[0] == b"line\nbreak \xff\xfe"
    assert told[5].flags & ~lib.LO2_FILE_CACHED == lib.LO2_FILE_WHOLE | lib.LO2_FILE_DELETED
    assert told[5].links == 0


@pytest.mark.requires("clang")
def test_older_kernels_tell_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before Linux 6.2, each field is read by a call; before 5.19, requests of rings have no CQE in them.

    Programs built for such kernels load, and give the same names.
    """
    machine = {"x86_64": "x86", "aarch64": "arm64"}[os.uname().machine]
    flags = ("-target", "bpf", "-mcpu=v3", "-O2", "-g", f"-D__TARGET_ARCH_{machine}")
    flags += ("-DLO2_CAN_CAST=0", "-Dcqe=member_of_no_kernel")
    built = tmp_path / "programs.o"
    subprocess.run(["clang", *flags, "-c", str(loader.OBJECT.with_suffix(".c")), "-o", str(built)], check=True)
    monkeypatch.setattr(loader, "OBJECT", built)
    with loaded(CALLS) as rig:
        compare_links(rig, lambda: open_kinds(tmp_path))


def test_a_name_of_four_kilobytes_is_whole(rig: Rig, tmp_path: Path) -> None:
    """Sixteen directories of 250 bytes each, with more bytes than a path may have."""
    steps = [bytes([97 + step]) * 250 for step in range(18)]

    def work() -> int:
        os.chdir(tmp_path)
        for step in steps:
            os.mkdir(step)  # noqa: PTH102 # a path that long cannot be
            os.chdir(step)
        return os.open(b"n" * 255, os.O_RDWR | os.O_CREAT)

    fd, records = rig.watch(work)
    (told,) = files(records, fd)
    assert told.flags & ~lib.LO2_FILE_CACHED == lib.LO2_FILE_WHOLE
    assert join(told.names) == os.fsencode(tmp_path) + b"/" + b"/".join(steps) + b"/" + b"n" * 255


def test_thousands_of_levels_are_whole_or_said_not_to_be(rig: Rig) -> None:
    """2,100 nested directories have a whole name; the record of 4,200 says that its name is not whole."""
    folder = tempfile.mkdtemp(dir="/dev/shm")  # in memory: a disk takes seconds

    def work() -> tuple[int, int]:
        os.chdir(folder)
        found = []
        for level in range(4200):
            if level == 2100:  # half the way
                found.append(os.open(".", os.O_RDONLY))
            os.mkdir("d")  # noqa: PTH102 # likewise
            os.chdir("d")
        return found[0], os.open(".", os.O_RDONLY)

    try:
        (half, end), records = rig.watch(work)
    finally:
        subprocess.run(["rm", "-rf", folder], check=True)
    (first,), (last,) = files(records, half), files(records, end)
    assert first.flags == lib.LO2_FILE_WHOLE
    assert join(first.names) == os.fsencode(folder) + b"/d" * 2100
    assert last.flags == 0


def test_facts_are_those_of_stat(rig: Rig, tmp_path: Path) -> None:
    """Inode, device, mode, links, generation, position, flags: equal to those of system calls on it."""
    (tmp_path / "one").write_bytes(b"some bytes")
    os.link(tmp_path / "one", tmp_path / "two")

    def work() -> tuple[int, os.stat_result, int, int, int]:
        inherited = os.open(tmp_path / "two", os.O_RDWR | os.O_APPEND)
        os.lseek(inherited, 7, os.SEEK_SET)
        other = fcntl.fcntl(inherited, fcntl.F_DUPFD_CLOEXEC, 0)
        generation = bytearray(8)
        fcntl.ioctl(other, 0x80087601, generation)  # FS_IOC_GETVERSION
        flags, stat = fcntl.fcntl(other, fcntl.F_GETFL), os.fstat(other)
        os.read(other, 3)
        return other, stat, flags, int.from_bytes(generation[:4], "little"), inherited

    (fd, stat, flags, generation, inherited), records = rig.watch(work)
    (opened,) = files(records, inherited)
    (told,) = files(records, fd)
    assert (told.inode, told.mode, told.links) == (stat.st_ino, stat.st_mode, 2)
    assert told.device == kernel_dev(os.major(stat.st_dev), os.minor(stat.st_dev))
    assert (told.generation, told.open_flags) == (generation, flags | O_LARGEFILE | os.O_CLOEXEC)
    assert (opened.position, told.position) == (0, 10)
    assert (told.of, told.file) == (lib.LO2_FILE_OF_ARGUMENT, opened.file)
    found = subprocess.run(["stat", "-f", "-c", "%t", str(tmp_path)], capture_output=True, text=True, check=True)
    assert told.magic == int(found.stdout, 16)
    assert told.names[0] == b"two"


def test_files_are_told_again_behind_a_border(rig: Rig, tmp_path: Path) -> None:
    """Once in each window, whatever was told before."""
    (tmp_path / "file").write_bytes(bytes(4096))
    inherited = os.open(tmp_path / "file", os.O_RDONLY)

    def work() -> None:
        for _ in range(3):
            for _ in range(5):
                os.pread(inherited, 10, 0)
            rig.kernel.begin_window(min(os.sched_getaffinity(0)))

    _, records = rig.watch(work)
    os.close(inherited)
    found = [record.name if isinstance(record, CallRecord) else record.names[0] for record in records]
    expected = ["pread64", b"file", *["pread64"] * 4] * 3
    assert found == expected


def test_only_news_is_told(rig: Rig, tmp_path: Path) -> None:
    """23 reads of an inherited descriptor give one record; each open gives its own, even if nothing has changed."""
    (tmp_path / "file").write_bytes(bytes(4096))
    inherited = os.open(tmp_path / "file", os.O_RDONLY)

    def work() -> list[int]:
        for _ in range(23):
            os.pread(inherited, 10, 0)
        found = []
        for _ in range(5):
            found.append(os.open(tmp_path / "file", os.O_RDONLY))
            os.pread(found[-1], 10, 0)
            os.close(found[-1])
        return found

    opened, records = rig.watch(work)
    os.close(inherited)
    assert len(calls(records, "pread64")) == 28
    assert [record.of for record in files(records, inherited)] == [lib.LO2_FILE_OF_ARGUMENT]
    assert [(record.fd, record.of) for record in files(records) if record.fd != inherited] == [
        (fd, lib.LO2_FILE_OF_RESULT) for fd in opened
    ]


def test_all_is_news_where_ends_are_not_seen(tmp_path: Path) -> None:
    """dup2 is not recorded, so another file may have the number at any time: each of 23 reads gives a record."""

    def work() -> int:
        fd = os.open(tmp_path / "file", os.O_RDONLY | os.O_CREAT)
        for _ in range(23):
            os.pread(fd, 10, 0)
        return fd

    with loaded(("openat", "pread64", "close", "dup3", "close_range")) as rig:
        fd, records = rig.watch(work)
    results = [record.of for record in files(records, fd)]
    assert results == [lib.LO2_FILE_OF_RESULT] + [lib.LO2_FILE_OF_ARGUMENT] * 23


def test_a_close_is_looked_at_before(rig: Rig, tmp_path: Path) -> None:
    """A descriptor that only its close uses: its record precedes the call's, with the entry's time."""
    inherited = os.open(tmp_path / "file", os.O_RDONLY | os.O_CREAT)
    _, records = rig.watch(lambda: os.close(inherited))
    os.close(inherited)
    told, closed = records
    assert isinstance(told, FileRecord)
    assert isinstance(closed, CallRecord)
    assert (told.fd, told.names[0], closed.name, closed.result) == (inherited, b"file", "close", 0)
    assert told.time_ns <= closed.end_ns
    assert closed.begin_ns in {None, told.time_ns}


def test_a_descriptor_from_elsewhere_is_news(rig: Rig, tmp_path: Path) -> None:
    """A number is closed and comes back over a socket as another file: its next use gives a record."""

    def work() -> int:
        left, right = socket.socketpair()
        KEPT.extend((left, right))
        first = os.open(tmp_path / "first", os.O_RDWR | os.O_CREAT)
        second = os.open(tmp_path / "second", os.O_RDWR | os.O_CREAT)
        socket.send_fds(left, [b"x"], [second])
        os.pread(first, 1, 0)
        os.close(first)
        (come,) = socket.recv_fds(right, 1, 1)[1]
        assert come == first
        os.pread(come, 1, 0)
        os.pread(come, 1, 0)
        return first

    fd, records = rig.watch(work)
    told = files(records, fd)
    assert [(record.of, record.names[0]) for record in told] == [
        (lib.LO2_FILE_OF_RESULT, b"first"),
        (lib.LO2_FILE_OF_ARGUMENT, b"second"),
    ]


def test_a_number_that_was_closed_is_news_on_every_cpu(rig: Rig) -> None:
    """Files of calls that are not recorded get number, addresses and inode of a closed one: each use gives a record."""
    cpus = sorted(os.sched_getaffinity(0))

    def work() -> list[int]:
        found = []
        for _ in range(23):
            found.append(libc.timerfd_create(1, 0))
            for cpu in cpus * 2:
                os.sched_setaffinity(0, {cpu})
                libc.pread(found[-1], None, 0, 0)
            if len(found) % 2:
                os.close(found[-1])
            else:
                system_call(CLOSE_RANGE, found[-1], found[-1], 0)
        return found

    fds, records = rig.watch(work)
    assert len(set(fds)) == 1
    told = [record.of for record in files(records, fds[0])]
    assert told == [lib.LO2_FILE_OF_ARGUMENT] * len(cpus) * len(fds)


def test_copies_have_the_address_of_their_description(rig: Rig, tmp_path: Path) -> None:
    """dup, dup2, dup3 and a child's inherited descriptor are one open file; opening it again makes another."""

    def work() -> list[int]:
        fd = os.open(tmp_path / "file", os.O_RDWR | os.O_CREAT)
        libc.dup2(fd, 900)
        libc.dup3(fd, 901, 0)
        return [fd, libc.dup(fd), 900, 901, os.open(tmp_path / "file", os.O_RDWR)]

    fds, records = rig.watch(work)
    told = {record.fd: record.file for record in files(records)}
    assert len(files(records)) == len(told) == len(fds)
    assert len({told[fd] for fd in fds[:4]}) == 1
    assert told[fds[4]] != told[fds[0]]


def test_positions_and_values_come_with_the_call(rig: Rig, tmp_path: Path) -> None:
    """The position after each call that moves it, bytes of all iovecs; a file without position has none."""

    def work() -> None:
        fd = os.open(tmp_path / "file", os.O_RDWR | os.O_CREAT)
        os.write(fd, bytes(100))
        os.lseek(fd, 7, os.SEEK_SET)
        os.read(fd, 20)
        os.readv(fd, [bytearray(11), bytearray(13)])
        os.writev(fd, [b"abc"] * 1024)
        libc.readv(fd, ctypes.c_void_p(8), 3)
        libc.readv(fd, ctypes.c_void_p(8), 1025)
        out, into = os.pipe()
        os.write(into, b"four")
        os.read(out, 4)
        os.pread(fd, 5, 0)

    _, records = rig.watch(work)
    told = [(call.name, call.result, call.position, call.value) for call in records if isinstance(call, CallRecord)]
    assert [each for each in told if each[0] != "openat"] == [
        ("write", 100, 100, NONE),
        ("lseek", 7, 7, NONE),
        ("read", 20, 27, NONE),
        ("readv", 24, 51, 24),
        ("writev", 3072, 3123, 3072),
        ("readv", -errno.EFAULT, 3123, NONE),
        ("readv", -errno.EINVAL, 3123, NONE),
        ("write", 4, NONE, NONE),
        ("read", 4, NONE, NONE),
        ("pread64", 5, NONE, NONE),
    ]
    pipes = [link_of(record) for record in files(records) if record.magic == MAGIC["pipe"]]
    assert len(pipes) == 2
    assert len(set(pipes)) == 1


@pytest.mark.requires("mkfs.ext4")
def test_other_devices_are_left_out(tmp_path: Path) -> None:
    """Calls on files of other disks are counted and not written; tmpfs, pipes and other files pass."""
    (tmp_path / "mine").write_bytes(b"mine")
    (tmp_path / "disk").mkdir()
    with loop_device(tmp_path / "image") as device:
        subprocess.run(["mkfs.ext4", "-q", str(device)], check=True)
        subprocess.run(["mount", str(device), str(tmp_path / "disk")], check=True)
        try:
            (tmp_path / "disk/other").write_bytes(b"other")
            limits = CallFilter(devices=(device_number(device),), droppable=frozenset({"pread64"}))

            def work() -> None:
                for path, times in ((tmp_path / "mine", 5), (tmp_path / "disk/other", 3), ("/proc/self/status", 2)):
                    fd = os.open(path, os.O_RDONLY)
                    for _ in range(times):
                        os.pread(fd, 1, 0)
                    os.close(fd)

            with loaded(("openat", "close", "close_range", "dup2", "dup3", "pread64"), limits) as rig:
                _, records = rig.watch(work)
                assert rig.kernel.count_left_out() == 5
        finally:
            subprocess.run(["umount", str(tmp_path / "disk")], check=True)
    assert len(calls(records, "pread64")) == 3 + 2
    assert len(files(records)) == 3  # one for each open
