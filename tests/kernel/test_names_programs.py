"""Common programs: every successful open has strace's name, and no name is wrong."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest
from workloads.as_strace import OPENS, compare, read_log
from workloads.named_programs import CATS, PROGRAMS, copies, log_of, opened, script, steady
from workloads.names import Names
from workloads.record import record

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager
    from pathlib import Path

pytestmark = pytest.mark.requires("root", "tracefs", "events", "strace", "git", "gcc", "tar", "rsync")

BACKENDS = {"bpf": ("--backend", "bpf"), "perf": ("--backend", "perf", "--names", "kernel")}

RACED = re.compile(rb"FOLDER/copy/d\d+")
"""Files that rsync's generator opens again to correct the time, if its receiver was quicker to create files there."""


@dataclass(frozen=True)
class Recording:
    """All programs, each in its own folder."""

    names: Names
    places: dict[str, Path]


def _record(folder: Path, backend: str, *, traced: bool, attempts: int = 3) -> Recording:
    """If samples vanish, all is recorded again in new folders, for git, tar and rsync would find their work done."""
    for attempt in range(attempts):
        places = copies(folder / str(attempt))
        command = ["sh", "-c", f"{script(places, traced=traced)}; true"]
        try:
            run = record(folder / f"T{attempt}", command, *BACKENDS[backend], "-e", "syscalls", attempts=1)
        except AssertionError as error:
            if " vanished" not in str(error) or attempt + 1 == attempts:
                raise
        else:
            return Recording(Names(run, []), places)
    raise AssertionError


@pytest.fixture(scope="module")
def programs(
    tmp_path_factory: pytest.TempPathFactory, awake: Callable[[], AbstractContextManager[None]]
) -> Callable[..., Recording]:
    """The programs recorded with a back end, under strace or without; once each."""
    done: dict[tuple[str, bool], Recording | None] = {}

    def recorded(backend: str, *, traced: bool) -> Recording:
        if (backend, traced) not in done:
            done[backend, traced] = None
            with awake():
                done[backend, traced] = _record(tmp_path_factory.mktemp(f"programs-{backend}"), backend, traced=traced)
        found = done[backend, traced]
        assert found is not None, "recording has failed before"
        return found

    return recorded


@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("backend", BACKENDS)
def test_as_strace(backend: str, program: str, programs: Callable[..., Recording]) -> None:
    """One run, seen by both: all opens are named, all correct; all reads, writes and closes are on that file, too."""
    recording = programs(backend, traced=True)
    found = compare(recording.names, log_of(recording.places[program]))
    assert not found.differences, "\n".join(found.differences)
    assert not found.wrong, "\n".join(found.wrong)
    assert found.opens > 40
    assert found.named == found.opens
    assert found.used_unknown == 0


def test_as_fast_as_they_go(programs: Callable[..., Recording]) -> None:
    """Without strace, which slows them: the same files, opened equally often except for those of ``RACED``."""
    traced, free = programs("bpf", traced=True), programs("bpf", traced=False)
    expected: Counter[bytes | None] = Counter()
    for place in traced.places.values():
        calls = [seen for of_thread in read_log(log_of(place)).values() for seen in of_thread]
        expected += opened(calls, *traced.places.values())
    names = free.names
    shell = names.rows[0]["pid"]  # starts the programs, and is none of them
    rows = [row for row in names.rows if row["call"] in OPENS and row["result"] >= 0 and row["pid"] != shell]
    found = Counter(steady(names.name_of(row["handle"]), *free.places.values()) for row in rows)
    assert found.keys() == expected.keys()
    raced = [name for name in expected if name and RACED.fullmatch(name)]
    assert len(raced) == 20
    for name in raced:
        del found[name], expected[name]
    assert found == expected


@pytest.mark.parametrize("backend", BACKENDS)
def test_many_short_processes(backend: str, tmp_path: Path, awake: Callable[[], AbstractContextManager[None]]) -> None:
    """500 times cat, each a process of its own with a file of its own: no name is missing or another's."""
    for index in range(CATS):
        (tmp_path / f"f{index}").write_text(f"{index}\n")
    loop = f"for i in $(seq 0 {CATS - 1}); do cat f$i; done >all"
    with awake():
        run = record(tmp_path / "T", ["sh", "-c", loop], *BACKENDS[backend], "-e", "syscalls", cwd=tmp_path)
    names = Names(run, [])
    of_process: dict[int, list[bytes | None]] = defaultdict(list)
    for row in names.rows:
        if row["call"] in OPENS and row["result"] >= 0:
            of_process[row["pid"]].append(names.name_of(row["handle"]))
    own = re.compile(re.escape(bytes(tmp_path)) + rb"/f(\d+)")
    cats = [paths for paths in of_process.values() if any(own.fullmatch(path or b"?") for path in paths)]
    numbers = [int(match[1]) for paths in cats for path in paths if (match := own.fullmatch(path or b""))]
    assert numbers == list(range(CATS))
    others = {tuple(path for path in paths if not own.fullmatch(path or b"")) for paths in cats}
    assert len(others) == 1  # the file that the loader opens, always the same
    assert None not in next(iter(others))
