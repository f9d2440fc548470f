"""Reading a spool or a trace starts no threads that nothing uses: NumPy's linear algebra would, one per CPU."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

PROGRAM = """
import contextlib, pathlib, os
from lo2io.errors import Lo2ioError
with contextlib.suppress(Lo2ioError):
    {call}
import sys
assert "numpy" in sys.modules
print(len(os.listdir("/proc/self/task")))
"""
CALLS = {
    "convert": "from lo2io.convert.convert import convert; convert(pathlib.Path('.'), pathlib.Path('/nowhere'))",
    "report": (
        "from lo2io.cli.messages import print_summary; "
        "print_summary(pathlib.Path('/nowhere'), as_json=False, to_stdout=True)"
    ),
}


@pytest.mark.skipif((os.cpu_count() or 1) < 2, reason="on one CPU there is one thread anyway")
@pytest.mark.parametrize("call", CALLS)
def test_no_threads_from_importing_numpy(call: str, tmp_path: Path) -> None:
    """As many as if the user forbids them (pyarrow's allocator has one, which sleeps)."""
    environment = {name: text for name, text in os.environ.items() if name != "OPENBLAS_NUM_THREADS"}
    command = [sys.executable, "-c", PROGRAM.format(call=CALLS[call])]

    def threads(**extra: str) -> str:
        environ = {**environment, **extra}
        done = subprocess.run(command, env=environ, cwd=tmp_path, capture_output=True, text=True, check=True)
        return done.stdout

    assert threads() == threads(OPENBLAS_NUM_THREADS="1") != ""
