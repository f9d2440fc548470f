"""The summary's numbers about rings, compared with sums made by hand."""

from __future__ import annotations

import errno
import tracemalloc
from collections import Counter, defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from build.ringtables import (
    ASYNC,
    BOUNDED,
    CANCELLED,
    COMPLETED,
    CONTINUED,
    DRAINED,
    FILES,
    HANDLES,
    HASHED,
    INFERRED_PATH,
    INLINE,
    REFUSED,
    RINGS,
    THREADS,
    UNBOUNDED,
    WORKER,
    ring_trace,
    text_of,
)
from build.tablemaker import FSYNC, NOP, OPCODES, READV, WRITEV, Row, make_batch, meta, write_trace
from hypothesis import given, settings
from hypothesis import strategies as st

from lo2io.errnos import error_name
from lo2io.model import UNKNOWN_I64, UNKNOWN_U32, CallKind, Totals
from lo2io.reports.rings.summary import ALWAYS_ASYNC, MAX_RINGS, WITHOUT_FILE, setup_flags
from lo2io.reports.rings.tally import NR_SIZES, RingSlots, _size_bin, bin_range
from lo2io.reports.summary.summary import summarize

if TYPE_CHECKING:
    from pathlib import Path

    from lo2io.reports.rings.summary import RingRow

STATUSES = ("completed", "in flight", "cancelled", "refused", "torn down", "silent", "unseen")
PATHS = ("unknown", "inline", "device", "poll", "worker", "refused", "cancelled")
NAMES = {**{opcode.number: opcode.name for opcode in OPCODES}, 40: "opcode 40", 255: "unknown"}
MOVES = {READV: (1, 0), WRITEV: (0, 1)}


def times() -> st.SearchStrategy[int]:
    """A time, or none."""
    return st.one_of(st.just(UNKNOWN_I64), st.integers(0, 10**6))


def request_rows() -> st.SearchStrategy[list[Row]]:
    """Requests of any kind and fate, consistent or not."""
    row = st.fixed_dictionaries(
        {
            "ring": st.sampled_from([0, 0, 1, 9, UNKNOWN_U32]),
            "task": st.sampled_from([0, 2, UNKNOWN_U32]),
            "opcode": st.sampled_from(list(NAMES)),
            "sqe_flags": st.sampled_from([0, ASYNC, 1]),
            "status": st.integers(0, 5),
            "path": st.integers(0, 6),
            "traits": st.sampled_from([0, DRAINED, HASHED | BOUNDED, BOUNDED, CONTINUED | UNBOUNDED]),
            "inferred": st.sampled_from([0, INFERRED_PATH, 1]),
            "handle": st.sampled_from([0, 1, 2, UNKNOWN_U32]),
            "submit_time_ns": times(),
            "complete_time_ns": times(),
            "work_begin_time_ns": times(),
            "work_end_time_ns": times(),
            "queued_ns": times(),
            "executing_ns": times(),
            "waiting_ns": times(),
            "culprit": st.sampled_from([0, 0, 1, 2, 77]),
            "bytes_result": st.one_of(st.just(UNKNOWN_I64), st.integers(0, 2**31)),
            "error": st.sampled_from([0, 0, 11, 125]),
            "nr_polls": st.integers(0, 2),
            "nr_punts": st.integers(0, 1),
        }
    )
    return st.lists(row, max_size=25).map(lambda rows: [{**row, "id": 1 + index} for index, row in enumerate(rows)])


def moved(row: Row) -> tuple[int, int]:
    """Bytes read and written."""
    read, written = MOVES.get(row["opcode"], (0, 0))
    size = max(0, row["bytes_result"])
    return read * size, written * size


def is_on_worker(row: Row) -> bool:
    """A worker executed it."""
    return row["path"] == WORKER or row["nr_punts"] > 0


def lasted(row: Row) -> int | None:
    """From submission to completion, of one that completed."""
    begin, end = row["submit_time_ns"], row["complete_time_ns"]
    return max(0, end - begin) if row["status"] == COMPLETED and UNKNOWN_I64 not in (begin, end) else None


