"""Logs of Darshan, those that pydarshan brings as examples, against pydarshan's own tables."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from lo2io.errors import TraceError
from lo2io.reports.darshan.log import read_log

if TYPE_CHECKING:
    from collections.abc import Mapping

try:
    import darshan
except RuntimeError as refusal:  # the package for Python 3.13 lacks Darshan's own library
    pytest.skip(f"pydarshan: {refusal}", allow_module_level=True)

LOGS = Path(darshan.__file__).parent / "examples/example_logs"
CALLS = {
    "POSIX": {"opens": ["POSIX_OPENS"], "reads": ["POSIX_READS"], "syncs": ["POSIX_FSYNCS", "POSIX_FDSYNCS"]},
    "MPI-IO": {"writes": ["MPIIO_INDEP_WRITES", "MPIIO_COLL_WRITES", "MPIIO_SPLIT_WRITES", "MPIIO_NB_WRITES"]},
    "STDIO": {"reads": ["STDIO_READS"], "bytes_written": ["STDIO_BYTES_WRITTEN"]},
}
TIMES = {"POSIX": "POSIX_F_WRITE_TIME", "MPI-IO": "MPIIO_F_READ_TIME", "STDIO": "STDIO_F_READ_TIME"}


def report(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Run ``lo2io report``."""
    command = [Path(sys.executable).parent / "lo2io", "report", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def tables(path: Path) -> Mapping[str, Any]:
    """Interface → pydarshan's tables of its counters."""
    report = darshan.DarshanReport(str(path), read_all=False)
    found = {}
    for name in CALLS.keys() & report.modules.keys():
        report.mod_read_all_records(name)
        found[name] = report.records[name].to_df()
    return found


@pytest.mark.parametrize("path", sorted(LOGS.glob("*.darshan")), ids=lambda path: path.stem[:16])
def test_sums_are_pydarshans(path: Path) -> None:
    """By interface, and of the largest file; counters with -1 are not known."""
    log, expected = read_log(path), tables(path)
    assert {each.name for each in log.interfaces} == expected.keys()
    for each in log.interfaces:
        table = expected[each.name]["counters"]
        for number, counters in CALLS[each.name].items():
            values = table[counters]
            known = (values >= 0).all(axis=None)
            assert getattr(each.counts, number) == (values.sum().sum() if known else None)
        seconds = expected[each.name]["fcounters"][TIMES[each.name]].sum()
        told = getattr(each.counts, "write_ns" if each.name == "POSIX" else "read_ns")
        assert told == pytest.approx(seconds * 1e9, abs=len(table))  # each record's time is rounded
        assert each.files == table["id"].nunique()
    moved = [file.counts.moved for file in log.files]
    assert moved == sorted(moved, reverse=True)


def test_one_job() -> None:
    """2,048 ranks write 2 TiB into one file: as text, and as JSON."""
    path = LOGS / "example.darshan"
    shown = report(path).stdout
    assert "job 4478544 · 2,048 ranks · 117 s from 2017-03-20 09:07:47 UTC · 4 files · by Darshan 3.1.3" in shown
    assert "vpicio.hdf5  POSIX        all  2,049      0  16,402   0 B     2 TiB" in shown
    assert "Not shown: LUSTRE" in shown
    found = json.loads(report("--json", path).stdout)
    assert (found["ranks"], found["files"][0]["counts"]["bytes_written"]) == (2048, 2199023259968)
    assert found["interfaces"][2]["counts"]["write_ns"] is None  # this version of Darshan wrote a negative time


@pytest.mark.parametrize("size", [0, 100, 1000, 3000])
def test_a_damaged_log_is_an_error_in_words(tmp_path: Path, size: int) -> None:
    """Darshan's library tells some damage on standard error alone, and ends the process at other damage."""
    damaged = tmp_path / "cut.darshan"
    damaged.write_bytes((LOGS / "example.darshan").read_bytes()[:size])
    with pytest.raises(TraceError, match="it is damaged"):
        read_log(damaged)


def test_what_cannot_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No file, a part of a log, and no pydarshan: each with what helps."""
    with pytest.raises(TraceError, match="there is no such regular file"):
        read_log(tmp_path / "none.darshan")
    narrowed = report("--full", LOGS / "example.darshan")
    assert (narrowed.returncode, "leave all options but --json away" in narrowed.stderr) == (2, True)
    monkeypatch.setitem(sys.modules, "darshan.backend.cffi_backend", None)
    with pytest.raises(TraceError, match="pydarshan is missing"):
        read_log(LOGS / "example.darshan")
