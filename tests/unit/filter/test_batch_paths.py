"""Filters by the paths that calls were given: what has no handle, and which rows of paths stay."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from build.filestory import Story, returned
from build.kernelwriter import WHOLE
from reference.specs import SPECS

from lo2io.convert.engine import BatchStream, Engine
from lo2io.filter.batches import FilteredStream, find_passing
from lo2io.filter.parser import parse
from lo2io.filter.rows import Criteria, whole_path
from lo2io.spool.reader import SpoolReader

if TYPE_CHECKING:
    from pathlib import Path

CUT = 16


@pytest.fixture(name="spool")
def spool_of_calls(tmp_path: Path) -> Path:
    """An open that succeeds through a link, one that fails, one of two paths, one of a path nobody could read."""
    story = Story(tmp_path / "spool", "bpf")
    story.fact_task(1_000, 10, 10)
    story.does(60_000, 10, "openat", 3, returned(3, b"/data/file"))
    story.kernel_path(60_004, 0, 10, b"/link", [])
    story.does(60_010, 10, "openat", -2)
    story.kernel_path(60_014, 0, 10, b"nope", [b"me", b"home"])
    story.does(60_020, 10, "openat2", -13)
    story.kernel_path(60_024, 0, 10, b"old", [b"me", b"home"]).kernel_path(60_024, 0, 10, b"/data/new", [], place=1)
    story.does(60_030, 10, "openat", -2).kernel_path(60_034, 0, 10, b"x", [b"home"], flags=WHOLE | CUT)
    story.does(60_040, 10, "sync")
    return story.write()


def passing(spool: Path, text: str, batch_rows: int) -> tuple[list[int], list[tuple[int, str]]]:
    """The calls that pass, by their times, and the paths that stay, with the times of their calls."""
    meta = SpoolReader(spool).meta

    def streams() -> BatchStream:
        return BatchStream(Engine(SpoolReader(spool), SPECS, batch_rows=batch_rows), 1)  # type: ignore[arg-type]

    what = find_passing(streams, Criteria(parse(text)), meta, SPECS.calls)
    times: dict[int, int] = {}
    paths = []
    with FilteredStream(streams(), what) as stream:
        for batch in stream:
            ids, begins = (batch.operations[name].tolist() for name in ("id", "begin_time_ns"))
            times |= dict(zip(ids, begins, strict=True))
            columns = (batch.paths[name].tolist() for name in ("operation", "path_offset", "path_length"))
            paths += [
                (times[call], batch.text[at : at + size].decode()) for call, at, size in zip(*columns, strict=True)
            ]
            assert batch.native.nr_paths == len(batch.paths["operation"])
            stream.release(batch)
    return list(times.values()), paths


@pytest.mark.parametrize("batch_rows", [8, 4096])
@pytest.mark.parametrize(
    ("text", "calls"),
    [
        ("path ~ /home/**", [60_010, 60_020]),
        ("path ~ /data/**", [60_000, 60_020]),
        ("path == /home/me/nope", [60_010]),
        ("path ~ /link", []),
        ("path !~ /home/**", [60_000]),
        ("operation == openat", [60_000, 60_010, 60_030]),
    ],
)
def test_calls_without_a_handle_go_by_the_paths_they_were_given(
    spool: Path, text: str, calls: list[int], batch_rows: int
) -> None:
    """Those with one go by their file's; an unknown path matches nothing."""
    found, paths = passing(spool, text, batch_rows)
    assert found == calls
    given = {60_000: ["/link"], 60_010: ["nope"], 60_020: ["old", "/data/new"], 60_030: [""]}
    assert paths == [(call, path) for call in calls for path in given[call]]


@pytest.mark.parametrize(
    ("directory", "path", "whole"),
    [("/", "/x", "/x"), ("/", "x", "/x"), ("/a", "b/c", "/a/b/c"), ("/root", "/etc", "/root/etc"), ("/a", "", "/a")],
)
def test_a_path_stands_behind_its_directory(directory: str, path: str, whole: str) -> None:
    """After an absolute one's, the thread's root."""
    assert whole_path(directory, path) == whole
