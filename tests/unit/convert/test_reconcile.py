"""The recording against the kernel's accounts: counted by the kernel's rules, compared only if that is fair."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from build.tablemaker import CALLS, CLOSE, COPY, READ, WRITE, make_batch, meta
from hypothesis import given
from hypothesis import strategies as st

from lo2io.convert.reconcile import MARGIN_NS, Reconciler, reconciliation_line, shortfall_line
from lo2io.kernel.accounts import CGROUP_NAMES, DISK_NAMES, PROCESS_NAMES
from lo2io.model import UNKNOWN_I64, UNKNOWN_U32, Account, Completeness, Reconciliation, RequestOp, SpoolMeta

SDA, SDB = 8 << 20, 8 << 20 | 16
COMPLETE = "block:block_rq_complete"
EVENTS = (COMPLETE, *(event for call in CALLS for event in (call.enter_event, call.exit_event)))
BEGIN, END = 10_000_000, 90_000_000
INSIDE = 50_000_000
Row = dict[str, Any]


def disk(device: int = SDA, **values: int) -> Account:
    """An account of a disk with these numbers."""
    numbers = tuple(values.get(name, 0) for name in DISK_NAMES)
    return Account("diskstats", f"sd{device & 0xFF}", device, DISK_NAMES, numbers, BEGIN, END)


def command(**values: int) -> Account:
    """The account of process 100."""
    numbers = tuple(values.get(name, 0) for name in PROCESS_NAMES)
    return Account("proc_io", "100", None, PROCESS_NAMES, numbers, BEGIN, END)


def spool(*accounts: Account, **changes: Any) -> SpoolMeta:
    """A spool that recorded all that can be compared."""
    return meta(**{"events": EVENTS, "accounts": accounts, "start_ns": BEGIN - 1000} | changes)


def compare(recorded: SpoolMeta, *batches: dict[str, list[Row]]) -> dict[str, Reconciliation]:
    """By the numbers' names, for spools with one account."""
    reconciler = Reconciler(recorded, CALLS)
    for tables in batches:
        reconciler.write(make_batch(**tables))
    rows = reconciler.close()
    return {row.name: row for row in rows}


def completion(operation: RequestOp, sectors: int, **row: int) -> Row:
    """A completion of a whole request on SDA, during the account."""
    empty = {"asked_flush": 1} if operation != RequestOp.FLUSH and not sectors else {}
    if empty and operation != RequestOp.OTHER:
        operation = RequestOp.FLUSH  # the engine has such a completion as a flush
    row = {"time_ns": INSIDE, "device": SDA, "ends": 1, **row}
    return row | {"operation": operation, "bytes": sectors * 512, **empty}


