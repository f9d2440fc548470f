"""A directory held open. lo2io writes through descriptors, so nobody can redirect its output to other files.

lo2io often runs as root and writes where a user points it, so somebody else may own the directory around the output.
Such a user can rename what lies there, and put symbolic links in its place, between any two system calls::

    lo2io                                   owner of the directory
    mkdir T/spool
                                            rename T/spool away, symlink T/spool -> /etc
    open T/spool/spool.json: writes to /etc

A path is therefore resolved once. From then on the directory is known by its descriptor: a rename moves it and does
not redirect lo2io. Files are created with O_EXCL and O_NOFOLLOW. A folder that lo2io made is its own and closed to
others, so nobody else can put anything into it, and libraries that open files by path may work in :attr:`Folder.place`.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import pwd
import re
import shlex
import stat
import time
import weakref
from pathlib import Path
from typing import TYPE_CHECKING, Self

from lo2io.errors import InUseError, Lo2ioError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_STEP = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
_NEW = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_MAX_LINKS = 40
"""As many symbolic links as the kernel follows in one path (MAXSYMLINKS in include/linux/namei.h)."""
_HELD = re.compile(r"/proc/self/fd/\d+")
"""A directory that another lo2io handed down by its descriptor. Such a link leads to the directory itself."""
_NO_LOCKS = frozenset({errno.EBADF, errno.EINVAL, errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP})
"""Answers of flock(2) where the file system has no locks of directories. EBADF is NFS's: it wants a writable fd."""
_LOCK = re.compile(r"\d+: FLOCK +ADVISORY +\w+ +(\d+) [\da-f]+:[\da-f]+:(\d+) ")
"""A line of /proc/locks: the process and the inode."""
_SHOWN_COMMAND = 100
PATIENCE_S = 0.2
"""How long lo2io waits for a lock. The children of a killed recorder hold its lock for some milliseconds more."""
_BREAK_S = 0.005


