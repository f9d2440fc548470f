"""Rules between ``ring_events`` and the other tables, which are compared with the slow engine's."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from lo2io.model import RingStatus

Row = dict[str, Any]
BEGIN, ISSUED, COMPLETE, CANCELLED = range(4)
AS_IN_ROW = ("path", "status", "traits", "inferred", "handle", "result", "error", "previous", "culprit")
AS_IN_ROW += (
    "cache",
    "cache_missed_pages",
    "cache_ahead_pages",
    "ring",
    "task",
    "tid",
    "opcode",
    "user_data",
    "sqe_flags",
    "queued_ns",
    "executing_ns",
    "waiting_ns",
    "run_queue_ns",
    "blocked_ns",
)


def check_events(events: list[Row], requests: list[Row]) -> None:
    """Check each request's events, in their order, on its submitter's location."""
    rows = {row["id"]: row for row in requests}
    of_request: dict[int, list[Row]] = {id_: [] for id_ in rows}
    locations: dict[int, list[Row]] = {}
    for event in events:
        of_request[event["id"]].append(event)
        locations.setdefault(event["task"], []).append(event)
    for id_, row in rows.items():
        _check_request(of_request[id_], row)
    for location in locations.values():
        assert all(one["time_ns"] <= other["time_ns"] for one, other in pairwise(location)), location
        assert all(one["before"] <= other["before"] for one, other in pairwise(location)), location


def _check_request(events: list[Row], row: Row) -> None:
    kinds = [event["kind"] for event in events]
    ends = row["status"] in (RingStatus.COMPLETED, RingStatus.CANCELLED) or (
        row["status"] == RingStatus.REFUSED and row["nr_completions"] > 0
    )
    ends |= row["end_before_time_ns"] is not None
    end = CANCELLED if row["status"] == RingStatus.CANCELLED else COMPLETE
    assert kinds == [BEGIN, ISSUED, end] if ends else kinds in ([BEGIN], [BEGIN, ISSUED]), (kinds, row)
    assert row["submit_time_ns"] in (None, events[0]["time_ns"]), (events, row)
    if ends:
        last = events[-1]
        known = row["notify_time_ns"] or row["complete_time_ns"] or row["end_before_time_ns"]
        assert last["time_ns"] >= known, (last, row)
        assert last["bytes"] == row["bytes_result"], (last, row)
        assert all(last[name] == row[name] for name in AS_IN_ROW), (last, row)
