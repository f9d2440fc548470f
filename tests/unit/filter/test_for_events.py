"""The part of a filter for the kernel: it never drops a sample on which a row of the trace depends."""

from __future__ import annotations

import fnmatch
import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lo2io.catalog.catalog import Selection, load_catalog
from lo2io.errors import UsageError
from lo2io.filter.for_events import check_devices, kernel_filters
from lo2io.filter.parser import parse
from lo2io.model import BlockDevice, CallKind, RequestOp, Role, TracepointSpec

VDA, LOOP0, LOOP1 = 254 << 20, 7 << 20, 7 << 20 | 1
DEVICES = (
    BlockDevice(VDA, "vda", None, None, 1 << 30),
    BlockDevice(VDA | 1, "vda1", None, None, 1 << 29, disk=VDA, start_sector=2048),
    BlockDevice(LOOP0, "loop0", None, None, 1 << 20),
    BlockDevice(LOOP1, "loop1", None, None, 1 << 20),
)
CATALOG = load_catalog()
BLOCK = tuple(f"block:block_{name}" for name in ("rq_insert", "rq_issue", "rq_complete", "rq_requeue", "rq_merge"))
FRONTMERGE, BIO_QUEUE = "block:block_bio_frontmerge", "block:block_bio_queue"
RINGS = frozenset(spec.event for spec in CATALOG.tracepoints if spec.role.name.startswith("RING_"))
RING_FILTERS = {"io_uring:io_uring_task_work_run": "count > 0"}
"""Without it, idle SQ threads make half a million samples a second."""


def compiled(text: str, *events: str) -> Selection:
    """The kernel's part of a filter."""
    return kernel_filters(parse(text), CATALOG.select(events), DEVICES, CATALOG)


def passes(text: str, **fields: object) -> bool:
    """The kernel's decision about a sample (Documentation/trace/events.rst, Event filtering)."""
    python = text.replace("&&", " and ").replace("||", " or ")
    python = re.sub(r'(\w+) ~ ("[^"]*")', r"like(\1, \2)", python)
    return bool(eval(python, {"like": fnmatch.fnmatchcase}, dict(fields)))  # noqa: S307 - the text is our own


def test_no_filter_changes_nothing() -> None:
    """The selection comes back as it was, with the events' own filters."""
    selection = CATALOG.select([])
    assert compiled("") == selection
    assert selection.filters == {BIO_QUEUE: 'rwbs ~ "F*"', **RING_FILTERS}


@pytest.mark.parametrize(
    ("text", "requests", "bios"),
    [
        ("device == loop0", "dev == 7340032", "dev == 7340032"),
        ("device == 7:0", "dev == 7340032", "dev == 7340032"),
        ("device == 7:99", "dev == 7340131", "dev == 7340131"),
        ("device == loop0, loop1", "dev == 7340032 || dev == 7340033", "dev == 7340032 || dev == 7340033"),
        ("device == vda", "dev == 266338304", "dev == 266338304 || dev == 266338305"),
        ("device == vda1", "dev == 266338304", "dev == 266338304 || dev == 266338305"),
        ("device != vda", "dev != 266338304", "dev != 266338304 && dev != 266338305"),
        ("device != vda1, loop0", "dev != 7340032", "dev != 7340032"),
        ("device == loop0 and device != loop1", "(dev == 7340032) && (dev != 7340033)", None),
    ],
)
def test_devices(text: str, requests: str, bios: str | None) -> None:
    """Requests name disks, bios the devices to which they were sent; a partition's requests are its disk's."""
    filters = compiled(text).filters
    assert {filters[event] for event in BLOCK} == {requests}
    bios = bios or requests
    assert filters[FRONTMERGE] == bios
    assert filters[BIO_QUEUE] == f'(rwbs ~ "F*") && ({bios})'


@pytest.mark.parametrize(
    "text", ["device ~ 'loop*'", "device !~ vda", "device != vda1", "size > 4KiB", "latency > 1ms"]
)
def test_what_only_converting_tells(text: str) -> None:
    """Patterns fit devices that come later, sizes grow by merging, latencies are known at the end."""
    assert compiled(text) == CATALOG.select([])


def test_events_that_nothing_needs_are_not_recorded() -> None:
    """Calls for requests, requests for calls, bios that ask for a flush for anything but flushes."""
    calls = {event for event in CATALOG.select([]).events if event.startswith("syscalls:")}
    default = CATALOG.select([])
    assert not calls & set(compiled("kind == request").events)
    assert not calls & set(compiled("operation == discard").events)
    for text in ("kind == call", "path == /x", "operation == pread64"):
        left = compiled(text)
        assert {*BLOCK, FRONTMERGE, BIO_QUEUE}.isdisjoint(left.events)
        assert left.filters == RING_FILTERS
    assert BIO_QUEUE not in compiled("operation == write").events
    assert BIO_QUEUE in compiled("operation == flush").events
    kept = compiled("operation == read", "+metadata")
    assert kept.optional <= set(kept.events)
    assert set(kept.events) < set(default.events)


def test_calls_that_move_descriptors_and_positions_are_always_recorded() -> None:
    """Reads that pass depend on opens, seeks and writes that do not; on fstat and fsync they do not."""
    selection = CATALOG.select(["syscalls", "+metadata"])
    events = kernel_filters(parse("operation == sys_read"), selection, DEVICES, CATALOG).events
    for call in CATALOG.calls:
        if call.enter_event in selection.events:
            needed = call.name == "read" or call.kind not in (CallKind.META, CallKind.SYNC)
            assert (call.enter_event in events) is needed, call.name
            assert (call.exit_event in events) is needed, call.name


