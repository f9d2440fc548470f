"""What launchers of parallel programs tell each rank: rows of a table. In: an environment. Out: the place in a job.

No launcher has to be there, and no library of it is called: its variables say everything. A recorder must not take part
in MPI, for its place in the job is the application's.

Sources: srun(1), section "output environment variables"; Open MPI's documentation, "Environment variables set for MPI
applications"; MPICH's Hydra (pmi_proxy sets MPI_LOCALRANKID); manuals of HPE PALS, Flux, jsrun, MVAPICH2 and torchrun.
Open MPI, Slurm and Hydra were tried. The other rows follow the manuals.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Final, NamedTuple

from lo2io.frozen import dataclass
from lo2io.model.job import Job

if TYPE_CHECKING:
    from collections.abc import Mapping


class Launcher(NamedTuple):
    """One launcher and the names of its variables. An empty name: it has none."""

    name: str
    needs: tuple[str, ...]
    """With all of these set, and ``rank``, the launcher started the process."""
    rank: str
    nr_ranks: str = ""
    local_size: str = ""
    """Ranks on this node."""
    sizes: str = ""
    """Ranks of each node, as Slurm writes them: ``2(x4),1``."""
    node: str = ""
    nr_nodes: str = ""
    host: str = ""
    job: str = ""
    step: str = ""


LAUNCHERS: Final = (
    Launcher(
        "torchrun", ("TORCHELASTIC_RUN_ID", "LOCAL_RANK"), "RANK", nr_ranks="WORLD_SIZE", local_size="LOCAL_WORLD_SIZE",
        node="GROUP_RANK", nr_nodes="GROUP_WORLD_SIZE", job="TORCHELASTIC_RUN_ID", step="TORCHELASTIC_RESTART_COUNT",
    ),
    Launcher(
        "open mpi", (), "OMPI_COMM_WORLD_RANK", nr_ranks="OMPI_COMM_WORLD_SIZE",
        local_size="OMPI_COMM_WORLD_LOCAL_SIZE", nr_nodes="OMPI_MCA_orte_num_nodes", job="PMIX_NAMESPACE",
    ),
    Launcher(
        "hydra", ("MPI_LOCALRANKID",), "PMI_RANK", nr_ranks="PMI_SIZE", local_size="MPI_LOCALNRANKS",
    ),
    Launcher(
        "mvapich", (), "MV2_COMM_WORLD_RANK", nr_ranks="MV2_COMM_WORLD_SIZE",
        local_size="MV2_COMM_WORLD_LOCAL_SIZE",
    ),
    Launcher(
        "pals", (), "PALS_RANKID", nr_ranks="PMI_SIZE", local_size="PALS_LOCAL_SIZE", node="PALS_NODEID",
        job="PALS_APID",
    ),
    Launcher(
        "flux", (), "FLUX_TASK_RANK", nr_ranks="FLUX_JOB_SIZE", nr_nodes="FLUX_JOB_NNODES", job="FLUX_JOB_ID",
    ),
    Launcher(
        "jsrun", (), "JSM_NAMESPACE_RANK", nr_ranks="JSM_NAMESPACE_SIZE", local_size="JSM_NAMESPACE_LOCAL_SIZE",
        job="LSB_JOBID", step="LS_JOBPID",
    ),
    Launcher(
        "slurm", ("SLURM_JOB_ID", "SLURM_STEP_ID"), "SLURM_PROCID", nr_ranks="SLURM_STEP_NUM_TASKS",
        sizes="SLURM_STEP_TASKS_PER_NODE", node="SLURM_NODEID", nr_nodes="SLURM_STEP_NUM_NODES",
        host="SLURMD_NODENAME", job="SLURM_JOB_ID", step="SLURM_STEP_ID",
    ),
)  # fmt: skip
"""The inner launcher first: mpirun may start its helpers by srun, and their ranks have the variables of both."""
_RANKS: Final = tuple(each.rank.encode() + b"=" for each in LAUNCHERS)
_TELLING: Final = frozenset(name.encode() for each in LAUNCHERS for name in (each.rank, *each.needs))
"""The variables that tell a rank."""
MAX_RANK: Final = (1 << 31) - 1
_GROUP = re.compile(r"([0-9]{1,9})(?:\(x([0-9]{1,6})\))?")


@dataclass(frozen=True, slots=True)
class Place:
    """The place of this process in its job."""

    job: Job
    rank: int
    local_size: int | None
    """Ranks on this node; None: the launcher does not tell."""


def find_place(environ: Mapping[str, str] = os.environ) -> Place | None:
    """The place that an environment tells. None: no launcher started the process."""
    launcher = _launcher_of(environ)
    if launcher is None:
        return None

    def number(name: str) -> int | None:
        return _number(environ.get(name, ""))

    node, sizes = number(launcher.node), _parse_sizes(environ.get(launcher.sizes, ""))
    local_size = number(launcher.local_size)
    if local_size is None and node is not None and node < len(sizes):
        local_size = sizes[node]
    job = Job(
        launcher=launcher.name,
        host=environ.get(launcher.host, "") or os.uname().nodename,
        id=environ.get(launcher.job, "") or f"of process {os.getppid()}",
        step=environ.get(launcher.step, ""),
        node=node,
        nr_nodes=number(launcher.nr_nodes),
        nr_ranks=number(launcher.nr_ranks),
    )
    return Place(job, int(environ[launcher.rank]), local_size)


def find_rank(environ: Mapping[str, str]) -> int | None:
    """The rank that an environment tells; None: none."""
    launcher = _launcher_of(environ)
    return None if launcher is None else int(environ[launcher.rank])


def find_rank_in(environment: bytes) -> int | None:
    """The rank that an environment as of ``/proc/PID/environ`` tells; None: none."""
    if not any(name in environment for name in _RANKS):
        return None
    pairs = (pair.partition(b"=") for pair in environment.split(b"\0"))
    return find_rank(
        {name.decode("ascii"): value.decode(errors="replace") for name, _, value in pairs if name in _TELLING}
    )


def _launcher_of(environ: Mapping[str, str]) -> Launcher | None:
    return next((each for each in LAUNCHERS if _is_rank(environ.get(each.rank, "")) and _has(environ, each)), None)


def _is_rank(text: str) -> bool:
    number = _number(text)
    return number is not None and number <= MAX_RANK


def _number(text: str) -> int | None:
    """A number of at most ten digits; None: the text is none. For thousands of digits Python would raise an error."""
    return int(text) if re.fullmatch("[0-9]{1,10}", text) else None


def _has(environ: Mapping[str, str], launcher: Launcher) -> bool:
    return all(name in environ for name in launcher.needs)


def _parse_sizes(text: str) -> list[int]:
    """The numbers of a list in Slurm's form: ``2(x4),1`` is 2, 2, 2, 2, 1. Empty: it has another form."""
    sizes: list[int] = []
    for part in text.split(",") if text else ():
        match = _GROUP.fullmatch(part)
        if not match:
            return []
        sizes += [int(match[1])] * int(match[2] or 1)
    return sizes
