"""The build id of a program or library: the note by which the kernel, perf and debuggers recognize a file.

Source: elf(5); the kernel takes the first note of type NT_GNU_BUILD_ID and name GNU likewise (lib/buildid.c).
"""

from __future__ import annotations

import os
import struct
from typing import Final

BUILD_ID_BYTES: Final = 20
"""As many as the kernel keeps (BUILD_ID_SIZE_MAX, include/linux/buildid.h)."""
_MAGIC, _LITTLE_ENDIAN = b"\x7fELF", 1
_LAYOUTS: Final = {
    1: (struct.Struct("<28xI12xH6x"), struct.Struct("<II8xI12x")),
    2: (struct.Struct("<32xQ16xH6x"), struct.Struct("<I4xQ16xQ16x")),
}
"""Class of the file (32 or 64 bits) → its header: offset and number of segments; and a segment: kind, offset, size."""
_MAX_HEADER: Final = 64
_NOTE: Final = struct.Struct("<III")
_PT_NOTE, _BUILD_ID, _NAME = 4, 3, b"GNU\0"
_MAX_SEGMENTS: Final = 64
_MAX_NOTES: Final = 4096
"""Bytes of a segment that are read."""
_MAX_OFFSET: Final = 1 << 62
"""No file is so large. Larger offsets are refused by the kernel or by Python."""


def read_build_id(fd: int) -> str:
    """The build id of an open file, 40 hexadecimal digits; empty: it has none, or is no such file.

    A shorter id is filled with zeroes, as the kernel fills it.

    Raises:
        OSError: The file cannot be read.
    """
    head = os.pread(fd, _MAX_HEADER, 0)
    if len(head) < _MAX_HEADER or not head.startswith(_MAGIC) or head[4] not in _LAYOUTS or head[5] != _LITTLE_ENDIAN:
        return ""
    header, segment = _LAYOUTS[head[4]]
    segments_at, count = header.unpack_from(head)
    table = _read(fd, segment.size * min(count, _MAX_SEGMENTS), segments_at)
    for kind, offset, size in segment.iter_unpack(table[: len(table) // segment.size * segment.size]):
        if kind == _PT_NOTE:
            found = _find(_read(fd, min(size, _MAX_NOTES), offset))
            if found:
                return found.hex().ljust(2 * BUILD_ID_BYTES, "0")
    return ""


def _read(fd: int, size: int, offset: int) -> bytes:
    """Bytes at an offset that the file itself names; fewer, or none, where the file has no more."""
    return os.pread(fd, size, offset) if offset <= _MAX_OFFSET else b""


def _find(notes: bytes) -> bytes:
    at = 0
    while at + _NOTE.size <= len(notes):
        name_size, size, kind = _NOTE.unpack_from(notes, at)
        name_at = at + _NOTE.size
        content_at = name_at + (name_size + 3 & ~3)
        content = notes[content_at : content_at + size]
        if kind == _BUILD_ID and notes[name_at : name_at + name_size] == _NAME and 0 < size <= BUILD_ID_BYTES:
            return content if len(content) == size else b""
        at = content_at + (size + 3 & ~3)
    return b""
