"""`mpirun lo2io merge`: ranks share the work, and one of them tells."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

import pytest
from build.merged_traces import small_cluster, written
from workloads.record import LO2IO

from lo2io.cluster.merge import merge

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.requires("root", "mpirun")


def ranks(*words: str | Path) -> subprocess.CompletedProcess[str]:
    """The command in two ranks."""
    line = ("mpirun", "--allow-run-as-root", "--oversubscribe", "-n", "2", LO2IO, *words)
    return subprocess.run(line, capture_output=True, text=True, timeout=60, check=False)


def test_two_ranks_write_what_one_writes(tmp_path: Path) -> None:
    """Each byte of the definitions is the same. One rank tells what was merged."""
    cluster = small_cluster(tmp_path / "T", "abcdef", "system")
    merge(cluster)
    alone = written(cluster)
    done = ranks("merge", cluster)
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"{cluster}\n"
    assert done.stderr.count("lo2io: 6 hosts, ") == 1
    assert written(cluster) == alone


def test_an_error_ends_all_ranks(tmp_path: Path) -> None:
    """The first rank tells it once, and no archive is left."""
    (tmp_path / "T" / "host=a").mkdir(parents=True)
    done = ranks("merge", tmp_path / "T")
    assert done.returncode == 5
    assert done.stderr.count("no host has a whole trace") == 1
    assert [entry.name for entry in (tmp_path / "T").iterdir()] == ["host=a"]
