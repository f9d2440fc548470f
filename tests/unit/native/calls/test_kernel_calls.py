"""Calls recorded by BPF programs: the engines make the same rows of one record as of two samples."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from build.kernelwriter import OF_ARGUMENT, KernelSpool, Programs
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from lo2io.native._lib import ffi
from reference.compare import Tables, run_native, run_reference
from reference.engines import EBADF, O_APPEND, O_RDWR, each_engine, rows
from reference.histories import SPREAD, call_histories, spread
from reference.specs import SPECS

from lo2io.catalog.layouts import compile_layout
from lo2io.convert.engine import BUFFER_BYTES
from lo2io.errors import SpoolError
from lo2io.native.records import DISCARDED, KINDS, UNFINISHED, framed, pack, record_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from reference.engines import Run
    from reference.histories import History

__all__ = ["each_engine"]
EXPLICIT, FOLLOWED, KERNEL = 1, 2, 3
OFFSETS = ("call", "offset_bytes", "offset_source")
SETTINGS = settings(
    max_examples=int(os.environ.get("LO2IO_EXAMPLES", "50")), deadline=None, suppress_health_check=list(HealthCheck)
)
TOLD = st.tuples(st.none() | st.integers(0, 300), st.none() | st.integers(-1, 2**33))


@pytest.fixture(name="spool")
def spool_of_calls(tmp_path: Path) -> KernelSpool:
    """A spool in system mode with the process 10; tracepoints on from 50 µs."""
    builder = KernelSpool(tmp_path / "spool", start_ns=50_000)
    builder.fact_task(1_000, 10, 10, ppid=1, comm=b"ten")
    return builder


# ---- one record, two samples ----


def test_a_call_is_its_entry_and_its_exit(run: Run, spool: KernelSpool) -> None:
    """Arguments, result and both times; the CPU is that of the file."""
    spool.kernel_call(60_000, 1, 10, "pread64", 7, duration=40, fd=3, count=10, pos=512)
    tables = run(spool)
    names = (
        "begin_time_ns",
        "end_time_ns",
        "tid",
        "call",
        "cpu",
        "fd",
        "bytes_request",
        "bytes_result",
        "offset_bytes",
    )
    assert rows(tables, *names) == [(60_000, 60_040, 10, "pread64", 1, 3, 10, 7, 512)]
    assert tables["totals"]["nr_samples"] == 2
    assert [sum(row) for row in tables["seen"]] == [0, 2]


def test_a_call_that_loses_its_cpu_is_two_records(run: Run, spool: KernelSpool) -> None:
    """The exit is on the CPU where it happened, perhaps another one."""
    spool.kernel_enter(60_000, 0, 10, "read", fd=3, count=10).kernel_exit(70_000, 1, 10, "read", 4)
    tables = run(spool)
    assert rows(tables, "begin_time_ns", "end_time_ns", "cpu", "bytes_result") == [(60_000, 70_000, 0, 4)]
    assert [sum(row) for row in tables["seen"]] == [1, 1]


def test_calls_stand_between_samples_where_they_happened(run: Run, spool: KernelSpool) -> None:
    """A fork inside of a clone, in perf's buffer: the child's table follows the flags at the entry."""
    spool.kernel_call(59_000, 0, 10, "openat", 3, flags=O_RDWR)
    spool.kernel_call(60_000, 0, 10, "clone", 11, duration=100, clone_flags=0x400).fork(60_050, 0, 11, 11, 10, 10)
    spool.kernel_call(61_000, 0, 11, "close", 0, fd=3).kernel_call(62_000, 0, 10, "read", EBADF, fd=3, count=1)
    tables = run(spool)
    assert rows(tables, "call", "tid", "handle") == [
        ("openat", 10, "h0"), ("clone", 10, None), ("close", 11, "h0"), ("read", 10, None),
    ]  # fmt: skip


def test_an_exit_alone_is_an_orphan_and_an_entry_alone_in_flight(run: Run, spool: KernelSpool) -> None:
    """The same as for samples."""
    spool.kernel_exit(60_000, 0, 10, "read", 4).kernel_enter(61_000, 0, 10, "read", fd=3, count=10)
    tables = run(spool)
    assert rows(tables, "begin_time_ns", "status") == [(61_000, 1)]
    assert (tables["totals"]["nr_orphan_exits"], tables["totals"]["nr_in_flight_calls"]) == (1, 1)


def test_what_was_told_of_a_call_does_not_outlive_it(run: Run, spool: KernelSpool) -> None:
    """The second read has no position of its own, and the first one's is not its."""
    spool.fact_fd(40_000, 10, 3, b"/f", position=None, open_flags=O_RDWR)
    spool.kernel_call(60_000, 0, 10, "read", 4, position=104, fd=3, count=4)
    spool.kernel_call(61_000, 0, 10, "pread64", 4, fd=3, count=4, pos=0)
    assert rows(run(spool), *OFFSETS) == [("read", 100, KERNEL), ("pread64", 0, EXPLICIT)]


