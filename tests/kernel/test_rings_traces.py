"""OTF2 traces of rings: correct for all readers, and each request as in its row."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

import otf2
import pytest
from build.otf2_written import assert_readers_agree, assert_rules, attributes, read_back
from workloads.record import verified
from workloads.rings import GROUPS

from lo2io.catalog.catalog import load_catalog

if TYPE_CHECKING:
    from collections.abc import Callable

    from build.otf2_written import Written
    from workloads.rings import Row, Run

pytestmark = pytest.mark.requires(
    "root", "tracefs", "events", "gcc", "losetup", "otf2-print", "io_uring:io_uring_complete"
)
UNDEFINED = 2**64 - 1
WITHOUT_DATA = {opcode.name for opcode in load_catalog().opcodes if opcode.io_mode == "none"}
SHORT = {"IoOperationBegin": "B", "IoOperationIssued": "I", "IoOperationComplete": "E", "IoOperationCancelled": "C"}


@pytest.fixture(scope="session")
def written(rings: Callable[[str], Run]) -> Callable[[str], Written]:
    """A group's trace, read once."""
    found: dict[str, Written] = {}

    def read(group: str) -> Written:
        if group not in found:
            found[group] = read_back(rings(group).folder.parent / "T")
        return found[group]

    return read


def records(trace: Written, ids: set[int]) -> dict[int, list[tuple[Any, Any]]]:
    """The records of operations with these ids: location and event, in the order of the trace."""
    found = defaultdict(list)
    for location, event in trace.events:
        if type(event).__name__ in SHORT and event.matching_id in ids:
            found[event.matching_id].append((location, event))
    return found


def expected_kinds(row: Row) -> str:
    """The records of a request, in their order."""
    if row["opcode"] in WITHOUT_DATA:
        return ""
    if row["end_before_time_ns"] is not None:
        return "BIE"
    if row["submit_time_ns"] is None and row["complete_time_ns"] is None:
        return ""
    end = {"cancelled": "C", "completed": "E", "refused": "E"}.get(row["status"], "")
    return f"BI{end}" if end or row["issue_time_ns"] is not None or row["punt_time_ns"] is not None else "B"


@pytest.mark.parametrize("group", GROUPS)
def test_trace_is_by_the_rules(group: str, rings: Callable[[str], Run], written: Callable[[str], Written]) -> None:
    """otf2-print and the otf2 package read the same, by all rules, and lo2io verifies the trace."""
    trace = written(group)
    assert_readers_agree(trace)
    assert_rules(trace)
    verified(rings(group).folder.parent / "T")


@pytest.mark.parametrize("group", GROUPS)
def test_each_request_on_one_location(
    group: str, rings: Callable[[str], Run], written: Callable[[str], Written]
) -> None:
    """Begin, Issued and Complete or Cancelled of each request: one id, one location, the submitter's, in this order.

    What carries no data has none of them.
    """
    run, trace = rings(group), written(group)
    rows = {row["id"]: row for rows in run.request_rows.values() for row in rows}
    found = records(trace, set(rows))
    rows = {number: row for number, row in rows.items() if row["opcode"] not in WITHOUT_DATA}
    assert found.keys() == rows.keys()
    for number, row in rows.items():
        kinds = "".join(SHORT[type(event).__name__] for _, event in found[number])
        assert kinds == expected_kinds(row), row
        assert len({location._ref for location, _ in found[number]}) == 1
        location = found[number][0][0]
        assert location.name.endswith(f" {row['tid']}"), location.name
        assert found[number][0][1].operation_flags == otf2.IoOperationFlag.NON_BLOCKING


@pytest.mark.parametrize("group", GROUPS)
def test_times_and_bytes_are_the_rows(
    group: str, rings: Callable[[str], Run], written: Callable[[str], Written]
) -> None:
    """The records' times and bytes are those of the table."""
    run, trace = rings(group), written(group)
    rows = {row["id"]: row for rows in run.request_rows.values() for row in rows}
    for number, records_ in records(trace, set(rows)).items():
        row, events = rows[number], {type(event).__name__: event for _, event in records_}
        assert events["IoOperationBegin"].time == row["submit_time_ns"]
        done = events.get("IoOperationComplete") or events.get("IoOperationCancelled")
        if done is not None:
            ends = (row["complete_time_ns"], row["notify_time_ns"], row["end_before_time_ns"])
            assert done.time == max(time for time in ends if time is not None)
        if "IoOperationComplete" in events:
            bytes_ = UNDEFINED if row["bytes_result"] is None else row["bytes_result"]
            assert events["IoOperationComplete"].bytes_result == bytes_


def test_silent_request_ends_where_its_successor_begins(
    rings: Callable[[str], Run], written: Callable[[str], Written]
) -> None:
    """A read with CQE_SKIP before a NOP: it ends at the NOP's completion at the latest, marked as inferred."""
    run, trace = rings("ends"), written("ends")
    rows = [row for _, row in run.requests("skip")]
    (read,) = (row for row in rows if row["opcode"] == "READ" and row["status"] == "silent")
    (behind,) = (row for row in rows if row["previous"] == read["id"])
    found = records(trace, {read["id"], behind["id"]})
    assert found.keys() == {read["id"]}
    events = [event for _, event in found[read["id"]]]
    assert [SHORT[type(event).__name__] for event in events] == ["B", "I", "E"]
    end, said = events[-1], attributes(events[-1])
    assert end.time == behind["complete_time_ns"]
    assert (said["EndInferred"], said["EndEarliest"], said["io_uring status"]) == (1, events[1].time, "silent")


@pytest.mark.parametrize(("group", "column"), [("ends", "worker"), ("waits", "waker_tid")])
def test_who_executed_and_who_woke_it(
    group: str, column: str, rings: Callable[[str], Run], written: Callable[[str], Written]
) -> None:
    """The last record of each request names the threads of its row, and none if the row has none."""
    run, trace = rings(group), written(group)
    rows = {row["id"]: row for rows in run.request_rows.values() for row in rows}
    assert any(row[column] is not None for row in rows.values())
    for number, records_ in records(trace, set(rows)).items():
        row, event = rows[number], records_[-1][1]
        if SHORT[type(event).__name__] in "EC":
            said = attributes(event)
            worker = None if row["worker"] is None else run.threads[row["worker"]]["tid"]
            assert (said.get("io_uring worker"), said.get("io_uring waker")) == (worker, row["waker_tid"]), row


@pytest.mark.parametrize("group", ["ends", "files"])
def test_workers_execute_on_their_own_locations(
    group: str, rings: Callable[[str], Run], written: Callable[[str], Written]
) -> None:
    """Each known execution is a region on its worker's location, from its start to its end."""
    run, trace = rings(group), written(group)
    expected = defaultdict(list)
    for work in run.recorded.trace.table("ring_works").to_pylist():
        if work["end_time_ns"] is not None:
            worker = run.threads[work["task"]]["tid"]
            expected[worker].append((work["begin_time_ns"], work["end_time_ns"], work["opcode"]))
    assert expected
    for worker, works in expected.items():
        name = next(location.name for location in trace.definitions.locations if location.name.endswith(f" {worker}"))
        regions = [event for event in trace.of(name) if type(event).__name__ in {"Enter", "Leave"}]
        spans = zip(regions[::2], regions[1::2], strict=True)
        found = [(first.time, last.time, first.region.name.rsplit(" ", 1)[-1]) for first, last in spans]
        assert found == works
