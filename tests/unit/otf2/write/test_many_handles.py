"""Definitions of more handles than memory should hold: their rows go through a file, and the trace is the same.

A process of its own writes each large trace, from one batch that is written again and again, later each time.
"""

from __future__ import annotations

import itertools
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from build.otf2_batches import CALLS, META, OPCODES, BatchMaker, complete
from build.otf2_written import whole_text
from build.scalereader import peak_bytes
from build.small_machine import spool_of_a_small_machine

from lo2io.convert.convert import convert
from lo2io.errors import TraceError
from lo2io.model import Totals, TraceEnd
from lo2io.otf2.write import definitions, handles, spill, used
from lo2io.otf2.write.spill import Spill
from lo2io.otf2.write.used import UsedIds
from lo2io.otf2.write.writer import Otf2Writer
from lo2io.verify import exit_code, verify

if TYPE_CHECKING:
    from lo2io.model import Batch

OPENS = 1_000
"""Of a batch. Each open makes a handle of its own."""
FEW, MANY = 900, 2_700
"""Batches. Both make more handles than are in memory at a time."""
BYTES_A_HANDLE = 20
"""What a handle may take in memory: the native loop knows its reference and its state."""
SPAN = 1_000_000
FIRST = 2_000_000


@pytest.fixture
def tiny_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of each kind, three rows in memory, and definitions of two references at a time."""
    for module in (spill, used):
        monkeypatch.setattr(module, "MOST_ROWS", 3)
    monkeypatch.setattr(used, "_PIECE", 2)
    for module in (handles, definitions):
        monkeypatch.setattr(module, "MOST_REFS", 2)


def without_strings(trace: Path) -> list[str]:
    """The records as otf2-print has them, in any order, without definitions of strings and their numbers."""
    lines = re.sub(r'(?<=") <\d+>', "", whole_text(trace)).splitlines()
    return sorted(line for line in lines if not line.startswith("STRING "))


@pytest.mark.parametrize("nr", [0, 2, 3, 10])
def test_all_rows_come_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, nr: int) -> None:
    """In their order, twice; nothing is left of the file."""
    monkeypatch.setattr(spill, "MOST_ROWS", 3)
    rows = Spill(tmp_path, "<u4")
    for first in range(0, nr, 2):
        rows.append(np.arange(first, min(first + 2, nr), dtype=np.uint32))
    assert len(rows) == nr
    for _ in range(2):
        pieces = list(rows)
        assert all(len(piece) for piece in pieces)
        assert [number for piece in pieces for number in piece.tolist()] == list(range(nr))
    rows.close()
    assert not list(tmp_path.iterdir())


@pytest.mark.usefixtures("tiny_pieces")
@pytest.mark.parametrize(("mode", "block_records"), [("process", None), ("system", "both"), ("system", "begin-end")])
def test_pieces_make_the_same_trace(
    tmp_path: Path, mode: str, block_records: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same records, but strings are numbered otherwise, and defined later; and the same list of used ids."""
    spool = spool_of_a_small_machine(tmp_path / "spool", mode)
    convert(spool, tmp_path / "pieces", block_records=block_records)
    monkeypatch.undo()
    convert(spool, tmp_path / "whole", block_records=block_records)
    pieces, whole = (tmp_path / name for name in ("pieces", "whole"))
    assert without_strings(pieces) == without_strings(whole)
    assert exit_code(verify(pieces)) == 0
    ids = (pieces / "traces" / "used.ids").read_bytes()
    assert ids == (whole / "traces" / "used.ids").read_bytes()
    assert len(ids) > 3 * 8, "no file was needed"


