"""Event files: full chunks are written at once, and full pages early if there are many locations."""

from __future__ import annotations

import re
import resource
import signal
import struct
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import otf2
import pytest
from build.otf2_batches import CALL, CALLS, END, META, START, BatchMaker
from build.otf2_written import libotf2s_files

from lo2io.errors import TraceError
from lo2io.model import UNKNOWN_U32, Batch
from lo2io.native.columns import allocate_batch
from lo2io.otf2.write.archive import CHUNK_BYTES
from lo2io.otf2.write.writer import Otf2Writer

if TYPE_CHECKING:
    from collections.abc import Iterator

PAGE = resource.getpagesize()
STAYING = 128
"""Chunks that stay in memory until they are full."""
STATS = 8000
"""Calls of stat that fill less than one chunk, and more than half of it."""


def calls(tasks: range, step: int, name: str = "newfstat", most_shift: int = 64) -> Batch:
    """Each task calls so often, at times after those of the step before.

    Numbers of reads have up to 62 bits: all sizes, or with another ``most_shift`` only great ones and more of them.
    """
    number, count, chance = STATS, STATS * len(tasks), np.random.default_rng(step)
    native, tables = allocate_batch(count, 1)
    native.nr_operations = count
    views = {name: {c: a[: count if name == "operations" else 0] for c, a in t.items()} for name, t in tables.items()}
    rows = views["operations"]
    rows["call"][:] = CALL[name]
    rows["task"][:] = np.tile(np.arange(tasks.start, tasks.stop), number)
    rows["pid"][:], rows["process"][:], rows["tid"][:] = 100, 0, 100 + rows["task"]
    rows["handle"][:] = 0 if name == "read" else UNKNOWN_U32
    rows["handle2"][:], rows["offset_source"][:] = UNKNOWN_U32, 1
    for column in ("offset_bytes", "bytes_request", "bytes_result"):
        rows[column][:] = chance.integers(1 << 61, 1 << 62, size=count) >> chance.integers(most_shift, size=count)
    rows["id"][:] = 1 + 2 * (np.arange(count) + step * count)
    if most_shift < 64:
        rows["id"][:] += 1 << 60
        rows["cache"][:], rows["cache_missed_pages"][:], rows["cache_ahead_pages"][:] = 2, 1 << 30, 1 << 30
    rows["begin_time_ns"][:] = START + (np.repeat(np.arange(number), len(tasks)) + step * number << 20)
    rows["end_time_ns"][:] = rows["begin_time_ns"] + 1000
    return Batch(**views, text=b"", first_operation=0, native=native)


