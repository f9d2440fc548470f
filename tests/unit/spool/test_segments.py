"""A spool in segments: what goes where, what stays within its bound, what further names keep."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import itertools
import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from build.perfwriter import SpoolBuilder

from lo2io.errors import SpoolError, UsageError
from lo2io.folder import Folder
from lo2io.model import ClockSync, Cpu
from lo2io.spool import facts
from lo2io.spool.format import SEGMENT_NAME, SegmentStart, dump_meta, parse_segment_start, segment_name
from lo2io.spool.reader import SpoolReader
from lo2io.spool.segments import META_COPIES, META_EXTRA, PARTS, Segment, SegmentedSpool
from lo2io.spool.writer import DiskFullError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

SYNC = ClockSync(5, 6, 7, 8)
FLIGHT = dataclasses.replace(
    SpoolBuilder(Path(), stop_ns=None).meta(), segments=("seg-000000",), cpus=(Cpu(0, 0, 0), Cpu(5, 1, 0))
)


def go_on(spool: SegmentedSpool, first_ns: int, last_ns: int | None = None) -> None:
    """All rings to the next segment."""
    spool.begin(first_ns)
    for index in range(len(spool.cpus)):
        spool.switch_cpu(index)
    spool.end(first_ns, first_ns if last_ns is None else last_ns)


def size_of(folder: Path) -> int:
    """Bytes of every file below."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def fact(begin_ns: int, end_ns: int, tid: int = 1) -> bytes:
    """A look at a thread."""
    return facts.pack_task(begin_ns=begin_ns, end_ns=end_ns, pid=1, tid=tid, ppid=0, comm=b"x")


def tids(path: Path) -> list[int]:
    """The threads of a file's facts."""
    content = path.read_bytes()
    return [int.from_bytes(content[at + 28 : at + 32], "little") for at in range(0, len(content), 56)]


def test_the_reader_joins_what_the_writer_split(tmp_path: Path) -> None:
    """Each CPU's bytes in their order over all segments, and so the facts; spool.json names the folders."""
    with SegmentedSpool(tmp_path / "spool", [0, 5]) as spool:
        spool.write_meta(FLIGHT)
        for number in range(3):
            spool.rings[1].append([b"a%d" % number, memoryview(b"b")])
            spool.facts.append([fact(10 * number + 1, 10 * number + 2, number)])
            go_on(spool, 10 * number + 5)
        names = tuple(segment.name for segment in spool.kept)
        spool.write_meta(dataclasses.replace(FLIGHT, complete=True, segments=names))
    assert names == ("seg-000000", "seg-000001", "seg-000002", "seg-000003")
    reader = SpoolReader(tmp_path / "spool")
    (paths0, cpu0), (paths1, cpu1) = reader.streams()
    assert (cpu0, cpu1) == (0, 5)
    assert b"".join(path.read_bytes() for path in paths0) == b""
    assert b"".join(path.read_bytes() for path in paths1) == b"a0ba1ba2b"
    assert [tids(path) for path in reader.facts] == [[0], [1], [2], []]


def test_the_programs_records_go_on_with_their_cpu(tmp_path: Path) -> None:
    """Each segment has a file for each kind of buffer, and the reader joins them likewise."""
    meta = dataclasses.replace(FLIGHT, clock="monotonic", backend="bpf", kernel_facts=True, kernel_events=("x",))
    with SegmentedSpool(tmp_path / "spool", [0, 5]) as spool:
        spool.take_kernel(events=True)
        spool.write_meta(meta)
        for number in range(3):
            spool.calls[1].append([b"c%d" % number])
            spool.events[0].append([b"e%d" % number])
            go_on(spool, 10 * number + 5)
        names = tuple(segment.name for segment in spool.kept)
        assert spool.size == 12
        spool.write_meta(dataclasses.replace(meta, complete=True, segments=names))
    reader = SpoolReader(tmp_path / "spool")
    joined = [
        [b"".join(path.read_bytes() for path in paths) for paths, _ in streams]
        for streams in (reader.streams(), reader.kernel_streams(), reader.event_streams())
    ]
    assert joined == [[b"", b""], [b"", b"c0c1c2"], [b"e0e1e2", b""]]


