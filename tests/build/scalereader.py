"""Reads a spool in a process of its own, which then has its own peak of memory: ``scalereader.py SPOOL [STEP N]``.

Prints JSON: the engine's findings, and ``peak_bytes``. Numbers that must hold for every row are checked here, so that
the rows need not leave the process.

>>> from build.scalewriter import ScaleSpool
>>> times = np.arange(1_000, 9_000, 10)
>>> spool = ScaleSpool(folder / "spool", 1).call(times, times + 5, 0, 10, "read", mixed(10, times), fd=3)
>>> found = read_apart(spool.write())
>>> found["calls"], found["mispaired"]
({'read': 800}, 0)
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np

from lo2io.catalog.catalog import load_catalog
from lo2io.convert import engine as pairing
from lo2io.model import UNKNOWN_I64
from lo2io.spool.reader import SpoolReader

SMALL_BUFFER = 16 << 10
"""Streams' buffers that a small spool fills, too. With larger ones, the peak would grow with them, not with a leak."""


def mixed(tid: Any, begin: Any) -> Any:
    """Results of calls in a synthetic spool: each number fits one entry only."""
    return (begin * 31 + tid * 7) % 1_000_003


def peak_bytes() -> int:
    """This program's largest resident size, without its parent's before the exec (unlike getrusage)."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return 1024 * int(re.search(r"^VmHWM:\s+(\d+) kB", status, re.MULTILINE)[1])  # type: ignore[index]


class Tally:
    """Counts over all batches."""

    def __init__(self, calls: list[str], step: int, count: int) -> None:
        self.calls, self.step, self.count = calls, step, count
        self.last_end = 0
        self.answer: dict[str, Any] = {"calls": {}, "rows": {}, "disordered": 0, "mispaired": 0, "cgroups": 0}
        self.answer |= {"named": 0, "misnamed": 0, "completed": 0}
        self.numbers = np.full(1 << 20, -1, np.int32)

    def take(self, batch: Any) -> None:
        """One batch."""
        for table in ("operations", "handles", "files", "tasks", "requests", "losses"):
            rows = self.answer["rows"]
            rows[table] = rows.get(table, 0) + len(next(iter(getattr(batch, table).values())))
        self._operations(batch.operations)
        self.answer["completed"] += int((batch.requests["complete_time_ns"] != UNKNOWN_I64).sum())
        if self.count:
            self._names(batch)
        tasks = batch.tasks
        for offset, length in zip(tasks["cgroup_offset"].tolist(), tasks["cgroup_length"].tolist(), strict=True):
            self.answer["cgroups"] += batch.text[offset : offset + length].startswith(b"/cg/")

    def _names(self, batch: Any) -> None:
        """The number in a file's path names its open: ``(time / step) mod count``."""
        files, handles = batch.files, batch.handles
        for file, offset, length in zip(
            *(files[c].tolist() for c in ("file", "path_offset", "path_length")), strict=True
        ):
            self.numbers[file] = int(batch.text[offset + length - 7 : offset + length])
        named = handles["name_source"] == 1
        expected = handles["open_time_ns"][named] // self.step % self.count
        self.answer["named"] += int(named.sum())
        self.answer["misnamed"] += int((self.numbers[handles["file"][named]] != expected).sum())

    def _operations(self, rows: Any) -> None:
        ended = rows["end_time_ns"][rows["status"] == 0]
        if len(ended):
            whole = np.concatenate([[self.last_end], ended])
            self.answer["disordered"] += int((np.diff(whole) < 0).sum())
            self.last_end = int(ended[-1])
        for code, count in zip(*np.unique(rows["call"], return_counts=True), strict=True):
            name = self.calls[code]
            self.answer["calls"][name] = self.answer["calls"].get(name, 0) + int(count)
        reads = (rows["call"] == self.calls.index("read")) & (rows["status"] == 0)
        expected = mixed(rows["tid"][reads].astype(np.int64), rows["begin_time_ns"][reads])
        self.answer["mispaired"] += int((rows["result"][reads] != expected).sum())


def answer(spool: Path, step: int = 1, count: int = 0) -> dict[str, Any]:
    """All findings of the engine."""
    pairing.BUFFER_BYTES = SMALL_BUFFER
    catalog = load_catalog()
    engine = pairing.Engine(SpoolReader(spool), catalog, batch_rows=1 << 12)
    tally = Tally([call.name for call in catalog.calls], step, count)
    for batch in engine.batches():
        tally.take(batch)
    totals = engine.totals
    names = (
        "nr_late",
        "nr_reordered",
        "nr_orphan_exits",
        "nr_orphan_completions",
        "nr_in_flight_calls",
        "nr_lost",
        "nr_undecoded",
    )
    more = {name: getattr(totals, name) for name in (*names, "truncated_bytes", "nr_names_verified", "nr_samples")}
    return tally.answer | more | {"nr_names_refused": totals.nr_names_refused, "peak_bytes": peak_bytes()}


def read_apart(spool: Path, *more: int) -> dict[str, Any]:
    """:func:`answer`, from a process of its own."""
    done = subprocess.run([sys.executable, __file__, str(spool), *map(str, more)], stdout=subprocess.PIPE, check=True)
    result: dict[str, Any] = json.loads(done.stdout)
    return result


if __name__ == "__main__":
    print(json.dumps(answer(Path(sys.argv[1]), *map(int, sys.argv[2:]))))
