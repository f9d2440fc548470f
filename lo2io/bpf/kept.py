"""Results that root's recordings keep until the next boot, so that the next recording need not work them out.

They lie in ``/run/lo2io``. A file is used only if it is root's, in a directory of root, if nobody else may read or
write either, and if it was made for the same key.
"""

from __future__ import annotations

import contextlib
import marshal
import os
import stat
import zlib
from pathlib import Path
from typing import Any

FOLDER = Path("/run/lo2io")
NOTES = Path("/sys/kernel/notes")
"""It has the kernel's build id."""
MAX_KEPT = 8
"""The most files of a kind."""


def kernel() -> list[Any]:
    """The part of a key that names the running kernel: its build id and version.

    Raises:
        OSError: The kernel does not tell.
    """
    return [NOTES.read_bytes(), os.uname().version]


def place(kind: str, key: list[Any]) -> Path:
    """The file of a result."""
    return FOLDER / f"{kind}-{zlib.crc32(repr(key).encode()):08x}"


def may_keep() -> bool:
    """True if this process is root's, and the directory is root's alone. Makes the directory."""
    if not _is_root():
        return False
    with contextlib.suppress(OSError):
        FOLDER.mkdir(mode=0o700, exist_ok=True)
        return _is_own(FOLDER.lstat(), stat.S_IFDIR)
    return False


def _is_root() -> bool:
    return os.geteuid() == 0


def _is_own(found: os.stat_result, kind: int) -> bool:
    return stat.S_IFMT(found.st_mode) == kind and found.st_uid == os.geteuid() and not found.st_mode & 0o077


def read(kind: str, key: list[Any]) -> Any:
    """The result that was kept for this key; None: there is none that can be trusted."""
    if not may_keep():
        return None
    with contextlib.suppress(OSError, ValueError, EOFError, TypeError):
        fd = os.open(place(kind, key), os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        with os.fdopen(fd, "rb") as file:
            if not _is_own(os.fstat(fd), stat.S_IFREG):
                return None
            content = file.read()
        summed, kept = int.from_bytes(content[:4], "little"), content[4:]
        if summed != zlib.crc32(kept):
            return None
        known, result = marshal.loads(kept)  # noqa: S302 - root's own
        return result if known == key else None
    return None


def keep(kind: str, key: list[Any], result: Any) -> None:
    """Keep a result, of types that :mod:`marshal` knows, if there is room.

    If there are too many results of its kind, the oldest goes.
    """
    kept = marshal.dumps([key, result])
    made = FOLDER / f"new-{os.getpid()}"
    with contextlib.suppress(OSError):
        others = sorted(FOLDER.glob(f"{kind}-*"), key=lambda path: path.stat().st_mtime_ns)
        for path in others[: max(0, len(others) + 1 - MAX_KEPT)]:
            path.unlink(missing_ok=True)
        fd = os.open(made, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        with os.fdopen(fd, "wb") as file:
            file.write(zlib.crc32(kept).to_bytes(4, "little") + kept)
        made.replace(place(kind, key))
        return
    with contextlib.suppress(OSError):
        made.unlink()
