"""The layout of a whole machine: block events as samples on CPUs, which thread runs where, calls by calling context."""

from __future__ import annotations

import errno
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from build.otf2_batches import CALLS, META, START, STOP, SYSTEM, BatchMaker, complete
from build.otf2_written import attributes
from otf2.enums import (
    InterruptGeneratorMode,
    LocationGroupType,
    LocationType,
    Paradigm,
    RegionRole,
)

from lo2io.errors import UsageError
from lo2io.model import UNKNOWN_U32, RequestOp, Totals, TraceEnd
from lo2io.otf2.write.layout import Layout, choose_layout
from lo2io.otf2.write.writer import Otf2Writer
from lo2io.trace.columns import WRITE_REASON

if TYPE_CHECKING:
    from pathlib import Path

Write = Any
T = 2_000_000
SDA = 8 << 20
CANCELLED = 3


# ---- which layout ----


@pytest.mark.parametrize(
    ("mode", "events", "asked", "layout"),
    [
        ("process", (), None, Layout("begin-end", contexts=False, metrics=False)),
        ("process", (), "samples", Layout("samples", contexts=True, metrics=True)),
        ("process", (), "both", Layout("both", contexts=True, metrics=True)),
        ("process", ("sched:sched_switch",), None, Layout("begin-end", contexts=True, metrics=False)),
        ("system", (), None, Layout("both", contexts=True, metrics=True)),
        ("system", (), "begin-end", Layout("begin-end", contexts=True, metrics=True)),
    ],
)
def test_layout(mode: str, events: tuple[str, ...], asked: str | None, layout: Layout) -> None:
    """By the mode unless requested; calling contexts if a CPU has a location."""
    assert choose_layout(replace(META, mode=mode, events=events), asked) == layout


def test_unknown_block_records(tmp_path: Path) -> None:
    """Refused before anything is written."""
    with pytest.raises(UsageError, match="'beginend'"):
        Otf2Writer(tmp_path, META, CALLS, block_records="beginend")
    assert not list(tmp_path.iterdir())


def test_begin_end_in_a_whole_machine(maker: BatchMaker, write: Write) -> None:
    """Requests stay on their device's location, calls go by calling context: I/O records need no Enter."""
    maker.task(0)
    maker.call("newfstat", T, T + 1)
    maker.request(1001, T, T + 2, T + 5)
    written = write(maker.make(), meta=SYSTEM, block_records="begin-end")
    assert [kind for kind, _ in written.shape("vda requests")] == [
        "OperationBegin",
        "OperationIssued",
        "OperationComplete",
    ]
    assert written.shape() == [("+fstat", T), ("-fstat", T + 1)]
    assert not written.of("CPU 0")
    assert not list(written.definitions.interrupt_generators)


def test_both(maker: BatchMaker, write: Write) -> None:
    """Operations and samples of one request have the same id."""
    maker.request(1001, T, T + 2, T + 5)
    written = write(maker.make(), meta=SYSTEM, block_records="both")
    assert {event.matching_id for event in written.of("vda requests")} == {1001}
    assert [attributes(event)["RequestId"] for event in written.of("CPU 0")] == [1001] * 3


def test_samples_of_chosen_processes(maker: BatchMaker, write: Write) -> None:
    """Samples go with process mode too."""
    maker.task(0)
    maker.call("newfstat", T, T + 1)
    maker.request(1001, T, T + 2, T + 5, cpus=(1, 1, 1))
    written = write(maker.make(), block_records="samples")
    assert written.shape("CPU 1") == [("!vda write", T), ("!vda write", T + 2), ("!vda write", T + 5)]
    assert written.shape() == [("+fstat", T), ("-fstat", T + 1)]


# ---- the machine ----


