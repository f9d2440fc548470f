"""Commits of ext4's journal, against the kernel's own trace of them, and the phases of waits for them."""

from __future__ import annotations

import contextlib
import json
import re
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from workloads import waits
from workloads.disks import loop_device
from workloads.record import Recorded, record, verified
from workloads.served import lo2io

from lo2io.reports.summary.journal import PHASES

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [
    pytest.mark.requires("root", "tracefs", "events", "losetup", "mkfs.ext4", "jbd2:jbd2_end_commit"),
    pytest.mark.usefixtures("busy_cpus"),
]

TRACING = Path("/sys/kernel/tracing")
MOMENTS = {
    "jbd2_start_commit": "begin_time_ns",
    "jbd2_commit_locking": "locking_time_ns",
    "jbd2_commit_flushing": "flushing_time_ns",
    "jbd2_commit_logging": "logging_time_ns",
    "jbd2_end_commit": "end_time_ns",
}
LINE = re.compile(r"-(\d+) +\[\d+\].* (jbd2_\w+): dev (\d+),(\d+) transaction (\d+)")


@contextlib.contextmanager
def kernels_trace() -> Iterator[Path]:
    """A trace of the kernel's own, with the moments of all commits, while the context lasts."""
    instance = TRACING / "instances" / "lo2io_test_journal"
    instance.mkdir()
    try:
        for event in MOMENTS:
            (instance / "events/jbd2" / event / "enable").write_text("1")
        yield instance / "trace"
    finally:
        instance.rmdir()


def test_commits_are_those_of_the_kernels_trace(tmp_path: Path) -> None:
    """Two threads append and sync: the table has each moment of each commit; the parts of each wait are its length."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder, loop_device(Path(folder) / "image", 100 << 20) as disk:
        (tmp_path / "mnt").mkdir()
        make = ("mkfs.ext4", "-q", "-F", "-b", "4096", "-J", "size=8")
        with waits.mounted(disk, tmp_path / "mnt", *make) as mounted, kernels_trace() as told:
            command = [sys.executable, "-S", waits.__file__, "sync", mounted]
            run = record(tmp_path / "T", command, "--layers", "waits,journal", attempts=3)
            lines = [match.groups() for match in map(LINE.search, told.read_text().splitlines()) if match]
            device = mounted.stat().st_dev
    verified(tmp_path / "T")
    rows = run.trace.table("commits").to_pylist()
    number = (device >> 8 & 0xFFF) << 20 | device & 0xFF
    expected = {(int(tid), int(number), MOMENTS[event]) for tid, event, *_, number in lines}
    found = {(row["tid"], row["transaction"], moment) for row in rows for moment in MOMENTS.values() if row[moment]}
    assert found <= expected
    mine = [row for row in rows if row["device"] == number]
    assert len(mine) >= waits.ROUNDS
    assert not any(None in row.values() for row in mine)
    first, last = min(row["transaction"] for row in mine), max(row["transaction"] for row in mine)
    assert [row["transaction"] for row in mine] == list(range(first, last + 1))
    seen = {each for each in expected if each[0] == mine[0]["tid"] and first <= each[1] <= last}
    assert seen == {each for each in found if each[0] == mine[0]["tid"]}
    summary = json.loads(lo2io("report", "--json", tmp_path / "T").stdout)
    (journal,) = (row for row in summary["io"]["time"]["waits"][0]["reasons"] if row["reason"] == "journal")
    phases = {row["phase"]: row["time_ns"] for row in journal["phases"]}
    assert sum(phases.values()) == journal["time_ns"]
    assert phases == phases_of(run, mine)
    assert 2 * phases["log"] > journal["time_ns"]


def waits_of_calls(run: Recorded) -> list[dict[str, Any]]:
    """The waits for the journal whose end is known. The report takes those of calls whose parts are known, too."""
    divided = {row["id"] for row in run.trace.table("operations").to_pylist() if row["blocked_ns"] is not None}
    rows = run.trace.table("off_cpu").to_pylist()
    return [
        row
        for row in rows
        if row["reason"] == "journal" and row["wake_time_ns"] is not None and row["operation"] in divided
    ]


def phases_of(run: Recorded, commits: list[dict[str, Any]]) -> dict[str, int]:
    """The time of waits for the journal in each phase, wait by wait and commit by commit. All commits are whole."""
    edges = ("begin_time_ns", "flushing_time_ns", "logging_time_ns", "end_time_ns")
    found: Counter[str] = Counter()
    functions = {row["stack"]: row["functions"].split(";") for row in run.trace.table("kernel_stacks").to_pylist()}
    for row in waits_of_calls(run):
        out, wake = row["begin_time_ns"], row["wake_time_ns"]
        if row["waker_tid"] != commits[0]["tid"]:
            in_log = "do_get_write_access" in functions.get(row["stack"], ())
            found["log" if in_log else "not known"] += wake - out
            continue
        met = Counter[str]()
        for commit in commits:
            for phase, begin, end in zip(PHASES[1:4], edges, edges[1:], strict=False):
                met[phase] += max(0, min(wake, commit[end]) - max(out, commit[begin]))
        found += met + Counter({PHASES[0]: wake - out - met.total()})
    return dict(found)
