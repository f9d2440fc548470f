"""Numbers of stacks: equal ones have one number, and each call has the stack that tells most."""

from __future__ import annotations

import shutil
import struct
import subprocess
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pytest
from build.copies import copied, mmap2, record, registers

from lo2io.model import UNKNOWN_U32
from lo2io.model.recording import UserStack
from lo2io.unwind.modules import Module
from lo2io.unwind.stacks import Stacks
from lo2io.unwind.walk import End, Way

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

CODE = """
long inner(long x);
long __attribute__((noinline)) outer(long x) { return inner(x + 1) * 3; }
long __attribute__((noinline)) inner(long x) { __asm__ volatile("nop" ::: "memory"); return x; }
"""
BASE, SP = 0x5000_0000, 0x7000_0000


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A library of two functions without frame pointers."""
    folder = tmp_path_factory.mktemp("unwound")
    (folder / "code.c").write_text(CODE, encoding="ascii")
    command = [
        "cc",
        "-shared",
        "-fPIC",
        "-O2",
        "-fomit-frame-pointer",
        "-Wl,--build-id=sha1",
        "-o",
        "code.so",
        "code.c",
    ]
    subprocess.run(command, cwd=folder, check=True)
    return folder / "code.so"


class Made:
    """What the records say of one process with the library, and of its stack: inner, called by outer."""

    def __init__(self, library: Path) -> None:
        lines = subprocess.run(["nm", "-S", library], check=True, capture_output=True, text=True).stdout.splitlines()
        sizes = {
            line.split()[-1]: [int(part, 16) for part in line.split()[:2]] for line in lines if len(line.split()) == 4
        }
        self.inner, (outer, size) = sizes["inner"][0], sizes["outer"]
        disassembled = subprocess.run(["objdump", "-d", library], check=True, capture_output=True, text=True).stdout
        calls = [line for line in disassembled.splitlines() if "call" in line and "inner" in line]
        begin = int(calls[0].split(":")[0], 16)
        assert outer < begin < outer + size
        self.back = begin + 5  # a call has five bytes
        module = Module(library)
        self.build_id = module.build_id
        module.close()
        self.mapped = record(mmap2(1, BASE, BASE + (1 << 20), build_id=self.build_id, path=str(library)))

    def copy(self, *beyond: int, row: int = 0) -> bytes:
        """A copy of the stack, and further words of it."""
        memory = struct.pack(f"<{1 + len(beyond)}Q", BASE + self.back, *beyond)
        return copied(1, registers(ip=BASE + self.inner, sp=SP), memory, row=row)


class Names:
    """In place of a ``PerfMap``: a function's name tells process and address."""

    asked: ClassVar[list[tuple[Any, ...]]] = []

    def __init__(self, *who: Any) -> None:
        self.asked.append(who)
        self.pid = who[0]

    def at(self, address: int) -> tuple[int, str]:
        """Begin and name."""
        return address, f"{self.pid}:{address:#x}"


def taken(made: Sequence[bytes], stacks: Stacks, *numbers: int) -> list[int]:
    """The numbers that the calls of one batch get."""
    rows = {"stack": np.array(numbers, np.uint32)}
    stacks.take(b"".join(made), rows)
    return [int(number) for number in rows["stack"]]


def unwound(stacks: Stacks) -> dict[int, tuple[list[tuple[str, int, Way]], End]]:
    """Number → frames and end."""
    return {each.stack: ([frame[:3] for frame in each.frames], each.end) for each in stacks.unwound()}


def test_equal_stacks_have_one_number(library: Path) -> None:
    """The third frame lies after the copied word, and is cut off. Another stack has another number."""
    made, stacks = Made(library), Stacks(())
    other = copied(1, registers(ip=BASE + made.inner, sp=SP), b"", row=2)
    assert taken([made.mapped, made.copy(row=0), made.copy(row=1), other], stacks, *[UNKNOWN_U32] * 3) == [0, 0, 1]
    tables = Way.UNWIND_TABLES
    assert unwound(stacks) == {
        0: ([(made.build_id, made.inner, tables), (made.build_id, made.back, tables)], End.CUT),
        1: ([(made.build_id, made.inner, tables)], End.CUT),
    }
    assert list(stacks.paths) == [str(library)]
    stacks.close()


