"""`mpirun lo2io doctor`: one table from one rank."""

from __future__ import annotations

import json
import subprocess

import pytest
from workloads.record import LO2IO


@pytest.mark.requires("root", "mpirun", "unshare")
def test_one_rank_tells_of_all_nodes() -> None:
    """Two ranks of this host are one node. A PID namespace of its own cannot record: all ranks end with its code."""
    apart = ("unshare", "--uts", "--pid", "--fork", "--mount-proc")
    there = f"hostname elsewhere; {LO2IO} doctor --json"
    words = ("mpirun", "--allow-run-as-root", "--oversubscribe", "-n", "2", LO2IO, "doctor", "--json")
    done = subprocess.run(
        (*words, ":", "-n", "1", *apart, "sh", "-c", there), capture_output=True, text=True, timeout=120, check=False
    )
    told = json.loads(done.stdout)
    assert len(told["hosts"]) == 2
    failing = {check["name"] for check in told["hosts"]["elsewhere"]["checks"] if check["status"] == "fail"}
    assert "namespaces" in failing
    assert (done.returncode, told["can_record"]) == (3, False)
