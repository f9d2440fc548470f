"""Events of rings that no kernel sends: whatever comes, rows agree with each other, and nothing grows without bounds.

Run the tests on a library built with ``-fsanitize=address,undefined`` to see more than results.
"""

from __future__ import annotations

import random
import struct
import time
from typing import TYPE_CHECKING

import pytest
from build.ringrig import FD, PID, A, Rig

from lo2io.catalog.catalog import load_catalog

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

ODD = (0, 1, 2, 3, 5, 7, 8, 64, 900, 1 << 15, 1 << 18, 2**31, 2**32 - 1, 2**63, 2**64 - 1)
CALLS = {
    "io_uring_setup": ("entries",),
    "io_uring_enter": ("fd", "to_submit", "min_complete", "flags"),
    "io_uring_register": ("fd", "opcode"),
    "io_setup": ("nr_events",),
    "io_submit": ("ctx_id", "nr"),
    "io_getevents": ("ctx_id", "min_nr", "nr"),
    "io_destroy": ("ctx",),
    "openat": ("flags",),
    "close": ("fd",),
    "dup": ("fildes",),
}
BATCHES = {"io_uring_enter", "io_submit", "io_getevents"}
NAMES = (b"iou-wrk-10", b"iou-wrk-20", b"iou-wrk-", b"iou-sqp-10", b"x")
TIDS = (PID, 11, 12, 20, 21)
MARK = 0x1234567890ABCDEF


class Noise:
    """A random history."""

    def __init__(self, rig: Rig, seed: int) -> None:
        self.rig = rig
        self.random = random.Random(seed)  # noqa: S311 - noise, no secret
        self.events = [layout for name, layout in rig.spool.layouts.items() if name.startswith("io_uring:")]
        self.inside: dict[int, str] = {}

    def value(self, name: str, bits: int, *, signed: bool) -> int:
        """Often one that means something."""
        usual = {"ctx": (A, A + 1), "ctx_id": (A, A + 1), "fd": (FD, FD + 1), "req": (1, 2, 3), "link": (1, 2, 3)}
        drawn = self.random.choice(usual.get(name, ODD) if self.random.random() < 0.9 else ODD) % (1 << bits)
        return drawn - (1 << bits) if signed and drawn >> (bits - 1) else drawn

    def ring_event(self, tid: int) -> None:
        """Any fields."""
        layout = self.random.choice(self.events)
        fields = {
            decl.split()[-1]: self.value(decl.split()[-1], 8 * size, signed=bool(signed))
            for decl, _, size, signed in layout.fields
            if "[" not in decl
        }
        self.rig.spool.event(self.rig.tick(), 0, tid, layout.name, **fields)

    def call(self, tid: int) -> None:
        """An entry or an exit, seldom those that belong together."""
        if tid in self.inside and self.random.random() < 0.7:
            self.rig.leave(self.inside.pop(tid), self.random.choice((0, 1, 3, FD, -9, -22)), tid)
        else:
            name = self.inside[tid] = self.random.choice(list(CALLS))
            self.rig.enter(name, tid, **{arg: self.value(arg, 64, signed=False) for arg in CALLS[name]})

    def thread(self, tid: int) -> None:
        """A birth, a name, an end."""
        steps: tuple[Callable[[], object], ...] = (
            lambda: self.rig.fork(self.random.choice((PID, 20)), tid, self.random.choice(TIDS)),
            lambda: self.rig.name(PID, tid, self.random.choice(NAMES), is_exec=self.random.random() < 0.1),
            lambda: self.rig.ends(PID, tid),
            lambda: self.rig.spool.fact_fd(self.rig.now, tid, FD, b"/x"),
            lambda: self.rig.spool.fact_ring(self.rig.now, tid, FD, cq_entries=self.random.choice((0, 8))),
        )
        self.random.choice(steps)()

    def make(self, size: int) -> Rig:
        """All of it."""
        for _ in range(size):
            step = self.random.choices((self.ring_event, self.call, self.thread), (6, 3, 1))[0]
            step(self.random.choice(TIDS))
        return self.rig.run()


@pytest.mark.parametrize("mode", ["system", "process"])
@pytest.mark.parametrize("seed", range(15))
def test_rows_agree_whatever_comes(tmp_path: Path, seed: int, mode: str) -> None:
    """Each batch has its operation; states lie in time and are intervals; no row names a ring that has none."""
    rig = Rig(tmp_path, mode=mode, batch_rows=8 if seed % 2 else 512)
    rig.spool.fact_task(1_000, PID, PID, flags=1)
    Noise(rig, seed).make(600)
    calls = load_catalog().calls
    operations = [row["id"] for row in rig.rows["operations"] if calls[row["call"]].name in BATCHES]
    assert rig.of("batches", "id") == operations
    rings = rig.of("rings", "ring")
    assert len(set(rings)) == len(rings)
    named = {row["ring"] for table in ("ring_states", "ring_requests", "batches") for row in rig.rows[table]}
    assert named - {None} <= set(rings)
    for ring in rings:
        states = [row for row in rig.rows["ring_states"] if row["ring"] == ring]
        assert [row["time_ns"] for row in states] == sorted(row["time_ns"] for row in states)
        assert all(row["cq_most"] is None or row["cq_least"] <= row["cq_most"] for row in states)
        assert all(row["punted"] <= row["in_flight"] for row in states)


def many(rig: Rig, values: Sequence[tuple[int, int]]) -> None:
    """Submissions of these rings with these user_data. One is made, and the others are its bytes with other numbers."""
    submitted = rig.submit(MARK, A, user_data=MARK + 1)
    record = rig.spool.rings[0].pop()
    places = [record.index(struct.pack("<Q", mark)) for mark in (submitted, A, MARK, MARK + 1)]
    for index, (ctx, user_data) in enumerate(values):
        made = bytearray(record)
        for place, value in zip(places, (rig.tick(), ctx, index + 1, user_data), strict=True):
            struct.pack_into("<Q", made, place, value)
        rig.spool.raw(0, bytes(made))


def test_rings_without_an_end_do_not_fill_the_memory(tmp_path: Path) -> None:
    """65,536 are kept; of more the first are given up, alive as they are."""
    rig = Rig(tmp_path, cpus=1)
    many(rig, [(A + (index << 12), 1) for index in range((1 << 16) + 9)])
    for index in (9, 1 << 16, 0, 8):
        rig.event("complete", ctx=A + (index << 12), req=0, user_data=1)
    rig.run()
    assert [row["ring"] for row in rig.rows["rings"] if row["nr_messages"]] == [9, 1 << 16]
    assert len(rig.rows["rings"]) == (1 << 16) + 9
    assert not any(rig.of("rings", "end_time_ns"))


def test_chosen_user_data_take_no_more_time_than_others(tmp_path: Path) -> None:
    """With a known hash, numbers that differ only in their upper bits would all wait in one bucket's chain."""
    took = []
    for shift in (0, 48):
        rig = Rig(tmp_path / str(shift), cpus=1)
        many(rig, [(A, number << shift) for number in range(1 << 16)])
        before = time.process_time()
        rig.run()
        took.append(time.process_time() - before)
        assert len(rig.rows["ring_requests"]) == 1 << 16
    assert took[1] < 4 * took[0]
