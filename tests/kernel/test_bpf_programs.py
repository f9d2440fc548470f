"""The programs that pair calls: exact counts of known workloads, whatever happens to a thread during its call."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import mmap
import os
import signal
import struct
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import pytest
from build.bpfrig import Child, Loaded, Record, assert_in_order, kinds, loaded, run
from lo2io.native._lib import lib

from lo2io.bpf import kept, prepared
from lo2io.kernel import abi, sysfs, tracefs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

pytestmark = [pytest.mark.alone, pytest.mark.requires("root", "tracefs")]

NR_CALLS = 997
ERESTARTSYS, ERESTART_RESTARTBLOCK = 512, 516
"""Results that sys_exit sees if a signal interrupts a call (include/linux/errno.h); programs never see them."""
CGROUPS = Path("/sys/fs/cgroup/unified")
libc = ctypes.CDLL(None, use_errno=True)


@pytest.fixture(params=[True, False], ids=["raw", "single"])
def raw(request: pytest.FixtureRequest) -> bool:
    """Both ways to see calls: at the raw pair, and at single tracepoints."""
    return bool(request.param)


def pwrite(count: int = NR_CALLS) -> None:
    """Writes that do not wait, each to another place."""
    fd = os.open("/dev/null", os.O_WRONLY)
    for index in range(count):
        os.pwrite(fd, b"xyz", index)


def exec_python(code: str) -> NoReturn:
    """Become another program."""
    os.execv(sys.executable, [sys.executable, "-S", "-c", code])  # noqa: S606 # what is tested


def open_counter(name: str, pid: int) -> int:
    """A perf event that counts for a process and its children."""
    layout, _ = tracefs.load_format(tracefs.find_tracefs(), name)
    return abi.event_open(abi.EventAttr(type=abi.TYPE_TRACEPOINT, config=layout.id, flags=abi.INHERIT), pid, -1)


def test_kept_programs_record_the_same(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, raw: bool) -> None:
    """The second load does without libbpf's work; the programs count the same calls."""
    monkeypatch.setattr(kept, "FOLDER", tmp_path / "kept")
    for _ in range(2):
        with loaded(["pwrite64"], raw=raw) as rig:
            child = Child(rig, pwrite)
            rig.programs.switch(on=True)
            child.begin()
            assert child.end() == 0
            rig.programs.switch(on=False)
            assert len(rig.records()) == NR_CALLS
            assert rig.counts("pwrite64") == ((NR_CALLS, 0, 0), (NR_CALLS, 0, 0))
        assert len(list((tmp_path / "kept").iterdir())) == 1
        monkeypatch.setattr(prepared.PreparedObject, "_load_by_libbpf", None)


def test_a_kept_plan_that_the_kernel_refuses_is_no_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Programs are loaded by libbpf then."""
    monkeypatch.setattr(kept, "FOLDER", tmp_path / "kept")
    read = kept.read

    def spoilt(kind: str, key: list[object]) -> dict[str, Any] | None:
        plan = read(kind, key)
        for program in plan["programs"] if plan else ():
            program["code"] = program["code"][:8] + b"\xff" * 8 + program["code"][16:]
        return plan

    monkeypatch.setattr(kept, "read", spoilt)
    for _ in range(2):
        with loaded(["pwrite64"]) as rig:
            assert rig.counts("pwrite64") == ((0, 0, 0), (0, 0, 0))


def test_every_call_is_one_record_with_its_arguments_and_result(raw: bool) -> None:
    """997 writes: 997 records with the program's arguments and results, and as many as perf counts."""
    with loaded(["pwrite64"], raw=raw) as rig:
        child = Child(rig, pwrite)
        counters = [open_counter(f"syscalls:sys_{side}_pwrite64", child.pid) for side in ("enter", "exit")]
        rig.programs.switch(on=True)
        child.begin()
        assert child.end() == 0
        rig.programs.switch(on=False)
        records = rig.records()
        assert [struct.unpack("<Q", os.read(fd, 8))[0] for fd in counters] == [NR_CALLS, NR_CALLS]
        for fd in counters:
            os.close(fd)
        assert rig.counts("pwrite64") == ((NR_CALLS, 0, 0), (NR_CALLS, 0, 0))
        assert rig.programs.missed_runs() == 0
        assert rig.programs.read_misses() == [(0, 0, 0)] * len(rig.cpus)
    whole = [record for record in records if record.kind == "call"]
    entries = sorted((record for record in records if record.kind != "exit"), key=lambda record: record.time_ns)
    assert len(entries) == NR_CALLS
    assert [record.args[2:] for record in entries] == [(3, index) for index in range(NR_CALLS)]
    assert {record.result for record in records if record.kind != "enter"} == {3}
    assert {record.tid for record in records} == {child.pid}
    assert kinds(records, "pwrite64")["enter"] == kinds(records, "pwrite64")["exit"]
    assert len(whole) >= NR_CALLS // 2  # a switch interrupts few of them
    assert_in_order(records)


