"""`scripts/other_readers.py`: otf2-print and Python's otf2 find the operations and bytes that the tables have."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from build.application_archive import write_application
from build.merged_traces import small_cluster

from lo2io.cluster.application import Request
from lo2io.cluster.merge import MERGED, merge

SCRIPT = Path(__file__).parents[2] / "scripts/other_readers.py"
READERS = ("otf2-print", "Python's otf2")
WRITER = 100
"""A process of the small machine."""


def compared(trace: Path, *words: str | Path) -> tuple[int, list[str]]:
    """The script's exit code, and what it says of each reader."""
    done = subprocess.run([sys.executable, SCRIPT, trace, *words], capture_output=True, text=True, check=False)
    assert not done.stderr
    return done.returncode, done.stdout.splitlines()[1:]


@pytest.mark.parametrize(("mode", "sched"), [("process", False), ("system", True)])
def test_they_agree_on_machines_and_on_many(tmp_path: Path, mode: str, sched: bool) -> None:
    """A merged archive has the operations of its parts. If a part's tables are missing, both readers find more."""
    cluster = small_cluster(tmp_path / "T", "ab", mode, sched=sched)
    merge(cluster)
    found = {}
    for trace in (cluster / "host=a", cluster):
        code, said = compared(trace)
        assert (code, len(said)) == (0, 2), said
        assert [line.endswith(" bytes agree") for line in said] == [True, True]
        (numbers,) = {line.split(": ")[1] for line in said}
        found[trace] = [int(number.replace(",", "")) for number in re.findall(r"[\d,]+", numbers)]
    assert found[cluster] == [2 * number for number in found[cluster / "host=a"]]
    assert min(found[cluster]) > 0
    shutil.rmtree(cluster / "host=b")
    code, said = compared(cluster)
    assert code == 1
    assert {line.split(":")[0].strip() for line in said} == set(READERS)


def test_they_agree_on_an_applications_archive_too(tmp_path: Path) -> None:
    """What the application recorded is there beside what lo2io did. Without its archive, readers find more."""
    trace = small_cluster(tmp_path / "T", "a") / "host=a"
    host = json.loads((trace / "lo2io/metadata.json").read_text(encoding="utf-8"))["hostname"]
    anchor = write_application(tmp_path / "scorep", host, [WRITER, None])
    merge(trace, request=Request(anchor, offset_s=0.002))
    code, said = compared(trace / MERGED, "--with", anchor)
    assert (code, len(said)) == (0, 2), said
    assert compared(trace / MERGED)[0] == 1
