"""The configuration of each call for the programs in the kernel."""

from __future__ import annotations

import re
from dataclasses import asdict
from pathlib import Path

import pytest
from lo2io.native._lib import ffi, lib

from lo2io.bpf.calls import KernelCall, plan_calls, plan_opcodes
from lo2io.bpf.loader import BpfCall, BpfConfig, tell
from lo2io.catalog.call_numbers import MAX_NUMBER, compat_calls
from lo2io.catalog.catalog import load_catalog
from lo2io.model import EventFormat, FieldLayout
from lo2io.model.events import Event

COMMON = ("common_type", "common_pid")
ARGUMENTS = {
    "close": "fd",
    "close_range": "fd max_fd flags",
    "copy_file_range": "fd_in off_in fd_out off_out len flags",
    "chdir": "filename",
    "dup2": "oldfd newfd",
    "fcntl": "fd cmd arg",
    "io_submit": "ctx_id nr iocbpp",
    "io_getevents": "ctx_id min_nr nr events timeout",
    "lseek": "fd offset whence",
    "openat": "dfd filename flags mode",
    "openat2": "dfd filename how usize",
    "pread64": "fd buf count pos",
    "preadv2": "fd vec vlen pos_l pos_h flags",
    "read": "fd buf count",
    "renameat2": "olddfd oldname newdfd newname flags",
    "sync": "",
}
"""As Linux 6.18 names them."""


def entry(name: str, number: int = 700, added: tuple[FieldLayout, ...] = ()) -> Event:
    """The entry's event of a call, laid out as the kernel does."""
    full = f"syscalls:sys_enter_{name}"
    fields = [FieldLayout("common_type", "unsigned short", 0, 2, signed=False)]
    fields += [FieldLayout("__syscall_nr", "int", 8, 4, signed=True)]
    fields += [
        FieldLayout(field, "long", 16 + 8 * place, 8, signed=False)
        for place, field in enumerate(ARGUMENTS[name].split())
    ]
    return Event(full, number, "", EventFormat(full, number, (*fields, *added)))


def leave(name: str, number: int = 699) -> Event:
    """The exit's."""
    full = f"syscalls:sys_exit_{name}"
    return Event(full, number, "", EventFormat(full, number, (FieldLayout("ret", "long", 16, 8, signed=True),)))


def plan(name: str) -> KernelCall:
    """The configuration of one call whose events are both recorded."""
    (call,) = plan_calls([entry(name), leave(name)], load_catalog())
    return call


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("read", {"fd": 1, "count": 3, "nr_args": 3, "flags": lib.LO2_CALL_MOVES | lib.LO2_CALL_BYTES}),
        ("pread64", {"fd": 1, "count": 3, "nr_args": 4, "flags": lib.LO2_CALL_BYTES}),
        (
            "preadv2",
            {"fd": 1, "vector": 2, "vector_count": 3, "nr_args": 6, "flags": lib.LO2_CALL_MOVES | lib.LO2_CALL_BYTES},
        ),
        ("lseek", {"fd": 1, "nr_args": 3, "flags": lib.LO2_CALL_MOVES}),
        ("openat", {"dirfd": 1, "path": 2, "nr_args": 4, "flags": lib.LO2_CALL_RETURNS_FD}),
        ("openat2", {"dirfd": 1, "path": 2, "how": 3, "how_size": 4, "nr_args": 4, "flags": lib.LO2_CALL_RETURNS_FD}),
        ("close", {"fd": 1, "nr_args": 1, "flags": lib.LO2_CALL_CLOSES}),
        ("close_range", {"nr_args": 3, "flags": lib.LO2_CALL_ENDS}),
        ("dup2", {"fd": 1, "nr_args": 2, "flags": lib.LO2_CALL_RETURNS_FD}),
        ("fcntl", {"fd": 1, "nr_args": 3, "flags": 0}),
        ("copy_file_range", {"fd": 1, "fd2": 3, "count": 5, "nr_args": 6, "flags": lib.LO2_CALL_BYTES}),
        ("renameat2", {"dirfd": 1, "path": 2, "dirfd2": 3, "path2": 4, "nr_args": 5, "flags": 0}),
        ("chdir", {"path": 1, "nr_args": 1, "flags": lib.LO2_CALL_FIRST}),
        ("io_submit", {"iocbs": 3, "iocbs_count": 2, "nr_args": 3, "flags": 0}),
        ("io_getevents", {"events": 4, "context": 1, "nr_args": 5, "flags": 0}),
        ("sync", {"nr_args": 0, "flags": 0}),
    ],
)
def test_arguments_by_number(name: str, expected: dict[str, int]) -> None:
    """Roles of the catalog become numbers by where the kernel's format has them; a role that is not there is 0."""
    told = asdict(plan(name).spec)
    wanted = dict.fromkeys(told, 0) | expected
    wanted |= {"number": told["number"], "compat": told["compat"]}
    wanted |= {"enter_event": 700, "exit_event": 699, "enter_index": 0, "exit_index": 1}
    assert told == wanted


