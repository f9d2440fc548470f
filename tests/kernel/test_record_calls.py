"""Every core call of a program that keeps its own account is in the trace, correctly, and nothing else is."""

from __future__ import annotations

import sys
from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Any

import pytest
from workloads.build import DYNAMIC, STATIC, build
from workloads.record import Recorded, read_json_lines, record

from lo2io.catalog.catalog import load_catalog

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.requires("root", "tracefs", "events"), pytest.mark.usefixtures("busy_cpus")]

MARK_BEGIN, MARK_END = 0x10201, 0x10202
VECTORED = {"readv", "writev", "preadv", "pwritev", "preadv2", "pwritev2"}
INHERITED = 20
"""An fd that the program's children read and did not open."""


def bracketed(rows: list[dict[str, Any]]) -> dict[int, list[dict[str, Any]]]:
    """Per thread the calls between its markers; threads without markers have none."""
    inside: dict[int, bool] = defaultdict(bool)
    found: dict[int, list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        mark = row["offset_bytes"] if row["call"] == "lseek" and row["fd"] == -1 else None
        if mark in {MARK_BEGIN, MARK_END}:
            assert inside[row["tid"]] == (mark == MARK_END)
            inside[row["tid"]] = mark == MARK_BEGIN
        elif inside[row["tid"]]:
            found[row["tid"]].append(row)
    return found


def facts(row: dict[str, Any]) -> tuple[Any, ...]:
    """Facts of the trace in the program's own terms: call, fd, requested bytes, result."""
    return (row["call"], row["fd"], row["bytes_request"], row["result"])


def truth(line: dict[str, Any], row: dict[str, Any]) -> tuple[Any, ...]:
    """The same of the ground truth. It lacks bytes of vectors: these are the results, or unknown."""
    asked = line["requested"]
    if line["call"] in VECTORED and row["bytes_request"] is not None:
        asked = max(line["result"], row["bytes_request"])
    return (line["call"], line["fd"], asked, line["result"])


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(DYNAMIC, id="dynamic", marks=pytest.mark.requires("gcc")),
        pytest.param(STATIC, id="static", marks=pytest.mark.requires("musl-gcc")),
    ],
)
def compiler(request: pytest.FixtureRequest) -> tuple[str, ...]:
    """A dynamic program, and one that shares no library with anything."""
    return tuple(request.param)


@pytest.fixture(scope="module")
def runs() -> dict[tuple[str, ...], tuple[Recorded, list[dict[str, Any]]]]:
    """Recordings that exist already: one per compiler suffices."""
    return {}


@pytest.fixture
def run(
    compiler: tuple[str, ...],
    runs: dict[tuple[str, ...], tuple[Recorded, list[dict[str, Any]]]],
    tmp_path_factory: pytest.TempPathFactory,
) -> tuple[Recorded, list[dict[str, Any]]]:
    """The recorded program, and its own account."""
    if compiler not in runs:
        folder = tmp_path_factory.mktemp("calls")
        (folder / "in").write_bytes(bytes(64))
        (folder / "work").mkdir()
        command = [build("calls", compiler), folder / "work", folder / "log"]
        recorded = record(folder / "T", command, "-e", "syscalls", stdin=folder / "in")
        runs[compiler] = recorded, read_json_lines(recorded.stdout)
    return runs[compiler]


def test_every_call_in_order(run: tuple[Recorded, list[dict[str, Any]]]) -> None:
    """Thread by thread the table of operations is the program's own account, call by call."""
    recorded, lines = run
    expected: dict[int, list[dict[str, Any]]] = defaultdict(list)
    for line in lines:
        expected[line["tid"]].append(line)
    found = bracketed(recorded.operations())
    assert sorted(found) == sorted(expected)
    for tid, of_thread in expected.items():
        assert [facts(row) for row in found[tid]] == [truth(*pair) for pair in zip(of_thread, found[tid], strict=True)]


def test_errors_and_bytes(run: tuple[Recorded, list[dict[str, Any]]]) -> None:
    """A failed call has its errno and moved no bytes. A successful one moved what it returned, if it moves bytes."""
    recorded, _ = run
    rows = recorded.operations()
    assert {row["error"] for row in rows} >= {0, 2, 9, 17, 20, 21, 22, 29}
    for row in rows:
        assert row["error"] == max(0, -row["result"]) if row["result"] > -4096 else row["error"] == 0
        moves = row["call"] in {"read", "write", "pread64", "pwrite64", "readv", "writev", "preadv", "pwritev"}
        if moves or row["call"] in {"preadv2", "pwritev2", "sendfile", "copy_file_range", "splice"}:
            assert row["bytes_result"] == (row["result"] if row["result"] >= 0 else None)
        else:
            assert row["bytes_result"] is None


