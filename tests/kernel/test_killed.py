"""Signals and kill -9 at any moment: the user learns where the spool is, and leftovers do not stay."""

from __future__ import annotations

import signal
import subprocess
import time
from typing import TYPE_CHECKING

import pytest
from workloads.record import LO2IO
from workloads.served import lo2io

from lo2io.spool.reader import SpoolReader

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.requires("root", "tracefs", "events")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_while_closing_hides_nothing(tmp_path: Path, number: int) -> None:
    """Whenever it comes after the command's end, there is a trace, or a line that says where the spool is."""
    for turn in range(6):
        trace = tmp_path / f"T{turn}"
        line = [LO2IO, "record", "-q", "-o", trace, "--", "sh", "-c", "echo ended; exit 7"]
        with subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
            assert running.stdout
            assert running.stdout.readline() == "ended\n"
            time.sleep(0.015 * turn)
            running.send_signal(number)
            shown = running.communicate()[1]
        assert running.returncode in {7, 128 + number}, (turn, running.returncode, shown)
        assert "Traceback" not in shown
        assert (trace / "traces.otf2").exists() or f"{trace}/spool" in shown, (turn, shown)


@pytest.mark.parametrize("mode", [("record",), ("system-wide", "--last", "1s")])
def test_a_killed_recorder_leaves_a_readable_spool_or_nothing_in_the_way(tmp_path: Path, mode: tuple[str, ...]) -> None:
    """A spool with records has its description. Without records, the next recording takes the place unasked.

    The recorder's children end some milliseconds after it. The next recording waits for that.
    """
    for turn in range(6):
        trace = tmp_path / f"T{turn}"
        line = [LO2IO, *mode, "-q", "-o", trace, "--", "sleep", "0.1"]
        with subprocess.Popen(line, stderr=subprocess.DEVNULL) as running:
            while not (trace / "spool").exists():
                assert running.poll() is None
                time.sleep(0.001)
            time.sleep(0.04 * turn)
            running.kill()
        spool = trace / "spool"
        records = [each for each in spool.rglob("*.*") if each.suffix in {".ring", ".calls", ".events"}]
        if any(each.stat().st_size for each in records):
            assert SpoolReader(spool).meta.roots is not None
        elif spool.exists():
            done = lo2io(*mode, "-q", "-o", trace, "--", "true")
            assert done.returncode == 0, done.stderr
