"""The tables of figures in the documents come from the kept results."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_tables_are_made_from_the_results() -> None:
    """No figure was typed, and no result is committed without its table."""
    command = [sys.executable, "benchmarks/run.py", "--tables", "--check"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
