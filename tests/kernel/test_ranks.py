"""Ranks that mpirun starts: one recorder a node, each rank's own exit code and signals, and nothing overwritten."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

import pytest
from workloads.record import LO2IO

from lo2io.trace.reader import open_trace

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.requires("root", "tracefs", "events", "mpirun")

NR_RANKS = 3
SCRIPT = """
echo $OMPI_COMM_WORLD_RANK $$ $PPID >> ranks
until [ $(wc -l < ranks) = 3 ]; do :; done
exec dd if=/dev/zero of=file.$OMPI_COMM_WORLD_RANK bs=512 count=$((11 + OMPI_COMM_WORLD_RANK)) status=none
"""
"""All ranks must live at one time, as MPI_Init wants it."""


def mpirun(folder: Path, *words: str | Path) -> subprocess.CompletedProcess[str]:
    """Run a command as each rank."""
    options = ("--allow-run-as-root", "--oversubscribe", "-n", str(NR_RANKS))
    return subprocess.run(
        ["mpirun", *options, LO2IO, *words], cwd=folder, capture_output=True, text=True, timeout=120, check=False
    )


@pytest.mark.usefixtures("busy_cpus")
def test_one_recorder_records_all_ranks(tmp_path: Path) -> None:
    """One trace of the node has the writes of each rank, by its pid; a second run overwrites nothing."""
    words = ("record", "-e", "syscalls", "-o", "T", "--", "sh", "-c", SCRIPT)
    done = mpirun(tmp_path, *words)
    assert done.returncode == 0, done.stderr
    (folder,) = (tmp_path / "T").iterdir()
    trace = open_trace(folder)
    pids = {int(rank): int(pid) for rank, pid, _ in map(str.split, (tmp_path / "ranks").read_text().splitlines())}
    job = trace.metadata["job"]
    assert {each["rank"]: each["pid"] for each in job["ranks"]} == pids
    assert (job["launcher"], job["nr_ranks"], folder.name) == ("open mpi", NR_RANKS, f"host={job['host']}")
    written = trace.table("operations").filter(
        [call == "write" for call in trace.table("operations")["call"].to_pylist()]
    )
    sizes = written.select(["pid", "bytes_request"]).to_pylist()
    blocks = {
        rank: sum(row["pid"] == pid and row["bytes_request"] == 512 for row in sizes) for rank, pid in pids.items()
    }
    assert blocks == {rank: 11 + rank for rank in range(NR_RANKS)}
    assert done.stderr.count("complete: ") == 1
    threads = {row["pid"]: row["rank"] for row in trace.table("threads").to_pylist()}
    assert {rank: threads[pid] for rank, pid in pids.items()} == {rank: rank for rank in range(NR_RANKS)}

    (tmp_path / "ranks").unlink()
    again = mpirun(tmp_path, *words)
    assert again.returncode == 2
    assert again.stderr.count("it exists") == 1
    assert not (tmp_path / "ranks").exists(), "no rank may start if nobody can record"


@pytest.mark.usefixtures("busy_cpus")
def test_a_failed_rank_ends_the_job(tmp_path: Path) -> None:
    """The others wait for it for ever, as in MPI. So the recorder must not wait for them, whose child it is."""
    script = "grep -q lo2io.record /proc/$PPID/cmdline && exit 23; exec sleep 300"
    done = mpirun(tmp_path, "record", "-e", "syscalls", "-q", "-o", "T", "--", "sh", "-c", script)
    assert done.returncode == 23, done.stderr
