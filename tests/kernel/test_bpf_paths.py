"""BPF programs' facts about path arguments, and names across mounts."""

from __future__ import annotations

import ctypes
import os
import signal
import struct
import subprocess
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from build.bpffiles import NONE, CallRecord, FileRecord, PathRecord, Record, Rig, join, loaded
from lo2io.native._lib import lib
from workloads.disks import loop_device

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

pytestmark = pytest.mark.requires("root", "tracefs")

CALLS = (
    *("openat", "openat2", "open_tree", "fsmount", "close", "newfstatat", "rename", "renameat", "unlink", "mkdir"),
    *("chdir", "chroot", "execve", "utimensat", "link", "linkat", "access", "faccessat"),
    *("close_range", "dup2", "dup3", "readlink"),
)
OPEN_TREE, FSOPEN, FSCONFIG, FSMOUNT, OPENAT2 = 428, 430, 431, 432, 437
"""Numbers of calls, the same everywhere (asm-generic/unistd.h)."""
NEWFSTATAT = {"x86_64": 262}.get(os.uname().machine, 79)
AT_FDCWD, AT_EMPTY_PATH, OPEN_TREE_CLONE, CONFIG_CREATE, IN_ROOT = -100, 0x1000, 1, 6, 0x10
CLONE_NEWNS, MS_BIND, MS_REC, MS_PRIVATE, MNT_DETACH = 0x20000, 0x1000, 0x4000, 1 << 18, 2
WHOLE = lib.LO2_FILE_WHOLE
FIRST = {"chdir", "chroot", "execve"}
libc = ctypes.CDLL(None, use_errno=True)


@pytest.fixture(scope="module")
def rig() -> Iterator[Rig]:
    """Programs for calls with paths."""
    with loaded(CALLS) as made:
        yield made


def given(records: Sequence[Record]) -> list[tuple[PathRecord, CallRecord]]:
    """Each path with its call: the one just left, or the next one if the path is read before the call."""
    found = []
    for place, record in enumerate(records):
        if isinstance(record, PathRecord):
            before = [each for each in records[:place] if isinstance(each, CallRecord)]
            call = before[-1] if before and before[-1].end_ns == record.time_ns else None
            if call is None:
                call = next(each for each in records[place:] if isinstance(each, CallRecord))
                assert call.begin_ns in {None, record.time_ns}
                assert call.name in FIRST
            found.append((record, call))
    return found


def paths(records: Sequence[Record], *names: str) -> list[tuple[str, int, bytes, bytes]]:
    """For each path of these calls: call, place, text, and the directory at which it begins, which is known."""
    found = [(call.name, record) for record, call in given(records) if not names or call.name in names]
    assert {record.flags for _, record in found} <= {WHOLE}
    return [(name, record.place, record.path, join(record.names)) for name, record in found]


def opened(records: Sequence[Record], fd: int) -> FileRecord:
    """The last record of a descriptor."""
    *_, found = (each for each in records if isinstance(each, FileRecord) and each.fd == fd)
    return found


def fail(function: object, *arguments: object, **named: object) -> None:
    """A call that the kernel refuses."""
    with pytest.raises(OSError, match="Errno"):
        function(*arguments, **named)  # type: ignore[operator]


def test_a_path_that_its_own_call_wrote_over_is_not_told(rig: Rig, tmp_path: Path) -> None:
    """Readlink and stat may get one piece of memory for both arguments. Memory beside it raises no doubt."""
    link = os.fsencode(tmp_path / "link")
    (tmp_path / "link").symlink_to("/somewhere/else")

    def work() -> None:
        text = ctypes.create_string_buffer(link, 4096)
        assert libc.readlink(text, ctypes.byref(text, len(link) + 1), 1000) == len("/somewhere/else")
        assert libc.readlink(text, ctypes.byref(text, len(link)), 1000) == len("/somewhere/else")
        text = ctypes.create_string_buffer(b"." * 100 + link, 4096)
        assert libc.readlink(ctypes.byref(text, 100), text, 100) == len("/somewhere/else")
        assert libc.readlink(ctypes.byref(text, 100), ctypes.byref(text, 86), 100) == len("/somewhere/else")
        text = ctypes.create_string_buffer(link, 4096)
        assert libc.readlink(text, text, 4096) == len("/somewhere/else")
        text = ctypes.create_string_buffer(b"/", 4096)
        assert libc.syscall(NEWFSTATAT, AT_FDCWD, text, text, 0) == 0

    _, records = rig.watch(work)
    told = [(call.name, record.path, bool(record.flags & lib.LO2_PATH_CUT)) for record, call in given(records)]
    unknown = ("readlink", b"", True)
    known = ("readlink", link, False)
    assert told == [known, unknown, known, unknown, unknown, ("newfstatat", b"", True)]


