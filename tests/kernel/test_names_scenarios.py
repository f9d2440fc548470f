"""The file of each call in every hard case: what the workload ``names`` knows, or unknown."""

from __future__ import annotations

import json
import subprocess
from collections import Counter
from typing import TYPE_CHECKING

import pytest
from workloads.names import Names, command, exact_paths, file_systems, read_truth, run, scenarios
from workloads.record import verified
from workloads.served import lo2io

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager
    from pathlib import Path
    from typing import Any

    Row = dict[str, Any]

pytestmark = pytest.mark.requires(
    *("root", "tracefs", "events", "gcc", "losetup", "mkfs.ext4", "mkfs.xfs", "mkfs.btrfs")
)

EVERY = "syscalls,open,metadata,socket,fdsource"
MODES = {
    "bpf": ("--backend", "bpf", "-e", "syscalls"),
    "perf": ("--backend", "perf", "--names", "kernel", "-e", "syscalls"),
    "every-call": ("--backend", "bpf", "-e", EVERY),
}
"""The calls recorded by default do not show where descriptors of pipes, sockets, memory ... come from."""
LEAST_RIGHT = 10_000
"""So many calls have a known file, whatever races leave open: every mode knows some."""
LONGEST = 4095
"""Bytes of the longest path argument, without the zero byte."""
NR_PATHS = 63
"""Paths of calls that return no descriptor, or fail, without the two longest ones and longer."""
COLD = frozenset([("ext4", "open_by_handle_at"), ("xfs", "open_by_handle_at")])
"""No look fell on these files' names: /proc shows the root of their disk."""


@pytest.fixture(scope="module")
def named(
    tmp_path_factory: pytest.TempPathFactory, awake: Callable[[], AbstractContextManager[None]]
) -> Callable[[str], Names]:
    """All scenarios in one recording of each mode, made when first asked for."""
    runs: dict[str, Names | None] = {}

    def recorded(mode: str) -> Names:
        if mode not in runs:
            runs[mode] = None
            with awake():
                runs[mode] = run(tmp_path_factory.mktemp(f"names-{mode}"), scenarios(), *MODES[mode])
        found = runs[mode]
        assert found is not None, f"recording {mode} has failed before"
        return found

    return recorded


def test_workload_is_right(tmp_path: Path) -> None:
    """The oracle itself, without lo2io: /proc showed the same file at that moment."""
    with file_systems(tmp_path) as disks:
        subprocess.run(command(tmp_path, disks, scenarios()), check=True)
    truth = read_truth(tmp_path)
    assert {row["scenario"] for row in truth} == set(scenarios())
    differing = []
    for row in truth:
        if not row["opens"] or row["result"] < 0 or row["link"] is None or (row["scenario"], row["call"]) in COLD:
            continue
        shown = {row["link"], row["link"].removesuffix(b" (deleted)")}
        inside = row["inside"] and any(name.endswith(row["link"]) for name in row["names"])
        if not inside and not shown & set(row["names"]):
            differing.append(f"{row['scenario']} {row['id']}: {row['names']}, /proc {row['link']!r}")
    assert not differing, "\n".join(differing)


@pytest.mark.parametrize("scenario", scenarios())
@pytest.mark.parametrize("mode", MODES)
def test_names(mode: str, scenario: str, named: Callable[[str], Names]) -> None:
    """Never a wrong name, inode, device or mount; none unknown that the kernel's own tables have."""
    verdict = named(mode).judge(scenario)
    assert not verdict.wrong, "\n".join(verdict.wrong)
    assert not verdict.missing, "\n".join(verdict.missing)


@pytest.mark.parametrize("mode", MODES)
def test_most_are_known(mode: str, named: Callable[[str], Names]) -> None:
    """Unknown is the exception: races, detached mounts, files without any name."""
    verdicts = [named(mode).judge(scenario) for scenario in scenarios()]
    assert sum(verdict.right for verdict in verdicts) > LEAST_RIGHT
    sources = {row["name_source"] for row in named(mode).handles.values() if row["file"] is not None and row["used"]}
    assert "kernel" in sources


