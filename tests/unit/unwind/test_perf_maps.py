"""Names of code that programs have made, from the files that they write."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from lo2io.unwind import perf_maps
from lo2io.unwind.perf_maps import PerfMap

if TYPE_CHECKING:
    from pathlib import Path

MAP = "7f00 10 first\n7f10 20 py::run:/home/a b.py\nnonsense\n7f00 8 newer\nzz 1 x\n7f40 1 last"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with the file of process 7."""
    (tmp_path / "perf-7.map").write_text(MAP, encoding="ascii")
    return tmp_path


def test_functions_have_names(folder: Path) -> None:
    """By address, with their starts; a later line replaces an earlier one; lines that are none are passed over."""
    names = PerfMap(7, os.getuid(), folder=folder)
    found = [names.at(address) for address in (0x7EFF, 0x7F00, 0x7F07, 0x7F08, 0x7F1F, 0x7F30, 0x7F40)]
    run = 0x7F10, "py::run:/home/a b.py"
    assert found == [(0, ""), (0x7F00, "newer"), (0x7F00, "newer"), (0, ""), run, (0, ""), (0x7F40, "last")]
    assert PerfMap(8, os.getuid(), folder=folder).at(0x7F00) == (0, "")


def test_a_file_of_others_names_nothing(folder: Path) -> None:
    """Another user's, one of an earlier process, a link, and one that is no file."""
    path, uid = folder / "perf-7.map", os.getuid()
    written = path.stat().st_mtime_ns
    assert PerfMap(7, uid, written, folder).at(0x7F00) == (0x7F00, "newer")
    assert PerfMap(7, uid, written + 1, folder).at(0x7F00) == (0, "")
    assert (PerfMap(7, uid + 1, folder=folder).at(0x7F00) == (0, "")) == (uid != 0)
    (folder / "perf-8.map").symlink_to(path)
    os.mkfifo(folder / "perf-9.map")
    assert PerfMap(8, uid, folder=folder).at(0x7F00) == (0, "")
    assert PerfMap(9, uid, folder=folder).at(0x7F00) == (0, "")


def test_a_file_takes_bounded_memory(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The last lines count. Numbers that are no addresses do not: Python has one hash for multiples of 2^61 - 1."""
    monkeypatch.setattr(perf_maps, "_MAX_FUNCTIONS", 3)
    names = PerfMap(7, os.getuid(), folder=folder)
    assert [names.at(address)[1] for address in (0x7F00, 0x7F10, 0x7F40)] == ["newer", "", "last"]
    lines = [f"{(2**61 - 1) * number:x} 10 f{number}" for number in range(3000)]
    (folder / "perf-7.map").write_text("\n".join([*lines, "-5 3 below", "10 -3 less", "20 5 good"]), encoding="ascii")
    monkeypatch.setattr(perf_maps, "_MAX_FUNCTIONS", 1 << 19)
    names = PerfMap(7, os.getuid(), folder=folder)
    assert len(names._functions) == 9 + 1
    assert names.at(0x22) == (0x20, "good")