class Folder:
    """An open directory.

    Attributes:
        fd: Its descriptor. :meth:`close` closes it, and so does the end of the object.
        path: Its name for messages. Nothing is opened by this name.
        parent: The folder in which lo2io made this one; None: this one existed before.
    """

    def __init__(self, fd: int, path: Path, parent: Folder | None = None) -> None:
        self.fd = fd
        self.path = path
        self.parent = parent
        self._locked = False
        self._closer = weakref.finalize(self, os.close, fd)

    @classmethod
    def open(cls, path: Path) -> Self:
        """Open a directory that exists.

        Raises:
            OSError: It cannot be opened.
            UsageError: A symbolic link on the way belongs to another user, and root does not follow such links.
        """
        return cls(_walk(path), path)

    @classmethod
    def open_or_make(cls, path: Path) -> Folder:
        """Open a directory. Missing parts of its path are made; the last one is closed to other users.

        Raises:
            OSError: It cannot be opened or made.
            UsageError: As for :meth:`open` and :meth:`make`.
        """
        with contextlib.suppress(FileNotFoundError):
            return cls.open(path)
        parent = cls(_walk(path.parent, make=True), path.parent)
        try:
            return parent.make(path.name)
        except FileExistsError:  # somebody has just made it
            return cls.open(path)

    @property
    def place(self) -> Path:
        """A path to the held directory that no rename redirects, for libraries that open files by path.

        Use it only for folders that lo2io made: names inside are resolved as in any path.
        """
        return Path(f"/proc/self/fd/{self.fd}")

    def close(self) -> None:
        """Release the lock and close the directory. A second call does nothing."""
        if self._closer.alive:
            self.unlock()
            self._closer()
            self.fd = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ---- entries ----

    def names(self) -> list[str]:
        """The names of all entries, sorted."""
        return sorted(os.listdir(self.fd))  # noqa: PTH208 - a path would be resolved again

    def files(self) -> list[str]:
        """The paths from here of everything below that is no directory, sorted. Links are not followed."""
        found = []
        for folder, folders, files, fd in os.fwalk(".", dir_fd=self.fd):
            links = [name for name in folders if stat.S_ISLNK(os.lstat(name, dir_fd=fd).st_mode)]
            found += [os.path.normpath(os.path.join(folder, name)) for name in (*files, *links)]  # noqa: PTH118
        return sorted(found)

    def status(self, name: str) -> os.stat_result | None:
        """The result of lstat(2) for an entry; None: the entry does not exist."""
        with contextlib.suppress(FileNotFoundError):
            return os.stat(name, dir_fd=self.fd, follow_symlinks=False)
        return None

    def is_file(self, name: str) -> bool:
        """True if the entry is a regular file, not a link to one."""
        found = self.status(name)
        return found is not None and stat.S_ISREG(found.st_mode)

    def is_folder(self, name: str) -> bool:
        """True if the entry is a directory, not a link to one."""
        found = self.status(name)
        return found is not None and stat.S_ISDIR(found.st_mode)

    def enter(self, name: str) -> Folder:
        """Open a directory inside.

        Raises:
            OSError: No entry has this name, or the entry is a link.
        """
        return Folder(os.open(name, _DIRECTORY, dir_fd=self.fd), self.path / name)

    def open_file(self, name: str) -> int:
        """Open a regular file for reading, and return its descriptor.

        Raises:
            OSError: The file cannot be opened, or is a link or no regular file (EINVAL).
        """
        # O_NONBLOCK: a FIFO with this name must not stop lo2io.
        fd = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK, dir_fd=self.fd)
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            os.close(fd)
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL), name)
        return fd

    def read(self, name: str, size: int = -1) -> bytes:
        """The content of a regular file, or the first ``size`` bytes of it.

        Raises:
            OSError: As for :meth:`open_file`, or the file cannot be read.
        """
        with os.fdopen(self.open_file(name), "rb") as file:
            return file.read(size)

    # ---- changes ----

    def make(self, name: str) -> Folder:
        """Make a directory inside, of mode 0700, and open the directory.

        Raises:
            OSError: The directory cannot be made, or exists (FileExistsError).
            UsageError: lo2io runs as root, and the new directory is not root's alone: another user replaced it, or the
                file system gives root's directories to other users.
        """
        os.mkdir(name, 0o700, dir_fd=self.fd)
        folder = Folder(os.open(name, _DIRECTORY, dir_fd=self.fd), self.path / name, self)
        with contextlib.suppress(OSError):  # vfat keeps no modes
            os.fchmod(folder.fd, 0o700)
        found = os.fstat(folder.fd)
        theirs = found.st_uid != 0 or found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
        if os.geteuid() == 0 and (theirs or folder.names()):
            folder.close()
            raise UsageError(
                f"make {self.path / name}",
                f"another user ({_user_name(found.st_uid)}) put a directory in its place, or owns all of that disk",
                "name a directory on a disk where root's files are root's",
            )
        return folder

    def create(self, name: str) -> int:
        """Create a file inside, of mode 0600, and return its descriptor, for reading and writing.

        Raises:
            OSError: The file cannot be created, or something has this name (FileExistsError).
        """
        fd = os.open(name, _NEW, 0o600, dir_fd=self.fd)
        with contextlib.suppress(OSError):  # a umask may have removed rights; vfat keeps no modes
            os.fchmod(fd, 0o600)
        return fd

    def write(self, name: str, content: bytes) -> None:
        """Create a file with this content.

        Raises:
            OSError: As for :meth:`create`, or the file cannot be written.
        """
        with os.fdopen(self.create(name), "wb") as file:
            file.write(content)

    def rename(self, name: str, target: Folder, new_name: str | None = None) -> None:
        """Move an entry to a folder of the same file system. The move replaces a file or link that has the new name.

        Raises:
            OSError: The entry cannot be renamed.
        """
        os.rename(name, new_name or name, src_dir_fd=self.fd, dst_dir_fd=target.fd)

    def remove(self, name: str) -> None:
        """Remove an entry: a file, a link itself, or a directory with its content. A missing entry is no error.

        Raises:
            OSError: The entry cannot be removed.
        """
        try:
            os.unlink(name, dir_fd=self.fd)
        except FileNotFoundError:
            pass
        except IsADirectoryError:
            import shutil  # noqa: PLC0415 - few folders hold others

            shutil.rmtree(name, dir_fd=self.fd)

    def discard(self) -> None:
        """Remove a folder that lo2io made, with its content, and close the folder. A second call does nothing.

        Raises:
            OSError: The folder cannot be removed.
        """
        if self.fd < 0:
            return
        for name in self.names():
            self.remove(name)
        self.discard_if_empty()
        self.close()

    def discard_if_empty(self) -> None:
        """Remove a folder that lo2io made, if it is empty.

        Another folder may have the name by now: rmdir(2) removes that one, too, only if it is empty.
        """
        if self.parent is not None:
            with contextlib.suppress(OSError):
                os.rmdir(self.path.name, dir_fd=self.parent.fd)

    def give(self, owner: tuple[int, int]) -> None:
        """Give a folder that lo2io made to a user, by uid and gid. If that fails, the folder stays root's."""
        with contextlib.suppress(OSError):
            os.fchown(self.fd, *owner)

    def give_contents(self, owner: tuple[int, int]) -> None:
        """Give the content of a folder that lo2io made to a user."""
        with contextlib.suppress(OSError):
            for _, folders, files, fd in os.fwalk(".", topdown=False, dir_fd=self.fd, follow_symlinks=False):
                for name in (*files, *folders):
                    os.chown(name, *owner, dir_fd=fd, follow_symlinks=False)

    # ---- locks ----

    def lock(self, *, shared: bool = False) -> bool:
        """Lock the directory until :meth:`close`, or until the process ends.

        Args:
            shared: Other processes may hold a shared lock at the same time.

        Returns:
            False if the file system has no such locks (NFS): then nothing keeps other processes away.

        Raises:
            InUseError: Another process holds the lock for longer than ``PATIENCE_S``; the error names it.
        """
        end = time.monotonic() + PATIENCE_S
        try:
            while not _try_lock(self.fd, fcntl.LOCK_SH if shared else fcntl.LOCK_EX):
                if time.monotonic() > end:
                    raise InUseError(
                        f"use {self.path}", f"{self.holder()} uses it", "wait for its end, or name another with -o"
                    )
                time.sleep(_BREAK_S)
        except OSError as error:
            if error.errno in _NO_LOCKS:
                return False
            raise
        self._locked = True
        return True

    def unlock(self) -> None:
        """Release the lock, if it is held, also for a child that still has a copy of the descriptor."""
        if self._locked:
            fcntl.flock(self.fd, fcntl.LOCK_UN)
            self._locked = False

    def holder(self) -> str:
        """The process that holds a lock of the directory, as text: command and pid, if the kernel confirms both.

        /proc/locks names the process that took a lock. By now this process may have ended and left the lock to a child,
        and its number to another process. So the number counts only if the process has the directory open now.
        """
        own = os.fstat(self.fd)
        text = Path("/proc/locks").read_text(encoding="ascii") if Path("/proc/locks").exists() else ""
        for match in _LOCK.finditer(text):
            pid = int(match[1])
            if int(match[2]) == own.st_ino and pid != os.getpid() and _has_open(pid, own):
                return f"{_command_line(pid)} (pid {pid})"
        return "another process"

    # ---- messages ----

    def named(self) -> contextlib.AbstractContextManager[None]:
        """Errors raised inside name the directory by its path, where a library named it by :attr:`place`."""
        return told_as(self.place, self.path)