def test_a_call_of_unknown_number_is_known_by_its_event() -> None:
    """It is seen at its own tracepoints, beside calls that are seen where all pass."""

    def work() -> None:
        pwrite()
        fd = os.open("/dev/null", os.O_WRONLY)
        for index in range(23):
            os.lseek(fd, index, os.SEEK_SET)

    with loaded(["pwrite64", "lseek"], extra={"lseek": {"number": -1}}) as rig:
        assert [rig.programs.needs_event(place) for place in range(2)] == [False, True]
        _, records = run(rig, work)
        assert rig.counts("pwrite64") == ((NR_CALLS, 0, 0), (NR_CALLS, 0, 0))
        assert rig.counts("lseek") == ((23, 0, 0), (23, 0, 0))
        assert rig.programs.missed_runs() == 0
    seeks = [record.args[1] for record in records if record.name == "lseek" and record.kind != "exit"]
    assert seeks == list(range(23))
    assert_in_order(records)


def test_a_run_that_finds_another_one_at_work_is_counted_and_does_nothing(raw: bool) -> None:
    """As if a thread was preempted inside of a program: the unfinished record stays, and the loss is reported."""
    with loaded(["pwrite64"], raw=raw) as rig:
        rig.set_of_cpus("busy", 1)
        _, records = run(rig, pwrite)
        assert records == []
        missed = 2 * NR_CALLS + 1  # at its exit, the child's usage is not told either
        assert rig.programs.missed_runs() == missed
        assert rig.counts("pwrite64") == ((0, 0, 0), (0, 0, 0))
        rig.set_of_cpus("busy", 0)
        _, records = run(rig, pwrite)
        assert rig.counts("pwrite64") == ((NR_CALLS, 0, 0), (NR_CALLS, 0, 0))
        assert sum(record.kind != "exit" for record in records) == NR_CALLS
        assert rig.programs.missed_runs() == missed


def test_a_switch_amid_a_program_leaves_the_call_in_its_place() -> None:
    """The thread comes back to its CPU, where its call goes on. A switch at any other time writes its entry."""
    with loaded(["pwrite64"]) as rig:
        rig.set_of_cpus("slot.occupied", 1)
        rig.set_of_cpus("busy", 1)
        rig.programs.switch(on=True)
        visit(rig.cpus)
        assert sorted(rig.programs.pending()) == list(rig.cpus)
        rig.set_of_cpus("busy", 0)
        visit(rig.cpus)
        rig.programs.switch(on=False)
        assert rig.programs.pending() == {}


def visit(cpus: Sequence[int]) -> None:
    """Go to each CPU in turn."""
    allowed = os.sched_getaffinity(0)
    for cpu in cpus:
        os.sched_setaffinity(0, {cpu})
        time.sleep(0.001)
    os.sched_setaffinity(0, allowed)


def test_nothing_is_counted_before_the_switch_is_on() -> None:
    """Programs are loaded switched off, and count nothing after they are switched off again."""
    with loaded(["pwrite64"]) as rig:
        rig.programs.select(os.getpid())
        pwrite(7)
        rig.programs.switch(on=True)
        pwrite(11)
        rig.programs.switch(on=False)
        pwrite(13)
        assert rig.counts("pwrite64") == ((11, 0, 0), (11, 0, 0))
        assert sum(record.kind != "exit" for record in rig.records()) == 11


