"""How fast the native loop turns operations into OTF2 events: one core, one thread, to a directory of your choice.

One operation is a read of a known offset: Enter, IoOperationBegin with an Offset attribute, IoOperationComplete,
Leave. The clock runs during the loop and while the writers are closed, but not while the columns are made.

    .venv/bin/python benchmarks/otf2_events.py [--operations 2000000] [--threads 8] [--repeat 5] [--directory DIR]
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np
from common import size_of
from descriptions import META
from lo2io.native._lib import lib

from lo2io.model import (
    UNKNOWN_U32,
    Batch,
    CallKind,
    CallSpec,
    Columns,
    Completeness,
    Returns,
    Totals,
    TraceEnd,
)
from lo2io.native.columns import allocate_batch
from lo2io.otf2.write.writer import Otf2Writer

ROWS = 65536
EVENTS_PER_OPERATION = 4
CALL = CallSpec("pread64", "pread64", "read", True, CallKind.READ, Returns.BYTES, "read", "file_io", {})


def reads(columns: Columns, threads: int) -> None:
    """Fill a batch with reads, each thread with its own handle, in the order of their ends."""
    rows = np.arange(ROWS)
    columns["task"][:] = rows % threads
    columns["pid"][:] = 1
    columns["tid"][:] = rows % threads + 1
    columns["handle"][:] = rows % threads
    columns["handle2"][:] = UNKNOWN_U32
    columns["offset_source"][:] = 1
    columns["offset_bytes"][:] = rows * 4096
    columns["bytes_request"][:] = columns["bytes_result"][:] = 4096
    columns["begin_time_ns"][:] = rows * 500
    columns["end_time_ns"][:] = rows * 500 + 400


def measure(directory: Path, operations: int, threads: int) -> tuple[float, float]:
    """Million events per second of one run, and bytes an operation."""
    native, tables = allocate_batch(ROWS, 1)
    columns = tables["operations"]
    reads(columns, threads)
    native.nr_operations = ROWS
    views = {name: {c: a[: ROWS if name == "operations" else 0] for c, a in t.items()} for name, t in tables.items()}
    batch = Batch(**views, text=b"", first_operation=0, native=native)
    spent, done = 0.0, 0
    with Otf2Writer(directory, META, [CALL]) as writer:
        while done < operations:
            columns["id"][:] = np.arange(done, done + ROWS)
            begin = time.perf_counter()
            writer.write(batch)
            spent += time.perf_counter() - begin
            columns["begin_time_ns"] += ROWS * 500
            columns["end_time_ns"] += ROWS * 500
            done += ROWS
        begin = time.perf_counter()
        assert lib.lo2_otf2_finish(writer._native) == 0  # noqa: SLF001 - the part of close() that is measured
        spent += time.perf_counter() - begin
        proof = Completeness(0, 0, 0, 0, 0, done, proven=True)
        writer.close(TraceEnd(0, int(columns["end_time_ns"][-1]), proof, Totals()))
    return done * EVENTS_PER_OPERATION / spent / 1e6, size_of(directory) / done


def main() -> None:
    """Measure. Print the median of million events per second, and the bytes of an operation."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--operations", type=int, default=2_000_000)
    parser.add_argument("--threads", type=int, default=8)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--directory", type=Path, default=None, help="where to write (a temporary directory)")
    options = parser.parse_args()
    rates = []
    for _ in range(options.repeat):
        with tempfile.TemporaryDirectory(dir=options.directory) as directory:
            rate, size = measure(Path(directory), options.operations, options.threads)
            rates.append(rate)
    print(f"{statistics.median(rates):.1f} {size:.1f}")


if __name__ == "__main__":
    main()
