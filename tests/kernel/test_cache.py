"""What reads find in the page cache, against cachestat(2) and mincore(2), on several file systems."""

from __future__ import annotations

import contextlib
import json
import mmap
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import workloads
from workloads.cached_reads import SIZE, count_pages, make_file
from workloads.disks import loop_device
from workloads.names import MAKERS
from workloads.record import record

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager
    from typing import Any

    Row = dict[str, Any]

pytestmark = pytest.mark.requires(
    *(
        "root",
        "tracefs",
        "events",
        "losetup",
        "mkfs.ext4",
        "mkfs.xfs",
        "mkfs.btrfs",
        "filemap:mm_filemap_add_to_page_cache",
    )
)

DISK_BYTES = 400 << 20
WORKLOAD = Path(workloads.__file__).with_name("cached_reads.py")
LIKELY = {"hit", "wait", "miss"}
"""Verdicts of a buffered read."""
NR_RACES = 64
"""Pages over which two threads race."""
MOST_RECLAIMED = 100
"""Reads of a file just read whose pages the machine may have taken for something else."""
MOST_UNLIKE = 12
"""Reads of one file system whose pages may have become up to date between mincore and the read."""


@contextlib.contextmanager
def mounted(folder: Path) -> Iterator[dict[str, Path]]:
    """A file system of each kind in a loop device of its own, and a tmpfs: name → where it is mounted."""
    with contextlib.ExitStack() as stack:
        found = {}
        for name in (*MAKERS, "tmpfs"):
            place = folder / f"on-{name}"
            place.mkdir()
            if name == "tmpfs":
                source: list[str | Path] = ["-t", "tmpfs", "tmpfs"]
            else:
                device = stack.enter_context(loop_device(folder / name, DISK_BYTES))
                subprocess.run([*MAKERS[name], device], check=True, capture_output=True)
                source = [device]
            subprocess.run(["mount", *source, place], check=True)
            stack.callback(subprocess.run, ["umount", place], check=True)
            found[name] = place
        yield found


class Reads:
    """The reads of the workload: the truth, and the rows of the trace."""

    def __init__(self, truth: list[Row], rows: list[Row], fills: list[Row]) -> None:
        self.pairs = list(zip(truth, rows, strict=True))
        self.fills = fills

    def of(self, system: str, *patterns: str) -> list[tuple[Row, Row]]:
        """Truth and row of each read on this file system; without patterns: of all but races and direct reads."""
        return [
            (told, row)
            for told, row in self.pairs
            if f"/on-{system}/" in told["path"]
            and (told["pattern"] in patterns if patterns else told["pattern"] not in {"race", "direct"})
        ]


@pytest.fixture(scope="module")
def reads(tmp_path_factory: pytest.TempPathFactory, awake: Callable[[], AbstractContextManager[None]]) -> Reads:
    """All patterns on all file systems, recorded once."""
    folder = tmp_path_factory.mktemp("cache")
    with mounted(folder) as places, awake():
        command = [sys.executable, "-S", WORKLOAD, *places.values()]
        recorded = record(folder / "T", ["sh", "-c", '"$@" > "$0"', folder / "truth", *command])
    truth = [json.loads(line) for line in (folder / "truth").read_text().splitlines()]
    return match(truth, recorded)


def match(truth: list[Row], recorded: Any) -> Reads:
    """Joins the two: calls of one file come in the same order, and a race's calls by their offset."""
    paths = {told["path"] for told in truth}
    rows = [row for row in recorded.calls("preadv", "preadv2") if row["path"] in paths]

    def key(row: Row, offset: str) -> tuple[str, int]:
        return row["path"], row[offset] if "/race" in row["path"] else 0

    return Reads(
        sorted(truth, key=lambda told: key(told, "offset")),
        sorted(rows, key=lambda row: key(row, "offset_bytes")),
        recorded.trace.table("fills").to_pylist(),
    )


