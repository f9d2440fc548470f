"""Which modules are loaded when: before a command starts only those that recording needs, and none after recording."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from build.perfwriter import SpoolBuilder

if TYPE_CHECKING:
    from pathlib import Path

SHOW = "import sys, lo2io.pipeline, lo2io.capture.recording; print(*sys.modules)"


@pytest.mark.parametrize(
    "unneeded",
    [
        "numpy",
        "pyarrow",
        "lo2io.native",
        "lo2io.filter",
        "lo2io.reports",
        "lo2io.convert.completeness",
        "lo2io.convert.engine",
        "lo2io.convert.reconcile",
        "lo2io.convert.streams",
        "lo2io.api",
        "lo2io.otf2",
        "lo2io.spool.reader",
        "lo2io.top",
        "lo2io.trace.columns",
        "lo2io.trace.reader",
        "lo2io.trace.ring_columns",
        "lo2io.trace.selection",
        "lo2io.trace.writer",
        "lo2io.unwind",
        "lo2io.verify",
        "lo2io.capture.flight.recorder",
        "lo2io.capture.procscan.machine",
        "lo2io.capture.meter",
        "lo2io.kernel.cgroups",
        "lo2io.spool.segments",
    ],
)
def test_a_command_starts_without(unneeded: str) -> None:
    """Filters, flight recorders and converting load their modules themselves. benchmarks/provenance.py counts on it."""
    loaded = subprocess.run([sys.executable, "-c", SHOW], check=True, capture_output=True, text=True).stdout.split()
    assert "lo2io.capture.launch" in loaded
    assert [name for name in loaded if name == unneeded or name.startswith(f"{unneeded}.")] == []


RECORD = """
import sys
from lo2io import pipeline
from lo2io.cli import record

pipeline.record = lambda *_, **__: pipeline.Recorded(0, None, None)
record.run("record", {"command": ["true"], "convert": sys.argv[1] == "convert"})
print(*sys.modules)
"""


@pytest.mark.parametrize("convert", [False, True])
def test_a_second_process_waits_to_convert_only(*, convert: bool) -> None:
    """The benchmarks that record with --no-convert do not measure that process (benchmarks/provenance.py)."""
    words = [sys.executable, "-c", RECORD, "convert" if convert else "-"]
    loaded = subprocess.run(words, check=True, capture_output=True, text=True).stdout.split()
    assert ("lo2io.cli.standby" in loaded) == (convert and len(os.sched_getaffinity(0)) > 1)


LOAD = "import sys; from lo2io.cli.main import load; load(sys.argv[1:]); print(*sys.modules)"


@pytest.mark.parametrize("command", [("record", "--no-convert", "true"), ("system-wide", "-a", "--last", "5s")])
def test_recording_loads_no_other_commands(command: tuple[str, ...]) -> None:
    """A plain command line loads neither Typer nor other commands. benchmarks/provenance.py counts on it."""
    words = [sys.executable, "-c", LOAD, *command]
    loaded = {*subprocess.run(words, check=True, capture_output=True, text=True).stdout.split()}
    others = ("app", "diff", "export", "merge", "query", "replay", "report", "top", "why")
    assert "lo2io.cli.record" in loaded
    assert not loaded & {f"lo2io.cli.{name}" for name in others}


LATER = """
import sys
from pathlib import Path
from lo2io.cli.messages import import_summary, print_summary
from lo2io.convert.convert import convert, import_stages

import_stages()
import_summary()
before = {*sys.modules}
convert(Path(sys.argv[1]), Path(sys.argv[2]))
print_summary(Path(sys.argv[2]), as_json=False, to_stdout=False)
print(*({*sys.modules} - before))
"""


def test_stages_are_imported_before_rights_are_given_up(tmp_path: Path) -> None:
    """Converting and the summary import nothing later: Python could not keep what it compiles then."""
    spool = SpoolBuilder(tmp_path / "spool").call(5, 0, 10, "close", fd=3).write()
    words = [sys.executable, "-c", LATER, str(spool), str(tmp_path / "trace")]
    assert subprocess.run(words, check=True, capture_output=True, text=True).stdout.split() == []