@pytest.mark.usefixtures("tiny_pieces")
def test_pieces_have_the_handles_of_rings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A ring's handle on a file is a copy of the program's, which another piece may define, or another batch."""
    for name in ("pieces", "whole"):
        (tmp_path / name).mkdir()
        with Otf2Writer(tmp_path / name, META, CALLS, OPCODES) as writer:
            for batch in ring_on_files():
                writer.write(batch)
            writer.close(TraceEnd(FIRST, FIRST + SPAN, complete(), Totals()))
        monkeypatch.undo()
    found = without_strings(tmp_path / "pieces")
    assert found == without_strings(tmp_path / "whole")
    assert sum(line.startswith("IO_HANDLE ") and "io_uring" in line for line in found) == 6


def ring_on_files() -> list[Batch]:
    """Five files, each read by a call and through a ring, which also has NOPs. The handles' rows come later."""
    maker = BatchMaker()
    maker.task(0)
    maker.row("rings", ring=0, fd=9, sq_entries=8, cq_entries=16, flags=0)
    for number in range(5):
        at = FIRST + 1_000 * number
        maker.file(number, b"/data/%d" % number, mode=0o100644, device=0x800, inode=12 + number, mount=31)
        maker.call("read", at, at + 9, handle=number, bytes_result=1)
        for kind in range(3):
            maker.ring_event(901 + 2 * number, kind, at + 20 + kind, handle=number)
            maker.ring_event(801 + 2 * number, kind, at + 30 + kind)
    later = BatchMaker(first_id=2_001)
    for number in (3, 0, 4, 1, 2):
        later.row("handles", handle=number, fd=3 + number, file=number, origin=3, open_flags=os.O_RDWR)
    return [maker.make(), later.make()]


@pytest.mark.parametrize("held", [[], [4, 9]])
def test_runs_of_ids_are_merged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, held: list[int]) -> None:
    """Each id comes once, in rising order, however the runs overlap and wherever their pieces end."""
    runs = [[1, 5, 9, 13], [2, 5, 6, 20], [0, 3, 21], [30]]
    monkeypatch.setattr(used, "_PIECE", 2)
    monkeypatch.setattr(spill, "MOST_ROWS", 1)
    ids = UsedIds(None, tmp_path)
    for run in runs:
        ids._runs.append(range(len(ids._spill), len(ids._spill) + len(run)))
        ids._spill.append(np.array(run, "<u8"))
    monkeypatch.setattr(ids, "_held", lambda: np.array(held, np.uint64))
    assert [number for piece in ids for number in piece.tolist()] == sorted({*held, *itertools.chain(*runs)})
    ids.close()


@pytest.mark.usefixtures("tiny_pieces")
def test_a_disk_without_room_for_the_rows_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a TraceError; the trace is removed."""

    def refuse(**_: object) -> None:
        raise OSError(28, "No space left on device")

    spool = spool_of_a_small_machine(tmp_path / "spool", "process")
    monkeypatch.setattr(spill.tempfile, "TemporaryFile", refuse)
    with pytest.raises(TraceError, match="No space left on device"):
        convert(spool, tmp_path / "T")
    assert not (tmp_path / "T").exists()


def write(directory: Path, rounds: int) -> None:
    """Write a trace of so many batches."""
    maker = BatchMaker()
    maker.task(0)
    for number in range(OPENS):
        at = FIRST + 900 * number
        maker.call("openat", at, at + 10, handle=number, fd=3, flags=os.O_RDONLY, result=3)
        maker.row("handles", handle=number, fd=3, open_flags=os.O_RDONLY)
    batch = maker.make()
    with Otf2Writer(directory, META, CALLS) as writer:
        for _ in range(rounds):
            writer.write(batch)
            for name in ("begin_time_ns", "end_time_ns"):
                batch.operations[name] += SPAN
            batch.operations["id"] += 2 * OPENS
            batch.native.first_operation += OPENS
            for table in (batch.operations, batch.handles):
                table["handle"] += OPENS
        writer.close(TraceEnd(FIRST, FIRST + rounds * SPAN, complete(), Totals()))


def peak_of(directory: Path, rounds: int) -> int:
    """The peak of memory of a process that writes so many batches, in bytes."""
    directory.mkdir()
    done = subprocess.run(
        [sys.executable, __file__, str(directory), str(rounds)],
        stdout=subprocess.PIPE,
        check=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
    )
    return int(json.loads(done.stdout))


def test_memory_hardly_grows_with_the_number_of_handles(tmp_path: Path) -> None:
    """900,000 handles against 2,700,000."""
    few, many = (peak_of(tmp_path / str(rounds), rounds) for rounds in (FEW, MANY))
    assert (many - few) / ((MANY - FEW) * OPENS) <= BYTES_A_HANDLE


if __name__ == "__main__":
    write(Path(sys.argv[1]), int(sys.argv[2]))
    print(json.dumps(peak_bytes()))