def resident_pages() -> int:
    """Pages in memory of all mappings that shall have no huge pages (proc_pid_smaps(5)): of chunks, and few others."""
    pattern = re.compile(r"^Rss: +(\d+) kB.*?^VmFlags:([^\n]*)", re.MULTILINE | re.DOTALL)
    parts = pattern.findall(Path("/proc/self/smaps").read_text(encoding="utf-8", errors="replace"))
    return sum(int(size) * 1024 // PAGE for size, flags in parts if "nh" in flags.split())


@pytest.fixture
def limited() -> Iterator[None]:
    """No file may have more than 100 kB, which stands for a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, before)
    signal.signal(signal.SIGXFSZ, handler)


@pytest.mark.parametrize("nr_steps", [1, 2, 12])
def test_files_are_those_of_libotf2(tmp_path: Path, nr_steps: int) -> None:
    """Files of one chunk and of several are the same, byte for byte. No file stays open, and none is left beside."""
    with Otf2Writer(tmp_path, META, CALLS) as writer:
        for step in range(nr_steps):
            writer.write(calls(range(2), step))
        assert not [fd for fd in Path("/proc/self/fd").iterdir() if fd.resolve().suffix == ".evt"]
        writer.close(END)
    files = {path.name: path.read_bytes() for path in (tmp_path / "traces").glob("*.evt*")}
    assert sorted(files) == ["0.evt", "1.evt"]
    assert (len(files["0.evt"]) > CHUNK_BYTES) == (nr_steps > 1)
    assert libotf2s_files(tmp_path) == files


@pytest.mark.parametrize("most_shift", [64, 4])
def test_records_of_all_sizes_in_many_chunks(tmp_path: Path, most_shift: int) -> None:
    """libotf2 reads them all back. It would cut some chunks one record later, too late for a file's end."""
    batches = [calls(range(1), step, "read", most_shift) for step in range(10)]
    with Otf2Writer(tmp_path, META, CALLS) as writer:
        for batch in batches:
            writer.write(batch)
        writer.close(END)
    content = (tmp_path / "traces/0.evt").read_bytes()
    starts = range(0, len(content), CHUNK_BYTES)
    numbers = [struct.unpack_from("<QQ", content, at + 2) for at in starts]
    assert len(numbers) > 10
    assert {content[at + 18] for at in starts} == {5}, "each chunk begins with a time"
    assert [first for first, _ in numbers] == [1, *(last + 1 for _, last in numbers[:-1])]
    assert numbers[-1][1] == 4 * 10 * STATS
    with otf2.reader.open(str(tmp_path / "traces.otf2")) as reader:
        events = [event for _, event in reader.events]
    begun = [event for event in events if isinstance(event, otf2.events.IoOperationBegin)]
    ended = [event for event in events if isinstance(event, otf2.events.IoOperationComplete)]
    rows = [batch.operations for batch in batches]
    told = {"offset_bytes": [next(iter(event.attributes.values())) for event in begun]}
    told |= {"bytes_request": [event.bytes_request for event in begun]}
    told |= {"bytes_result": [event.bytes_result for event in ended]}
    told |= {"id": [event.matching_id for event in ended], "end_time_ns": [event.time for event in ended]}
    for column, values in told.items():
        assert values == np.concatenate([part[column] for part in rows]).tolist(), column


def test_chunks_of_many_locations_are_written_early(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Full pages of all chunks but the first; the files are the same in the end. Memory forgets what was written."""
    monkeypatch.setattr("lo2io.otf2.write.writer._BATCHES_IN_MEMORY", 1)
    tasks = range(STAYING + 2)
    files = [tmp_path / f"traces/{location}.evt" for location in tasks[STAYING - 1 :]]
    before = resident_pages()
    with Otf2Writer(tmp_path, META, CALLS) as writer:
        writer.write(calls(tasks, 0))
        early = [path.stat().st_size for path in files[1:]]
        assert not files[0].exists(), "its chunk is not full"
        assert early[0] == early[1] > CHUNK_BYTES // 2
        assert early[0] % PAGE == 0
        of_whole, of_chunk = early[0] // PAGE + 1, CHUNK_BYTES // PAGE + 1
        for step in range(1, 6):
            writer.write(calls(tasks[STAYING - 1 :], step))
            others = resident_pages() - before - (STAYING - 1) * of_whole - of_chunk
            assert others <= 2 * 3, "a page that is not full, one that is, and one beyond the chunk"
        writer.close(END)
    contents = [path.read_bytes() for path in files]
    assert len(contents[0]) > 4 * CHUNK_BYTES
    assert contents[1:] == contents[:1] * 2


@pytest.mark.usefixtures("limited")
def test_no_room_for_early_pages_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has the system's reason, and no file stays."""
    monkeypatch.setattr("lo2io.otf2.write.writer._BATCHES_IN_MEMORY", 1)
    with Otf2Writer(tmp_path, META, CALLS) as writer, pytest.raises(TraceError) as caught:
        writer.write(calls(range(STAYING + 1), 0))
    assert caught.value.answer == f"writing events: traces/{STAYING}.evt: File too large"
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("width", [0, 1, 7, 8, 31, 32, 40, 56, 62])
def test_extreme_numbers_are_written_as_by_libotf2(tmp_path: Path, maker: BatchMaker, width: int) -> None:
    """Events at time 0, and numbers of each width: of ids, bytes, offsets and times."""
    number = (1 << width) - 1
    sizes = {"offset_bytes": number, "offset_source": 1, "bytes_request": number, "bytes_result": number}
    maker.task(0)
    maker.row("handles", handle=0, fd=3, origin=3)
    maker.row("operations", id=number, call=CALL["read"], begin_time_ns=0, end_time_ns=0, handle=0, **sizes)
    maker.row("operations", id=number, call=CALL["read"], begin_time_ns=0, end_time_ns=number, handle=0, **sizes)
    seek = {"offset_bytes": -number, "offset_source": 1, "flags": 1, "result": number}
    maker.row("operations", call=CALL["lseek"], begin_time_ns=number, end_time_ns=number, handle=0, **seek)
    maker.row("operations", id=5, call=CALL["io_uring_enter"], begin_time_ns=number, end_time_ns=number)
    maker.row("batches", id=5, ring=0, asked=UNKNOWN_U32, wanted=number & UNKNOWN_U32)
    maker.row("rings", ring=0)
    with Otf2Writer(tmp_path, META, CALLS) as writer:
        writer.write(maker.make())
        writer.close(END)
    files = {path.name: path.read_bytes() for path in (tmp_path / "traces").glob("*.evt")}
    assert libotf2s_files(tmp_path) == files