@pytest.mark.parametrize(
    ("text", "events", "expected"),
    [
        ("kind == ring", [], {"calls", "rings"}),
        ("via == worker", [], {"calls", "rings"}),
        ("opcode ~ 'READ*'", [], {"calls", "rings"}),
        ("kind == call", [], {"calls", "rings"}),
        ("operation == read", [], {"calls", "rings", "block"}),
        ("kind == request", [], {"block"}),
        ("operation == discard", [], {"block"}),
        ("kind == ring", ["io_uring"], {"rings"}),
        ("via == poll", ["read", "io_uring"], {"calls", "rings"}),
    ],
)
def test_rings_and_calls_need_each_other(text: str, events: list[str], expected: set[str]) -> None:
    """Both open, close and read through the same descriptors; block requests need neither."""
    kept = set(compiled(text, *events).events)
    chosen = set(CATALOG.select(events).events)
    assert (chosen & RINGS <= kept if "rings" in expected else kept.isdisjoint(RINGS)) is True
    assert bool(kept & {"syscalls:sys_enter_read", "syscalls:sys_enter_io_uring_enter"}) is (
        "calls" in expected or bool(events)
    )
    assert bool(kept & set(BLOCK)) is ("block" in expected)


def test_nothing_can_pass() -> None:
    """Said before anything is recorded."""
    for text, events in (
        ("kind == call", ["block"]),
        ("path == /x and kind == request", []),
        ("operation == read and operation == write and operation != copy", ["block"]),
        ("operation == discard", ["syscalls"]),
        ("via == inline", ["read", "block"]),
        ("opcode == NOP and kind == call", []),
        ("opcode == NOP and operation == read", []),
    ):
        with pytest.raises(UsageError, match="none of the chosen events can pass"):
            compiled(text, *events)


def test_devices_nobody_knows() -> None:
    """Refused with similar names; so are partitions of an unknown place."""
    with pytest.raises(UsageError, match="no block device is called lop0") as caught:
        compiled("device == lop0")
    assert "loop0" in caught.value.remedy
    with pytest.raises(UsageError, match="requests name disks"):
        check_devices(parse("device != vda1"), [replace(DEVICES[1], start_sector=None)])
    with pytest.raises(UsageError, match="called sda") as caught:
        check_devices(parse("device == sda"), [])
    assert "lsblk" in caught.value.remedy
    check_devices(parse("device ~ sd* and device == 8:0"), [])


LETTERS = {
    RequestOp.READ: "R",
    RequestOp.WRITE: "W",
    RequestOp.FLUSH: "F",
    RequestOp.DISCARD: "D",
    RequestOp.SECURE_ERASE: "DE",
    RequestOp.WRITE_ZEROES: "WZ",
    RequestOp.ZONE: "ZA",
    RequestOp.OTHER: "N",
}
"""After an F if the request flushes first; flags follow (blk_fill_rwbs)."""
FLAGS = st.sets(st.sampled_from("FASM")).map(lambda flags: "".join(f for f in "FASM" if f in flags))


@given(
    st.sampled_from(list(RequestOp)),
    st.sets(st.sampled_from(list(RequestOp)), min_size=1),
    st.lists(st.tuples(st.booleans(), FLAGS, st.integers(0, 9)), min_size=2, max_size=5),
)
def test_a_request_passes_with_all_its_samples_or_with_none(
    operation: RequestOp, wanted: set[RequestOp], samples: list[tuple[bool, str, int]]
) -> None:
    """Flags come and go in a request's life, the letter stays; wanted requests pass."""
    filters = compiled(f"operation == {', '.join(op.name.lower() for op in wanted)}", "block").filters
    text = filters.get(BLOCK[0], "1")
    assert {filters.get(event, "1") for event in (*BLOCK, FRONTMERGE)} == {text}
    said = set()
    for preflush, flags, size in samples:
        # A flush has no flags but its own two letters, or is one letter alone; all but flushes have sectors.
        rwbs = ("F" if preflush else "") + LETTERS[operation] + (flags if operation != RequestOp.FLUSH else "")
        said.add(passes(text, rwbs=rwbs, nr_sector=size + 1 if operation != RequestOp.FLUSH else 0))
    assert len(said) == 1
    if operation in wanted:
        assert said == {True}


@pytest.mark.parametrize("rwbs", ["W", "WS", "FW", "FWS", "FWFS", "R", "D", "FD"])
def test_what_moves_no_sectors_is_a_flush(rwbs: str) -> None:
    """The end of a bio that only asked for a flush passes with the flushes, not with the discards."""
    text = compiled("operation == flush", "block").filters[BLOCK[2]]
    assert passes(text, rwbs=rwbs, nr_sector=0)
    assert not passes(text, rwbs=rwbs, nr_sector=8)
    assert passes(text, rwbs="FF", nr_sector=0)


def test_the_kernel_leaves_block_events_alone_where_switches_are_recorded() -> None:
    """All of a thread's own requests decide whether it waits for a device."""
    switch = TracepointSpec("sched:sched_switch", Role.SCHED_SWITCH, {}, "sched", core=False)
    others = [spec for spec in CATALOG.tracepoints if spec.event != switch.event]
    catalog = replace(CATALOG, tracepoints=(*others, switch))
    for text in ("device == loop0 and operation == read", "kind == call"):
        selection = kernel_filters(parse(text), catalog.select(["+sched:sched_switch"]), DEVICES, catalog)
        assert {*BLOCK, FRONTMERGE, switch.event} <= set(selection.events)
        assert set(selection.filters) <= {BIO_QUEUE, *RING_FILTERS}
        assert selection.filters.get(BIO_QUEUE, 'rwbs ~ "F*"') == 'rwbs ~ "F*"'
