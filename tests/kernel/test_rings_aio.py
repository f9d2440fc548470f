"""Asynchronous I/O without io_uring: libaio's calls and requests, POSIX aio as its threads' calls."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest
from build.otf2_written import assert_rules, read_back
from workloads.build import build
from workloads.record import Recorded, lo2io, verified

from lo2io.trace.reader import open_trace

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from workloads.rings import Row, Run

pytestmark = pytest.mark.requires("root", "tracefs", "events", "gcc", "losetup")


def test_libaio(rings: Callable[[str], Run]) -> None:
    """Each io_submit and io_getevents is a batch on its context, with its arguments and results."""
    seen = rings("aio")
    told = seen.told("ring", "libaio")
    assert len(told) == 2
    for truth in told:
        row = seen.ring_rows[truth["instance"]]
        assert (row["kind"], row["fd"], row["pid"]) == ("libaio", None, truth["tid"])
        # io_setup leaves the context in user memory, so nothing tells which context has which of two sizes.
        assert (row["sq_entries"], row["create_time_ns"]) == (None, None)
        assert row["end_time_ns"] is not None
        batches = seen.batches(truth["instance"])
        assert row["nr_batches"] == len(batches)
        for said, batch, operation in batches:
            assert (operation["call"], operation["result"]) == (said["call"], said["result"])
            assert (batch["asked"], batch["wanted"]) == (said["asked"], said["wanted"])
            collects = "taken" in said
            returned = said["result"] if said["result"] >= 0 else None
            assert batch["submitted"] == (None if collects else returned)
            assert batch["collected"] == (returned if collects else None)
        submitted = sum(batch["submitted"] or 0 for _, batch, _ in batches)
        collected = sum(batch["collected"] or 0 for _, batch, _ in batches)
        assert submitted == collected == len([q for q in seen.told("request") if q["instance"] == truth["instance"]])
    calls = Counter(row["call"] for row in seen.recorded.operations())
    assert (calls["io_setup"], calls["io_destroy"]) == (3, 3)
    trace = seen.recorded.trace.path
    assert_rules(read_back(trace))
    verified(trace)


def requests_of(seen: Run, scenario: str) -> dict[int, tuple[Row, Row]]:
    """The program's account of each request, and its row, by the data that the program gave it."""
    if not seen.told_by_kernel:
        pytest.skip("recorded without programs in the kernel: nothing else shows what stands in the program's memory")
    told = {row["user_data"]: row for row in seen.told("request", scenario)}
    rings = {seen.ring_rows[row["instance"]]["ring"] for row in seen.told("ring", scenario)}
    rows = [row for row in seen.recorded.trace.ring_requests.to_pylist() if row["ring"] in rings]
    assert sorted(row["user_data"] for row in rows) == sorted(told)
    return {row["user_data"]: (told[row["user_data"]], row) for row in rows}


@pytest.mark.parametrize("scenario", ["libaio", "libaio-ends"])
def test_requests_of_libaio(rings: Callable[[str], Run], scenario: str) -> None:
    """Each request that an io_submit took, with what the program asked for and its result."""
    seen = rings("aio")
    for truth, row in requests_of(seen, scenario).values():
        result = truth.get("result", 0)
        moves = row["opcode"] in {"READ", "WRITE", "READV", "WRITEV"}
        assert (row["opcode"], row["fd"], row["tid"]) == (truth["opcode"], truth["fd"], truth["tid"]), truth
        assert (row["status"], row["result"], row["error"]) == (truth["status"], result, max(0, -result)), truth
        assert row["bytes_result"] == (result if moves and "result" in truth and result >= 0 else None), truth
        assert row["offset_bytes"] == (truth["offset"] if moves else None), truth
        assert row["bytes_request"] == (truth["length"] if row["opcode"] in {"READ", "WRITE"} else None), truth
        assert seen.paths[row["handle"]] == truth.get("file", seen.paths[row["handle"]]), truth
        assert row["ring"] == seen.ring_rows[truth["instance"]]["ring"]


