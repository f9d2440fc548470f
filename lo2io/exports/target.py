"""Where an export goes: written under another name, and there whole or not at all.

In: the name of a file or folder. Out: that name, once everything is written and on the disk. What was there before is
replaced with ``force`` alone, and only if it is an export of the same kind: a file that begins as such do, a folder of
nothing but what an export's ``lo2io-export.json`` lists.

What is being written lies in a folder that is lo2io's alone, beside its future name (:mod:`lo2io.folder`). The file or
folder inside has the mode that the umask gives: an export is made to be handed on, as any program's output is.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import stat
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from lo2io._version import __version__
from lo2io.errors import Lo2ioError, UsageError
from lo2io.folder import Folder, told_as
from lo2io.trace.directory import give_away

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

Progress: TypeAlias = Callable[[float], None]
"""Takes the share that is done, from 0 to 1."""

MARKER: Final = "lo2io-export.json"
"""In an export that is a folder: what it is, of which trace, and its files."""
MARKER_FORMAT: Final = "lo2io-export"
_REPLACED: Final = ".replaced"
"""What had the name before, while the new export gets it."""


@dataclass(frozen=True, slots=True)
class ExportSummary:
    """What was written."""

    rows: int
    """Rows of the trace's tables that are in it."""
    size_bytes: int = 0
    """Of all its files; an exporter may leave that to :func:`lo2io.exports.formats.export`."""
    notes: tuple[str, ...] = ()
    """What the user must know of it, a line each: what the format has no place for, what was left out and why."""


@contextlib.contextmanager
def open_output(
    path: Path, *, force: bool, folder: bool = False, magic: bytes = b"", facts: Mapping[str, Any] | None = None
) -> Iterator[Path]:
    """Where to write meanwhile; it gets its name at the end, and is removed if anything fails, Ctrl-C included.

    Args:
        path: The name it is to have.
        force: Replace an export that is there.
        folder: It is a folder, made here; else a file, yet to be made.
        magic: What such a file begins with; one that begins otherwise is not replaced.
        facts: What else a folder's ``lo2io-export.json`` says; must be fit for JSON.

    Yields:
        Where to write: in a folder beside the name, so that renaming it is one step.

    Raises:
        UsageError: There is something, and ``force`` is not set; or it is no export of the kind.
        Lo2ioError: It cannot be written.
    """
    tried = f"write {path}"
    with contextlib.ExitStack() as held:
        try:
            beside = held.enter_context(Folder.open(path.absolute().parent))
        except OSError as error:
            missing = isinstance(error, FileNotFoundError | NotADirectoryError)
            answer = f"there is no folder {path.absolute().parent}" if missing else error.strerror or str(error)
            raise UsageError(tried, answer, "make it, or choose another") from error
        _check_replaceable(beside, path, force=force, folder=folder, magic=magic)
        try:
            part = held.enter_context(beside.make(f".lo2io-{os.urandom(6).hex()}.part"))
            held.callback(_discard, part)
            if folder:
                os.mkdir(path.name, dir_fd=part.fd)  # of the mode that the umask gives
            with told_as(part.place / path.name, path):
                yield part.place / path.name
            if folder:
                _write_marker(part, path.name, facts or {})
            give_away(part, itself=False)
            _sync(part)
            # Something may have come up meanwhile.
            _check_replaceable(beside, path, force=force, folder=folder, magic=magic)
            _replace(beside, part, path.name)
        except OSError as error:
            full = error.errno in {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
            remedy = "free space there, or choose another place" if full else "choose another place"
            raise Lo2ioError(tried, error.strerror or str(error), remedy) from error


def check_apart(path: Path, trace: Path) -> None:
    """A trace is only read: one with other files in it could not be replaced any more by recording again.

    Args:
        path: What is to be written.
        trace: The trace's folder.

    Raises:
        UsageError: It lies there.
    """
    if path.resolve().is_relative_to(trace.resolve()):
        raise UsageError(f"write {path}", f"that is in the trace {trace}", "choose another place")


def size_of(path: Path) -> int:
    """Bytes of a file, or of all files of a folder."""
    return sum(file.stat().st_size for file in (path.rglob("*") if path.is_dir() else (path,)) if file.is_file())


def _check_replaceable(beside: Folder, path: Path, *, force: bool, folder: bool, magic: bytes) -> None:
    tried = f"write {path}"
    try:
        if str(path) == "-" or (path.exists() and not path.is_file() and not path.is_dir()):
            answer = "an export gets its name when it is whole, and so cannot go through a pipe or to a device"
            raise UsageError(tried, answer, "name a file or folder that is yet to be made")
        if not beside.status(path.name) or (folder and _is_empty_folder(beside, path.name)):
            return
        own = _is_own_folder(beside, path.name) if folder else _is_own_file(beside, path.name, magic)
    except OSError as error:
        raise UsageError(tried, error.strerror or str(error), "name a place you may write to") from error
    if not own:
        what = "a folder of such an export" if folder else "such an export"
        raise UsageError(tried, f"it exists, and is not {what}", "choose another name")
    if not force:
        raise UsageError(tried, "it exists", "choose another name, or replace it with --force")


def _is_own_file(beside: Folder, name: str, magic: bytes) -> bool:
    return beside.is_file(name) and beside.read(name, max(len(magic), 1))[: len(magic)] in {b"", magic}


def _is_empty_folder(beside: Folder, name: str) -> bool:
    if not beside.is_folder(name):
        return False
    with beside.enter(name) as found:
        return not found.names()


def _is_own_folder(beside: Folder, name: str) -> bool:
    """Nothing lies there but files that an export wrote."""
    if not beside.is_folder(name):
        return False
    with beside.enter(name) as found:
        try:
            marker = json.loads(found.read(MARKER))
            known = {MARKER, *marker["files"]} if marker["format"] == MARKER_FORMAT else set()
        except (OSError, ValueError, KeyError, TypeError):
            return False  # without going through it: it may be a whole disk
        return bool(known) and known.issuperset(found.files())


def _write_marker(part: Folder, name: str, facts: Mapping[str, Any]) -> None:
    with part.enter(name) as folder:
        marker = {"format": MARKER_FORMAT, "lo2io": __version__, **facts, "files": folder.files()}
        (folder.place / MARKER).write_text(json.dumps(marker, indent=1) + "\n", encoding="utf-8")


def _sync(part: Folder) -> None:
    """Have everything on the disk: files, and then the folders around them."""
    for _, _, files, folder in os.fwalk(".", topdown=False, dir_fd=part.fd):
        for name in files:
            fd = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
            try:
                os.fsync(fd)
            finally:
                os.close(fd)
        os.fsync(folder)


def _replace(beside: Folder, part: Folder, name: str) -> None:
    """Give the export its name; what had it before is removed with the folder of the part."""
    found = beside.status(name)
    if found and stat.S_ISDIR(found.st_mode):  # rename(2) replaces no folder that holds something
        try:
            beside.rename(name, part, _REPLACED)
            part.rename(name, beside)
        finally:  # of an error, or of Ctrl-C
            if not beside.status(name):
                part.rename(_REPLACED, beside, name)
    else:
        part.rename(name, beside)
    os.fsync(beside.fd)


def _discard(part: Folder) -> None:
    """What stayed of an export that failed; an error here must not hide the one that led to it."""
    with contextlib.suppress(OSError):
        part.discard()
