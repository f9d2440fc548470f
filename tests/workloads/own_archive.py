"""A program that writes an OTF2 archive about itself while it runs, as programs with Score-P do.

``own_archive.py ARCHIVE CLOCK NR``: it writes NR files in turn, each within a region of its own. CLOCK is its timer:
``tsc``, ``monotonic``, ``raw``, ``realtime`` or ``strange``, which nobody can guess. Each write has a size of its own,
so that it is found again. After each one it enters the region ``clock``. ARCHIVE.truth has CLOCK_MONOTONIC before and
after that moment.
"""

from __future__ import annotations

import ctypes
import json
import mmap
import os
import platform
import secrets
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import otf2
from otf2.enums import IoOperationFlag, IoOperationMode, IoParadigmClass, IoParadigmFlag, Paradigm, RegionRole, Type

if TYPE_CHECKING:
    from collections.abc import Callable

FIRST_BYTES = 70_001
TELL_PID = ("raw", "tsc")
"""With these clocks, the archive tells the process' id."""
_DAY_NS = 86_400 * 10**9
_PPM = 50
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
    if name == "strange":
        ahead = secrets.randbelow(_DAY_NS)
        return lambda: (raw := time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW)) + raw * _PPM // 1_000_000 + ahead
    clock = getattr(time, {"raw": "CLOCK_MONOTONIC_RAW"}.get(name, f"CLOCK_{name.upper()}"))
    return lambda: time.clock_gettime_ns(clock)


def main(path: str, clock: str, nr_writes: int) -> None:
    """Write files, and the archive. Score-P measures the counter's rate, too, from start to end."""
    now = timer(clock)
    began, began_ns = now(), time.monotonic_ns()
    events, truth = [], []
    for number in range(nr_writes):
        before = now()
        fd = os.open(f"{path}.{number}", os.O_CREAT | os.O_WRONLY, 0o600)
        begin = now()
        os.write(fd, bytes(FIRST_BYTES + number))
        end = now()
        os.close(fd)
        events.append((before, begin, end, now()))
        truth.append((time.monotonic_ns(), now(), time.monotonic_ns()))
        time.sleep(0.005)
    rate = round((now() - began) * 10**9 / (time.monotonic_ns() - began_ns)) if clock == "tsc" else 10**9
    with otf2.writer.open(path, timer_resolution=rate) as writer:
        new = writer.definitions
        machine = new.system_tree_node("machine Linux", class_name="machine")
        node = new.system_tree_node(platform.node(), class_name="node", parent=machine)
        group = new.location_group("Process", system_tree_parent=node)
        if clock in TELL_PID:
            new.location_group_property(group, "Process ID", Type.UINT64, os.getpid())
        checkpoint, read_clock = (
            new.region(name, region_role=RegionRole.FUNCTION, paradigm=Paradigm.USER)
            for name in ("checkpoint", "clock")
        )
        write = new.region("write", region_role=RegionRole.FILE_IO, paradigm=Paradigm.USER)
        posix = new.io_paradigm(
            identification="POSIX",
            name="POSIX I/O",
            io_paradigm_class=IoParadigmClass.SERIAL,
            io_paradigm_flags=IoParadigmFlag.OS,
        )
        handle = new.io_handle("files", file=new.io_regular_file(path, scope=node), io_paradigm=posix)
        thread = writer.event_writer_from_location(new.location("Master thread", group=group))
        for number, ((enter, begin, end, leave), (_, tick, _)) in enumerate(zip(events, truth, strict=True)):
            size = FIRST_BYTES + number
            thread.enter(enter, checkpoint)
            thread.enter(begin, write)
            thread.io_operation_begin(begin, handle, IoOperationMode.WRITE, IoOperationFlag.NONE, size, 1)
            thread.io_operation_complete(end, handle, size, 1)
            thread.leave(end, write)
            thread.leave(leave, checkpoint)
            thread.enter(tick, read_clock)
            thread.leave(tick, read_clock)
    Path(f"{path}.truth").write_text(json.dumps([(before, behind) for before, _, behind in truth]), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
