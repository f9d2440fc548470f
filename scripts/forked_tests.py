"""Runs chosen tests again and again, each time in a fork that finds the libraries loaded, but nothing of lo2io.

Each line of the standard input is an order in JSON: ``tests``, ids in the order in which they run, until one fails;
``cpu_s``, the CPU time that they may use; ``wall_s``; and ``home``, a folder to write into. The answer is a line, too:
``passed``, ``too slow``, or the test that failed, or at which the process died.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import resource
import shutil
import signal
import sys
import time
import traceback
from pathlib import Path
from typing import Any

import pytest

LIBRARIES = (
    *(
        "_otf2",
        "cffi",
        "duckdb",
        "hypothesis.strategies",
        "hypothesis.stateful",
        "jinja2",
        "numpy.ma",
        "pandas",
        "polars",
    ),
    *("pyarrow.compute", "pyarrow.csv", "pyarrow.ipc", "pyarrow.parquet", "rich.console", "rich.table", "tomllib"),
    "typer.testing",
)
PYTEST = (
    *("-q", "-x", "-p", "no:cacheprovider", "-p", "no:xdist", "--hypothesis-profile=mutants", "-o", "timeout=120"),
    *("-W", "ignore::pytest.PytestAssertRewriteWarning"),  # hypothesis is loaded already
)
MOST_BYTES, MOST_FILE_BYTES = 16 << 30, 4 << 30
"""A mutant may want all memory, or never stop to write."""


class Chosen:
    """Runs these tests alone, in their order, and says in a file at which one it is."""

    def __init__(self, tests: list[str], at: Path) -> None:
        self._place = {test: place for place, test in enumerate(tests)}
        self._at = at

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Choose and sort."""
        items[:] = sorted(
            (each for each in items if each.nodeid in self._place), key=lambda each: self._place[each.nodeid]
        )

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        """Say which test begins."""
        self._at.write_text(nodeid)


def run(order: dict[str, Any], at: Path) -> None:
    """Run the tests in this process, and end it."""
    code = 1
    try:
        os.setsid()
        cpu_s = int(order["cpu_s"])
        for which, most in (("AS", MOST_BYTES), ("FSIZE", MOST_FILE_BYTES), ("CPU", cpu_s)):
            resource.setrlimit(getattr(resource, f"RLIMIT_{which}"), (most, most))
        with Path(order["home"], "output").open("wb") as output:
            for stream, fd in ((os.open(os.devnull, os.O_RDONLY), 0), (output.fileno(), 1), (output.fileno(), 2)):
                os.dup2(stream, fd)
        files = list(dict.fromkeys(test.partition("::")[0] for test in order["tests"]))
        code = pytest.main([*PYTEST, f"--basetemp={order['home']}/temporary", *files], [Chosen(order["tests"], at)])
        code = 0 if code == pytest.ExitCode.NO_TESTS_COLLECTED else code
    except BaseException:  # noqa: BLE001 - this process must not go on
        traceback.print_exc()
    finally:
        os._exit(code)


def main() -> None:
    """Take orders until there are no more."""
    for name in LIBRARIES:
        importlib.import_module(name)
    for line in sys.stdin:
        order = json.loads(line)
        at = Path(order["home"], "at")
        at.write_text("importing")
        end, pid = time.monotonic() + order["wall_s"], os.fork()
        if not pid:
            run(order, at)
        while not (found := os.waitpid(pid, os.WNOHANG))[0] and time.monotonic() < end:
            time.sleep(0.02)
        slow = not found[0]
        if slow:
            os.kill(pid, signal.SIGKILL)
            found = os.waitpid(pid, 0)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)  # what its tests have left
        slow = slow or (os.WIFSIGNALED(found[1]) and os.WTERMSIG(found[1]) in {signal.SIGXCPU, signal.SIGKILL})
        shutil.rmtree(Path(order["home"], "temporary"), ignore_errors=True)
        print("too slow" if slow else at.read_text() if found[1] else "passed", flush=True)


if __name__ == "__main__":
    main()
