"""``verify`` on rings: requests as operations, workers as regions, metrics, and the tables beside the trace."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any
from unittest.mock import Mock

import pytest
from build.otf2_builder import BLOCKING, NON_BLOCKING, NONE64, START, Breakage, Trace, begin, complete
from build.otf2_rings import (
    BLOCK,
    CALL,
    CANCELLED,
    CAUSE,
    CULPRIT,
    ENTER,
    FILL,
    INLINE,
    LOAD,
    METRICS,
    PATH,
    PREVIOUS,
    RING,
    STATUS,
    WORK,
    WORKED,
    WORKER,
    RingTrace,
    counted,
    number,
    rings,
    string,
)
from lo2io.native._lib import lib

from lo2io.model import RingPath, RingStatus
from lo2io.verify import verify
from lo2io.verify.rings import PATHS, STATUSES, RingRules, path_problem

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

breaks = Breakage()
NOBODY = 99
"""No request, and no row of any table."""


def place_of(trace: Trace, event: str, ident: int) -> int:
    """The place of a request's event on its location."""
    return next(
        place
        for place, found in enumerate(trace.events[0])
        if found[0] == f"IoOperation{event}" and [value for value in found if not isinstance(value, dict)][-1] == ident
    )


def add_attribute(trace: Trace, event: str, ident: int, attributes: dict[int, Any]) -> None:
    """Give an event of a request attributes, others stay."""
    place = place_of(trace, event, ident)
    found = trace.events[0][place]
    before = found[-1] if isinstance(found[-1], dict) else {}
    bare = found[:-1] if before else found
    trace.events[0][place] = (*bare, before | attributes)


# ---- events ----


def test_what_carries_no_data_is_a_row_and_no_operation(tmp_path: Path) -> None:
    """A NOP and an OPENAT do not count; an operation without a row does."""
    for opcode, broken in ((0, {}), (18, {}), (22, {"count.rings": 1})):
        trace = rings()
        trace.tables["ring_requests"].append({"id": 24, "ring": 0, "opcode": opcode, "status": 1})
        folder = tmp_path / str(opcode)
        folder.mkdir()
        assert verify(trace.write(folder)).broken == broken


@breaks("ring.blocking")
def _blocking_request(trace: RingTrace) -> None:
    trace.events[0][place_of(trace, "Begin", INLINE)] = begin(START + 400, RING, INLINE, flags=BLOCKING, size=NONE64)
    del trace.events[0][place_of(trace, "Issued", INLINE)]


@breaks("ring.elsewhere")
def _completed_by_the_worker(trace: RingTrace) -> None:
    event = trace.events[0].pop(place_of(trace, "Complete", WORKED))
    trace.events[WORKER].append(event)


@breaks("ring.cancelled")
def _cancelled_but_completed(trace: RingTrace) -> None:
    del trace.events[0][place_of(trace, "Cancelled", CANCELLED)][-1][STATUS]
    trace.events[0][place_of(trace, "Cancelled", CANCELLED)][-1][PATH] = string(trace, "worker")


@breaks("ring.cancelled")
def _completed_but_cancelled(trace: RingTrace) -> None:
    add_attribute(trace, "Complete", WORKED, {STATUS: string(trace, "cancelled")})


@breaks("ring.path")
def _refused_and_completed(trace: RingTrace) -> None:
    add_attribute(trace, "Complete", INLINE, {PATH: string(trace, "refused")})


@breaks("ring.path")
def _cancelled_before_and_silent(trace: RingTrace) -> None:
    attributes = {PATH: string(trace, "cancelled"), STATUS: string(trace, "silent")}
    add_attribute(trace, "Complete", INLINE, attributes)


@breaks("ring.path")
def _a_way_nobody_knows(trace: RingTrace) -> None:
    add_attribute(trace, "Complete", INLINE, {PATH: string(trace, "host")})


@breaks("ring.reference")
def _linked_behind_nothing(trace: RingTrace) -> None:
    add_attribute(trace, "Begin", WORKED, {PREVIOUS: number(NOBODY)})


@breaks("ring.reference")
def _failed_by_nothing(trace: RingTrace) -> None:
    add_attribute(trace, "Cancelled", CANCELLED, {CULPRIT: number(NOBODY)})


@breaks("ring.reference")
def _work_for_nothing(trace: RingTrace) -> None:
    trace.events[WORKER][0] = ("Enter", START + 420, WORK, {CAUSE: number(NOBODY)})


