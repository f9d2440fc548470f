"""A program that writes an OTF2 archive about itself while it runs, as programs with Score-P do.

``own_archive.py ARCHIVE CLOCK NR``: it writes NR files in turn, each within a region of its own. CLOCK is its timer:
``tsc``, ``monotonic``, ``raw`` or ``realtime``. Each write has a size of its own, so that it is found again.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import platform
import sys
import time
from typing import TYPE_CHECKING

import otf2
from otf2.enums import Paradigm, RegionRole, Type

if TYPE_CHECKING:
    from collections.abc import Callable

FIRST_BYTES = 70_001
_RDTSC = bytes.fromhex("0f3148c1e2204809d0c3")
"""rdtsc; shl rdx, 32; or rax, rdx; ret"""


def _counter() -> Callable[[], int]:
    """Reads the processor's counter."""
    code = mmap.mmap(-1, mmap.PAGESIZE, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    code.write(_RDTSC)
    function = ctypes.CFUNCTYPE(ctypes.c_uint64)(ctypes.addressof(ctypes.c_char.from_buffer(code)))
    return lambda _keep=code: function()


def timer(name: str) -> Callable[[], int]:
    """The clock of this name."""
    if name == "tsc":
        return _counter()
    clock = getattr(time, {"raw": "CLOCK_MONOTONIC_RAW"}.get(name, f"CLOCK_{name.upper()}"))
    return lambda: time.clock_gettime_ns(clock)


def main(path: str, clock: str, nr_writes: int) -> None:
    """Write files, and the archive. Score-P measures the counter's rate, too, from begin to end."""
    now = timer(clock)
    began, began_ns = now(), time.monotonic_ns()
    events = []
    for number in range(nr_writes):
        before = now()
        fd = os.open(f"{path}.{number}", os.O_CREAT | os.O_WRONLY, 0o600)
        os.write(fd, bytes(FIRST_BYTES + number))
        os.close(fd)
        events.append((before, now()))
        time.sleep(0.005)
    rate = round((now() - began) * 10**9 / (time.monotonic_ns() - began_ns)) if clock == "tsc" else 10**9
    with otf2.writer.open(path, timer_resolution=rate) as writer:
        new = writer.definitions
        machine = new.system_tree_node("machine Linux", class_name="machine")
        node = new.system_tree_node(platform.node(), class_name="node", parent=machine)
        group = new.location_group("MPI Rank 0", system_tree_parent=node)
        new.location_group_property(group, "Process ID", Type.UINT64, os.getpid())
        region = new.region("checkpoint", region_role=RegionRole.FUNCTION, paradigm=Paradigm.USER)
        thread = writer.event_writer_from_location(new.location("Master thread", group=group))
        for enter, leave in events:
            thread.enter(enter, region)
            thread.leave(leave, region)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
