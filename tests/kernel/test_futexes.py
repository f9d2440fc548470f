"""Waits on futexes, against threads that know how often they slept, and who woke them."""

from __future__ import annotations

import errno
import json
import sys
from collections import Counter
from pathlib import Path

import pytest
from workloads import futexes
from workloads.record import record, verified
from workloads.served import lo2io

pytestmark = [pytest.mark.requires("root", "tracefs", "events"), pytest.mark.usefixtures("busy_cpus")]

PROGRAM = [sys.executable, "-S", Path(futexes.__file__)]


def test_each_sleep_has_its_futex_and_its_waker(tmp_path: Path) -> None:
    """Calls that did not sleep are not recorded."""
    run = record(tmp_path / "T", ["sh", "-c", f"{' '.join(map(str, PROGRAM))} >told"], "-e", "+futex", cwd=tmp_path)
    told = json.loads((tmp_path / "told").read_text("utf-8"))
    address = {row["operation"]: row["address"] for row in run.trace.table("futexes").to_pylist()}
    calls = {call["id"]: call for call in run.calls("futex") if call["id"] in address}
    by_address = Counter((address[number], call["error"]) for number, call in calls.items())
    assert by_address[told["given"], 0] == futexes.ROUNDS
    assert by_address[told["late"], errno.ETIMEDOUT] == futexes.LATE
    assert by_address[told["vain"], errno.EAGAIN] < futexes.VAIN // 10, "only where another thread took the CPU"
    slept = [row for row in run.trace.table("off_cpu").to_pylist() if address.get(row["operation"]) == told["given"]]
    wakers = Counter(row["waker_tid"] for row in slept if row["wake_time_ns"] > row["begin_time_ns"])
    assert wakers == {told["waker"]: futexes.ROUNDS}
    assert {calls[row["operation"]]["tid"] for row in slept} == {told["sleeper"]}
    verified(tmp_path / "T")
    report = json.loads(lo2io("report", "--json", tmp_path / "T").stdout)["futexes"]
    (row,) = (row for row in report["futexes"] if row["address"] == told["given"])
    assert (row["waits"], row["threads"], row["wakers"][0]["tid"]) == (futexes.ROUNDS, 1, told["waker"])
    (row,) = (row for row in report["futexes"] if row["address"] == told["late"])
    assert (row["waits"], row["timeouts"], row["wakers"]) == (futexes.LATE, futexes.LATE, [])


def test_perf_events_record_each_call(tmp_path: Path) -> None:
    """They do not know whether the thread slept."""
    words = ("-e", "+futex", "--backend", "perf")
    run = record(tmp_path / "T", ["sh", "-c", f"{' '.join(map(str, PROGRAM))} >told"], *words, cwd=tmp_path)
    told = json.loads((tmp_path / "told").read_text("utf-8"))
    address = {row["operation"]: row["address"] for row in run.trace.table("futexes").to_pylist()}
    found = Counter((address.get(call["id"]), call["flags"], call["error"]) for call in run.calls("futex"))
    assert found[told["given"], futexes.WAIT, 0] == futexes.ROUNDS
    assert found[told["vain"], futexes.WAIT, errno.EAGAIN] == futexes.VAIN
    assert found[told["late"], futexes.WAIT, errno.ETIMEDOUT] == futexes.LATE
    verified(tmp_path / "T")