WRITES_TWICE = [
    completion(RequestOp.WRITE, 8, sector=800),
    completion(RequestOp.FLUSH, 0),
    completion(RequestOp.WRITE, 0, sector=800),
]
"""A write with a flush after it, as block/blk-flush.c completes it: the data, the flush, and the whole."""


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([completion(RequestOp.READ, 8)] * 3, {"reads": 3, "read_bytes": 3 * 4096}),
        ([completion(RequestOp.WRITE, 16)], {"writes": 1, "write_bytes": 8192}),
        ([completion(RequestOp.READ, 8, ends=0), completion(RequestOp.READ, 2)], {"reads": 1, "read_bytes": 5120}),
        ([completion(RequestOp.DISCARD, 2048)], {"discards": 1, "discard_bytes": 1 << 20}),
        ([completion(RequestOp.FLUSH, 0)], {"flushes": 1}),
        ([completion(RequestOp.FLUSH, 0), completion(RequestOp.WRITE, 0)], {"flushes": 1, "writes": 1}),
        ([completion(RequestOp.FLUSH, 0)] + [completion(RequestOp.WRITE, 0)] * 5, {"flushes": 1, "writes": 5}),
        (WRITES_TWICE, {"writes": 1, "write_bytes": 4096, "flushes": 1}),
        (WRITES_TWICE * 2, {"writes": 2, "write_bytes": 8192, "flushes": 2}),
        ([completion(RequestOp.WRITE, 0, sector=2048)], {"writes": 1}),
        ([completion(RequestOp.WRITE_ZEROES, 8)], {"writes": 1, "write_bytes": 4096}),
        ([completion(RequestOp.OTHER, 8)], {"writes": 1, "write_bytes": 4096}),
        ([completion(RequestOp.OTHER, 0)], {}),
        ([completion(RequestOp.SECURE_ERASE, 8)], {"writes": 1, "write_bytes": 4096}),
        ([completion(RequestOp.ZONE, 8)], {"writes": 1, "write_bytes": 4096}),
    ],
)
def test_requests_count_as_in_diskstats(rows: list[Row], expected: dict[str, int]) -> None:
    """By the kernel's rules: parts add bytes, flush bios are empty writes, and what completes twice counts once."""
    found = compare(spool(disk(**expected)), {"completions": rows})
    assert {name: row.captured for name, row in found.items()} == expected
    assert all(row.at_borders == 0 for row in found.values())
    other = compare(spool(disk(reads=1000, writes=1000)), {"completions": rows})
    assert (other["reads"].captured, other["writes"].captured) == (expected.get("reads", 0), expected.get("writes", 0))


def test_a_write_at_sector_0_may_complete_twice() -> None:
    """Its second end looks like that of an empty bio: both counts are possible, and the kernel's number decides."""
    rows = [completion(RequestOp.WRITE, 8), completion(RequestOp.FLUSH, 0), completion(RequestOp.WRITE, 0)]
    for counted, captured in ((1, 1), (2, 2), (5, 2)):
        found = compare(spool(disk(writes=counted)), {"completions": rows})
        assert (found["writes"].captured, found["writes"].at_borders) == (captured, 1)
    more = [*rows, *[completion(RequestOp.WRITE, 0)] * 3]
    found = compare(spool(disk(writes=1)), {"completions": more})
    assert (found["writes"].captured, found["writes"].at_borders) == (4, 1)  # one write completes twice, not four


def test_a_second_completion_may_come_in_a_later_batch() -> None:
    """The write before it is remembered."""
    found = compare(spool(disk(writes=1)), {"completions": WRITES_TWICE[:1]}, {"completions": WRITES_TWICE[1:]})
    assert found["writes"].captured == 1


@pytest.mark.parametrize(("beyond_ns", "counts"), [(90_000, 1), (110_000, 0)])
def test_what_ends_100_us_beyond_the_borders_may_count(beyond_ns: int, counts: int) -> None:
    """The look at the account and the reading of the clock are not one moment."""
    rows = [completion(RequestOp.WRITE, 8, time_ns=time) for time in (BEGIN - beyond_ns, END + beyond_ns)]
    found = compare(spool(disk(writes=2)), {"completions": rows})
    assert (found["writes"].captured, found["writes"].at_borders) == (2 * counts, 2 * counts)


@pytest.mark.parametrize(
    ("time_ns", "captured", "at_borders"),
    [
        (BEGIN + 1_900_000, 1, 1),
        (BEGIN + 2_300_000, 1, 0),
        (END - 300_000, 1, 0),
        (END + 2_900_000, 1, 1),
        (END + 3_300_000, 0, 0),
    ],
)
def test_what_ends_while_an_account_is_read_may_count(time_ns: int, captured: int, at_borders: int) -> None:
    """The first look took 2 ms, the last one 3 ms: the account may or may not have a request that ended meanwhile."""
    account = dataclasses.replace(disk(writes=1), begin_slack_ns=2_000_000, end_slack_ns=3_000_000)
    found = compare(spool(account), {"completions": [completion(RequestOp.WRITE, 8, time_ns=time_ns)]})
    assert (found["writes"].captured, found["writes"].at_borders) == (captured, at_borders)


