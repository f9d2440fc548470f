"""Compares the clocks of nodes over MPI: rank 0 sends each node a message, and the answer bears that node's time.

::

    rank 0     t0 ──────►           ──────► t1       rank 0 takes (t0 + t1) / 2 for the moment of `their`,
    rank r            their ──────►                  and is wrong by (t1 - t0) / 2 at most

Of many such round trips the tightest counts.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import numpy as np

from lo2io.cluster.comparison import Comparison, Ping

if TYPE_CHECKING:
    from collections.abc import Callable

NR_PINGS = 100


def read_raw() -> int:
    """CLOCK_MONOTONIC_RAW."""
    return time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW)


def compare(
    comm: Any, host: str, clock: str, read: Callable[[], int] = read_raw, nr_pings: int = NR_PINGS
) -> Comparison | None:
    """Compare all ranks' clocks with that of rank 0. All ranks call this.

    Args:
        comm: The communicator of mpi4py.
        host: The name of this rank's node.
        clock: Which clock it has, by :func:`~lo2io.cluster.comparison.clock_id`. Of ranks with one clock one is asked.
        read: Reads this rank's clock.
        nr_pings: Round trips for each clock.

    Returns:
        The comparison, for rank 0.
    """
    ranks: list[tuple[str, str]] = comm.allgather((host, clock))
    asked = {each: rank for rank, (_, each) in reversed(list(enumerate(ranks)))}
    if comm.Get_rank() != 0:
        if asked[clock] == comm.Get_rank():
            _answer(comm, read, nr_pings)
        comm.Barrier()
        return None
    now = read()
    pings = []
    for each, rank in sorted(asked.items(), key=lambda item: item[1]):
        theirs, ours, rtt = _ask(comm, rank, read, nr_pings) if rank else (now, now, 0)
        pings.append(Ping(ranks[rank][0], each, theirs, ours, rtt))
    comm.Barrier()
    return Comparison(clock, tuple(pings))


def _ask(comm: Any, rank: int, read: Callable[[], int], nr_pings: int) -> tuple[int, int, int]:
    """The tightest round trip: their time, the middle of ours, how long it took."""
    message = np.zeros(1, np.int64)
    best = (0, 0, np.iinfo(np.int64).max)
    for _ in range(nr_pings):
        before = read()
        comm.Send(message, rank)
        comm.Recv(message, rank)
        rtt = read() - before
        if rtt < best[2]:
            best = (int(message[0]), before + rtt // 2, rtt)
    return best


def _answer(comm: Any, read: Callable[[], int], nr_pings: int) -> None:
    message = np.zeros(1, np.int64)
    for _ in range(nr_pings):
        comm.Recv(message, 0)
        message[0] = read()
        comm.Send(message, 0)
