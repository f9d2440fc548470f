"""The table of paths: what calls were given, by the rules of docs/explanation/rules/names.md, in both back ends."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from build.filestory import Story
from build.kernelwriter import DELETED, MOVED, WHOLE
from reference.specs import SPECS

from lo2io.convert.engine import Engine
from lo2io.spool.reader import SpoolReader

if TYPE_CHECKING:
    from pathlib import Path

CUT = 16
KERNEL = 3


@pytest.fixture(name="story", params=["bpf", "perf"])
def story_of_a_process(request: pytest.FixtureRequest, tmp_path: Path) -> Story:
    """A spool in system mode with the process 10; tracepoints on from 50 µs."""
    story = Story(tmp_path / "spool", request.param)
    story.fact_task(1_000, 10, 10, ppid=1, comm=b"ten")
    return story


def read(story: Story, batch_rows: int = 8, **changes: Any) -> tuple[list[tuple[Any, ...]], dict[int, int]]:
    """The rows (place of the call among all, place, source, path, directory), and the batch of each call."""
    engine = Engine(SpoolReader(story.write(**changes)), SPECS, batch_rows=batch_rows)  # type: ignore[arg-type]
    found, calls = [], {}
    for number, batch in enumerate(engine.batches()):
        for identifier in batch.operations["id"].tolist():
            calls[identifier] = number
        columns = ("operation", "place", "source", "path_offset", "path_length", "directory_offset", "directory_length")
        for call, place, source, at, length, start, size in zip(
            *(batch.paths[column].tolist() for column in columns), strict=True
        ):
            order = list(calls).index(call)  # its row has come
            text = batch.text
            found.append((order, place, source, text[at : at + length], text[start : start + size]))
    return found, calls


def given(story: Story, t: int, path: bytes, directory: bytes = b"/home", tid: int = 10, **options: Any) -> Story:
    """A ``PATH`` of the moment."""
    story.kernel_path(t, tid % 2, tid, path, [name for name in directory.split(b"/")[::-1] if name], **options)
    return story


def leaves(story: Story, t: int) -> int:
    """When the programs look at a call that is left at ``t``: with perf before the sample."""
    return t - (story.backend == "perf")


def call(story: Story, t: int, name: str, ret: int = 0, *paths: tuple[bytes, dict[str, Any]], **args: int) -> Story:
    """A call of 4 ns and its paths."""
    if story.backend == "bpf":
        story.kernel_call(t, 0, 10, name, ret, duration=4, **args)
    else:
        story.enter(t, 0, 10, name, **args)
    for path, options in paths:
        given(story, leaves(story, t + 4), path, **options)
    if story.backend == "perf":
        story.exit(t + 4, 0, 10, name, ret)
    return story


def test_a_relative_path_and_where_it_starts(story: Story) -> None:
    """The same for a call that failed."""
    call(story, 60_000, "openat", -2, (b"sub/nope", {"directory": b"/home/me"}))
    assert read(story)[0] == [(0, 0, KERNEL, b"sub/nope", b"/home/me")]


def test_two_paths_of_a_call(story: Story) -> None:
    """rename(2) has two; an absolute path starts at the thread's root."""
    call(story, 60_000, "newfstat", 0, (b"a", {}), (b"/b", {"directory": b"", "place": 1}))
    assert read(story)[0] == [(0, 0, KERNEL, b"a", b"/home"), (0, 1, KERNEL, b"/b", b"/")]


@pytest.mark.parametrize("place", [0, 2, 255])
def test_a_path_that_no_call_can_have_is_not_decoded(story: Story, place: int) -> None:
    """The same place again, or a third one, as after damage."""
    call(story, 60_000, "newfstat", 0, (b"a", {}), (b"b", {"place": place}), (b"c", {"place": 1}))
    assert [row[:4] for row in read(story)[0]] == [(0, 0, KERNEL, b"a"), (0, 1, KERNEL, b"c")]


@pytest.mark.parametrize("path", [b"", b"new\nline", b"\xff\xfe", b"x" * 4095])
def test_paths_are_carried_whole(story: Story, path: bytes) -> None:
    """Bytes are bytes; an empty one means the directory itself."""
    call(story, 60_000, "newfstat", 0, (path, {}))
    assert read(story)[0] == [(0, 0, KERNEL, path, b"/home")]