def test_a_string_in_the_sample_is_no_argument() -> None:
    """Linux 6.19 adds the path itself after the arguments."""
    added = FieldLayout("__filename_val", "__data_loc char[]", 16 + 8 * 4, 4, signed=False, is_data_loc=True)
    (call,) = plan_calls([entry("openat", added=(added,))], load_catalog())
    assert call.spec.nr_args == 4


def test_what_is_read_before_a_call_is_followed_by_it() -> None:
    """The next call of the thread would have chdir's path, were chdir left out for its latency; a pread has none."""
    for name, left_out in (("chdir", 0), ("pread64", lib.LO2_CALL_DROPPABLE)):
        (call,) = plan_calls([entry(name), leave(name)], load_catalog(), frozenset({"chdir", "pread64"}))
        assert call.spec.flags & lib.LO2_CALL_DROPPABLE == left_out


def test_where_the_kernel_may_write() -> None:
    """Pointers that are not const, but for paths: what readlink fills, and no more."""
    types = {"path": "const char *", "buf": "char *", "bufsiz": "int"}
    fields = [FieldLayout(name, of, 16 + 8 * place, 8, signed=False) for place, (name, of) in enumerate(types.items())]
    enter = Event("syscalls:sys_enter_readlink", 7, "", EventFormat("syscalls:sys_enter_readlink", 7, tuple(fields)))
    (call,) = plan_calls([enter, leave("readlink")], load_catalog())
    assert call.spec.filled == 1 << 1
    fields[0] = FieldLayout("path", "char *", 16, 8, signed=False)  # like that of mount(2)
    enter = Event(enter.name, 7, "", EventFormat(enter.name, 7, tuple(fields)))
    (call,) = plan_calls([enter, leave("readlink")], load_catalog())
    assert call.spec.filled == 1 << 1


def test_counters_follow_the_calls() -> None:
    """Two for each call, in the order of events. Other events have none, and half a call keeps its place."""
    block = Event("block:block_rq_issue", 9, "", EventFormat("block:block_rq_issue", 9, ()))
    events = [leave("read", 11), block, entry("close", 13), entry("read", 12)]
    calls = plan_calls(events, load_catalog(), droppable={"close"})
    told = [(c.spec.enter_event, c.spec.exit_event, c.spec.enter_index, c.spec.exit_index) for c in calls]
    assert told == [(12, 11, 0, 1), (13, 0, 2, 3)]
    assert [(call.enter and call.enter.id, call.leave and call.leave.id) for call in calls] == [(12, 11), (13, None)]
    assert [bool(call.spec.flags & lib.LO2_CALL_DROPPABLE) for call in calls] == [False, True]


def test_opcodes_ask_for_files() -> None:
    """By their traits; CLOSE names the file that it closes. What has no entry asks for none."""
    opcodes = load_catalog().opcodes
    asks = dict(zip((opcode.name for opcode in opcodes), plan_opcodes(opcodes), strict=True))
    assert (asks["NOP"], asks["READ"], asks["OPENAT"]) == (0, lib.LO2_ASKS_FILE, lib.LO2_ASKS_PLACES)
    assert asks["SPLICE"] == asks["TEE"] == lib.LO2_ASKS_FILE | lib.LO2_ASKS_TWO_FILES
    assert asks["CLOSE"] == asks["ACCEPT"] == lib.LO2_ASKS_FILE | lib.LO2_ASKS_PLACES
    config = BpfConfig(recorder=1, asks=tuple(asks.values()))
    told = list(ffi.from_buffer("struct lo2_bpf_told *", tell(config, [], 4096)).config.asks)
    assert told == [*asks.values(), *[0] * (lib.LO2_MAX_OPCODES - len(asks))]


