"""The ranks of a job, by MPI. mpi4py is imported only here, for that initializes MPI."""

from __future__ import annotations

from typing import Any

from lo2io.capture.launchers import find_place
from lo2io.errors import UsageError


def is_of_many() -> bool:
    """True if a launcher started this process as one of several ranks."""
    place = find_place()
    return place is not None and (place.job.nr_ranks or 1) > 1


def world(tried: str, nr_ranks: int | None) -> Any:
    """The communicator of all ranks.

    Args:
        tried: What for, as an error begins.
        nr_ranks: The number of ranks by the launcher; None: it does not tell.

    Raises:
        UsageError: There is no MPI, or it is not the launcher's.
    """
    try:
        from mpi4py import MPI  # noqa: PLC0415 - initializes MPI
    except (ImportError, RuntimeError) as error:
        remedy = "pip install 'lo2io[cluster]', and load a module of MPI"
        raise UsageError(tried, str(error).partition("\n")[0], remedy) from error
    comm = MPI.COMM_WORLD
    if nr_ranks is not None and comm.Get_size() != nr_ranks:
        raise UsageError(
            tried,
            f"the launcher started {nr_ranks} ranks, and MPI knows {comm.Get_size()}: {_library(MPI)}",
            "name the launcher's own MPI in MPI4PY_LIBMPI; with srun, choose one by --mpi",
        )
    return comm


def _library(mpi: Any) -> str:
    return str(mpi.Get_library_version()).partition(",")[0].partition("\n")[0].strip()


def finish() -> None:
    """End MPI. Python's shutdown, which would do this, is skipped; a launcher takes a missing end for a crash."""
    from mpi4py import MPI  # noqa: PLC0415 - as above

    MPI.Finalize()
