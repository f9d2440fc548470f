"""Each rule: one trace that provokes it, with the rows behind it, and the nearest ones that must not."""

from __future__ import annotations

import errno
import os
import pathlib
from typing import TYPE_CHECKING, Any

import pytest
from build import tablemaker
from build.tablemaker import OPENAT, READ, READV, WRITE, Row, make_batch

from lo2io.catalog.wait_reasons import load_reasons
from lo2io.model import UNKNOWN_I64, RingPath
from lo2io.reports.findings import RULES
from lo2io.reports.findings.finding import MAX_PER_RULE
from lo2io.reports.findings.remedies import REMEDIES
from lo2io.reports.summary.summary import summarize
from lo2io.trace.reader import Trace

if TYPE_CHECKING:
    from pathlib import Path

    from lo2io.reports.findings.finding import Finding

KIB, MIB = 1 << 10, 1 << 20
EXTRA = tuple(map(tablemaker.known_call, ("fsync", "newfstatat", "fcntl", "pselect6", "pwritev2")))
SYNC, STAT, FCNTL, POLL, PWRITEV2 = range(len(tablemaker.CALLS), len(tablemaker.CALLS) + len(EXTRA))
SDA = 8 << 20
F_SETLK, F_SETLKW, F_GETFL = 6, 7, 3
THREADS = [{"task": 0, "process": 7, "pid": 100, "tid": 100, "comm": b"app"}]
FILES = [{"file": 0, "path": b"/data/f", "mode": 0o100644}, {"file": 1, "path": b"pipe:[1]", "mode": 0o010600}]
HANDLES = [
    {"handle": 0, "process": 7, "file": 0, "fd": 3, "open_flags": os.O_RDWR},
    {"handle": 1, "process": 7, "file": 0, "fd": 4, "open_flags": os.O_RDWR | 0o40000},
    {"handle": 2, "process": 7, "file": 1, "fd": 5, "open_flags": 0},
    {"handle": 3, "process": 7, "fd": 6},
    {"handle": 4, "process": 7, "file": 0, "fd": 7, "open_flags": os.O_RDWR | os.O_DSYNC},
]


def access(call: int, offset: int, size: int, **more: Any) -> Row:
    """A read or write of so many bytes there, all of which were moved unless ``bytes_result`` differs."""
    return {"call": call, "handle": 0, "offset_bytes": offset, "bytes_request": size, "bytes_result": size, **more}