def test_a_cpu_that_comes_back_goes_on_in_its_file(tmp_path: Path) -> None:
    """In whatever segment is being written."""
    with SegmentedSpool(tmp_path / "spool", [0, 5]) as spool:
        spool.rings[1].append([b"a"])
        spool.add_ring(5)
        spool.rings[2].append([b"b"])
        go_on(spool, 5)
        spool.rings[2].append([b"c"])
        found = [segment.files[1].path.read_bytes() for segment in spool.kept]
    assert found == [b"ab", b"c"]


def test_a_ring_that_has_not_gone_on_yet_writes_to_the_former_segment(tmp_path: Path) -> None:
    """The rings go on one by one."""
    with SegmentedSpool(tmp_path / "spool", [0, 1]) as spool:
        spool.begin(1)
        spool.switch_cpu(0)
        for index in (0, 1):
            spool.rings[index].append([b"x"])
        spool.switch_cpu(1)
        spool.end(1, 2)
        sizes = [[file.size for file in segment.files] for segment in spool.kept]
    assert sizes == [[0, 1, 0], [1, 0, 0]]


def test_facts_tell_of_one_segment_or_are_left_out(tmp_path: Path) -> None:
    """A look that began before all buffers had gone on may fit the records of neither segment."""
    with SegmentedSpool(tmp_path / "spool", [0]) as spool:
        spool.facts.append([fact(1, 99, tid=1)])
        spool.begin(100)
        spool.facts.append([fact(98, 99, tid=2), fact(98, 101, tid=3), fact(102, 103, tid=4)])
        spool.switch_cpu(0)
        spool.end(100, 200)
        spool.facts.append(
            [fact(98, 99, 5), fact(150, 250, 6), fact(200, 250, 7), fact(100, 100, 8), fact(100, 101, 9)]
        )
        found = [tids(segment.facts.path) for segment in spool.kept]
    assert found == [[1, 2], [7, 8]]


def test_what_is_written_never_exceeds_the_bound(tmp_path: Path) -> None:
    """At no moment: the oldest segments go before the bytes come, which lie without a gap."""
    bound = META_EXTRA + META_COPIES * len(dump_meta(FLIGHT)) + (64 << 10)
    piece = bytes(1 << 10)
    with SegmentedSpool(tmp_path / "spool", [0, 1], bound) as spool:
        spool.write_meta(FLIGHT)
        room = 64 << 10
        assert spool.room == room
        written = [0, 0]
        for step in range(400):
            written[step % 2] += spool.rings[step % 2].append([piece, step.to_bytes(8, "little")])
            assert size_of(tmp_path / "spool") <= bound
            assert sum(segment.size for segment in spool.kept) <= room
            if spool.current.size >= room // PARTS:
                go_on(spool, step)
        kept = spool.kept
        rest = [b"".join(segment.files[index].path.read_bytes() for segment in kept) for index in range(2)]
    steps = [
        [int.from_bytes(part[at + 1024 : at + 1032], "little") for at in range(0, len(part), 1032)] for part in rest
    ]
    assert [found[-1] for found in steps] == [398, 399]
    for found in steps:
        assert found == list(range(found[0], found[-1] + 1, 2))
    assert sum(map(len, rest)) >= room * (PARTS - 2) // PARTS, "much more was removed than had to be"


def test_a_segment_being_written_is_never_removed(tmp_path: Path) -> None:
    """If that was needed, the write is refused: the bound holds above all."""
    bound = META_EXTRA + (4 << 10)
    with SegmentedSpool(tmp_path / "spool", [0, 1], bound) as spool:
        spool.rings[0].append([bytes(4 << 10)])
        with pytest.raises(DiskFullError, match="bound"):
            spool.rings[0].append([b"x"])
        spool.begin(1)
        spool.switch_cpu(0)
        with pytest.raises(DiskFullError, match="bound"):
            spool.rings[1].append([b"x"])
        spool.switch_cpu(1)
        spool.end(1, 1)
        assert spool.rings[1].append([b"x"]) == 1
        assert [segment.name for segment in spool.kept] == ["seg-000001"]


def test_facts_without_room_are_left_out_and_counted(tmp_path: Path) -> None:
    """They may take a part, so that facts do not push out records."""
    bound = META_EXTRA + PARTS * (1 << 10)
    with SegmentedSpool(tmp_path / "spool", [0], bound) as spool:
        for tid in range(40):
            spool.facts.append([fact(1, 2, tid)])
        assert spool.current.facts.size == (1 << 10) // 56 * 56
        assert spool.skipped_facts == 40 * 56 - spool.current.facts.size
        go_on(spool, 5)
        spool.facts.append([fact(6, 7)])
        assert spool.current.facts.size == 56


