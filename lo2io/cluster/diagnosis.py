"""``lo2io doctor`` on many nodes: one table, from one rank."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lo2io.capture.launchers import find_place
from lo2io.cluster.comparison import clock_id
from lo2io.cluster.mpi import finish, world

if TYPE_CHECKING:
    from collections.abc import Callable

    from lo2io.reports.doctor.report import Diagnosis


def gather_diagnoses(own: Diagnosis, tell: Callable[[dict[str, Diagnosis]], None]) -> int:
    """Bring the diagnoses of all nodes together, and have rank 0 tell them. All ranks call this.

    Launchers end the other ranks as soon as one has ended with an error, so all wait until rank 0 has told.

    Args:
        own: This rank's diagnosis.
        tell: Rank 0 calls it, with host → its diagnosis. A host with several ranks has the diagnosis of the first. If
            hosts share a name, the later ones have the id of their clock after the name.

    Returns:
        The exit code of all, which is that of the worst node.

    Raises:
        UsageError: There is no MPI, or it is not the launcher's.
    """
    place = find_place()
    comm = world("bring the diagnoses of the nodes together", place.job.nr_ranks if place else None)
    host = place.job.host if place else ""
    gathered: list[tuple[str, str, Diagnosis]] = comm.allgather((host, clock_id(), own))
    if comm.Get_rank() == 0:
        tell(_by_host(gathered))
    comm.Barrier()
    finish()
    return max(diagnosis.exit_code for _, _, diagnosis in gathered)


def _by_host(gathered: list[tuple[str, str, Diagnosis]]) -> dict[str, Diagnosis]:
    nodes: dict[tuple[str, str], Diagnosis] = {}
    for name, clock, diagnosis in gathered:
        nodes.setdefault((name, clock), diagnosis)
    hosts: dict[str, Diagnosis] = {}
    for (name, clock), diagnosis in nodes.items():
        hosts[name if name not in hosts else f"{name} ({clock})"] = diagnosis
    return hosts
