"""``lo2io doctor`` on many nodes: one table, from one rank."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lo2io.capture.launchers import find_place
from lo2io.cluster.comparison import clock_id
from lo2io.cluster.mpi import finish, world

if TYPE_CHECKING:
    from lo2io.reports.doctor.report import Diagnosis


def is_of_many() -> bool:
    """True if a launcher started this process as one of several ranks."""
    place = find_place()
    return place is not None and (place.job.nr_ranks or 1) > 1


def gather_diagnoses(own: Diagnosis) -> tuple[dict[str, Diagnosis] | None, int]:
    """Bring the diagnoses of all nodes together. All ranks call this.

    Returns:
        Host → its diagnosis, for rank 0; None for other ranks. Of a host with several ranks it is that of the first.
        Of hosts with one name, the later ones have the id of their clock behind it. And the exit code of all, which is
        that of the worst node.

    Raises:
        UsageError: There is no MPI, or it is not the launcher's.
    """
    place = find_place()
    comm = world("bring the diagnoses of the nodes together", place.job.nr_ranks if place else None)
    host = place.job.host if place else ""
    gathered: list[tuple[str, str, Diagnosis]] = comm.allgather((host, clock_id(), own))
    exit_code = max(diagnosis.exit_code for _, _, diagnosis in gathered)
    rank = comm.Get_rank()
    finish()
    if rank:
        return None, exit_code
    nodes: dict[tuple[str, str], Diagnosis] = {}
    for name, clock, diagnosis in gathered:
        nodes.setdefault((name, clock), diagnosis)
    hosts: dict[str, Diagnosis] = {}
    for (name, clock), diagnosis in nodes.items():
        hosts[name if name not in hosts else f"{name} ({clock})"] = diagnosis
    return hosts, exit_code
