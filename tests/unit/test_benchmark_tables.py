"""The tables of benchmark figures in the documents are those that the kept results give."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_tables_are_made_from_the_results() -> None:
    """Nobody typed a figure, and results are not committed without their tables."""
    command = [sys.executable, "benchmarks/run.py", "--tables", "--check"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