# ---- positions ----


@pytest.fixture(name="opened")
def spool_of_an_open_file(spool: KernelSpool) -> KernelSpool:
    """Descriptor 3 is open for reading and writing, at an unknown position."""
    spool.fact_fd(40_000, 10, 3, b"/f", position=None, open_flags=O_RDWR)
    return spool


def test_the_kernels_position_gives_the_offset_where_following_does_not(run: Run, opened: KernelSpool) -> None:
    """From then on the position is followed; a failed call and a seek leave it where it is."""
    opened.kernel_call(60_000, 0, 10, "read", 10, position=110, fd=3, count=10)
    opened.kernel_call(61_000, 0, 10, "write", 5, fd=3, count=5)
    opened.kernel_call(62_000, 0, 10, "read", -5, position=115, fd=3, count=5)
    opened.kernel_call(63_000, 0, 10, "lseek", 7, position=7, fd=3, offset=7)
    opened.kernel_call(64_000, 0, 10, "read", 0, position=7, fd=3, count=5)
    assert rows(run(opened), *OFFSETS) == [
        ("read", 100, KERNEL), ("write", 110, FOLLOWED), ("read", 115, FOLLOWED), ("lseek", 7, EXPLICIT),
        ("read", 7, FOLLOWED),
    ]  # fmt: skip


def test_appending_writes_have_the_kernels_offset(run: Run, spool: KernelSpool) -> None:
    """They write at the file's end, and move the position there. A failed one moved nothing."""
    spool.kernel_call(59_000, 0, 10, "openat", 3, flags=O_RDWR | O_APPEND)
    spool.kernel_call(60_000, 0, 10, "write", 10, position=5_010, fd=3, count=10)
    spool.kernel_call(61_000, 0, 10, "read", 2, position=5_012, fd=3, count=10)
    spool.kernel_call(62_000, 0, 10, "write", -5, position=5_012, fd=3, count=10)
    assert rows(run(spool), *OFFSETS)[1:] == [("write", 5_000, KERNEL), ("read", 5_010, FOLLOWED), ("write", None, 0)]


def test_another_position_than_the_one_followed_is_unknown_until_it_is_told_again(run: Run, spool: KernelSpool) -> None:
    """A process outside of the trace moves it, too: before, during or after the call."""
    spool.kernel_call(59_000, 0, 10, "openat", 3, flags=O_RDWR)
    spool.kernel_call(60_000, 0, 10, "read", 10, position=50, fd=3, count=10)
    spool.kernel_call(61_000, 0, 10, "read", 10, fd=3, count=10)
    spool.kernel_call(62_000, 0, 10, "read", 10, position=70, fd=3, count=10)
    spool.kernel_call(63_000, 0, 10, "lseek", 7, position=9, fd=3, offset=7)
    spool.kernel_call(64_000, 0, 10, "read", 1, fd=3, count=10)
    assert rows(run(spool), *OFFSETS)[1:] == [
        ("read", None, 0), ("read", None, 0), ("read", 60, KERNEL), ("lseek", 7, EXPLICIT), ("read", None, 0),
    ]  # fmt: skip


