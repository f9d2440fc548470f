"""Modules loaded before a command starts: only those that recording needs, so that no time is wasted."""

from __future__ import annotations

import subprocess
import sys

import pytest

SHOW = "import sys, lo2io.pipeline, lo2io.capture.recording; print(*sys.modules)"


@pytest.mark.parametrize(
    "unneeded",
    [
        "numpy",
        "pyarrow",
        "lo2io.native",
        "lo2io.filter",
        "lo2io.reports",
        "lo2io.otf2.write",
        "lo2io.capture.flight.recorder",
        "lo2io.capture.procscan.machine",
        "lo2io.capture.meter",
        "lo2io.kernel.cgroups",
        "lo2io.spool.segments",
    ],
)
def test_a_command_starts_without(unneeded: str) -> None:
    """Filters, flight recorders and converting load their modules themselves."""
    loaded = subprocess.run([sys.executable, "-c", SHOW], check=True, capture_output=True, text=True).stdout.split()
    assert "lo2io.capture.launch" in loaded
    assert [name for name in loaded if name == unneeded or name.startswith(f"{unneeded}.")] == []
