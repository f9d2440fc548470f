"""The target of an export: written under another name, so that the target is whole or does not exist.

In: the name of a file or folder. Out: that file or folder, once all data is written and on the disk. An existing target
is replaced only with ``force``, and only if it is an export of the same kind: a file with the kind's first bytes, or a
folder of only those files that its ``lo2io-export.json`` lists.

While the export is written, it lies in a private folder beside its final name (:mod:`lo2io.folder`). The file or folder
inside has the mode that the umask gives, for exports are made to be handed on.
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
"""A function that takes the finished share, from 0 to 1."""

MARKER: Final = "lo2io-export.json"
"""The file in an exported folder that names the format, the trace and the export's files."""
_MOST_MARKER_BYTES: Final = 1 << 20
MARKER_FORMAT: Final = "lo2io-export"
_REPLACED: Final = ".replaced"
"""The name of the former export while the new one is renamed."""


@dataclass(frozen=True, slots=True)
class ExportSummary:
    """The result of an export."""

    rows: int
    """Number of the trace's rows in the export."""
    size_bytes: int = 0
    """Size of all files. An exporter may leave this to :func:`lo2io.exports.formats.export`."""
    notes: tuple[str, ...] = ()
    """Lines for the user: facts that the format cannot hold, rows that were left out, and the reasons."""


@contextlib.contextmanager
def open_output(
    path: Path, *, force: bool, folder: bool = False, magic: bytes = b"", facts: Mapping[str, Any] | None = None
) -> Iterator[Path]:
    """Yield a path to write an export to. The export gets its final name at the end; after an error it is removed.

    Args:
        path: The final name.
        force: Replace an existing export.
        folder: The export is a folder, made here; else it is a file, which the caller makes.
        magic: First bytes of such a file. A file with other first bytes is not replaced.
        facts: Further keys of a folder's ``lo2io-export.json``, as values for JSON.

    Yields:
        The path to write to, in a folder beside the final name, so that a rename is one step.

    Raises:
        UsageError: The target exists and ``force`` is not set, or the target is no export of this kind.
        Lo2ioError: The export cannot be written.
    """
    tried = f"write {path}"
    with contextlib.ExitStack() as held:
        try:
            beside = held.enter_context(Folder.open(path.absolute().parent))
        except OSError as error:
            missing = isinstance(error, FileNotFoundError | NotADirectoryError)
            answer = f"there is no folder {path.absolute().parent}" if missing else error.strerror or str(error)
            raise UsageError(tried, answer, "make the folder, or choose another") from error
        _check_replaceable(beside, path, force=force, folder=folder, magic=magic)
        try:
            part = held.enter_context(beside.make(f".lo2io-{os.urandom(6).hex()}.part"))
            held.callback(_discard, part)
            if folder:
                os.mkdir(path.name, dir_fd=part.fd)  # with the mode that the umask gives
            with told_as(part.place / path.name, path):
                yield part.place / path.name
            if folder:
                _write_marker(part, path.name, facts or {})
            give_away(part, itself=False)
            _sync(part)
            # Another process may have made the target in the meantime.
            _check_replaceable(beside, path, force=force, folder=folder, magic=magic)
            _replace(beside, part, path.name)
        except OSError as error:
            full = error.errno in {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
            remedy = "free space there, or choose another place" if full else "choose another place"
            raise Lo2ioError(tried, error.strerror or str(error), remedy) from error


def check_apart(path: Path, trace: Path) -> None:
    """Refuse a target within the trace's folder. A trace with foreign files could not be replaced by a new recording.

    Args:
        path: The target.
        trace: The trace's folder.

    Raises:
        UsageError: The target lies in the trace's folder.
    """
    if path.resolve().is_relative_to(trace.resolve()):
        raise UsageError(f"write {path}", f"this place is in the trace {trace}", "choose another place")


def size_of(path: Path) -> int:
    """Bytes of a file, or of all files of a folder."""
    return sum(file.stat().st_size for file in (path.rglob("*") if path.is_dir() else (path,)) if file.is_file())


def _check_replaceable(beside: Folder, path: Path, *, force: bool, folder: bool, magic: bytes) -> None:
    tried = f"write {path}"
    try:
        if str(path) == "-" or (path.exists() and not path.is_file() and not path.is_dir()):
            answer = "an export is renamed when it is whole, so it cannot be a pipe or a device"
            raise UsageError(tried, answer, "name a file or folder that does not exist yet")
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
    """True for a folder that holds only files that an export wrote."""
    if not beside.is_folder(name):
        return False
    with beside.enter(name) as found:
        try:
            marker = json.loads(found.read(MARKER, _MOST_MARKER_BYTES))
            known = {MARKER, *marker["files"]} if marker["format"] == MARKER_FORMAT else set()
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            return False  # the folder is not searched: it may be a whole disk
        return bool(known) and known.issuperset(found.files())


def _write_marker(part: Folder, name: str, facts: Mapping[str, Any]) -> None:
    with part.enter(name) as folder:
        marker = {"format": MARKER_FORMAT, "lo2io": __version__, **facts, "files": folder.files()}
        (folder.place / MARKER).write_text(json.dumps(marker, indent=1) + "\n", encoding="utf-8")


def _sync(part: Folder) -> None:
    """Write everything to the disk: first files, then their folders."""
    for _, _, files, folder in os.fwalk(".", topdown=False, dir_fd=part.fd):
        for name in files:
            fd = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
            try:
                os.fsync(fd)
            finally:
                os.close(fd)
        os.fsync(folder)


def _replace(beside: Folder, part: Folder, name: str) -> None:
    """Give the export its final name. A former export is removed together with the folder of the part."""
    found = beside.status(name)
    if found and stat.S_ISDIR(found.st_mode):  # rename(2) does not replace a folder that is not empty
        try:
            beside.rename(name, part, _REPLACED)
            part.rename(name, beside)
        finally:  # also after an error or Ctrl-C
            if not beside.status(name):
                part.rename(_REPLACED, beside, name)
    else:
        part.rename(name, beside)
    os.fsync(beside.fd)


def _discard(part: Folder) -> None:
    """Remove the rest of a failed export. An error here must not hide the error that led here."""
    with contextlib.suppress(OSError):
        part.discard()