@pytest.mark.parametrize("system", MAKERS)
def test_missed_pages_are_those_that_were_lacking(system: str, reads: Reads) -> None:
    """The number of pages that a read missed is the kernel's, page by page."""
    pairs = reads.of(system)
    assert len(pairs) > 700
    assert [row["offset_bytes"] for _, row in pairs] == [told["offset"] for told, _ in pairs]
    different = [
        (told["pattern"], told["offset"], told["lacking"], row["cache_missed_pages"])
        for told, row in pairs
        if row["cache_missed_pages"] != (told["lacking"] if told["result"] else None)
    ]
    assert not different


@pytest.mark.parametrize("system", MAKERS)
def test_verdicts_are_mincores(system: str, reads: Reads) -> None:
    """A read hits if its pages were up to date, unless they became so in between; it misses if pages were lacking."""
    verdicts = Counter[str]()
    unlike = 0
    for told, row in reads.of(system):
        if not told["result"]:
            assert row["cache"] == "no read"
            continue
        assert row["cache"] in LIKELY
        assert (row["cache"] == "miss") == (told["lacking"] > 0)
        assert row["cache"] != "wait" or row["cache_wait_ns"] != 0  # null: the end of a wait was not seen
        unlike += (row["cache"] == "hit") != told["ready"]
        verdicts[row["cache"]] += 1
    assert unlike <= MOST_UNLIKE
    assert verdicts["hit"] > 100
    assert verdicts["miss"] > 100


@pytest.mark.parametrize("system", MAKERS)
def test_direct_reads_are_not_cached(system: str, reads: Reads) -> None:
    """O_DIRECT goes past the page cache, unless the file system reads through it all the same."""
    pairs = reads.of(system, "direct")
    assert pairs
    for told, row in pairs:
        assert row["cache"] == ("miss" if told["came"] else "none")
        assert row["cache_missed_pages"] == told["came"]


def test_tmpfs_is_memory(reads: Reads) -> None:
    """Files of tmpfs live in memory: no read of them hits or misses."""
    pairs = reads.of("tmpfs")
    assert pairs
    assert {row["cache"] for told, row in pairs if told["result"]} == {"memory"}


@pytest.mark.parametrize("system", MAKERS)
def test_race(system: str, reads: Reads) -> None:
    """Of two threads that read a cold page at a time, one fills it. The other waits, unless it comes after the fill."""
    of_page: dict[int, list[Row]] = {}
    for _, row in reads.of(system, "race"):
        of_page.setdefault(row["offset_bytes"], []).append(row)
    assert len(of_page) == NR_RACES
    for both in of_page.values():
        filled, other = sorted(both, key=lambda row: -row["cache_missed_pages"])
        assert (filled["cache"], filled["cache_missed_pages"], other["cache_missed_pages"]) == ("miss", 1, 0)
        assert other["cache"] in {"hit", "wait"}
        if other["cache"] == "wait":
            assert other["begin_time_ns"] < filled["end_time_ns"]
            assert other["end_time_ns"] > filled["begin_time_ns"]


def test_somebody_waits(reads: Reads) -> None:
    """Some of the threads that race come while a page is being filled."""
    assert "wait" in {row["cache"] for system in MAKERS for _, row in reads.of(system, "race")}


@pytest.mark.parametrize("system", MAKERS)
def test_fills_are_the_reads(system: str, reads: Reads) -> None:
    """The rows of fills have the same pages as the reads' columns, and each page that was demanded was used."""
    missed, ahead = Counter[int](), Counter[int]()
    for fill in reads.fills:
        if fill["why"] == "demand":
            missed[fill["cause"]] += fill["pages"]
            assert (fill["used_pages"], fill["first_use"]) == (fill["pages"], fill["cause"])
        elif fill["why"] == "ahead":
            ahead[fill["cause"]] += fill["pages"]
            assert fill["used_pages"] <= fill["pages"]
    for _, row in reads.of(system):
        assert missed[row["id"]] == (row["cache_missed_pages"] or 0)
        assert ahead[row["id"]] == (row["cache_ahead_pages"] or 0)


