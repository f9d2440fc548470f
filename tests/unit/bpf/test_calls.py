"""What the programs in the kernel are told of each call."""

from __future__ import annotations

import re
from dataclasses import asdict
from pathlib import Path

import pytest
from lo2io.native._lib import lib

from lo2io.bpf.calls import KernelCall, plan_calls
from lo2io.catalog.catalog import load_catalog
from lo2io.catalog.compat_calls import HIGH_SHIFT, LOCK, PAGES, RESULT, SIGNED, CompatCall, compat_calls
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
    """What is told of one call, both of whose events are recorded."""
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
    """Linux 6.19 adds the path itself behind the arguments."""
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
    fields[0] = FieldLayout("path", "char *", 16, 8, signed=False)  # as mount(2) has it
    enter = Event(enter.name, 7, "", EventFormat(enter.name, 7, tuple(fields)))
    (call,) = plan_calls([enter, leave("readlink")], load_catalog())
    assert call.spec.filled == 1 << 1


def test_counters_follow_the_calls() -> None:
    """Two for each call, in the order of events; what is no call has none, half a call keeps its place."""
    block = Event("block:block_rq_issue", 9, "", EventFormat("block:block_rq_issue", 9, ()))
    events = [leave("read", 11), block, entry("close", 13), entry("read", 12)]
    calls = plan_calls(events, load_catalog(), droppable={"close"})
    told = [(c.spec.enter_event, c.spec.exit_event, c.spec.enter_index, c.spec.exit_index) for c in calls]
    assert told == [(12, 11, 0, 1), (13, 0, 2, 3)]
    assert [(call.enter and call.enter.id, call.leave and call.leave.id) for call in calls] == [(12, 11), (13, None)]
    assert [bool(call.spec.flags & lib.LO2_CALL_DROPPABLE) for call in calls] == [False, True]


@pytest.mark.parametrize(
    ("name", "number", "args"),
    [
        ("read", 3, (1, 2, 3, 4, 5, 6)),
        ("pwrite64", 181, (1, 2, 3, 4 | 5 << HIGH_SHIFT, 0, 0)),
        ("lseek", 19, (1, 2 | SIGNED, 3, 0, 0, 0)),
        ("lseek", 140, (1, 3 | 2 << HIGH_SHIFT, 5, 4 | RESULT, 0, 0)),
        ("mmap", 192, (1, 2, 3, 4, 5, 6 | PAGES)),
        ("preadv2", 378, (1, 2, 3, 4 | 5 << HIGH_SHIFT, 0, 6)),
        ("fcntl", 221, (1, 2 | LOCK, 3, 0, 0, 0)),
    ],
)
def test_arguments_of_32_bit_programs(name: str, number: int, args: tuple[int, ...]) -> None:
    """Where each argument of the 64 bit call comes from."""
    (call,) = [each for each in compat_calls(name, "x86_64") if each.number == number]
    assert (call.memory, call.nr_given, call.args) == (0, 0, args)


def test_arguments_of_32_bit_programs_in_memory() -> None:
    """Of a socketcall behind its second argument, of the old mmap behind its first."""
    assert CompatCall(512 + 9, 2, 4, (1, 2, 3, 4, 0, 0)) in compat_calls("sendto", "x86_64")
    assert CompatCall(90, 1, 6, (1, 2, 3, 4, 5, 6)) in compat_calls("mmap", "x86_64")


def test_no_number_of_32_bit_programs_means_two_calls() -> None:
    """Nor does a machine have numbers that are not known."""
    names = [call.name for call in load_catalog().calls]
    numbers = [each.number for name in names for each in compat_calls(name, "x86_64")]
    assert len(numbers) == len(set(numbers)) > 200
    assert max(numbers) < lib.LO2_MAX_CALLS
    assert not any(compat_calls(name, "aarch64") for name in names)


@pytest.mark.parametrize("header", [Path("/usr/include/x86_64-linux-gnu/asm/unistd_32.h")])
def test_numbers_of_32_bit_programs_are_the_headers(header: Path) -> None:
    """Calls that have the same name there have its number."""
    if not header.exists():
        pytest.skip(f"no {header}")
    numbers = {name: int(number) for name, number in re.findall(r"__NR_(\w+) (\d+)", header.read_text())}
    names = [call.name for call in load_catalog().calls if call.name in numbers]
    assert len(names) > 150
    assert [name for name in names if numbers[name] not in {each.number for each in compat_calls(name, "x86_64")}] == []
