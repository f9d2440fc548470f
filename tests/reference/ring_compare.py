"""The tables of rings in one form for both engines: rings by address and order, requests by their order."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lo2io.model import RingStatus
from reference.ring_events import check_events
from reference.ring_rows import request_rows, ring_rows, work_rows
from reference.ring_times import Times

if TYPE_CHECKING:
    from collections.abc import Callable

    from reference.engine import Reference

Row = dict[str, Any]
RING_TABLES = ("ring_requests", "ring_events", "ring_works", "ring_states", "batches", "rings")
TASKS, REQUESTS = ("task", "worker", "waker", "poller"), ("request", "previous", "culprit")
MASK32 = 2**32 - 1


def reference_tables(reference: Reference, handles: dict[int, int]) -> dict[str, list[Row]]:
    """Rows of the slow engine; objects become numbers."""
    times = Times(reference.rings.requests)
    tables = {
        "ring_requests": request_rows(reference, times),
        "ring_works": work_rows(times),
        "rings": ring_rows(reference.rings.all),
        "ring_states": [row for ring in reference.rings.all if ring.recorded for row in ring.rows],
        "batches": reference.batches,
    }
    requests = reference.rings.requests
    counted = [r for r in requests.all if r.lane is None or r.lane.recorded]
    in_flight = sum(requests.status(request) == RingStatus.IN_FLIGHT for request in counted)
    reference.totals["nr_in_flight_ring_requests"] = in_flight
    return {name: [_plain(row, handles) for row in rows] for name, rows in tables.items()}


def _plain(row: Row, handles: dict[int, int]) -> Row:
    row = dict(row)
    for key, value in row.items():
        if key in TASKS and value is not None:
            row[key] = value.index
        elif key in ("handle", "handle2") and value is not None:
            row[key] = handles[id(value)]
        elif key == "ring" and value is not None:
            row[key] = value.number
        elif key in REQUESTS:
            row[key] = 0 if value is None else value.number + 1
    if "request" in row:
        row["id"] = row.pop("request")
    if "operation" in row:
        row["id"] = 10**6 + 2 * row.pop("operation")
    return row


def canonical_tables(tables: dict[str, Any], refer: Callable[[Row], Row]) -> dict[str, list[Row]]:
    """Rows of either engine in the common form; ``refer`` names threads, processes and handles."""
    rings = _name_rings(tables["rings"])
    if "ring_events" in tables:
        check_events(tables["ring_events"], tables["ring_requests"])
    ids = {row["id"]: place for place, row in enumerate(sorted(tables["ring_requests"], key=lambda row: row["id"]))}
    operations = {row["id"]: place for place, row in enumerate(tables["operations"])}

    def name(row: Row) -> Row:
        request = {"request": ids.get(row["id"], row["id"])} if "id" in row else {}
        for key in ("previous", "culprit"):
            if key in row:
                row = row | {key: None if not row[key] else ids.get(row[key], "unwritten")}
        if row["ring"] is not None:
            row = row | {"ring": rings.get(row["ring"], "unrecorded")}
        for key in ("poller", "worker", "waker"):
            if row.get(key) is not None:
                row = row | {key: refer({"task": row[key]})["task"]}
        return refer(row) | request

    batches = [name(row) | {"request": operations[row["id"]]} for row in tables["batches"]]
    return {
        "rings": sorted((name(_known_flags(row)) for row in tables["rings"]), key=lambda row: row["ring"]),
        "batches": sorted(batches, key=lambda row: row["request"]),
        "ring_requests": sorted((name(row) for row in tables["ring_requests"]), key=lambda row: row["request"]),
        "ring_works": sorted(
            (name(row) for row in tables["ring_works"]),
            key=lambda row: (row["task"], row["begin_time_ns"], row["end_time_ns"] or 0, row["request"]),
        ),
        "ring_states": sorted((name(row) for row in tables["ring_states"]), key=lambda row: row["ring"]),
    }


def _known_flags(row: Row) -> Row:
    return row | {"flags": None if row["flags"] == MASK32 else row["flags"]}


def _name_rings(rows: list[Row]) -> dict[int, str]:
    names: dict[int, str] = {}
    for row in sorted(rows, key=lambda row: row["ring"]):
        name = f"{'libaio' if row['kind'] else 'ring'} {row['context']:x}"
        while name in names.values():
            name += " again"
        names[row["ring"]] = name
    return names