@pytest.mark.parametrize(("flags", "directory"), [(0, b""), (WHOLE | MOVED, b""), (WHOLE | DELETED, b"/home")])
def test_a_directory_that_is_not_proven_is_not_told(story: Story, flags: int, directory: bytes) -> None:
    """The path is, all the same."""
    call(story, 60_000, "newfstat", 0, (b"x", {"flags": flags}))
    assert read(story)[0] == [(0, 0, KERNEL, b"x", directory)]


def test_half_a_path_is_none(story: Story) -> None:
    """The path could not be read whole."""
    call(story, 60_000, "newfstat", 0, (b"half", {"flags": WHOLE | CUT}))
    assert read(story)[0] == [(0, 0, 0, b"", b"/home")]


def test_a_path_that_is_read_before_its_call(story: Story) -> None:
    """For example of execve(2), whose memory is gone at the exit."""
    call(story, 60_000, "newfstat", 0, (b"before", {}))
    call(given(story, leaves(story, 60_010), b"/bin/true", b""), 60_010, "execve")
    assert read(story)[0] == [(0, 0, KERNEL, b"before", b"/home"), (1, 0, KERNEL, b"/bin/true", b"/")]


def test_a_path_of_a_call_that_never_returned(story: Story) -> None:
    """Told when it is known to be in flight."""
    given(story, leaves(story, 60_000), b"/bin/true", b"")
    story.begins(60_000, 10, "execve").task_exit(60_100, 0, 10, 10)
    assert read(story)[0] == [(0, 0, KERNEL, b"/bin/true", b"/")]


def test_a_path_whose_call_was_lost_is_nobodys(story: Story) -> None:
    """It is not the next call's."""
    given(story, 60_000, b"lost")
    call(story, 60_020, "newfstat", 0, (b"own", {}))
    assert read(story, facts_lost=1)[0] == [(0, 0, KERNEL, b"own", b"/home")]


@pytest.mark.parametrize("name", ["newfstat", "execve"])
def test_a_path_from_before_the_samples_is_nobodys(tmp_path: Path, name: str) -> None:
    """Programs begin to tell paths before perf's samples begin. Both kinds of calls have their own path alone."""
    story = Story(tmp_path / "spool", "perf")
    story.fact_task(1_000, 10, 10, ppid=1, comm=b"ten")
    given(given(given(story, 55_000, b"first"), 56_000, b"second"), 56_000, b"second's other", place=1)
    if name == "execve":
        call(given(story, 59_999, b"own"), 60_000, name)
    else:
        call(story, 60_000, name, 0, (b"own", {}))
    engine = Engine(SpoolReader(story.write()), SPECS)  # type: ignore[arg-type]
    assert [batch.paths["operation"].size for batch in engine.batches()] == [1]
    assert engine.totals.nr_undecoded == 0
    assert read(story)[0] == [(0, 0, KERNEL, b"own", b"/home")]


def test_a_call_without_a_path_of_its_own_gets_no_other(tmp_path: Path) -> None:
    """An open that succeeds has none. The path is of a call before perf's samples."""
    story = Story(tmp_path / "spool", "perf")
    story.fact_task(1_000, 10, 10, ppid=1, comm=b"ten")
    call(given(story, 55_000, b"another's"), 60_000, "openat", 3)
    assert read(story)[0] == []


def test_paths_of_threads_that_are_not_recorded_are_not_told(tmp_path: Path) -> None:
    """In process mode."""
    story = Story(tmp_path / "spool", "bpf", mode="process")
    story.fact_task(1_000, 10, 10, flags=1)
    given(story, 60_000, b"other", tid=12)
    assert read(call(story, 60_010, "newfstat"))[0] == []


def test_rows_come_with_their_calls(story: Story) -> None:
    """In the batch of the call or the next one, however small batches are."""
    for index in range(50):
        call(story, 60_000 + 10 * index, "newfstat", 0, (b"%d" % index, {}))
    found, calls = read(story)
    assert [(order, path) for order, _, _, path, _ in found] == [(index, b"%d" % index) for index in range(50)]
    assert len(set(calls.values())) > 5
