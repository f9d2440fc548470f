"""Who shares the work of a command: the ranks that a launcher started, or processes of this machine."""

from __future__ import annotations

import contextlib
import os
import signal
from typing import TYPE_CHECKING, Final, cast

from lo2io.capture.launchers import find_place
from lo2io.cluster.mpi import finish, is_of_many, world
from lo2io.errors import UsageError
from lo2io.otf2.merge.sharing import Share

if TYPE_CHECKING:
    from collections.abc import Iterator
    from concurrent.futures import Executor

MPI, PROCESSES = "mpi", "processes"
EXECUTORS: Final = (MPI, PROCESSES)


@contextlib.contextmanager
def shared(executor: str | None) -> Iterator[Share | None]:
    """Yield who shares the work of this process. A rank of MPI that is not the first gets None, once it has worked.

    Args:
        executor: One of :data:`EXECUTORS`. None: MPI if a launcher started several ranks, else this process alone.

    Raises:
        UsageError: There is no such executor, there is no MPI, or it is not the launcher's.
    """
    if executor not in {None, *EXECUTORS}:
        answer = f"there is no executor {executor!r}"
        raise UsageError("share the work", answer, f"name one of {', '.join(EXECUTORS)}")
    if executor == PROCESSES:
        with _processes() as share:
            yield share
    elif executor == MPI or is_of_many():
        with _ranks() as share:
            yield share
    else:
        yield Share()


@contextlib.contextmanager
def _ranks() -> Iterator[Share | None]:
    place = find_place()
    comm = world("share the work among ranks", place.job.nr_ranks if place else None)
    from mpi4py.futures import MPICommExecutor  # noqa: PLC0415 - initializes MPI

    try:
        if comm.Get_size() == 1:
            yield Share(by_messages=True)
            return
        with MPICommExecutor(comm, root=0) as executor:
            # mpi4py's stub says that it yields itself.
            others = cast("Executor | None", executor)
            yield None if others is None else Share(others, comm.Get_size() - 1, by_messages=True)
    finally:
        finish()


@contextlib.contextmanager
def _processes() -> Iterator[Share]:
    """One process for each CPU, this one among them.

    They are forked, so they lack the rights that this process has given up by then. They need only the output's files.
    """
    from concurrent.futures import ProcessPoolExecutor  # noqa: PLC0415 - most commands need none
    from multiprocessing import get_context  # noqa: PLC0415

    nr_others = len(os.sched_getaffinity(0)) - 1
    if not nr_others:
        yield Share()
        return
    with ProcessPoolExecutor(nr_others, get_context("fork"), _leave_signals) as pool:
        yield Share(pool, nr_others)


def _leave_signals() -> None:
    """Ctrl-C reaches all processes. The first one ends the others once their piece of work is done."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
