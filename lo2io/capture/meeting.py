"""The ranks of one node meet: one of them records for all, and all commands begin together once it records.

Each rank of a job runs ``lo2io record -o T -- CMD``. They meet in a folder of a file system in this node's memory::

    rank 0                     rank 1                     rank 2
    locks `leader`             `leader` is locked         `leader` is locked
    looks who is there         makes and locks `1-PID`    makes and locks `2-PID`
    sees all of the node       waits for `leader`         waits for `leader`
    forks CMD, which waits         ⋮                          ⋮
    opens events, begins           ⋮                          ⋮
    lets CMD go                    ⋮                          ⋮
    writes pids, unlocks  ───► finds its pid: execs CMD   finds its pid: execs CMD

A rank that execs keeps its pid, so its exit code and its signals are its own. The leader stays: it is the parent of its
command, and records. If the leader ends earlier, the kernel unlocks, the others find nothing in the file, and end, too.

The folder's name holds user, node, job, step and output. It is closed to other users, and is removed before the ranks
go on. A rank that comes too late finds itself left out, and meets others anew.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import re
import time
from typing import TYPE_CHECKING, Self

from lo2io.errors import CaptureError, Lo2ioError
from lo2io.folder import Folder
from lo2io.model.job import RankedProcess

if TYPE_CHECKING:
    from pathlib import Path

    from lo2io.capture.launchers import Place

PATIENCE_S = 30.0
"""The longest time without a new rank, if the launcher tells how many there are: ranks may start one after another."""
UNTOLD_PATIENCE_S = 1.0
"""The same, if it does not tell."""
_LOOK_S = 0.02
_LEADER = "leader"
_OF_RANK = re.compile(r"(\d+)-(\d+)")
"""The file of a rank: its number and its pid."""
_TRIED = "meet the other ranks of this node"


class Meeting:
    """The leader's side: the other ranks wait until :meth:`release`. If the context ends before, they end.

    Attributes:
        ranks: The ranks of this node that came, the leader's own first.
        missing: How many did not come, as far as the launcher tells how many there are.
        fds: A pidfd of each other rank, opened while that rank waited: its number cannot be another process' by then.
    """

    def __init__(self, folder: Folder, lock: int, rank: int) -> None:
        self.ranks: tuple[RankedProcess, ...] = (RankedProcess(os.getpid(), rank),)
        self.missing = 0
        self.fds: tuple[int, ...] = ()
        self._folder = folder
        self._lock = lock

    @property
    def others(self) -> tuple[int, ...]:
        """Pids of the other ranks."""
        return tuple(each.pid for each in self.ranks[1:])

    def gather(self, size: int | None) -> None:
        """Wait until all ranks of the node are there, or no further one comes.

        Args:
            size: The number of ranks; None: not known.
        """
        patience_s = UNTOLD_PATIENCE_S if size is None else PATIENCE_S
        found: dict[str, tuple[RankedProcess, int]] = {}
        last = time.monotonic()
        while (size is None or len(found) + 1 < size) and time.monotonic() - last < patience_s:
            for name in self._folder.names():
                if name not in found and (came := _look_at(self._folder, name)) is not None:
                    found[name] = came
                    last = time.monotonic()
            time.sleep(_LOOK_S)
        others = sorted(found.values(), key=lambda each: each[0].rank)
        self.ranks += tuple(each for each, _ in others)
        self.fds = tuple(fd for _, fd in others)
        self.missing = 0 if size is None else max(size - len(self.ranks), 0)

    def release(self) -> None:
        """Let the other ranks become their commands."""
        self._end(0)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        self._end(error.exit_code if isinstance(error, Lo2ioError) else Lo2ioError.exit_code)
        for fd in self.fds:
            os.close(fd)
        self.fds = ()
        self._folder.close()

    def _end(self, code: int) -> None:
        """Tell the others to exec (0), or to exit with this code. A later call does nothing."""
        if self._lock < 0:
            return
        os.write(self._lock, " ".join(map(str, (code, *self.others))).encode())
        _remove(self._folder)
        fcntl.flock(self._lock, fcntl.LOCK_UN)  # also for the child that will be the command, and has a copy
        os.close(self._lock)
        self._lock = -1


def meet(memory: Path, place: Place, output: Path) -> Meeting | int:
    """Meet the other ranks of this node.

    Args:
        memory: The folder of a file system in which they meet. Other users may write there, too.
        place: This rank's place in the job.
        output: Where the job's recording goes: a step may run lo2io twice.

    Returns:
        For the leader, the meeting, which has not gathered yet. For another rank, when the leader has decided: 0 to go
        on, or the exit code to end with.

    Raises:
        CaptureError: The ranks cannot meet, or the leader ended.
    """
    path = memory / f"lo2io-{os.geteuid()}-{_key(place, output)}"
    try:
        while True:
            folder = _open_folder(path)
            lock = _open_lock(folder, _LEADER)
            if lock is None:
                pass
            elif not _try_lock(lock):
                with folder:
                    code = _follow(folder, lock, place.rank)
                if code is not None:
                    return code
            elif _is_there(folder, lock):
                os.ftruncate(lock, 0)
                return Meeting(folder, lock, place.rank)
            else:  # the former leader was just removing it
                os.close(lock)
            folder.close()
    except OSError as error:
        raise CaptureError(_TRIED, f"{path}: {error.strerror}", f"remove {path}, if it is another user's") from error


def _key(place: Place, output: Path) -> str:
    """A name of fixed length for what the ranks have in common."""
    job = place.job
    common = (os.uname().nodename, job.host, job.launcher, job.id, job.step, os.path.abspath(output))  # noqa: PTH100
    return hashlib.sha256("\0".join(common).encode(errors="surrogateescape")).hexdigest()[:24]


def _open_folder(path: Path) -> Folder:
    """The folder at ``path``, which is this user's alone. Everybody may make one there, or a link to another folder.

    Raises:
        OSError: The path is no folder, or somebody else made the folder.
    """
    with contextlib.suppress(FileExistsError):
        path.mkdir(mode=0o700)
    folder = Folder(os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC), path)
    found = os.fstat(folder.fd)
    if found.st_uid != os.geteuid() or found.st_mode & 0o077:
        folder.close()
        raise PermissionError(0, "another user may write there")
    return folder


def _open_lock(folder: Folder, name: str) -> int | None:
    """A file to lock. None: the folder has been removed."""
    flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
    with contextlib.suppress(FileNotFoundError):
        return os.open(name, flags, 0o600, dir_fd=folder.fd)
    return None


def _try_lock(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _is_there(folder: Folder, lock: int) -> bool:
    """True if the locked file is still the one that others find."""
    found = folder.status(_LEADER)
    return found is not None and os.path.samestat(found, os.fstat(lock))


def _follow(folder: Folder, lock: int, rank: int) -> int | None:
    """Wait for the leader, and return what it decided. None: it left this rank out, which came too late.

    Raises:
        CaptureError: The leader ended without a decision.
    """
    name = f"{rank}-{os.getpid()}"
    own = _open_lock(folder, name)
    try:
        if own is not None:
            fcntl.flock(own, fcntl.LOCK_EX)
        fcntl.flock(lock, fcntl.LOCK_SH)
        decision = os.pread(lock, 1 << 20, 0).split()
    finally:
        with contextlib.suppress(OSError):
            folder.remove(name)
        if own is not None:
            os.close(own)
        os.close(lock)
    if not decision:
        raise CaptureError(_TRIED, "the rank that should record for this node ended", "see its messages")
    code, *pids = map(int, decision)
    return code if code or os.getpid() in pids else None


def _look_at(folder: Folder, name: str) -> tuple[RankedProcess, int] | None:
    """A rank that waits, and its pidfd. None: the file is no rank's, or its rank has ended."""
    match = _OF_RANK.fullmatch(name)
    if match is None:
        return None
    rank, pid = map(int, match.groups())
    try:
        with contextlib.closing(os.fdopen(folder.open_file(name), "rb")) as file:
            if _try_lock(file.fileno()):
                return None
            return RankedProcess(pid, rank), os.pidfd_open(pid)
    except OSError:
        return None


def _remove(folder: Folder) -> None:
    """Remove the meeting's folder, though a rank may make a file there at the same time."""
    with contextlib.suppress(OSError):
        for name in folder.names():
            if name == _LEADER or _OF_RANK.fullmatch(name):
                folder.remove(name)
        folder.path.rmdir()