def test_every_call_is_there(named: Callable[[str], Names]) -> None:
    """If all calls of the workload are recorded, each has its row; else the recorded ones have."""
    assert len(named("every-call").pairs) == len(named("every-call").truth)


@pytest.mark.parametrize("mode", MODES)
def test_unknown_is_counted(mode: str, named: Callable[[str], Names]) -> None:
    """A handle without a file has no name.

    The report has all calls on such handles, process by process, and no others.
    """
    names = named(mode)
    assert all((row["file"] is None) == (row["name_source"] == "unknown") for row in names.handles.values())
    without = [row for row in names.rows if row["handle"] is not None and names.name_of(row["handle"]) is None]
    of_process = Counter(row["pid"] for row in without)
    trace = names.recorded.trace.path
    told = lo2io("report", "--json", trace, check=True).stdout
    rows = [row for row in json.loads(told)["files"] if row["kind"] == "unnamed"]
    assert rows
    assert {row["pid"]: row["activity"]["calls"] for row in rows} == {
        row["pid"]: of_process[row["pid"]] for row in rows
    }


@pytest.mark.parametrize("mode", MODES)
def test_trace_is_by_the_rules(mode: str, named: Callable[[str], Names]) -> None:
    """Names with new lines, with bytes that are no text, of 12,000 bytes: verified, and read by otf2-print."""
    trace = named(mode).recorded.trace.path
    verified(trace)
    done = subprocess.run(["otf2-print", "-G", trace / "traces.otf2"], capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")


def test_generations(named: Callable[[str], Names]) -> None:
    """Files that had one inode number one after another differ by their generation."""
    names = named("bpf")
    seen: dict[int, set[int]] = {}
    for truth, row in names.pairs:
        _, file = names.file_of(truth, row)
        if truth["scenario"] == "again" and truth["opens"] and file:
            seen.setdefault(file["inode"], set()).add(file["generation"])
    assert sum(map(len, seen.values())) == 40


def _expected(truth: Row) -> list[tuple[int, bytes, bytes | None]]:
    """Place, path and directory of a call that has rows of paths: an open that succeeds has a file instead."""
    if truth["opens"] and truth["result"] >= 0:
        return []
    pairs = ((0, truth["given"], truth["directory"]), (1, truth["given2"], truth["directory2"]))
    return [(place, given, start) for place, given, start in pairs if given is not None]


def _paths(names: Names, lengths: range) -> tuple[int, list[str]]:
    """How many paths of these lengths are in the table, and where the table differs from the argument.

    A path that is too long has a row without text.
    """
    table = names.recorded.trace.table("paths")
    found: dict[int, dict[int, tuple[bytes | None, bytes | None]]] = {}
    texts = zip(exact_paths(table), exact_paths(table, "directory"), strict=True)
    for row, (path, directory) in zip(table.to_pylist(), texts, strict=True):
        found.setdefault(row["operation"], {})[row["place"]] = path, directory
    right, wrong = 0, []
    for truth, row in names.pairs:
        for place, given, start in _expected(truth):
            if len(given) not in lengths:
                continue
            path, directory = found.get(row["id"], {}).get(place, (b"no row", None))
            fits = path == given if len(given) <= LONGEST else path is None
            if not fits or (start is not None and not truth["inside"] and directory != start):
                told = f"{truth['scenario']} {truth['id']} {truth['call']} {place}: {given!r} from {start!r}"
                wrong.append(f"{told}: table {path!r} from {directory!r}")
            right += fits
    return right, wrong


def test_paths_of_calls(named: Callable[[str], Names]) -> None:
    """Each path is in the table byte by byte as the program passed it, with the directory at which it starts."""
    right, wrong = _paths(named("every-call"), range(LONGEST))
    assert not wrong, "\n".join(wrong)
    assert right == NR_PATHS


def test_longest_path(named: Callable[[str], Names]) -> None:
    """4,095 bytes are kept whole; 4,999, which the kernel refuses, give a row that says unknown."""
    assert _paths(named("every-call"), range(LONGEST, LONGEST + 1)) == (1, [])
    assert _paths(named("every-call"), range(LONGEST + 1, 1 << 16)) == (1, [])
