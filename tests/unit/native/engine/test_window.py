"""Streams of several files, and traces that begin in the middle of what goes on: windows of a flight recorder."""

from __future__ import annotations

import dataclasses
import itertools
from typing import TYPE_CHECKING, Any

import pytest
from build.perfwriter import SpoolBuilder
from reference.compare import run_native
from reference.engines import (
    ENGINES,
    each_engine,  # noqa: F401 - the fixture `run`
)
from reference.specs import SPECS

from lo2io.convert.engine import Engine
from lo2io.errors import SpoolError
from lo2io.spool.format import FACTS_NAME, META_NAME, dump_meta, ring_name
from lo2io.spool.reader import SpoolReader

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from reference.compare import Tables

    Run = Callable[[SpoolBuilder], Tables]

START, VDA, EBADF = 50_000, 254 << 20, -9
BEFORE, UNSEEN = 3, 4
D = 2


def segmented(builder: SpoolBuilder, path: Path, rings: Sequence[Sequence[int]], facts: Sequence[int]) -> Path:
    """The spool in segments: where each ring's bytes, and the facts', are cut."""
    names = tuple(f"seg-{number:06}" for number in range(len(facts) + 1))
    contents = [(ring_name(cpu), b"".join(ring), rings[cpu]) for cpu, ring in enumerate(builder.rings)]
    contents.append((FACTS_NAME, b"".join(builder.facts), facts))
    path.mkdir()
    for name in names:
        (path / name).mkdir()
    for file, content, cuts in contents:
        borders = [0, *cuts, len(content)]
        for name, (begin, end) in zip(names, itertools.pairwise(borders), strict=True):
            (path / name / file).write_bytes(content[begin:end])
    (path / META_NAME).write_bytes(dump_meta(dataclasses.replace(builder.meta(), segments=names)))
    return path


@pytest.fixture
def spool(tmp_path: Path) -> SpoolBuilder:
    """Records of one CPU of all variable lengths, and some facts."""
    builder = SpoolBuilder(tmp_path / "spool", 1, start_ns=START)
    builder.fact_task(1_000, 10, 10, comm=b"ten").fact_task(1_000, 10, 11).fact_fd(2_000, 10, 3, b"/a/name")
    builder.fork(60_000, 0, 12, 12, 10, 10).comm(60_010, 0, 12, 12, b"a longer one").lost(60_020, 0, 7)
    builder.call(60_030, 0, 12, "read", 5, fd=3, count=5).enter(60_050, 0, 10, "sync").exit(60_045, 0, 11, "sync")
    builder.block(60_060, 0, 12, "rq_issue", dev=VDA, sector=100, nr_sector=8, rwbs=b"W")
    return builder.exit(60_070, 0, 10, "sync").task_exit(60_080, 0, 12, 12)


# ---- files ----


@pytest.mark.parametrize("engine", ENGINES.values(), ids=ENGINES)
def test_records_lie_across_the_border_of_two_files(
    spool: SpoolBuilder, tmp_path: Path, engine: Callable[[Path], Tables]
) -> None:
    """Wherever a ring or the facts are cut, they are one sequence of bytes."""
    whole = engine(spool.write())
    length, facts = len(b"".join(spool.rings[0])), len(b"".join(spool.facts))
    for cut in range(0, length + 1, 5):
        path = segmented(spool, tmp_path / f"cut-{cut}", [[cut]], [min(cut, facts)])
        assert engine(path) == whole, cut
    assert whole["totals"]["truncated_bytes"] == 0


@pytest.mark.parametrize("cuts", [[0, 0], [0, 60], [60, 60], [60, 60, 60], [60, 1 << 20], [1 << 20, 1 << 20]], ids=str)
def test_empty_files_say_nothing(run: Run, spool: SpoolBuilder, tmp_path: Path, cuts: list[int]) -> None:
    """At the beginning, in the middle, several in a row, at the end."""
    length, facts = len(b"".join(spool.rings[0])), len(b"".join(spool.facts))
    path = segmented(spool, tmp_path / "parts", [[min(cut, length) for cut in cuts]], [min(cut, facts) for cut in cuts])
    assert run_native(path) == run(spool)


def test_all_files_empty(tmp_path: Path) -> None:
    """An empty recording gives empty tables, without an error."""
    path = segmented(SpoolBuilder(tmp_path / "spool", 2), tmp_path / "parts", [[0, 0], [0, 0]], [0, 0])
    tables = run_native(path)
    assert (tables["operations"], tables["totals"]["nr_samples"]) == ([], 0)


def test_every_byte_of_every_file_is_read(spool: SpoolBuilder, tmp_path: Path) -> None:
    """Progress is measured by these bytes."""
    reader = SpoolReader(segmented(spool, tmp_path / "parts", [[60, 100]], [30, 90]))
    engine = Engine(reader, SPECS)  # type: ignore[arg-type]
    for _ in engine.batches():
        pass
    assert engine.bytes_read == len(b"".join(spool.rings[0])) + len(b"".join(spool.facts))