def test_threads_that_share_cpus_keep_their_calls_apart(raw: bool) -> None:
    """Four threads, 251 calls each, on all CPUs: each thread's arguments in its own order."""

    def work() -> None:
        threads = [threading.Thread(target=pwrite, args=(251,)) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    with loaded(["pwrite64"], raw=raw) as rig:
        _, records = run(rig, work)
        assert rig.counts("pwrite64") == ((1004, 0, 0), (1004, 0, 0))
    assert_in_order(records)
    places: dict[int, list[int]] = {}
    for record in sorted(records, key=lambda record: record.time_ns):
        if record.kind != "exit":
            places.setdefault(record.tid, []).append(record.args[3])
    assert list(places.values()) == [list(range(251))] * 4


def test_a_cpu_that_is_not_recorded_does_nothing(raw: bool) -> None:
    """Its calls are neither counted nor lost: such a CPU has no buffer."""
    one, other, *_ = [*sysfs.read_online_cpus(), None]
    if other is None:
        pytest.skip("one CPU only")

    def work() -> None:
        for cpu, number in ((other, 17), (one, 5)):
            os.sched_setaffinity(0, {cpu})
            pwrite(number)

    with loaded(["pwrite64"], raw=raw, cpus=[one]) as rig:
        _, records = run(rig, work)
        assert rig.counts("pwrite64") == ((5, 0, 0), (5, 0, 0))
        unrecorded = rig.programs._cpu(other)
        assert [unrecorded.counts[place].count for place in (0, 1)] == [0, 0]
    assert len(records) == 5


def test_calls_that_block_are_an_entry_and_an_exit(raw: bool, until: Callable[[Callable[[], object]], object]) -> None:
    """A read that waits loses its CPU: then its entry is written, with its own time, and its exit when it returns."""
    source, sink = os.pipe()

    def work() -> None:
        for _ in range(23):
            os.read(source, 1)

    with loaded(["read"], raw=raw) as rig:
        child = Child(rig, work)
        rig.programs.switch(on=True)
        child.begin()
        for _ in range(23):
            until(lambda: "pipe" in child.waits_in())
            os.write(sink, b"x")
            until(lambda: _unread(source) == 0)
        assert child.end() == 0
        rig.programs.switch(on=False)
        records = [record for record in rig.records() if record.kind == "exit" or record.args[0] == source]
    exits = [record for record in records if record.kind == "exit"]
    # The child's first read was entered before the switch was on, so its exit stands alone.
    assert kinds(records, "read") == {"enter": 23, "exit": 24}
    assert [record.result for record in exits] == [1] * 24
    assert_in_order(records)


def _unread(fd: int) -> int:
    """The number of bytes in a pipe (FIONREAD)."""
    waiting = ctypes.c_int()
    assert libc.ioctl(fd, 0x541B, ctypes.byref(waiting)) == 0
    return waiting.value


def test_preempted_threads_lose_no_call(raw: bool) -> None:
    """Three processes on one CPU: a call that is interrupted has an entry and an exit, all others have one record."""

    def spin() -> None:
        os.sched_setaffinity(0, {0})
        pwrite(20_000)

    with loaded(["pwrite64"], raw=raw, ring_bytes=1 << 24) as rig:
        children = [Child(rig, spin) for _ in range(3)]
        rig.programs.switch(on=True)
        for child in children:
            child.begin()
        assert [child.end() for child in children] == [0, 0, 0]
        rig.programs.switch(on=False)
        records = rig.records()
        assert rig.counts("pwrite64") == ((60_000, 0, 0), (60_000, 0, 0))
        assert rig.programs.read_misses() == [(0, 0, 0)] * len(rig.cpus)
    found = Counter((record.tid, record.kind) for record in records)
    for child in children:
        assert found[child.pid, "call"] + found[child.pid, "enter"] == 20_000
        assert found[child.pid, "enter"] == found[child.pid, "exit"]
    assert {record.cpu for record in records} == {0}
    assert_in_order(records)


def test_a_full_ring_loses_what_it_counts_as_lost(raw: bool) -> None:
    """A buffer of one page: entries and exits that are not among the records are among the losses."""
    with loaded(["pwrite64"], raw=raw, ring_bytes=4096) as rig:
        _, records = run(rig, pwrite)
        enters, exits = rig.counts("pwrite64")
    found = kinds(records, "pwrite64")
    assert enters[0] == exits[0] == NR_CALLS
    assert enters[1] == NR_CALLS - found["call"] - found["enter"]
    assert exits[1] == NR_CALLS - found["call"] - found["exit"]
    assert NR_CALLS - 100 < enters[1] < NR_CALLS  # a CALL and its header take 96 bytes of 4,096


def test_what_a_full_ring_lost_is_told_when_there_is_room_again(raw: bool) -> None:
    """The loss stands in its place among the records, with its first and last time; later losses are pending."""

    def on_one_cpu() -> None:
        os.sched_setaffinity(0, {sysfs.read_online_cpus()[0]})
        pwrite()

    with loaded(["pwrite64"], raw=raw, ring_bytes=4096) as rig:
        records = [record for _ in range(3) for record in run(rig, on_one_cpu)[1]]
        left = rig.pending()
        enters, exits = rig.counts("pwrite64")
    assert_in_order(records)
    gaps = [record for record in (*records, *left) if record.kind == "lost"]
    assert sum(gap.args[1] for gap in gaps) == enters[1] + exits[1]
    assert [record.kind for record in left] == ["lost"]
    assert all(gap.args[0] <= gap.time_ns for gap in gaps)
    for before, gap, after in zip(records, records[1:], records[2:], strict=False):
        if gap.kind == "lost":
            assert before.time_ns + before.duration_ns <= gap.args[0]
            assert gap.time_ns <= after.time_ns
    assert len(gaps) >= 3  # each time that the buffer was full and emptied


def test_children_of_children_are_followed_and_neighbours_are_not() -> None:
    """Three generations, each with 101 calls; thousands of calls of a neighbour are not recorded."""

    def work(generations: int = 3) -> None:
        pwrite(101)
        if generations > 1:
            child = os.fork()
            if child == 0:
                work(generations - 1)
                os._exit(0)
            os.waitpid(child, 0)

    with loaded(["pwrite64"]) as rig:
        neighbour = os.fork()
        if neighbour == 0:
            while True:
                pwrite(1000)
        try:
            pid, records = run(rig, work)
        finally:
            os.kill(neighbour, signal.SIGKILL)
            os.waitpid(neighbour, 0)
        assert rig.counts("pwrite64")[0] == (303, 0, 0)
        assert not rig.programs._selected[pid]  # its number may soon be another's
    of_threads = Counter(record.tid for record in records if record.kind != "exit")
    assert list(of_threads.values()) == [101, 101, 101]
    assert neighbour not in of_threads


def test_all_tasks_are_recorded_but_the_recorder() -> None:
    """System-wide, no process is selected; the recorder's own calls are not counted."""

    def neighbour() -> int:
        child = os.fork()
        if child == 0:
            pwrite(101)
            os._exit(0)
        os.waitpid(child, 0)
        return child

    with loaded(["pwrite64"], all_tasks=True) as rig:
        rig.programs.switch(on=True)
        pwrite(53)
        child = neighbour()
        rig.programs.switch(on=False)
        records = rig.records()
    assert os.getpid() not in {record.tid for record in records}
    assert sum(record.tid == child and record.kind != "exit" for record in records) == 101


def test_a_cgroup_is_all_that_is_recorded(tmp_path: Path) -> None:
    """Of two children, only the one in the cgroup, or below it, counts."""
    if not (CGROUPS / "cgroup.procs").exists():
        pytest.skip("no cgroup v2 is mounted there")
    folder = CGROUPS / f"lo2io-test-{os.getpid()}"
    (folder / "below").mkdir(parents=True)
    try:
        with loaded(["pwrite64"], all_tasks=True, cgroup=folder) as rig:
            children = [Child(rig, pwrite, is_selected=False) for _ in range(2)]
            (folder / "below" / "cgroup.procs").write_text(str(children[1].pid), encoding="ascii")
            rig.programs.switch(on=True)
            for child in children:
                child.begin()
                assert child.end() == 0
            rig.programs.switch(on=False)
            assert rig.counts("pwrite64") == ((NR_CALLS, 0, 0), (NR_CALLS, 0, 0))
            assert {record.tid for record in rig.records()} == {children[1].pid}
    finally:
        (folder / "below").rmdir()
        folder.rmdir()


def test_a_program_that_execs_keeps_its_call(raw: bool) -> None:
    """The exit of an execve has its result, and belongs to the thread that called."""
    with loaded(["execve", "exit_group"], raw=raw) as rig:
        pid, records = run(rig, lambda: exec_python("pass"))
        assert rig.counts("execve") == ((1, 0, 0), (1, 0, 0))
        assert rig.counts("exit_group") == ((1, 0, 0), (0, 0, 0))
    assert {record.tid for record in records} == {pid}
    assert [record.result for record in records if record.name == "execve" and record.kind != "enter"] == [0]
    # exit_group never returns: its thread leaves the CPU inside of it.
    assert kinds(records, "exit_group") == {"enter": 1}


def test_exec_by_a_thread_that_is_not_the_leader_is_entry_and_exit(raw: bool) -> None:
    """The thread takes the leader's number during the call: the entry has the old number, the exit the new one."""
    told, tell = os.pipe()

    def work() -> None:
        def run_program() -> None:
            os.write(tell, struct.pack("<I", threading.get_native_id()))
            exec_python("pass")

        thread = threading.Thread(target=run_program)
        thread.start()
        thread.join()

    with loaded(["execve"], raw=raw) as rig:
        pid, records = run(rig, work)
    tid = struct.unpack("<I", os.read(told, 4))[0]
    assert [(record.kind, record.tid) for record in sorted(records, key=lambda record: record.time_ns)] == [
        ("enter", tid),
        ("exit", pid),
    ]


def test_a_thread_killed_in_its_call_leaves_its_entry(until: Callable[[Callable[[], object]], object]) -> None:
    """The kernel ends the read with an error that no program sees. perf counts that exit, and so do the records."""
    source, _sink = os.pipe()
    with loaded(["read"]) as rig:
        child = Child(rig, lambda: os.read(source, 1))
        counter = open_counter("syscalls:sys_exit_read", child.pid)
        rig.programs.switch(on=True)
        child.begin()
        until(lambda: rig.counts("read")[0][0] == 1 and "pipe" in child.waits_in())
        os.kill(child.pid, signal.SIGKILL)
        assert child.end() == -signal.SIGKILL
        rig.programs.switch(on=False)
        records = rig.records()
        exits = struct.unpack("<Q", os.read(counter, 8))[0]
        os.close(counter)
    assert [(record.kind, record.result) for record in sorted(records, key=lambda record: record.time_ns)] == [
        ("exit", 1),  # of its first read
        ("enter", 0),
        ("exit", -ERESTARTSYS),
    ]
    assert exits == 2


def test_a_stopped_sleep_goes_on_as_restart_syscall(until: Callable[[Callable[[], object]], object]) -> None:
    """After a stop, the sleep ends with an error of the kernel's own, and continues as another call."""
    with loaded(["clock_nanosleep", "restart_syscall"], raw=False) as rig:
        child = Child(rig, lambda: libc.usleep(300_000))  # relative, unlike time.sleep
        rig.programs.switch(on=True)
        child.begin()
        until(lambda: "nanosleep" in child.waits_in())
        os.kill(child.pid, signal.SIGSTOP)
        assert os.WIFSTOPPED(os.waitpid(child.pid, os.WUNTRACED)[1])
        os.kill(child.pid, signal.SIGCONT)
        assert child.end() == 0
        rig.programs.switch(on=False)
        records = sorted(rig.records(), key=lambda record: record.time_ns)
    assert [(record.kind, record.name, record.result) for record in records] == [
        ("enter", "clock_nanosleep", 0),
        ("exit", "clock_nanosleep", -ERESTART_RESTARTBLOCK),
        ("enter", "restart_syscall", 0),
        ("exit", "restart_syscall", 0),
    ]


def test_a_handler_returns_by_a_call_that_has_no_exit() -> None:
    """rt_sigreturn restores the registers of the interrupted code, and with them overwrites its own number."""

    def work() -> None:
        signal.signal(signal.SIGUSR1, lambda *_: None)
        for _ in range(31):
            os.kill(os.getpid(), signal.SIGUSR1)

    with loaded(["rt_sigreturn"], raw=False) as rig:
        _, records = run(rig, work)
        assert rig.counts("rt_sigreturn") == ((31, 0, 0), (0, 0, 0))
        assert [unpaired for _, _, unpaired in rig.programs.read_misses()] == [0] * len(rig.cpus)
        assert rig.pending() == []
    assert kinds(records, "rt_sigreturn") == {"enter": 31}


def test_fork_returns_twice(raw: bool) -> None:
    """The child comes back from a call that it never entered: only its exit is seen, as with perf events."""
    program = (
        "import ctypes, os\n"
        "for _ in range(7):\n"
        "    pid = os.fork()\n"
        "    if pid == 0: os._exit(0)\n"
        "    os.waitpid(pid, 0)\n"
        "os.waitpid(os.posix_spawn('/bin/true', ['true'], {}), 0)\n"  # vfork, or clone with CLONE_VFORK
    )

    forks = ["clone", "clone3", "vfork", "fork"]
    with loaded(forks, raw=raw) as rig:
        pid, records = run(rig, lambda: exec_python(program))
        counts = [rig.counts(name) for name in forks]
    assert sum(enters[0] for enters, _ in counts) == 8
    assert sum(exits[0] for _, exits in counts) == 16
    parents = [record.result for record in records if record.tid == pid and record.kind != "enter"]
    children = [(record.tid, record.kind, record.result) for record in records if record.tid != pid]
    assert sorted(children) == sorted((tid, "exit", 0) for tid in parents)
    assert_in_order(records)


def test_calls_of_32_bits_are_nobodys() -> None:
    """Their numbers mean other calls (3: read, here close); perf leaves them out, and so do the programs."""
    if os.uname().machine != "x86_64":
        pytest.skip("the code is x86-64's")
    code = mmap.mmap(-1, mmap.PAGESIZE, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    # mov $3, %eax; mov $-1, %ebx; int $0x80; ret, with %rbx kept
    code.write(b"\x53\xb8\x03\x00\x00\x00\xbb\xff\xff\xff\xff\xcd\x80\x5b\xc3")
    function = ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(code)))
    probe = os.fork()
    if probe == 0:
        os._exit(function() == -errno.EBADF)
    if os.waitstatus_to_exitcode(os.waitpid(probe, 0)[1]) != 1:
        pytest.skip("this kernel runs no 32 bit calls")
    with loaded(["close", "read"]) as rig:

        def work() -> None:
            for _ in range(19):
                function()
            os.close(999_999)

        def work_and_tell() -> None:
            with contextlib.suppress(OSError):
                work()

        _, records = run(rig, work_and_tell)
    assert not [record for record in records if record.args and record.args[0] == 0xFFFFFFFF]
    closes = [record for record in records if record.name == "close" and record.args[:1] == (999_999,)]
    assert len(closes) == 1


