"""The thread on each CPU, and stretches of calls without a CPU: traces with sched_switch."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from build.otf2_batches import META, STOP, SYSTEM, BatchMaker
from build.otf2_written import attributes
from otf2.enums import RegionRole

from lo2io.model import UNKNOWN_U32

Write = Any
T = 2_000_000
SDA = 8 << 20
SCHED = replace(SYSTEM, events=("sched:sched_switch",))
NOBODY = UNKNOWN_U32


def switch(maker: BatchMaker, time: int, cpu: int, prev: int | None, following: int | None, **columns: int) -> None:
    """From one of tasks 0, 1 … (threads 100, 101 …) to another; None: the idle thread."""
    threads = {}
    for side, task in (("prev", prev), ("next", following)):
        threads[f"{side}_task"] = NOBODY if task is None else task
        threads[f"{side}_tid"] = 0 if task is None else 100 + task
    maker.row("switches", time_ns=time, cpu=cpu, **{**threads, **columns})


# ---- which thread runs ----


def test_threads_on_a_cpu(maker: BatchMaker, write: Write) -> None:
    """Entered and left at the switches; an idle CPU is in nothing; samples lie inside the thread that has the CPU."""
    maker.task(0)
    maker.task(1, b"kworker")
    maker.request(1001, T - 1, T + 10, T + 30)
    switch(maker, T, 0, None, 0)
    switch(maker, T + 5, 1, None, 1)
    switch(maker, T + 20, 0, 0, None)
    switch(maker, T + 40, 0, None, 1)
    written = write(maker.make(), meta=SCHED)
    assert written.shape("CPU 0") == [
        ("!vda write", T - 1),
        ("+fio 100", T),
        ("!fio 100/vda write", T + 10),
        ("-fio 100", T + 20),
        ("!vda write", T + 30),
        ("+kworker 101", T + 40),
        ("-kworker 101", STOP),
    ]
    assert written.shape("CPU 1") == [("+kworker 101", T + 5), ("-kworker 101", STOP)]
    *_, last = written.of("CPU 0")
    assert attributes(last) == {"InFlight": 1}
    (left,) = (event for event in written.of("CPU 0") if event.time == T + 20)
    assert not attributes(left)


def test_names_are_the_last_ones(write: Write) -> None:
    """A thread's name is known when it ends, in a later batch."""
    first, second = BatchMaker(), BatchMaker()
    switch(first, T, 0, None, 0)
    switch(second, T + 5, 0, 0, None)
    second.task(0, b"renamed")
    assert write(first.make(), second.make(), meta=SCHED).shape("CPU 0") == [
        ("+renamed 100", T),
        ("-renamed 100", T + 5),
    ]


def test_threads_that_are_not_recorded(maker: BatchMaker, write: Write) -> None:
    """By their numbers; lo2io by its name."""
    switch(maker, T, 0, None, None, next_tid=4711)
    switch(maker, T + 5, 0, None, None, prev_tid=4711, next_tid=META.recorder_pid)
    switch(maker, T + 6, 0, None, None, prev_tid=META.recorder_pid)
    assert write(maker.make(), meta=SCHED).shape("CPU 0") == [
        ("+thread 4711", T),
        ("-thread 4711", T + 5),
        ("+lo2io 1", T + 5),
        ("-lo2io 1", T + 6),
    ]


def test_lost_switch(maker: BatchMaker, write: Write) -> None:
    """The thread that leaves is not the one that got the CPU.

    That one left at an unknown time before, and is marked.
    """
    maker.task(0)
    maker.task(1)
    maker.task(2)
    switch(maker, T, 0, None, 0)
    switch(maker, T + 9, 0, 1, 2)
    written = write(maker.make(), meta=SCHED)
    assert written.shape("CPU 0") == [("+fio 100", T), ("-fio 100", T + 9), ("+fio 102", T + 9), ("-fio 102", STOP)]
    assert attributes(written.of("CPU 0")[1]) == {"InFlight": 1}


def test_switches_without_samples(maker: BatchMaker, write: Write) -> None:
    """Process mode with --sched: begin-end, and CPUs beside."""
    maker.task(0)
    switch(maker, T, 0, None, 0)
    maker.request(1001, T + 1, T + 2, T + 5)
    written = write(maker.make(), meta=replace(SCHED, mode="process"))
    assert written.shape("CPU 0") == [("+fio 100", T), ("-fio 100", STOP)]
    assert len(written.of("vda requests")) == 3
    assert "vda metrics" not in {location.name for location in written.definitions.locations}


def test_many_devices_and_threads_have_one_context_each(maker: BatchMaker, write: Write) -> None:
    """Contexts are found again, however many there are."""
    for task in range(40):
        maker.task(task)
        switch(maker, T + 10 * task, 0, task - 1 if task else None, task)
        for device in range(5):
            maker.request(1001 + 10 * task + device, None, T + 10 * task + 1 + device, None, device=SDA + device)
    maker.sort_requests()
    written = write(maker.make(), maker.make(), meta=SCHED, block_records="samples")
    assert len(list(written.definitions.regions)) == 40 + 5
    assert len(list(written.definitions.calling_contexts)) == 40 + 40 * 5


# ---- off the CPU inside a call ----


