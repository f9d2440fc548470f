"""Converts a spool that is too large for the disk beside its trace: what was read of it is given back meanwhile.

    .venv/bin/python benchmarks/streaming.py SAMPLES [--threads N] [--directory DIR]

synthetic_spool.py makes the spool. Prints one line of JSON. Needs root, to see how far the converter has read.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import json
import os
import re
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

from common import LO2IO, BenchError, size_of
from convert import FEW, make_spool

KEEP_SIZE, PUNCH_HOLE = 1, 2
"""Modes of fallocate(2), linux/falloc.h."""
LEAST_BYTES = 64 << 20
"""Given back at a time."""
PERIOD_S = 0.2

_libc = ctypes.CDLL(None, use_errno=True)
_libc.fallocate.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64]


def main() -> None:
    """Make a spool, convert it, print what that took."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("samples", type=int)
    parser.add_argument("--threads", type=int, default=FEW)
    parser.add_argument("--directory", type=Path, help="where spool and trace go (the system's temporary directory)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="streaming-", dir=options.directory) as folder:
        print(json.dumps(measure(Path(folder), options.samples, options.threads)))


def measure(folder: Path, samples: int, threads: int) -> dict[str, Any]:
    """Rate, CPU time, peak of memory, sizes; the largest size of spool and trace together."""
    spool, samples = make_spool(folder, samples, threads)
    trace, output = folder / "trace", folder / "output.txt"
    spool_bytes, before = size_of(spool), shutil.disk_usage(folder).free
    least_free, freed = before, dict.fromkeys(map(str, spool.glob("cpu-*")), 0)
    begin = time.monotonic()
    with output.open("wb") as file:
        child = subprocess.Popen([LO2IO, "convert", spool, "-o", trace], stdout=file, stderr=file)
    while not (ended := os.wait4(child.pid, os.WNOHANG))[0]:
        give_back(child.pid, freed)
        least_free = min(least_free, shutil.disk_usage(folder).free)
        time.sleep(PERIOD_S)
    wall_s = time.monotonic() - begin
    child.returncode = os.waitstatus_to_exitcode(ended[1])
    said = output.read_text(encoding="utf-8")
    if child.returncode or "\ncomplete: " not in "\n" + said:
        raise BenchError(f"converting ended with {child.returncode}:\n{said}")
    return {
        "samples": samples,
        "threads": threads,
        "samples_per_s": samples / wall_s,
        "wall_s": wall_s,
        "cpu_s": ended[2].ru_utime + ended[2].ru_stime,
        "max_rss_bytes": ended[2].ru_maxrss * 1024,
        "spool_bytes": spool_bytes,
        "trace_bytes": size_of(trace),
        "freed_bytes": sum(freed.values()),
        "most_disk_bytes": spool_bytes + before - least_free,
    }


def give_back(pid: int, freed: dict[str, int]) -> None:
    """Free the parts of files that the process has read.

    Args:
        pid: The process.
        freed: Path of each file → bytes freed from its start on.
    """
    for fd in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # it was closed meanwhile
            path = str(fd.readlink())
            if path not in freed:
                continue
            info = Path(f"/proc/{pid}/fdinfo/{fd.name}").read_text(encoding="ascii")
            found = re.search(r"^pos:\s*(\d+)", info, re.MULTILINE)
            read = int(found[1]) if found else 0
            if read - freed[path] >= LEAST_BYTES:
                _punch(path, read)
                freed[path] = read


def _punch(path: str, end: int) -> None:
    with Path(path).open("r+b") as file:
        if _libc.fallocate(file.fileno(), KEEP_SIZE | PUNCH_HOLE, 0, end):
            code = ctypes.get_errno()
            raise BenchError(f"fallocate {path}: {os.strerror(code)}")


if __name__ == "__main__":
    main()
