"""Locations that threads and rings have in turn: beyond ``OWN_LOCATIONS``, which is 1 or 2 here."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import otf2
import pytest
from build.otf2_batches import META, OPCODE, STOP, BatchMaker
from build.otf2_written import verified

if TYPE_CHECKING:
    from collections.abc import Callable

    from build.otf2_written import Written

    Write = Callable[..., Written]

T = 2_000_000
"""Nanoseconds."""
IN_TURN = "threads of fio [100] in turn"
CONTEXTS = replace(META, events=("sched:sched_switch",))
"""A recording whose regions are entered by calling context."""


@pytest.fixture(autouse=True)
def one_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first location is its thread's alone."""
    monkeypatch.setattr("lo2io.otf2.write.writer.OWN_LOCATIONS", 1)


def thread(maker: BatchMaker, task: int, begin: int, end: int, exit_ns: int | None = None, **columns: Any) -> int:
    """A call of a thread that ends afterwards, or never."""
    number = maker.call("read", begin, end, task=task, handle=0, bytes_result=task, **columns)
    if exit_ns is not None:
        ids = {"process": columns["process"], "pid": columns["pid"]} if "process" in columns else {}
        maker.task(task, exit_time_ns=exit_ns, **ids)
    return number


def lives(written: Written, location: str) -> list[tuple[str, int, int]]:
    """Region, start and end of each thread's life on a location."""
    found, begin = [], {}
    for event in written.of(location):
        region = region_of(event)
        if region is None or region.canonical_name != "thread in turn":
            continue
        if type(event).__name__.endswith("Enter"):
            begin[region.name] = event.time
        else:
            found.append((region.name, begin[region.name], event.time))
    return found


def region_of(event: Any) -> Any:
    """The region that an Enter or Leave names, of any kind."""
    context = getattr(event, "calling_context", None)
    return getattr(event, "region", None) if context is None else context.region


def said(event: Any) -> dict[str, Any]:
    """An event's attributes by name."""
    return {attribute.name: value for attribute, value in (event.attributes or {}).items()}


@pytest.mark.parametrize("meta", [META, CONTEXTS], ids=["regions", "contexts"])
def test_threads_have_a_location_in_turn(before: BatchMaker, write: Write, meta: Any) -> None:
    """A thread that ended gives its location to the next; the attributes of each life name the thread."""
    before.call("read", T, T + 1, handle=0, bytes_result=1)
    for task in (1, 2, 3):
        thread(before, task, T + 100 * task, T + 100 * task + 10, T + 100 * task + 20)
    written = verified(write(before.make(), meta=meta))
    assert {location.name for location, _ in written.events} == {"thread fio 100", IN_TURN}
    assert lives(written, IN_TURN) == [
        (f"thread fio {100 + task}", T + 100 * task, T + 100 * task + 20) for task in (1, 2, 3)
    ]
    entered = [said(event) for event in written.of(IN_TURN) if "Process ID" in said(event)]
    assert entered == [{"Process ID": 100, "Thread ID": 100 + task, "lo2io task": task} for task in (1, 2, 3)]
    assert [event.bytes_result for event in written.find("IoOperationComplete", IN_TURN)] == [1, 2, 3]


