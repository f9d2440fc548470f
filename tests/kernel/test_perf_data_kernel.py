"""A recording as ``perf.data``: perf finds the spool's content in it, event by event."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

import pytest
from build.rawspool import NR_CALLS, ids_of, iter_samples, work
from reference.kernel_records import iter_records
from workloads.record import record
from workloads.served import lo2io

from lo2io.native.records import KINDS, unpack
from lo2io.spool.reader import SpoolReader

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [
    pytest.mark.requires("root", "tracefs", "events", "perf"),
    pytest.mark.usefixtures("busy_cpus"),
]


def iter_calls(paths: tuple[Path, ...]) -> Iterator[tuple[int, int, int]]:
    """Time, event id and thread of each entry, exit and event that lo2io's programs recorded."""
    for body in iter_records(b"".join(path.read_bytes() for path in paths)):
        head = unpack("head", body)
        kind = KINDS[head.type]
        if kind in {"call", "enter", "exit", "sample"}:
            yield head.time_ns, head.event, head.tid
        if kind == "call":
            call = unpack(kind, body)
            yield head.time_ns + call.duration_ns, call.exit_event, head.tid


@pytest.mark.parametrize("backend", ["bpf", "perf"])
def test_every_sample(tmp_path: Path, backend: str) -> None:
    """Each sample and each half of a call once, with time, thread and event; fields as the kernel prints them."""
    recorded = record(tmp_path / "T", work(), "--keep-spool", "--backend", backend, "-e", "+pwrite64")
    file = tmp_path / "perf.data"
    lo2io("export", recorded.trace.path, "--to", "perf-data", "-o", file, check=True)
    spool = SpoolReader(recorded.trace.path / "spool")
    names = dict(zip(ids_of(spool), spool.meta.events, strict=True))
    expected = [sample for files, _ in spool.streams() for sample in iter_samples(files)]
    programs = (*spool.kernel_streams(), *spool.event_streams())
    expected += [half for files, _ in programs for half in iter_calls(files)]
    command = ["perf", "script", "--ns", "-F", "tid,time,event,trace", "-i", file]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    found = []
    for line in lines:
        tid, time, event, *_ = line.split()
        found.append((int(time.rstrip(":").replace(".", "")), event.rstrip(":"), int(tid)))
    assert sorted(found) == sorted((time, names[event], tid) for time, event, tid in expected)
    assert [time for time, *_ in found] == sorted(time for time, *_ in found)
    own = set(recorded.trace.column("threads", "tid").tolist())  # other processes write, too, and perf sees them
    mine = [line for line in lines if "sys_enter_pwrite64" in line and int(line.split()[0]) in own]
    writes = [line.split("pos: ")[1] for line in mine if "count: 0x00000001" in line]
    assert [int(place, 16) for place in writes] == list(range(NR_CALLS))
