"""The directory of a trace: made, found to be lo2io's own before anything in it is removed, given to who called sudo.

Nothing is removed by its name alone: a folder called ``lo2io`` may well be somebody's sources.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import shutil
import stat
from pathlib import Path
from typing import TYPE_CHECKING

from lo2io.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

SPOOL = "spool"
"""The spool's place inside the trace's directory while recording, and after it with --keep-spool."""
TRACE_FILES = ("traces.otf2", "traces.def", "traces.marker", "traces", "lo2io")
_REPLACED = ".replaced"
"""Holds the former trace until the new recording has succeeded."""
_CONTENTS = {
    "traces": re.compile(r"\d+\.(evt|def|snap)"),
    "lo2io": re.compile(r"\w+\.arrow|metadata\.json"),
    SPOOL: re.compile(r"cpu-\d+\.ring|facts\.ring|spool\.json(\.new)?|\.reserve|dumps\.jsonl|\.recorder"),
}
"""What lo2io writes into each folder of a trace, and nothing else …"""
_SEGMENT = re.compile(r"\.?seg-\d{6,}")
_SEGMENT_CONTENTS = re.compile(r"cpu-\d+\.ring|facts\.ring|segment\.json")
"""… but for a flight recorder's spool, which has folders of files."""
_DUMP = re.compile(r"dump-\d{8}-\d{6}(-\d+)?")
"""A window that a flight recorder wrote meanwhile: a trace of its own, which no later recording touches."""


@contextlib.contextmanager
def fresh_directory(trace: Path, *, force: bool, made: bool = False) -> Iterator[Path]:
    """The directory to record into, its spool's path yielded; one that was made here and stayed empty is removed.

    A former trace is put aside, and removed only when the recording has succeeded: a command that could not be started
    costs nothing.

    Args:
        trace: The directory; what is missing of its path is made.
        force: Replace a trace that is there.
        made: It was made for this recording already, by :func:`new_directory`.

    Raises:
        UsageError: It exists, and is not empty, and ``force`` is not set; or it is no trace's and will not be removed.
    """
    _check_replaceable(trace, force=force)
    aside = trace / _REPLACED
    made = made or not trace.exists()
    try:
        trace.mkdir(parents=True, exist_ok=True)
        former = [entry for entry in trace.iterdir() if entry.name != _REPLACED and not _DUMP.fullmatch(entry.name)]
        if former:
            shutil.rmtree(aside, ignore_errors=True)
            aside.mkdir()
        for entry in former:
            entry.rename(aside / entry.name)
    except OSError as error:
        raise _unwritable(trace, error) from error
    try:
        yield trace / SPOOL
    except BaseException:
        if former and not (trace / SPOOL).exists():
            for entry in list(aside.iterdir()):
                entry.rename(trace / entry.name)
        raise
    finally:
        shutil.rmtree(aside, ignore_errors=True)
        if made:
            with contextlib.suppress(OSError):
                trace.rmdir()  # only if nothing came of it


def new_directory(stem: str) -> Path:
    """Make a directory of this name, or with a number behind it: two recordings may begin in the same second.

    Raises:
        UsageError: Nothing can be made here.
    """
    for number in itertools.count(1):
        path = Path(stem if number == 1 else f"{stem}-{number}")
        try:
            path.mkdir()
        except FileExistsError:
            continue
        except OSError as error:
            raise _unwritable(path, error) from error
        return path
    raise AssertionError


