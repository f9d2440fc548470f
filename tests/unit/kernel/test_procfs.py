"""Reads of /proc, on trees built for the test; and of this very process."""

from __future__ import annotations

import ctypes
import os
import struct
import tempfile
from typing import TYPE_CHECKING

import pytest

from lo2io.kernel import procfs
from lo2io.model import Mount

if TYPE_CHECKING:
    from pathlib import Path

STAT = "{tid} ({comm}) {state} {ppid} 1 1 0 -1 4194560 2 0 0 0 0 0 0 0 20 0 1 0 {start} 5 5\n"


def add_task(root: Path, pid: int, tid: int, ppid: int = 1, *, comm: str = "sh", children: str | None = "") -> None:
    """A thread; the first of a process is the process."""
    folder = root / f"proc/{pid}/task/{tid}"
    folder.mkdir(parents=True)
    text = STAT.format(tid=tid, comm=comm, state="S", ppid=ppid, start=99)
    (folder / "stat").write_text(text)
    if tid == pid:
        (root / f"proc/{pid}/stat").write_text(text)
    if children is not None:
        (folder / "children").write_text(children)


def test_processes_and_threads(tmp_path: Path) -> None:
    """Numbers only; a process that is gone has no threads."""
    add_task(tmp_path, 7, 7)
    add_task(tmp_path, 7, 8)
    add_task(tmp_path, 10, 10)
    (tmp_path / "proc/self").mkdir()
    (tmp_path / "proc/1x").mkdir()
    assert sorted(procfs.iter_pids(tmp_path)) == [7, 10]
    assert sorted(procfs.iter_tids(7, tmp_path)) == [7, 8]
    assert list(procfs.iter_tids(9, tmp_path)) == []


@pytest.mark.parametrize("comm", ["sh", "a b", "tmux: (x) S 5", ")", ""])
def test_names_may_hold_anything(tmp_path: Path, comm: str) -> None:
    """The name ends at the last parenthesis, whatever it holds."""
    add_task(tmp_path, 7, 8, ppid=5, comm=comm)
    assert procfs.read_stat(7, 8, tmp_path) == procfs.TaskStat(8, comm.encode(), "S", 5, 99)
    assert procfs.read_stat(7, None, tmp_path) is None


def test_a_cut_off_line_is_nobody(tmp_path: Path) -> None:
    """Like an empty one: the process ended while it was read."""
    add_task(tmp_path, 7, 7)
    for text in ("", "7 (sh", "7 (sh) S 1 2"):
        (tmp_path / "proc/7/stat").write_text(text)
        assert procfs.read_stat(7, root=tmp_path) is None


def test_children_of_all_threads(tmp_path: Path) -> None:
    """Each thread has its own list."""
    add_task(tmp_path, 7, 7, children="10 11 ")
    add_task(tmp_path, 7, 8, children="12 ")
    assert sorted(procfs.read_children(7, tmp_path)) == [10, 11, 12]
    assert procfs.read_children(9, tmp_path) == ()


def test_children_without_the_kernels_list(tmp_path: Path) -> None:
    """Kernels without CONFIG_PROC_CHILDREN: by each process's parent."""
    add_task(tmp_path, 7, 7, children=None)
    add_task(tmp_path, 10, 10, ppid=7, children=None)
    add_task(tmp_path, 11, 11, ppid=10, children=None)
    assert procfs.read_children(7, tmp_path) == (10,)


def test_own_files(tmp_path: Path) -> None:
    """Path, device, inode, mode, position, flags and mount of a file this process has open, and both times."""
    name = os.fsencode(tmp_path) + b"/a b\xff"
    fd = os.open(name, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o640)
    try:
        os.write(fd, b"12345")
        times = iter(range(0, 10_000, 10))
        state = next(each for each in procfs.iter_fds(os.getpid(), clock=lambda: next(times)) if each.fd == fd)
        status = os.fstat(fd)
    finally:
        os.close(fd)
    assert (state.path, state.device, state.inode, state.mode) == (name, status.st_dev, status.st_ino, status.st_mode)
    assert state.position == 5
    assert state.flags is not None
    assert state.flags & (os.O_ACCMODE | os.O_APPEND | os.O_CLOEXEC) == os.O_RDWR | os.O_APPEND | os.O_CLOEXEC
    assert state.end_ns == state.begin_ns + 10
    assert state.mount in {mount.id for mount in procfs.read_mounts() if mount.device == status.st_dev}


