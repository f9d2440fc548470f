"""The directory of a trace: created, locked, replaced, and given to the user who called sudo.

lo2io removes nothing by its name alone: a folder called ``lo2io`` may hold somebody's sources. All access goes through
the open directory (:mod:`lo2io.folder`). A writer has the directory locked.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import stat
from pathlib import Path
from typing import TYPE_CHECKING

from lo2io.errors import UsageError
from lo2io.folder import Folder, sudo_caller
from lo2io.signals import interrupts_held_back
from lo2io.spool.format import ANY_SEGMENT_PATTERN, FILE_PATTERN, SEGMENT_FILE_PATTERN
from lo2io.trace.names import (
    ANCHOR,
    ARCHIVE,
    DEFINITIONS_FILE,
    DIRECTORY,
    LOCATION_PATTERN,
    MARKER_FILE,
    PART,
    SPOOL,
    TABLE_PATTERN,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

TRACE_FILES = (DEFINITIONS_FILE, MARKER_FILE, ARCHIVE, DIRECTORY, ANCHOR)
"""In the order in which they are renamed into place. The anchor comes last and makes the trace whole."""
_REPLACED = ".replaced"
"""Holds the former trace until the new one is in place."""
_CONTENTS = {
    ARCHIVE: LOCATION_PATTERN,
    DIRECTORY: TABLE_PATTERN,
    SPOOL: FILE_PATTERN,
}
"""What lo2io writes into each folder of a trace, and nothing else, but for the segments of a spool."""
_DUMP = re.compile(r"dump-\d{8}-\d{6}(-\d+)?")
"""A window that a flight recorder wrote meanwhile: a trace of its own, which no later recording touches."""


@contextlib.contextmanager
def locked_directory(path: Path | None, stem: str = "") -> Iterator[Folder]:
    """The directory of a trace that is being written, locked meanwhile; one made here that stays empty is removed.

    Args:
        path: The directory; what is missing of its path is made.
        stem: Without a path: the name of a new one in the working directory, or with a number behind it. Two
            recordings may begin in the same second.

    Raises:
        UsageError: It cannot be opened or made, or another process writes there.
    """
    trace = _new_directory(stem) if path is None else open_directory(path)
    try:
        try:
            trace.lock()
        except UsageError as error:
            raise UsageError(f"write {trace.path}", error.answer, error.remedy) from None
        yield trace
    finally:
        trace.discard_if_empty()
        trace.close()


def open_directory(path: Path) -> Folder:
    """Open or make a directory to write into.

    Raises:
        UsageError: That cannot be done.
    """
    try:
        return Folder.open_or_make(path)
    except NotADirectoryError as error:
        raise UsageError(f"write {path}", "it is no directory", "name another with -o") from error
    except OSError as error:
        raise _unwritable(path, error) from error


def _new_directory(stem: str) -> Folder:
    here = open_directory(Path())
    for number in itertools.count(1):
        name = stem if number == 1 else f"{stem}-{number}"
        try:
            return here.make(name)
        except FileExistsError:
            continue
        except OSError as error:
            raise _unwritable(Path(name), error) from error
    raise AssertionError


@contextlib.contextmanager
def fresh_directory(trace: Folder, *, force: bool) -> Iterator[Folder]:
    """The spool's directory, made in that of a trace, locked, and left open.

    A former trace is put aside, and removed only when the recording has succeeded: a command that could not be started
    costs nothing.

    Args:
        trace: The directory, locked.
        force: Replace a trace that is there.

    Raises:
        UsageError: It is not empty, and ``force`` is not set; or it is no trace's and will not be removed; or somebody
            reads the spool that is there.
    """
    former = _check_replaceable(trace, force=force)
    with _put_aside(trace, former, lambda: trace.is_folder(SPOOL)):
        try:
            spool = trace.make(SPOOL)
        except OSError as error:
            raise _unwritable(trace.path, error) from error
        try:
            spool.lock()
            yield spool
        except BaseException:
            spool.discard_if_empty()  # nothing was recorded
            raise


@contextlib.contextmanager
def whole_trace(trace: Folder, spool: Folder, *, force: bool) -> Iterator[Folder]:
    """What is written into the folder that this yields becomes a whole trace, or nothing stays of it.

    A former trace stays until then. An interrupt amid the renames waits for the last one.

    Args:
        trace: The directory, locked.
        spool: What is read meanwhile.
        force: Replace a trace that is there.

    Raises:
        UsageError: There is a trace already and ``force`` is not set, or something that is not lo2io's, or it cannot
            be written.
    """
    tried = f"write {trace.path}"
    if os.path.sameopenfile(trace.fd, spool.fd):
        raise UsageError(tried, "it is the spool itself", "name another directory with -o")
    present = [name for name in TRACE_FILES if trace.status(name)]
    if ANCHOR in present and not force:
        raise UsageError(tried, "there is a trace already", "name another with -o, or replace it with --force")
    for name in (*present, PART, _REPLACED):
        if trace.status(name) and not _is_own(trace, name):
            raise UsageError(tried, f"its {name!r} is none of a trace of lo2io", "name another with -o")
    try:
        trace.remove(PART)  # of one that was killed
        part = trace.make(PART)
    except OSError as error:
        raise _unwritable(trace.path, error) from error
    try:
        with part.named():
            yield part
        give_away(part, itself=False)
        with interrupts_held_back(), _put_aside(trace, present, lambda: trace.is_file(ANCHOR)):
            for name in TRACE_FILES:
                if part.status(name):
                    part.rename(name, trace)
    except OSError as error:
        raise _unwritable(trace.path, error) from error
    finally:
        with contextlib.suppress(OSError):
            part.discard()


def is_dump(name: str) -> bool:
    """Whether a flight recorder names a window so."""
    return bool(_DUMP.fullmatch(name))


def give_away(folder: Folder, *, itself: bool = True, contents: bool = True) -> None:
    """Make who called sudo the owner of a folder that lo2io made and of what is in it, as if written by that user."""
    caller = sudo_caller()
    if caller and contents:
        folder.give_contents(caller)
    if caller and itself:
        folder.give(caller)


@contextlib.contextmanager
def _put_aside(trace: Folder, names: list[str], is_replaced: Callable[[], bool]) -> Iterator[None]:
    """Meanwhile these entries lie aside; after an error they return, unless what replaces them is there by then."""
    try:
        trace.remove(_REPLACED)
        aside = trace.make(_REPLACED) if names else None
        if aside:
            for name in names:
                trace.rename(name, aside)
    except OSError as error:
        raise _unwritable(trace.path, error) from error
    try:
        yield
    except BaseException:
        if aside and not is_replaced():
            for name in aside.names():
                trace.remove(name)
                aside.rename(name, trace)
        raise
    finally:
        if aside:
            with contextlib.suppress(OSError):
                aside.discard()


def _check_replaceable(trace: Folder, *, force: bool) -> list[str]:
    """The entries of a trace that may be replaced."""
    tried = f"write {trace.path}"
    try:
        entries = [name for name in trace.names() if not _DUMP.fullmatch(name)]
        known = all(name in (*TRACE_FILES, SPOOL, PART, _REPLACED) and _is_own(trace, name) for name in entries)
    except OSError as error:
        raise _unwritable(trace.path, error) from error
    if not known:
        raise UsageError(tried, "it exists, and holds what is no trace of lo2io", "name another with -o")
    if entries and not force:
        raise UsageError(tried, "it exists", "name another with -o, or replace it with --force")
    if SPOOL in entries:
        with trace.enter(SPOOL) as spool:
            spool.lock()
    return [name for name in entries if name != _REPLACED]


def _is_own(folder: Folder, name: str) -> bool:
    """Whether lo2io wrote it: a plain file of its name, or a folder of nothing but what it writes there."""
    if name in {PART, _REPLACED}:
        if not folder.is_folder(name):
            return False
        with folder.enter(name) as inner:
            return all(each in (*TRACE_FILES, SPOOL, PART) and _is_own(inner, each) for each in inner.names())
    if name not in _CONTENTS:
        return folder.is_file(name)
    if not folder.is_folder(name):
        return False
    with folder.enter(name) as inner:
        return all(
            _holds_only(inner, each, SEGMENT_FILE_PATTERN)
            if name == SPOOL and ANY_SEGMENT_PATTERN.fullmatch(each)
            else _CONTENTS[name].fullmatch(each) and _is_plain(inner, each)
            for each in inner.names()
        )


def _holds_only(folder: Folder, name: str, pattern: re.Pattern[str]) -> bool:
    """A folder of nothing but files of these names."""
    if not folder.is_folder(name):
        return False
    with folder.enter(name) as inner:
        return all(pattern.fullmatch(each) and _is_plain(inner, each) for each in inner.names())


def _is_plain(folder: Folder, name: str) -> bool:
    """A file, or the socket of a flight recorder."""
    found = folder.status(name)
    return found is not None and (stat.S_ISREG(found.st_mode) or stat.S_ISSOCK(found.st_mode))


def _unwritable(trace: Path, error: OSError) -> UsageError:
    return UsageError(f"write {trace}", error.strerror or str(error), "name a place you may write to with -o")