def droppable(**more: int) -> dict[str, dict[str, int]]:
    """A call on which nothing depends; its third argument is the number of requested bytes."""
    return {name: {"flags": lib.LO2_CALL_DROPPABLE, "count": 3, **more} for name in ("pwrite64", "read")}


def test_small_calls_are_left_out_and_counted(raw: bool) -> None:
    """Half of the writes are below the limit: they count, and make no records."""

    def work() -> None:
        fd = os.open("/dev/null", os.O_WRONLY)
        for index in range(2 * 251):
            os.pwrite(fd, b"x" * (4095 + index % 2), index)

    with loaded(["pwrite64"], raw=raw, extra=droppable(), min_bytes=4096) as rig:
        _, records = run(rig, work)
        enters, exits = rig.counts("pwrite64")
    switched = kinds(records, "pwrite64")["enter"]
    assert enters == exits
    assert enters[0] == 502
    assert 251 - switched <= enters[2] <= 251  # a call that has lost its CPU is written already
    assert sum(record.kind != "exit" for record in records) == 502 - enters[2]
    assert sum(record.kind == "call" and record.args[2] == 4095 for record in records) == 0


def test_short_calls_are_left_out_but_not_those_that_waited(until: Callable[[Callable[[], object]], object]) -> None:
    """A second at least: no call that keeps its CPU takes so long, and one that waits was written before its end."""
    source, sink = os.pipe()

    def work() -> None:
        pwrite(101)
        os.read(source, 1)

    with loaded(["pwrite64", "read"], extra=droppable(), min_latency_ns=10**9) as rig:
        child = Child(rig, work)
        rig.programs.switch(on=True)
        child.begin()
        until(lambda: "pipe" in child.waits_in() and rig.counts("pwrite64")[1][0] == 101)
        os.write(sink, b"x")
        assert child.end() == 0
        rig.programs.switch(on=False)
        records = rig.records()
        enters, exits = rig.counts("pwrite64")
    assert enters == exits
    assert enters[0] == 101
    assert kinds(records, "pwrite64") == Counter({"enter": 101 - enters[2], "exit": 101 - enters[2]})
    waited = [record for record in records if record.kind == "enter" and record.args[0] == source]
    assert [record.name for record in waited] == ["read"]