def test_offsets(run: tuple[Recorded, list[dict[str, Any]]]) -> None:
    """Offsets are true: given for p-calls, followed for others; unknown only if they must be."""
    recorded, lines = run
    found = bracketed(recorded.operations())
    position: Counter[int] = Counter()
    wrong = []
    for line in lines:
        row = found[line["tid"]][position[line["tid"]]]
        position[line["tid"]] += 1
        known = row["offset_bytes"] is not None
        if (known or line["known"]) and row["offset_bytes"] != line["offset"]:
            wrong.append(f"{line} stands as {row['offset_bytes']}, {row['offset_source']}")
    assert not wrong, "\n".join(wrong)


def test_names_are_never_wrong(run: tuple[Recorded, list[dict[str, Any]]]) -> None:
    """A handle's name is that of the program's file, or unknown; stdin's, open at the start, is known."""
    recorded, lines = run
    found = bracketed(recorded.operations())
    position: Counter[int] = Counter()
    for line in lines:
        row = found[line["tid"]][position[line["tid"]]]
        position[line["tid"]] += 1
        names = {"path": line["path"], "path2": line["path2"]}
        if line["call"] in {"open", "openat", "openat2", "creat"}:
            assert {row["path"], row["path2"]} <= {line["path"], None}
            continue
        if line["call"] in {"dup", "dup2", "dup3", "fcntl"}:
            names["path2"] = line["path"]
        for column, path in names.items():
            if row[column] is not None and not (path in {"pipe", "socket"} and row[column].startswith(f"{path}:")):
                assert (row["call"], row["fd"], row[column]) == (row["call"], row["fd"], path)
    stdin = [row for row in recorded.calls("read") if row["fd"] == 0]
    assert [row["path"] for row in stdin] == [lines[0]["path"]] * 2


def test_handles(run: tuple[Recorded, list[dict[str, Any]]]) -> None:
    """One handle per life of an fd; all that share a position share a description, over dup, fork and exec."""
    recorded, lines = run
    handles = {row["handle"]: row for row in recorded.trace.handles.to_pylist()}
    found = bracketed(recorded.operations())
    reads = [row for rows in found.values() for row in rows if row["call"] == "read" and row["fd"] == INHERITED]
    good = [row for row in reads if row["error"] == 0]
    assert len(good) == sum(line["call"] == "read" and line["fd"] == INHERITED and line["result"] > 0 for line in lines)
    assert len({handles[row["handle"]]["description"] for row in good}) == 1
    assert {handles[row["handle"]]["origin"] for row in good} >= {"duplicated", "inherited"}
    main = found[lines[0]["tid"]]
    writes = [row for row in main if row["call"] == "write" and row["fd"] == 3 and row["bytes_request"] in {1, 2}]
    assert len({row["handle"] for row in writes if row["error"] == 0}) == sum(row["error"] == 0 for row in writes)
    assert all(row["handle"] is None for row in main if row["error"] == 9 and row["call"] == "read" and row["fd"] > 400)


APPENDS = """
import os, sys
fd = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)
os.write(fd, b"." * 1000)
os.pwritev(fd, [b"a" * 7], 100, os.RWF_APPEND)
os.pwritev(fd, [b"b" * 8], 200)
os.pwritev(fd, [b"c" * 9], -1, os.RWF_APPEND)
os.write(fd, b"d" * 10)
"""


@pytest.mark.parametrize("names", ["kernel", "proc"])
def test_writes_that_append_by_their_own_flags(tmp_path: Path, names: str) -> None:
    """The file tells where the bytes of each write lie: the offset is that place, or unknown."""
    file = tmp_path / "file"
    recorded = record(tmp_path / "T", [sys.executable, "-c", APPENDS, file], "--names", names)
    written = [row for row in recorded.calls("pwritev", "pwritev2", "write") if row["fd"] > 2]
    places = [file.read_bytes().index(letter) for letter in (b".", b"a", b"b", b"c", b"d")]
    assert [row["result"] for row in written] == [1000, 7, 8, 9, 10]
    found = [row["offset_bytes"] for row in written]
    assert [places[at] if offset is None else offset for at, offset in enumerate(found)] == places
    assert found[1] is None
    assert found[2] == places[2] == 200
    assert (found[3:] == places[3:]) == (names == "kernel")  # only programs read the position


def test_every_core_call_is_made(run: tuple[Recorded, list[dict[str, Any]]]) -> None:
    """The workload makes every default call; a new call in the catalog must be added to it.

    The workload ``rings`` makes those of rings.
    """
    _, lines = run
    core = {call.abi_name for call in load_catalog().calls if call.core and call.group not in {"aio", "io_uring"}}
    bookkeeping = {"clone", "clone3", "fork", "vfork", "unshare", "execve", "execveat"}
    assert core - {line["call"] for line in lines} <= bookkeeping