def test_a_full_disk_costs_the_oldest_segments_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A recorder that may forget goes on where another would have to end; with nothing left to forget, it ends, too."""
    with SegmentedSpool(tmp_path / "spool", [0]) as spool:
        for number in range(3):
            spool.rings[0].append([b"old"])
            go_on(spool, number)
        real, refusals = os.writev, [errno.ENOSPC, errno.EDQUOT]

        def writev(fd: int, views: Sequence[bytes]) -> int:
            if refusals:
                raise OSError(refusals.pop(), "no room")
            return real(fd, views)

        monkeypatch.setattr(os, "writev", writev)
        assert spool.rings[0].append([b"new"]) == 3
        assert [segment.name for segment in spool.kept] == ["seg-000002", "seg-000003"]
        refusals[:] = [errno.ENOSPC] * 9
        with pytest.raises(DiskFullError):
            spool.rings[0].append([b"new"])
        assert [segment.name for segment in spool.kept] == ["seg-000003"]
        refusals[:] = [errno.EIO]
        go_on(spool, 9)
        with pytest.raises(DiskFullError):
            spool.rings[0].append([b"new"])
        assert len(spool.kept) == 2, "a broken disk gets no better by removing"


@pytest.mark.parametrize("links", [True, False])
def test_links_outlive_the_segments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, links: bool) -> None:
    """All before the given one; later writes do not reach them. Without links, copies do the same."""

    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EPERM, "Operation not permitted")

    if not links:
        monkeypatch.setattr(os, "link", refuse)
    target = Folder.open_or_make(tmp_path / "window")
    with SegmentedSpool(tmp_path / "spool", [0]) as spool:
        for number in range(2):
            spool.rings[0].append([b"part%d" % number])
            go_on(spool, number)
        end = spool.current
        go_on(spool, 7)
        assert spool.link(target, end) == ("seg-000000", "seg-000001")
        while spool.drop_oldest():
            pass
        assert spool.link(target, end) == ()
    found = sorted(target.path.rglob("cpu-*.ring"))
    assert [path.read_bytes() for path in found] == [b"part0", b"part1"]
    assert not (tmp_path / "spool" / "seg-000000").exists()


def test_the_least_bound_is_named(tmp_path: Path) -> None:
    """A bound too small for the buffers is refused; the one that the error names is accepted."""
    with SegmentedSpool(tmp_path / "a", [0, 1], 10 << 20) as spool, pytest.raises(UsageError) as caught:
        spool.check_bound(8 << 20)
    assert caught.value.remedy == "use --max-size 41MiB, or a smaller --ring"
    with SegmentedSpool(tmp_path / "b", [0, 1], 41 << 20) as spool:
        spool.check_bound(8 << 20)


@pytest.mark.parametrize("described", [True, False])
def test_what_was_cut_off_is_read_from_its_oldest_segment(tmp_path: Path, *, described: bool) -> None:
    """spool.json is of the start; which segments are left, and when they begin, is found in the spool itself."""
    with SegmentedSpool(tmp_path / "spool", [0, 5]) as spool:
        spool.write_meta(FLIGHT)
        go_on(spool, 1)
        if described:
            spool.describe_start(spool.current, SegmentStart(77, (SYNC,)))
        go_on(spool, 2)
        spool.drop_oldest()
        (tmp_path / "spool" / ".seg-000009").mkdir()  # half made, or half removed
        meta = SpoolReader(tmp_path / "spool").meta
    assert meta.segments == ("seg-000001", "seg-000002")
    assert meta.recording_start_ns == FLIGHT.start_ns
    assert (meta.start_ns, meta.syncs) == ((77, (SYNC,)) if described else (FLIGHT.start_ns, FLIGHT.syncs))


def test_a_segments_start_without_readings_keeps_the_first_ones(tmp_path: Path) -> None:
    """Without any, no fact of the spool would prove a name."""
    with SegmentedSpool(tmp_path / "spool", [0, 5]) as spool:
        spool.write_meta(FLIGHT)
        go_on(spool, 1)
        spool.describe_start(spool.current, SegmentStart(77, ()))
        spool.drop_oldest()
        meta = SpoolReader(tmp_path / "spool").meta
    assert FLIGHT.syncs
    assert (meta.start_ns, meta.syncs) == (77, FLIGHT.syncs)


def test_the_segment_behind_the_millionth_is_the_newest(tmp_path: Path) -> None:
    """Its name has a digit more than the others: the order is that of the numbers, not of letters."""
    with SegmentedSpool(tmp_path / "spool", [0, 5]) as spool:
        spool.write_meta(FLIGHT)
        spool._numbers = itertools.count(999_999)
        go_on(spool, 1)
        go_on(spool, 2)
        spool.drop_oldest()
        assert SpoolReader(tmp_path / "spool").meta.segments == ("seg-999999", "seg-1000000")


@pytest.mark.parametrize("content", [b"", b"[]", b'{"start_ns": "1", "syncs": []}', b'{"start_ns": 1}'])
def test_a_damaged_description_of_a_segment_is_refused(tmp_path: Path, content: bytes) -> None:
    """By a SpoolError that names the file."""
    with SegmentedSpool(tmp_path / "spool", [0, 5]) as spool:
        spool.write_meta(FLIGHT)
        go_on(spool, 1)
        spool.drop_oldest()
        (spool.current.folder.path / SEGMENT_NAME).write_bytes(content)
        with pytest.raises(SpoolError, match=SEGMENT_NAME):
            SpoolReader(tmp_path / "spool")
    with pytest.raises(SpoolError):
        parse_segment_start(content)


def test_nothing_is_left_of_what_is_discarded(tmp_path: Path) -> None:
    """Whichever segment it was at; a prepared one goes at the end, too."""
    spool = SegmentedSpool(tmp_path / "spool", [0])
    spool.write_meta(FLIGHT)
    go_on(spool, 1)
    spool.prepare()
    spool.discard()
    assert not (tmp_path / "spool").exists()
    with SegmentedSpool(tmp_path / "again", [0]) as spool:
        spool.prepare()
        assert spool.is_prepared
    assert [path.name for path in (tmp_path / "again").iterdir()] == [segment_name(0)]


def during_next(spool: SegmentedSpool, act: Callable[[], object], monkeypatch: pytest.MonkeyPatch) -> None:
    """Act once while the next segment is made, as another thread may."""
    make = spool._make

    def make_slowly(number: int) -> Segment:
        monkeypatch.undo()
        act()
        return make(number)

    monkeypatch.setattr(spool, "_make", make_slowly)


def names_in(path: Path) -> list[str]:
    """The segments that have files, hidden ones, too."""
    return sorted(each.name for each in path.iterdir() if each.is_dir())


def test_a_segment_that_is_prepared_too_late_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The drain thread did not wait for it and wrote to one of its own; segments stay in the order of their numbers."""
    path = tmp_path / "spool"
    with SegmentedSpool(path, [0, 5]) as spool:
        spool.write_meta(FLIGHT)
        during_next(spool, lambda: go_on(spool, 1), monkeypatch)
        spool.prepare()
        assert not spool.is_prepared
        assert names_in(path) == [segment_name(0), segment_name(2)]
        spool.prepare()
        go_on(spool, 2)
        assert [segment.name for segment in spool.kept] == names_in(path) == [segment_name(n) for n in (0, 2, 3)]
        spool.rings[0].append([b"new"])
        assert [segment.files[0].size for segment in spool.kept] == [0, 0, 3]


