"""The recorded command: lo2io starts it stopped, lets it go when everything is open, and waits for it.

The command is the user's. It keeps stdin, stdout, stderr, environment, working directory, signal dispositions and mask.
It gets none of lo2io's rights: under sudo it runs as the user who called sudo.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import pwd
import signal
import stat
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from lo2io.errors import AccessError, CommandError, UsageError, refusal
from lo2io.frozen import dataclass

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

NOT_FOUND = 127
NOT_EXECUTABLE = 126
PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL = 47, 4
"""include/uapi/linux/prctl.h"""
_LIBC = ctypes.CDLL(None)
_PYTHONS_OWN = (signal.SIGPIPE, signal.SIGXFSZ)
"""Python ignores these signals, but commands expect to be killed by them."""


@dataclass(frozen=True, slots=True)
class User:
    """The user that the command runs as."""

    name: str
    uid: int
    gid: int
    home: str = "/"


def resolve_user(name: str | None, environ: Mapping[str, str] = os.environ) -> tuple[User | None, str]:
    """The user that the command runs as (None: lo2io's user), and a notice if the user did not ask for this choice.

    Args:
        name: ``--user``; None means sudo's own user, if there is one.
        environ: It has ``SUDO_UID`` under sudo.

    Raises:
        UsageError: The user does not exist.
        AccessError: Only root can start a command as another user.
    """
    uid = environ.get("SUDO_UID", "")
    if name is None and (os.geteuid() != 0 or not uid.isdecimal() or uid == "0"):
        return None, ""
    try:
        entry = pwd.getpwuid(int(uid)) if name is None else pwd.getpwnam(name)
    except KeyError as error:
        shown = name or f"uid {uid}"
        raise UsageError(
            f"run the command as {shown}", "there is no such user", "name a user with --user NAME"
        ) from error
    user = User(entry.pw_name, entry.pw_uid, entry.pw_gid, entry.pw_dir)
    if name is None:
        return user, f"the command runs as {user.name}, who called sudo (--user root runs it as root)"
    if user.uid == os.geteuid():
        return None, ""
    if os.geteuid() != 0:
        raise AccessError(f"run the command as {name}", "only root may do this", "run lo2io with sudo")
    return user, ""


def find_program(name: str, path: Iterable[str] | None = None) -> Path:
    """The path of a command, as the shell would find it.

    Args:
        name: A name, or a path if it holds a slash.
        path: The folders to search; by default ``PATH``.

    Raises:
        CommandError: The command does not exist (127), or is no executable file (126).
    """
    folders = os.get_exec_path() if path is None else path
    candidates = [Path(name)] if "/" in name else [Path(folder or ".", name) for folder in folders] if name else []
    answer, code = "no such file" if "/" in name else "not found in PATH", NOT_FOUND
    for candidate in candidates:
        try:
            mode = candidate.stat().st_mode
        except OSError as error:
            if error.errno == errno.EACCES:
                answer, code = "permission denied", NOT_EXECUTABLE
            continue
        if stat.S_ISREG(mode) and os.access(candidate, os.X_OK):
            return candidate
        if stat.S_ISREG(mode) or "/" in name:
            answer = "is a directory" if stat.S_ISDIR(mode) else "not executable"
            code = NOT_EXECUTABLE
    raise CommandError(f"start {name!r}", answer, "name a program that exists and may be executed", exit_code=code)


class StoppedCommand:
    """A child that waits to become the command. Start it before any thread, fd or event that it must not have.

    Args:
        command: Program and arguments.
        user: The user that it runs as; None: lo2io's user.
        mask: Its signal mask.
        ignored: Signals that it ignores.
        umask: Its umask; None: lo2io's.

    Attributes:
        pid: The child's pid.
        is_released: True if the child has become the command.
        exit_code: The command's, once somebody has waited for its end.

    Raises:
        CaptureError: The kernel starts no more processes.
    """

    def __init__(
        self,
        command: Sequence[str],
        user: User | None,
        mask: Iterable[int] = (),
        ignored: Iterable[int] = (),
        *,
        umask: int | None = None,
    ) -> None:
        self._command = tuple(command)
        wait_end, self._go = os.pipe()
        self._answer, status_end = os.pipe()
        self.is_released = False
        self.exit_code: int | None = None
        try:
            self.pid = os.fork()
        except OSError as error:
            for fd in (wait_end, self._go, self._answer, status_end):
                os.close(fd)
            raise refusal(f"start {command[0]!r}", error) or error from error
        if self.pid == 0:
            os.close(self._go)
            os.close(self._answer)
            _restore_signals(ignored)
            if umask is not None:
                os.umask(umask)
            _wait_and_become(self._command, user, frozenset(mask), wait_end, status_end)
        os.close(wait_end)
        os.close(status_end)

    def release(self) -> None:
        """Let the child become the command. Returns after the exec.

        Raises:
            CommandError: The exec failed.
        """
        with contextlib.suppress(BrokenPipeError):  # the child has failed already, and its answer tells the error
            os.write(self._go, b"!")
        os.close(self._go)
        self._go = -1
        with os.fdopen(self._answer, "rb") as answer:
            content = answer.read()
        if not content:
            self.is_released = True
            return
        os.waitpid(self.pid, 0)
        number, _, step = content.decode().partition(" ")
        raise _command_error(self._command, int(number), step)

    def abandon(self) -> None:
        """End the child before it becomes the command. Does nothing after its release."""
        if self._go >= 0:
            os.close(self._go)
            os.close(self._answer)
            self._go = -1
            os.waitpid(self.pid, 0)


def _restore_signals(ignored: Iterable[int]) -> None:
    """In the child: undo the changes of Python and lo2io."""
    for number in signal.valid_signals():
        # A handler would swallow a signal that arrives between here and the exec.
        if number in _PYTHONS_OWN or callable(signal.getsignal(number)):
            signal.signal(number, signal.SIG_DFL)
    for each in ignored:
        signal.signal(each, signal.SIG_IGN)


def _wait_and_become(
    command: tuple[str, ...], user: User | None, mask: frozenset[int], wait: int, status: int
) -> NoReturn:
    """In the child: wait for the release, then exec. Never returns into lo2io's code."""
    try:
        if os.read(wait, 1) == b"!":  # else lo2io gave up, or died
            _exec(command, user, mask)
    except _NotStartedError as error:
        os.write(status, f"{error.number} {error.step}".encode())
    finally:
        os._exit(NOT_FOUND)


def become(command: tuple[str, ...], user: User | None) -> NoReturn:
    """Turn this process into the command: with the same pid, and none of lo2io's rights.

    Args:
        command: Program and arguments.
        user: The user that it runs as; None: lo2io's user.

    Raises:
        CommandError: The exec failed.
    """
    _restore_signals(())
    try:
        _exec(command, user, signal.pthread_sigmask(signal.SIG_BLOCK, ()))
    except _NotStartedError as error:
        raise _command_error(command, error.number, error.step) from error


class _NotStartedError(Exception):
    """A step on the way to the command failed."""

    def __init__(self, step: str, number: int) -> None:
        super().__init__(step, number)
        self.step = step
        self.number = number


def _command_error(command: tuple[str, ...], number: int, step: str) -> CommandError:
    return CommandError(
        f"{step} {command[0]!r}",
        os.strerror(number),
        "check that the program, and the interpreter in its first line, exist and may be executed",
        exit_code=NOT_FOUND if number in {errno.ENOENT, errno.ENOTDIR} else NOT_EXECUTABLE,
    )


def _exec(command: tuple[str, ...], user: User | None, mask: Iterable[int]) -> NoReturn:
    step = "prepare to start"
    try:
        # The command does not get lo2io's ambient rights (setpriv --ambient-caps, systemd's AmbientCapabilities).
        _LIBC.prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0)
        if user is not None:
            step = f"become {user.name} for"
            os.initgroups(user.name, user.gid)
            os.setgid(user.gid)
            os.setuid(user.uid)
            # sudo has set these variables for root. Programs such as git fail if they cannot read files in $HOME.
            os.environ.update(HOME=user.home, USER=user.name, LOGNAME=user.name)
        step = "start"
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        try:
            os.execvp(command[0], command)  # noqa: S606 - no shell is wanted
        except OSError as error:
            if error.errno != errno.ENOEXEC:
                raise
            # A script whose first line names no interpreter runs in the shell, as with execvp(3).
            os.execv("/bin/sh", ["sh", str(find_program(command[0])), *command[1:]])  # noqa: S606
    except OSError as error:
        raise _NotStartedError(step, error.errno or 0) from error