@contextlib.contextmanager
def whole_trace(trace: Path, spool: Path, *, force: bool) -> Iterator[None]:
    """What is written meanwhile becomes a whole trace, or nothing stays of it: converting can then be tried again.

    Raises:
        UsageError: There is a trace already and ``force`` is not set, or something that is not lo2io's, or it cannot
            be written.
    """
    if trace.exists() and trace.resolve() == spool.resolve():
        raise UsageError(f"write {trace}", "it is the spool itself", "name another directory with -o")
    present = [name for name in TRACE_FILES if os.path.lexists(trace / name)]
    if "traces.otf2" in present and not force:
        raise UsageError(
            f"write {trace}", "there is a trace already", "name another with -o, or replace it with --force"
        )
    for name in present:
        if not _is_own(trace / name):
            raise UsageError(f"write {trace}", f"its {name!r} is none of a trace of lo2io", "name another with -o")
    made = not trace.exists()
    try:
        _remove_trace(trace)
        trace.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _unwritable(trace, error) from error
    try:
        yield
    except BaseException:
        with contextlib.suppress(OSError):
            _remove_trace(trace)
            if made:
                trace.rmdir()
        raise


def sudo_caller(environ: Mapping[str, str] = os.environ) -> tuple[int, int] | None:
    """Uid and gid of who called sudo; None where nobody did, or root."""
    uid, gid = environ.get("SUDO_UID", ""), environ.get("SUDO_GID", "")
    if os.geteuid() != 0 or not uid.isdecimal() or not gid.isdecimal() or uid == "0":
        return None
    return int(uid), int(gid)


def give_away(trace: Path, owner: tuple[int, int]) -> None:
    """Make a user the owner of a trace that root wrote, as if the user had written it; what fails stays root's.

    The directory may lie where that user can rename and link as they like. So nothing is followed, only what is root's
    and has one name is given away, and what is inside before the folder around it.
    """
    with contextlib.suppress(OSError):
        fd = os.open(trace, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            for _, folders, files, folder in os.fwalk(".", topdown=False, dir_fd=fd, follow_symlinks=False):
                for name in (*files, *folders):
                    found = os.stat(name, dir_fd=folder, follow_symlinks=False)
                    if found.st_uid == 0 and (stat.S_ISDIR(found.st_mode) or found.st_nlink == 1):
                        os.chown(name, *owner, dir_fd=folder, follow_symlinks=False)
            if os.fstat(fd).st_uid == 0:
                os.fchown(fd, *owner)
        finally:
            os.close(fd)


def _check_replaceable(trace: Path, *, force: bool) -> None:
    try:
        entries = list(trace.iterdir()) if trace.is_dir() else [trace] if os.path.lexists(trace) else []
    except OSError as error:
        raise _unwritable(trace, error) from error
    entries = [entry for entry in entries if not _DUMP.fullmatch(entry.name)]
    if not entries:
        return
    known = all(
        entry.name == _REPLACED or (entry.name in (*TRACE_FILES, SPOOL) and _is_own(entry)) for entry in entries
    )
    if not trace.is_dir() or not known:
        raise UsageError(f"write {trace}", "it exists, and holds what is no trace of lo2io", "name another with -o")
    if not force:
        raise UsageError(f"write {trace}", "it exists", "name another with -o, or replace it with --force")


def _is_own(path: Path) -> bool:
    """Whether lo2io wrote it: a plain file of its name, or a folder of nothing but what it writes there."""
    if path.is_symlink():
        return False
    if path.name not in _CONTENTS:
        return path.is_file()
    if not path.is_dir():
        return False
    pattern = _CONTENTS[path.name]
    return all(
        _holds_only(entry, _SEGMENT_CONTENTS)
        if path.name == SPOOL and _SEGMENT.fullmatch(entry.name)
        else pattern.fullmatch(entry.name) and entry.is_file()
        for entry in path.iterdir()
    )


def _holds_only(folder: Path, pattern: re.Pattern[str]) -> bool:
    """A folder of nothing but files of these names."""
    return (
        folder.is_dir()
        and not folder.is_symlink()
        and all(pattern.fullmatch(entry.name) and entry.is_file() for entry in folder.iterdir())
    )


def _remove_trace(trace: Path) -> None:
    for name in TRACE_FILES:
        path = trace / name
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)


def _unwritable(trace: Path, error: OSError) -> UsageError:
    return UsageError(f"write {trace}", error.strerror or str(error), "name a place you may write to with -o")
