"""Plain events are left out of the rules one by one: that must change no finding, whatever else is wrong."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import _otf2
import numpy as np
import pytest
from build import otf2_builder as build

from lo2io.otf2.read import events
from lo2io.otf2.read.tables import Places
from lo2io.verify import verify
from lo2io.verify.events import EventRules
from lo2io.verify.operations import Ids

if TYPE_CHECKING:
    from pathlib import Path

THREADS = 4
HANDLES = range(3, 11)
"""Of threads: those that are created and destroyed; every process has all."""
OPEN = range(11, 15)
"""Open since before the trace."""
TYPE = _otf2.TYPE_UINT64


class Story:
    """A trace of some threads in two processes that mostly do right, by a seed."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)  # noqa: S311 -- a story, no secret
        self._wrong = self._random.choice((0, 0.01, 0.2))
        self._ident = 1_000
        self._pending: dict[int, list[tuple[int, int]]] = {}
        self.trace = build.correct()
        self._define()
        time = build.START + 1_000
        for _ in range(400):
            time += self._random.choice((0, 0, 0, 1, 5))
            self._act(20 + self._random.randrange(THREADS), time)

    def _define(self) -> None:
        trace, handle = self.trace, _otf2.IO_HANDLE_FLAG_NONE
        for thread in range(THREADS):
            trace.definitions["String", 100 + thread] = (f"thread {thread}",)
            group = thread % 2
            trace.definitions["Location", 20 + thread] = (100 + thread, _otf2.LOCATION_TYPE_CPU_THREAD, group)
            trace.events[20 + thread] = []
        for ref in (*HANDLES, *OPEN):
            flags = _otf2.IO_HANDLE_FLAG_PRE_CREATED if ref in OPEN else handle
            flags = flags | _otf2.IO_HANDLE_FLAG_ALL_PROXY if ref == OPEN[-1] else flags
            trace.definitions["IoHandle", ref] = (build.S[""], 0, 0, flags, build.NONE32, build.NONE32)
            if ref in OPEN:
                state = ref, _otf2.IO_ACCESS_MODE_READ_WRITE, build.NO_FLAGS
                trace.more.append(("IoPreCreatedHandleState", state))

    def _errs(self) -> bool:
        return self._random.random() < self._wrong

    def _handle(self) -> int:
        return self._random.choice((*HANDLES, *OPEN, *OPEN))

    def _next_ident(self) -> int:
        if not self._errs():
            self._ident += 1
        return self._ident

    def _put(self, location: int, *event: Any) -> None:
        if self._errs() and self._random.random() < 0.3:
            event = (*event, {self._random.choice((0, 0, 9)): (self._random.choice((TYPE, _otf2.TYPE_UINT8)), 7)})
        self.trace.events[location].append(event)

    def _act(self, location: int, time: int) -> None:
        acts = (self._call, self._call, self._call, self._queue, self._end, self._create, self._destroy, self._other)
        self._random.choice(acts)(location, time)

    def _call(self, location: int, time: int) -> None:
        handle, ident, region = self._handle(), self._next_ident(), self._random.randrange(2)
        size = self._random.choice((512, 512, 900)) if self._errs() else 512
        other = location if not self._errs() else 20 + self._random.randrange(THREADS)
        mode = build.FLUSH if self._errs() else build.READ
        self._put(location, "Enter", time, region)
        self._put(location, *build.begin(time, handle, ident, mode=mode))
        if not self._errs():
            self._put(other, *build.complete(time, handle, ident, size))
        self._put(location, "Leave", time, region if not self._errs() else 1 - region)

    def _queue(self, location: int, time: int) -> None:
        handle, ident = self._handle(), self._next_ident()
        self._put(location, *build.begin(time, handle, ident, flags=build.NON_BLOCKING))
        if not self._errs():
            self._put(location, "IoOperationIssued", time, handle, ident)
        self._pending.setdefault(location, []).append((handle, ident))

    def _end(self, location: int, time: int) -> None:
        pending = self._pending.get(location, [])
        if pending:
            handle, ident = pending.pop(self._random.randrange(len(pending)))
            if self._random.random() < 0.3:
                self._put(location, "IoOperationTest", time, handle, ident)
            if self._random.random() < 0.8:
                self._put(location, *build.complete(time, handle, ident))
            else:
                self._put(location, "IoOperationCancelled", time, handle, ident)

    def _create(self, location: int, time: int) -> None:
        handle = self._random.choice(HANDLES)
        if self._random.random() < 0.3:
            self._put(location, "IoDuplicateHandle", time, self._handle(), handle, build.NO_FLAGS)
        else:
            self._put(location, *build.created(time, handle))
        for _ in range(self._random.randrange(3)):
            self._call_on(location, time, handle)

    def _call_on(self, location: int, time: int, handle: int) -> None:
        ident = self._next_ident()
        self._put(location, *build.begin(time, handle, ident))
        self._put(location, *build.complete(time, handle, ident))

    def _destroy(self, location: int, time: int) -> None:
        self._put(location, "IoDestroyHandle", time, self._random.choice(HANDLES))

    def _other(self, location: int, time: int) -> None:
        self._put(location, "IoSeek", time, self._handle(), -1, _otf2.IO_SEEK_FROM_END, 0)


