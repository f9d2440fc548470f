"""The native part on a machine that has no memory left."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from workloads import build

TESTS = Path(build.__file__).parents[1]


def test_each_refused_request_for_memory_is_an_error(tmp_path: Path) -> None:
    """Of the engine, the writer of OTF2, the sums of a report and the reader of archives: each request is refused once.

    Nothing crashes, and no result lacks a part: it is whole, or there is an error. All memory is given back at the end.
    """
    library = build.build("refusing_memory", ("gcc", "-shared", "-fPIC"))
    places = [str(TESTS), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    environ = {**os.environ, "LD_PRELOAD": str(library), "PYTHONPATH": os.pathsep.join(places)}
    command = [sys.executable, "-m", "workloads.refusing_memory", tmp_path]
    done = subprocess.run(command, env=environ, stdout=subprocess.PIPE, text=True, check=True)
    found = {row["work"]: row for row in map(json.loads, done.stdout.splitlines())}
    assert list(found) == ["rings", "facts", "write", "report", "foreign"]
    for row in found.values():
        assert (row["wrong"], row["left"]) == ([], 0)
        assert row["errors"] > 0.8 * row["requests"]
