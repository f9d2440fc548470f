"""A spool's bytes, read without lo2io's decoder, and a workload whose samples can be counted in them.

>>> from build.perfwriter import SpoolBuilder
>>> path = SpoolBuilder(folder / "spool").call(5, 0, 10, "close", fd=3).write()
>>> [(time, tid) for time, _, tid in iter_samples((path / "cpu-0000.ring",))]
[(5, 10), (6, 10)]
"""

from __future__ import annotations

import struct
import sys
from typing import TYPE_CHECKING

from lo2io.spool.facts import FACT_FD, FACT_TASK

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from lo2io.spool.reader import SpoolReader

EVENTS = ("syscalls:sys_enter_pwrite64", "syscalls:sys_exit_pwrite64")
NR_CALLS = 997
"""No program makes pwrite64 calls while it starts, and none makes so many by chance."""
WORK = f"""
import os
fd = os.open("/dev/null", os.O_WRONLY)
for index in range({NR_CALLS}):
    os.pwrite(fd, b"x", index)
"""
RECORD_COMM, RECORD_EXIT, RECORD_FORK, RECORD_SAMPLE = 3, 4, 7, 9


def work(code: str = WORK) -> tuple[str, ...]:
    """A Python process as a command."""
    return (sys.executable, "-S", "-c", code)


def iter_records(paths: tuple[Path, ...]) -> Iterator[tuple[int, int, bytes]]:
    """Type, misc and body of each record in a buffer's files, or in those of facts."""
    content = b"".join(path.read_bytes() for path in paths)
    position = 0
    while position < len(content):
        kind, misc, size = struct.unpack_from("<IHH", content, position)
        assert size >= 8
        assert position + size <= len(content)
        yield kind, misc, content[position + 8 : position + size]
        position += size


def iter_samples(paths: tuple[Path, ...]) -> Iterator[tuple[int, int, int]]:
    """Time, event id and thread of each sample: ``common_type`` is at 0 and ``common_pid`` at 4 of the raw data."""
    for kind, _, body in iter_records(paths):
        if kind == RECORD_SAMPLE:
            time_ns, _, common_type, _, _, common_pid = struct.unpack_from("<QIHBBi", body)
            yield time_ns, common_type, common_pid


def ids_of(spool: SpoolReader) -> list[int]:
    """The ids of the spool's events, from its formats."""
    return [int(text.split("ID: ")[1].split()[0]) for text in spool.meta.formats]


def task_facts(spool: SpoolReader) -> list[tuple[int, int, int, int]]:
    """Process, thread, parent and flags of each TASK fact."""
    facts = (struct.unpack_from("<QQIIII", body) for kind, _, body in iter_records(spool.facts) if kind == FACT_TASK)
    return [(pid, tid, ppid, flags) for _, _, pid, tid, ppid, flags in facts]


def fd_facts(spool: SpoolReader) -> list[tuple[tuple[int, ...], bytes]]:
    """The fixed fields, in the order of facts.h, and the path of each FD fact."""
    return [
        (struct.unpack_from("<QQQQqIiIIII", body), body[64 : 64 + struct.unpack_from("<I", body, 60)[0]])
        for kind, _, body in iter_records(spool.facts)
        if kind == FACT_FD
    ]
