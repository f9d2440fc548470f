"""Asynchronous I/O without io_uring: libaio's calls as batches on its contexts, POSIX aio as its threads' calls."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest
from otf2_written import assert_rules, read_back
from workloads.record import verified

if TYPE_CHECKING:
    from collections.abc import Callable

    from workloads.rings import Run

pytestmark = pytest.mark.requires("root", "tracefs", "events", "gcc", "losetup")


def test_libaio(rings: Callable[[str], Run]) -> None:
    """Each io_submit and io_getevents is a batch on its context, with what was asked for and what came."""
    seen = rings("aio")
    told = seen.told("ring")
    assert len(told) == 2
    for truth in told:
        row = seen.ring_rows[truth["instance"]]
        assert (row["kind"], row["fd"], row["pid"]) == ("libaio", None, truth["tid"])
        # io_setup leaves the context in user memory: which of two sizes is which one's is not known.
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
    assert (calls["io_setup"], calls["io_destroy"]) == (2, 2)
    trace = seen.recorded.trace.path
    assert_rules(read_back(trace))
    verified(trace)


def test_requests_of_libaio(rings: Callable[[str], Run]) -> None:
    """Each io_submit has a row for each request that it took, which says what stands in the program's iocb."""
    seen = rings("aio")
    if not seen.told_by_kernel:
        pytest.skip("recorded without programs in the kernel: nothing else shows what stands in the program's memory")
    trace = seen.recorded.trace
    rows = trace.table("iocbs").to_pylist()
    batches = {row["id"]: row for row in trace.table("batches").to_pylist()}
    assert Counter(row["operation"] for row in rows) == {
        number: row["submitted"] for number, row in batches.items() if row["submitted"]
    }
    told = {row["user_data"]: row for row in seen.told("request", "libaio")}
    assert [row["data"] for row in rows] == sorted(told)
    instances = {row["ring"]: instance for instance, row in seen.ring_rows.items()}
    for row in rows:
        truth = told[row["data"]]
        assert truth["instance"] == instances[batches[row["operation"]]["ring"]]
        assert row["opcode"] == {"READ": "PREAD", "WRITE": "PWRITE"}[truth["opcode"]]
        assert (row["fd"], row["offset_bytes"], row["bytes_request"]) == (truth["fd"], truth["offset"], truth["length"])
        assert seen.paths[row["handle"]] == truth["file"]


def test_posix_aio(rings: Callable[[str], Run]) -> None:
    """The C library's aio_read and aio_write are preads and pwrites of a thread of its own, and no ring."""
    seen = rings("aio")
    told = seen.told("request", "posix-aio")
    leader = told[0]["tid"]
    mine = [row for row in seen.recorded.calls("pread64", "pwrite64") if row["tid"] != leader]
    assert [(row["call"], row["fd"], row["result"]) for row in mine] == [
        ({"READ": "pread64", "WRITE": "pwrite64"}[row["opcode"]], row["fd"], row["result"]) for row in told
    ]
    assert seen.recorded.trace.rows("ring_requests") == 0
