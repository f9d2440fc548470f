"""What the report says of the page cache, worked out by hand."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

from build.tablemaker import OPENAT, READ, READV, make_batch, meta, write_trace
from rich.console import Console

from lo2io.model import UNKNOWN_I64
from lo2io.reports.summary.summary import summarize
from lo2io.reports.text.cache import render_cache
from lo2io.trace.columns import CACHE_VERDICT, FILL_REASON

if TYPE_CHECKING:
    from pathlib import Path

    from lo2io.reports.summary.cache import CacheSummary

PAGE = 4096
NO_READ, UNKNOWN, NONE, MEMORY, HIT, WAIT, MISS = range(len(CACHE_VERDICT))


def _read(number: int, task: int, handle: int, cache: int, *, missed: int = 0, wait: int = 0) -> dict[str, int]:
    found = {"cache_missed_pages": missed, "cache_ahead_pages": 0, "cache_wait_ns": wait} if cache > UNKNOWN else {}
    times = {"begin_time_ns": number * 10, "end_time_ns": number * 10 + 5}
    who = {"task": task, "handle": handle}
    return {"id": number, "call": READ, "bytes_result": 3 * PAGE, "cache": cache, **who, **times, **found}


def _cached(folder: Path) -> CacheSummary:
    """Two processes read two files: one sends a ring's request, and one uses half of what it read ahead."""
    fill = {"page_bytes": PAGE, "file": 0, "task": 0}
    ahead, write = FILL_REASON.index("ahead"), FILL_REASON.index("write")
    batch = make_batch(
        tasks=[
            {"task": 0, "process": 0, "pid": 100, "tid": 100, "comm": b"cat"},
            {"task": 1, "process": 1, "pid": 200, "tid": 200, "comm": b"dd"},
        ],
        files=[{"file": 0, "path": b"/cold"}, {"file": 1, "path": b"/warm"}],
        handles=[{"handle": 0, "file": 0, "process": 0}, {"handle": 1, "file": 1, "process": 1}],
        operations=[
            _read(1, 0, 0, MISS, missed=3, wait=700),
            _read(2, 0, 0, HIT),
            _read(3, 0, 0, WAIT, wait=300),
            _read(4, 1, 1, HIT),
            _read(5, 1, 1, UNKNOWN),
            _read(6, 1, 1, NONE, wait=5000),
            _read(7, 1, 1, MEMORY),
            {"id": 8, "task": 1, "call": OPENAT, "handle": 1, "cache": NO_READ},
        ],
        ring_requests=[
            {
                "id": 9,
                "task": 1,
                "handle": 1,
                "opcode": READV,
                "bytes_result": PAGE,
                "cache": HIT,
                "cache_missed_pages": 0,
            }
        ],
        fills=[
            {**fill, "cause": 1, "pages": 8, "used_pages": 4, "why": ahead, "first_use": 2},
            {**fill, "cause": 1, "pages": 16, "why": ahead},
            {**fill, "cause": 1, "pages": 2, "why": write},
        ],
    )
    found = summarize(write_trace(folder, [batch], spool=meta(layers=("cache",)))).cache
    assert found is not None
    return found


def test_a_read_of_unknown_size_and_wait_adds_neither(tmp_path: Path) -> None:
    """It counts as a read: what it found in the page cache is known."""
    rows = [_read(1, 0, 0, HIT), {**_read(2, 0, 0, HIT, wait=UNKNOWN_I64), "bytes_result": UNKNOWN_I64}]
    handles, files = [{"handle": 0, "file": 0, "process": 0}], [{"file": 0, "path": b"/warm"}]
    tasks = [{"task": 0, "process": 0, "pid": 100, "tid": 100, "comm": b"cat"}]
    batch = make_batch(tasks=tasks, files=files, handles=handles, operations=rows)
    cache = summarize(write_trace(tmp_path, [batch], spool=meta(layers=("cache",)))).cache
    assert cache is not None
    assert (cache.total.hits, cache.total.hit_bytes, cache.total.wait_ns) == (2, 3 * PAGE, 0)


def test_sums(tmp_path: Path) -> None:
    """Each read counts once, by its process and by its file; a ring's request counts as a call does."""
    cache = _cached(tmp_path)
    total = cache.total
    assert (total.hits, total.waits, total.misses, total.memory, total.uncached, total.unknown) == (3, 1, 1, 1, 1, 1)
    assert (total.reads, total.hit_rate) == (5, 3 / 5)
    assert (total.hit_bytes, total.buffered_bytes) == (7 * PAGE, 13 * PAGE)
    assert (total.missed_bytes, total.wait_ns) == (3 * PAGE, 1000)
    assert [(row.kind, row.path, row.hits, row.waits, row.misses) for row in cache.files] == [
        ("named", "/cold", 1, 1, 1),
        ("named", "/warm", 2, 0, 0),
    ]
    assert [(row.pid, row.process, row.hits, row.missed_bytes) for row in cache.processes] == [
        (100, "cat", 1, 3 * PAGE),
        (200, "dd", 2, 0),
    ]


def test_read_ahead_for_nothing(tmp_path: Path) -> None:
    """Pages count whose use was followed; half of them were never used."""
    (cold, _) = _cached(tmp_path).files
    assert (cold.ahead_bytes, cold.unused_bytes) == (8 * PAGE, 4 * PAGE)


def test_page(tmp_path: Path) -> None:
    """Two tables, and a line about other reads."""
    console = Console(file=io.StringIO(), width=100)
    render_cache(_cached(tmp_path), console)
    lines = console.file.getvalue().splitlines()  # type: ignore[attr-defined]
    (cold,) = [line.split() for line in lines if line.startswith("/cold")]
    assert cold == [
        "/cold",
        "3",
        "33.3",
        "%",
        "33.3",
        "%",
        "33.3",
        "%",
        "12",
        "KiB",
        "1",
        "µs",
        "32",
        "KiB",
        "16",
        "KiB",
    ]
    assert lines[-1] == "other reads: 1 of files in memory, 1 past the page cache, 1 of which it is not known"


def test_without_the_layer(tmp_path: Path) -> None:
    """Nothing is said of what was not recorded."""
    batch = make_batch(operations=[_read(1, 0, 0, UNKNOWN)])
    assert summarize(write_trace(tmp_path, [batch])).cache is None
