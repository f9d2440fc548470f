"""Where an export goes: written under another name, and there whole or not at all.

In: the name of a file or folder. Out: that name, once everything is written and on the disk. What was there before is
replaced with ``force`` alone, and only if it is an export of the same kind: a file that begins as such do, a folder of
nothing but what an export's ``lo2io-export.json`` lists.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from lo2io._version import __version__
from lo2io.directory import give_away, sudo_caller
from lo2io.errors import Lo2ioError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

Progress: TypeAlias = Callable[[float], None]
"""Takes the share that is done, from 0 to 1."""

MARKER: Final = "lo2io-export.json"
"""In an export that is a folder: what it is, of which trace, and its files."""
MARKER_FORMAT: Final = "lo2io-export"


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
        A name in the same folder, so that renaming it is one step.

    Raises:
        UsageError: There is something, and ``force`` is not set; or it is no export of the kind.
        Lo2ioError: It cannot be written.
    """
    _check_replaceable(path, force=force, folder=folder, magic=magic)
    part = path.absolute().parent / f".lo2io-{os.urandom(6).hex()}.part"
    try:
        if folder:
            part.mkdir()
        yield part
        if folder:
            _write_marker(part, facts or {})
        _hand_over(part)
        _sync(part)
        _check_replaceable(path, force=force, folder=folder, magic=magic)  # it may have come up meanwhile
        _rename(part, path.absolute())
    except OSError as error:
        full = error.errno in {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
        remedy = "free space there, or choose another place" if full else "choose another place"
        raise Lo2ioError(f"write {path}", error.strerror or str(error), remedy) from error
    finally:
        _remove(part)


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


def _check_replaceable(path: Path, *, force: bool, folder: bool, magic: bytes) -> None:
    tried = f"write {path}"
    try:
        if not path.absolute().parent.is_dir():
            raise UsageError(tried, f"there is no folder {path.absolute().parent}", "make it, or choose another")
        if str(path) == "-" or (path.exists() and not path.is_file() and not path.is_dir()):
            answer = "an export gets its name when it is whole, and so cannot go through a pipe or to a device"
            raise UsageError(tried, answer, "name a file or folder that is yet to be made")
        if not os.path.lexists(path) or (folder and _is_empty_folder(path)):
            return
        own = _is_own_folder(path) if folder else _is_own_file(path, magic)
    except OSError as error:
        raise UsageError(tried, error.strerror or str(error), "name a place you may write to") from error
    if not own:
        what = "a folder of such an export" if folder else "such an export"
        raise UsageError(tried, f"it exists, and is not {what}", "choose another name")
    if not force:
        raise UsageError(tried, "it exists", "choose another name, or replace it with --force")


def _is_own_file(path: Path, magic: bytes) -> bool:
    if path.is_symlink() or not path.is_file():
        return False
    with path.open("rb") as file:
        begin = file.read(max(len(magic), 1))
    return begin.startswith(magic) if begin else True


def _is_empty_folder(path: Path) -> bool:
    return path.is_dir() and not path.is_symlink() and not any(path.iterdir())


def _is_own_folder(path: Path) -> bool:
    """Nothing lies there but files that an export wrote."""
    if path.is_symlink() or not path.is_dir():
        return False
    try:
        marker = json.loads((path / MARKER).read_text(encoding="utf-8"))
        known = {MARKER, *marker["files"]} if marker["format"] == MARKER_FORMAT else set()
    except (OSError, ValueError, KeyError, TypeError):
        return False  # without going through it: it may be a whole disk
    there = (entry for entry in path.rglob("*") if entry.is_symlink() or not entry.is_dir())
    return bool(known) and all(str(entry.relative_to(path)) in known for entry in there)


def _write_marker(part: Path, facts: Mapping[str, Any]) -> None:
    files = sorted(str(file.relative_to(part)) for file in part.rglob("*") if file.is_file())
    marker = {"format": MARKER_FORMAT, "lo2io": __version__, **facts, "files": files}
    (part / MARKER).write_text(json.dumps(marker, indent=1) + "\n", encoding="utf-8")


def _hand_over(part: Path) -> None:
    """What root writes under sudo belongs to who called it, as a trace does."""
    owner = sudo_caller()
    if owner is None:
        return
    if part.is_dir():
        give_away(part, owner)
    else:
        os.chown(part, *owner, follow_symlinks=False)


def _sync(path: Path) -> None:
    for entry in (*path.rglob("*"), path) if path.is_dir() else (path,):
        _sync_one(entry)


def _sync_one(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _rename(part: Path, path: Path) -> None:
    aside = part.with_suffix(".replaced")
    if part.is_dir() and path.exists():  # rename(2) replaces no folder that holds something
        try:
            path.rename(aside)
            part.rename(path)
        finally:  # of an error, or of Ctrl-C
            _settle(aside, path)
    else:
        part.replace(path)
    _sync_one(path.parent)


def _settle(aside: Path, path: Path) -> None:
    """What was put aside gets its name back, unless another has it by now."""
    if path.exists():
        _remove(aside)
    elif aside.exists():
        aside.rename(path)


def _remove(part: Path) -> None:
    """What stayed of an export that failed; an error here must not hide the one that led to it."""
    with contextlib.suppress(OSError):
        if part.is_dir():
            shutil.rmtree(part)
        else:
            part.unlink(missing_ok=True)