def test_nothing_is_shared_below_the_limit(before: BatchMaker, write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each thread has its location, without a region around its life."""
    monkeypatch.setattr("lo2io.otf2.write.writer.OWN_LOCATIONS", 4)
    before.call("read", T, T + 1, handle=0, bytes_result=1)
    for task in (1, 2, 3):
        thread(before, task, T + 100 * task, T + 100 * task + 10, T + 100 * task + 20)
    written = verified(write(before.make()))
    assert {location.name for location, _ in written.events} == {f"thread fio {100 + task}" for task in range(4)}
    assert "lo2io task" not in {attribute.name for attribute in written.definitions.attributes}


def test_lives_that_overlap_have_locations_of_their_own(before: BatchMaker, write: Write) -> None:
    """A location that one thread alone has had is called after it, as any other."""
    before.call("read", T, T + 1, handle=0, bytes_result=1)
    thread(before, 1, T + 100, T + 110, T + 300)
    thread(before, 2, T + 200, T + 210)
    before.task(2)
    thread(before, 3, T + 400, T + 410, T + 420)
    written = verified(write(before.make()))
    assert [name for name, *_ in lives(written, IN_TURN)] == ["thread fio 101", "thread fio 103"]
    assert lives(written, "thread fio 102") == [("thread fio 102", T + 200, STOP)]
    (left,) = (event for event in written.of("thread fio 102") if said(event).get("InFlight"))
    assert region_of(left).name == "thread fio 102", "nobody saw it end"


def test_call_that_began_early_gets_a_location_where_nothing_is_later(before: BatchMaker, write: Write) -> None:
    """Calls are known when they end: this one began before the last event of the location that is free by then."""
    before.call("read", T, T + 1, handle=0, bytes_result=1)
    thread(before, 1, T + 100, T + 200, T + 250)
    thread(before, 2, T + 150, T + 300, T + 310)
    written = verified(write(before.make()))
    assert written.find("Enter", "thread fio 102")[1].time == T + 150
    assert re.search(r"LO2IO::MOVED_EVENTS\s+Property value +0$", written.printed("-I"), re.MULTILINE)


def test_end_in_a_later_batch(before: BatchMaker, write: Write) -> None:
    """A row may come after the events of its thread."""
    before.call("read", T, T + 1, handle=0, bytes_result=1)
    before.call("read", T + 100, T + 110, task=1, handle=0, bytes_result=1)
    second, third = BatchMaker(first_id=50), BatchMaker(first_id=60)
    second.first_operation, third.first_operation = 2, 2
    second.task(1, exit_time_ns=T + 120)
    thread(third, 2, T + 200, T + 210, T + 220)
    written = verified(write(before.make(), second.make(), third.make()))
    assert [name for name, *_ in lives(written, IN_TURN)] == ["thread fio 101", "thread fio 102"]


def test_thread_of_which_more_comes_after_its_end(before: BatchMaker, write: Write) -> None:
    """It gets a location once more, and attributes name it again."""
    before.call("read", T, T + 1, handle=0, bytes_result=1)
    thread(before, 1, T + 100, T + 110, T + 120)
    second = BatchMaker(first_id=50)
    second.first_operation = 2
    second.call("read", T + 115, T + 118, task=1, handle=0, bytes_result=1)
    written = verified(write(before.make(), second.make()))
    assert sorted(said(event)["lo2io task"] for _, event in written.events if "lo2io task" in said(event)) == [1, 1]


def test_request_under_way_keeps_the_location(before: BatchMaker, write: Write) -> None:
    """Its completion has to stand beside its start, though its thread has ended."""
    before.row("rings", ring=0)
    before.call("read", T, T + 1, handle=0, bytes_result=1)
    ids = {"task": 1, "tid": 101, "opcode": OPCODE["READ"], "handle": 0}
    before.ring_event(501, 0, T + 100, **ids)
    before.ring_event(501, 1, T + 101, **ids)
    before.task(1, exit_time_ns=T + 110)
    thread(before, 2, T + 200, T + 210, T + 220)
    second = BatchMaker(first_id=50)
    second.first_operation = 2
    second.ring_event(501, 2, T + 300, bytes=8, path=2, **ids)
    third = BatchMaker(first_id=60)
    third.first_operation = 2
    thread(third, 3, T + 400, T + 410, T + 420)
    written = verified(write(before.make(), second.make(), third.make()))
    assert lives(written, "thread fio 101") == [("thread fio 101", T + 100, T + 300)]
    assert [name for name, *_ in lives(written, IN_TURN)] == ["thread fio 102", "thread fio 103"]
    records = [event for event in written.of("thread fio 101") if hasattr(event, "matching_id")]
    assert [type(event).__name__ for event in records] == [
        "IoOperationBegin",
        "IoOperationIssued",
        "IoOperationComplete",
    ]


def test_processes_that_come_late_share_a_group(before: BatchMaker, write: Write) -> None:
    """A thousand processes must not make a thousand files."""
    before.call("read", T, T + 1, handle=0, bytes_result=1)
    for task in (1, 2, 3):
        before.row("handles", handle=task, fd=3, origin=2, process=task, open_flags=0)
        begin = T + 100 * task
        who = {"process": task, "pid": 200 + task, "tid": 200 + task}
        before.call("read", begin, begin + 10, task=task, handle=task, bytes_result=1, **who)
        before.task(task, b"sh", exit_time_ns=begin + 20, cgroup=b"/user.slice", **who)
    written = verified(write(before.make()))
    (location,) = {where for where, _ in written.events if where.name != "thread fio 100"}
    assert (location.name, location.group.name) == ("threads of further processes in turn", "further processes")
    assert [name for name, *_ in lives(written, location.name)] == [f"thread sh {200 + task}" for task in (1, 2, 3)]
    (region,) = {region_of(event) for event in written.of(location.name) if said(event).get("Thread ID") == 202}
    assert region.description == "Thread 202 of process 202, cgroup /user.slice"


def test_descriptors_closed_at_exec_before_the_first_call(before: BatchMaker, write: Write) -> None:
    """Events that wait for a thread's first call give it no location before that call begins."""
    before.call("read", T, T + 1, handle=0, bytes_result=1)
    thread(before, 1, T + 100, T + 110, T + 120)
    before.row("handles", handle=1, fd=4, origin=2, open_flags=0)
    before.row("handle_events", task=2, handle=1, time_ns=T + 205, before=2)
    before.call("execve", T + 200, T + 210, task=2, result=0)
    before.task(2, exit_time_ns=T + 220)
    written = verified(write(before.make()))
    assert [name for name, *_ in lives(written, IN_TURN)] == ["thread fio 101", "thread fio 102"]
    assert [event.time for event in written.find("IoDestroyHandle", IN_TURN)] == [T + 205]


def test_workers_have_locations_apart(before: BatchMaker, write: Write) -> None:
    """Their regions lie in their lives; a batch has them after all calls."""
    before.row("rings", ring=0)
    before.call("read", T, T + 1, handle=0, bytes_result=1)
    for task in (1, 3):
        thread(before, task, T + 100 * task, T + 100 * task + 10, T + 100 * task + 20)
        worker = {"task": task + 1, "tid": 101 + task}
        for kind in range(3):
            before.ring_event(500 + task, kind, T + 5 + kind, handle=0, path=4, bytes=8)
        times = {"begin_time_ns": T + 100 * task + 2, "end_time_ns": T + 100 * task + 8}
        before.row("ring_works", id=500 + task, ring=0, opcode=OPCODE["READ"], pid=100, **worker, **times)
        before.task(task + 1, b"iou-wrk-100", kind=1, exit_time_ns=T + 100 * task + 30)
    written = verified(write(before.make()))
    workers = "io_uring workers of fio [100] in turn"
    assert [name for name, *_ in lives(written, workers)] == ["thread iou-wrk-100 102", "thread iou-wrk-100 104"]
    assert [name for name, *_ in lives(written, IN_TURN)] == ["thread fio 101", "thread fio 103"]


def test_rings_share_locations(before: BatchMaker, write: Write) -> None:
    """Each metric names its ring; the ring's size is a property of its process."""
    before.call("read", T, T + 1, handle=0, bytes_result=1)
    for ring in range(3):
        before.row("rings", ring=ring, sq_entries=4, cq_entries=8, flags=0)
        known = {"ring": ring, "process": 0}
        before.row("ring_states", time_ns=T + 100 * ring + 10, in_flight=2, **known)
        before.row("ring_states", time_ns=T + 100 * ring + 20, in_flight=0, **known)
        number = before.call("io_uring_enter", T + 100 * ring + 5, T + 100 * ring + 30, result=2)
        before.row("batches", id=number, ring=ring, asked=2, submitted=2)
    written = write(before.make())
    places = {what: f"{what} of rings of fio [100] in turn" for what in ("states", "batches")}
    named = {what: [said(event)["io_uring ring"] for event in written.of(name)] for what, name in places.items()}
    rings = [f"ring {ring}: io_uring fd 5 of process 100" for ring in range(3)]
    assert named["batches"] == rings
    assert named["states"] == [ring for ring in rings for _ in range(4)]
    properties = {p.name: p.value for p in written.definitions.location_group_properties}
    size = "Submission queue entries 4, Completion queue entries 8, Setup flags 0"
    assert [properties[ring] for ring in rings] == [f"lo2io ring {number}, {size}" for number in range(3)]


def test_ring_in_use_keeps_its_location(before: BatchMaker, write: Write) -> None:
    """Another one that has requests in flight at that time has another."""
    before.call("read", T, T + 1, handle=0, bytes_result=1)
    for time, ring, in_flight in ((10, 0, 1), (20, 1, 1), (30, 0, 0), (40, 1, 0), (50, 2, 1)):
        before.row("ring_states", time_ns=T + time, ring=ring, process=0, in_flight=in_flight)
    written = write(before.make())
    found = [where.name for where, event in written.events if type(event).__name__ == "Metric"]
    name = "states of rings of fio [100] in turn"
    assert set(found) == {name, f"{name} (2)"}
    assert found[::2] == [name, f"{name} (2)", name, f"{name} (2)", name]


def test_many_threads_in_turn_make_several_groups(
    before: BatchMaker, write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    """libotf2 refuses a group of 90,000 regions, of which each thread has one."""
    monkeypatch.setattr("lo2io.otf2.write.regions.MAX_MEMBERS", 2)
    before.call("read", T, T + 1, handle=0, bytes_result=1)
    for task in range(1, 6):
        thread(before, task, T + 100 * task, T + 100 * task + 10, T + 100 * task + 20)
    written = verified(write(before.make()))
    with otf2.reader.open(str(written.path / "traces.otf2")) as reader:
        found = [[member.name for member in group.members] for group in reader.definitions.groups
                 if any("thread" in member.name for member in group.members)]  # fmt: skip
    assert [len(each) for each in found] == [2, 2, 1]
    assert len({name for each in found for name in each}) == 5


def test_a_text_that_is_longer_than_a_chunk_is_cut(before: BatchMaker, write: Write) -> None:
    """As the names of 256 functions of a kilobyte each."""
    before.call("read", T, T + 1, handle=0, bytes_result=1)
    before.task(0, cmdline=b"app\0" + b"x" * 300_000)
    written = verified(write(before.make()))
    assert "xxx…" in written.printed("-G")