def test_frame_pointers_tell_what_the_copy_lacks(library: Path) -> None:
    """If both stacks are the same as far as the copy reaches."""
    made = Made(library)
    ids = (made.build_id,) * 4
    same = UserStack(4, ids, (made.inner, made.back, 0x111, 0x222))
    other = UserStack(5, ids, (made.inner, 0x333, 0x444, 0x555))
    stacks = Stacks((same, other))
    assert taken([made.mapped, made.copy(row=0), made.copy(row=1)], stacks, 4, 5) == [6, 7]
    found = unwound(stacks)
    ways = [way for *_, way in found[6][0]]
    assert [offset for _, offset, _ in found[6][0]] == [made.inner, made.back, 0x111, 0x222]
    assert (ways, found[6][1]) == ([Way.UNWIND_TABLES] * 2 + [Way.FRAME_POINTERS] * 2, End.UNKNOWN)
    assert ([offset for _, offset, _ in found[7][0]], found[7][1]) == ([made.inner, made.back], End.CUT)
    assert stacks.by_frame_pointers() == []
    stacks.close()


def test_made_code_beyond_the_copy_belongs_to_its_process(library: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel names a frame without a file by its address: the process' own map has its function."""
    monkeypatch.setattr("lo2io.unwind.stacks.PerfMap", Names)
    made = Made(library)
    pointed = UserStack(4, (made.build_id, made.build_id, "", ""), (made.inner, made.back, 0x3100, 0x9999))
    stacks = Stacks((pointed,))
    assert taken([made.mapped, record(mmap2(1, 0x3000, 0x4000)), made.copy()], stacks, 4) == [5]
    (found,) = stacks.unwound()
    assert [frame.function for frame in found.frames] == ["", "", "1:0x30ff", ""]
    stacks.close()


def test_without_tables_a_call_keeps_the_stack_by_frame_pointers(library: Path, tmp_path: Path) -> None:
    """A process of which nothing is known, a file that is gone, and one whose tables are damaged."""
    made = Made(library)
    pointed = UserStack(3, (made.build_id, ""), (made.inner, 5))
    stacks = Stacks((pointed,))
    assert taken([made.copy()], stacks, 3) == [3]
    assert taken([record(mmap2(1, BASE, BASE + 4096, build_id="00" * 20, path="/gone")), made.copy()], stacks, 3) == [3]
    damaged = tmp_path / "damaged.so"
    shutil.copy(library, damaged)
    content = bytearray(damaged.read_bytes())
    place = subprocess.run(["readelf", "-SW", library], check=True, capture_output=True, text=True).stdout
    (line,) = [line for line in place.splitlines() if " .eh_frame " in line]
    begin, size = (int(part, 16) for part in line.split("]")[1].split()[3:5])
    content[begin : begin + size] = b"\xff" * size
    damaged.write_bytes(content)
    mapped = record(mmap2(1, BASE, BASE + (1 << 20), build_id=made.build_id, path=str(damaged)))
    assert taken([mapped, made.copy()], stacks, 3) == [3]
    assert taken([made.copy()], Stacks(()), UNKNOWN_U32) == [UNKNOWN_U32]
    assert stacks.by_frame_pointers() == [pointed]
    stacks.close()


def test_code_that_a_program_made_has_the_names_that_it_wrote(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """By the process in which it lies: two processes' code at one address are two stacks."""
    Names.asked.clear()
    monkeypatch.setattr("lo2io.unwind.stacks.PerfMap", Names)
    told = [record(mmap2(pid, 0x3000, 0x4000)) for pid in (1, 2)]
    told += [
        copied(pid, registers(ip=0x3100, sp=SP, bp=SP), struct.pack("<2Q", 0, 0), row=pid - 1, uid=9) for pid in (1, 2)
    ]
    stacks = Stacks(())
    assert taken(told, stacks, UNKNOWN_U32, UNKNOWN_U32) == [0, 1]
    assert [each.frames[0].function for each in stacks.unwound()] == ["1:0x30ff", "2:0x30ff"]
    assert Names.asked == [(1, 9, 0), (2, 9, 0)]