def test_deleted_files_and_pipes_are_shown_as_the_kernel_shows_them() -> None:
    """The name is neither shortened nor extended."""
    read_end, write_end = os.pipe()
    with tempfile.NamedTemporaryFile() as file:
        name = file.name
        os.unlink(name)  # noqa: PTH108
        states = {state.fd: state for state in procfs.iter_fds(os.getpid())}
        assert states[file.fileno()].path == name.encode() + b" (deleted)"
        with open(name, "w"):  # noqa: PTH123 - so that it can be closed
            pass
    assert states[read_end].path == b"pipe:[%d]" % os.fstat(read_end).st_ino
    os.close(read_end)
    os.close(write_end)


def test_files_that_vanish_while_looked_at(tmp_path: Path) -> None:
    """A descriptor without a file is left out; one without fdinfo has unknown values; a dead process has none."""
    (tmp_path / "target").write_text("x")
    folder = tmp_path / "proc/7/fd"
    folder.mkdir(parents=True)
    (folder / "3").symlink_to(tmp_path / "gone")
    (folder / "4").symlink_to(tmp_path / "target")
    (state,) = procfs.iter_fds(7, tmp_path)
    assert (state.fd, state.position, state.flags, state.mount) == (4, None, None, None)
    assert list(procfs.iter_fds(8, tmp_path)) == []


POSITION = "pos:\t0\nflags:\t02000002\nmnt_id:\t15\n"
RINGS = [
    pytest.param(
        "UserFiles:\t2\n    0: a\nflags:\t07\n    1: <none>\nUserBufs:\t1\n    0: 0x7f00/4096\nPollList:\n",
        procfs.RingState(nr_files=2, nr_buffers=1),
        id="5.10, whose names of files are printed as they are",
    ),
    pytest.param(
        "SqThread:\t77\nSqThreadCpu:\t1\nUserFiles:\t0\nUserBufs:\t0\nPollList:\n",
        procfs.RingState(poller=77, nr_files=0, nr_buffers=0),
        id="5.12, without masks",
    ),
    pytest.param(
        "SqMask:\t0x7f\nSqHead:\t0\nCqMask:\t0xff\nCqHead:\t3\nSqThread:\t-1\nUserFiles:\t5\nUserBufs:\t6\n",
        procfs.RingState(128, 256, None, 5, 6),
        id="6.1",
    ),
    pytest.param(
        "ino:\t9\nSqMask:\t0x0\nCqMask:\t0x1\nSqThread:\t88\nSqThreadCpu:\t-1\nSqTotalTime:\t0\nSqWorkTime:\t0\n"
        "UserFiles:\t0\nUserBufs:\t0\nPollList:\nCqOverflowList:\nNAPI:\tdisabled\n",
        procfs.RingState(1, 2, 88, 0, 0),
        id="6.18",
    ),
    pytest.param("", None, id="6.18 while somebody else holds the ring's lock"),
    pytest.param("SqMask:\tmany\nUserFiles:\t\n", None, id="nonsense"),
]


@pytest.mark.parametrize(("text", "ring"), RINGS)
def test_what_kernels_say_of_rings(tmp_path: Path, text: str, ring: procfs.RingState | None) -> None:
    """Each line may be missing; later lines do not change earlier values."""
    folder = tmp_path / "proc/7"
    for name in ("fd", "fdinfo"):
        (folder / name).mkdir(parents=True)
    (folder / "fd" / "anon_inode:[io_uring]").touch()
    (folder / "fd/4").symlink_to("anon_inode:[io_uring]")
    (folder / "fdinfo/4").write_text(POSITION + text)
    (tmp_path / "file").touch()
    (folder / "fd/5").symlink_to(tmp_path / "file")
    (folder / "fdinfo/5").write_text(POSITION + text)
    states = {state.fd: state for state in procfs.iter_fds(7, tmp_path)}
    assert (states[4].ring, states[4].flags, states[4].mount) == (ring, 0o2000002, 15)
    assert states[5].ring is None, "another file is no ring, whatever its fdinfo says"


def test_a_ring_of_this_process() -> None:
    """Its sizes as they were set up, no registered files, and no SQ thread."""
    parameters = (ctypes.c_uint32 * 30)()
    fd = ctypes.CDLL(None).syscall(425, 5, parameters)  # io_uring_setup: five entries are rounded up
    if fd < 0:
        pytest.skip("no io_uring here: io_uring_setup fails (sysctl kernel.io_uring_disabled, or a container's filter)")
    try:
        (ring,) = (state.ring for state in procfs.iter_fds(os.getpid()) if state.fd == fd)
    finally:
        os.close(fd)
    assert ring is not None
    assert (ring.poller, ring.nr_files, ring.nr_buffers) == (None, 0, 0)
    assert (ring.sq_entries, ring.cq_entries) in {(8, 16), (None, None)}, "before Linux 5.16 the sizes are not told"