def test_of_calls_that_overlap_the_kernels_position_tells_nothing(run: Run, opened: KernelSpool) -> None:
    """Each has moved it before the other's was read, or has not."""
    opened.fork(55_000, 0, 10, 12, 10, 10)
    opened.kernel_enter(60_000, 0, 10, "read", fd=3, count=10).kernel_enter(60_010, 1, 12, "read", fd=3, count=10)
    opened.kernel_exit(60_020, 0, 10, "read", 10, position=20).kernel_exit(60_030, 1, 12, "read", 10, position=20)
    opened.kernel_call(61_000, 0, 10, "read", 10, position=30, fd=3, count=10)
    assert rows(run(opened), *OFFSETS) == [("read", None, 0), ("read", None, 0), ("read", 20, KERNEL)]


@pytest.mark.parametrize(("ret", "position"), [(10, 9), (10, -1), (10, None)])
def test_a_position_that_cannot_be_gives_no_offset(
    run: Run, opened: KernelSpool, ret: int, position: int | None
) -> None:
    """It would lie before the bytes that were read, like that of a pipe."""
    opened.kernel_call(60_000, 0, 10, "read", ret, position=position, fd=3, count=10)
    assert rows(run(opened), *OFFSETS) == [("read", None, 0)]


def test_what_has_no_position_gets_none(run: Run, spool: KernelSpool) -> None:
    """A pipe, as /proc shows; and copies, whose positions the program may have kept itself."""
    spool.fact_fd(40_000, 10, 3, b"pipe:[5]", mode=0o010600).fact_fd(40_000, 10, 4, b"/f", open_flags=O_RDWR)
    spool.kernel_call(60_000, 0, 10, "read", 10, position=10, fd=3, count=10)
    spool.kernel_call(61_000, 0, 10, "copy_file_range", 10, position=10, fd_in=4, fd_out=3, len=10)
    spool.kernel_call(62_000, 0, 10, "read", 1, fd=4, count=10)
    assert rows(run(spool), *OFFSETS) == [("read", None, 0), ("copy_file_range", None, 0), ("read", None, 0)]


# ---- values ----


def test_vectored_calls_have_the_bytes_of_their_iovecs(run: Run, spool: KernelSpool) -> None:
    """If they could be read. Other calls keep their own count."""
    spool.kernel_call(60_000, 0, 10, "writev", 5, value=4_096, fd=3, vlen=2)
    spool.kernel_call(61_000, 0, 10, "writev", 5, fd=3, vlen=2)
    spool.kernel_call(62_000, 0, 10, "write", 5, value=77, fd=3, count=6)
    assert rows(run(spool), "bytes_request") == [(4_096,), (None,), (6,)]


def test_openat2_has_the_flags_of_its_structure(run: Run, spool: KernelSpool) -> None:
    """With them the position is known, and that writes append; without them nothing is."""
    spool.kernel_call(59_000, 0, 10, "openat2", 3, value=O_RDWR)
    spool.kernel_call(60_000, 0, 10, "openat2", 4)
    spool.kernel_call(61_000, 0, 10, "read", 5, fd=3, count=5).kernel_call(62_000, 0, 10, "read", 5, fd=4, count=5)
    tables = run(spool)
    assert rows(tables, "flags", "offset_bytes") == [(O_RDWR, None), (0, None), (0, 0), (0, None)]
    assert sorted(rows(tables, "fd", "open_flags", table="handles")) == [(3, O_RDWR), (4, None)]


# ---- where calls are samples ----


def test_facts_of_samples_come_before_the_exit(run: Run, tmp_path: Path) -> None:
    """At the same time even: the file of records comes first."""
    spool = KernelSpool(tmp_path / "spool", backend="perf", start_ns=50_000).fact_task(1_000, 10, 10)
    spool.fact_fd(40_000, 10, 3, b"/f", position=None, open_flags=O_RDWR)
    spool.enter(60_000, 0, 10, "read", fd=3, count=10).exit(60_010, 0, 10, "read", 10)
    spool.enter(61_000, 0, 10, "writev", fd=3, vlen=2).exit(61_010, 0, 10, "writev", 10)
    assert isinstance(spool, KernelSpool)
    spool.kernel_value(60_010, 0, 10, position=30).kernel_value(61_009, 0, 10, value=4_096)
    assert rows(run(spool), *OFFSETS, "bytes_request") == [("read", 20, KERNEL, 10), ("writev", 30, FOLLOWED, 4_096)]


