"""The systemd unit of docs/how-to/flight-recorder.md: its programs exist, and systemd accepts it."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner
from typer.main import get_command

from lo2io.cli.app import app

PAGE = Path(__file__).parents[4] / "docs/how-to/flight-recorder.md"
INSTALLED = "/usr/local/bin/lo2io"


def unit() -> str:
    """The text of the unit."""
    found = re.search(r"```ini\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert found
    return found[1]


def test_its_commands_have_these_options() -> None:
    """Every command line of lo2io in it: asking each for help with its options reads them all."""
    lines = re.findall(rf"^Exec\w+={INSTALLED} (.*)$", unit(), re.MULTILINE)
    assert len(lines) == 2
    for line in lines:
        words = [word.strip("'") for word in re.findall(r"'[^']*'|\S+", line)]
        shown = CliRunner().invoke(get_command(app), [words[0], "--help"])
        assert shown.exit_code == 0
        for option in (word for word in words if word.startswith("--")):
            assert option in shown.output, option


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="systemd-analyze is not installed")
def test_systemd_takes_it(tmp_path: Path) -> None:
    """No unknown key, no wrong value."""
    path = tmp_path / "lo2io-flight.service"
    path.write_text(unit().replace(INSTALLED, sys.executable), encoding="utf-8")
    done = subprocess.run(["systemd-analyze", "verify", str(path)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
