"""Threads that come and go in a real program: more than the OTF2 trace has locations for."""

from __future__ import annotations

import sys
from collections import Counter
from typing import TYPE_CHECKING

import pytest
from build.otf2_written import transfers_by_thread
from workloads.record import record, verified

from lo2io.otf2.write.writer import OWN_LOCATIONS

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.requires("root", "tracefs", "events")

PROGRAM = """
import os, sys, threading
file, told, threads = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT), open(sys.argv[2], "w"), int(sys.argv[3])
def work(times):
    for _ in range(times):
        os.pwrite(file, b"x", 0)
    told.write(f"{threading.get_native_id()} {times}\\n")
for number in range(threads):
    thread = threading.Thread(target=work, args=(number % 3 + 1,))
    thread.start()
    thread.join()
"""


def test_each_write_is_its_threads(tmp_path: Path) -> None:
    """The writes of each thread, as the program counted them; later threads share as many files as run at a time."""
    data, told, trace = tmp_path / "data", tmp_path / "told", tmp_path / "T"
    threads = OWN_LOCATIONS + 100
    record(trace, [sys.executable, "-c", PROGRAM, data, told, str(threads)])
    expected: Counter[int] = Counter()
    for line in told.read_text(encoding="ascii").splitlines():
        tid, times = map(int, line.split())
        expected[tid] += times
    assert expected.total() == sum(number % 3 + 1 for number in range(threads))
    assert transfers_by_thread(trace, str(data)) == expected
    assert len(list((trace / "traces").glob("*.evt"))) < OWN_LOCATIONS + 16
    verified(trace)