def test_the_process_of_a_thread(tmp_path: Path) -> None:
    """From its status, or None."""
    (tmp_path / "proc/8").mkdir(parents=True)
    (tmp_path / "proc/8/status").write_text("Name:\tx\nTgid:\t7\nPid:\t8\n")
    assert procfs.read_process_of(8, tmp_path) == 7
    assert procfs.read_process_of(9, tmp_path) is None


def test_mounts(tmp_path: Path) -> None:
    """Optional fields or none, octal escapes, bytes that are no UTF-8; lines of another form are passed over."""
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/mountinfo").write_bytes(
        b"22 1 254:1 / / rw,relatime shared:1 master:2 - ext4 /dev/vda1 rw\n"
        b"30 22 0:25 /sub /mnt/a\\040b\\011\\134\xff rw - fuse.x\\040y host\\072/x rw\n"
        b"nonsense\n"
        b"31 22 0:26 / /x rw -\n"
    )
    assert procfs.read_mounts(root=tmp_path) == (
        Mount(22, os.makedev(254, 1), "/", "ext4", "/dev/vda1"),
        Mount(30, os.makedev(0, 25), "/mnt/a b\t\\\udcff", "fuse.x y", "host:/x"),
    )
    assert procfs.read_mounts(7, tmp_path) == ()


ID = "0f99ad5f45163ed14ab8eaf92ed34bb4a631d007f8755a7d79be614bcb0df0ef"
INNER = "9ec39b91f3d70e1beff50a308f77067065ea6be0d91a3378375056cd4422cf3d"
POD = "kubepods-burstable-podff49d0be_16b7_4a49_bb9e_8ec1f1f4e27f.slice"


@pytest.mark.parametrize(
    ("text", "cgroup"),
    [
        ("0::/user.slice/x.scope\n", (0, b"/user.slice/x.scope")),
        ("0::/\n", (0, b"/")),
        ("5:memory:/m\n1:name=systemd:/s\n0::/v2\n", (0, b"/v2")),
        ("9:pids:/p\n5:memory:/m\n4:cpu,cpuacct:/c\n1:name=systemd:/s\n0::/\n", (5, b"/m")),
        ("9:pids:/p\n5:memory:/\n7:blkio:/\n3:perf_event:/\n0::/\n", (9, b"/p")),
        ("9:pids:/p\n5:memory:/m\n7:blkio:/b\n3:perf_event:/e\n0::/\n", (3, b"/e")),
        ("4:cpu,cpuacct:/c\n2:cpuset:/s\n0::/\n", (4, b"/c")),
        ("4:cpu:/\n1:name=systemd:/s\n0::/\n", (0, b"/")),
        ("4:cpu:/\n2:blkio:/b\n", (2, b"/b")),
        ("4:cpu:/\n1:name=systemd:/\n", (4, b"/")),
        ("0::/a:b c\xff (deleted)\n", (0, b"/a:b c\xff (deleted)")),
        ("0::/../other\n", (0, b"/../other")),
        ("", None),
        ("nonsense\n0::\nx::/\n", None),
    ],
)
def test_the_cgroup_that_says_most(tmp_path: Path, text: str, cgroup: tuple[int, bytes] | None) -> None:
    """v2's; where that is the root, the first v1 hierarchy that knows more."""
    (tmp_path / "proc/7").mkdir(parents=True)
    (tmp_path / "proc/7/cgroup").write_bytes(text.encode("latin-1"))
    assert procfs.read_cgroup(7, tmp_path) == cgroup
    assert procfs.read_cgroup(8, tmp_path) is None


@pytest.mark.parametrize(
    ("controller", "cgroup"), [(b"", (0, b"/v2")), (b"perf_event", (7, b"/v1")), (b"cpu", (0, b"/v2"))]
)
def test_cgroup_of_one_hierarchy(tmp_path: Path, controller: bytes, cgroup: tuple[int, bytes]) -> None:
    """The requested one, if any; else the usual choice."""
    (tmp_path / "proc/7").mkdir(parents=True)
    (tmp_path / "proc/7/cgroup").write_bytes(b"7:net_cls,perf_event:/v1\n4:memory:/m\n0::/v2\n")
    assert procfs.read_cgroup(7, tmp_path, controller) == cgroup