@pytest.mark.parametrize("segment", [0, 1, 2])
@pytest.mark.parametrize("file", [ring_name(0), FACTS_NAME])
def test_a_file_that_is_missing_is_named(spool: SpoolBuilder, tmp_path: Path, file: str, segment: int) -> None:
    """By the reader if it looks in time, by the engine if the file goes away later."""
    path = segmented(spool, tmp_path / "parts", [[60, 100]], [30, 90])
    reader, gone = SpoolReader(path), path / f"seg-{segment:06}" / file
    gone.unlink()
    with pytest.raises(SpoolError, match=f"seg-{segment:06}/{file}"):
        SpoolReader(path)

    def read() -> None:
        for _ in Engine(reader, SPECS).batches():  # type: ignore[arg-type]
            pass

    with pytest.raises(SpoolError, match=rf"seg-{segment:06}/{file}: No such file") as caught:
        read()
    assert str(path) in caught.value.tried


def test_a_file_that_is_missing_when_samples_are_counted_is_named(spool: SpoolBuilder, tmp_path: Path) -> None:
    """Completions are counted before anything else."""
    spool.block(60_090, 0, 0, "rq_complete", dev=VDA, sector=100, nr_sector=8, rwbs=b"W")
    path = segmented(spool, tmp_path / "parts", [[60, 100]], [30, 90])
    engine, gone = Engine(SpoolReader(path), SPECS), path / "seg-000001" / ring_name(0)  # type: ignore[arg-type]
    gone.unlink()
    with pytest.raises(SpoolError, match=f"seg-000001/{ring_name(0)}: No such file"):
        next(engine.batches())


def test_inversions_and_gaps_do_not_care_for_borders(run: Run, tmp_path: Path) -> None:
    """A record older than the last of the file before is put right; a gap begins with that last one."""
    spool = SpoolBuilder(tmp_path / "spool", 1).enter(60_010, 0, 10, "sync")
    cut = len(b"".join(spool.rings[0]))
    spool.enter(60_000, 0, 20, "sync").lost(60_020, 0, 3).exit(60_030, 0, 20, "sync").exit(60_040, 0, 10, "sync")
    tables = run_native(segmented(spool, tmp_path / "parts", [[cut]], [0]))
    assert tables == run(spool)
    assert (tables["totals"]["nr_reordered"], tables["totals"]["nr_late"]) == (1, 0)
    assert [(row["begin_time_ns"], row["end_time_ns"]) for row in tables["losses"]] == [(60_010, 60_020)]


# ---- windows ----


def columns(tables: Tables, *names: str, table: str = "operations") -> list[tuple[Any, ...]]:
    """Some columns of a table."""
    return [tuple(row[name] for name in names) for row in tables[table]]


@pytest.fixture
def window(tmp_path: Path) -> SpoolBuilder:
    """A window from 50 µs on; its facts were stated for its beginning, or looked at later."""
    return SpoolBuilder(tmp_path / "window", start_ns=START)


def test_calls_under_way_at_the_beginning_are_orphans(run: Run, window: SpoolBuilder) -> None:
    """Their effects on descriptors are unknown, and so is the position."""
    window.fact_task(START, 10, 10).fact_fd(START + 5_000, 10, 3, b"/f", begin=START + 4_000, position=100)
    window.exit(60_000, 0, 10, "read", 5).call(60_010, 0, 10, "read", 5, fd=3, count=5)
    tables = run(window)
    assert columns(tables, "begin_time_ns", "offset_bytes") == [(60_010, 100)]
    assert tables["totals"]["nr_orphan_exits"] == 1


def test_descriptors_open_before_the_window_get_their_names(run: Run, window: SpoolBuilder) -> None:
    """Also for calls before the look, for the slot has not changed since the beginning."""
    window.fact_task(START, 10, 10).call(60_000, 0, 10, "read", 5, fd=3, count=5)
    window.call(60_010, 0, 10, "close", fd=4).fact_fd(70_000, 10, 3, b"/f", begin=69_000, position=5)
    window.fact_fd(70_000, 10, 4, b"/g", begin=69_000).call(80_000, 0, 10, "read", 5, fd=3, count=5)
    tables = run(window)
    assert [(row["fd"], row["origin"], row["file"] and row["file"][-1]) for row in tables["handles"]] == [
        (3, UNSEEN, b"/f"),
        (4, UNSEEN, None),  # closed since: the look saw another file
    ]
    assert columns(tables, "first_use", "offset_bytes") == [(1, None), (1, None), (0, 5)]