def test_facts_outside_of_calls_change_nothing(run: Run, tmp_path: Path) -> None:
    """Such a fact is of an exit whose entry was lost, or of a thread that is not recorded."""
    spool = KernelSpool(tmp_path / "spool", backend="perf", mode="process").fact_task(1_000, 10, 10, flags=1)
    assert isinstance(spool, KernelSpool)
    spool.kernel_value(60_000, 0, 10, position=5).kernel_value(60_001, 0, 11, position=5)
    spool.enter(61_000, 0, 10, "read", fd=3, count=10).exit(61_010, 0, 10, "read", 10)
    assert rows(run(spool), *OFFSETS) == [("read", None, 0)]


@pytest.mark.parametrize("leaves", [False, True])
def test_facts_of_a_call_are_known_before_its_row_is_written(spool: KernelSpool, *, leaves: bool) -> None:
    """They lie after the call in the file.

    The second read met another file than the first, and the change was not seen.
    """
    for t, file in ((60_000, 1), (61_000, 2)):
        if leaves:
            spool.kernel_enter(t, 0, 10, "read", fd=3, count=4).kernel_exit(t + 5, 0, 10, "read", 4)
        else:
            spool.kernel_call(t, 0, 10, "read", 4, duration=5, fd=3, count=4)
        spool.kernel_file(t + 5, 0, 10, 3, [b"f%d" % file], file=file, inode=file, of=OF_ARGUMENT)
    tables = run_native(spool.write())
    first, second = (row["handle"] for row in tables["operations"])
    assert first != second
    assert tables["totals"]["nr_reordered"] == 0


# ---- every history ----


def without(history: History, lost: list[int]) -> History:
    """Some records are not there."""
    places = {place % len(history) for place in lost} if history else set()
    samples = ("enter", "exit", "switch", "task_exit")
    return [record for place, record in enumerate(history) if place not in places or record[0] not in samples]


def forever(values: list[Any], default: object) -> Iterator[Any]:
    """Some values, then always the same."""
    yield from values
    while True:
        yield default


def as_samples(builder: KernelSpool, history: History, told: list[tuple[int | None, int | None]]) -> Path:
    """Calls are samples, and BPF programs' facts about each come just before its exit."""
    answers = forever(told, (None, None))
    for method, args, options in history:
        if method == "exit":
            position, value = next(answers)
            builder.kernel_value(*args[:3], position=position, value=value)
        getattr(builder, method)(*args, **options)
    return builder.write()


def as_records(builder: KernelSpool, history: History, leaves: list[bool], told: list[Any]) -> Path:
    """Calls are records: one of what kept its CPU, two of what did not."""
    Programs(builder, forever(leaves, default=False), forever(told, (None, None))).replay(history)
    return builder.write()


def assert_same(found: Tables, expected: Tables) -> None:
    """Every table."""
    for name, table in expected.items():
        assert found[name] == table, name


def check(history: History, lost: list[int], leaves: list[bool], told: list[Any], **options: Any) -> None:
    """Four runs of one history: samples and records, the native engine and the slow one."""
    whole = without(spread(history), lost)
    options = {"start_ns": 100_500 * SPREAD, **options}
    with tempfile.TemporaryDirectory() as folder:
        samples = as_samples(KernelSpool(Path(folder, "samples"), backend="perf", **options), whole, told)
        records = as_records(KernelSpool(Path(folder, "records"), **options), whole, leaves, told)
        expected = run_reference(samples)
        for found in (run_native(samples), run_native(records), run_reference(records)):
            assert_same(found, expected)


BOOLS = st.lists(st.booleans(), max_size=80)
LOST = st.lists(st.integers(0, 2**10), max_size=5)


@SETTINGS
@given(call_histories(damage=False), LOST, BOOLS, st.lists(TOLD, max_size=40))
def test_records_give_the_tables_of_samples(
    history: History, lost: list[int], leaves: list[bool], told: list[Any]
) -> None:
    """The whole machine: threads, forks, execs, descriptors, positions; however often threads leave their CPUs."""
    check(history, lost, leaves, told)