def test_stretches_off_the_cpu(maker: BatchMaker, write: Write) -> None:
    """Nested in their call, at their own times, in each of the four states."""
    maker.task(0)
    for state in range(4):
        maker.row(
            "off_cpu", before=0, task=0, begin_time_ns=T + 10 * state + 1, end_time_ns=T + 10 * state + 5, state=state
        )
    maker.call("read", T, T + 40, handle=0, bytes_request=5, bytes_result=5)
    written = write(maker.make(), meta=SCHED)
    assert written.shape() == [
        ("+read", T),
        ("OperationBegin", T),
        ("+read/preempted", T + 1),
        ("-read/preempted", T + 5),
        ("+read/waiting for device", T + 11),
        ("-read/waiting for device", T + 15),
        ("+read/blocked", T + 21),
        ("-read/blocked", T + 25),
        ("+read/sleeping", T + 31),
        ("-read/sleeping", T + 35),
        ("OperationComplete", T + 40),
        ("-read", T + 40),
    ]
    roles = {region.name: region.region_role for region in written.definitions.regions}
    assert roles["preempted"] == RegionRole.ARTIFICIAL


def test_stretch_known_before_an_earlier_row(maker: BatchMaker, write: Write) -> None:
    """It waits for its own call, past other threads' rows and a handle event inside of it."""
    maker.task(0)
    maker.task(1)
    maker.row("handles", handle=0, fd=3, origin=3)
    maker.row("off_cpu", before=0, task=0, begin_time_ns=T + 2, end_time_ns=T + 8, state=1)
    maker.row("handle_events", before=0, time_ns=T + 5, task=0, handle=0)
    maker.call("newfstat", T + 3, T + 4, task=1)
    maker.call("execve", T, T + 9, result=0)
    assert write(maker.make(), meta=SCHED).shape() == [
        ("+execve", T),
        ("+execve/waiting for device", T + 2),
        ("DestroyHandle", T + 5),
        ("-execve/waiting for device", T + 8),
        ("-execve", T + 9),
    ]


def test_stretch_that_ends_with_its_call(maker: BatchMaker, write: Write) -> None:
    """The thread was not seen on a CPU again: both end at once, the inner one first."""
    maker.task(0)
    maker.row("off_cpu", before=0, task=0, begin_time_ns=T + 2, end_time_ns=T + 9, state=3)
    maker.call("newfstat", T, T + 9)
    assert write(maker.make(), meta=SCHED).shape() == [
        ("+fstat", T),
        ("+fstat/sleeping", T + 2),
        ("-fstat/sleeping", T + 9),
        ("-fstat", T + 9),
    ]


def test_stretch_of_a_call_in_flight(maker: BatchMaker, write: Write) -> None:
    """Its end is unknown as its call's is: at the thread's next call, or the trace's end, both are left."""
    for task in (0, 1):
        maker.task(task)
        maker.row("off_cpu", before=0, task=task, begin_time_ns=T + 2, state=3)
        maker.call("newfstat", T, None, task=task)
    maker.call("newfstat", T + 50, T + 51)
    written = write(maker.make(), meta=SCHED)
    assert written.shape() == [
        ("+fstat", T),
        ("+fstat/sleeping", T + 2),
        ("-fstat/sleeping", T + 50),
        ("-fstat", T + 50),
        ("+fstat", T + 50),
        ("-fstat", T + 51),
    ]
    assert written.shape("thread fio 101")[-2:] == [("-fstat/sleeping", STOP), ("-fstat", STOP)]
    assert [attributes(event) for event in written.of("thread fio 101")[-2:]] == [{"InFlight": 1}] * 2


def test_stretch_whose_end_was_not_seen(maker: BatchMaker, write: Write) -> None:
    """The thread came back at an unknown time: left when it goes again, or with the call, and marked."""
    maker.task(0)
    maker.row("off_cpu", before=0, task=0, begin_time_ns=T + 2, state=3)
    maker.row("off_cpu", before=0, task=0, begin_time_ns=T + 5, end_time_ns=T + 6, state=0)
    maker.row("off_cpu", before=0, task=0, begin_time_ns=T + 7, state=2)
    maker.call("newfstat", T, T + 9)
    written = write(maker.make(), meta=SCHED)
    assert written.shape() == [
        ("+fstat", T),
        ("+fstat/sleeping", T + 2),
        ("-fstat/sleeping", T + 5),
        ("+fstat/preempted", T + 5),
        ("-fstat/preempted", T + 6),
        ("+fstat/blocked", T + 7),
        ("-fstat/blocked", T + 9),
        ("-fstat", T + 9),
    ]
    marked = [event.time for event in written.of("thread fio 100") if attributes(event).get("InFlight")]
    assert marked == [T + 5, T + 9]
    assert not attributes(written.of("thread fio 100")[-1])


def test_stretch_outside_of_any_call_is_left_out(maker: BatchMaker, write: Write) -> None:
    """No call would enclose it; the call after it does not change."""
    maker.task(0)
    maker.row("off_cpu", before=0, task=0, begin_time_ns=T - 9, end_time_ns=T - 2, state=0)
    maker.call("newfstat", T, T + 9)
    assert write(maker.make(), meta=SCHED).shape() == [("+fstat", T), ("-fstat", T + 9)]


def test_many_stretches_from_batch_to_batch(write: Write) -> None:
    """A long call is off its CPU thousands of times, known batches before its row."""
    first, second = BatchMaker(), BatchMaker()
    for turn in range(3000):
        begin = T + 10 * turn
        first.row("off_cpu", before=0, task=0, begin_time_ns=begin + 1, end_time_ns=begin + 4, state=turn % 4)
    second.task(0)
    second.call("newfstat", T, T + 30_000)
    shape = write(first.make(), second.make(), meta=SCHED).shape()
    assert len(shape) == 2 + 6000
    assert [time for _, time in shape] == sorted(time for _, time in shape)
    assert shape[-3:] == [("+fstat/sleeping", T + 29_991), ("-fstat/sleeping", T + 29_994), ("-fstat", T + 30_000)]