def test_host_package_core_cpu(maker: BatchMaker, write: Write) -> None:
    """Each CPU of the recording is there, even without events; domains say what a node is."""
    written = write(maker.make(), meta=SYSTEM)
    nodes = {node.name: node for node in written.definitions.system_tree_nodes}
    assert {name: node.parent.name for name, node in nodes.items() if node.parent} == {
        "node7": "machine",
        "package 0": "node7",
        "package 1": "node7",
        "package 0 core 0": "package 0",
        "package 0 core 1": "package 0",
        "package 1 core 0": "package 1",
        "cpu 0": "package 0 core 0",
        "cpu 1": "package 0 core 1",
        "cpu 2": "package 1 core 0",
    }
    text = written.printed("-G")
    lines = [line for line in text.splitlines() if line.startswith("SYSTEM_TREE_NODE_DOMAIN")]
    assert [(line.split('"')[1], line.split()[-1]) for line in lines] == [
        ("machine::machine", "MACHINE"),
        ("node::node7", "SHARED_MEMORY"),
        ("package::package 0", "SOCKET"),
        ("core::package 0 core 0", "CORE"),
        ("cpu::cpu 0", "PU"),
        ("core::package 0 core 1", "CORE"),
        ("cpu::cpu 1", "PU"),
        ("package::package 1", "SOCKET"),
        ("core::package 1 core 0", "CORE"),
        ("cpu::cpu 2", "PU"),
    ]
    found = {location.name: location for location in written.definitions.locations}
    assert list(found) == ["CPU 0", "CPU 1", "CPU 2"]
    assert {location.type for location in found.values()} == {LocationType.CPU_THREAD}
    assert {location.group.location_group_type for location in found.values()} == {LocationGroupType.PROCESS}
    assert found["CPU 2"].group.system_tree_parent == nodes["cpu 2"]


def test_cpu_of_unknown_place(maker: BatchMaker, write: Write) -> None:
    """A CPU that was plugged in later belongs to the host."""
    maker.request(1001, None, T, None, cpus=(7, 7, 7))
    written = write(maker.make(), meta=SYSTEM)
    (node,) = (node for node in written.definitions.system_tree_nodes if node.name == "cpu 7")
    assert node.parent.name == "node7"
    assert written.shape("CPU 7") == [("!vda write", T)]


def test_gap_is_marked_on_its_cpu(maker: BatchMaker, write: Write) -> None:
    """CPUs have locations here; one without has the host's node."""
    maker.row("losses", cpu=1, begin_time_ns=T, end_time_ns=T + 70, lost=512)
    maker.row("losses", cpu=9, begin_time_ns=T, end_time_ns=T + 70, lost=1)
    maker.row("losses", cpu=1, begin_time_ns=T + 80, end_time_ns=T + 90, lost=0)
    written = write(maker.make(), meta=SYSTEM)
    lines = [" ".join(line.split()) for line in written.markers() if line.startswith("MARKER ")]
    assert lines == [
        f'MARKER Time: {T}, Duration 70, Scope: LOCATION:1, Text: "CPU 1: the kernel dropped 512 records"',
        f'MARKER Time: {T}, Duration 70, Scope: SYSTEM_TREE_NODE:1, Text: "CPU 9: the kernel dropped 1 records"',
        f'MARKER Time: {T + 80}, Duration 10, Scope: LOCATION:1, Text: "CPU 1: records of layers were lost"',
    ]


# ---- samples ----


def test_request_is_sampled_where_it_was_seen(maker: BatchMaker, write: Write) -> None:
    """One sample per event, on its CPU, with all that is known by then."""
    maker.request(1001, T, T + 10, T + 30, cpus=(0, 1, 2), flags=8)
    written = write(maker.make(), meta=SYSTEM)
    assert [written.shape(f"CPU {cpu}") for cpu in range(3)] == [
        [("!vda write", T)],
        [("!vda write", T + 10)],
        [("!vda write", T + 30)],
    ]
    samples = [event for location, event in written.events if location.name.startswith("CPU")]
    always = {
        "Device": "vda",
        "Operation": "WS",
        "RequestId": 1001,
        "Sector": 8,
        "Bytes": 4096,
        "ProcessId": 100,
        "ThreadId": 100,
    }
    assert [attributes(event) for event in samples] == [
        {"Event": "insert", **always},
        {"Event": "issue", **always},
        {"Event": "complete", **always, "QueueLatency": 10, "DeviceLatency": 20},
    ]
    (generator,) = written.definitions.interrupt_generators
    assert {event.interrupt_generator for event in samples} == {generator}
    assert generator.interrupt_generator_mode == InterruptGeneratorMode.COUNT
    assert (generator.exponent, generator.period) == (0, 1)