@pytest.fixture
def found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Writes operations and other tables as a trace, and gives what stands out by rule."""
    monkeypatch.setattr(tablemaker, "CALLS", tablemaker.CALLS + EXTRA)
    numbers = iter(range(100))

    def find(operations: list[Row], span: int = 10**9, **tables: list[Row]) -> dict[str, Finding]:
        folder = tmp_path / str(next(numbers))
        folder.mkdir()
        rows = [
            {"id": index + 1, "task": 0, "begin_time_ns": 1000 * index, "end_time_ns": 1000 * index + 500, **row}
            for index, row in enumerate(operations)
        ]
        batch = make_batch(tasks=THREADS, handles=HANDLES, files=FILES, operations=rows, **tables)
        summary = summarize(tablemaker.write_trace(folder, [batch], span=(0, span)))
        assert len({finding.rule for finding in summary.findings}) == len(summary.findings)
        return {finding.rule: finding for finding in summary.findings}

    return find


def test_nothing_stands_out_of_nothing(found: Any) -> None:
    """An empty trace, and a few ordinary calls."""
    assert found([]) == {}
    assert found([{"call": OPENAT, "handle": 0}, *(access(READ, index * MIB, MIB) for index in range(20))]) == {}


def test_many_small_reads(found: Any) -> None:
    """1,000 reads below 4 KiB, near each other.

    Not 999, not of 4 KiB, not of a pipe, not at one place again and again, not of what has no name, which may be a
    pipe, and not where a tenth of the reads are larger.
    """
    rows = [access(READ, 512 * index, 512) for index in range(1000)]
    finding = found(rows)["many-small-reads"]
    assert (finding.subject, finding.rows, finding.ids) == ("/data/f", 1000, tuple(range(1, 11)))
    assert finding.evidence == {"small_reads": 1000, "reads": 1000, "sequential": 999, "time_ns": 500_000}
    assert found(rows[1:]) == {}
    assert found([{**row, "handle": 2} for row in rows]) == {}
    assert found([{**row, "handle": 3} for row in rows]) == {}
    assert found([access(READ, 24, 16)] * 1000) == {}  # SQLite's look whether somebody has written
    assert found([access(READ, 64 * KIB * index, 512) for index in range(1000)]) != {}
    assert found([access(READ, MIB * index, 512) for index in range(1000)]) == {}
    assert found([access(READ, 4096 * index, 4096) for index in range(1000)]) == {}
    assert found(rows + [access(READ, 512_000 + index * 4096, 4096) for index in range(112)]) == {}


def test_random_reads_of_whole_file(found: Any) -> None:
    """Blocks in an order without neighbours.

    Not one after the other, not a part of each, not of a small file, and not again and again, as a database's hot
    pages.
    """
    offsets = [(index * 101 % 256) * 8 * KIB * 64 for index in range(256)]
    time = {"begin_time_ns": 0, "end_time_ns": 40_000}
    rows = [access(READ, offset, 512 * KIB, **time) for offset in offsets]
    finding = found(rows)["random-reads-of-whole-file"]
    assert finding.evidence == {
        "random_reads": 255, "reads": 255, "bytes": 128 * MIB, "extent_bytes": 128 * MIB,
    }  # fmt: skip
    assert (finding.rows, finding.cost_ns) == (256, 10_240_000)
    assert found(rows, span=1_024_000_001) == {}
    assert found([{**row, "end_time_ns": 39_000} for row in rows], span=10**8) == {}
    assert found([access(READ, offset, 512 * KIB, **time) for offset in sorted(offsets)]) == {}
    assert found([access(READ, offset, 128 * KIB, **time) for offset in offsets]) == {}
    assert found([access(READ, offset // 256, 2 * KIB, **time) for offset in offsets]) == {}
    twice = [access(READ, offset, 512 * KIB, **time) for offset in offsets * 2]
    assert list(found(twice)) == ["random-reads-of-whole-file"]
    assert found([*twice, access(READ, 0, 512 * KIB, **time)]) == {}


def test_sync_per_write(found: Any) -> None:
    """100 writes, each with its sync, or with four writes each as a commit has.

    Not 99 syncs, not one for five, and not where syncs cost next to nothing.
    """
    pair = [access(WRITE, 0, 8192), {"call": SYNC, "handle": 0}]
    finding = found(pair * 100)["sync-per-write"]
    assert finding.evidence == {"syncs": 100, "synced_writes": 0, "writes": 100, "sync_ns": 50_000}
    assert (finding.rows, finding.ids[:3]) == (100, (2, 4, 6))
    assert found(pair * 99) == {}
    assert found([*[pair[0]] * 400, *[pair[1]] * 100])["sync-per-write"].evidence["writes"] == 400
    assert found([*[pair[0]] * 401, *[pair[1]] * 100]) == {}
    dear = [{**pair[0], "begin_time_ns": 0, "end_time_ns": 4500}, pair[1]]
    assert list(found(dear * 100)) == ["sync-per-write"]
    assert found([{**dear[0], "end_time_ns": 4501}, pair[1]] * 100) == {}


def test_misaligned_direct(found: Any) -> None:
    """With O_DIRECT at an odd place, one that is refused or ten; not at an even one, and not through the page cache."""
    odd = access(READ, 100, 4096, handle=1, error=errno.EINVAL, bytes_result=tablemaker.UNKNOWN_I64)
    finding = found([access(READ, 0, 4096, handle=1), odd, access(WRITE, 4096, 700, handle=1)])["misaligned-direct"]
    assert (finding.evidence, finding.ids) == ({"misaligned": 2, "direct": 3, "invalid": 1}, (2, 3))
    assert found([access(READ, 512, 1024, handle=1)] * 10) == {}
    assert found([access(WRITE, 4096, 700, handle=1)] * 10)["misaligned-direct"].rows == 10
    assert found([access(WRITE, 4096, 700, handle=1)] * 9) == {}
    assert found([{**odd, "handle": 0}]) == {}


def test_mixed_direct(found: Any) -> None:
    """Ten changes between the two kinds of access to one file; not nine, and not a file written first and used then."""
    rows = [access(READ, index * MIB, MIB, handle=index % 2) for index in range(11)]
    finding = found(rows)["mixed-direct"]
    assert (finding.evidence, finding.ids[:2]) == ({"direct": 5, "buffered": 6, "turns": 10}, (2, 4))
    assert found(rows[:-1]) == {}
    written = [access(WRITE, index * MIB, MIB) for index in range(64)]
    assert found([*written, *({**row, "call": READ, "handle": 1} for row in written)]) == {}


def test_turns_are_counted_across_batches(tmp_path: Path) -> None:
    """A change between the last access of one batch and the first of the next is one."""
    batches = [
        make_batch(operations=[{"id": index + 1, "task": 0, **access(READ, 0, MIB, handle=index % 2)}])
        for index in range(11)
    ]
    first = make_batch(tasks=THREADS, handles=HANDLES, files=FILES)
    (finding,) = summarize(tablemaker.write_trace(tmp_path, [first, *batches])).findings
    assert (finding.rule, finding.evidence["turns"]) == ("mixed-direct", 10)


def requests(number: int, **more: Any) -> list[Row]:
    """Block requests of the thread, one during each of its calls."""
    return [
        {
            "id": 10**6 + index, "device": SDA, "task": 0, "issue_time_ns": 1000 * index + 100,
            "complete_time_ns": 1000 * index + 300, "bytes_result": MIB, **more,
        }
        for index in range(number)
    ]  # fmt: skip


def test_uncached_rereads(found: Any) -> None:
    """32 MiB twice from the device; not once, not the second time from the cache, and not past it."""
    rows = [access(READ, index % 32 * MIB, MIB) for index in range(64)]
    finding = found(rows, requests=requests(64))["uncached-rereads"]
    assert finding.evidence == {"device_bytes": 64 * MIB, "extent_bytes": 32 * MIB, "again_bytes": 32 * MIB}
    assert (finding.rows, len(finding.ids)) == (64, 10)
    assert found(rows[:32], requests=requests(32)) == {}
    assert found(rows, requests=requests(32)) == {}
    assert found([{**row, "handle": 1} for row in rows], requests=requests(64)) == {}


def test_lock_storm(found: Any) -> None:
    """1,000 locks that take 100 ms, or 100 refused ones.

    Not fewer, not other commands of fcntl, not where they cost nothing, and not where other calls take ten times as
    long.
    """
    lock = {"call": FCNTL, "handle": 0, "flags": F_SETLK, "begin_time_ns": 0, "end_time_ns": 100_000}
    assert found([lock] * 1000)["lock-storm"].evidence == {"locks": 1000, "refused": 0, "lock_ns": 100_000_000}
    assert found([lock] * 999) == {}
    assert found([{**lock, "end_time_ns": 99_999}] * 1000) == {}
    refused = {**lock, "error": errno.EAGAIN}
    assert found([lock] * 50 + [refused] * 100)["lock-storm"].evidence["refused"] == 100
    assert found([refused] * 99) == {}
    assert found([{**lock, "flags": F_GETFL}] * 1000) == {}
    long_write = access(WRITE, 0, 8192, begin_time_ns=0, end_time_ns=900_000_000)
    assert list(found([lock] * 1000 + [long_write])) == ["lock-storm"]
    assert found([lock] * 1000 + [{**long_write, "end_time_ns": 900_000_001}]) == {}


def test_file_lock_wait(found: Any) -> None:
    """100 ms in a lock, a tenth of the recording; not less, not if other calls on the file take ten times as long."""
    lock = {"call": FCNTL, "handle": 0, "flags": F_SETLKW, "begin_time_ns": 0, "end_time_ns": 100_000_000}
    finding = found([lock])["file-lock-wait"]
    assert (finding.subject, finding.evidence) == ("/data/f", {"locks": 1, "lock_ns": 100_000_000})
    assert (finding.rows, finding.cost_ns, finding.share) == (1, 100_000_000, 0.1)
    assert found([{**lock, "end_time_ns": 99_999_999}]) == {}
    assert found([lock], span=10**9 + 10) == {}
    assert found([{**lock, "flags": F_GETFL}]) == {}
    long_write = access(WRITE, 0, 8192, begin_time_ns=0, end_time_ns=900_000_001)
    assert found([lock, long_write]) == {}
    many = {**lock, "end_time_ns": 100_000}
    assert list(found([many] * 1000)) == ["lock-storm"]


def test_short_writes(found: Any) -> None:
    """Ten of them to a file; not nine, not to a pipe, not to what may be one, and not short reads."""
    short = access(WRITE, 0, 8192, bytes_result=4096)
    finding = found([access(WRITE, 0, 8192), *[short] * 10])["short-writes"]
    assert (finding.evidence, finding.ids) == ({"short_writes": 10, "writes": 11}, tuple(range(2, 12)))
    assert found([short] * 9) == {}
    assert found([{**short, "handle": 2}] * 10) == {}
    assert found([{**short, "handle": 3}] * 10) == {}
    assert found([{**short, "call": READ}] * 10) == {}


def test_sync_bound(found: Any) -> None:
    """100 syncs that take half of the time, and 100 ms, whatever else waits; not 99, not less time, not less of it."""
    # of another file than the written one
    sync = {"call": SYNC, "handle": 2, "begin_time_ns": 0, "end_time_ns": 1_000_000}
    syncs = [sync] * 100
    write = access(WRITE, 0, 8192, handle=1, begin_time_ns=0, end_time_ns=100_000_000)
    lock = {"call": FCNTL, "handle": 0, "flags": F_SETLK, "begin_time_ns": 0, "end_time_ns": 10**9}
    finding = found([*syncs, write, lock])["sync-bound"]
    assert (finding.subject, finding.rows, finding.ids) == ("app (100)", 100, tuple(range(1, 11)))
    assert finding.evidence == {"syncs": 100, "writes": 1, "sync_ns": 100_000_000, "time_ns": 200_000_000}
    assert found([*syncs[1:], write]) == {}
    assert found([*syncs, {**write, "end_time_ns": 100_000_001}]) == {}
    assert found([*syncs[1:], {**sync, "end_time_ns": 999_999}]) == {}


def test_metadata_storm_of_slow_calls(found: Any) -> None:
    """1,000 looks at files that take a second, since a disk or a server is asked.

    Not 999, not less time, not less than 100 us each, not where as many calls move data or take longer, and not where
    they move much.
    """
    look = {"call": STAT, "begin_time_ns": 0, "end_time_ns": 1_000_000}
    looks = [look] * 1000
    finding = found(looks)["metadata-storm"]
    assert finding.subject == "app (100)"
    assert finding.evidence == {"metadata_calls": 1000, "calls": 1000, "time_ns": 10**9, "moved_bytes": 0}
    assert found([*looks[2:], {**look, "end_time_ns": 2_000_000}]) == {}
    assert found([*looks[1:], {**look, "end_time_ns": 999_999}]) == {}
    assert found([{**look, "end_time_ns": 99_999}] * 10_001) == {}
    assert found(looks + [access(READ, 4096 * index, 4096) for index in range(1001)]) == {}
    assert found([*looks, *(access(READ, index * MIB, MIB) for index in range(4))]) == {}
    assert found([*looks, {"call": WRITE, "begin_time_ns": 0, "end_time_ns": 10**9}]) != {}
    assert found([*looks, {"call": WRITE, "begin_time_ns": 0, "end_time_ns": 10**9 + 1}]) == {}


def test_metadata_storm_of_the_same_files(found: Any) -> None:
    """Looks at the same files again and again, ten times each, that take 100 ms in all.

    Not nine times, as a build looks at its headers; not files of one name in many directories, as find does; not where
    it is not known which files they are, and not where it takes less time.
    """
    looks = [{"call": STAT, "begin_time_ns": 0, "end_time_ns": 100_000}] * 1000

    def paths(number: int, directories: int = 1) -> list[Row]:
        return [
            {"operation": index + 1, "source": 3, "path": b"%d" % (index % number),
             "directory": b"/%d" % (index % directories)}
            for index in range(1000)
        ]  # fmt: skip

    assert found(looks, paths=paths(100))["metadata-storm"].evidence["time_ns"] == 10**8
    assert found(looks, paths=paths(101)) == {}
    assert found(looks, paths=paths(10, 101)) == {}
    assert found(looks, paths=paths(20)[:500]) != {}
    assert found(looks, paths=paths(20)[:499]) == {}
    assert found([{**looks[0], "end_time_ns": 99_999}, *looks[1:]], paths=paths(100)) == {}
    assert list(found([{**row, "call": OPENAT, "handle": 0} for row in looks])) == ["metadata-storm"]


def test_missing_files(found: Any) -> None:
    """1,000 looks for files that are not there, and the paths, most wanted first.

    Not 999, not one in three, and not where they take less than 10 ms or less than a hundredth of the recording.
    """
    miss = {"call": STAT, "error": errno.ENOENT, "begin_time_ns": 0, "end_time_ns": 10_000}
    names = [b"/etc/ld.so.preload"] * 120 + [b"/no/%d" % (index % 3 > 0) for index in range(880)]
    paths = [{"operation": index + 1, "place": 0, "source": 3, "path": name} for index, name in enumerate(names)]
    finding = found([miss] * 1000, paths=paths)["missing-files"]
    assert (finding.evidence, finding.rows) == ({"missing": 1000, "looks": 1000}, 1000)
    assert (finding.cost_ns, finding.share) == (10_000_000, 0.01)
    assert found([miss] * 1000, span=10**9 + 100) == {}
    assert found([*[miss] * 999, {**miss, "end_time_ns": 9_999}], span=10**6) == {}
    assert list(finding.paths.items()) == [("/no/1", 586), ("/no/0", 294), ("/etc/ld.so.preload", 120)]
    assert found([miss] * 999) == {}
    assert found([miss] * 1000 + [{"call": STAT}] * 1001) == {}
    assert "missing-files" not in found([{**miss, "call": READ, "handle": 0}] * 1000)


def test_interrupted_calls(found: Any) -> None:
    """100 reads that ended with EINTR; not 99, not one in eleven, and not polls, where loops wait for their signals."""
    broken = {"call": READ, "handle": 2, "error": errno.EINTR}
    finding = found([broken] * 100)["interrupted-calls"]
    assert finding.evidence == {"interrupted": 100, "calls": 100}
    assert found([broken] * 99) == {}
    restarted = found([{**broken, "error": 512}] * 100)["interrupted-calls"]
    assert (restarted.rows, restarted.text[-17:]) == (100, "read, ERESTARTSYS")
    assert found([broken] * 100 + [{"call": READ, "handle": 2, "bytes_result": 1}] * 1000) == {}
    assert found([{**broken, "call": POLL}] * 100) == {}


def test_interrupted_locks(found: Any) -> None:
    """Locks by fcntl are a tenth of all locks, whatever other commands of it there are."""
    lock = {"call": FCNTL, "handle": 0, "flags": F_SETLKW, "error": errno.EINTR}
    finding = found([{**lock, "flags": F_GETFL, "error": 0}] * 1000 + [lock] * 150)["interrupted-calls"]
    assert finding.text.startswith("150 of 150 lock calls")
    assert (finding.evidence["calls"], finding.rows, finding.ids) == (150, 150, tuple(range(1001, 1011)))
    assert "interrupted-calls" in found([*[{**lock, "error": 0}] * 900, *[lock] * 100])
    assert "interrupted-calls" not in found([*[{**lock, "error": 0}] * 901, *[lock] * 100])


def test_queue_saturation(found: Any) -> None:
    """Reads that wait longer than they take, many at a time; not a few, not one after the other, and not writes."""
    deep = [{**row, "insert_time_ns": max(0, row["issue_time_ns"] - 20_000)} for row in requests(200)]
    finding = found([], requests=deep)["queue-saturation"]
    assert (finding.subject, finding.table, finding.rows) == ("sda", "requests", 200)
    assert finding.ids == tuple(range(10**6, 10**6 + 10))
    assert finding.evidence["waiting"] == pytest.approx(200 * 19_000 / 199_300, rel=0.02)
    assert (finding.evidence["queue_p50_ns"], finding.evidence["device_p50_ns"]) == (20_000, 200)
    assert found([], requests=deep[:99]) == {}
    assert found([], requests=[{**row, "operation": 1} for row in deep]) == {}  # like those of a sync
    assert found([], requests=[{**row, "insert_time_ns": row["issue_time_ns"] - 100} for row in requests(200)]) == {}
    assert (
        found([], requests=[{**row, "insert_time_ns": row["issue_time_ns"] - 900} for row in requests(200)[1:]]) == {}
    )


def test_synced_writes_are_syncs(found: Any) -> None:
    """100 writes through a handle with O_SYNC or O_DSYNC, or with RWF_SYNC or RWF_DSYNC, each its own sync.

    Not with other flags, not on a pipe, and reads are no syncs.
    """
    write = access(WRITE, 0, 8192)
    finding = found([{**write, "handle": 4}] * 100)["sync-per-write"]
    assert finding.evidence == {"syncs": 100, "synced_writes": 100, "writes": 100, "sync_ns": 50_000}
    assert (finding.rows, finding.ids[:3], finding.cost_ns, finding.share) == (100, (1, 2, 3), 50_000, 5e-05)
    for flag in (2, 4, 6):
        assert found([{**write, "call": PWRITEV2, "flags": flag}] * 100)["sync-per-write"].rows == 100
    assert found([{**write, "call": PWRITEV2, "flags": 8}] * 100) == {}
    assert found([{**write, "call": READ, "handle": 4}] * 100) == {}
    assert found([{**write, "call": PWRITEV2, "handle": 2, "flags": 2}] * 100) == {}
    assert found([{**write, "handle": 4}] * 99) == {}


def test_few_dear_syncs(found: Any) -> None:
    """Twenty syncs that take 100 ms and a tenth of the recording, whatever the writes for each.

    Not nineteen, not less time, not a smaller part, and not where each makes more than 64 KiB durable.
    """
    sync = {"call": SYNC, "handle": 0, "begin_time_ns": 0, "end_time_ns": 5_000_000}
    writes = [access(WRITE, 4096 * index, 4096) for index in range(100)]
    findings = found([*writes, *[sync] * 20])
    assert list(findings) == ["sync-per-write"]
    assert findings["sync-per-write"].evidence["writes"] == 100
    assert {(finding.cost_ns, finding.share) for finding in findings.values()} == {(100_000_000, 0.1)}
    assert "100 ms in all, 10 % of the recording" in findings["sync-per-write"].words
    dear = {**sync, "end_time_ns": 10_000_000}
    assert found([*writes, *[dear] * 19]) == {}
    assert found([*writes, *[sync] * 19, {**sync, "end_time_ns": 4_999_999}]) == {}
    assert found([*writes, *[sync] * 20], span=10**9 + 1) == {}
    assert list(found([*[access(WRITE, 0, 65537)] * 20, *[sync] * 20])) == ["sync-bound"]


def test_the_more_precise_finding_is_listed(found: Any) -> None:
    """A process' syncs of one file are that file's finding. If it explains less than 90 % of them, both are listed."""
    sync = {"call": SYNC, "handle": 0, "begin_time_ns": 0, "end_time_ns": 10_000_000}
    elsewhere = {**sync, "handle": 2, "end_time_ns": 20_000_000}
    rows = [*[access(WRITE, 0, 4096)] * 100, *[sync] * 90]
    assert list(found([*rows, *[elsewhere] * 5])) == ["sync-per-write"]
    assert list(found([*rows, *[elsewhere] * 6])) == ["sync-bound", "sync-per-write"]


def test_the_dearest_finding_comes_first(found: Any) -> None:
    """Findings stand in the order of their time; those that are not about time come last."""
    small = [access(READ, 512 * index, 512) for index in range(1000)]
    sync = {"call": SYNC, "handle": 0, "begin_time_ns": 0, "end_time_ns": 10_000_000}
    short = [access(WRITE, 0, 4096, bytes_result=512)] * 20
    assert list(found([*small, *short, *[sync] * 20])) == ["sync-per-write", "many-small-reads", "short-writes"]


def test_many_small_writes(found: Any) -> None:
    """1,000 writes below 4 KiB near each other that take 10 ms and a hundredth of the recording.

    Not 999, not less time, not a smaller part, not of 4 KiB, not to a pipe, not each in another place, and not synced
    ones, which have another rule.
    """
    rows = [
        access(WRITE, 16 * index, 16, begin_time_ns=10_000 * index, end_time_ns=10_000 * index + 10_000)
        for index in range(1000)
    ]
    finding = found(rows)["many-small-writes"]
    assert (finding.subject, finding.rows, finding.ids) == ("/data/f", 1000, tuple(range(1, 11)))
    assert finding.evidence == {"small_writes": 1000, "writes": 1000, "sequential": 999, "time_ns": 10_000_000}
    assert (finding.cost_ns, finding.share) == (10_000_000, 0.01)
    assert found(rows[1:]) == {}
    assert found([*rows[:-1], {**rows[-1], "end_time_ns": rows[-1]["end_time_ns"] - 1}]) == {}
    assert found(rows, span=10**9 + 100) == {}
    assert found([{**row, "bytes_request": 4096, "bytes_result": 4096} for row in rows]) == {}
    assert found([{**row, "handle": 2} for row in rows]) == {}
    assert found([{**row, "offset_bytes": MIB * index} for index, row in enumerate(rows)]) == {}
    assert list(found([{**row, "handle": 4} for row in rows])) == ["sync-per-write"]


def waiting(number: int) -> tuple[list[Row], list[Row]]:
    """Reads that jump, one after the other, each of 1 ms with a request at a device for all of it."""
    rows = [
        {
            **access(READ, index * 7919 % 1000 * MIB, 4096),
            "begin_time_ns": 10**6 * index,
            "end_time_ns": 10**6 * (index + 1),
        }
        for index in range(number)
    ]
    at_device = [
        {**row, "issue_time_ns": 10**6 * index, "complete_time_ns": 10**6 * (index + 1)}
        for index, row in enumerate(requests(number))
    ]
    return rows, at_device


def test_one_at_a_time(found: Any) -> None:
    """100 reads that jump and that wait for a device one after the other, for 50 ms and a tenth of the recording.

    So do reads with O_DIRECT that do not jump, and writes with it. Not 99, not without the device, not sequential
    ones, not a smaller part of the recording, not of 64 KiB and more, and not two at a time.
    """
    rows, at_device = waiting(101)
    finding = found(rows, requests=at_device)["one-at-a-time"]
    assert finding.evidence == {"alone": 100, "accesses": 100, "bytes": 409_600, "time_ns": 100_000_000}
    assert (finding.rows, finding.cost_ns, finding.share) == (101, 100_000_000, 0.1)
    assert found(rows[:-1], requests=at_device) == {}
    assert found(rows) == {}
    short = [{**row, "begin_time_ns": row["end_time_ns"] - 500_000} for row in rows]
    assert list(found(short, span=10**8, requests=at_device)) == ["one-at-a-time"]
    short[-1] = {**short[-1], "begin_time_ns": short[-1]["begin_time_ns"] + 1}
    assert found(short, span=10**8, requests=at_device) == {}
    assert found(rows, span=10**9 + 1, requests=at_device) == {}
    large = [{**row, "bytes_request": 64 * KIB + 1, "bytes_result": 64 * KIB + 1} for row in rows]
    assert found(large, requests=at_device) == {}
    sequential = [{**row, "offset_bytes": 4096 * index} for index, row in enumerate(rows)]
    assert found(sequential, requests=at_device) == {}
    for call in (READ, WRITE):
        direct = [{**row, "call": call, "handle": 1} for row in sequential]
        assert list(found(direct, requests=at_device)) == ["one-at-a-time"]
    overlapping = [{**row, "begin_time_ns": max(0, row["begin_time_ns"] - 1)} for row in rows]
    assert found(overlapping, requests=at_device) == {}


RING = {"ring": 0, "process": 7, "pid": 100, "fd": 9, "sq_entries": 64, "cq_entries": 128}


def test_one_request_batches(found: Any) -> None:
    """100 calls that submit one request each; not 99, and not where the kernel submits."""
    batches = [{"id": index + 1, "ring": 0, "asked": 1, "submitted": 1} for index in range(100)]
    finding = found([], rings=[RING], batches=batches)["one-request-batches"]
    assert (finding.table, finding.rows, finding.ids) == ("batches", 100, tuple(range(1, 11)))
    assert found([], rings=[RING], batches=batches[1:]) == {}
    assert found([], rings=[RING], batches=[{**row, "asked": 2, "submitted": 2} for row in batches]) == {}
    assert found([], rings=[{**RING, "flags": 2}], batches=batches) == {}


def test_punted_requests_and_overflows(found: Any) -> None:
    """A tenth of 100 requests on workers, and one overflow; not fewer."""
    rows = [{"id": index + 1, "ring": 0, "task": 0, "opcode": READV, "path": RingPath.INLINE} for index in range(100)]
    for row in rows[:10]:
        row |= {"path": RingPath.WORKER, "nr_punts": 1}
    findings = found([], rings=[{**RING, "nr_requests": 100}], ring_requests=rows)
    assert list(findings) == ["punted-requests"]
    assert (findings["punted-requests"].rows, findings["punted-requests"].ids) == (10, tuple(range(1, 11)))
    assert found([], rings=[RING], ring_requests=rows[1:]) == {}
    rows[50]["traits"] = 8
    overflow = found([], rings=[{**RING, "nr_overflows": 1}], ring_requests=rows[20:])["completion-overflow"]
    assert (overflow.evidence, overflow.ids) == ({"overflows": 1, "cq_entries": 128}, (51,))


WORK = {"path": RingPath.WORKER, "nr_punts": 1, "work_begin_time_ns": 1_000, "work_end_time_ns": 1_200}
WAITED = {"run_queue_ns": 20, "blocked_ns": 100}


def worked(requests: int, *, waits: bool = True, **changes: Any) -> dict[str, list[dict[str, Any]]]:
    """100 requests, the first of them by workers: each 20 ns in the run queue, 90 ns for a lock, 10 ns for a page."""
    inline = {"ring": 0, "task": 0, "opcode": READV, "path": RingPath.INLINE}
    rows = [{**inline, "id": index + 1, **(WORK if index < requests else {})} for index in range(100)]
    stretches = [(990, 999, "lock"), (1_000, 1_090, "lock"), (1_110, 1_120, "page"), (1_150, 1_150, "none")]
    names = load_reasons().names
    found = [
        {"request": row["id"], "begin_time_ns": begin, "wake_time_ns": wake, "reason": names.index(reason)}
        for row in rows[:requests]
        for begin, wake, reason in stretches
    ]
    for row in rows[:requests]:
        row.update({**WAITED, **changes} if waits else {})
    return {"rings": [{**RING, "nr_requests": 100}], "ring_requests": rows, "off_cpu": found if waits else []}


def test_the_time_of_workers_stands_with_its_parts(found: Any) -> None:
    """The largest reason is named with its share. A stretch before the execution, or a preemption, is no wait in it."""
    finding = found([], **worked(10))["punted-requests"]
    assert finding.text.endswith("; workers spent 2 µs: CPU 40.0 %, run queue 10.0 %, blocked 50.0 %, 45.0 % by lock")
    parts = {"cpu_ns": 800, "run_queue_ns": 200, "blocked_ns": 1_000}
    assert finding.evidence == {"on_workers": 10, "requests": 100, **parts}


@pytest.mark.parametrize(
    "changes",
    [
        {"blocked_ns": UNKNOWN_I64, "run_queue_ns": UNKNOWN_I64},
        {"inferred": 4},
        {"inferred": 2},
        {"nr_punts": 2},
        {"nr_polls": 1},
        {"work_end_time_ns": UNKNOWN_I64},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_the_time_of_workers_that_is_not_exact(found: Any, changes: dict[str, int]) -> None:
    """Of requests with unknown parts, an inferred start or worker, or several executions, nothing is said."""
    finding = found([], **worked(10, **changes))["punted-requests"]
    assert "spent" not in finding.text
    assert finding.evidence == {"on_workers": 10, "requests": 100}


def test_the_time_of_some_workers(found: Any) -> None:
    """The text says of how many requests it is. Workers that never waited name no reason."""
    tables = worked(11, run_queue_ns=0, blocked_ns=0)
    tables["ring_requests"][3]["inferred"] = 4
    text = found([], **tables)["punted-requests"].text
    assert text.endswith("; workers spent 2 µs on 10 of them: CPU 100.0 %, run queue 0.0 %, blocked 0.0 %")
    assert "spent" not in found([], **worked(10, waits=False))["punted-requests"].text


def test_the_time_of_workers_whose_end_is_inferred(found: Any) -> None:
    """Their time, and what is left for the CPU, is the most that it can be."""
    tables = worked(10)
    tables["ring_requests"][3]["inferred"] = 8
    text = found([], **tables)["punted-requests"].text
    assert "; workers spent at most 2 µs: CPU at most 40.0 %, run queue 10.0 %, blocked 50.0 %" in text


def test_the_busiest_subjects_stand_for_the_rest(tmp_path: Path) -> None:
    """Of seven files with the same finding, the five with most rows are listed, and two are counted."""
    files = [{"file": index, "path": b"/f%d" % index} for index in range(7)]
    handles = [{"handle": index, "process": 7, "file": index, "open_flags": 0o40000} for index in range(7)]
    rows = [access(READ, 1, 512, handle=index, task=0) for index in range(7) for _ in range(index + 10)]
    batch = make_batch(tasks=THREADS, files=files, handles=handles, operations=rows)
    findings = summarize(tablemaker.write_trace(tmp_path, [batch])).findings
    assert [(finding.subject, finding.more) for finding in findings] == [
        ("/f6", 0), ("/f5", 0), ("/f4", 0), ("/f3", 0), ("/f2", 2),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("files", "listed", "more"),
    [
        pytest.param([2000] * 5 + [10] * 2, [105, 106], 0, id="the busiest do not repeat"),
        pytest.param([10] * 4 + [2000] + [10] * 3, [100, 101, 102, 103, 105], 2, id="one among them does not"),
    ],
)
def test_the_busiest_are_chosen_among_what_stands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: list[int], listed: list[int], more: int
) -> None:
    """Of processes that look for so many files by more than 1,000 calls, the busiest first: none hides another."""
    monkeypatch.setattr("lo2io.trace.writer.CHUNK_ROWS", 1)
    threads = [{**THREADS[0], "task": index, "process": index, "pid": 100 + index} for index in range(len(files))]
    looks = [(index, number) for index in range(len(files)) for number in range(1010 - index)]
    calls = [
        {"id": 1 + place, "task": index, "call": OPENAT, "begin_time_ns": 0, "end_time_ns": 150_000}
        for place, (index, _) in enumerate(looks)
    ]
    paths = [
        {"operation": 1 + place, "source": 3, "path": b"%d" % (number % files[index]), "directory": b"/d"}
        for place, (index, number) in enumerate(looks)
    ]
    cuts = [slice(begin, begin + 1500) for begin in range(0, len(calls), 1500)]
    parts = [make_batch(operations=calls[cut], paths=paths[cut]) for cut in cuts]
    found = summarize(tablemaker.write_trace(tmp_path, [make_batch(tasks=threads), *parts])).findings
    assert {finding.rule for finding in found} == {"metadata-storm"}
    assert [finding.subject for finding in found] == [f"app ({pid})" for pid in listed]
    assert [finding.more for finding in found] == [0] * (len(listed) - 1) + [more]
    assert all(len(finding.ids) == 10 and sum(finding.paths.values()) == 1000 for finding in found)


def test_the_names_of_processes_are_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many processes fit: the table of threads may be long."""
    monkeypatch.setattr(tablemaker, "CALLS", tablemaker.CALLS + EXTRA)
    readings = []
    texts = Trace.texts

    def reading(trace: Trace, name: str, *rest: Any) -> dict[int, str | None]:
        readings.append(name)
        return texts(trace, name, *rest)

    monkeypatch.setattr(Trace, "texts", reading)
    numbers = []
    for processes in (1, 7):
        threads = [{**THREADS[0], "task": each, "process": each, "pid": 100 + each} for each in range(processes)]
        rows = [{"call": SYNC, "end_time_ns": 1_500_000}, {"call": READ, "end_time_ns": 1, "error": errno.EINTR}]
        owned = [row | {"task": each, "begin_time_ns": 0} for each in range(processes) for row in rows * 100]
        calls = [row | {"id": 1 + index} for index, row in enumerate(owned)]
        folder = tmp_path / str(processes)
        folder.mkdir()
        readings.clear()
        batch = make_batch(tasks=threads, operations=calls)
        findings = summarize(tablemaker.write_trace(folder, [batch], span=(0, 10**9))).findings
        numbers.append(readings.count("threads"))
        assert {finding.rule for finding in findings} == {"sync-bound", "interrupted-calls"}
        assert {finding.subject for finding in findings} == {f"app ({row['pid']})" for row in threads[:MAX_PER_RULE]}
    assert numbers[0] == numbers[1]


def test_every_rule_is_documented() -> None:
    """By its name, as a heading."""
    page = (pathlib.Path(__file__).parents[3] / "docs/reference/findings.md").read_text(encoding="utf-8")
    assert [line[4:] for line in page.splitlines() if line.startswith("### ")] == list(RULES)


def test_each_rule_says_what_helps() -> None:
    """Every rule has a remedy, and no other name has."""
    assert set(REMEDIES) == set(RULES)