TIMES = st.integers(0, END + 10_000_000)


@given(
    rows=st.lists(st.tuples(st.sampled_from([SDA, SDB, 7]), st.integers(0, 1), st.integers(1, 64), TIMES)),
    counted=st.integers(0, 30),
    slack=st.integers(0, 5_000_000),
)
def test_spans_against_a_slow_count(rows: list[tuple[int, int, int, int]], counted: int, slack: int) -> None:
    """Of two disks, certain ends in the account's span count, ends near its borders may count, others do not."""
    parts = {device: disk(device, reads=counted, writes=3) for device in (SDB, SDA)}
    accounts = [
        Account(a.source, a.subject, a.device, a.names, a.values, a.begin_ns, a.end_ns, slack, slack)
        for a in parts.values()
    ]
    reconciler = Reconciler(spool(*accounts), CALLS)
    table = [
        completion(RequestOp(operation), sectors, device=device, time_ns=time, sector=9)
        for device, operation, sectors, time in rows
    ]
    for part in (table[:5], table[5:]):
        reconciler.write(make_batch(completions=part))
    result = {(row.device, row.name): row for row in reconciler.close()}
    for device in parts:
        times = [time for where, operation, _, time in rows if where == device and operation == 0]
        least = sum(BEGIN + slack + MARGIN_NS < time < END - MARGIN_NS for time in times)
        most = sum(BEGIN - MARGIN_NS <= time <= END + slack + MARGIN_NS for time in times)
        found = result.get((device, "reads"))
        if found is None:
            assert (counted, least) == (0, 0)
        else:
            assert (found.captured, found.at_borders) == (min(max(counted, least), most), most - least)


THREADS = [
    {"task": 0, "process": 0, "pid": 100, "tid": 100},
    {"task": 1, "process": 0, "pid": 100, "tid": 101},
    {"task": 2, "process": 5, "pid": 200, "tid": 200, "parent_process": 0},
    {"task": 3, "process": 6, "pid": 300, "tid": 300, "parent_process": 5},
    {"task": 4, "process": 7, "pid": 400, "tid": 400, "parent_process": UNKNOWN_U32},
    {"task": 5, "process": 9, "pid": 100, "tid": 100, "parent_process": UNKNOWN_U32},
]


def call(code: int, task: int, moved: int = UNKNOWN_I64, **row: int) -> Row:
    """A call during the account."""
    return {
        "call": code,
        "task": task,
        "bytes_result": moved,
        "begin_time_ns": INSIDE,
        "end_time_ns": INSIDE + 9,
        **row,
    }


def test_calls_count_as_in_proc_io() -> None:
    """Calls of the process, its threads and descendants; copies count twice; failures that reach the file count."""
    rows = [
        call(READ, 0, 10), call(READ, 1, 20), call(READ, 2, 300), call(READ, 3, 4000), call(READ, 3, error=5),
        call(READ, 0, error=9), call(COPY, 2, 50_000), call(WRITE, 1, 7), call(CLOSE, 1),
        call(READ, 4, 1 << 40), call(READ, 5, 1 << 41), call(READ, UNKNOWN_U32, 1 << 42),
        call(READ, 0, 1 << 43, end_time_ns=BEGIN - 1), call(READ, 0, end_time_ns=UNKNOWN_I64),
        call(READ, 0, error=29), call(READ, 0, 1 << 44, end_time_ns=END + 10**9),
    ]  # fmt: skip
    account = command(rchar=60_000, wchar=1, syscr=1, syscw=1)
    found = compare(spool(account), {"operations": rows[:4]}, {"operations": rows[4:], "tasks": THREADS})
    assert {name: row.captured for name, row in found.items()} == {
        "rchar": 10 + 20 + 300 + 4000 + 50_000, "wchar": 50_007, "syscr": 6, "syscw": 2,
    }  # fmt: skip
    assert found["rchar"].counted == 60_000


