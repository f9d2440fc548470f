"""What the leave of a call tells: its time without a CPU, and the block requests of its thread."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from build.otf2_batches import CALLS, END, META, OPCODES, SYSTEM, BatchMaker
from build.otf2_written import Written, attributes, label

from lo2io.model import UNKNOWN_I64, Frame
from lo2io.otf2.write.writer import Otf2Writer
from lo2io.unwind.walk import End

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

Write = Any
T = 2_000_000
CALL_ID, RUN_QUEUE, BLOCKED = "Call id", "Run queue", "Blocked"
STACK = "Call stack"
REQUESTS, FIRST, LAST = "Block requests", "First block request", "Last block request"


def leaves(events: Iterable[Any]) -> list[dict[str, Any]]:
    """The attributes of the leaves of calls."""
    return [attributes(event) for event in events if label(event).startswith("-")]


def test_waits_of_a_call(maker: BatchMaker, write: Write) -> None:
    """The parts of its time, if they are known and not 0; then the call's id stands there, too."""
    maker.task(0)
    times = ((7, 30), (0, 5), (0, 0), (UNKNOWN_I64, UNKNOWN_I64))
    ids = [
        maker.call("fsync", T + 100 * place, T + 100 * place + 50, run_queue_ns=queue, blocked_ns=blocked)
        for place, (queue, blocked) in enumerate(times)
    ]
    assert leaves(write(maker.make()).of("thread fio 100")) == [
        {CALL_ID: ids[0], RUN_QUEUE: 7, BLOCKED: 30},
        {CALL_ID: ids[1], BLOCKED: 5},
        {},
        {},
    ]


@pytest.mark.parametrize("meta", [None, SYSTEM], ids=["operations", "samples"])
def test_requests_of_a_call(write: Write, meta: Any) -> None:
    """Those that its own thread began meanwhile, be their events in this batch or in an earlier one."""
    early, late = BatchMaker(), BatchMaker(first_id=5)
    early.request(101, T + 10, T + 11, T + 300)
    early.request(102, T + 20, T + 21, T + 300, task=1, tid=101)
    early.request(103, None, T + 30, T + 300)
    early.request(104, T + 70, T + 71, T + 300)
    early.sort_requests()
    for task in (0, 1):
        late.task(task)
    late.request(105, T + 90, T + 91, T + 400)
    late.call("fsync", T, T + 50)
    late.call("newfstat", T, T + 15, task=1)
    late.call("fsync", T + 80, T + 99)
    late.call("fsync", T + 100, T + 110)
    found = write(early.make(), late.make(), **({} if meta is None else {"meta": meta}))
    assert leaves(found.of("thread fio 100")) == [
        {CALL_ID: 5, REQUESTS: 2, FIRST: 101, LAST: 103},
        {CALL_ID: 9, REQUESTS: 1, FIRST: 105, LAST: 105},
        {},
    ]
    assert leaves(found.of("thread fio 101")) == [{}]


def test_a_call_that_waits_for_its_paths(write: Write) -> None:
    """They stand in the next batch, and the leave has both."""
    first, second = BatchMaker(), BatchMaker(first_id=3)
    first.task(0)
    first.request(101, T + 10, T + 11, T + 40)
    call = first.call("newstat", T, T + 50, blocked_ns=9)
    second.path(call, b"/a")
    (leave,) = leaves(write(first.make(), second.make()).of("thread fio 100"))
    assert leave == {"Path": "/a", CALL_ID: call, BLOCKED: 9, REQUESTS: 1, FIRST: 101, LAST: 101}


def test_more_requests_than_are_kept(tmp_path: Path) -> None:
    """A call that began before those that were dropped tells of none, a later one of its own."""
    many, rest = BatchMaker(), BatchMaker(first_id=1)
    for number in range(65_537):
        many.row("request_events", kind=0, id=1_000_000 + number, time_ns=T + number, device=254 << 20, bytes=512)
    rest.task(0)
    rest.call("fsync", T, T + 100)
    rest.call("fsync", T + 60_000, T + 70_000)
    with Otf2Writer(tmp_path, META, CALLS, OPCODES) as writer:
        writer.write(many.make())
        writer.write(rest.make())
        writer.close(END)
    told = [line for line in Written(tmp_path, [], None).printed().splitlines() if 'ATTRIBUTES: ("Call id"' in line]
    values = [re.findall(r"UINT64; (\d+)", line) for line in told]
    assert values == [["3", "5537", "1060000", "1065536"]]


FRAMES = (
    Frame(4, 0, "ab", 0x20, "/bin/app", "write_all"),
    Frame(4, 1, "ab", 0x40, "/bin/app", "main"),
    Frame(5, 0, "", 0xF00, "", "", end=End.CUT),
    Frame(5, 1, "cd", 0x80, "/lib/libx.so", "", end=End.CUT),
)
"""Of two stacks, innermost first."""
STACKS_FROM_10 = {"meta": replace(META, layers=("stacks",), slow_from_ns=10), "end": replace(END, frames=FRAMES)}


def test_stacks_of_slow_calls(write: Write) -> None:
    """In words, the outermost first. It may stand in the next batch. The next event of the thread does not wait."""
    first, second = BatchMaker(), BatchMaker(first_id=10)
    for task in range(3):
        first.task(task)
    ids = [first.call("fsync", T, T + 10), first.call("fsync", T + 20, T + 30), first.call("fsync", T + 40, T + 49)]
    late = [first.call("fsync", T, T + 50, task=1), first.call("fsync", T, T + 50, task=2)]
    for number, stack in ((ids[0], 4), (ids[1], 9), (ids[2], 4)):
        first.row("call_stacks", operation=number, stack=stack)
    second.row("call_stacks", operation=late[0], stack=5)
    second.call("fsync", T + 60, T + 61, task=2)
    written = write(first.make(), second.make(), **STACKS_FROM_10)
    assert leaves(written.of("thread fio 100")) == [
        {CALL_ID: ids[0], STACK: "main;write_all"},
        {CALL_ID: ids[1], STACK: "?"},
        {},
    ]
    assert leaves(written.of("thread fio 101")) == [{CALL_ID: late[0], STACK: "[cut];libx.so+0x80;?+0xf00"}]
    assert leaves(written.of("thread fio 102")) == [{}, {}]


def test_a_call_about_a_ring_keeps_its_counts_while_it_waits_for_its_stack(write: Write) -> None:
    """Its leave has both, and stands at its own time."""
    first, second = BatchMaker(), BatchMaker(first_id=10)
    first.task(0)
    first.row("rings", ring=0)
    call = first.call("io_uring_enter", T, T + 50)
    first.row("batches", id=call, ring=0, asked=3, submitted=2, collected=-1)
    second.row("call_stacks", operation=call, stack=4)
    written = write(first.make(), second.make(), **STACKS_FROM_10)
    (leave,) = leaves(written.of("thread fio 100"))
    assert (leave[CALL_ID], leave[STACK]) == (call, "main;write_all")
    assert (leave["asked"], leave["submitted"]) == (3, 2)
    assert [time for what, time in written.shape() if what == "-io_uring_enter"] == [T + 50]
