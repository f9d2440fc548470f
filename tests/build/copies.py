"""Copies of stacks, and the records that tell which files a process has mapped.

>>> from lo2io.unwind.stacks import Stacks
>>> import numpy as np
>>> stacks, rows = Stacks(()), {"stack": np.zeros(1, np.uint32)}
>>> told = [record(mmap2(100, 0x1000, 0x2000)), copied(100, registers(ip=0x1100, sp=0x7000), b"")]
>>> stacks.take(b"".join(told), rows)
>>> [(stack.frames[0].offset, stack.end.name) for stack in stacks.unwound()]
[(4352, 'UNKNOWN')]
"""

from __future__ import annotations

import struct

from lo2io.native._lib import lib

NR_REGISTERS = 17


def told(kind: int, body: bytes, row: int = 0) -> bytes:
    """A ``lo2_told`` with its bytes."""
    return struct.pack("<IHHII", len(body), kind, 0, row, 0) + body + bytes(-len(body) % 8)


def record(body: bytes) -> bytes:
    """A record that tells of mappings, as the engine hands it out."""
    return told(lib.LO2_TOLD_RECORD, body)


def mmap2(
    pid: int,
    begin: int,
    end: int,
    *,
    offset: int = 0,
    build_id: str = "",
    path: str = "//anon",
    code: bool = True,
    time_ns: int = 0,
) -> bytes:
    """A PERF_RECORD_MMAP2."""
    name = path.encode() + b"\0"
    name += bytes(-len(name) % 8)
    known = bytes.fromhex(build_id)
    body = struct.pack("<IIQQQB3x20sII", pid, pid, begin, end - begin, offset, len(known), known, 4 if code else 2, 0)
    body += name + struct.pack("<Q", time_ns)
    return struct.pack("<IHH", 10, 1 << 14 if build_id else 0, 8 + len(body)) + body


def task(kind: int, pid: int, parent: int = 0, time_ns: int = 0) -> bytes:
    """A PERF_RECORD_FORK, EXIT or COMM of an exec."""
    body = struct.pack("<4IQQ", pid, parent, pid, parent, time_ns, time_ns)
    return struct.pack("<IHH", kind, 0, 8 + len(body)) + body


def registers(*, ip: int, sp: int, bp: int = 0) -> list[int]:
    """Registers at a call; others are zero."""
    found = [0] * NR_REGISTERS
    found[6], found[7], found[16] = bp, sp, ip
    return found


def copied(pid: int, values: list[int], memory: bytes, *, row: int = 0, uid: int = 0) -> bytes:
    """A copied stack, as the engine hands it out."""
    body = struct.pack(f"<4I{NR_REGISTERS}Q", pid, uid, len(memory), 0, *values) + memory
    return told(lib.LO2_TOLD_STACK, body, row)
