"""Formats of the operations table: how fast they are written and read, and how large they become.

Writes the same realistic rows (a cached random reader beside a build: mixed calls, errors, unknown offsets) as Arrow
IPC (plain, LZ4, Zstandard) and as Parquet (Snappy, Zstandard), with one thread and with two. Then reads back the
columns that the summary needs. Figures are ratios to plain Arrow IPC, and rows per second of this machine.

    python benchmarks/tables.py [--rows 5000000] [--repeat 3] [--directory DIR]
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from descriptions import META

from lo2io.model import (
    UNKNOWN_I64,
    UNKNOWN_U32,
    Batch,
    CallKind,
    CallSpec,
    Columns,
    Completeness,
    Returns,
    Totals,
)
from lo2io.trace import writer as writer_module
from lo2io.trace.columns import CACHE_VERDICT
from lo2io.trace.reader import OPERATIONS, arrow_schema, open_trace

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

CHUNK = 65536
_NO_READ, _HIT, _MISS = (CACHE_VERDICT.index(verdict) for verdict in ("no read", "hit", "miss"))
READ_COLUMNS = ["begin_time_ns", "end_time_ns", "task", "call", "handle", "bytes_result", "error"]
CALLS = tuple(
    CallSpec(name, name, "core", True, kind, Returns.BYTES, "none", "file_io", {})
    for name, kind in [
        ("read", CallKind.READ),
        ("pread64", CallKind.READ),
        ("write", CallKind.WRITE),
        ("openat", CallKind.OPEN),
        ("close", CallKind.CLOSE),
        ("lseek", CallKind.SEEK),
        ("newfstat", CallKind.META),
    ]
)


def operations(seed: int, first: int) -> Columns:
    """``CHUNK`` rows like the engine's; ``first`` is the ordinal of the first."""
    random = np.random.default_rng(seed)
    call = random.choice(len(CALLS), CHUNK, p=[0.25, 0.4, 0.15, 0.06, 0.06, 0.04, 0.04]).astype(np.uint16)
    moves = call < 3
    begin = first * 700 + np.cumsum(random.integers(100, 1300, CHUNK))
    task = random.integers(0, 12, CHUNK).astype(np.uint32)
    failed = random.random(CHUNK) < 0.02
    request = np.where(call == 1, 4096, random.choice([512, 832, 4096, 65536, 131072], CHUNK))
    result = np.where(failed, -11, np.where(moves, request - (random.random(CHUNK) < 0.1) * 311, 3))
    handle = np.where(call == 1, 3, random.integers(0, 4000, CHUNK) + first // 40)
    offset = np.where(call == 1, random.integers(0, 2**18, CHUNK) * 4096, random.integers(0, 2**14, CHUNK) * 512)
    return {
        "id": np.arange(first, first + CHUNK, dtype=np.uint64),
        "begin_time_ns": begin.astype(np.int64),
        "end_time_ns": (begin + random.lognormal(6.5, 0.8, CHUNK)).astype(np.int64),
        "task": task,
        "pid": 4000 + task // 4,
        "tid": 4000 + task,
        "call": call,
        "status": np.zeros(CHUNK, np.uint8),
        "offset_source": np.where(call == 1, 1, 2).astype(np.uint8),
        "first_use": np.zeros(CHUNK, np.uint8),
        "closes": (call == 4).astype(np.uint8),
        "cpu": random.integers(0, 16, CHUNK).astype(np.uint16),
        "handle": handle.astype(np.uint32),
        "handle2": np.full(CHUNK, UNKNOWN_U32, np.uint32),
        "fd": (3 + handle % 5).astype(np.int32),
        "flags": np.where(call == 3, 0o2000000, 0).astype(np.uint32),
        "offset_bytes": np.where(moves & (random.random(CHUNK) > 0.1), offset, UNKNOWN_I64),
        "bytes_request": np.where(moves, request, UNKNOWN_I64).astype(np.int64),
        "bytes_result": np.where(moves & ~failed, result, UNKNOWN_I64).astype(np.int64),
        "result": result.astype(np.int64),
        "error": np.where(failed, 11, 0).astype(np.int16),
        **_of_layers(call == 0, np.where(moves & ~failed, result, 0) // 4096, random.random(CHUNK) < 0.05),
    }


def _of_layers(cached: NDArray[np.bool_], pages: NDArray[np.int64], missed: NDArray[np.bool_]) -> Columns:
    """Columns of the page cache: a few reads missed pages, other calls have nulls. No call tells why it waited."""
    unknown = np.full(CHUNK, UNKNOWN_I64)
    verdict = np.where(cached, np.where(missed, _MISS, _HIT), _NO_READ).astype(np.uint8)
    return {
        "cache": verdict,
        "cache_missed_pages": np.where(cached, pages * missed, UNKNOWN_U32).astype(np.uint32),
        "cache_ahead_pages": np.where(cached, 32 * missed, UNKNOWN_U32).astype(np.uint32),
        "cache_wait_ns": np.where(cached, 80_000 * missed, UNKNOWN_I64).astype(np.int64),
        "run_queue_ns": unknown,
        "blocked_ns": unknown,
    }


def batches(rows: int) -> Iterator[Columns]:
    """``rows`` rows: eight different chunks, shifted in time and number, so that making them takes hardly any time."""
    chunks = [operations(seed, seed * CHUNK) for seed in range(8)]
    for index in range(rows // CHUNK):
        columns = chunks[index % 8]
        if index >= 8:
            for name, step in (("id", 8 * CHUNK), ("begin_time_ns", 8 * 700 * CHUNK), ("end_time_ns", 8 * 700 * CHUNK)):
                columns[name] += np.array(step, columns[name].dtype)
        yield columns


def write_ipc(path: Path, rows: int, codec: str | None, threads: int) -> float:
    """Seconds spent in the writer itself."""
    spent = 0.0
    with writer_module.TableWriter(path, META, CALLS, codec=codec, threads=threads > 1) as writer:
        empty: dict[str, Any] = {name: {} for name in Batch.__annotations__ if name.islower()}
        for columns in batches(rows):
            batch = Batch(**empty | {"operations": columns, "text": b"", "first_operation": 0})
            start = time.perf_counter()
            writer.write(batch)
            spent += time.perf_counter() - start
        start = time.perf_counter()
        writer.close(Totals(), Completeness(0, 0, 0, 0, 0, 0, True), 0, 0)
        return spent + time.perf_counter() - start


def write_parquet(path: Path, rows: int, codec: str) -> float:
    """Seconds spent in Parquet's writer, which has one thread."""
    schema = arrow_schema("operations", "perf")
    spent = 0.0
    labels = {column.name: pa.array(column.labels) for column in OPERATIONS if isinstance(column.labels, tuple)}
    labels["call"] = pa.array([call.name for call in CALLS])
    with pq.ParquetWriter(path, schema, compression=codec) as writer:
        for columns in batches(rows):
            start = time.perf_counter()
            arrays = [
                pa.DictionaryArray.from_arrays(pa.array(values.view(column.index_dtype)), labels[column.name])
                if column.labels
                else pa.array(values != 0)
                if column.dtype == "bool"
                else pa.array(values, mask=None if column.null is None else values == column.null)
                for column, values in ((column, columns[column.name]) for column in OPERATIONS)
            ]
            writer.write_batch(pa.RecordBatch.from_arrays(arrays, schema=schema), row_group_size=16 * CHUNK)
            spent += time.perf_counter() - start
        start = time.perf_counter()
    return spent + time.perf_counter() - start


def read_ipc(path: Path) -> float:
    """Seconds to stream the summary's columns and to look at every value, for a page that is not read costs nothing."""
    start = time.perf_counter()
    for columns in open_trace(path).batches("operations", READ_COLUMNS):
        for values in columns.values():
            values.max()
    return time.perf_counter() - start


def read_parquet(path: Path) -> float:
    """The same for Parquet; codes of dictionaries are not resolved."""
    start = time.perf_counter()
    for batch in pq.ParquetFile(path).iter_batches(CHUNK, columns=READ_COLUMNS):
        for column in batch.columns:
            values = column.indices if isinstance(column, pa.DictionaryArray) else column
            np.frombuffer(values.buffers()[1], values.type.to_pandas_dtype(), len(values)).max()
    return time.perf_counter() - start


FORMATS = (
    ("ipc plain", None, 1), ("ipc lz4", "lz4", 1), ("ipc lz4", "lz4", 2), ("ipc zstd", "zstd", 1),
    ("ipc zstd", "zstd", 2), ("parquet snappy", "snappy", 1), ("parquet zstd", "zstd", 1),
)  # fmt: skip


def measure(directory: Path, rows: int, repeat: int) -> list[tuple[str, int, list[float], list[float], float]]:
    """Name, threads, write and read rows per second of each turn, bytes a row.

    The formats take turns, so that a slow minute of the machine (write-back of the last file) affects all of them.
    """
    writes: list[list[float]] = [[] for _ in FORMATS]
    reads: list[list[float]] = [[] for _ in FORMATS]
    sizes = [0.0] * len(FORMATS)
    for turn in range(repeat):
        for index, (name, codec, threads) in enumerate(FORMATS):
            pa.set_cpu_count(threads)
            target = directory / f"{name.replace(' ', '-')}-{threads}-{turn}"
            if name.startswith("ipc"):
                writes[index].append(rows / write_ipc(target, rows, codec, threads))
                reads[index].append(rows / read_ipc(target))
                file = target / "lo2io" / "operations.arrow"
            else:
                assert codec is not None
                writes[index].append(rows / write_parquet(target, rows, codec))
                reads[index].append(rows / read_parquet(target))
                file = target
            sizes[index] = file.stat().st_size / rows
            file.unlink()
            os.sync()
    return [
        (name, threads, writes[index], reads[index], sizes[index]) for index, (name, _, threads) in enumerate(FORMATS)
    ]


def main() -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=5_000_000)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--directory", type=Path, default=None)
    options = parser.parse_args()
    rows = options.rows // CHUNK * CHUNK
    with tempfile.TemporaryDirectory(dir=options.directory) as directory:
        figures = measure(Path(directory), rows, options.repeat)
    plain_write, plain_read, plain_size = median(figures[0][2]), median(figures[0][3]), figures[0][4]
    print(f"{rows:,} rows, median (least to most) of {options.repeat}, {os.cpu_count()} CPUs")
    print("format          threads   write M/s                 ratio   read M/s                  ratio   B/row  ratio")
    for name, threads, writes, reads, size in figures:
        print(
            f"{name:15} {threads:7} {spread(writes)} {median(writes) / plain_write:6.2f} {spread(reads)}"
            f" {median(reads) / plain_read:6.2f} {size:7.1f} {size / plain_size:6.2f}"
        )


def spread(rates: list[float]) -> str:
    """Median, least and most, in millions a second."""
    return f"{median(rates) / 1e6:11.2f} ({min(rates) / 1e6:5.1f} to {max(rates) / 1e6:5.1f})"


if __name__ == "__main__":
    main()
