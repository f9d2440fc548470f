"""Which rank of which job an environment tells. Environments as the launchers make them: see each source."""

from __future__ import annotations

import os

import pytest

from lo2io.capture.launchers import LAUNCHERS, Place, find_place, find_rank, find_rank_in
from lo2io.model.job import Job

SLURM = {
    "SLURM_JOB_ID": "17", "SLURM_STEP_ID": "3", "SLURM_PROCID": "5", "SLURM_LOCALID": "1", "SLURM_NODEID": "2",
    "SLURM_STEP_TASKS_PER_NODE": "2(x2),3,1", "SLURM_STEP_NUM_TASKS": "8", "SLURM_STEP_NUM_NODES": "4",
    "SLURMD_NODENAME": "n7",
}  # fmt: skip
"""srun(1)."""
OPEN_MPI = {
    "OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_LOCAL_RANK": "1",
    "OMPI_COMM_WORLD_LOCAL_SIZE": "2", "OMPI_MCA_orte_num_nodes": "1", "PMIX_NAMESPACE": "1952710657", "PMIX_RANK": "1",
}  # fmt: skip
"""mpirun of Open MPI 4.1.4, as `env` printed it."""
HYDRA = {"PMI_RANK": "3", "PMI_SIZE": "4", "MPI_LOCALRANKID": "1", "MPI_LOCALNRANKS": "2"}
TORCHRUN = {
    "RANK": "6", "WORLD_SIZE": "8", "LOCAL_RANK": "2", "LOCAL_WORLD_SIZE": "4", "GROUP_RANK": "1",
    "TORCHELASTIC_RUN_ID": "none", "TORCHELASTIC_RESTART_COUNT": "0",
}  # fmt: skip
HERE = os.uname().nodename


def test_a_place_by_slurm() -> None:
    """The ranks of the node stand in a list of all nodes; the name is that of Slurm's node, not the host's."""
    job = Job("slurm", "n7", "17", "3", node=2, nr_nodes=4, nr_ranks=8)
    assert find_place(SLURM) == Place(job, 5, 3)


@pytest.mark.parametrize(
    ("environ", "rank", "local_size", "job"),
    [
        (OPEN_MPI, 1, 2, Job("open mpi", HERE, "1952710657", nr_nodes=1, nr_ranks=2)),
        (HYDRA, 3, 2, Job("hydra", HERE, f"of process {os.getppid()}", nr_ranks=4)),
        (TORCHRUN, 6, 4, Job("torchrun", HERE, "none", "0", node=1, nr_ranks=8)),
        ({"FLUX_TASK_RANK": "0", "FLUX_JOB_ID": "f1"}, 0, None, Job("flux", HERE, "f1")),
    ],
)
def test_a_place_by_others(environ: dict[str, str], rank: int, local_size: int | None, job: Job) -> None:
    """Each launcher has its own names, and may tell less."""
    assert find_place(environ) == Place(job, rank, local_size)


def test_the_inner_launcher_counts() -> None:
    """On another node, mpirun starts its helper by srun: Slurm's rank there is the helper's."""
    place = find_place(SLURM | OPEN_MPI)
    assert place is not None
    assert (place.job.launcher, place.rank, place.local_size) == ("open mpi", 1, 2)


@pytest.mark.parametrize(
    "environ",
    [
        {},
        {"RANK": "3", "LOCAL_RANK": "3"},  # anybody's names: torchrun sets TORCHELASTIC_RUN_ID beside them
        {"SLURM_JOB_ID": "17", "SLURM_PROCID": "0"},  # a batch script: no step has started it
        {"PMI_RANK": "3"},  # set by Slurm's pmi2, too
        OPEN_MPI | {"OMPI_COMM_WORLD_RANK": "first"},
        OPEN_MPI | {"OMPI_COMM_WORLD_RANK": "4294967296"},
    ],
)
def test_no_place_is_guessed(environ: dict[str, str]) -> None:
    """Without all of a launcher's variables there is no rank."""
    assert find_place(environ) is None
    assert find_rank(environ) is None


@pytest.mark.parametrize("sizes", ["", "2(x2", "2(x2),,3", "two", "2(x2)"])
def test_an_odd_list_tells_no_size(sizes: str) -> None:
    """Neither a list of another form nor one that ends before this node."""
    place = find_place(SLURM | {"SLURM_STEP_TASKS_PER_NODE": sizes})
    assert place is not None
    assert place.local_size is None


def test_every_launcher_tells_its_rank() -> None:
    """With its variables set, each row of the table is found."""
    for launcher in LAUNCHERS:
        environ = dict.fromkeys(launcher.needs, "1") | {launcher.rank: "7"}
        place = find_place(environ)
        assert place is not None
        assert (place.job.launcher, place.rank, find_rank(environ)) == (launcher.name, 7, 7)


def test_a_rank_in_the_bytes_of_proc() -> None:
    """As ``/proc/PID/environ`` has it. Values may hold anything, also what looks like a variable."""
    environ = b"A=\xff\xfe\0PATH=/bin\0OMPI_COMM_WORLD_RANK=12\0HOME=/\0"
    assert find_rank_in(environ) == 12
    assert find_rank_in(b"A=OMPI_COMM_WORLD_RANK=12\0") is None
    assert find_rank_in(b"") is None
