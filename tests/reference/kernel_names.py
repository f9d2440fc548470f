"""Names of files as in /proc/PID/fd, from the names that BPF programs found on the way up."""

from __future__ import annotations

from typing import Any

WHOLE, DELETED, MOVED, SLOT, PSEUDO = 1, 2, 4, 8, 32
PIPEFS, SOCKFS, ANON_INODE_FS, NSFS, PIDFS = 0x50495045, 0x534F434B, 0x09041934, 0x6E736673, 0x50494446
IN_MEMORY = {0x01021994, 0x858458F6, 0x958458F6, 0x5345434D}
"""tmpfs, ramfs, hugetlbfs, secretmem."""


def name_of(fact: dict[str, Any]) -> bytes | None:
    """The name that a fact proves, if any."""
    names: bytes = fact["names"]
    if fact["flags"] & PSEUDO:
        text = names[:-1]
        return None if (names and names[-1]) or b"\0" in text else _pseudo_name(fact, text)
    if not fact["flags"] & WHOLE or fact["flags"] & MOVED:
        return None
    if not names:
        return b"/"
    parts = names[:-1].split(b"\0")
    if names[-1] or b"" in parts or b"/" in names:
        return None
    path = b"".join(b"/" + part for part in reversed(parts))
    return path + b" (deleted)" * bool(fact["flags"] & DELETED)


def _pseudo_name(fact: dict[str, Any], text: bytes) -> bytes | None:
    magic, inode = fact["magic"], b"[%d]" % fact["inode"]
    if magic in (PIPEFS, SOCKFS):
        return (b"pipe:" if magic == PIPEFS else b"socket:") + inode
    if magic == PIDFS:
        return b"anon_inode:[pidfd]"
    if not text:
        return None
    if magic in IN_MEMORY:
        return b"/" + text + b" (deleted)"
    return {ANON_INODE_FS: b"anon_inode:" + text, NSFS: text + b":" + inode}.get(magic)
