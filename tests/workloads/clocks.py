"""A rank that compares its clock with rank 0's, twice, but with a wrong clock: ``clocks.py OFFSET_NS DRIFT_PPM``.

Rank 0 prints the two comparisons, each a line of JSON. Its own clock is right.
"""

from __future__ import annotations

import json
import sys
import time
from dataclasses import asdict

from lo2io.cluster.mpi import finish, world
from lo2io.cluster.pinging import compare, read_raw

BETWEEN_S = 1.0


def main() -> None:
    """Compare, wait, compare."""
    comm = world("compare clocks", None)
    offset_ns, ppm = (int(word) for word in sys.argv[1:])
    is_first = comm.Get_rank() == 0

    def read() -> int:
        now = read_raw()
        return now if is_first else now + now * ppm // 1_000_000 + offset_ns

    for number in range(2):
        if number:
            time.sleep(BETWEEN_S)
        found = compare(comm, f"host {comm.Get_rank()}", f"clock {comm.Get_rank()}", read)
        if found is not None:
            print(json.dumps(asdict(found)), flush=True)
    finish()


if __name__ == "__main__":
    main()
