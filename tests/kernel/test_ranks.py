"""Ranks that launchers start: one recorder a node, each rank's own exit code and signals, and nothing overwritten."""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING, NamedTuple

import pytest
from workloads.record import LO2IO

from lo2io.trace.reader import open_trace

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.requires("root", "tracefs", "events")

NR_RANKS = 3
SCRIPT = """
echo $RANK $$ $PPID >> ranks
until [ $(wc -l < ranks) = 3 ]; do :; done
exec dd if=/dev/zero of=file.$RANK bs=512 count=$((11 + RANK)) status=none
"""
"""All ranks must live at one time, as MPI_Init wants it."""


class Started(NamedTuple):
    """How ranks are started."""

    name: str
    """In the trace."""
    command: tuple[str, ...]
    rank: str
    """The variable that has a rank's number."""

    def run(self, folder: Path, *words: str | Path) -> subprocess.CompletedProcess[str]:
        """Run these words as each rank."""
        line = [*self.command, "-n", str(NR_RANKS), *words]
        return subprocess.run(line, cwd=folder, capture_output=True, text=True, timeout=120, check=False)


OPEN_MPI = Started("open mpi", ("mpirun", "--allow-run-as-root", "--oversubscribe"), "OMPI_COMM_WORLD_RANK")
HYDRA = Started("hydra", ("mpiexec.hydra",), "PMI_RANK")


@pytest.mark.usefixtures("busy_cpus")
@pytest.mark.parametrize(
    "launcher",
    [pytest.param(each, marks=pytest.mark.requires(each.command[0]), id=each.name) for each in (OPEN_MPI, HYDRA)],
)
def test_one_recorder_records_all_ranks(tmp_path: Path, launcher: Started) -> None:
    """One trace of the node has the writes of each rank, by its pid."""
    words = ("record", "-e", "syscalls", "-o", "T", "--", "sh", "-c", SCRIPT.replace("RANK", launcher.rank))
    done = launcher.run(tmp_path, LO2IO, *words)
    assert done.returncode == 0, done.stderr
    (folder,) = (tmp_path / "T").iterdir()
    trace = open_trace(folder)
    pids = {int(rank): int(pid) for rank, pid, _ in map(str.split, (tmp_path / "ranks").read_text().splitlines())}
    job = trace.metadata["job"]
    assert {each["rank"]: each["pid"] for each in job["ranks"]} == pids
    assert (job["launcher"], job["nr_ranks"], folder.name) == (launcher.name, NR_RANKS, f"host={job['host']}")
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


@pytest.mark.requires("mpirun")
def test_no_rank_starts_if_nobody_can_record(tmp_path: Path) -> None:
    """A trace that exists is not overwritten, and one rank says so.

    The ranks write into a file, for mpirun may end the job before it has passed their messages on.
    """
    (tmp_path / f"T/host={os.uname().nodename}/lo2io").mkdir(parents=True)
    into_file = ("sh", "-c", 'exec "$@" 2>> said', "sh")
    words = (*into_file, LO2IO, "record", "-e", "syscalls", "-o", "T", "--", "touch", "started")
    done = OPEN_MPI.run(tmp_path, *words)
    assert done.returncode == 2, done.stderr
    assert (tmp_path / "said").read_text(encoding="utf-8").count("it exists") == 1
    assert not (tmp_path / "started").exists()


@pytest.mark.usefixtures("busy_cpus")
@pytest.mark.requires("mpirun")
def test_a_failed_rank_ends_the_job(tmp_path: Path) -> None:
    """The others wait for it for ever, as in MPI. So the recorder must not wait for them, whose child it is."""
    script = "grep -q lo2io.record /proc/$PPID/cmdline && exit 23; exec sleep 300"
    done = OPEN_MPI.run(tmp_path, LO2IO, "record", "-e", "syscalls", "-q", "-o", "T", "--", "sh", "-c", script)
    assert done.returncode == 23, done.stderr
