"""docs/explanation/rules: calls, order and tasks: one test each, both engines."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from build.kernelwriter import KernelSpool
from build.perfwriter import SpoolBuilder
from reference.engines import (  # noqa: F401 - the fixtures `run` and `spool`
    EIO,
    O_RDWR,
    each_engine,
    rows,
    spool_of_a_process,
)

if TYPE_CHECKING:
    from pathlib import Path

    from reference.engines import Run


# ---- pairing ----


def test_an_exit_closes_the_entry_of_the_same_call(run: Run, spool: SpoolBuilder) -> None:
    """One operation with both times, the CPU of the entry, count, result and the bytes moved."""
    spool.enter(60_000, 1, 10, "pread64", fd=3, count=100, pos=4096).exit(60_500, 0, 10, "pread64", 42)
    (row,) = run(spool)["operations"]
    assert (row["begin_time_ns"], row["end_time_ns"], row["cpu"], row["tid"], row["pid"]) == (60_000, 60_500, 1, 10, 10)
    assert (row["call"], row["fd"], row["status"]) == ("pread64", 3, 0)
    assert (row["bytes_request"], row["bytes_result"], row["result"], row["error"]) == (100, 42, 42, 0)
    assert (row["offset_bytes"], row["offset_source"]) == (4096, 1)


def test_a_failed_call_has_its_errno_and_no_bytes(run: Run, spool: SpoolBuilder) -> None:
    """A negative result is an error number."""
    spool.call(60_000, 0, 10, "read", EIO, fd=3, count=100)
    assert rows(run(spool), "result", "error", "bytes_result") == [(-5, 5, None)]


def test_a_count_of_vectors_is_no_request(run: Run, spool: SpoolBuilder) -> None:
    """The bytes of a vectored call are in user memory."""
    spool.call(60_000, 0, 10, "writev", 30, fd=3, vlen=2)
    assert rows(run(spool), "bytes_request", "bytes_result") == [(None, 30)]


def test_an_exit_without_entry_is_an_orphan(run: Run, spool: SpoolBuilder) -> None:
    """Counted, and no operation."""
    tables = run(spool.exit(60_000, 0, 10, "read", 5))
    assert tables["operations"] == []
    assert tables["totals"]["nr_orphan_exits"] == 1


def test_an_exit_of_another_call_ends_the_pending_one_in_flight(run: Run, spool: SpoolBuilder) -> None:
    """Its own exit was lost, and so was the entry of this one."""
    spool.enter(60_000, 0, 10, "read", fd=3).exit(60_100, 0, 10, "write", 5)
    tables = run(spool)
    assert rows(tables, "call", "status", "end_time_ns", "result") == [("read", 1, None, None)]
    assert tables["totals"]["nr_orphan_exits"] == 1
    assert tables["totals"]["nr_in_flight_calls"] == 1


def test_an_entry_ends_a_pending_call_in_flight(run: Run, spool: SpoolBuilder) -> None:
    """Calls of one thread do not nest."""
    spool.enter(60_000, 0, 10, "read", fd=3).call(60_100, 0, 10, "fsync", fd=3)
    assert rows(run(spool), "call", "status") == [("read", 1), ("fsync", 0)]


def test_a_thread_that_ends_inside_a_call_leaves_it_in_flight(run: Run, spool: SpoolBuilder) -> None:
    """So does the end of the trace."""
    spool.fact_task(1_000, 11, 11)
    spool.enter(60_000, 0, 10, "read", fd=3).enter(60_001, 1, 11, "read", fd=3).task_exit(60_002, 0, 10, 10)
    assert rows(run(spool), "tid", "status") == [(10, 1), (11, 1)]


def test_a_child_returns_from_the_call_its_parent_entered(run: Run, spool: SpoolBuilder) -> None:
    """The kernel lets it leave clone with 0: neither operation nor orphan."""
    spool.enter(60_000, 0, 10, "clone").fork(60_001, 0, 11, 11, 10, 10)
    spool.exit(60_002, 1, 11, "clone", 0).exit(60_003, 0, 10, "clone", 11)
    tables = run(spool)
    assert rows(tables, "tid", "call") == [(10, "clone")]
    assert tables["totals"]["nr_orphan_exits"] == 0


# ---- order ----


def test_streams_merge_by_time(run: Run, spool: SpoolBuilder) -> None:
    """A thread that moves from CPU to CPU keeps its story."""
    spool.call(60_010, 0, 10, "fsync", fd=3).call(60_000, 1, 10, "read", 1, fd=3)
    assert rows(run(spool), "call") == [("read",), ("fsync",)]


def test_neighbours_out_of_order_are_put_right(run: Run, spool: SpoolBuilder) -> None:
    """Such records are sorted and counted."""
    spool.exit(60_001, 0, 10, "read", 7).enter(60_000, 0, 10, "read", fd=3)
    tables = run(spool)
    assert rows(tables, "begin_time_ns", "result") == [(60_000, 7)]
    assert tables["totals"]["nr_reordered"] == 1


def test_a_loss_is_a_row_between_its_neighbours(run: Run, spool: SpoolBuilder) -> None:
    """From the last record before the gap to the first after it."""
    spool.call(60_000, 1, 10, "fsync", fd=3).lost(70_000, 1, 12).call(70_000, 1, 10, "fsync", fd=3)
    tables = run(spool)
    assert tables["losses"] == [{"cpu": 1, "begin_time_ns": 60_001, "end_time_ns": 70_000, "lost": 12}]
    assert (tables["totals"]["nr_lost_records"], tables["totals"]["nr_lost"]) == (1, 12)


def test_a_gap_begins_before_it_in_the_ring(run: Run, spool: SpoolBuilder) -> None:
    """Kernels before 5.12 stamp LOST after the sample that follows it: its neighbours are those of the ring."""
    spool.call(60_000, 1, 10, "fsync", fd=3).lost(70_000, 1, 12).call(69_990, 1, 10, "fsync", fd=3)
    assert run(spool)["losses"][0]["begin_time_ns"] == 60_001


def test_what_cannot_be_decoded_is_counted(run: Run, spool: SpoolBuilder) -> None:
    """Samples of unknown types, throttling, and a tail that is no record."""
    spool.undecodable(60_000, 0, 10).throttle(60_001, 0).throttle(60_002, 0, end=True).raw(0, b"\1\2\3")
    totals = run(spool)["totals"]
    assert (totals["nr_samples"], totals["nr_undecoded"]) == (1, 1)
    assert (totals["nr_throttled"], totals["truncated_bytes"]) == (1, 3)


def test_samples_are_counted_per_ring_and_event(run: Run, spool: SpoolBuilder) -> None:
    """These counts prove completeness."""
    spool.call(60_000, 0, 10, "read", 1, fd=3).call(60_010, 1, 10, "read", 1, fd=3).exit(60_020, 1, 10, "read", 1)
    names = list(spool.layouts)
    seen = run(spool)["seen"]
    enter, leave = names.index("syscalls:sys_enter_read"), names.index("syscalls:sys_exit_read")
    assert [(ring[enter], ring[leave], sum(ring)) for ring in seen] == [(1, 1, 2), (1, 2, 3)]


# ---- tasks ----


def test_process_mode_records_selected_tasks_and_their_descendants(run: Run, tmp_path: Path) -> None:
    """Other processes are not recorded."""
    spool = SpoolBuilder(tmp_path / "spool", mode="process").fact_task(1_000, 10, 10, flags=1)
    spool.fork(60_000, 0, 11, 11, 10, 10).fork(60_001, 0, 12, 12, 11, 11).fork(60_002, 1, 21, 21, 20, 20)
    for tid in (10, 11, 12, 21):
        spool.call(61_000 + tid, 1, tid, "sync")
    tables = run(spool)
    assert rows(tables, "tid") == [(10,), (11,), (12,)]
    assert rows(tables, "pid", "ppid", table="tasks") == [(10, 1), (11, 10), (12, 11)]


def test_recording_from_exec_on_begins_with_the_exec(run: Run, tmp_path: Path) -> None:
    """lo2io's calls between fork and exec are not the command's, but its descriptors are."""
    spool = SpoolBuilder(tmp_path / "spool", mode="process").fact_task(1_000, 10, 10, flags=3)
    spool.call(60_000, 0, 10, "read", 5, fd=0, count=5)
    spool.enter(60_010, 0, 10, "execve").comm(60_011, 0, 10, 10, b"cmd", is_exec=True).exit(60_012, 0, 10, "execve")
    spool.call(60_020, 0, 10, "read", 5, fd=0, count=5)
    tables = run(spool)
    assert rows(tables, "call", "first_use") == [("execve", 0), ("read", 1)]
    assert tables["totals"]["nr_orphan_exits"] == 0
    assert rows(tables, "comm", "start_time_ns", table="tasks") == [(b"cmd", 60_011)]


def test_system_mode_leaves_the_recorder_out(run: Run, tmp_path: Path) -> None:
    """Everybody else is recorded."""
    spool = SpoolBuilder(tmp_path / "spool", recorder_pid=30).fact_task(1_000, 30, 30).fact_task(1_000, 30, 31)
    for tid in (30, 31, 10):
        spool.call(60_000 + tid, 0, tid, "sync")
    tables = run(spool)
    assert rows(tables, "tid") == [(10,)]
    assert tables["totals"]["nr_samples"] == 6


def test_a_tid_after_its_exit_is_a_new_task(run: Run, spool: SpoolBuilder) -> None:
    """Tids are used again."""
    spool.fork(60_000, 0, 11, 11, 10, 10).call(60_001, 0, 11, "sync").task_exit(60_003, 0, 11, 11)
    spool.fork(60_004, 0, 10, 11, 10, 10).call(60_005, 0, 11, "sync")
    tables = run(spool)
    assert rows(tables, "pid", "tid") == [(11, 11), (10, 11)]
    assert rows(tables, "tid", "start_time_ns", "exit_time_ns", table="tasks") == [
        (10, None, None),
        (11, 60_000, 60_003),
        (11, 60_004, None),
    ]


def test_exec_by_another_thread_goes_on_under_the_leaders_tid(run: Run, spool: SpoolBuilder) -> None:
    """The leader exits, the caller takes its tid, and its call ends there."""
    spool.call(60_000, 0, 10, "openat", 3, flags=O_RDWR).fork(60_010, 0, 10, 11, 10, 10)
    spool.enter(60_020, 0, 11, "execve").task_exit(60_021, 1, 10, 10)
    spool.comm(60_022, 0, 10, 10, b"new", is_exec=True).exit(60_023, 0, 10, "execve")
    spool.call(60_030, 0, 10, "read", 1, fd=3)
    tables = run(spool)
    assert rows(tables, "tid", "call", "begin_time_ns", "end_time_ns")[1] == (10, "execve", 60_020, 60_023)
    assert tables["operations"][2]["handle"] == tables["operations"][0]["handle"]
    assert tables["totals"]["nr_orphan_exits"] == 0
    assert rows(tables, "tid", "exit_time_ns", table="tasks") == [(10, None), (10, 60_021), (11, 60_022)]


def test_the_parent_of_a_thread_known_by_its_samples_is_unknown(run: Run, spool: SpoolBuilder) -> None:
    """Not process 0. A FORK that was seen names the parent, even an unknown one."""
    spool.call(60_000, 0, 20, "sync").fork(60_010, 0, 31, 31, 30, 30).call(60_020, 0, 31, "sync")
    assert rows(run(spool), "tid", "ppid", "parent_process", table="tasks") == [
        (10, 1, None),
        (20, None, None),
        (31, 30, None),
    ]


def test_a_sample_of_a_leader_that_has_exited_is_of_its_process(run: Run, spool: SpoolBuilder) -> None:
    """A pid is not used again while threads of its process live."""
    spool.fork(60_000, 0, 10, 11, 10, 10).task_exit(60_010, 0, 10, 10).call(60_010, 1, 10, "sync")
    spool.call(60_020, 0, 11, "sync")
    processes = {row["process"] for row in run(spool)["tasks"]}
    assert len(processes) == 1


def test_a_fact_about_a_thread_that_has_exited_makes_no_new_one(run: Run, spool: SpoolBuilder) -> None:
    """The look began before its exit and was over after it."""
    spool.fork(60_000, 0, 11, 11, 10, 10).task_exit(70_000, 0, 11, 11).fact_task(71_000, 11, 11, begin=69_000)
    assert rows(run(spool), "tid", table="tasks") == [(10,), (11,)]


@pytest.mark.parametrize("mode", ["system", "process"])
def test_a_thread_of_a_known_process_made_by_an_unknown_one(run: Run, tmp_path: Path, mode: str) -> None:
    """The maker's own FORK was lost: the new thread is no process, and shares its process' descriptors."""
    spool = SpoolBuilder(tmp_path / "spool", mode=mode, start_ns=50_000).fact_task(1_000, 10, 10, comm=b"ten", flags=1)
    spool.call(60_000, 0, 10, "openat", 3, flags=O_RDWR).fork(60_010, 0, 10, 12, 10, 11)
    spool.call(60_020, 1, 12, "close", 0, fd=3)
    tables = run(spool)
    assert rows(tables, "pid", "tid", "start_time_ns", table="tasks") == [(10, 10, None), (10, 12, 60_010)]
    assert len({row["process"] for row in tables["tasks"]}) == 1
    assert [row["handle"] for row in tables["operations"]] == ["h0", "h0"]


def own_rights(mode: str, tmp_path: Path) -> SpoolBuilder:
    """A child that becomes a program with rights of its own: the kernel writes an EXIT during its exec."""
    spool = SpoolBuilder(tmp_path / "spool", mode=mode).fact_task(1_000, 10, 10, comm=b"ten", flags=1)
    spool.fork(60_000, 0, 11, 11, 10, 10).comm(60_010, 0, 11, 11, b"su", is_exec=True)
    return spool.task_exit(60_011, 0, 11, 11)


@pytest.mark.parametrize("mode", ["system", "process"])
def test_an_exit_amid_an_exec_is_no_end(run: Run, tmp_path: Path, mode: str) -> None:
    """The thread goes on, its child is recorded and knows it, and its own EXIT comes later."""
    spool = own_rights(mode, tmp_path).fork(60_020, 0, 12, 12, 11, 11).call(60_030, 1, 12, "sync")
    spool.task_exit(60_040, 1, 12, 12).call(60_050, 0, 11, "sync").task_exit(60_060, 0, 11, 11)
    tables = run(spool)
    assert rows(tables, "tid") == [(12,), (11,)]
    assert rows(tables, "tid", "ppid", "comm", "exit_time_ns", table="tasks") == [
        (10, 1, b"ten", None),
        (11, 10, b"su", 60_060),
        (12, 11, b"su", 60_040),
    ]
    assert tables["tasks"][2]["parent_process"] == tables["tasks"][1]["process"]
    assert tables["totals"]["nr_gone_in_exec"] == 0


@pytest.mark.parametrize("execs", [True, False])
def test_the_exec_may_be_recorded_as_a_call(run: Run, spool: SpoolBuilder, execs: bool) -> None:
    """Its exit is the thread's first sign of life; without it the next call is."""
    if execs:
        spool.enter(60_000, 0, 10, "execve")
    spool.comm(60_010, 0, 10, 10, b"su", is_exec=True).task_exit(60_011, 0, 10, 10)
    if execs:
        spool.exit(60_020, 0, 10, "execve")
    spool.call(60_030, 0, 10, "sync").task_exit(60_040, 0, 10, 10)
    tables = run(spool)
    assert rows(tables, "tid", "call", "status") == [(10, "execve", 0)] * execs + [(10, "sync", 0)]
    assert rows(tables, "comm", "exit_time_ns", table="tasks") == [(b"su", 60_040)]