def test_paths_come_with_where_they_begin(rig: Rig, tmp_path: Path) -> None:
    """Of calls without a new descriptor: from the working directory, a descriptor, the root."""
    (tmp_path / "below").mkdir()
    (tmp_path / "below/file").touch()

    def work() -> None:
        os.chdir(tmp_path)
        below = os.open("below", os.O_RDONLY)
        fail(os.open, "missing", os.O_RDONLY)
        fail(os.open, "lost", os.O_RDONLY, dir_fd=below)
        fail(os.open, "/not/there", os.O_RDONLY, dir_fd=below)
        os.stat("below/file")  # noqa: PTH116 # one call, no other
        os.rename("below/file", "below/other")  # noqa: PTH104
        os.rename("other", "file", src_dir_fd=below, dst_dir_fd=below)
        os.link("file", "second", src_dir_fd=below, dst_dir_fd=below)
        os.utime(below)
        os.close(os.open("file", os.O_RDONLY, dir_fd=below))

    _, records = rig.watch(work)
    here = os.fsencode(tmp_path)
    below = here + b"/below"
    assert paths(records) == [
        ("chdir", 0, here, b"/"),
        ("openat", 0, b"missing", here),
        ("openat", 0, b"lost", below),
        ("openat", 0, b"/not/there", b"/"),
        ("newfstatat", 0, b"below/file", here),
        ("rename", 0, b"below/file", here),
        ("rename", 1, b"below/other", here),
        ("renameat", 0, b"other", below),
        ("renameat", 1, b"file", below),
        ("linkat", 0, b"file", below),
        ("linkat", 1, b"second", below),
    ]


def test_what_changes_where_paths_begin_is_read_before(rig: Rig, tmp_path: Path) -> None:
    """chdir, chroot, execve: their records precede them, with the old directory; afterwards paths begin elsewhere."""
    (tmp_path / "in/deeper").mkdir(parents=True)
    here = os.fsencode(tmp_path)

    def work() -> None:
        os.chdir(tmp_path)
        os.chdir("in")
        fail(os.execve, "none", ["none"], {})
        os.chroot(tmp_path)
        os.stat("/in")  # noqa: PTH116 # one call, no other
        fail(os.stat, "/out")
        fail(os.stat, "gone")

    _, records = rig.watch(work)
    assert paths(records) == [
        ("chdir", 0, here, b"/"),
        ("chdir", 0, b"in", here),
        ("execve", 0, b"none", here + b"/in"),
        ("chroot", 0, here, b"/"),
        ("newfstatat", 0, b"/in", here),
        ("newfstatat", 0, b"/out", here),
        ("newfstatat", 0, b"gone", here + b"/in"),
    ]


def test_strings_are_whole_or_said_not_to_be(rig: Rig) -> None:
    """Up to 4,095 bytes of any value are whole.

    Longer strings, and those that are not in memory, are cut; NULL is no path.
    """
    odd, longest, longer = b"line\nbreak \xff", b"/a" * 2047 + b"/", b"/a" * 2500

    def work() -> None:
        for path in (odd, longest, longer):
            fail(os.stat, path)
        libc.access(ctypes.c_void_p(8), 0)
        libc.utimensat(-1, None, None, 0)

    before = rig.kernel.read_losses().unreadable
    _, records = rig.watch(work)
    told = [(call.name, record.path, record.flags) for record, call in given(records)]
    assert told == [
        ("newfstatat", odd, WHOLE),
        ("newfstatat", longest, WHOLE),
        ("newfstatat", longer[:4096], lib.LO2_PATH_CUT),
        (told[3][0], b"", lib.LO2_PATH_CUT),
    ]
    assert rig.kernel.read_losses().unreadable == before + 1