@breaks("ring.reference")
def _caused_by_nothing(trace: RingTrace) -> None:
    trace.events[2][0] = (*trace.events[2][0], {CAUSE: number(NOBODY)})


@breaks("ring.worker")
def _work_inside_work(trace: RingTrace) -> None:
    trace.events[WORKER][1:1] = [("Enter", START + 430, 0), ("Leave", START + 440, 0)]


@breaks("ring.worker")
def _work_inside_a_call(trace: RingTrace) -> None:
    trace.events[WORKER].insert(0, ("Enter", START + 410, ENTER))
    trace.events[WORKER].append(("Leave", START + 460, ENTER))


# ---- tables ----


@breaks("ring.path")
def _refused_in_the_table(trace: RingTrace) -> None:
    trace.row("ring_requests")["status"] = 3


@breaks("ring.path")
def _worker_without_a_punt(trace: RingTrace) -> None:
    trace.row("ring_requests")["path"] = 4


@breaks("ring.path")
def _punt_without_a_worker(trace: RingTrace) -> None:
    trace.row("ring_requests")["nr_punts"] = 1


@breaks("ring.path")
def _poll_without_an_arm(trace: RingTrace) -> None:
    trace.row("ring_requests")["path"] = 3


@breaks("ring.path")
def _cancelled_without_the_error(trace: RingTrace) -> None:
    trace.row("ring_requests", 2)["error"] = 5


@breaks("ring.path")
def _completed_with_the_error(trace: RingTrace) -> None:
    trace.row("ring_requests")["error"] = 125


@breaks("ring.path")
def _completed_without_completion(trace: RingTrace) -> None:
    trace.row("ring_requests")["nr_completions"] = 0


@breaks("ring.phases")
def _phases_too_short(trace: RingTrace) -> None:
    trace.row("ring_requests", 1)["executing_ns"] = 29


@breaks("ring.phases")
def _phase_below_zero(trace: RingTrace) -> None:
    trace.row("ring_requests", 1).update({"executing_ns": 31, "waiting_ns": -1})


@breaks("ring.phases")
def _executed_before_submitted(trace: RingTrace) -> None:
    trace.row("ring_requests", 1)["issue_time_ns"] = START + 399


@breaks("ring.phases")
def _completed_before_executed(trace: RingTrace) -> None:
    trace.row("ring_requests", 1)["issue_time_ns"] = START + 451


@breaks("ring.worker")
def _work_ends_first(trace: RingTrace) -> None:
    trace.row("ring_works").update({"begin_time_ns": START + 450, "end_time_ns": START + 420})


@breaks("ring.worker")
def _work_before_it_was_given(trace: RingTrace) -> None:
    trace.row("ring_works")["queue_time_ns"] = START + 421


@breaks("ring.worker")
def _two_works_at_once(trace: RingTrace) -> None:
    trace.tables["ring_works"].append(trace.row("ring_works") | {"begin_time_ns": START + 440})
    trace.events[WORKER] += [("Enter", START + 450, WORK), ("Leave", START + 450, WORK)]


@breaks("ring.state")
def _last_load_differs(trace: RingTrace) -> None:
    trace.events[METRICS][-2] = counted(START + 460, LOAD, 0, 1, 1)


@breaks("ring.state")
def _last_fill_differs(trace: RingTrace) -> None:
    trace.row("ring_states", 1)["cq_most"] = 4


@breaks("count.rings")
def _row_without_an_operation(trace: RingTrace) -> None:
    trace.tables["ring_requests"].append(trace.row("ring_requests") | {"id": 23})


@breaks("count.rings")
def _operation_without_a_row(trace: RingTrace) -> None:
    trace.events[0] += [
        begin(START + 470, RING, 24, flags=NON_BLOCKING, size=NONE64),
        ("IoOperationIssued", START + 470, RING, 24),
        complete(START + 470, RING, 24),
    ]


@breaks("count.rings")
def _work_without_a_row(trace: RingTrace) -> None:
    trace.events[WORKER] += [("Enter", START + 450, WORK), ("Leave", START + 450, WORK)]


@breaks("count.rings")
def _batch_without_attributes(trace: RingTrace) -> None:
    place = next(place for place, event in enumerate(trace.events[0]) if event[0] == "Leave" and event[2] == ENTER)
    trace.events[0][place] = trace.events[0][place][:3]


@breaks("count.rings")
def _one_metric_too_few(trace: RingTrace) -> None:
    del trace.events[METRICS][0]


@breaks("count.rings")
def _metrics_without_rows(trace: RingTrace) -> None:
    trace.tables["ring_states"][0] |= {"cq_least": 2**32 - 1}