@pytest.mark.parametrize("seed", range(12))
def test_findings_do_not_depend_on_how_events_are_looked_at(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One by one, without plain events, and in small blocks that each leave out as much as possible."""
    trace = Story(seed).trace
    path = trace.write(tmp_path / "T")
    expected = build.verify_one_by_one(path)
    assert verify(path) == expected
    monkeypatch.setattr(events, "BLOCK_EVENTS", 24)
    monkeypatch.setattr(events, "MOST_OPEN", 1)
    assert verify(path) == expected


def test_events_of_ordinary_calls_are_plain(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The bulk of every trace: only a file's first use, its opening and its closing are checked."""
    trace = build.correct()
    time = build.START + 1_000
    trace.definitions["IoHandle", 3] = trace.definitions["IoHandle", build.READ_FD]
    trace.events[0].append(build.created(time, 3))
    for ident in range(100, 200):
        operation = build.begin(time, 3, ident), build.complete(time, 3, ident)
        trace.events[0] += [("Enter", time, 0), *operation, ("Leave", time, 0)]
    trace.events[0].append(("IoDestroyHandle", time, 3))
    looked: list[int] = []
    look = EventRules._look
    monkeypatch.setattr(EventRules, "_look", lambda self, row, **how: (looked.append(row[0]), look(self, row, **how)))
    verdict = verify(trace.write(tmp_path / "T"))
    assert not verdict.broken
    assert verdict.counts.operations == 105
    assert len(looked) < 30


def test_ids_are_a_set() -> None:
    """Added one by one or in columns, dense or far apart; where all of a range are there it takes next to nothing."""
    numbers = random.Random(7)  # noqa: S311 -- no secret
    ids, expected = Ids(), set[int]()
    for _ in range(200):
        start = numbers.choice((0, 2**40)) + numbers.randrange(5_000)
        fresh = sorted({start + numbers.randrange(600) for _ in range(numbers.randrange(900))} - expected)
        ids.add(np.array(fresh, np.uint64))
        expected.update(fresh)
        one = numbers.randrange(6_000)
        assert ids.is_new(one) == (one not in expected)
        expected.add(one)
    probes = np.array([*range(6_500), *range(2**40, 2**40 + 6_500)], np.uint64)
    assert ids.holds(probes).tolist() == [int(probe) in expected for probe in probes]


def test_dense_ids_take_no_room() -> None:
    """Ten million of a counter: full pages are ranges."""
    ids = Ids()
    for start in range(0, 10_000_000, 500_000):
        ids.add(np.arange(start, start + 500_000, dtype=np.uint64))
    assert 9_999_999 in ids
    assert 10_000_000 not in ids
    assert len(ids._pages) < 10


@pytest.mark.parametrize("refs", [[], [0], [3, 1, 2], [5, 10**9, 2**32 - 2, 2**63]])
def test_places_of_references(refs: list[int]) -> None:
    """Existing ones have their rank, all others -1, however far apart they lie."""
    probes = [0, 1, 2, 3, 4, 5, 6, 10**9, 2**32 - 2, 2**32 - 1]
    expected = [sorted(refs).index(probe) if probe in refs else -1 for probe in probes]
    for dtype in (np.uint32, np.uint64):
        assert Places(refs).of(np.array(probes, dtype)).tolist() == expected
