"""The writer keeps by number which definitions the events of a location name, and which task began a request."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from build.otf2_batches import BatchMaker
from build.otf2_written import attributes, label
from lo2io.native._lib import lib

if TYPE_CHECKING:
    from pathlib import Path

Write = Any
T = 2_000_000
NR_FILES = 20
"""More than the eight definitions that a location remembers."""


def test_files_by_turns_are_all_listed_once(tmp_path: Path, maker: BatchMaker, write: Write) -> None:
    """Also those whose numbers take the same place among the remembered ones: every eighth."""
    maker.task(0)
    for number in range(NR_FILES):
        maker.file(number, b"/data/%d" % number, mode=0o100644, device=0x800, inode=12 + number, mount=31)
        maker.row("handles", handle=number, file=number, fd=number, origin=3)
    turns = [number for first in range(8) for number in range(first, NR_FILES, 8)] * 2
    for turn, number in enumerate([*turns, 0, 8, 0, 8]):
        maker.call("read", T + 100 * turn, T + 100 * turn + 50, handle=number, bytes_result=1)
    found = write(maker.make())
    used = np.fromfile(tmp_path / "traces" / "used.ids", "<u8")
    assert (used[1:] > used[:-1]).all()
    listed = [int(row) & 0xFFFFFFFF for row in used if int(row) >> 32 & 7 == lib.LO2_USED_HANDLE]
    named = {event.handle for event in found.of("thread fio 100") if hasattr(event, "handle")}
    assert len(listed) == len(set(listed)) == len(named) == NR_FILES


def test_tasks_of_any_number_begin_requests(write: Write) -> None:
    """In any order of their numbers. A task that began none, between them or beyond them, has none."""
    maker = BatchMaker()
    tasks = (0, 400, 3, 90)
    for place, task in enumerate(tasks):
        maker.request(101 + place, T + 10, T + 11, T + 300, task=task, tid=100 + task)
    maker.sort_requests()
    for task in (*tasks, 200, 1_000):
        maker.task(task)
        maker.call("fsync", T, T + 50, task=task)
    found = write(maker.make())
    told = {}
    for task in (*tasks, 200, 1_000):
        (leave,) = (event for event in found.of(f"thread fio {100 + task}") if label(event).startswith("-"))
        told[task] = attributes(leave).get("First block request")
    assert told == {0: 101, 400: 102, 3: 103, 90: 104, 200: None, 1_000: None}
