"""``lo2io clocks``: compares the clocks of a job's nodes."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer


def clocks(
    output: Annotated[
        Path, typer.Option("-o", "--output", metavar="T", help="Directory of the recording on these nodes.")
    ],
) -> None:
    """Compare the clocks of all nodes of a job over MPI.

    Start it on each node by srun or mpirun, before and after the job: two comparisons tell how the clocks drift.
    Without any, nodes are aligned by their CLOCK_REALTIME.
    """
    from lo2io.cluster.clocks import compare_clocks
    from lo2io.units import format_duration

    compared = compare_clocks(output)
    if compared is None:  # another rank tells it
        return
    print(compared.path)
    nr = len(compared.comparison.pings)
    doubt = f"each known to {format_duration(compared.error_ns)}" if nr > 1 else "there is nothing to compare"
    print(f"lo2io: {nr} {'clock' if nr == 1 else 'clocks'}, {doubt}", file=sys.stderr)
