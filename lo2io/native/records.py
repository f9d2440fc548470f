"""Packs, unpacks and gathers records of the programs in the kernel, declared in ``lo2io/bpf/programs/records.h``.

A kind of record has the name of its structure: ``file`` is a ``lo2_kernel_file`` of the type ``LO2_KERNEL_FILE``. New
kinds and members of the header are known here at once.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from lo2io.native._lib import ffi, lib

FRAME_BYTES: int = lib.LO2_FRAME_BYTES
"""Size of the frame before each record, in bytes."""
UNFINISHED, DISCARDED = 1 << lib.LO2_FRAME_UNFINISHED_BIT, 1 << lib.LO2_FRAME_DISCARDED_BIT
"""Bits of the length in a frame. Only spools from the kernel's own ring buffer have records with these bits."""


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
    """The least size of a record. Arguments of calls, and texts, follow."""
    struct = ffi.typeof(f"lo2_kernel_{kind}")
    arguments = dict(struct.fields).get("args")
    size: int = ffi.sizeof(struct) if arguments is None else arguments.offset
    return size


def pack(kind: str, time_ns: int, tid: int, *, event: int = 0, tail: bytes = b"", **members: Any) -> bytes:
    """Make a record, without its frame.

    Args:
        kind: A kind such as ``file``.
        time_ns: CLOCK_MONOTONIC.
        tid: The thread.
        event: ``event`` of ``lo2_kernel_head``.
        tail: The bytes after ``record_bytes(kind)``.
        members: Members of the structure. Others are 0.
    """
    head = {"time_ns": time_ns, "tid": tid, "type": record_type(kind), "event": event}
    record = ffi.new(f"lo2_kernel_{kind} *", {"head": head, **members})
    return bytes(ffi.buffer(record)[: record_bytes(kind)]) + tail


def unpack(kind: str, record: bytes) -> Any:
    """The record as a ``lo2_kernel_<kind> *``; the kind may be ``head``. Members beyond the record's end are 0."""
    name = f"lo2_kernel_{kind}"
    return ffi.from_buffer(f"{name} *", record.ljust(ffi.sizeof(name), b"\0"))


def framed(record: bytes, flags: int = 0) -> bytes:
    """A record as it lies in a buffer: the frame, the record, and padding to a multiple of 8 bytes."""
    return (len(record) | flags).to_bytes(FRAME_BYTES, "little") + record + bytes(-len(record) % 8)


def member_at(kind: str, member: str) -> int:
    """The offset of a number in a record, in bytes."""
    return _places(kind)[member][0]


def gather(words: Any, places: Any, kind: str, member: str) -> Any:
    """One member of many records.

    Args:
        words: An array of uint64, shape (m,).
        places: The start of each record in ``words``, shape (n,). The records are of this kind, and whole.
        kind: A kind such as ``call``.
        member: A member of the kind's structure, or of the head.

    Returns:
        The values, shape (n,), in the member's dtype.
    """
    offset, dtype, size = _places(kind)[member]
    return words.view(dtype)[(8 * places + offset) // size]


@cache
def _places(kind: str) -> dict[str, tuple[int, str, int]]:
    """Offset, dtype and size of each number in a record. NumPy's names of dtypes are C's without the suffix."""
    fields = [*ffi.typeof("lo2_kernel_head").fields, *ffi.typeof(f"lo2_kernel_{kind}").fields]
    return {
        name: (field.offset, field.type.cname.removesuffix("_t"), ffi.sizeof(field.type))
        for name, field in fields
        if field.type.kind == "primitive"
    }