def test_a_path_may_be_empty_or_begin_somewhere_else(rig: Rig, tmp_path: Path) -> None:
    """With AT_EMPTY_PATH, the names are the file's own. An absolute path that begins at a directory has no record."""
    (tmp_path / "gone").mkdir()
    here = os.fsencode(tmp_path)

    def work() -> int:
        fd = os.open(tmp_path, os.O_RDONLY)
        stat = ctypes.create_string_buffer(256)
        libc.syscall(NEWFSTATAT, fd, b"", stat, AT_EMPTY_PATH)
        for path, resolve in ((b"/none", IN_ROOT), (b"none", IN_ROOT), (b"/gone", IN_ROOT)):
            how = struct.pack("<QQQ", os.O_PATH, 0, resolve)
            found = libc.syscall(OPENAT2, fd, path, how, len(how))
        os.chdir(tmp_path / "gone")
        os.rmdir(tmp_path / "gone")  # noqa: PTH106
        fail(os.stat, "none")
        return int(found)

    found, records = rig.watch(work)
    told = given(records)
    assert [(call.name, record.path, record.flags) for record, call in told if call.name != "chdir"] == [
        ("newfstatat", b"", WHOLE),
        ("openat2", b"none", WHOLE),
        ("newfstatat", b"none", WHOLE | lib.LO2_FILE_DELETED),
    ]
    assert [join(record.names) for record, _ in told] == [here, here, b"/", here + b"/gone"]
    assert opened(records, found).names[0] == b"gone"
    values = [each.value for each in records if isinstance(each, CallRecord) and each.name == "openat2"]
    assert values == [os.O_PATH] * 3
    assert {each.value for each in records if isinstance(each, CallRecord) and each.name != "openat2"} == {NONE}


def mount(source: str, target: Path, kind: str | None, flags: int = 0, data: str = "") -> None:
    """Mount something, or fail."""
    arguments = [None if text is None else os.fsencode(text) for text in (source, target, kind)]
    assert libc.mount(*arguments, ctypes.c_ulong(flags), data.encode()) == 0, os.strerror(ctypes.get_errno())


@pytest.mark.requires("mkfs.btrfs", "btrfs")
def test_names_go_through_mounts(rig: Rig, tmp_path: Path) -> None:
    """In a mount namespace of their own, tmpfs, bind, overlay and a btrfs subvolume have the same names as in /proc."""
    for name in ("memory", "bound", "lower", "upper", "work", "over", "disk", "source/below"):
        (tmp_path / name).mkdir(parents=True)
    for name in ("source/below/file", "lower/file", "lower/copied"):
        (tmp_path / name).touch()

    def work(device: Path) -> list[tuple[int, bytes, int]]:
        assert libc.unshare(CLONE_NEWNS) == 0
        mount("none", Path("/"), None, MS_REC | MS_PRIVATE)
        mount("none", tmp_path / "memory", "tmpfs")
        mount(str(tmp_path / "source"), tmp_path / "bound", None, MS_BIND)
        layers = ",".join(f"{name}dir={tmp_path / name}" for name in ("lower", "upper", "work"))
        mount("none", tmp_path / "over", "overlay", 0, layers)
        mount(str(device), tmp_path / "disk", "btrfs")
        subprocess.run(["btrfs", "-q", "subvolume", "create", str(tmp_path / "disk/sub")], check=True)
        found = [
            os.open(tmp_path / name, os.O_RDWR | os.O_CREAT)
            for name in ("memory/file", "bound/below/file", "over/copied", "disk/sub/file")
        ]
        found.append(os.open(tmp_path / "over/file", os.O_RDONLY))
        return [(fd, os.fsencode(Path(f"/proc/self/fd/{fd}").readlink()), os.fstat(fd).st_ino) for fd in found]

    with loop_device(tmp_path / "image", 128 << 20) as device:
        subprocess.run(["mkfs.btrfs", "-q", str(device)], check=True)
        expected, records = rig.watch(lambda: work(device))
    told = [opened(records, fd) for fd, _, _ in expected]
    assert [(join(each.names), each.inode, each.flags & ~lib.LO2_FILE_CACHED) for each in told] == [
        (link, inode, WHOLE) for _, link, inode in expected
    ]
    kinds = [hex(each.magic) for each in told]
    assert (kinds[0], *kinds[2:]) == ("0x1021994", "0x794c7630", "0x9123683e", "0x794c7630")
    assert len({each.mount for each in told}) == 4  # two are on one mount