def test_request_that_bypassed_the_scheduler(maker: BatchMaker, write: Write) -> None:
    """It was never inserted, so it has no such sample, and no time in the queue."""
    maker.request(1001, None, T + 10, T + 30)
    events = write(maker.make(), meta=SYSTEM).of("CPU 0")
    assert [attributes(event)["Event"] for event in events] == ["issue", "complete"]
    assert attributes(events[1])["DeviceLatency"] == 20
    assert "QueueLatency" not in attributes(events[1])


def test_merged_request_was_never_issued(maker: BatchMaker, write: Write) -> None:
    """OTF2's operations need an issue before the cancellation; a sample of what did not happen is none."""
    maker.request(1001, T, None, None)
    row = {"device": SDA, "operation": 1, "pid": 100, "tid": 100, "sector": 8, "insert_time_ns": T}
    maker.row("request_events", id=1001, kind=1, time_ns=T + 5, bytes=4096, **row)
    maker.row("request_events", id=1001, kind=CANCELLED, time_ns=T + 5, bytes=-(2**63), **row)
    events = write(maker.make(), meta=SYSTEM).of("CPU 0")
    assert [attributes(event)["Event"] for event in events] == ["insert", "merge"]
    assert "Bytes" not in attributes(events[1])


def test_what_is_unknown_is_no_attribute(maker: BatchMaker, write: Write) -> None:
    """Submitter, size and sector of a flush, and a failed request's bytes; its errno is there."""
    maker.request(1001, None, T, None, operation=RequestOp.FLUSH, pid=UNKNOWN_U32, tid=UNKNOWN_U32)
    maker.request(1003, None, None, None)
    seen = {"device": SDA, "pid": 100, "tid": 100, "sector": 8, "issue_time_ns": T}
    maker.row("request_events", id=1003, kind=2, time_ns=T + 1, error=errno.EIO, bytes=-(2**63), **seen)
    flush, failed = write(maker.make(), meta=SYSTEM, block_records="samples").of("CPU 0")
    assert attributes(flush) == {"Event": "issue", "Device": "vda", "Operation": "F", "RequestId": 1001}
    assert attributes(failed) == {
        "Event": "complete",
        "Device": "dev 8:0",
        "Operation": "R",
        "RequestId": 1003,
        "Sector": 8,
        "ProcessId": 100,
        "ThreadId": 100,
        "errno": errno.EIO,
        "DeviceLatency": 1,
    }


def test_samples_say_why_and_for_whom_a_request_writes(maker: BatchMaker, write: Write) -> None:
    """Each says why; for whom is known at the end."""
    row = {"device": SDA, "operation": 1, "reason": WRITE_REASON.index("periodic"), "issue_time_ns": T, "bytes": 4096}
    maker.row("request_events", id=1001, kind=1, time_ns=T, **row)
    maker.row("request_events", id=1001, kind=2, time_ns=T + 1, charged=55, **row)
    written = write(maker.make(), meta=SYSTEM, block_records="samples")
    found = [attributes(sample) for sample in written.of("CPU 0")]
    assert [(each.get("Reason"), each.get("Charged to")) for each in found] == [("periodic", None), ("periodic", 55)]


