"""A job of two Slurm nodes: its ranks recorded, the machine recorded beside them, and both ended by scancel.

Both nodes are daemons on this host (``scripts/slurm-nodes.sh``). So its name does not tell them apart: Slurm's does.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from workloads.record import LO2IO
from workloads.served import lo2io

from lo2io.trace.reader import open_trace

if TYPE_CHECKING:
    from lo2io.trace.reader import Trace

pytestmark = pytest.mark.requires("root", "tracefs", "events", "srun", "slurmctld", "slurmd", "munged")

NODES = Path(__file__).parents[2] / "scripts/slurm-nodes.sh"
RANK = """
rank=$SLURM_PROCID
echo $$ > pid.$rank
dd if=/dev/zero of=file.$rank bs=512 count=$((11 + rank)) status=none
case $rank in
    1) until [ -e up.0 ]; do sleep 0.05; done; exit 3 ;;
    2) until [ -e up.3 ]; do sleep 0.05; done; kill -USR1 $$ ;;
esac
touch up.$rank
exec sleep 300
"""
"""Ranks 0 and 3 stay until they are cancelled, the others fail, each in its way."""
BATCH = f"""#!/bin/sh
srun --overlap --ntasks-per-node=1 {LO2IO} system-wide -q -e write -o whole &
until [ "$(ls whole/host=n[12]/spool/spool.json 2>/dev/null | wc -l)" = 2 ]; do sleep 0.1; done
srun --overlap --kill-on-bad-exit=0 --ntasks-per-node=2 {LO2IO} record -q -e syscalls -o T -- sh rank.sh
"""
CANCEL = """
id=$(sbatch --parsable -N2 -o out batch.sh)
until grep -q 'task 1:' out && grep -q 'task 2:' out; do sleep 0.1; done 2>/dev/null
scancel "$id"
while squeue -h | grep -q .; do sleep 0.1; done
"""


def blocks_by_pid(trace: Trace) -> dict[int, int]:
    """Pid → blocks of 512 bytes that it wrote."""
    found: dict[int, int] = {}
    for row in trace.table("operations").select(["pid", "call", "bytes_request"]).to_pylist():
        if (row["call"], row["bytes_request"]) == ("write", 512):
            found[row["pid"]] = found.get(row["pid"], 0) + 1
    return found


def test_a_job_of_two_slurm_nodes(tmp_path: Path) -> None:
    """Both commands leave whole traces of both nodes, though a rank failed and the job was cancelled."""
    (tmp_path / "rank.sh").write_text(RANK)
    (tmp_path / "batch.sh").write_text(BATCH)
    line = (NODES, "2", "4", "sh", "-c", CANCEL)
    done = subprocess.run(line, cwd=tmp_path, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr
    said = (tmp_path / "out").read_text()
    # A rank whose command the recorder has as a child ends as a shell does, with 128 + 10.
    assert re.search(r"n1: task 1: Exited with exit code 3$", said, re.MULTILINE), said
    assert re.search(r"n2: task 2: (User defined signal 1|Exited with exit code 138)$", said, re.MULTILINE), said
    assert sorted(re.findall(r"^(n\d): (\w+): ", said, re.MULTILINE)) == [
        (node, "complete") for node in ("n1", "n1", "n2", "n2")
    ], said

    pids = {rank: int((tmp_path / f"pid.{rank}").read_text()) for rank in range(4)}
    for folder in ("T", "whole"):
        assert sorted(path.name for path in (tmp_path / folder).iterdir()) == ["host=n1", "host=n2"]
        for node in ("n1", "n2"):
            lo2io("verify", tmp_path / folder / f"host={node}", check=True)
    blocks: dict[int, int] = {}
    for node, ranks in (("n1", (0, 1)), ("n2", (2, 3))):
        trace = open_trace(tmp_path / f"T/host={node}")
        job = trace.metadata["job"]
        assert (job["launcher"], job["host"], job["nr_ranks"], job["nr_nodes"]) == ("slurm", node, 4, 2)
        assert {each["rank"]: each["pid"] for each in job["ranks"]} == {rank: pids[rank] for rank in ranks}
        of_node = blocks_by_pid(trace)
        rank_of = {row["pid"]: row["rank"] for row in trace.table("threads").to_pylist()}
        assert {rank_of[pid]: nr for pid, nr in of_node.items()} == {rank: 11 + rank for rank in ranks}
        blocks |= of_node
    for node in ("n1", "n2"):  # both nodes have one kernel: each one's recorder sees all ranks
        whole = open_trace(tmp_path / f"whole/host={node}")
        assert not whole.metadata["job"]["ranks"]
        assert blocks_by_pid(whole).items() >= blocks.items()