def test_what_is_read_ahead_in_a_row_is_used(reads: Reads) -> None:
    """Reading a file from start to end uses all that was read ahead. A program that stops leaves some of it unused."""
    used = {}
    for pattern in ("sequential", "begun"):
        ids = {row["id"] for _, row in reads.of("ext4", pattern)}
        fills = [fill for fill in reads.fills if fill["cause"] in ids and fill["why"] == "ahead"]
        used[pattern] = sum(fill["used_pages"] for fill in fills), sum(fill["pages"] for fill in fills)
    assert used["sequential"][0] == used["sequential"][1] > 0
    assert 0 < used["begun"][0] < used["begun"][1]


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """An ext4 of the test's own, with a cold file ``cold`` of random bytes."""
    with loop_device(tmp_path / "image", DISK_BYTES) as device:
        subprocess.run([*MAKERS["ext4"], device], check=True, capture_output=True)
        place = tmp_path / "disk"
        place.mkdir()
        subprocess.run(["mount", device, place], check=True)
        try:
            make_file(place / "cold")
            yield place
        finally:
            subprocess.run(["umount", place], check=True)


def forget(file: Path) -> None:
    """Take the file's pages out of the page cache."""
    with file.open("rb") as opened:
        os.posix_fadvise(opened.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        assert not count_pages(opened.fileno(), 0, SIZE)


@pytest.mark.requires("fio", "io_uring:io_uring_complete")
@pytest.mark.parametrize("workers", [False, True])
def test_ring_reads(tmp_path: Path, disk: Path, *, workers: bool) -> None:
    """Each page of a cold file is filled once, by the request that asks for it: inline, or in a worker."""
    forget(disk / "cold")
    job = ["--name=x", f"--filename={disk / 'cold'}", "--rw=randread", "--bs=8k", "--ioengine=io_uring", "--iodepth=16"]
    job += ["--invalidate=0", "--fadvise_hint=random", f"--force_async={int(workers)}"]
    recorded = record(tmp_path / "T", ["fio", *job], cwd=tmp_path)
    requests = [row for row in recorded.trace.table("ring_requests").to_pylist() if row["bytes_result"]]
    assert len(requests) == SIZE // 8192
    assert Counter((row["cache"], row["cache_missed_pages"], row["cache_ahead_pages"]) for row in requests) == {
        ("miss", 2, 0): len(requests)
    }
    fills = [fill for fill in recorded.trace.table("fills").to_pylist() if fill["why"] == "demand"]
    assert {row["id"] for row in requests} <= {fill["cause"] for fill in fills}
    again = record(tmp_path / "T2", ["fio", *job], cwd=tmp_path)
    verdicts = Counter(row["cache"] for row in again.trace.table("ring_requests").to_pylist() if row["bytes_result"])
    assert verdicts["hit"] + verdicts["miss"] == len(requests)
    assert verdicts["miss"] <= MOST_RECLAIMED


def test_overlay(tmp_path: Path, disk: Path) -> None:
    """Pages belong to the lower file, and reads through the upper one miss them."""
    for name in ("lower", "upper", "work", "merged"):
        (disk / name).mkdir()
    (disk / "cold").rename(disk / "lower/cold")
    options = f"lowerdir={disk / 'lower'},upperdir={disk / 'upper'},workdir={disk / 'work'}"
    subprocess.run(["mount", "-t", "overlay", "overlay", "-o", options, disk / "merged"], check=True)
    try:
        forget(disk / "lower/cold")
        twice = ["sh", "-c", 'cat "$0" "$0" > /dev/null', disk / "merged/cold"]
        recorded = record(tmp_path / "T", twice)
    finally:
        subprocess.run(["umount", disk / "merged"], check=True)
    rows = [row for row in recorded.calls("read") if row["path"] == str(disk / "merged/cold") and row["bytes_result"]]
    pages = sum(row["cache_missed_pages"] + row["cache_ahead_pages"] for row in rows)
    assert pages >= SIZE // mmap.PAGESIZE
    verdicts = Counter(row["cache"] for row in rows[len(rows) // 2 :])
    assert verdicts["hit"] > len(rows) // 4
    assert rows[0]["cache"] == "miss"


def test_without_the_layer(tmp_path: Path, disk: Path) -> None:
    """Then nothing is known, and nothing recorded."""
    forget(disk / "cold")
    recorded = record(tmp_path / "T", ["sh", "-c", 'cat "$0" > /dev/null', disk / "cold"], "--layers", "none")
    assert {row["cache"] for row in recorded.calls("read")} <= {"no read"}
    assert not recorded.trace.rows("fills")
