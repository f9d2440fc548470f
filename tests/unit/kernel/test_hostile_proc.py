"""Names and contents that any user can put into /proc: they raise nothing, and pass for nothing else."""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING, Any

import pytest

from lo2io.bpf import libbpf
from lo2io.capture.launchers import find_place, find_rank_in
from lo2io.kernel import procfs
from lo2io.kernel.cgroups import _find_mount
from lo2io.kernel.tracefs import _mounted
from lo2io.spool.facts import pack_ring

if TYPE_CHECKING:
    from pathlib import Path

BREAKS = ["\r", "\v", "\f", "\x1c", "\x85"]
"""What Python's ``splitlines`` or ``split`` take for a break, besides the newline and the blank."""


def put(root: Path, name: str, content: str | bytes) -> Path:
    """A file of a /proc."""
    path = root / "proc" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode("utf-8", "surrogateescape"))
    return root


@pytest.mark.parametrize("broken", BREAKS)
def test_a_threads_name_is_no_line(tmp_path: Path, broken: str) -> None:
    """The process of a thread is what the kernel says."""
    root = put(tmp_path, "7/status", f"Name:\t{broken}Tgid:9{broken}Tgid:x\nUmask:\t0022\nTgid:\t5\nTgid:\t6\n")
    assert procfs.read_process_of(7, root) == 5


@pytest.mark.parametrize("broken", BREAKS)
def test_a_mapped_files_name_is_no_line(tmp_path: Path, broken: str) -> None:
    """Nor are numbers of more than 64 bits addresses."""
    forged = f"{'1000'}-{'2' * 30} r-xp 0 08:01 77 /forged"
    maps = f"10-20 r-xp 00000000 08:01 5     /a{broken}{forged}\n{forged}\n{'1' * 5000}-2 r-xp 0 08:01 7 x\n"
    (state,) = procfs.iter_code(7, put(tmp_path, "7/maps", maps))
    path = f"/a{broken}{forged}".encode()
    assert state == (0x10, 0x20, 0, (b"08:01", 5), path)


@pytest.mark.parametrize("broken", [*BREAKS, "\n"])
@pytest.mark.parametrize("number", ["7", "99999999999", "9" * 5000, "-1"])
def test_a_registered_files_name_is_no_line(tmp_path: Path, broken: str, number: str) -> None:
    """Old kernels do not even escape newlines. What is told of the ring fits into a fact."""
    names = f"    0: /x{broken}UserBufs:\t{number}{broken}SqMask:\t{number}\n"
    begin = "pos:\t0\nflags:\t02\nmnt_id:\t15\nSqMask:\t0x7\nCqMask:\t0xf\nSqThread:\t-1\nUserFiles:\t1\n"
    put(tmp_path, "7/fdinfo/3", f"{begin}{names}UserBufs:\t2\n")
    (tmp_path / "proc/7/fd").mkdir()
    (tmp_path / "proc/7/fd/3").symlink_to(os.fsdecode(procfs.RING_LINK))
    target = tmp_path / "proc/7/fd" / os.fsdecode(procfs.RING_LINK)
    target.touch()
    state = procfs.read_fd(7, 3, tmp_path)
    assert state is not None
    assert state.ring == procfs.RingState(8, 16, None, 1, 2)


@pytest.mark.parametrize("number", [1 << 31, (1 << 32) - 2, (1 << 32) - 1, 1 << 64, -5])
def test_numbers_of_a_ring_fit_into_a_fact(number: int) -> None:
    """Those that do not are unknown."""
    state = procfs._ring_state(dict.fromkeys((b"SqMask", b"CqMask", b"SqThread", b"UserFiles", b"UserBufs"), number))
    if state is not None:
        pack_ring(
            begin_ns=1, end_ns=2, pid=3, fd=4,
            sq_entries=state.sq_entries, cq_entries=state.cq_entries, poller=state.poller,
            nr_files=state.nr_files, nr_buffers=state.nr_buffers,
        )  # fmt: skip
        assert state.nr_files == number


@pytest.mark.parametrize("broken", BREAKS)
@pytest.mark.parametrize("forged", ["X{0}1{0}2:3{0}4{0}5", "9{1}1{0}8:1{0}/{0}/etc{0}rw", "36{0}1{0}8:1{0}/{0}/etc"])
def test_a_mount_points_name_is_no_line(tmp_path: Path, broken: str, forged: str) -> None:
    """The kernel escapes blanks, tabs, newlines and backslashes. Mounts whose numbers are none are left out."""
    place = f"/a{broken}{forged.format(broken, '9' * 5000)}"
    many = "9" * 5000
    others = f"{many} 35 8:2 / /b rw - ext4 x rw\n37 35 9:{many[:20]} / /c rw - ext4 x rw\n"
    lines = f"36 35 8:2 / {place} rw - ext4 /dev/x{broken}y rw\n{others}"
    (mount,) = procfs.read_mounts(7, put(tmp_path, "7/mountinfo", lines))
    assert (mount.id, mount.device, mount.mount_point) == (36, os.makedev(8, 2), place)
    cgroup = f"30 25 0:2 / /cg{broken}x rw - cgroup2 cgroup2 rw\n"
    found = _find_mount(put(tmp_path, "self/mountinfo", lines + cgroup))
    assert found
    assert found.point == tmp_path / f"cg{broken}x"
    source = f"x{broken}tracefs /forged tracefs rw"
    put(
        tmp_path,
        "self/mounts",
        f"{source.replace(' ', chr(92) + '040')} /b fuse rw\nnodev /sys/kernel/tracing tracefs rw\n",
    )
    assert _mounted(tmp_path) == tmp_path / "sys/kernel/tracing"