@contextlib.contextmanager
def told_as(place: Path, name: Path) -> Iterator[None]:
    """Errors raised inside name a place by another name."""
    try:
        yield
    except Lo2ioError as error:
        error.tried, error.answer, error.remedy = (
            text.replace(str(place), str(name)) for text in (error.tried, error.answer, error.remedy)
        )
        error.args = (": ".join(part for part in (error.tried, error.answer) if part),)
        raise


def sudo_caller(environ: Mapping[str, str] = os.environ) -> tuple[int, int] | None:
    """Uid and gid of the user who called sudo; None if nobody or root did."""
    uid, gid = environ.get("SUDO_UID", ""), environ.get("SUDO_GID", "")
    if os.geteuid() != 0 or not uid.isdecimal() or not gid.isdecimal() or uid == "0":
        return None
    return int(uid), int(gid)


def read_regular(path: Path, most: int) -> bytes:
    """The content of a regular file that somebody else may have put there.

    Args:
        path: The file, or a link to one.
        most: The largest size that is read, in bytes.

    Raises:
        OSError: The file cannot be opened or read, is no regular file (EINVAL), or is too large (EFBIG).
    """
    # O_NONBLOCK: a FIFO with this name must not stop lo2io.
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY), "rb") as file:
        found = os.fstat(file.fileno())
        if not stat.S_ISREG(found.st_mode):
            raise OSError(errno.EINVAL, "no regular file", str(path))
        if found.st_size > most:
            raise OSError(errno.EFBIG, os.strerror(errno.EFBIG), str(path))
        return file.read(most)


