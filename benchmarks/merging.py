"""Measures the CPU time and the peak memory of merging one host to a thousand, and of reading the merged archive.

    sudo .venv/bin/python benchmarks/merging.py [--hosts 1,10,100,1000] [--directory DIR] [--trace T] [--ranks N]

Records one host, unless a trace is given: 80 threads that open, read and close 70 files each. The other hosts are
copies by hard links, each with a clock that differs. Each merge runs in a process of its own. Files lie in the page
cache.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pyarrow as pa
from common import LO2IO, run, table

from lo2io.cluster.sums import write_sums
from lo2io.trace.names import table_file

THREADS, FILES = 80, 70
WORKLOAD = """
import os, sys, threading
def work(number):
    for file in range(int(sys.argv[3])):
        fd = os.open(f"{sys.argv[1]}/{number}-{file}", os.O_RDWR | os.O_CREAT)
        for _ in range(6):
            os.pwrite(fd, b"x" * 512, 0)
            os.pread(fd, 512, 0)
        os.close(fd)
threads = [threading.Thread(target=work, args=(number,)) for number in range(int(sys.argv[2]))]
for thread in threads: thread.start()
for thread in threads: thread.join()
"""


def record(folder: Path) -> Path:
    """The trace of one host."""
    files, trace = folder / "files", folder / "one"
    files.mkdir()
    command = [sys.executable, "-c", WORKLOAD, files, str(THREADS), str(FILES)]
    subprocess.run([LO2IO, "record", "-o", trace, "--", *command], check=True, capture_output=True)
    shutil.rmtree(files)
    write_sums(trace)  # as recording on many nodes does
    return trace


def replicate(trace: Path, cluster: Path, hosts: int) -> None:
    """Hosts with the same trace, whose clocks are offset and drift."""
    for number in range(hosts):
        host = cluster / f"host=n{number:04}"
        if host.exists():
            continue
        shutil.copytree(trace, host, copy_function=os.link)
        points = {"time_ns": [0, 10**15], "offset_ns": [number * 10**9, number * 10**9 + 10**6 * number]}
        correction = pa.table(points)
        with (
            pa.OSFile(str(host / "lo2io" / table_file("clock")), "wb") as file,
            pa.ipc.new_file(file, correction.schema) as writer,
        ):
            writer.write_table(correction)


def main() -> None:
    """Record, and merge more and more hosts."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--hosts", default="1,10,100,1000")
    parser.add_argument("--directory", type=Path, help="where the copies go; hard links need the trace's file system")
    parser.add_argument("--trace", type=Path, help="a trace that stands for each host")
    parser.add_argument("--ranks", type=int, default=1, help="of MPI, which merge together")
    options = parser.parse_args()
    launcher = ["mpirun", "--allow-run-as-root", "--oversubscribe", "-n", str(options.ranks)]
    rows = []
    with tempfile.TemporaryDirectory(prefix="lo2io-merging-", dir=options.directory) as name:
        folder = Path(name)
        trace, cluster = options.trace or record(folder), folder / "T"
        for hosts in sorted(map(int, options.hosts.split(","))):
            replicate(trace, cluster, hosts)
            merge = [*(launcher if options.ranks > 1 else []), LO2IO, "merge", "--keep-corrections", cluster]
            usage = run(merge, folder / "output.txt")
            found = json.loads((cluster / "cluster.json").read_text(encoding="utf-8"))["hosts"]
            assert len(found) == hosts, found
            reading = [run([LO2IO, command, cluster], folder / "output.txt") for command in ("verify", "report")]
            locations = sum(host["locations"] for host in found)
            rows.append(
                [
                    f"{hosts:,}",
                    f"{locations:,}",
                    f"{sum(host['events'] for host in found) / 1e6:.1f}",
                    f"{usage.cpu_s:.2f}",
                    f"{usage.wall_s:.2f}",
                    f"{usage.cpu_s / locations * 1e3:.3f}",
                    f"{usage.max_rss_bytes / 1e6:.0f}",
                    f"{(cluster / 'traces.def').stat().st_size / 1e6:.1f}",
                    *(text for one in reading for text in (f"{one.cpu_s:.1f}", f"{one.max_rss_bytes / 1e6:.0f}")),
                ]
            )
            print(rows[-1], file=sys.stderr, flush=True)
    head = ["hosts", "locations", "events, M", "CPU, s", "wall, s", "ms CPU per location", "peak, MB", "traces.def, MB"]
    head += ["verify: CPU, s", "peak, MB", "report: CPU, s", "peak, MB"]
    print(table(head, rows))


if __name__ == "__main__":
    main()