@breaks("table.id-again")
def _id_of_a_block_request(trace: RingTrace) -> None:
    trace.row("requests")["id"] = INLINE


@breaks("table.id-again")
def _second_id_of_a_copy(trace: RingTrace) -> None:
    trace.tables["operations"].append({"id": 4, "begin_time_ns": START, "end_time_ns": START})


@breaks("table.id-again")
def _same_id_in_one_table(trace: RingTrace) -> None:
    trace.tables["operations"] += [{"id": 7, "begin_time_ns": START, "end_time_ns": START}] * 2


for _table, _column in (
    *(("ring_requests", name) for name in ("ring", "task", "worker", "waker", "handle", "handle2")),
    *(("ring_requests", name) for name in ("previous", "culprit")),
    *(("ring_works", name) for name in ("ring", "task", "id")),
    *(("batches", "ring"), ("rings", "task"), ("rings", "poller"), ("rings", "handle")),
    ("requests", "ring_request"),
):

    def _refer(trace: RingTrace, table: str = _table, column: str = _column) -> None:
        place = 1 if column == "worker" else 0
        trace.row(table, place)[column] = NOBODY

    _refer.__name__ = f"_{_table}_{_column}"
    breaks.changes.append(("table.reference", _refer))


@breaks("table.reference")
def _batch_of_no_call(trace: RingTrace) -> None:
    trace.tables["batches"].append({"id": NOBODY, "ring": 0})


@breaks("table.iocb")
def _request_that_its_call_did_not_take(trace: RingTrace) -> None:
    trace.tables["iocbs"].append({"operation": CALL, "place": 3})


@breaks("table.iocb")
def _gap_among_the_requests_of_a_call(trace: RingTrace) -> None:
    del trace.tables["iocbs"][1]


@breaks("table.iocb")
def _request_of_a_call_that_took_none(trace: RingTrace) -> None:
    trace.tables["iocbs"].append({"operation": 5, "place": 0})


@breaks("table.reference")
def _request_of_libaio_on_no_handle(trace: RingTrace) -> None:
    trace.row("iocbs")["handle"] = NOBODY


@breaks("table.reference")
def _iocb_of_no_request(trace: RingTrace) -> None:
    trace.row("iocbs")["request"] = NOBODY


@pytest.mark.parametrize(("rule", "change"), breaks.changes, ids=breaks.ids)
def test_broken_in_exactly_one_way(rule: str, change: Callable[[Any], object], tmp_path: Path) -> None:
    """Only that rule is reported."""
    breaks.check(rule, change, rings(), tmp_path / "T")


def test_the_right_one(tmp_path: Path) -> None:
    """Nothing is reported, with the tables or without."""
    assert not verify(rings().write(tmp_path / "T")).broken
    bare = rings()
    bare.tables = {}
    assert not verify(bare.write(tmp_path / "bare")).broken


def test_states_of_a_ring_nobody_has(tmp_path: Path) -> None:
    """A row that refers to no ring is said, and that the trace has no metrics of it."""
    trace = rings()
    trace.row("ring_states")["ring"] = NOBODY
    assert set(verify(trace.write(tmp_path / "T")).broken) == {"table.reference", "count.rings"}


@pytest.mark.parametrize("left_out", [{"filter": "pid == 10"}, {"sample_rate": 100}])
def test_requests_that_were_left_out_may_be_named(left_out: dict[str, Any], tmp_path: Path) -> None:
    """By a filter, or by sampling: predecessors, culprits and causes are not looked for; everything else is."""
    trace = rings()
    name = {"filter": "FILTER", "sample_rate": "IO_URING_SAMPLE_RATE"}[next(iter(left_out))]
    trace.properties, trace.meta = {f"LO2IO::{name}": "x"}, left_out
    trace.row("ring_requests", 1)["previous"] = NOBODY
    trace.row("ring_requests", 2)["culprit"] = NOBODY
    trace.row("requests")["ring_request"] = NOBODY
    add_attribute(trace, "Begin", WORKED, {PREVIOUS: number(NOBODY)})
    add_attribute(trace, "Cancelled", CANCELLED, {CULPRIT: number(NOBODY)})
    trace.events[2][0] = (*trace.events[2][0], {CAUSE: number(NOBODY)})
    assert not verify(trace.write(tmp_path / "T")).broken
    trace.row("ring_works")["id"] = NOBODY
    assert set(verify(trace.write(tmp_path / "more")).broken) == {"table.reference"}


