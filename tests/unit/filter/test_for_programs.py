"""The part of a filter for the programs: they drop neither a call that would pass nor one that others need."""

from __future__ import annotations

import pytest

from lo2io.catalog.catalog import load_catalog
from lo2io.filter.for_programs import call_filter
from lo2io.filter.parser import parse_all
from lo2io.model import BlockDevice, CallFilter
from lo2io.units import kernel_dev

VDA, VDA1, VDB = kernel_dev(254, 0), kernel_dev(254, 1), kernel_dev(254, 16)
DEVICES = (
    BlockDevice(VDA, "vda", None, None, None),
    BlockDevice(VDA1, "vda1", None, None, None, disk=VDA, start_sector=2048),
    BlockDevice(VDB, "vdb", None, None, None),
)


def chosen(text: str, events: str = "syscalls,metadata,process") -> CallFilter:
    """The programs' part of a filter."""
    catalog = load_catalog()
    return call_filter(parse_all([text]), catalog.select([events]).events, DEVICES, catalog)


@pytest.mark.parametrize(
    ("text", "latency", "size", "devices"),
    [
        ("latency > 1ms", 1_000_001, 0, ()),
        ("latency >= 1ms and latency > 5us", 1_000_000, 0, ()),
        ("latency == 2ms, 1ms", 1_000_000, 0, ()),
        ("latency < 1ms", 0, 0, ()),
        ("size >= 4KiB", 0, 4096, ()),
        ("size != 4096", 0, 0, ()),
        ("size > 4095 and latency > 9ns", 10, 4096, ()),
        ("device == vda", 0, 0, (VDA, VDA1)),
        ("device == vda1", 0, 0, (VDA1,)),
        ("device == vda1, vdb", 0, 0, (VDA1, VDB)),
        ("device == 254:16", 0, 0, (VDB,)),
        ("device != vda", 0, 0, ()),
        ("device ~ 'vd*'", 0, 0, ()),
        ("path ~ '/data/**'", 0, 0, ()),
        ("pid == 1", 0, 0, ()),
        ("operation == read", 0, 0, ()),
    ],
)
def test_comparisons(text: str, latency: int, size: int, devices: tuple[int, ...]) -> None:
    """The least that passes; what has no least is left to converting."""
    made = chosen(text)
    assert (made.min_latency_ns, made.min_bytes, made.devices) == (latency, size, devices)
    assert bool(made) == bool(latency or size or devices)
    assert bool(made.droppable) == bool(made)


def test_what_others_depend_on_is_never_left_out() -> None:
    """Calls that move descriptors or positions, begin or end tasks, or may do either by their arguments."""
    droppable = chosen("latency > 1ms").droppable
    assert {"pread64", "pwritev", "fsync", "newfstatat", "unlinkat", "getdents64"} <= droppable
    kept = {"read", "write", "readv", "preadv2", "pwritev2", "lseek", "sendfile64", "copy_file_range", "io_submit"}
    kept |= {"open", "openat", "close", "dup2", "fcntl", "execve", "exit_group", "clone", "unshare"}
    assert not kept & droppable


@pytest.mark.parametrize("more", ["sched", "io_uring"])
def test_beside_rings_and_switches_all_calls_stay(more: str) -> None:
    """Executions for rings, and stretches, follow from the calls around them."""
    assert not chosen("latency > 1ms", f"syscalls,{more}")
