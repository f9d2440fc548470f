"""A rank of a program that writes by MPI-IO: ``mpi_io.py FOLDER``. All ranks write two files together.

``shared``: ``ROUNDS`` collective writes, in each of which every rank has the block that :func:`block_of` makes. MPI's
library decides which ranks call the kernel for it. ``apart``: rank ``r`` writes ``r + 1`` blocks by itself.
``rank-R`` tells the rank's pid and host.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

BLOCK = 64 << 10
ROUNDS = 4


def block_of(rank: int, number: int) -> bytes:
    """The content of a rank's block."""
    return bytes([rank * 16 + number]) * BLOCK


def main() -> None:
    """Write, and tell who wrote."""
    from mpi4py import MPI  # noqa: PLC0415 - tests import this module without MPI

    folder, comm = Path(sys.argv[1]), MPI.COMM_WORLD
    rank, size = comm.Get_rank(), comm.Get_size()
    (folder / f"rank-{rank}").write_text(json.dumps({"pid": os.getpid(), "host": os.uname().nodename}))
    mode = MPI.MODE_CREATE | MPI.MODE_WRONLY
    shared = MPI.File.Open(comm, str(folder / "shared"), mode)
    for number in range(ROUNDS):
        shared.Write_at_all((number * size + rank) * BLOCK, block_of(rank, number))
    shared.Close()
    apart = MPI.File.Open(comm, str(folder / "apart"), mode)
    for number in range(rank + 1):
        apart.Write_at((rank * (rank + 1) // 2 + number) * BLOCK, block_of(rank, number))
    apart.Close()


if __name__ == "__main__":
    main()