def test_a_call_that_still_runs_is_pending(until: Callable[[Callable[[], object]], object]) -> None:
    """A real-time thread keeps its CPU: its entry is in no buffer, but in the programs' memory.

    The kernel may take the CPU from it for a moment, and then the entry is written. So it reads until one was seen.
    """
    seen = mmap.mmap(-1, 1)

    def work() -> None:
        os.sched_setaffinity(0, {1})
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
        memory = mmap.mmap(-1, 1 << 30)
        end = time.monotonic() + 60
        with open("/dev/zero", "rb", buffering=0) as zeros:  # noqa: PTH123
            while not seen[0] and time.monotonic() < end:
                zeros.readinto(memory)

    if len(os.sched_getaffinity(0)) == 1:
        pytest.skip("needs a CPU for the recorder")
    with loaded(["read"]) as rig:
        child = Child(rig, work)
        child.begin()
        until(lambda: _is_caught_reading(rig))
        pending = rig.pending()
        records = rig.records()
        seen[0] = 1
        assert child.end() == 0
        assert rig.pending() == pending  # later ends are not seen any more
    assert [(record.kind, record.name, record.tid, record.cpu) for record in pending] == [
        ("enter", "read", child.pid, 1)
    ]
    assert pending[0].args[2] == 1 << 30
    assert all(record.time_ns < pending[0].time_ns for record in records if record.cpu == 1)


