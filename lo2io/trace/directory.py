"""The directory of a trace: how it is created, locked, replaced, and given to the user who called sudo.

lo2io removes nothing by its name alone: a folder called ``lo2io`` may hold somebody's sources. All access goes through
the open directory (:mod:`lo2io.folder`). Who writes holds a lock on the directory.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import stat
from pathlib import Path
from typing import TYPE_CHECKING

from lo2io.errors import InUseError, SpoolError, UsageError
from lo2io.folder import Folder, sudo_caller
from lo2io.signals import interrupts_held_back
from lo2io.spool.format import (
    ANY_SEGMENT_PATTERN,
    FILE_PATTERN,
    MAX_META_BYTES,
    META_NAME,
    RECORD_ENDINGS,
    SEGMENT_FILE_PATTERN,
    parse_meta,
)
from lo2io.trace.names import (
    ANCHOR,
    ARCHIVE,
    DEFINITIONS_FILE,
    DIRECTORY,
    LOCATION_PATTERN,
    MARKER_FILE,
    PART,
    REWRITTEN,
    SPOOL,
    TABLE_PATTERN,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

TRACE_FILES = (DEFINITIONS_FILE, MARKER_FILE, ARCHIVE, DIRECTORY, ANCHOR)
"""The entries in the order in which they are renamed into place. The anchor comes last and makes the trace whole."""
_REPLACED = ".replaced"
"""The folder that holds the former trace until the new one is in place."""
_CONTENTS = {
    ARCHIVE: LOCATION_PATTERN,
    DIRECTORY: TABLE_PATTERN,
    SPOOL: FILE_PATTERN,
}
"""The names that lo2io writes into each folder of a trace. A spool may also hold segments."""
_DUMP = re.compile(r"dump-\d{8}-\d{6}(-\d+)?")
"""The name of a window that a flight recorder wrote: a trace of its own, which no later recording touches."""


@contextlib.contextmanager
def locked_directory(path: Path | None, stem: str = "") -> Iterator[Folder]:
    """Lock the directory of a trace while the trace is written. A directory made here is removed if it stays empty.

    Args:
        path: The directory. Missing folders of the path are made.
        stem: Without a path, the name of a new directory in the working directory. If the name exists, a number
            follows: two recordings may begin in the same second.

    Raises:
        UsageError: The directory cannot be opened or made.
        InUseError: Another process writes there.
    """
    trace = _new_directory(stem) if path is None else open_directory(path)
    try:
        try:
            trace.lock()
        except InUseError as error:
            raise InUseError(f"write {trace.path}", error.answer, error.remedy) from None
        yield trace
    finally:
        trace.discard_if_empty()
        trace.close()


def open_directory(path: Path) -> Folder:
    """Open or make a directory to write into.

    Raises:
        UsageError: The directory can be neither opened nor made.
    """
    try:
        return Folder.open_or_make(path)
    except NotADirectoryError as error:
        raise UsageError(f"write {path}", "this is no directory", "name a directory with -o") from error
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
    """Make the spool's directory within the trace's directory; lock it and leave it open.

    A former trace is put aside, and removed only after the recording has succeeded. So a command that cannot be
    started destroys nothing.

    Args:
        trace: The trace's directory, locked.
        force: Replace an existing trace.

    Raises:
        UsageError: The directory is not empty and ``force`` is not set; or its contents are not a trace's, so they are
            never removed; or another process reads the existing spool.
    """
    _remove_stale(trace)
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
def whole_trace(trace: Folder, spool: Folder | None, *, force: bool) -> Iterator[Folder]:
    """Yield a folder whose contents become the trace at the end. After an error, nothing of the contents stays.

    A former trace stays until the end. An interrupt during the renames waits for the last rename.

    Args:
        trace: The trace's directory, locked.
        spool: The spool that is read at the same time; None: other traces are.
        force: Replace an existing trace.

    Raises:
        UsageError: A trace exists and ``force`` is not set, the directory holds something that lo2io did not write, or
            it cannot be written.
    """
    tried = f"write {trace.path}"
    if spool is not None and os.path.sameopenfile(trace.fd, spool.fd):
        raise UsageError(tried, "this is the spool itself", "name another directory with -o")
    present = [name for name in TRACE_FILES if trace.status(name)]
    if ANCHOR in present and not force:
        raise UsageError(tried, "there is a trace already", "name another with -o, or replace it with --force")
    for name in (*present, PART, _REPLACED):
        if trace.status(name) and not _is_own(trace, name):
            raise UsageError(tried, f"lo2io did not write its {name!r}", "name another directory with -o")
    part: Folder | None = None
    try:
        with interrupts_held_back():  # an interrupt that came between making the folder and knowing it would leave it
            trace.remove(PART)  # left by a converter that was killed
            part = trace.make(PART)
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
        if part:
            with contextlib.suppress(OSError):
                part.discard()


def is_dump(name: str) -> bool:
    """True if the name is one that a flight recorder gives to a window."""
    return bool(_DUMP.fullmatch(name))


def give_away(folder: Folder, *, itself: bool = True, contents: bool = True) -> None:
    """Under sudo, make the calling user the owner of a folder that lo2io made, and of the folder's contents."""
    caller = sudo_caller()
    if caller and contents:
        folder.give_contents(caller)
    if caller and itself:
        folder.give(caller)