@given(calls=st.lists(st.tuples(st.integers(0, 5), st.sampled_from([READ, WRITE, COPY]), st.integers(0, 10**12))))
def test_process_sums_against_a_slow_count(calls: list[tuple[int, int, int]]) -> None:
    """However the batches are cut, nothing is added twice and nothing left out."""
    reconciler = Reconciler(spool(command(rchar=1, wchar=1)), CALLS)
    for index in range(0, len(calls), 3):
        rows = [call(code, task, moved) for task, code, moved in calls[index : index + 3]]
        reconciler.write(make_batch(operations=rows, tasks=THREADS if index == 0 else []))
    if not calls:
        reconciler.write(make_batch(tasks=THREADS))
    found = {row.name: row.captured for row in reconciler.close()}
    mine = [(code, moved) for task, code, moved in calls if task < 4]
    assert found["rchar"] == sum(moved for code, moved in mine if code != WRITE)
    assert found["wchar"] == sum(moved for code, moved in mine if code != READ)


def test_a_cgroup_by_its_requests() -> None:
    """Bytes of requests sent in the span, failed or with an unseen end, too; no bios, which are not recorded."""
    numbers = dict.fromkeys(CGROUP_NAMES, 1) | {"read_bytes": 8192, "write_bytes": 99_999}
    account = Account("cgroup_io", "/g", SDA, CGROUP_NAMES, tuple(numbers[n] for n in CGROUP_NAMES), BEGIN, END)
    sent = {"device": SDA, "issue_time_ns": INSIDE, "bytes_issued": 4096, "bytes_result": 4096}
    rows = [
        {**sent},
        {**sent, "status": 3, "bytes_result": UNKNOWN_I64},
        {**sent, "operation": 1},
        {**sent, "operation": 1, "error": 5, "bytes_result": UNKNOWN_I64},
        {**sent, "insert_time_ns": BEGIN - 2 * MARGIN_NS},
        {**sent, "status": 1},
        {**sent, "device": SDB},
    ]
    found = compare(spool(account, cgroup="/g"), {"requests": rows})
    assert (found["read_bytes"].captured, found["write_bytes"].captured) == (8192, 8192)
    assert found["reads"].captured is None
    assert "bios" in found["reads"].reason


@pytest.mark.parametrize(
    ("account", "changes", "reason"),
    [
        (disk(reads=5), {"events": EVENTS[1:]}, "block:block_rq_complete was not recorded"),
        (disk(reads=5), {"filters": ((COMPLETE, "x"),)}, "the kernel filtered block:block_rq_complete"),
        (disk(reads=5), {"chosen_cpus": (1,)}, "only some CPUs were recorded"),
        (disk(reads=5), {"start_ns": BEGIN + 2 * MARGIN_NS}, "does not reach back"),
        (command(rchar=5), {"events": EVENTS[:-14]}, "syscalls:sys_enter_read was not recorded"),
        (command(rchar=5), {"filters": (("syscalls:sys_exit_read", "ret > 5"),)}, "the kernel filtered"),
        (command(rchar=5), {"cgroup": "/g"}, "only a cgroup was recorded"),
        (command(rchar=5), {"nr_left_out": 1}, "the filter left calls out in the kernel"),
        (command(read_bytes=5), {}, "not by calls"),
    ],
)
def test_what_cannot_be_compared_says_why(account: Account, changes: Row, reason: str) -> None:
    """A number that would mislead is not given, and no line boasts of it."""
    reconciler = Reconciler(spool(account, **changes), CALLS)
    reconciler.write(make_batch(completions=[completion(RequestOp.READ, 8)], tasks=THREADS))
    (row,) = reconciler.close()
    assert (row.captured, row.counted, row.at_borders) == (None, 5, 0)
    assert reason in row.reason
    assert reconciliation_line((row,)) == ""