def told_compat(name: str, number: int) -> tuple[int, int, list[int]]:
    """The configuration of a 32 bit call: memory, words there, arguments."""
    compat = compat_calls(load_catalog().by_event[f"syscalls:sys_enter_{name}"], "x86_64")
    call = BpfCall(
        enter_event=700, exit_event=600, enter_index=0, exit_index=1, flags=0, nr_args=6, number=1, compat=compat
    )
    told = ffi.from_buffer("struct lo2_bpf_told *", tell(BpfConfig(recorder=1), [call], 4096))
    found = told.compat[number]
    assert found.call == 1
    return found.memory, found.nr_given, list(found.args)


HIGH = 1 << lib.LO2_COMPAT_HIGH_SHIFT


@pytest.mark.parametrize(
    ("name", "number", "args"),
    [
        ("read", 3, [1, 2, 3, 4, 5, 6]),
        ("pwrite64", 181, [1, 2, 3, 4 | 5 * HIGH, 0, 0]),
        ("lseek", 19, [1, 2 | lib.LO2_COMPAT_SIGNED, 3, 0, 0, 0]),
        ("lseek", 140, [1, 3 | 2 * HIGH, 5, 4 | lib.LO2_COMPAT_RESULT, 0, 0]),
        ("mmap", 192, [1, 2, 3, 4, 5, 6 | lib.LO2_COMPAT_PAGES]),
        ("preadv2", 378, [1, 2, 3, 4 | 5 * HIGH, 0, 6]),
        ("fcntl", 221, [1, 2 | lib.LO2_COMPAT_LOCK, 3, 0, 0, 0]),
    ],
)
def test_arguments_of_32_bit_programs(name: str, number: int, args: list[int]) -> None:
    """The source of each argument of the 64 bit call."""
    assert told_compat(name, number) == (0, 0, args)


def test_arguments_of_32_bit_programs_in_memory() -> None:
    """The second argument of a socketcall points to them, and the first of the old mmap."""
    assert told_compat("sendto", lib.LO2_SOCKETCALLS + 9) == (2, 4, [1, 2, 3, 4, 0, 0])
    assert told_compat("mmap", 90) == (1, 6, [1, 2, 3, 4, 5, 6])


def test_numbers_of_32_bit_programs_fit_what_the_programs_hold() -> None:
    """Numbers of socketcalls come after all others. On other machines, no numbers are known."""
    assert MAX_NUMBER == lib.LO2_SOCKETCALLS
    calls = load_catalog().calls
    assert all(call.compat for call in calls)
    socketcalls = [each.number for call in calls for each in call.compat if each.is_socketcall]
    assert lib.LO2_SOCKETCALLS + max(socketcalls) < lib.LO2_MAX_CALLS
    assert not any(compat_calls(call, "aarch64") for call in calls)


HEADERS = {"x86_64": "unistd_64.h", "i386": "unistd_32.h"}


@pytest.mark.parametrize("machine", HEADERS)
def test_numbers_are_the_headers(machine: str) -> None:
    """Calls that have the same name there have its number."""
    header = Path("/usr/include/x86_64-linux-gnu/asm", HEADERS[machine])
    if not header.exists():
        pytest.skip(f"no {header}")
    numbers = {name: int(number) for name, number in re.findall(r"__NR_(\w+) (\d+)", header.read_text())}
    named = [(call, call.abi_name if machine == "x86_64" else call.name) for call in load_catalog().calls]
    calls = [(call, numbers[name]) for call, name in named if name in numbers]
    assert len(calls) > len(named) / 2
    for call, number in calls:
        plain = {each.number for each in call.compat if not each.is_socketcall}
        assert number in (plain if machine == "i386" else {call.numbers[machine]})