def test_a_segment_that_is_prepared_beside_another_is_the_one_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The drain thread had begun its own one before, so the prepared one is in time for the next change."""
    path = tmp_path / "spool"
    with SegmentedSpool(path, [0, 5]) as spool:
        spool.write_meta(FLIGHT)
        during_next(spool, spool.prepare, monkeypatch)
        assert spool.begin(1).name == segment_name(1)
        assert spool.is_prepared
        assert spool.begin(2).name == segment_name(2)
        assert names_in(path) == [segment_name(n) for n in range(3)]


def open_below(folder: Path) -> int:
    """The number of this process' descriptors of files and folders below a folder."""
    found = 0
    for entry in list(Path("/proc/self/fd").iterdir()):
        with contextlib.suppress(FileNotFoundError):  # the descriptor of the listing itself
            found += folder in entry.readlink().parents
    return found


def test_a_late_segment_leaves_no_file_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a recorder that runs for months would run out of descriptors."""
    with SegmentedSpool(tmp_path / "spool", [0, 5]) as spool:
        spool.write_meta(FLIGHT)
        go_on(spool, 1)
        before = open_below(tmp_path)
        during_next(spool, lambda: go_on(spool, 2), monkeypatch)
        spool.prepare()
        spool.drop_oldest()
        assert open_below(tmp_path) == before