def check_regular(path: Path) -> None:
    """Look before a library opens a file that somebody else may have put there: opening a FIFO waits for its writer.

    Raises:
        OSError: The file does not exist, or is no regular file (EINVAL).
    """
    if not stat.S_ISREG(path.stat().st_mode):
        raise OSError(errno.EINVAL, "no regular file", str(path))


@contextlib.contextmanager
def private_umask() -> Iterator[int]:
    """Files created inside, also by libraries, are for their owner alone. Yields the former umask."""
    before = os.umask(0o077)
    try:
        yield before
    finally:
        os.umask(before)


def _walk(path: Path, *, make: bool = False) -> int:
    """Open a directory, one part of its path after the other."""
    nr_links = 0
    held = _HELD.match(str(path))
    todo = list(reversed(path.parts if held is None else Path(str(path)[held.end() :].lstrip("/")).parts))
    begin = held[0] if held else "/" if path.is_absolute() else "."
    here = os.open(begin, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        while todo:
            name = todo.pop()
            try:
                found = os.open(name, _STEP, dir_fd=here)
            except FileNotFoundError:
                if not make:
                    raise
                with contextlib.suppress(FileExistsError):
                    os.mkdir(name, dir_fd=here)
                found = os.open(name, _STEP, dir_fd=here)
            status = os.fstat(found)
            if not stat.S_ISLNK(status.st_mode):
                os.close(here)
                here = found
                continue
            target = os.readlink("", dir_fd=found)
            os.close(found)
            _check_link(path, name, status.st_uid)
            nr_links += 1
            if nr_links > _MAX_LINKS:
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path))
            todo.extend(reversed(Path(target).parts))
        return os.open(".", _DIRECTORY, dir_fd=here)
    finally:
        os.close(here)


def _check_link(path: Path, name: str, owner: int) -> None:
    """Root follows only links that root made: other links may lead anywhere."""
    if os.geteuid() == 0 and owner != 0:
        raise UsageError(
            f"open {path}",
            f"{name!r} is a symbolic link of {_user_name(owner)}, which root does not follow",
            "name the directory that the link leads to",
        )


def _try_lock(fd: int, kind: int) -> bool:
    """False: another process holds the lock."""
    try:
        fcntl.flock(fd, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _user_name(uid: int) -> str:
    with contextlib.suppress(KeyError):
        return pwd.getpwuid(uid).pw_name
    return f"uid {uid}"


def _has_open(pid: int, directory: os.stat_result) -> bool:
    # The process may have ended, or belong to another user.
    with contextlib.suppress(OSError), os.scandir(f"/proc/{pid}/fd") as entries:
        for entry in entries:
            with contextlib.suppress(OSError):
                if os.path.samestat(entry.stat(), directory):
                    return True
    return False


def _command_line(pid: int) -> str:
    """The command of a process, in quotes, without characters that a terminal would obey."""
    with contextlib.suppress(OSError):
        words = Path(f"/proc/{pid}/cmdline").read_bytes().rstrip(b"\0").split(b"\0")
        text = shlex.join(word.decode(errors="backslashreplace") for word in words)
        shown = text if len(text) <= _SHOWN_COMMAND else text[:_SHOWN_COMMAND] + "…"
        return "`" + "".join(each if each.isprintable() else "?" for each in shown) + "`"
    return "a process"