def test_when_requests_of_libaio_begin_and_end(rings: Callable[[str], Run]) -> None:
    """They begin with their io_submit, and end with the call that returned their event; else there are bounds."""
    seen = rings("aio")
    pairs = requests_of(seen, "libaio") | requests_of(seen, "libaio-ends")
    trace = seen.recorded.trace
    iocbs = {row["request"]: row for row in trace.table("iocbs").to_pylist()}
    collecting = {row["id"] for row in trace.table("batches").to_pylist() if row["collected"]}
    ends = {seen.operations[number]["end_time_ns"] for number in collecting}
    submissions = sorted(
        (row["submit_time_ns"], iocbs[row["id"]]["iocb"], row["ring"], row["end_before_time_ns"])
        for _, row in pairs.values()
    )
    assert set(iocbs) == {row["id"] for _, row in pairs.values()}
    for truth, row in pairs.values():
        iocb = iocbs[row["id"]]
        assert row["submit_time_ns"] == seen.operations[iocb["operation"]]["begin_time_ns"]
        assert iocb["data"] == truth["user_data"]
        if row["status"] == "completed":
            assert row["complete_time_ns"] in ends
            assert (row["nr_completions"], row["end_before_time_ns"]) == (1, None)
            continue
        assert row["complete_time_ns"] is None
        if row["status"] == "unseen":
            later = [time for time, address, ring, _ in submissions if (address, ring) == (iocb["iocb"], row["ring"])]
            assert row["end_before_time_ns"] == min(time for time in later if time > row["submit_time_ns"])
        else:
            (ring,) = (each for each in seen.ring_rows.values() if each["ring"] == row["ring"])
            assert row["end_before_time_ns"] == ring["end_time_ns"]
    assert {row["status"] for _, row in pairs.values()} == {"completed", "unseen", "torn down"}
    assert all(row["nr_orphans"] == 0 for row in seen.ring_rows.values())


@pytest.mark.parametrize("way", [("--hook", "raw"), ("--hook", "single"), ("--backend", "perf")])
def test_requests_that_could_not_be_read_are_missing(tmp_path: Path, way: tuple[str, ...]) -> None:
    """The call tells how many requests the kernel took. Those without a row make the recording incomplete."""
    (tmp_path / "data").write_bytes(bytes(1 << 12))
    done = lo2io("record", "-o", tmp_path / "T", *way, "--", build("aio_untold"), tmp_path / "data")
    assert done.returncode == 0, done.stderr
    recorded = Recorded(open_trace(tmp_path / "T"), done.returncode, done.stdout, done.stderr)
    if not recorded.trace.metadata["kernel_facts"]:
        pytest.skip("recorded without programs in the kernel: nothing else shows what stands in the program's memory")
    took = [row["result"] for row in recorded.calls("io_submit")]
    rows = recorded.trace.rows("ring_requests")
    assert (took, list(map(int, recorded.stdout.split())), rows) == ([5000, 2], [5000, 2], 4096 + 1), done.stderr
    proof = recorded.trace.completeness
    assert (proof.untold_iocbs, proof.whole) == (904 + 1, False)
    assert "requests of libaio without a row: 905" in recorded.stderr


def test_posix_aio(rings: Callable[[str], Run]) -> None:
    """The C library's aio_read and aio_write are preads and pwrites of a thread of its own, and no ring."""
    seen = rings("aio")
    told = seen.told("request", "posix-aio")
    leader = told[0]["tid"]
    mine = [row for row in seen.recorded.calls("pread64", "pwrite64") if row["tid"] != leader]
    assert [(row["call"], row["fd"], row["result"]) for row in mine] == [
        ({"READ": "pread64", "WRITE": "pwrite64"}[row["opcode"]], row["fd"], row["result"]) for row in told
    ]
    libaio = seen.told("request", "libaio") + seen.told("request", "libaio-ends")
    assert seen.recorded.trace.rows("ring_requests") == (len(libaio) if seen.told_by_kernel else 0)