def test_without_accounts_there_is_nothing() -> None:
    """Older spools, and those cut off."""
    reconciler = Reconciler(spool(), CALLS)
    reconciler.write(make_batch(completions=[completion(RequestOp.READ, 8)], operations=[call(READ, 0, 5)]))
    assert reconciler.close() == ()
    assert reconciliation_line(()) == ""


def pair(source: str, name: str, counted: int, captured: int | None) -> Reconciliation:
    """A number on both sides."""
    return Reconciliation(source, "x", None, name, counted, captured)


@pytest.mark.parametrize(
    ("rows", "line"),
    [
        (
            [
                pair("diskstats", "reads", 163_000, 163_000),
                pair("diskstats", "flushes", 840, 840),
                pair("proc_io", "rchar", 1_000_000, 999_799),
                pair("diskstats", "read_bytes", 5, 1),
            ],
            "captured 100 % of 163,840 block requests, 99.97 % of read bytes",
        ),
        ([pair("diskstats", "writes", 1, 0)], "captured 0 % of 1 block request"),
        ([pair("diskstats", "writes", 10**9, 10**9 - 1)], "captured 99.99 % of 1,000,000,000 block requests"),
        ([pair("proc_io", "wchar", 10**9, 10**9 + 1)], "captured 100.01 % of written bytes"),
        (
            [pair("diskstats", "reads", 5000, 4999), pair("diskstats", "writes", 5000, 5001)],
            "captured 99.99 % (and 1 not counted) of 10,000 block requests",
        ),
        (
            [pair("diskstats", "read_bytes", 8192, 4096), pair("diskstats", "read_bytes", 4096, 8192)],
            "captured 66.66 % (and 4 KiB not counted) of read bytes",
        ),
        (
            [pair("diskstats", "reads", 0, 3), pair("diskstats", "read_bytes", 0, 512)],
            "captured 3 too many of 0 block requests, 512 B too many of read bytes",
        ),
        ([pair("diskstats", "reads", 10**18, 10**18 - 1)], f"captured 99.99 % of {10**18:,} block requests"),
        (
            [pair("cgroup_io", "read_bytes", 100, 50), pair("cgroup_io", "write_bytes", 4, 4)],
            "captured 50 % of read bytes, 100 % of written bytes",
        ),
        ([pair("proc_io", "rchar", 0, 0), pair("diskstats", "read_bytes", 8, 8)], "captured 100 % of read bytes"),
        ([pair("proc_io", "rchar", 7, None)], ""),
        ([pair("proc_io", "rchar", 1400, 852)], "captured all but 548 B of read bytes"),
        ([pair("proc_io", "wchar", 1400, 852)], "captured 60.85 % of written bytes"),
        ([pair("proc_io", "rchar", 200_000, 100_000)], "captured 50 % of read bytes"),
        ([pair("proc_io", "rchar", 100_000, 99_000)], "captured 99 % of read bytes"),
    ],
)
def test_the_line(rows: list[Reconciliation], line: str) -> None:
    """100 % means all; a byte less is 99.99 % at most, a byte more is said, too; what exec may have read, in bytes."""
    assert reconciliation_line(rows) == line


def test_many_disks() -> None:
    """Every row of a full batch is counted, wherever its device stands among many."""
    devices = np.arange(64, dtype=np.uint32) + SDA
    accounts = [disk(int(device), reads=512, read_bytes=512 * 4096) for device in devices]
    batch = make_batch(completions=[completion(RequestOp.READ, 8)])
    batch.completions = {name: np.repeat(array, 64 * 512) for name, array in batch.completions.items()}
    batch.completions["device"] = np.tile(devices, 512)
    reconciler = Reconciler(spool(*accounts), CALLS)
    reconciler.write(batch)
    rows = reconciler.close()
    assert len(rows) == 128
    assert all(row.captured == row.counted for row in rows)