@pytest.mark.parametrize(
    ("path", "container"),
    [
        (f"/docker/{ID}", ID),
        (f"/docker/{ID}/init.scope", ID),
        (f"/docker/{ID[:12]}", ID[:12]),
        (f"/system.slice/docker-{ID}.scope", ID),
        (f"/system.slice/docker-{ID[:12]}.scope", ID[:12]),
        (f"/user.slice/user-1000.slice/user@1000.service/user.slice/libpod-{ID}.scope/container", ID),
        (f"/libpod_parent/libpod-{ID}", ID),
        (f"/machine.slice/libpod-conmon-{ID}.scope", None),
        (f"/kubepods.slice/kubepods-burstable.slice/{POD}/cri-containerd-{ID}.scope", ID),
        (f"/kubepods.slice/kubepods-burstable.slice/{POD}/crio-{ID}.scope", ID),
        (f"/kubepods.slice/kubepods-burstable.slice/{POD}/crio-conmon-{ID}.scope", None),
        (f"/kubepods/besteffort/podff49d0be-16b7-4a49-bb9e-8ec1f1f4e27f/{ID}", ID),
        (f"/kubepods/besteffort/podff49d0be-16b7-4a49-bb9e-8ec1f1f4e27f/crio-{ID}", ID),
        (f"/system.slice/containerd.service/{POD}:cri-containerd:{ID}", ID),
        (f"/default/{ID}", ID),
        (f"/docker/{ID}/docker/{INNER}", INNER),
        (f"/system.slice/docker-{ID}.scope/kubepods.slice/cri-containerd-{INNER}.scope", INNER),
        ("/", None),
        ("", None),
        (ID, None),
        ("/user.slice/user-1000.slice/session-3.scope", None),
        ("/process_api/cc52609048b28679401bc8643da07d3d", None),
        (f"/docker/{ID.upper()}", None),
        (f"/docker/{ID}0", None),
        (f"/docker/{ID[:11]}", None),
        ("/system.slice/docker.service", None),
    ],
)
def test_containers_are_known_by_their_paths(path: str, container: str | None) -> None:
    """Either driver of each runtime; what merely resembles an id is none."""
    assert procfs.container_id(path) == container


def test_read_command(tmp_path: Path) -> None:
    """The content of cmdline: more than 4,096 bytes are cut; a kernel thread's, or one during an exec, is empty."""
    folder = tmp_path / "proc/7"
    folder.mkdir(parents=True)
    assert procfs.read_command(7, tmp_path) is None
    for content, told in (
        (b"", None),
        (b"cat\0f\0", (b"cat\0f\0", False)),
        (b"x" * 4096, (b"x" * 4096, False)),
        (b"x" * 4097, (b"x" * 4096, True)),
    ):
        (folder / "cmdline").write_bytes(content)
        assert procfs.read_command(7, tmp_path) == told


def test_the_boot_is_known_by_its_number(tmp_path: Path) -> None:
    """Without the line's end; a kernel that tells none has none."""
    assert not procfs.read_boot_id(tmp_path)
    (tmp_path / "proc/sys/kernel/random").mkdir(parents=True)
    (tmp_path / "proc/sys/kernel/random/boot_id").write_text("bde293af-133b\n")
    assert procfs.read_boot_id(tmp_path) == "bde293af-133b"


def test_word_size_of_a_program(tmp_path: Path) -> None:
    """Its auxiliary vector tells: keys are small, values may be anything, and the last entry is zeroes."""
    assert not procfs.is_compat(os.getpid())
    assert not procfs.is_compat(7, tmp_path)
    vector = tmp_path / "proc/7/auxv"
    vector.parent.mkdir(parents=True)
    for content, is_compat in (
        (struct.pack("<6Q", 33, 0x7FFC_1000_0000, 16, 0xFFFF_FFFF_FFFF, 0, 0), False),
        (struct.pack("<6I", 32, 0xF7FC_8000, 33, 0xF7FC_8000, 0, 0), True),
        (struct.pack("<8I", 33, 0, 16, 0xBFEB_FBFF, 6, 4096, 0, 0), True),
        (b"", False),
        (bytes(5), False),
    ):
        vector.write_bytes(content)
        assert procfs.is_compat(7, tmp_path) == is_compat