@pytest.mark.parametrize(
    ("operation", "name"),
    [(0, "read"), (1, "write"), (2, "flush"), (3, "discard"), (4, "secure erase"), (5, "write zeroes"), (6, "zone")],
)
def test_contexts_name_device_and_operation(maker: BatchMaker, write: Write, operation: int, name: str) -> None:
    """A region each, which is only sampled, in the group that viewers colour by."""
    maker.request(1001, None, T, None, operation=operation)
    written = write(maker.make(), meta=SYSTEM)
    (region,) = written.definitions.regions
    assert (region.name, region.region_role) == (f"vda {name}", RegionRole.FILE_IO)
    assert region.paradigm == Paradigm.SAMPLING
    assert f'Name: "block I/O" <{region_group(written)}>' in written.printed("-G")


def region_group(written: Any) -> int:
    """String reference of the only group's name."""
    (group,) = written.definitions.groups
    line = next(line for line in written.printed("-G").splitlines() if line.startswith("GROUP "))
    assert group.name in line
    return int(line.split("<")[1].split(">")[0])


# ---- properties ----


def test_processes_in_containers(maker: BatchMaker, write: Write) -> None:
    """Cgroup of every process where it is known, container where its path names one."""
    identity = "0123456789abcdef" * 4
    path = f"/system.slice/docker-{identity}.scope".encode()
    maker.task(0, cgroup=path)
    maker.task(1, process=1, pid=101, cgroup=b"/user.slice")
    maker.task(2, process=2, pid=102)
    for task in range(3):
        maker.call("newfstat", T, T + 1, task=task, pid=100 + task)
    text = write(maker.make(), meta=SYSTEM).printed("-G")
    found = [" ".join(line.split()) for line in text.splitlines() if line.startswith("LOCATION_GROUP_PROPERTY")]
    said = [line for line in found if '"Cgroup"' in line or '"Container"' in line]
    assert [line.split('"')[1::2] for line in said] == [
        ["fio [100]", "Cgroup", path.decode()],
        ["fio [100]", "Container", identity],
        ["fio [101]", "Cgroup", "/user.slice"],
    ]


def test_properties_of_a_whole_machine(write: Write, maker: BatchMaker) -> None:
    """A filtered trace has its omissions, and the filter."""
    meta = replace(
        SYSTEM, filter="pid == 7", cgroup="/user.slice", chosen_cpus=(0, 2), recording_start_ns=START - 5_000_000
    )
    end = TraceEnd(START, STOP, complete(), Totals(nr_own_calls=12, nr_own_requests=3))
    found = write(maker.make(), meta=meta, end=end).properties()
    expected = {
        "LO2IO::MODE": "system",
        "LO2IO::BLOCK_RECORDS": "both",
        "LO2IO::FILTER": "pid == 7",
        "LO2IO::CGROUP": "/user.slice",
        "LO2IO::CHOSEN_CPUS": "0,2",
        "LO2IO::RECORDING_START": str(START - 5_000_000),
        "LO2IO::NR_OWN_CALLS": "12",
        "LO2IO::NR_OWN_REQUESTS": "3",
    }
    assert expected.items() <= found.items()


def test_what_the_user_was_told_is_in_the_trace(write: Write, maker: BatchMaker) -> None:
    """A trace without requests of rings has the reason, in one line of the anchor file."""
    meta = replace(SYSTEM, notices=("this kernel has no io_uring:*: recorded without", "two\nlines"))
    found = write(maker.make(), meta=meta).properties()
    assert found["LO2IO::NOTICES"] == r"this kernel has no io_uring:*: recorded without; two\nlines"


def test_nothing_left_out_is_not_said(write: Write, maker: BatchMaker) -> None:
    """No filter, no cgroup, no window, no notice: no properties of these names."""
    text = write(maker.make(), meta=SYSTEM).printed("-I")
    assert all(
        f"LO2IO::{name}" not in text for name in ("FILTER", "CGROUP", "CHOSEN_CPUS", "RECORDING_START", "NOTICES")
    )