def _is_caught_reading(rig: Loaded) -> bool:
    """Record for a moment, and switch the programs off: was a call under way then?"""
    rig.programs.switch(on=True)
    time.sleep(0.02)
    rig.programs.switch(on=False)
    return any(record.args[2] == 1 << 30 for record in rig.pending())


def test_capabilities_are_enough() -> None:
    """CAP_BPF and CAP_PERFMON, without root: load, attach, and record one's own calls."""
    with unprivileged() as allowed:
        if not allowed:
            with loaded(["pwrite64"]) as rig:
                rig.programs.select(os.getpid())
                rig.programs.switch(on=True)
                pwrite()
                rig.programs.switch(on=False)
                os._exit(0 if rig.counts("pwrite64") == ((NR_CALLS, 0, 0), (NR_CALLS, 0, 0)) else 2)
    assert allowed == [0]


@contextlib.contextmanager
def unprivileged() -> Iterator[list[int]]:
    """A forked child with only CAP_BPF, CAP_PERFMON and the right to read tracefs: gets an empty list.

    The parent gets the exit code.
    """
    child = os.fork()
    if child:
        yield [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])]
        return
    try:
        bits = [1 << 39 - 32 | 1 << 38 - 32, 1 << 2]  # CAP_BPF, CAP_PERFMON; CAP_DAC_READ_SEARCH
        header = struct.pack("<II", 0x20080522, 0)  # _LINUX_CAPABILITY_VERSION_3
        assert libc.prctl(8, 1, 0, 0, 0) == 0  # PR_SET_KEEPCAPS
        os.setgroups([])
        os.setresgid(65534, 65534, 65534)
        os.setresuid(65534, 65534, 65534)
        sets = struct.pack("<IIIIII", bits[1], bits[1], 0, bits[0], bits[0], 0)
        assert libc.capset(header, sets) == 0
        yield []
    finally:
        os._exit(3)


def test_records_decode_to_themselves() -> None:
    """The rig's own rule: an exit after its entry in each thread, none twice."""
    records = [Record("call", "read", 0, 5, 1, duration_ns=3), Record("enter", "read", 0, 8, 2)]
    assert_in_order(records)
    with pytest.raises(AssertionError):
        assert_in_order(records[::-1])


def test_the_verifier_is_soon_done(raw: bool) -> None:
    """Each recording waits for it: some 100 ms for 50,000 instructions.

    A loop bound that it follows takes a million.
    """
    with loaded(["pwritev2", "openat2", "io_submit", "io_getevents"], raw=raw):
        programs = [info.read_text() for info in Path("/proc/self/fdinfo").iterdir() if info.exists()]
    looked_at = [int(line.split()[1]) for text in programs for line in text.splitlines() if "verified_insns" in line]
    assert len(looked_at) > 5
    assert max(looked_at) < 50_000