NOTHING_LOST = Completeness(0, 0, 0, 0, 0, 10, True)
MIB = 1 << 20


@pytest.mark.parametrize(
    ("rows", "mode", "said"),
    [
        ([pair("proc_io", "wchar", 10 * MIB, 0)], "process", "captured only 0 % of 10 MiB that your command wrote; "),
        ([pair("proc_io", "wchar", 1000, 899)], "process", "captured only 89.9 % of 1000 B that your command wrote; "),
        ([pair("proc_io", "wchar", 10**6, 899_999)], "process", "captured only 89.99 % of 977 KiB that your"),
        ([pair("proc_io", "wchar", 1000, 900)], "process", ""),
        ([pair("proc_io", "wchar", 1000, 2000)], "process", ""),
        ([pair("proc_io", "wchar", 1000, None)], "process", ""),
        ([pair("proc_io", "rchar", MIB, 0)], "process", "captured only 0 % of 1 MiB that your command read; "),
        ([pair("cgroup_io", "read_bytes", MIB, 0)], "system", "captured only 0 % of 1 MiB that the cgroup read; "),
        ([pair("cgroup_io", "write_bytes", MIB, 0)], "system", ""),
        ([pair("diskstats", "reads", 60, 50), pair("diskstats", "writes", 40, 30)], "system", "80 % of 100 block req"),
        ([pair("diskstats", "reads", 60, 5)], "process", ""),
        ([], "process", ""),
    ],
)
def test_too_small_a_share_is_said(rows: list[Reconciliation], mode: str, said: str) -> None:
    """From 90 % on nothing; less than that in words, of the accounts that the recording answers for."""
    line = shortfall_line(rows, meta(mode=mode), NOTHING_LOST)
    assert bool(line) == bool(said)
    assert said in line


def test_what_exec_reads_itself_is_no_shortfall() -> None:
    """A hundred programs that read next to nothing: most reads are exec's, which no call shows."""
    programs = [
        {"task": n, "process": n, "pid": 100 + n, "parent_process": 0 if n else UNKNOWN_U32} for n in range(100)
    ]
    tables = {"tasks": programs, "operations": [call(READ, 0, 1000)]}
    few = compare(spool(command(rchar=300_000)), tables)["rchar"]
    assert few.by_exec == (64 << 10) + 100 * 4096
    assert shortfall_line([few], spool(), NOTHING_LOST) == ""
    much = compare(spool(command(rchar=600_000)), tables)["rchar"]
    assert "that your command read" in shortfall_line([much], spool(), NOTHING_LOST)


@pytest.mark.parametrize(
    ("changes", "proof", "causes"),
    [
        ({}, NOTHING_LOST, "the cause is not known"),
        ({"backend": "bpf"}, NOTHING_LOST, "the cause is not known"),
        ({"backend": "perf", "machine": "x86_64"}, NOTHING_LOST, "likely cause: 32-bit programs"),
        ({"hook": "raw", "machine": "x86_64"}, NOTHING_LOST, "the cause is not known"),
        ({"hook": "single", "machine": "x86_64"}, NOTHING_LOST, "likely cause: 32-bit programs"),
        ({"backend": "perf", "machine": "x86_64", "scope": "inherit"}, NOTHING_LOST, "; set-uid or set-gid programs"),
        ({}, Completeness(7, 0, 0, 0, 0, 10, False), "likely cause: the 7 events that are missing"),
        ({}, Completeness(7, 7, 0, 0, 0, 10, False, recorded_whole=True), "the cause is not known"),
    ],
)
def test_causes_are_those_that_the_recording_allows(changes: Row, proof: Completeness, causes: str) -> None:
    """Not all conceivable ones: the back end, the scope and the losses decide."""
    facts = meta(**{"backend": "bpf", "scope": "system"} | changes)
    assert causes in shortfall_line([pair("proc_io", "wchar", MIB, 0)], facts, proof)
