"""A directory held open: no other process can redirect its files, and its lock names its user."""

from __future__ import annotations

import contextlib
import errno
import os
import subprocess
import sys
import threading
from typing import TYPE_CHECKING

import pytest

from lo2io.errors import Lo2ioError, UsageError
from lo2io.folder import PATIENCE_S, Folder, private_umask

if TYPE_CHECKING:
    from pathlib import Path

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="makes links of another user")
NOBODY = 65534

_HOLD = """
import fcntl, os, sys
fd = os.open(sys.argv[1], os.O_RDONLY)
fcntl.flock(fd, fcntl.LOCK_EX)
print("held", flush=True)
sys.stdin.read()
"""


def test_a_directory_that_is_exchanged_is_still_the_one_held(tmp_path: Path) -> None:
    """A link in place of the directory redirects nothing: files and folders go into the directory that was opened."""
    (tmp_path / "victim").mkdir()
    folder = Folder.open_or_make(tmp_path / "T")
    (tmp_path / "T").rename(tmp_path / "moved")
    (tmp_path / "T").symlink_to("victim")
    folder.write("a", b"1")
    folder.make("b").write("c", b"2")
    (folder.place / "d").write_bytes(b"3")
    assert not list((tmp_path / "victim").iterdir())
    assert sorted(str(path.relative_to(tmp_path)) for path in (tmp_path / "moved").rglob("*")) == [
        *("moved/a", "moved/b", "moved/b/c", "moved/d")
    ]
    assert folder.files() == ["a", "b/c", "d"]


def test_nothing_is_written_or_removed_through_a_link(tmp_path: Path) -> None:
    """Neither a file nor a folder is written through a link; a link is removed itself."""
    (tmp_path / "victim").mkdir()
    (tmp_path / "victim/file").write_text("precious")
    folder = Folder.open_or_make(tmp_path / "T")
    (folder.path / "file").symlink_to("../victim/file")
    (folder.path / "new").symlink_to("../victim/new")
    (folder.path / "folder").symlink_to("../victim")
    for name in ("file", "new"):
        with pytest.raises(FileExistsError):
            folder.create(name)
    for act in (lambda: folder.read("file"), lambda: folder.enter("folder"), lambda: folder.make("folder")):
        with pytest.raises(OSError, match=r"."):
            act()
    for name in ("file", "new", "folder", "none"):
        folder.remove(name)
    assert folder.names() == []
    assert (tmp_path / "victim/file").read_text() == "precious"


def test_links_of_ones_own_lead_on(tmp_path: Path) -> None:
    """A link on the way is followed, wherever it leads; as an entry it is no folder, and :meth:`files` names it."""
    (tmp_path / "real/inner").mkdir(parents=True)
    (tmp_path / "real/link").symlink_to("inner")
    (tmp_path / "link").symlink_to(tmp_path / "other")
    (tmp_path / "other").symlink_to("real/../real/link")
    assert os.path.samestat(os.fstat(Folder.open(tmp_path / "link").fd), (tmp_path / "real/inner").stat())
    assert Folder.open(tmp_path / "real").files() == ["link"]


@as_root
def test_root_follows_no_links_but_its_own(tmp_path: Path) -> None:
    """The owner of a link on the way could lead root anywhere, whatever the link's place."""
    (tmp_path / "real/inner").mkdir(parents=True)
    (tmp_path / "own").symlink_to("real")
    (tmp_path / "theirs").symlink_to("real")
    os.lchown(tmp_path / "theirs", NOBODY, NOBODY)
    (tmp_path / "chain").symlink_to(tmp_path / "theirs/inner")
    assert os.path.samestat(os.fstat(Folder.open(tmp_path / "own/inner").fd), (tmp_path / "real/inner").stat())
    for name in ("theirs", "theirs/inner", "theirs/inner/new", "chain"):
        with pytest.raises(UsageError, match="symbolic link of nobody"):
            Folder.open_or_make(tmp_path / name)
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(OSError, match="Too many levels"):
        Folder.open(tmp_path / "loop")