@pytest.mark.parametrize("again", [True, False])
def test_an_exit_behind_an_exec_that_nothing_follows_is_the_end(run: Run, tmp_path: Path, again: bool) -> None:
    """Such a program makes no recorded call, or perf follows it no more: it is counted. Its number may come again."""
    spool = own_rights("process", tmp_path)
    if again:
        spool.fork(70_000, 0, 11, 11, 10, 10).call(70_010, 0, 11, "sync")
    tables = run(spool)
    assert rows(tables, "tid", "exit_time_ns", table="tasks")[1] == (11, 60_011)
    assert len({row["process"] for row in tables["tasks"]}) == 2 + again
    assert tables["totals"]["nr_gone_in_exec"] == 1


def test_programs_of_32_bits_are_known_by_their_vdso(run: Run, spool: SpoolBuilder) -> None:
    """The mapping lies below 4 GiB, has that name, and is a known thread's."""
    high, low = 0x7FFC_1000_0000, 0xF7FC_8000
    spool.mapping(60_000, 0, 10, 10, address=high, name=b"[vdso]")
    spool.mapping(60_010, 0, 10, 10, address=0x40_0000, name=b"/bin/static")
    assert run(spool)["totals"]["nr_compat_programs"] == 0
    spool.mapping(60_020, 0, 10, 10, address=low, name=b"[vdso]")
    spool.mapping(60_030, 0, 99, 99, address=low, name=b"[vdso]")
    assert run(spool)["totals"]["nr_compat_programs"] == 1


