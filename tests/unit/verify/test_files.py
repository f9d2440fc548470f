"""``verify`` on the tables of handles, files and paths."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from build.otf2_builder import Breakage
from build.otf2_rings import RingTrace, rings

from lo2io.errors import TraceError
from lo2io.trace.columns import NAME_SOURCE
from lo2io.verify import verify

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

breaks = Breakage()
NOBODY = 99
UNKNOWN, PROC, _, KERNEL = range(len(NAME_SOURCE))


def named() -> RingTrace:
    """A trace with two duplicates of one file, a pipe, a file that /proc named, and the paths of its call."""
    trace = rings()
    told = {"generation": 7, "links": 1, "name_source": KERNEL}
    trace.tables["files"] = [
        {"file": 0, "path": b"/a\nb", **told},
        {"file": 1, "path": b"pipe:[5]", **told},
        {"file": 2, "path": b"whatever", "name_source": PROC, "links": 2**32 - 1},
        {"file": 3, "path": b"/a\nb (deleted)", **told},
    ]
    trace.tables["handles"] += [
        {"handle": 20, "file": 0, "description": 20, "name_source": KERNEL},
        {"handle": 21, "file": 0, "description": 20, "name_source": KERNEL},
        {"handle": 22, "file": 1, "description": 21, "name_source": KERNEL},
        {"handle": 23, "file": 2, "description": 22, "name_source": PROC},
        {"handle": 24, "description": 20},
        {"handle": 25, "file": 3, "description": 23, "name_source": KERNEL},
    ]
    call = trace.row("operations")["id"]
    trace.tables["paths"] = [
        {"operation": call, "place": 0, "source": KERNEL, "path": b"", "directory": b"/"},
        {"operation": call, "place": 1, "source": UNKNOWN},
    ]
    return trace


def handle(trace: RingTrace, number: int) -> dict[str, Any]:
    """The row of a handle."""
    return next(row for row in trace.tables["handles"] if row["handle"] == number)


@breaks("table.file")
def _two_names_of_a_description(trace: RingTrace) -> None:
    handle(trace, 21)["file"] = 3


@breaks("table.file")
def _a_name_no_descriptor_has(trace: RingTrace) -> None:
    trace.row("files", 1)["path"] = b"a/relative/one"


@breaks("table.file")
def _no_name(trace: RingTrace) -> None:
    trace.row("files", 1)["path"] = b""


@breaks("table.file")
def _generation_of_what_proc_named(trace: RingTrace) -> None:
    trace.row("files", 2).update(generation=1, links=1)


@breaks("table.file")
def _no_generation_of_what_the_kernel_named(trace: RingTrace) -> None:
    del trace.row("files")["generation"]


@breaks("table.file")
def _a_handle_of_another_source_than_its_file(trace: RingTrace) -> None:
    handle(trace, 23)["name_source"] = KERNEL


@breaks("table.file")
def _a_file_of_another_source_than_its_handle(trace: RingTrace) -> None:
    handle(trace, 22)["name_source"] = PROC


@breaks("table.reference")
def _file_of_nobody(trace: RingTrace) -> None:
    handle(trace, 23)["file"] = NOBODY


@breaks("table.reference")
def _path_of_no_call(trace: RingTrace) -> None:
    trace.tables["paths"].append({"operation": NOBODY, "source": KERNEL})


@breaks("table.path")
def _third_path(trace: RingTrace) -> None:
    trace.row("paths", 1)["place"] = 2


@breaks("table.path")
def _same_place_twice(trace: RingTrace) -> None:
    trace.row("paths", 1)["place"] = 0


@breaks("table.path")
def _a_path_nobody_read(trace: RingTrace) -> None:
    trace.row("paths", 1)["path"] = b"x"


@pytest.mark.parametrize(("rule", "change"), breaks.changes, ids=breaks.ids)
def test_broken_in_exactly_one_way(rule: str, change: Callable[[Any], object], tmp_path: Path) -> None:
    """Only that rule is reported."""
    breaks.check(rule, change, named(), tmp_path / "T")


def test_the_right_one(tmp_path: Path) -> None:
    """Nothing is reported."""
    assert not verify(named().write(tmp_path / "T")).broken


def test_number_of_rows(tmp_path: Path) -> None:
    """A table that is not the one the metadata was written with."""
    file = named().write(tmp_path / "T") / "lo2io" / "metadata.json"
    metadata = json.loads(file.read_text())
    metadata["tables"]["devices"]["rows"] = 3
    file.write_text(json.dumps(metadata))
    (finding,) = verify(tmp_path / "T").findings
    assert finding.rule == "count.tables"
    assert finding.text == "devices has 2 rows; by the metadata there are 3"


@pytest.mark.parametrize("table", ["operations", "off_cpu"])
@pytest.mark.parametrize("whole", [True, False])
def test_tables_that_lack(tmp_path: Path, table: str, *, whole: bool) -> None:
    """A cut or missing table, also one without rules."""
    path = named().write(tmp_path / "T") / "lo2io" / f"{table}.arrow"
    if whole:
        path.unlink()
    else:
        path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(TraceError, match=f"cannot read the table {path}"):
        verify(tmp_path / "T")
