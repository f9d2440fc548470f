"""Measures the CPU time and the peak memory of questions about the tables of many nodes.

    sudo .venv/bin/python benchmarks/querying.py [--rows 33] [--directory DIR] [--trace T]

Records one host as ``merging.py`` does, unless a trace is given, and replicates it by hard links until the tables of
all hosts have that many million system calls. The questions are those of docs/how-to/python.md and read-the-tables.md.
Each runs in a process of its own, after one that reads the host's files into the page cache.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from common import LO2IO, run, table
from merging import record, replicate

from lo2io.trace.reader import open_trace

VIA_SQL = {
    "calls by host": "select host, call, count(*) from calls group by all",
    "one host's": "select host, call, count(*) from calls where host = 'n0000' group by all",
    "files that cost most": """
        select path, count(*) as calls, sum(latency_ns) / 1e6 as ms, sum(blocked_ns) / 1e6 as waited_ms
        from calls group by path order by ms desc limit 10""",
    "quantiles of latencies": """
        select call, count(*) as calls, median(latency_ns) as p50_ns, quantile_cont(latency_ns, 0.99) as p99_ns
        from calls where latency_ns is not null group by call""",
    "approximate quantiles": """
        select call, count(*) as calls, approx_quantile(latency_ns, 0.5) as p50_ns,
            approx_quantile(latency_ns, 0.99) as p99_ns
        from calls where latency_ns is not null group by call""",
    "slowest ten": "select host, rank, path, call, latency_ns from calls order by latency_ns desc limit 10",
}
"""The question in words → its SQL for ``lo2io query``."""
VIA_PYTHON = {
    "lo2io.open, operations by host": """
        import lo2io
        relation = lo2io.open(FOLDER).operations.duckdb()
        print(relation.aggregate("host, call, count(*)", "host, call").fetchall()[:3])""",
    "lo2io.open, all rows as batches": """
        import lo2io
        print(sum(len(batch) for batch in lo2io.open(FOLDER).operations.batches(["call", "bytes_result"])))""",
    "DuckDB alone, operations by host": """
        from glob import glob
        import duckdb
        import pyarrow.dataset as ds
        files = sorted(glob(f"{FOLDER}/host=*/lo2io/operations.arrow"))
        operations = ds.dataset(files, format="ipc", partitioning="hive")
        print(duckdb.sql("select host, call, count(*) from operations group by all").fetchall()[:3])""",
    "Polars alone, operations by host": """
        import polars as pl
        operations = pl.scan_ipc(f"{FOLDER}/host=*/lo2io/operations.arrow", hive_partitioning=True)
        calls = operations.group_by("host", "call").agg(pl.len(), pl.col("bytes_result").sum())
        print(calls.collect(engine="streaming").head(3))""",
}
"""The question in words → a program that answers it; ``FOLDER`` stands for the recording."""


def commands(cluster: Path) -> dict[str, list[object]]:
    """The question in words → the command that asks it."""
    found: dict[str, list[object]] = {
        f"lo2io query, {name}": [LO2IO, "query", cluster, sql] for name, sql in VIA_SQL.items()
    }
    for name, text in VIA_PYTHON.items():
        lines = [f"FOLDER = {str(cluster)!r}", *(line.strip() for line in text.splitlines())]
        found[name] = [sys.executable, "-c", "\n".join(lines)]
    return found


def main() -> None:
    """Record, replicate, and ask."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", type=float, default=33, help="million system calls of all hosts (33)")
    parser.add_argument("--directory", type=Path, help="where the copies go; hard links need the trace's file system")
    parser.add_argument("--trace", type=Path, help="a trace that stands for each host")
    options = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory(prefix="lo2io-querying-", dir=options.directory) as name:
        folder = Path(name)
        trace, cluster = options.trace or record(folder), folder / "T"
        of_host = open_trace(trace).table("operations").num_rows
        hosts = max(1, round(options.rows * 1e6 / of_host))
        replicate(trace, cluster, hosts)
        run([LO2IO, "query", cluster / "host=n0000", "select count(*) from calls"], folder / "output.txt")
        for asked, command in commands(cluster).items():
            usage = run(command, folder / "output.txt")
            rows.append([asked, f"{usage.cpu_s:.1f}", f"{usage.wall_s:.1f}", f"{usage.max_rss_bytes / 1e6:.0f}"])
            print(rows[-1], file=sys.stderr, flush=True)
    print(f"{hosts:,} hosts, {hosts * of_host / 1e6:.1f} million system calls\n")
    print(table(["question", "CPU, s", "wall, s", "peak, MB"], rows))


if __name__ == "__main__":
    main()
