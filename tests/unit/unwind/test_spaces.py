"""The code of processes, as records tell it."""

from __future__ import annotations

import struct

from build.copies import mmap2, task
from hypothesis import given
from hypothesis import strategies as st

from lo2io.spool.facts import MappingFact, pack_mapping
from lo2io.unwind.spaces import CodeAt, Space, Spaces

FORK, EXIT, EXEC, LOST = 7, 4, 3, 2
ID = "ab" * 20


def at(spaces: Spaces, pid: int, address: int) -> CodeAt | None:
    """The code at an address of a process."""
    space = spaces.of(pid)
    return space.at(address) if space else None


def test_a_mapping_holds_until_another_one_replaces_it() -> None:
    """A later file at some of the addresses splits the earlier one, whose rest keeps its offsets."""
    spaces = Spaces()
    spaces.take(mmap2(1, 0x1000, 0x5000, offset=0x100, build_id=ID, path="/a"))
    spaces.take(mmap2(1, 0x2000, 0x3000, build_id="cd" * 20, path="/b"))
    assert at(spaces, 1, 0xFFF) is None
    assert at(spaces, 1, 0x1FFF) == CodeAt(0x1000, 0x2000, 0x100, ID, "/a")
    assert at(spaces, 1, 0x2000) == CodeAt(0x2000, 0x3000, 0, "cd" * 20, "/b")
    assert at(spaces, 1, 0x4FFF) == CodeAt(0x3000, 0x5000, 0x2100, ID, "/a")
    assert at(spaces, 1, 0x5000) is None


def test_data_is_no_code() -> None:
    """A mapping that cannot be run leads to no function."""
    spaces = Spaces()
    spaces.take(mmap2(1, 0x1000, 0x2000, code=False))
    assert at(spaces, 1, 0x1000) is None


def test_processes_come_and_go() -> None:
    """A child begins with its parent's code; an exec and an end leave none; after a loss nothing is known."""
    spaces = Spaces()
    spaces.take(mmap2(1, 0x1000, 0x2000, path="/a"))
    spaces.take(task(FORK, 2, 1, time_ns=77))
    spaces.take(mmap2(2, 0x3000, 0x4000, path="/b"))
    assert at(spaces, 2, 0x1000) is not None
    assert at(spaces, 1, 0x3000) is None
    child = spaces.of(2)
    assert child is not None
    assert child.born_ns == 77
    spaces.take(task(EXEC, 2))
    assert at(spaces, 2, 0x1000) is None
    spaces.take(task(EXIT, 1))
    assert spaces.of(1) is None
    spaces.take(mmap2(1, 0x1000, 0x2000))
    spaces.take(struct.pack("<IHHQQQ", LOST, 0, 32, 0, 1, 0))
    assert spaces.of(1) is None


def test_facts_of_proc_tell_what_was_mapped_before() -> None:
    """A MAPPING fact comes back as it was packed, but no path goes beyond a zero byte; a cut one is nothing."""
    fact = MappingFact(5, 0x1000, 0x2000, 0x30, ID, "/a\udcff")
    record = pack_mapping(begin_ns=1, end_ns=2, mapping=fact._replace(path="/a\udcff\0b"))
    spaces = Spaces()
    spaces.take(record[:40])
    assert spaces.of(5) is None
    spaces.take(record)
    assert at(spaces, 5, 0x1800) == CodeAt(0x1000, 0x2000, 0x30, ID, "/a\udcff")


def test_code_without_a_file_is_made_by_the_program() -> None:
    """But not the kernel's own, and none of a file without a build id."""
    made = {path: CodeAt(0, 1, 0, "", path).is_made for path in ("", "//anon", "[heap]", "/memfd:jit", "/a", "[vdso]")}
    assert made == {"": True, "//anon": True, "[heap]": True, "/memfd:jit": True, "/a": False, "[vdso]": False}


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(1, 9)), max_size=30))
def test_each_address_has_the_newest_mapping(mappings: list[tuple[int, int]]) -> None:
    """Whatever overlaps: as a table with a place for each address says."""
    space, table = Space([]), dict[int, tuple[int, int]]()
    for number, (begin, size) in enumerate(mappings):
        space.add(CodeAt(begin, begin + size, 0, str(number), ""))
        table |= {address: (number, address - begin) for address in range(begin, begin + size)}
    for address in range(45):
        found = space.at(address)
        told = (int(found.build_id), found.offset + address - found.begin) if found else None
        assert told == table.get(address)


@given(st.binary(max_size=120))
def test_damage_is_passed_over(record: bytes) -> None:
    """Any bytes: no error, and at most one process is known."""
    spaces = Spaces()
    spaces.take(record)
    spaces.take(struct.pack("<IHH", 10, 1 << 14, 80) + record)
