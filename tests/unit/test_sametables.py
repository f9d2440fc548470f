"""The comparison of two back ends finds every difference, and forgives only the documented ones."""

from __future__ import annotations

import copy
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest
from build.sametables import EXACT, FREE, HANDLES, KNOWN, differences

from lo2io.trace.columns import OPERATIONS

if TYPE_CHECKING:
    from workloads.record import Recorded

Row = dict[str, Any]
Tables = dict[str, list[Row]]

CALL = {
    "id": 1, "begin_time_ns": 10, "end_time_ns": 20, "task": 0, "pid": 7, "tid": 7, "call": "read",
    "status": "completed",
    "offset_source": "followed", "first_use": 0, "closes": False, "cpu": 1, "handle": 0, "handle2": None, "fd": 3,
    "flags": 0, "offset_bytes": 0, "bytes_request": 9, "bytes_result": 9, "result": 9, "error": 0,
}  # fmt: skip
HANDLE = {
    "handle": 0, "fd": 3, "origin": "opened", "close_on_exec": False, "open_flags": 2, "description": 0, "file": 0,
}  # fmt: skip
FILE = {"file": 0, "path": "/a", "mode": 0o100644, "device": 1, "inode": 2, "mount": 3}
TABLES: Tables = {
    "operations": [CALL, CALL | {"id": 2, "begin_time_ns": 30, "offset_bytes": 9}],
    "handles": [HANDLE],
    "files": [FILE],
    "paths": [{"operation": 1, "place": 0, "path": "a", "directory": "/"}],
    "iocbs": [{"operation": 2, "place": 0, "handle": 0, "offset_bytes": 4}],
}


def recorded(tables: Tables) -> Recorded:
    """Tables in the form of a trace."""
    arrow = {name: SimpleNamespace(to_pylist=lambda rows=rows: rows) for name, rows in tables.items()}
    return cast("Recorded", SimpleNamespace(trace=SimpleNamespace(**arrow, table=arrow.__getitem__)))


def changed(table: str, place: int, **values: object) -> Tables:
    """The tables with one row changed."""
    tables = copy.deepcopy(TABLES)
    tables[table][place] |= values
    return tables


def found(left: Tables, right: Tables, *, more: bool = False) -> list[str]:
    """The differences."""
    return differences(recorded(left), recorded(right), more=more)


def test_every_column_is_judged() -> None:
    """A new column must be compared, or listed as not compared."""
    assert {column.name for column in OPERATIONS} == EXACT | KNOWN | FREE | HANDLES


def test_the_same_is_the_same() -> None:
    """Other numbers and times for the same objects are no difference."""
    other = copy.deepcopy(TABLES)
    for row in other["operations"]:
        row |= {"id": row["id"] + 100, "begin_time_ns": row["begin_time_ns"] + 5, "end_time_ns": None, "handle": 8}
    other["handles"][0] |= {"handle": 8, "file": 4, "description": 6}
    other["files"][0]["file"] = 4
    for table in ("paths", "iocbs"):
        other[table][0]["operation"] += 100
    assert found(TABLES, other) == []


@pytest.mark.parametrize("column", sorted(EXACT | {"offset_bytes", "bytes_request", "flags"}))
@pytest.mark.parametrize("more", [False, True])
def test_every_column_counts(column: str, more: bool) -> None:
    """A different value is found, in each column that must be equal."""
    value = {"call": "write", "status": "in flight", "closes": True}.get(column, 77)
    assert found(TABLES, changed("operations", 1, **{column: value}), more=more)


@pytest.mark.parametrize(
    ("table", "values"),
    [
        ("handles", {"fd": 9}), ("handles", {"origin": "inherited"}), ("handles", {"close_on_exec": True}),
        ("handles", {"open_flags": 1}), ("files", {"path": "/b"}), ("files", {"mode": 1}), ("files", {"device": 9}),
        ("files", {"inode": 9}), ("files", {"mount": 9}), ("paths", {"path": "b"}), ("iocbs", {"offset_bytes": 5}),
    ],
)  # fmt: skip
@pytest.mark.parametrize("more", [False, True])
def test_descriptors_files_and_paths_count(table: str, values: Row, more: bool) -> None:
    """A call's handle, file, paths and requests are compared with the call."""
    assert found(TABLES, changed(table, 0, **values), more=more)


def test_calls_that_are_missing_or_exchanged() -> None:
    """One call less, and the same calls in another order."""
    fewer = copy.deepcopy(TABLES)
    del fewer["operations"][1]
    assert found(TABLES, fewer)
    assert found(fewer, TABLES, more=True)
    assert found(changed("operations", 0, call="write"), changed("operations", 1, call="write"))


def test_handles_stand_for_each_other() -> None:
    """One handle is not two, nor two one, unless the right trace knows that the slot changed unseen."""
    split = copy.deepcopy(TABLES)
    split["operations"][1]["handle"] = 1
    split["handles"].append(HANDLE | {"handle": 1, "description": 1, "origin": "appeared unseen"})
    assert found(TABLES, split)
    assert found(split, TABLES, more=True)
    assert found(TABLES, split, more=True) == []
    split["handles"][1]["origin"] = "opened"
    assert found(TABLES, split, more=True)


def test_knowing_more() -> None:
    """Offsets, names and paths may be unknown to the left, never to the right."""
    unnamed = changed("handles", 0, file=None)
    unnamed["operations"][1]["offset_bytes"] = None
    unnamed["paths"], unnamed["iocbs"] = [], []
    assert found(unnamed, TABLES)
    assert found(unnamed, TABLES, more=True) == []
    assert found(TABLES, unnamed, more=True)