@as_root
def test_a_new_folder_that_is_another_users_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another user exchanged it between mkdir and open."""
    folder, mkdir = Folder.open(tmp_path), os.mkdir

    def exchanged(name: str, *arguments: int, dir_fd: int) -> None:
        mkdir(name, *arguments, dir_fd=dir_fd)
        os.chown(name, NOBODY, NOBODY, dir_fd=dir_fd)

    monkeypatch.setattr(os, "mkdir", exchanged)
    with pytest.raises(UsageError, match=r"another user \(nobody\) put a directory in its place"):
        folder.make("T")


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o777])
def test_modes_are_private_whatever_the_umask(tmp_path: Path, umask: int) -> None:
    """Directories get 0700, files 0600, also those that a library makes."""
    before = os.umask(umask)
    try:
        with private_umask() as found:
            assert found == umask
            folder = Folder.open_or_make(tmp_path / "T")
            folder.write("a", b"")
            (folder.place / "b").touch()
            (folder.place / "c").mkdir()
    finally:
        assert os.umask(before) == umask
    assert [(folder.path / name).stat().st_mode & 0o777 for name in ".abc"] == [0o700, 0o600, 0o600, 0o700]


def test_a_lock_tells_who_holds_it(tmp_path: Path) -> None:
    """Command and pid of the process, until it ends."""
    folder = Folder.open(tmp_path)
    with subprocess.Popen(
        [sys.executable, "-S", "-c", _HOLD, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout
        assert holder.stdout.readline() == b"held\n"
        for shared in (False, True):
            with pytest.raises(UsageError) as caught:
                folder.lock(shared=shared)
            assert f"(pid {holder.pid}) uses it" in caught.value.answer
            assert sys.executable in caught.value.answer
        holder.communicate()
    assert folder.lock()


def test_a_lock_that_ends_at_once_is_waited_for(tmp_path: Path) -> None:
    """The child of a killed recorder may hold the lock for some milliseconds more."""
    holder, folder = Folder.open(tmp_path), Folder.open(tmp_path)
    holder.lock()
    ending = threading.Timer(PATIENCE_S / 4, holder.unlock)
    ending.start()
    assert folder.lock()
    ending.join()


def test_a_number_that_a_lock_left_behind_accuses_nobody(tmp_path: Path) -> None:
    """The process that took the lock has ended, but its child has a copy: /proc/locks still shows the former's pid."""
    folder = Folder.open(tmp_path)
    script = _HOLD.replace('print("held"', 'os.fork() and os._exit(0)\nos.set_inheritable(fd, True)\nprint("held"')
    with subprocess.Popen(
        [sys.executable, "-S", "-c", script, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as taker:
        assert taker.stdout
        assert taker.stdout.readline() == b"held\n"
        taker.wait()
        with pytest.raises(UsageError, match="another process uses it"):
            folder.lock()


@pytest.mark.parametrize("number", [errno.EIO, errno.ENOLCK])
def test_a_lock_that_the_kernel_refuses_is_no_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """Only a file system without locks (NFS) lets lo2io go on without one."""

    def refused(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    folder = Folder.open(tmp_path)
    monkeypatch.setattr("fcntl.flock", refused)
    with pytest.raises(OSError, match=os.strerror(number)) if number == errno.EIO else contextlib.nullcontext():
        assert not folder.lock()


def test_a_lock_ends_with_its_folder(tmp_path: Path) -> None:
    """A lock ends with its folder, even if a child has a copy of the descriptor.

    Shared locks do not exclude each other.
    """
    folder, other = Folder.open(tmp_path), Folder.open(tmp_path)
    assert folder.lock()
    copy = os.dup(folder.fd)
    with pytest.raises(UsageError, match="another process"):
        other.lock()
    folder.close()
    assert other.lock(shared=True)
    assert Folder.open(tmp_path).lock(shared=True)
    os.close(copy)


def test_errors_have_the_name_that_the_user_knows(tmp_path: Path) -> None:
    """A library that was given the held place reports the name that the user knows."""
    folder = Folder.open(tmp_path)
    with pytest.raises(Lo2ioError) as caught, folder.named():
        raise Lo2ioError(f"write {folder.place}/x", f"no room in {folder.place}", f"empty {folder.place}")
    assert str(caught.value) == f"write {tmp_path}/x: no room in {tmp_path}"
    assert caught.value.remedy == f"empty {tmp_path}"


@pytest.mark.parametrize("kind", ["file", "link", "dangling"])
def test_a_new_file_takes_nobodys_place(tmp_path: Path, kind: str) -> None:
    """Whatever has the name stays, also if it is a file without rights or a link to nothing."""
    if kind == "file":
        (tmp_path / "x").write_text("precious")
    else:
        (tmp_path / "target").write_text("precious")
        (tmp_path / "x").symlink_to(tmp_path / ("target" if kind == "link" else "none"))
    with Folder.open(tmp_path) as folder, pytest.raises(FileExistsError):
        folder.create("x")
    assert "precious" in {path.read_text() for path in tmp_path.iterdir() if path.is_file()}
    assert not (tmp_path / "none").exists()
