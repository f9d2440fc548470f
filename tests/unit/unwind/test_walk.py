"""From a copy of the stack to the callers: by tables, by frame pointers, and where each ends."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import pytest
from build.copies import registers
from hypothesis import given
from hypothesis import strategies as st

from lo2io.unwind.spaces import CodeAt, Space
from lo2io.unwind.tables import Rule, Rules
from lo2io.unwind.walk import MAX_FRAMES, Copied, End, Way, walk

if TYPE_CHECKING:
    from collections.abc import Mapping

SP = 0x7000_0000
PROGRAM = CodeAt(0x1000, 0x2000, 0, "ab" * 20, "/program")
MADE = CodeAt(0x3000, 0x4000, 0, "", "//anon")
SPACE = Space([PROGRAM, MADE])
RETURN = Rule("OFFSET", -8)


def rules(
    base: int | None, offset: object, of: Mapping[int, Rule] | None = None, *, interrupted: bool = False
) -> Rules:
    """Rules of a function; the return address lies right below the frame's start."""
    return Rules(0, base, offset, {16: RETURN} if of is None else of, interrupted)


def found(known: Mapping[int, Rules], *words: int, ip: int = 0x1100, bp: int = 0) -> tuple[list[tuple[int, Way]], End]:
    """Addresses and ways of the frames. ``known``: address → rules there."""
    copied = Copied(registers(ip=ip, sp=SP, bp=bp), struct.pack(f"<{len(words)}Q", *words))
    steps, end = walk(copied, SPACE, lambda code, address, _: known.get(address) if code is PROGRAM else None)
    return [(step.address, step.way) for step in steps], end


def by_tables(*addresses: int) -> list[tuple[int, Way]]:
    """Frames that tables told."""
    return [(address, Way.UNWIND_TABLES) for address in addresses]


def test_tables_lead_to_the_outermost_function() -> None:
    """The first address is looked up as it is, a return address one byte before. There is no caller of the last one."""
    known = {0x1100: rules(7, 16), 0x11FF: rules(7, 8), 0x12FF: rules(7, 8, {16: Rule("UNDEFINED", None)})}
    assert found(known, 0, 0x1200, 0x1300) == (by_tables(0x1100, 0x1200, 0x1300), End.WHOLE)


def test_a_kept_register_is_that_of_the_function_before() -> None:
    """One function saves rbx, and the next one's frame is counted from it. Nobody keeps rax."""
    known = {0x1100: rules(7, 24, {16: RETURN, 3: Rule("OFFSET", -16)}), 0x11FF: rules(3, 8), 0x12FF: rules(0, 8)}
    words = (0, SP + 24, 0x1200, 0x1300)
    assert found(known, *words) == (by_tables(0x1100, 0x1200, 0x1300), End.UNKNOWN)


def test_a_frame_beyond_the_copy_is_cut() -> None:
    """The return address lies after the copied words."""
    assert found({0x1100: rules(7, 64)}, 0, 0) == (by_tables(0x1100), End.CUT)


def test_nothing_is_guessed() -> None:
    """No frame pointer is followed in a file. Code that nobody knows, and a stack that goes back, are the end."""
    assert found({}, 0, 0x1200, bp=SP) == (by_tables(0x1100), End.UNKNOWN)
    assert found({0x1100: rules(7, 8)}, 0x9999) == (by_tables(0x1100), End.UNKNOWN)
    assert found({0x1100: rules(7, 16), 0x11FF: rules(7, -8)}, 0x1300, 0x1200) == (
        by_tables(0x1100, 0x1200),
        End.UNKNOWN,
    )
    assert found({}, ip=0x9999) == ([], End.UNKNOWN)


def test_frame_pointers_lead_through_code_that_the_program_made() -> None:
    """From tables to code without, and back."""
    known = {0x1100: rules(7, 8), 0x12FF: rules(7, 8, {16: Rule("UNDEFINED", None)})}
    words = (0x3100, 0, 0, 0x1300)
    frames = [*by_tables(0x1100), *by_tables(0x3100), (0x1300, Way.FRAME_POINTERS)]
    assert found(known, *words, bp=SP + 16) == (frames, End.WHOLE)
    assert found(known, 0x3100, bp=SP - 8) == (by_tables(0x1100, 0x3100), End.UNKNOWN)
    assert found(known, 0x3100, bp=SP + 8) == (by_tables(0x1100, 0x3100), End.CUT)


def test_behind_a_signal_the_address_is_not_a_return_address() -> None:
    """The interrupted function is looked up as it is; all its registers lie where expressions say."""
    of = {7: Rule("EXPRESSION", b"\x77\x10"), 16: Rule("EXPRESSION", b"\x77\x18")}
    known = {0x1100: rules(7, 8), 0x11FF: rules(None, b"\x77\x10\x06", of, interrupted=True), 0x1300: rules(7, 8)}
    words = (0x1200, 0, 0, SP + 40, 0x1300, 0x1400)
    assert found(known, *words)[0] == by_tables(0x1100, 0x1200, 0x1300, 0x1400)


def test_the_expression_of_a_linkage_table() -> None:
    """A stub's frame is 8 or 16 bytes, by the place in the stub, as binutils writes it."""
    stub = bytes.fromhex("77 08 80 00 3f 1a 3b 2a 33 24 22".replace(" ", ""))
    for ip, words in ((0x110A, (0x1200,)), (0x110B, (0, 0x1200))):
        assert found({ip: rules(None, stub)}, *words, ip=ip)[0] == by_tables(ip, 0x1200)


@pytest.mark.parametrize("expression", [b"", b"\x06", b"\x22", b"\x77", b"\x77\xff", b"\x70\x00", b"\x96", b"\x08"])
def test_an_expression_that_cannot_be_evaluated_ends_the_walk(expression: bytes) -> None:
    """Empty, without operands, cut, about an unknown register or with an unknown operation."""
    known = {0x1100: rules(7, 8), 0x11FF: rules(None, expression)}
    assert found(known, 0x1200, 0x1300) == (by_tables(0x1100, 0x1200), End.UNKNOWN)


def test_the_number_of_frames_is_bounded() -> None:
    """A function that seems to call itself for ever is cut."""
    words = [0x1200] * (MAX_FRAMES + 9)
    frames, end = found({0x1100: rules(7, 8), 0x11FF: rules(7, 8)}, *words)
    assert (len(frames), end) == (MAX_FRAMES, End.CUT)


@given(st.binary(max_size=40), st.lists(st.integers(0, (1 << 64) - 1), min_size=17, max_size=17))
def test_any_expression_and_registers_end(expression: bytes, values: list[int]) -> None:
    """Whatever is in the registers and in the tables."""
    values[16] = 0x1100
    steps, _ = walk(Copied(values, bytes(64)), SPACE, lambda *_: rules(None, expression))
    assert len(steps) <= MAX_FRAMES
