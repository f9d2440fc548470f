"""The kernel's iterators tell of tasks and descriptors what /proc tells."""

from __future__ import annotations

import contextlib
import os
import struct
import subprocess
import sys
import time
from typing import TYPE_CHECKING, NamedTuple

import pytest

from lo2io.bpf.looks import Looks, LookTask, parse_task
from lo2io.kernel import procfs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

pytestmark = pytest.mark.requires("root")

OPENER = """
import os, sys, threading
folder, flag = sys.argv[1], threading.Event()
os.chdir(folder)
os.lseek(os.open("plain", os.O_RDWR | os.O_CREAT | os.O_APPEND), 5, 0)
os.set_inheritable(os.dup(3), True)
os.open("gone", os.O_WRONLY | os.O_CREAT)
os.unlink("gone")
os.open("/dev/null", os.O_RDONLY)
os.open("/proc/self/status", os.O_RDONLY)
os.open(".", os.O_TMPFILE | os.O_RDWR)
os.memfd_create("memory")
os.pipe()
os.eventfd(0)
os.makedirs("d" * 200 + "/" + "e" * 200)
os.open("d" * 200 + "/" + "e" * 200 + "/f", os.O_WRONLY | os.O_CREAT)
threading.Thread(target=flag.wait, daemon=True).start()
print("open", flush=True)
sys.stdin.readline()
os.execvp("sleep", ["sleep", "1000"])
"""


class Descriptor(NamedTuple):
    """A descriptor as both tell it."""

    path: bytes
    device: int
    inode: int
    mode: int
    position: int | None
    flags: int | None
    mount: int | None


@pytest.fixture
def looks() -> Iterator[Looks]:
    """The loaded iterators."""
    made = Looks()
    yield made
    made.close()


@pytest.fixture
def opener(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A process of two threads with files of many kinds."""
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", OPENER, str(tmp_path)], stdin=pipe, stdout=pipe, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "open\n"
        yield process
        with contextlib.suppress(BrokenPipeError):
            process.kill()


def of_iterator(looks: Looks, pid: int) -> dict[int, Descriptor]:
    """The descriptors of a process."""
    found = {}
    for piece in looks.files():
        at = 0
        while at < len(piece):
            _, _, size, end, begin, device, inode, position, owner, fd, flags, mode, mount, length = struct.unpack_from(
                "<IHHQQQQqIiIIII", piece, at
            )
            assert 0 < begin <= end <= time.monotonic_ns()
            assert size == 72 + -(-length // 8) * 8
            path = piece[at + 72 : at + size]
            assert path[length:] == bytes(len(path) - length)
            if owner == pid:
                found[fd] = Descriptor(path[:length], device, inode, mode, position, flags, mount)
            at += size
    return found


def of_proc(pid: int) -> dict[int, Descriptor]:
    """The same."""
    return {
        each.fd: Descriptor(each.path, each.device, each.inode, each.mode, each.position, each.flags, each.mount)
        for each in procfs.iter_fds(pid)
    }


def threads_of(looks: Looks, pid: int) -> dict[int, LookTask]:
    """The threads of a process."""
    return {task.tid: task for task in map(parse_task, looks.tasks()) if task.pid == pid}


def test_descriptors_are_the_same(looks: Looks, opener: subprocess.Popen[str]) -> None:
    """Path, device, inode, mode, position, flags and mount; none is missing, and lo2io's own are not told."""
    found = of_iterator(looks, opener.pid)
    assert found == of_proc(opener.pid)
    assert len(found) == 14
    assert found[3].position == 5
    assert found[5].path.endswith(b"/gone (deleted)")
    assert of_iterator(looks, os.getpid()) == {}


def test_threads_are_the_same(
    looks: Looks, opener: subprocess.Popen[str], until: Callable[[Callable[[], object]], object]
) -> None:
    """Name, parent and birth; an exec shows."""
    found = threads_of(looks, opener.pid)
    assert len(found) == 2
    for tid, task in found.items():
        stat = procfs.read_stat(opener.pid, tid)
        assert stat is not None
        assert (task.comm.rstrip(b"\0"), task.ppid) == (stat.comm, stat.ppid)
        assert task.born_ns * os.sysconf("SC_CLK_TCK") // 10**9 == stat.start_ticks
        assert not task.is_kernel
    assert opener.stdin is not None
    opener.stdin.write("\n")
    opener.stdin.flush()
    until(lambda: (procfs.read_command(opener.pid) or (b"", False))[0].startswith(b"sleep\0"))
    after = threads_of(looks, opener.pid)
    assert list(after) == [opener.pid]
    assert after[opener.pid].exec != found[opener.pid].exec
    assert after[opener.pid].comm.rstrip(b"\0") == b"sleep"
    assert parse_task(next(record for record in looks.tasks() if parse_task(record).tid == 2)).is_kernel
