"""Records of the kernel programs, as ``lo2io/bpf/programs/records.h`` declares them: packed, unpacked, gathered.

A kind of record is named by its structure: ``file`` is a ``lo2_kernel_file`` of the type ``LO2_KERNEL_FILE``. A new
kind, or a new member, is known here as soon as the header has it.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from lo2io.native._lib import ffi, lib

FRAME_BYTES: int = lib.LO2_FRAME_BYTES
"""The kernel's own header before each record."""
UNFINISHED, DISCARDED = 1 << lib.LO2_FRAME_UNFINISHED_BIT, 1 << lib.LO2_FRAME_DISCARDED_BIT
"""Bits of the length in that header."""


KINDS: dict[int, str] = {
    number: name.removeprefix("LO2_KERNEL_").lower()
    for number, name in ffi.typeof("enum lo2_kernel_record").elements.items()
}
"""Type of a record → its kind."""
_TYPES = {kind: number for number, kind in KINDS.items()}


def record_type(kind: str) -> int:
    """The number of ``LO2_KERNEL_<kind>``."""
    return _TYPES[kind]


@cache
def record_bytes(kind: str) -> int:
    """What a whole record of a kind has at least: arguments of calls, and texts, follow."""
    struct = ffi.typeof(f"lo2_kernel_{kind}")
    arguments = dict(struct.fields).get("args")
    size: int = ffi.sizeof(struct) if arguments is None else arguments.offset
    return size


def pack(kind: str, time_ns: int, tid: int, *, event: int = 0, tail: bytes = b"", **members: Any) -> bytes:
    """Make a record, without the kernel's header.

    Args:
        kind: Such as ``file``.
        time_ns: CLOCK_MONOTONIC.
        tid: The thread.
        event: As ``lo2_kernel_head`` has it.
        tail: What follows ``record_bytes(kind)``.
        members: Of the structure; those that are not named are 0.
    """
    head = {"time_ns": time_ns, "tid": tid, "type": record_type(kind), "event": event}
    record = ffi.new(f"lo2_kernel_{kind} *", {"head": head, **members})
    return bytes(ffi.buffer(record)[: record_bytes(kind)]) + tail


def unpack(kind: str, record: bytes) -> Any:
    """The structure, as a ``lo2_kernel_<kind> *``, or of ``head``; members that the bytes do not reach are 0."""
    name = f"lo2_kernel_{kind}"
    return ffi.from_buffer(f"{name} *", record.ljust(ffi.sizeof(name), b"\0"))


def framed(record: bytes, flags: int = 0) -> bytes:
    """A record as it lies in a ring: the kernel's header, the record, padding to a multiple of 8 bytes."""
    return (len(record) | flags).to_bytes(FRAME_BYTES, "little") + record + bytes(-len(record) % 8)


def member_at(kind: str, member: str) -> int:
    """At which byte of a record a number stands."""
    return _places(kind)[member][0]


def gather(words: Any, places: Any, kind: str, member: str) -> Any:
    """One member of many records.

    Args:
        words: An array of uint64, shape (m,).
        places: Where in it each record begins, shape (n,); the records are of this kind, and whole.
        kind: Such as ``call``.
        member: Of its structure, or of the head.

    Returns:
        The values, shape (n,), in the member's dtype.
    """
    offset, dtype, size = _places(kind)[member]
    return words.view(dtype)[(8 * places + offset) // size]


@cache
def _places(kind: str) -> dict[str, tuple[int, str, int]]:
    """Offset, dtype and bytes of each number in a record: NumPy's names of dtypes are C's without the suffix."""
    fields = [*ffi.typeof("lo2_kernel_head").fields, *ffi.typeof(f"lo2_kernel_{kind}").fields]
    return {
        name: (field.offset, field.type.cname.removesuffix("_t"), ffi.sizeof(field.type))
        for name, field in fields
        if field.type.kind == "primitive"
    }