def test_programs_of_32_bits_that_ran_before_are_known_by_proc(run: Run, spool: SpoolBuilder) -> None:
    """Each counts once, also if it is seen again; what it forks is the same program, what it execs is another one."""
    low = {"address": 0xF7FC_8000, "name": b"[vdso]"}
    spool.fact_task(60_000, 10, 10, flags=4).fact_task(65_000, 10, 10, flags=4)
    spool.fork(70_000, 0, 11, 11, 10, 10).fact_task(80_000, 11, 11, flags=4)
    assert run(spool)["totals"]["nr_compat_programs"] == 1
    spool.comm(90_000, 0, 11, 11, b"next", is_exec=True).mapping(90_001, 0, 11, 11, **low)
    spool.fact_task(95_000, 11, 11, flags=4).fact_task(96_000, 99, 99, flags=4)
    assert run(spool)["totals"]["nr_compat_programs"] == 3


def test_a_look_that_an_exec_met_tells_no_word_size(run: Run, spool: SpoolBuilder) -> None:
    """The look may have seen the program before that exec."""
    spool.comm(70_000, 0, 10, 10, b"next", is_exec=True).fact_task(80_000, 10, 10, begin=60_000, flags=4)
    assert run(spool)["totals"]["nr_compat_programs"] == 0


