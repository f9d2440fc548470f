"""A program that writes by MPI-IO on two nodes, from launch to the report of both nodes, as JSON and as a page.

A node is a network and a UTS namespace. Two of them are linked by a pair of network devices, and mpirun starts its
daemon on the other one through nsenter in place of ssh. Both go away with the process that holds them.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import otf2
import pytest
from workloads.mpi_io import BLOCK, ROUNDS, block_of
from workloads.record import LO2IO
from workloads.served import lo2io

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.requires("root", "tracefs", "events", "mpirun", "nsenter", "ip")

NR_RANKS = 8
OF_NODE = NR_RANKS // 2
PROGRAM = Path(__file__).parents[1] / "workloads/mpi_io.py"
QUERY = """
    select host, rank, pid, parse_filename(path) as file, offset_bytes as "offset", bytes_result as bytes from calls
    where call like '%write%' and (path like '%/shared' or path like '%/apart') order by file, "offset"
"""


@contextlib.contextmanager
def two_nodes() -> Iterator[list[int]]:
    """The pids of processes that hold the nodes n1 and n2."""
    with contextlib.ExitStack() as stack:
        holders = []
        for name in ("n1", "n2"):
            line = ("unshare", "--net", "--uts", "sh", "-c", f"hostname {name}; echo; exec cat")
            pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
            holder = stack.enter_context(subprocess.Popen(line, **pipes))  # type: ignore[call-overload]
            assert holder.stdout.readline() == b"\n"
            holders.append(holder.pid)
        first, second = map(str, holders)
        link = ("ip", "link", "add", "eth0", "netns", first, "type", "veth", "peer", "name", "eth0", "netns", second)
        subprocess.run(link, check=True)
        for number, pid in enumerate((first, second), 1):
            words = f"ip addr add 10.77.0.{number}/24 dev eth0 && ip link set eth0 up && ip link set lo up"
            subprocess.run(("nsenter", "-t", pid, "-n", "sh", "-c", words), check=True)
        yield holders


def mpirun(folder: Path, nodes: list[int], *words: str | Path) -> str:
    """Run ranks on both nodes, in ``folder``. What stderr has."""
    agent = folder / "agent"
    agent.write_text(f'#!/bin/sh\nshift\nexec nsenter -t {nodes[1]} -n -u sh -c "$*"\n')
    agent.chmod(0o755)
    (folder / "hosts").write_text(f"n1 slots={OF_NODE}\nn2 slots={OF_NODE}\n")
    settings = {
        "plm_rsh_agent": str(agent),
        "btl_tcp_if_include": "eth0",
        "oob_tcp_if_include": "eth0",
        "mpi_yield_when_idle": "1",
    }
    options = [word for name, value in settings.items() for word in ("--mca", name, value)]
    enter = ("nsenter", "-t", str(nodes[0]), "-n", "-u")
    line = (*enter, "mpirun", "--allow-run-as-root", "--hostfile", "hosts", *options, "-n", str(NR_RANKS), *words)
    done = subprocess.run(line, cwd=folder, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return str(done.stderr)


def check_contents(folder: Path) -> None:
    """Both files have the blocks of all ranks, in their order."""
    shared = b"".join(block_of(rank, number) for number in range(ROUNDS) for rank in range(NR_RANKS))
    apart = b"".join(block_of(rank, number) for rank in range(NR_RANKS) for number in range(rank + 1))
    assert (folder / "shared").read_bytes() == shared
    assert (folder / "apart").read_bytes() == apart


def check_pieces(rows: list[dict[str, Any]], size: int) -> None:
    """The writes cover a file of this size, each byte once."""
    end = 0
    for row in rows:
        assert row["offset"] == end
        end += row["bytes"]
    assert end == size


def bytes_in_archive(trace: Path) -> dict[tuple[str, str], int]:
    """Name of a location group and of a file of the program, both without what tells the node → bytes written there."""
    found: dict[tuple[str, str], int] = {}
    with otf2.reader.open(str(trace / "traces.otf2")) as archive:
        writes = set()
        for location, event in archive.events:
            if isinstance(event, otf2.events.IoOperationBegin):
                if event.mode == otf2.IoOperationMode.WRITE:
                    writes.add((location, event.matching_id))
            elif isinstance(event, otf2.events.IoOperationComplete) and (location, event.matching_id) in writes:
                file = event.handle.file.name.partition(" @")[0].rpartition("/")[2] if event.handle.file else ""
                if file in {"shared", "apart"}:
                    key = (location.group.name.partition(":")[0], file)
                    found[key] = found.get(key, 0) + event.bytes_result
    return found


def test_mpi_io_of_two_nodes(tmp_path: Path) -> None:
    """Each byte of both files was written once, by the host and the rank that the program tells."""
    with two_nodes() as nodes:
        said = mpirun(
            tmp_path, nodes, LO2IO, "record", "-q", "-e", "syscalls", "-o", "T", "--", sys.executable, PROGRAM, tmp_path
        )
    assert sorted(line[:14] for line in said.splitlines() if " complete: " in line) == [
        "n1: complete: ",
        "n2: complete: ",
    ]
    told = {rank: json.loads((tmp_path / f"rank-{rank}").read_text()) for rank in range(NR_RANKS)}
    check_contents(tmp_path)

    lo2io("merge", tmp_path / "T", check=True)
    lo2io("verify", tmp_path / "T/traces.otf2", check=True)
    rows = [
        json.loads(line)
        for line in lo2io("query", tmp_path / "T", QUERY, "--to", "json", check=True).stdout.splitlines()
    ]
    for row in rows:
        assert (row["pid"], row["host"]) == (told[row["rank"]]["pid"], told[row["rank"]]["host"]), row
    check_pieces([row for row in rows if row["file"] == "shared"], ROUNDS * NR_RANKS * BLOCK)
    apart = [row for row in rows if row["file"] == "apart"]
    check_pieces(apart, NR_RANKS * (NR_RANKS + 1) // 2 * BLOCK)
    assert [row["rank"] for row in apart] == [rank for rank in range(NR_RANKS) for _ in range(rank + 1)]

    summary = json.loads(lo2io("report", tmp_path / "T", "--json", check=True).stdout)
    assert {row["host"]: row["ranks"] for row in summary["hosts"]} == {"n1": [0, 1, 2, 3], "n2": [4, 5, 6, 7]}
    assert sorted((row["rank"], row["host"]) for row in summary["ranks"]) == [(r, told[r]["host"]) for r in told]

    lo2io("report", tmp_path / "T", "--html", tmp_path / "page.html", check=True)
    page = (tmp_path / "page.html").read_text()
    for card, value in {"hosts": 2, "ranks": NR_RANKS, "calls": summary["activity"]["calls"]}.items():
        assert f'data-card="{card}" data-value="{value}"' in page
    for rank, facts in told.items():
        assert f'<tr><td class="n" data-value="{rank}">{rank}</td><td class="text">{facts["host"]}</td>' in page

    archived = bytes_in_archive(tmp_path / "T")
    assert {key: size for key, size in archived.items() if key[1] == "apart"} == {
        (f"rank {rank}", "apart"): (rank + 1) * BLOCK for rank in range(NR_RANKS)
    }
    assert sum(size for (_, file), size in archived.items() if file == "shared") == ROUNDS * NR_RANKS * BLOCK