@settings(max_examples=30, deadline=None)
@given(rows=request_rows(), cut=st.integers(0, 25))
def test_sums_agree_with_plain_python(rows: list[Row], cut: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Each ring by status, path and opcode; requests of unknown rings are in the last row."""
    parts = [make_batch(ring_requests=rows[:cut]), make_batch(ring_requests=rows[cut:])]
    summary = summarize(ring_trace(tmp_path_factory.mktemp("t"), *parts))
    assert summary.rings is not None
    listed: dict[int | None, list[Row]] = defaultdict(list)
    for row in rows:
        listed[row["ring"] if row["ring"] in {0, 1} else None].append(row)
    found: dict[int | None, RingRow] = dict(zip([0, 1, 2, None], summary.rings.rings, strict=False))
    assert (None in found) == bool(listed[None])
    for number, ring in found.items():
        check_ring(ring, listed[number])
    total = [moved(row) for row in rows]
    assert (summary.rings.bytes_read, summary.rings.bytes_written) == tuple(map(sum, zip((0, 0), *total, strict=True)))
    assert summary.rings.written == len(rows)
    assert summary.rings.requests == 1005
    assert None not in found or found[None].process == "no ring that is known"
    by_pid = Counter(THREADS[row["task"]]["pid"] if row["task"] < 3 else None for row in rows)
    assert {row.pid: row.ring_requests for row in summary.processes} == by_pid
    assert sum(row.ring_bytes for row in summary.processes) == sum(map(sum, total))


def check_ring(ring: RingRow, rows: list[Row]) -> None:
    """A ring's figures are the sums of its rows."""
    assert (ring.written, ring.errors) == (len(rows), sum(row["error"] != 0 for row in rows))
    assert ring.statuses == {STATUSES[status]: nr for status, nr in Counter(row["status"] for row in rows).items()}
    assert {row.path: row.requests for row in ring.paths} == Counter(PATHS[row["path"]] for row in rows)
    for path in ring.paths:
        same = [row for row in rows if PATHS[row["path"]] == path.path]
        assert path.inferred == sum(row["inferred"] & INFERRED_PATH != 0 for row in same)
        ended = [row for row in same if lasted(row) is not None]
        assert (path.latency.nr, path.latency.total_ns) == (len(ended), sum(lasted(row) or 0 for row in ended))
        for phase in ("queued", "executing", "waiting"):
            known = [row[f"{phase}_ns"] for row in ended if row[f"{phase}_ns"] != UNKNOWN_I64]
            latency = getattr(path, phase)
            assert (latency.nr, latency.total_ns) == (len(known), sum(known))
    kinds = Counter((NAMES[row["opcode"]], PATHS[row["path"]]) for row in rows)
    assert {(row.opcode, row.path): row.requests for row in ring.opcodes} == kinds
    sizes: Counter[tuple[str, str]] = Counter()
    for row in rows:
        sizes[NAMES[row["opcode"]], PATHS[row["path"]]] += max(0, row["bytes_result"])
    assert {(row.opcode, row.path): row.bytes for row in ring.opcodes} == sizes
    assert sum(row.requests for row in ring.punted) == sum(is_on_worker(row) for row in rows)
    bits = [row["traits"] for row in rows if is_on_worker(row)]
    kinds_of = [sum(traits & kind != 0 for traits in bits) for kind in (BOUNDED, UNBOUNDED, HASHED)]
    workers = ring.workers
    assert [workers.bounded, workers.unbounded, workers.hashed] == kinds_of
    assert workers.bounded + workers.unbounded + workers.untold == len(bits)
    ends = Counter(
        (STATUSES[row["status"]], NAMES[row["opcode"]], error_name(row["error"]))
        for row in rows
        if row["status"] in {CANCELLED, REFUSED}
    )
    assert {(row.status, row.opcode, row.error): row.requests for row in ring.ends} == ends


@settings(max_examples=25, deadline=None)
@given(rows=request_rows())
def test_files_agree_with_plain_python(rows: list[Row], tmp_path_factory: pytest.TempPathFactory) -> None:
    """Bytes by file, and workers' time with it, in all and ring by ring."""
    summary = summarize(ring_trace(tmp_path_factory.mktemp("t"), make_batch(ring_requests=rows)))
    assert summary.rings is not None
    name = {0: "/data/in", 1: "/data/out", 2: 200}
    expected: dict[Any, Counter[str]] = defaultdict(Counter)
    by_ring: dict[int, dict[Any, Counter[str]]] = defaultdict(lambda: defaultdict(Counter))
    for row in rows:
        read, written = moved(row)
        times = (row["work_begin_time_ns"], row["work_end_time_ns"])
        worked = 0 if UNKNOWN_I64 in times else max(0, times[1] - times[0])
        file = name.get(row["handle"])
        facts = {
            "requests": 1,
            "errors": int(row["error"] != 0),
            "bytes_read": read,
            "bytes_written": written,
            "on_workers": int(is_on_worker(row)),
            "worker_ns": worked,
        }
        expected[file].update(facts)
        if is_on_worker(row):
            by_ring[row["ring"]][file].update({"requests": 1, "worker_ns": worked})
    assert {
        row.path or row.pid: +Counter({key: getattr(row, key) for key in expected[row.path or row.pid]})
        for row in summary.rings.files
    } == {file: +sums for file, sums in expected.items()}
    for number in (0, 1):
        found = {
            row.path or row.pid: Counter({"requests": row.requests, "worker_ns": row.worker_ns})
            for row in summary.rings.rings[number].worker_files
        }
        assert found == by_ring[number]
        spent = [row.worker_ns for row in summary.rings.rings[number].worker_files]
        assert spent == sorted(spent, reverse=True)


@pytest.mark.parametrize(
    ("row", "words", "inferred"),
    [
        ({"traits": CONTINUED | HASHED}, "after another on its worker", False),
        ({"traits": DRAINED, "sqe_flags": ASYNC}, "drained", True),
        ({"opcode": FSYNC, "sqe_flags": ASYNC}, "never tries this opcode inline", True),
        ({"opcode": READV, "sqe_flags": ASYNC}, "ASYNC, set by the program or the kernel", False),
        ({"opcode": FSYNC}, "never tries this opcode inline", True),
        ({"opcode": READV, "nr_polls": 1}, "after its file was ready", True),
        ({"opcode": WRITEV, "traits": HASHED}, "one at a time for each file", True),
        ({"opcode": READV}, "its file cannot be polled", True),
        ({"opcode": NOP}, "the kernel does not tell", False),
    ],
)
def test_why_workers_execute(tmp_path: Path, row: Row, words: str, inferred: bool) -> None:
    """Each reason, and whether it is known."""
    rows = [{"path": WORKER, "nr_punts": 1, **row}, {"path": INLINE, "sqe_flags": ASYNC}]
    summary = summarize(ring_trace(tmp_path, make_batch(ring_requests=rows)))
    assert summary.rings is not None
    (punted,) = summary.rings.rings[0].punted
    assert words in punted.reason
    assert (punted.inferred, punted.requests) == (inferred, 1)


def test_copies_belong_to_both_files(tmp_path: Path) -> None:
    """A splice is a request of the file that it reads; its written bytes are the other's."""
    splice = replace(OPCODES[READV], number=4, name="SPLICE", kind=CallKind.COPY)
    rows = [{"opcode": 4, "handle": 0, "handle2": 1, "bytes_result": 10, "path": WORKER}]
    from lo2io.trace.reader import open_trace  # noqa: PLC0415
    from lo2io.trace.writer import TableWriter  # noqa: PLC0415

    trace = ring_trace(tmp_path / "for its completeness")
    with TableWriter(tmp_path / "T", meta(), (), (*OPCODES, splice)) as writer:
        writer.write(make_batch(tasks=THREADS, handles=HANDLES, files=FILES, rings=RINGS, ring_requests=rows))
        writer.close(Totals(), trace.completeness, 0, 1)
    summary = summarize(open_trace(tmp_path / "T"))
    assert summary.rings is not None
    assert {row.path: (row.requests, row.bytes_read, row.bytes_written) for row in summary.rings.files} == {
        "/data/in": (1, 10, 0),
        "/data/out": (0, 0, 10),
    }


@given(st.integers(0, 2**32))
def test_sizes_lie_in_their_bin(size: int) -> None:
    """Bins follow each other without a gap, and each size lies in its own."""
    number = int(_size_bin(np.array([size]))[0])
    least, most = bin_range(number)
    assert least <= size <= most
    assert 0 <= number < NR_SIZES
    assert number == 0 or bin_range(number - 1)[1] == least - 1


def test_batches(tmp_path: Path) -> None:
    """Calls that submit by how much, those that failed or only wait apart; libaio collects by calls, too."""
    rows = [
        *({"ring": 0, "asked": 8, "submitted": 8} for _ in range(3)),
        {"ring": 0, "asked": 8, "submitted": 5, "sleep_time_ns": 7},
        {"ring": 0, "asked": 1, "submitted": 1},
        {"ring": 0, "asked": 4, "submitted": 0},
        {"ring": 0, "asked": 4, "submitted": -1},
        {"ring": 0, "asked": 0, "submitted": 0, "wanted": 1, "sleep_time_ns": 9},
        {"ring": 2, "asked": 3, "submitted": 3},
        {"ring": 2, "asked": 16, "wanted": 1, "collected": 2},
        {"ring": 2, "asked": 16, "wanted": 0, "collected": 0},
    ]
    summary = summarize(ring_trace(tmp_path, make_batch(batches=rows)))
    assert summary.rings is not None
    first, _, aio = summary.rings.rings
    assert (first.batches.calls, first.batches.submitting, first.batches.submitted, first.batches.slept) == (
        8,
        6,
        30,
        2,
    )
    assert [(row.least, row.most, row.calls) for row in first.batches.sizes] == [(0, 0, 1), (1, 1, 1), (5, 8, 4)]
    assert first.batches.collecting == 0
    assert aio.kind == "libaio"
    assert (aio.batches.submitting, aio.batches.submitted) == (1, 3)
    assert (aio.batches.collecting, aio.batches.collected) == (2, 2)
    assert [(row.least, row.calls) for row in aio.batches.collected_sizes] == [(0, 1), (2, 1)]


def test_what_the_table_of_rings_says(tmp_path: Path) -> None:
    """Processes, sizes, flags, exact totals; unknown is None."""
    summary = summarize(ring_trace(tmp_path))
    assert summary.rings is not None
    first, second, aio = summary.rings.rings
    assert (first.pid, first.process, first.fd, first.context) == (100, "db", 5, "0xffff888100000000")
    assert (first.sq_entries, first.cq_entries) == (64, 128)
    assert first.flags == ("SINGLE_ISSUER", "DEFER_TASKRUN")
    assert (first.requests, first.completions, first.most_in_flight, first.punts) == (1000, 990, 32, 3)
    assert (first.workers.born, first.written) == (4, 0)
    assert (second.fd, second.sq_entries, second.flags, second.overflows) == (None, None, None, 2)
    assert (aio.kind, aio.flags, aio.sq_entries, aio.poller) == ("libaio", None, 16, False)
    assert setup_flags(1 << 1 | 1 << 31) == ("SQPOLL", "bit 31")


def test_workers(tmp_path: Path) -> None:
    """How many at a time, how many executions, how long; those of unknown length count without one."""
    works = [
        {"id": 1, "ring": 0, "task": 1, "begin_time_ns": 10, "end_time_ns": 110},
        {"id": 2, "ring": 0, "task": 1, "begin_time_ns": 110, "end_time_ns": 150, "inferred": 4},
        {"id": 3, "ring": 0, "task": 1, "begin_time_ns": UNKNOWN_I64, "end_time_ns": 200, "inferred": 8},
        {"id": 4, "ring": 1, "task": 1, "begin_time_ns": 5, "end_time_ns": 6},
    ]
    states = [{"ring": 0, "time_ns": time, "workers": workers} for time, workers in ((1, 1), (2, 3), (3, 2))]
    summary = summarize(ring_trace(tmp_path, make_batch(ring_works=works, ring_states=states)))
    assert summary.rings is not None
    workers = summary.rings.rings[0].workers
    assert (workers.most, workers.executions, workers.busy_ns, workers.inferred) == (3, 3, 140, 2)
    assert summary.rings.rings[1].workers.busy_ns == 1


def test_broken_links_name_their_culprit(tmp_path: Path) -> None:
    """By its opcode, wherever its row stands; a culprit without a row is unknown."""
    rows = [
        {"id": 2, "status": CANCELLED, "culprit": 1, "error": errno.ECANCELED},
        {"id": 3, "status": CANCELLED, "culprit": 1, "error": errno.ECANCELED},
        {"id": 1, "opcode": READV, "error": errno.EBADF},
        {"id": 5, "status": CANCELLED, "culprit": 4, "error": errno.ECANCELED},
        {"id": 4, "opcode": READV, "error": errno.EBADF},
        {"id": 7, "status": CANCELLED, "culprit": 6, "error": errno.ECANCELED},
        {"id": 6, "opcode": WRITEV, "bytes_result": 3},
        {"id": 9, "status": CANCELLED, "culprit": 8, "error": errno.ECANCELED},
    ]
    summary = summarize(ring_trace(tmp_path, make_batch(ring_requests=rows)))
    assert summary.rings is not None
    found = [(row.opcode, row.error, row.culprits, row.ended) for row in summary.rings.rings[0].broken_links]
    assert found == [("READV", "EBADF", 2, 3), ("WRITEV", None, 1, 1), (None, None, 1, 1)]


def test_many_rings_are_summed_up(tmp_path: Path) -> None:
    """The busiest are listed, the rest is one row."""
    rings = [
        {"ring": number, "process": 7, "pid": 100, "nr_requests": 10 + number % 7, "most_in_flight": number}
        for number in range(MAX_RINGS + 5)
    ]
    rows = [{"id": number + 1, "ring": number} for number in range(MAX_RINGS + 5)]
    summary = summarize(ring_trace(tmp_path, make_batch(ring_requests=rows), rings=rings))
    assert summary.rings is not None
    assert len(summary.rings.rings) == MAX_RINGS + 1
    weights = [ring.requests for ring in summary.rings.rings[:-1]]
    assert weights == sorted(weights, reverse=True)
    last = summary.rings.rings[-1]
    assert (last.kind, last.process, last.written) == (None, "5 other rings", 5)
    assert summary.rings.requests == sum(ring["nr_requests"] for ring in rings)
    assert sum(ring.written for ring in summary.rings.rings) == len(rows)


def test_traces_without_rings(tmp_path: Path) -> None:
    """Neither a section nor a word, also for traces from before there were such tables."""
    trace = write_trace(tmp_path, [make_batch(tasks=THREADS)])
    assert summarize(trace).rings is None
    text = text_of(summarize(trace))
    assert "ring" not in text.replace(str(tmp_path), "").lower()
    del trace.metadata["tables"]["rings"]
    assert summarize(trace).rings is None


def test_slots_of_unknown_rings(tmp_path: Path) -> None:
    """Requests of no ring of the table are in the last row."""
    slots = RingSlots(ring_trace(tmp_path), 2)
    assert slots.slots(np.array([0, 1, 2, 3, UNKNOWN_U32], np.uint32)).tolist() == [0, 1, 2, 2, 2]


def test_opcodes_that_are_never_tried_inline_exist() -> None:
    """A name that no opcode has would never match."""
    from lo2io.catalog.catalog import load_catalog  # noqa: PLC0415

    assert {opcode.name for opcode in load_catalog().opcodes} >= ALWAYS_ASYNC | WITHOUT_FILE


def test_memory_does_not_grow_with_requests(tmp_path: Path) -> None:
    """Four times the requests take no more memory to sum up; what each adds is a place in an array that is there."""
    row = {
        "id": 1,
        "ring": 0,
        "opcode": READV,
        "path": INLINE,
        "submit_time_ns": 5,
        "complete_time_ns": 99,
        "handle": 0,
    }
    peaks = []
    for times in (2, 8):
        batch = make_batch(ring_requests=[row])
        batch.ring_requests = {name: np.repeat(array, 65_536) for name, array in batch.ring_requests.items()}
        trace = ring_trace(tmp_path / str(times), *([batch] * times))
        summarize(trace)  # imports count before the tables
        tracemalloc.start()
        summary = summarize(trace)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        assert summary.rings is not None
        assert summary.rings.written == 65_536 * times
    assert peaks[1] < peaks[0] + 1_000_000