def test_a_request_may_be_named_before_it_begins(tmp_path: Path) -> None:
    """The culprit of a chain may be its last member; only what never comes is missing."""
    trace = rings()
    add_attribute(trace, "Begin", INLINE, {PREVIOUS: number(CANCELLED)})
    assert not verify(trace.write(tmp_path / "T")).broken


def test_phases_that_are_not_known(tmp_path: Path) -> None:
    """They add up to nothing: for requests older than the trace, and for those that have not ended."""
    trace = rings()
    trace.row("ring_requests", 0).update({"traits": 1024, "queued_ns": -(2**63)})
    del trace.row("ring_requests", 1)["waiting_ns"]
    assert not verify(trace.write(tmp_path / "T")).broken


def test_unknown_fill_has_no_metric(tmp_path: Path) -> None:
    """A row without it has one metric less."""
    trace = rings()
    trace.row("ring_states", 1).update({"cq_least": 2**32 - 1, "cq_most": 2**32 - 1})
    trace.events[METRICS] = [event for event in trace.events[METRICS] if event[1:3] != (START + 460, FILL)]
    assert not verify(trace.write(tmp_path / "T")).broken


def test_tables_of_earlier_versions(tmp_path: Path) -> None:
    """They have no rings, so nothing is compared."""
    path = rings().write(tmp_path / "T")
    file = path / "lo2io" / "metadata.json"
    metadata = json.loads(file.read_text())
    metadata["tables"] = {name: rows for name, rows in metadata["tables"].items() if "ring" not in name}
    file.write_text(json.dumps(metadata))
    (path / "lo2io" / "ring_requests.arrow").unlink()
    assert not verify(path).broken


def test_every_place_is_told(tmp_path: Path) -> None:
    """Location, time and ordinal of an event; the row of a table by its id."""
    trace = rings()
    add_attribute(trace, "Cancelled", CANCELLED, {CULPRIT: number(NOBODY)})
    trace.row("requests")["ring_request"] = NOBODY
    at_event, at_row = verify(trace.write(tmp_path / "T")).findings
    assert (at_event.location, at_event.time) == (0, START + 460)
    assert at_event.event == len(trace.events[0]) - 1
    assert str(NOBODY) in at_event.text
    assert f"requests {BLOCK}: ring_request {NOBODY}" in at_row.text


def test_ways_and_ends() -> None:
    """The words are those of the model, and each way allows the ends that design.md gives it."""
    assert tuple(path.name.lower() for path in RingPath) == PATHS
    assert tuple(status.name.lower().replace("_", " ") for status in RingStatus) == STATUSES
    possible = {path: {status for status in STATUSES if not path_problem(path, status)} for path in PATHS}
    every = set(STATUSES) - {"refused"}
    assert possible == dict.fromkeys(PATHS, every) | {"refused": {"refused"}, "cancelled": {"cancelled"}}


@pytest.mark.parametrize("cancelled", [False, True])
def test_an_end_fits_status_and_path(cancelled: bool) -> None:
    """As `ends_right` is asked of events one at a time. Without a status a request has been completed."""
    rule = RingRules.__new__(RingRules)
    rule._definitions = Mock(text=lambda ref: ("cancelled", "completed", "worker", "refused")[ref])
    fits = {
        (status, path): rule.ends_right(status, path, cancelled=cancelled) for status in (0, 1) for path in (None, 2, 3)
    }
    assert fits[0, None] is fits[0, 2] is cancelled
    assert fits[1, None] is fits[1, 2] is not cancelled
    assert fits[1, 3] is False
    assert rule.ends_right(None, None, cancelled=cancelled) is not cancelled


@pytest.mark.parametrize(
    ("row", "changes", "is_right"),
    [
        (0, {"path": 3, "nr_polls": 1}, True),
        (0, {"path": 3, "nr_polls": 0, "traits": lib.LO2_TRAIT_OLDER}, True),
        (0, {"path": 3, "nr_polls": 0}, False),
        (2, {"nr_completions": 0, "culprit": WORKED}, True),
        (2, {"nr_completions": 0, "culprit": 0}, False),
    ],
)
def test_ways_of_requests_in_the_table(row: int, changes: dict[str, int], is_right: bool, tmp_path: Path) -> None:
    """A poll was armed, unless the request is older than the trace. A chain's end needs no completion."""
    trace = rings()
    trace.row("ring_requests", row).update(changes)
    assert ("ring.path" not in verify(trace.write(tmp_path / "T")).broken) == is_right