def test_programs_of_32_bits_whose_calls_are_recorded_are_none_of_them(run: Run, tmp_path: Path) -> None:
    """Programs in the kernel see all calls at the raw pair."""
    spool = KernelSpool(tmp_path / "spool").fact_task(1_000, 10, 10, flags=4)
    spool.mapping(60_000, 0, 10, 10, address=0xF7FC_8000, name=b"[vdso]")
    assert run(spool)["totals"]["nr_compat_programs"] == 0


def test_a_mapping_is_a_sign_of_life(run: Run, tmp_path: Path) -> None:
    """A mapping follows an EXIT during an exec, and precedes the EXIT of a program without recorded calls."""
    tables = run(own_rights("process", tmp_path).mapping(60_020, 0, 11, 11, address=0x40_0000, name=b"/bin/su"))
    assert rows(tables, "exit_time_ns", table="tasks")[1] == (None,)
    spool = SpoolBuilder(tmp_path / "other", mode="process").fact_task(1_000, 10, 10, flags=1)
    spool.comm(60_000, 0, 10, 10, b"true", is_exec=True)
    spool.mapping(60_010, 0, 10, 10, address=0x40_0000, name=b"/bin/true")
    tables = run(spool.task_exit(60_020, 0, 10, 10))
    assert rows(tables, "exit_time_ns", table="tasks") == [(60_020,)]
    assert tables["totals"]["nr_gone_in_exec"] == 0