def test_what_hangs_in_the_air_is_not_whole(rig: Rig, tmp_path: Path) -> None:
    """Files of an unmounted file system, of a copy that is mounted nowhere, and moved out of a bind mount's tree."""
    for name in ("memory", "bound", "source/inner"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "source/inner/file").touch()

    def work() -> list[int]:
        assert libc.unshare(CLONE_NEWNS) == 0
        mount("none", Path("/"), None, MS_REC | MS_PRIVATE)
        mount("none", tmp_path / "memory", "tmpfs")
        taken = os.open(tmp_path / "memory", os.O_RDONLY)
        assert libc.umount2(os.fsencode(tmp_path / "memory"), MNT_DETACH) == 0
        mount(str(tmp_path / "source"), tmp_path / "bound", None, MS_BIND)
        escaped = os.open(tmp_path / "bound/inner", os.O_RDONLY)
        os.rename(tmp_path / "source/inner", tmp_path / "inner")  # noqa: PTH104
        copy = libc.syscall(OPEN_TREE, AT_FDCWD, os.fsencode(tmp_path), OPEN_TREE_CLONE)
        context = libc.syscall(FSOPEN, b"tmpfs", 0)
        libc.syscall(FSCONFIG, context, CONFIG_CREATE, None, None, 0)
        new = libc.syscall(FSMOUNT, context, 0, 0)
        return [
            *(os.open("file", os.O_CREAT | os.O_RDWR, dir_fd=folder) for folder in (taken, escaped, copy, new)),
            *(copy, new),
        ]

    fds, records = rig.watch(work)
    assert [opened(records, fd).flags & ~lib.LO2_FILE_CACHED for fd in fds] == [0] * 6


def move_for_ever(folder: str, below: int) -> None:
    """a/…/x becomes a/…/y, then b/…/y, and the same way back. b/…/x never exists."""
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    os.chdir(folder)
    while os.getppid() != 1:
        os.rename("x", "y", src_dir_fd=below, dst_dir_fd=below)
        os.rename("a", "b")  # noqa: PTH104
        time.sleep(1e-4)
        os.rename("b", "a")  # noqa: PTH104
        os.rename("y", "x", src_dir_fd=below, dst_dir_fd=below)
        time.sleep(1e-4)


def test_a_name_that_changes_is_never_mixed(rig: Rig) -> None:
    """Two directories, 800 levels apart, are renamed while the file below is opened: no path mixes two moments."""
    levels, times = 800, 1500
    folder = tempfile.mkdtemp(dir="/dev/shm")  # in memory: renames must be as fast as the walk
    top = Path(folder, "a")
    top.mkdir()
    below = os.open(top, os.O_RDONLY)
    for name in [*["d"] * levels, "x"]:
        os.mkdir(name, dir_fd=below)
        above, below = below, os.open(name, os.O_RDONLY, dir_fd=below)
        if name == "d":
            os.close(above)
    os.close(os.open("file", os.O_CREAT, dir_fd=below))
    mover = os.fork()
    if mover == 0:
        move_for_ever(folder, above)

    def work() -> None:
        for _ in range(times):
            os.close(os.open("file", os.O_RDONLY, dir_fd=below))

    try:
        _, records = rig.watch(work)
    finally:
        os.kill(mover, signal.SIGKILL)
        os.waitpid(mover, 0)
        os.close(below)
        os.close(above)
        subprocess.run(["rm", "-rf", folder], check=True)
    told = [each for each in records if isinstance(each, FileRecord) and each.of == lib.LO2_FILE_OF_RESULT]
    assert len(told) == times
    proven = [each for each in told if not each.flags & lib.LO2_FILE_MOVED]
    assert {len(each.names) for each in proven} == {levels + 6}
    assert {each.names[1] + each.names[levels + 2] for each in proven} <= {b"xa", b"ya", b"yb"}