@SETTINGS
@given(call_histories(damage=False, flags=3), LOST, BOOLS, st.lists(TOLD, max_size=40))
def test_records_give_the_tables_of_samples_in_process_mode(
    history: History, lost: list[int], leaves: list[bool], told: list[Any]
) -> None:
    """From the first exec on."""
    check(history, lost, leaves, told, mode="process")


# ---- what no kernel writes ----


def test_discarded_records_are_passed_over(run: Run, spool: KernelSpool) -> None:
    """However many, and whatever their length."""
    for length in (0, 3, 16, 70_000):
        spool.kernel(0, bytes(length), DISCARDED)
    spool.kernel_call(60_000, 0, 10, "sync")
    spool.calls[0] += [framed(bytes(BUFFER_BYTES // 4), DISCARDED)] * 5
    spool.kernel_call(61_000, 0, 10, "sync")
    tables = run(spool)
    assert rows(tables, "begin_time_ns") == [(60_000,), (61_000,)]
    assert (tables["totals"]["nr_undecoded"], tables["totals"]["truncated_bytes"]) == (0, 0)


def test_what_a_full_ring_lost_is_a_row(run: Run, spool: KernelSpool) -> None:
    """From the first to the last entry or exit; a beginning after the end is none."""
    spool.kernel_call(60_000, 1, 10, "sync").kernel_lost(64_000, 1, 7, begin=61_000).kernel_call(65_000, 1, 10, "sync")
    spool.kernel_lost(66_000, 0, 2, begin=70_000)
    tables = run(spool)
    assert sorted(tables["losses"], key=lambda row: row["end_time_ns"]) == [
        {"cpu": 1, "begin_time_ns": 61_000, "end_time_ns": 64_000, "lost": 7},
        {"cpu": 0, "begin_time_ns": 66_000, "end_time_ns": 66_000, "lost": 2},
    ]
    totals = tables["totals"]
    assert (totals["nr_lost_records"], totals["nr_lost"], totals["nr_late"], totals["nr_samples"]) == (2, 9, 0, 4)


@pytest.mark.parametrize("tail", [framed(bytes(64), UNFINISHED), bytes(40), b"\x40\0\0", framed(bytes(80))[:48]])
def test_an_unfinished_tail_ends_the_file(run: Run, spool: KernelSpool, tail: bytes) -> None:
    """Not written yet, cut off, or zeroes that a file system left."""
    spool.kernel_call(60_000, 0, 10, "sync")
    spool.calls[0].append(tail)
    tables = run(spool)
    assert rows(tables, "begin_time_ns") == [(60_000,)]
    assert tables["totals"]["truncated_bytes"] == len(tail)


def head(kind: int, t: int = 60_000, tid: int = 10, event: int = 700) -> bytes:
    """The head of a record, of any type."""
    return bytes(ffi.buffer(ffi.new("lo2_kernel_head *", (t, tid, kind, event))))


def call(event: int, exit_event: int, nr_args: int, args: bytes) -> bytes:
    """A ``CALL`` with these numbers of events, right or wrong ones, and with these bytes of arguments."""
    told = {"duration_ns": 1, "result": 2, "position": 3, "value": 4}
    return pack("call", 60_000, 10, event=event, exit_event=exit_event, nr_args=nr_args, **told, tail=args)


@pytest.mark.parametrize(
    ("body", "undecoded"),
    [
        (head(0), 1),
        (head(max(KINDS) + 1), 1),
        (pack("lost", 60_000, 0, begin_ns=60_000)[:-8], 1),
        (pack("call", 60_000, 10, event=700)[: record_bytes("head")], 1),
        (call(700, 703, 3, bytes(16)), 1),
        (call(700, 703, 7, bytes(56)), 1),
        (call(700, 703, 2, bytes(16)), 1),
        (call(703, 700, 3, bytes(24)), 2),
        (call(65_535, 9, 3, bytes(24)), 2),
        (pack("enter", 60_000, 10, event=703, nr_args=3, tail=bytes(24)), 1),
        (pack("enter", 60_000, 10, event=700, nr_args=65_535, tail=bytes(24)), 1),
        (pack("enter", 60_000, 10, event=700, nr_args=3)[: record_bytes("head") + 2], 1),
        (pack("exit", 60_000, 10, event=703, result=5, position=5)[:-8], 1),
        (pack("exit", 60_000, 10, event=700, result=5, position=5, value=5), 1),
        (pack("value", 60_000, 10, position=5)[:-8], 1),
        (pack("file", 60_000, 10)[:-1], 1),
        (pack("file", 60_000, 10, names_length=65_535), 1),
        (pack("path", 60_000, 10)[:-1], 1),
        (pack("path", 60_000, 10, path_length=60_000, names_length=60_000), 1),
    ],
)
def test_records_that_are_none_are_counted(spool: KernelSpool, body: bytes, undecoded: int) -> None:
    """Too short for their type or for their texts, of no type, or of an event with another meaning."""
    spool.kernel(0, body)
    assert run_native(spool.write())["totals"]["nr_undecoded"] == undecoded


@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    st.lists(
        st.tuples(
            st.integers(0, 2**32 - 1), st.integers(0, 70_000), st.integers(0, max(KINDS) + 1), st.binary(max_size=120)
        ),
        max_size=12,
    ),
    st.binary(max_size=64),
)
def test_any_records_are_read_or_counted(records: list[tuple[int, int, int, bytes]], tail: bytes) -> None:
    """No length, type or number makes the engine read beside a record."""
    with tempfile.TemporaryDirectory() as folder:
        spool = KernelSpool(Path(folder))
        for tid, event, kind, rest in records:
            spool.kernel(0, head(kind, 5, tid % 300, 700 + event % 80) + rest)
        spool.calls[1].append(tail)
        run_native(spool.write(), 64)


def test_durations_that_cannot_be_do_no_harm(spool: KernelSpool) -> None:
    """Times wrap; what comes after is late, and counted."""
    spool.kernel_call(60_000, 0, 10, "sync", duration=2**63).kernel_call(61_000, 0, 10, "sync", duration=2**64 - 61_000)
    spool.kernel_call(62_000, 0, 10, "sync")
    tables = run_native(spool.write())
    assert tables["totals"]["nr_samples"] == 6


def test_calls_are_told_apart_across_blocks_of_the_file(spool: KernelSpool) -> None:
    """A reader's block ends anywhere: no call is read twice, none is parted from its exit or its facts."""
    number = 40_000
    for index in range(number):
        spool.kernel_call(60_000 + 10 * index, 0, 10, "openat", 3, duration=5, flags=O_RDWR)
        spool.kernel_file(60_005 + 10 * index, 0, 10, 3, [b"name", b"folder"], of=OF_ARGUMENT)
    assert sum(map(len, spool.calls[0])) > 4 << 20
    tables = run_native(spool.write(), 1 << 15)
    assert [row["begin_time_ns"] for row in tables["operations"]] == [60_000 + 10 * index for index in range(number)]
    assert all(row["end_time_ns"] == row["begin_time_ns"] + 5 for row in tables["operations"])
    assert (tables["totals"]["nr_reordered"], tables["totals"]["nr_late"]) == (0, 0)


def test_arguments_elsewhere_are_refused(spool: KernelSpool) -> None:
    """Records are read by where samples have their arguments: another kernel's need other records."""
    meta = spool.meta()
    place = meta.events.index("syscalls:sys_enter_read")
    formats = list(meta.formats)
    formats[place] = formats[place].replace("offset:32;", "offset:28;")
    with pytest.raises(SpoolError, match="count at 28"):
        compile_layout(meta.events, formats, SPECS, kernel_records=True)  # type: ignore[arg-type]
    compile_layout(meta.events, formats, SPECS)  # type: ignore[arg-type]


def test_records_need_the_clock_of_samples(spool: KernelSpool) -> None:
    """A spool with another clock is refused before anything is read."""
    with pytest.raises(SpoolError, match="the clock 'perf'"):
        run_native(spool.write(clock="perf"))
