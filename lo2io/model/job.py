"""The job of which a recording is a part: what its launcher told by environment variables."""

from __future__ import annotations

from lo2io.frozen import dataclass


@dataclass(frozen=True, slots=True)
class RankedProcess:
    """A rank of this node, which the recorder let go."""

    pid: int
    rank: int


@dataclass(frozen=True, slots=True)
class Job:
    """The place of a node's recording in its job. None: the launcher did not tell."""

    launcher: str
    """As the table of launchers names it: ``slurm``, ``open mpi`` …"""
    host: str
    """The node's name, of its folder ``host=NAME``."""
    id: str = ""
    step: str = ""
    node: int | None = None
    """Number of the node among the job's nodes, from 0 on."""
    nr_nodes: int | None = None
    nr_ranks: int | None = None
    """Ranks of all nodes."""
    ranks: tuple[RankedProcess, ...] = ()
    """The ranks of this node, whose commands the recorder let go together. Empty beside a job: ``system-wide``."""