def test_threads_are_those_of_their_first_fact_before_it_comes(run: Run, window: SpoolBuilder) -> None:
    """A thread of process 10 that works before the look is over shares its descriptors all the same."""
    window.call(50_001, 0, 11, "openat", 3, flags=2).call(50_010, 0, 10, "read", 5, fd=3, count=5)
    window.fact_task(START + 1_000, 10, 10, ppid=7, comm=b"ten", cgroup=(0, b"/c"))
    window.fact_task(START + 1_000, 10, 11, ppid=7, comm=b"eleven")
    tables = run(window)
    assert columns(tables, "pid", "tid", "handle") == [(10, 11, "h0"), (10, 10, "h0")]
    assert columns(tables, "tid", "ppid", "comm", "cgroup", table="tasks") == [
        (10, 7, b"ten", b"/c"),
        (11, 7, b"eleven", b"/c"),
    ]
    assert len({row["process"] for row in tables["tasks"]}) == 1


def test_the_recorders_threads_are_its_own_before_their_fact_comes(run: Run, tmp_path: Path) -> None:
    """A window begins while its facts are being written."""
    window = SpoolBuilder(tmp_path / "window", start_ns=START, recorder_pid=30)
    window.call(50_001, 0, 31, "write", 5, fd=3, count=5).fact_task(START + 1_000, 30, 31)
    tables = run(window)
    assert not tables["operations"]
    assert tables["totals"]["nr_own_calls"] == 1


def test_threads_no_fact_tells_of_are_known_by_their_tid(run: Run, window: SpoolBuilder) -> None:
    """They ended before any look."""
    window.call(60_000, 0, 11, "sync").task_exit(60_010, 0, 10, 11)
    assert columns(run(window), "tid", "pid", "ppid", "comm", "start_time_ns", "exit_time_ns", table="tasks") == [
        (11, 11, None, b"", None, 60_010)
    ]


def test_requests_issued_before_the_window_are_orphans_when_they_complete(run: Run, window: SpoolBuilder) -> None:
    """Those only inserted before begin with their issue; a requeue or a merge of an unknown one has no effect."""
    fields: dict[str, Any] = {"dev": VDA, "nr_sector": 8, "rwbs": b"W"}
    window.fact_task(START, 10, 10).block(60_000, 0, 0, "rq_complete", sector=100, **fields)
    window.block(60_010, 0, 10, "rq_requeue", sector=200, **fields).block(
        60_020, 0, 10, "rq_merge", sector=300, **fields
    )
    window.block(60_030, 0, 10, "rq_issue", sector=400, **fields)
    window.block(60_040, 0, 0, "rq_complete", sector=400, **fields)
    tables = run(window)
    assert tables["totals"]["nr_orphan_completions"] == 1
    assert columns(tables, "sector", "insert_time_ns", "issue_time_ns", table="requests") == [(400, None, 60_030)]
    assert columns(tables, "sector", table="completions") == [(100,), (400,)]


def test_a_thread_away_at_the_beginning_has_no_stretch(run: Run, window: SpoolBuilder) -> None:
    """Its call is not known; with the next one everything is."""
    window.fact_task(START, 10, 10).switch(60_000, 0, 0, 10).exit(60_010, 0, 10, "read", 5)
    window.enter(60_020, 0, 10, "sync").switch(60_030, 0, 10, 0, D).switch(60_040, 0, 0, 10).exit(60_050, 0, 10, "sync")
    assert columns(run(window), "begin_time_ns", "end_time_ns", table="off_cpu") == [(60_030, 60_040)]


def test_an_exec_under_way_at_the_beginning(run: Run, window: SpoolBuilder) -> None:
    """Its COMM record names the program; its exit is an orphan; which descriptors were close-on-exec is unknown."""
    window.fact_task(START, 10, 10, comm=b"old").comm(60_000, 0, 10, 10, b"new", is_exec=True)
    window.exit(60_010, 0, 10, "execve").call(60_020, 0, 10, "read", EBADF, fd=3)
    tables = run(window)
    assert columns(tables, "comm", table="tasks") == [(b"new",)]
    assert (tables["totals"]["nr_orphan_exits"], tables["operations"][0]["handle"]) == (1, None)


def test_a_thread_made_before_the_look_at_its_process(run: Run, window: SpoolBuilder) -> None:
    """The process is recorded, and so are those that it makes; the look tells its parent, and the maker is older."""
    window.fork(60_000, 0, 10, 11, 10, 10).fact_task(60_010, 10, 10, ppid=5, comm=b"ten")
    window.fork(60_020, 0, 12, 12, 10, 11).call(60_030, 0, 12, "read", EBADF, fd=3)
    tables = run(window)
    known = columns(tables, "pid", "tid", "ppid", "start_time_ns", table="tasks")
    assert sorted(known) == [(10, 10, 5, None), (10, 11, 5, 60_000), (12, 12, 10, 60_020)]
    assert columns(tables, "pid", "call") == [(12, "read")]


def test_a_gap_at_the_beginning_begins_with_the_window(run: Run, window: SpoolBuilder) -> None:
    """The time of a loss before its first record is unknown."""
    window.lost(60_000, 0, 5)
    assert columns(run(window), "begin_time_ns", "end_time_ns", table="losses") == [(START, 60_000)]