def test_a_file_that_cannot_be_read_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cgroup's path may be too long for a page. But if lo2io may open no more files, that is an error."""
    root, answer = put(tmp_path, "7/cgroup", "0::/a\n"), errno.ENAMETOOLONG
    assert procfs.read_cgroup(7, root) == (0, b"/a")

    def refuse(*_: Any) -> bytes:
        raise OSError(answer, os.strerror(answer))

    monkeypatch.setattr(procfs.os, "read", refuse)
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
    assert procfs.read_cgroup(7, root) is None
    answer = errno.EMFILE
    with pytest.raises(OSError, match="Too many open files"):
        procfs.read_cgroup(7, root)
    assert len(os.listdir("/proc/self/fd")) == before  # noqa: PTH208


def test_an_environment_is_read_as_far_as_an_exec_can_make_it(tmp_path: Path) -> None:
    """A process may claim that 100 GB of its memory are its environment."""
    root = put(tmp_path, "7/environ", b"A=1\0")
    os.truncate(root / "proc/7/environ", 100 << 30)
    assert 6 << 20 <= len(procfs.read_environment(7, root)) <= 9 << 20


@pytest.mark.parametrize("text", ["1" * 5000, "9" * 10, "-1", "", "\N{ARABIC-INDIC DIGIT ONE}", "1x"])
def test_a_rank_is_a_number(text: str) -> None:
    """Python raises an error for a number of more than 4,300 digits."""
    assert find_rank_in(f"A=1\0OMPI_COMM_WORLD_RANK={text}\0".encode()) is None
    assert find_place({"OMPI_COMM_WORLD_RANK": text}) is None
    place = find_place({"OMPI_COMM_WORLD_RANK": "3", "OMPI_COMM_WORLD_SIZE": text, "OMPI_COMM_WORLD_LOCAL_SIZE": text})
    assert place
    assert place.rank == 3
    assert place.job.nr_ranks == (int(text) if text == "9" * 10 else None)


def test_long_lists_find_no_time_any_more(tmp_path: Path) -> None:
    """Half a second at first, later a fiftieth of the time. Short lists are always read."""
    root, now, used, lasts = put(tmp_path, "7/fdinfo/3", "pos:\t0\nflags:\t02000002\n"), 0, 0, 100_000

    def cpu() -> int:
        nonlocal used
        used += lasts
        return used

    lists, path = procfs.ListingTime(lambda: now, cpu), str(root / "proc/7/fdinfo/3")
    assert all(lists.read(path) for _ in range(10_000))
    lasts = 300_000_000
    assert [bool(lists.read(path)) for _ in range(4)] == [True, True, False, False]
    now += 60 * 10**9
    assert [bool(lists.read(path)) for _ in range(4)] == [True, True, False, False]
    now += 10**9
    assert not lists.read(path)
    (root / "proc/7/fd").mkdir()
    (root / "proc/7/fd/3").symlink_to("anon_inode:[eventpoll]")
    (root / "proc/7/fd/anon_inode:[eventpoll]").touch()
    (state,) = procfs.iter_fds(7, root, lists=lists)
    assert (state.flags, state.path) == (None, b"anon_inode:[eventpoll]")
    (state,) = procfs.iter_fds(7, root, lists=procfs.ListingTime())
    assert state.flags == 0o2000002


def test_an_iterator_goes_on_after_a_million_objects_of_which_it_tells_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel answers EAGAIN then."""
    answers = iter([b"a", BlockingIOError(), BlockingIOError(), b"b", b""])

    def read(fd: int, _: int) -> bytes:
        assert fd == 77
        answer = next(answers)
        if isinstance(answer, bytes):
            return answer
        raise answer

    closed: list[int] = []
    monkeypatch.setattr(libbpf, "library", lambda: type("L", (), {"bpf_iter_create": staticmethod(lambda _: 77)}))
    monkeypatch.setattr(libbpf.os, "read", read)
    monkeypatch.setattr(libbpf.os, "close", closed.append)
    assert list(libbpf.iterate(5)) == [b"a", b"b"]
    assert closed == [77]


def test_a_list_of_mappings_that_is_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Paths of 4 KiB may make it large. The last line that is read may be a part of one."""
    line = "10-20 r-xp 00000000 08:01 5     /lib/a\n"
    root = put(tmp_path, "7/maps", 4 * line)
    assert len(list(procfs.iter_code(7, root))) == 4
    monkeypatch.setattr(procfs, "_CHUNK_BYTES", 10)
    monkeypatch.setattr(procfs, "_MAX_LIST_BYTES", 2 * len(line) + 30)
    assert [state.path for state in procfs.iter_code(7, root)] == [b"/lib/a"] * 2


@pytest.mark.parametrize("call", [None, lambda *_: -1])
def test_without_statx(call: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some C libraries do not have it, and some sandboxes refuse it."""
    found = [(state.fd, state.device, state.inode, state.mode) for state in procfs.iter_fds(os.getpid())]
    monkeypatch.setattr(procfs, "_STATX_CALL", call)
    assert [(state.fd, state.device, state.inode, state.mode) for state in procfs.iter_fds(os.getpid())] == found
    with pytest.raises(FileNotFoundError):
        procfs._identity("/nowhere")
