"""``verify`` on what the leaves of calls tell: archive and tables of the same rows, then with changed tables."""

from __future__ import annotations

from copy import deepcopy
from typing import TYPE_CHECKING, Any

import pytest
from build.otf2_batches import CALL, CALLS, END, META, OPCODES, BatchMaker
from build.otf2_builder import Breakage
from build.tablemaker import make_batch

from lo2io.model import Totals
from lo2io.otf2.write.writer import Otf2Writer
from lo2io.trace.writer import TableWriter
from lo2io.verify import verify

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

breaks = Breakage()
T = 2_000_000
Rows = dict[str, list[dict[str, Any]]]
"""Rows by table."""


def _call(number: int, begin: int, end: int, **columns: int) -> dict[str, Any]:
    ids = {"id": number, "task": 0, "process": 0, "pid": 100, "tid": 100, "call": CALL["fsync"], "fd": 3}
    return {**ids, "begin_time_ns": T + begin, "end_time_ns": T + end, "result": 0, **columns}


def _request(number: int, insert: int) -> dict[str, Any]:
    """On the thread of the calls."""
    who = {"id": number, "device": 254 << 20, "task": 0, "tid": 100, "operation": 1}
    return {**who, "insert_time_ns": T + insert, "issue_time_ns": T + insert + 1, "complete_time_ns": T + insert + 2}


def rows() -> Rows:
    """Two calls, of which the first waits and sends two requests; and a request between the calls."""
    return {
        "tasks": [{"task": 0, "process": 0, "pid": 100, "tid": 100, "comm": b"fio"}],
        "operations": [_call(1, 0, 50, run_queue_ns=7, blocked_ns=30), _call(3, 80, 90, run_queue_ns=0, blocked_ns=0)],
        "requests": [_request(11, 10), _request(13, 20), _request(15, 60)],
    }


def _events(requests: list[dict[str, Any]]) -> list[dict[str, Any]]:
    found = []
    for row in requests:
        keys = {name: row[name] for name in ("id", "device", "task", "tid", "operation", "insert_time_ns")}
        for kind, name in enumerate(("insert_time_ns", "issue_time_ns", "complete_time_ns")):
            known = {} if kind == 0 else {"issue_time_ns": row["issue_time_ns"]}
            found.append({**keys, **known, "pid": 100, "kind": kind, "time_ns": row[name], "bytes": 4096})
    return found


def write(folder: Path, archive: Rows, tables: Rows) -> Path:
    """A trace whose archive and tables are made of these rows."""
    with Otf2Writer(folder, META, CALLS, OPCODES) as writer:
        maker = BatchMaker()
        maker.task(0)
        for table, found in (("operations", archive["operations"]), ("request_events", _events(archive["requests"]))):
            for row in found:
                maker.row(table, **row)
        writer.write(maker.make())
        writer.close(END)
    with TableWriter(folder, META, CALLS, OPCODES) as writer_of_tables:
        writer_of_tables.write(make_batch(**tables))
        writer_of_tables.close(Totals(), END.completeness, END.start_ns, END.stop_ns)
    return folder


@breaks("call.told")
def _another_wait(tables: Rows) -> None:
    tables["operations"][0]["blocked_ns"] = 31


@breaks("call.told")
def _a_wait_that_the_trace_lacks(tables: Rows) -> None:
    tables["operations"][1]["run_queue_ns"] = 1


@breaks("call.told")
def _a_request_that_the_trace_lacks(tables: Rows) -> None:
    tables["requests"].append(_request(17, 85))


@breaks("call.told")
def _a_request_that_the_tables_lack(tables: Rows) -> None:
    del tables["requests"][0]


@breaks("call.told")
def _another_last_request(tables: Rows) -> None:
    tables["requests"][1]["id"] = 14


def test_archive_and_tables_of_the_same_rows(tmp_path: Path) -> None:
    """They tell the same of each call, though a request lies between the calls."""
    assert "call.told" not in verify(write(tmp_path, rows(), rows())).broken


@pytest.mark.parametrize(("rule", "change"), breaks.changes, ids=breaks.ids)
def test_what_cannot_be(tmp_path: Path, rule: str, change: Callable[[Any], object]) -> None:
    """Another wait, another number of requests, or other requests than the archive tells."""
    tables = deepcopy(rows())
    change(tables)
    assert rule in verify(write(tmp_path, rows(), tables)).broken


def test_requests_that_were_issued_twice(tmp_path: Path) -> None:
    """The table has the last issue alone, so nobody can say in which call they began: only waits are compared."""
    tables = rows()
    tables["requests"][2] |= {"id": 99, "insert_time_ns": -(2**63), "nr_requeues": 1, "issue_time_ns": T + 30}
    assert "call.told" not in verify(write(tmp_path, rows(), tables)).broken