@contextlib.contextmanager
def _put_aside(trace: Folder, names: list[str], is_replaced: Callable[[], bool]) -> Iterator[None]:
    """Move these entries aside. After an error they return, unless their replacement is in place by then."""
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


def _remove_stale(trace: Folder) -> None:
    """Remove what killed recorders left without any recorded event: spools, and windows that were just begun."""
    with contextlib.suppress(OSError, UsageError):
        for name in filter(is_dump, trace.names()):
            if trace.is_folder(name):
                with trace.enter(name) as window:
                    _remove_stale_spool(window)
                with contextlib.suppress(OSError):
                    os.rmdir(name, dir_fd=trace.fd)  # only if it is empty
        _remove_stale_spool(trace)


def _remove_stale_spool(trace: Folder) -> None:
    """Remove a spool without a description, or whose description says that nothing was recorded."""
    if not trace.is_folder(SPOOL) or not _is_own(trace, SPOOL):
        return
    with trace.enter(SPOOL) as spool:
        spool.lock()
        if spool.is_file(META_NAME):
            try:
                meta = parse_meta(spool.read(META_NAME, MAX_META_BYTES))
            except SpoolError:
                return
            if meta.complete or meta.syncs:
                return
        elif any(each.endswith(RECORD_ENDINGS) and os.stat(each, dir_fd=spool.fd).st_size for each in spool.files()):
            return  # buffers of a recording, whose description somebody has removed
        trace.remove(SPOOL)


def _check_replaceable(trace: Folder, *, force: bool) -> list[str]:
    """The entries of a trace that may be replaced."""
    tried = f"write {trace.path}"
    try:
        entries = [name for name in trace.names() if not _DUMP.fullmatch(name)]
        known = all(name in (*TRACE_FILES, SPOOL, PART, _REPLACED) and _is_own(trace, name) for name in entries)
    except OSError as error:
        raise _unwritable(trace.path, error) from error
    if not known:
        raise UsageError(tried, "it exists, and holds something that lo2io did not write", "name another with -o")
    if entries and not force:
        raise UsageError(tried, "it exists", "name another with -o, or replace it with --force")
    if SPOOL in entries:
        with trace.enter(SPOOL) as spool:
            spool.lock()
    return [name for name in entries if name != _REPLACED]


def _is_own(folder: Folder, name: str) -> bool:
    """True if lo2io wrote this entry: a plain file, or a folder that holds only names which lo2io writes there."""
    if name in {PART, _REPLACED, REWRITTEN}:
        if not folder.is_folder(name):
            return False
        with folder.enter(name) as inner:
            return all(
                each in (*TRACE_FILES, SPOOL, PART, REWRITTEN) and _is_own(inner, each) for each in inner.names()
            )
    if name not in _CONTENTS:
        return folder.is_file(name)
    if not folder.is_folder(name):
        return False
    with folder.enter(name) as inner:
        return all(
            _holds_only(inner, each, SEGMENT_FILE_PATTERN)
            if name == SPOOL and ANY_SEGMENT_PATTERN.fullmatch(each)
            else _CONTENTS[name].fullmatch(each) and (_is_plain(inner, each) or _is_link_to_events(name, inner, each))
            for each in inner.names()
        )


def _holds_only(folder: Folder, name: str, pattern: re.Pattern[str]) -> bool:
    """True for a folder that holds only plain files of these names."""
    if not folder.is_folder(name):
        return False
    with folder.enter(name) as inner:
        return all(pattern.fullmatch(each) and _is_plain(inner, each) for each in inner.names())


def _is_plain(folder: Folder, name: str) -> bool:
    """True for a file, and for the socket of a flight recorder."""
    found = folder.status(name)
    return found is not None and (stat.S_ISREG(found.st_mode) or stat.S_ISSOCK(found.st_mode))


def _is_link_to_events(of: str, folder: Folder, name: str) -> bool:
    """True for a symbolic link in the folder ``traces``: a merged archive may have such links to its parts' events."""
    found = folder.status(name)
    return of == ARCHIVE and found is not None and stat.S_ISLNK(found.st_mode)


def _unwritable(trace: Path, error: OSError) -> UsageError:
    return UsageError(f"write {trace}", error.strerror or str(error), "name a place you may write to with -o")
