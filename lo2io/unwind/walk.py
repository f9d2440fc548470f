"""From registers and a copy of the stack to the addresses of the functions that called one another.

Nothing is searched for or guessed: where neither tables nor frame pointers tell the next frame, the walk ends.
"""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from lo2io.unwind.tables import FRAME_POINTER, NR_REGISTERS, RETURN_ADDRESS, STACK_POINTER, Rule, Rules

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lo2io.unwind.spaces import CodeAt, Space

MAX_FRAMES: Final = 256
_WORD: Final = 8
_KEPT: Final = frozenset({3, 6, 12, 13, 14, 15})
"""rbx, rbp, r12 to r15: a function leaves them as they were. Source: x86-64 psABI, figure 3.4."""
_MASK: Final = (1 << 64) - 1


class End(IntEnum):
    """Why a stack has no further frames."""

    UNKNOWN = 0
    """Nothing tells the next one."""
    WHOLE = 1
    """The outermost function was reached."""
    CUT = 2
    """The next one lies beyond the copied part of the stack, or beyond the largest number of frames."""


class Way(IntEnum):
    """How a frame was found."""

    FRAME_POINTERS = 0
    UNWIND_TABLES = 1


class Copied(NamedTuple):
    """A thread's registers at a call, and its stack from the stack pointer on."""

    registers: Sequence[int | None]
    memory: bytes

    def word(self, address: int) -> int:
        """The word at an address.

        Raises:
            _EndedError: The copy does not have it.
        """
        begin = self.registers[STACK_POINTER]
        offset = address - (begin or 0)
        if begin is None or offset < 0:
            raise _EndedError(End.UNKNOWN)
        if offset + _WORD > len(self.memory):
            raise _EndedError(End.CUT)
        return int.from_bytes(self.memory[offset : offset + _WORD], "little")


class Step(NamedTuple):
    """A frame: an address of code, and how it was found."""

    address: int
    """Where the function goes on when what it called returns."""
    code: CodeAt
    way: Way


class RulesAt(Protocol):
    """Tells how a function's caller is found."""

    def __call__(self, code: CodeAt, address: int, called: CodeAt | None, /) -> Rules | None:
        """The rules at an address of a piece of code, which has called other code."""


class _EndedError(Exception):
    def __init__(self, end: End) -> None:
        super().__init__(end)
        self.end = end


class _Frame:
    """The registers of one frame; None: not known."""

    def __init__(self, registers: Sequence[int | None]) -> None:
        self.registers = list(registers)
        self.begin = 0
        """The stack pointer of the frame's caller at the call (CFA)."""

    def known(self, number: int) -> int:
        value = self.registers[number] if 0 <= number < NR_REGISTERS else None
        if value is None:
            raise _EndedError(End.UNKNOWN)
        return value


def walk(copied: Copied, space: Space, rules_at: RulesAt) -> tuple[list[Step], End]:
    """The frames, the innermost first, and why there are no more.

    Args:
        copied: Registers and stack.
        space: The code of the process.
        rules_at: Gives the rules for an address of a piece of code, and for the code that it had called (None: it
            is the innermost one); None: there are none.
    """
    frame, steps, way = _Frame(copied.registers), list[Step](), Way.UNWIND_TABLES
    interrupted = True  # at a call of the kernel, the address is that of the next instruction, as at a signal
    try:
        while len(steps) < MAX_FRAMES:
            address = frame.known(RETURN_ADDRESS)
            if not address:
                return steps, End.WHOLE
            at = address - (not interrupted)
            code = space.at(at)
            if code is None:
                return steps, End.UNKNOWN
            called = steps[-1].code if steps else None
            steps.append(Step(address, code, way))
            rules = rules_at(code, at, called)
            if rules is not None:
                way, interrupted = Way.UNWIND_TABLES, rules.interrupted
                frame = _by_tables(frame, rules, copied)
            elif code.is_made:
                way, interrupted = Way.FRAME_POINTERS, False
                frame = _by_frame_pointer(frame, copied)
            else:
                return steps, End.UNKNOWN
    except _EndedError as ended:
        return steps, ended.end
    return steps, End.CUT


def _by_frame_pointer(frame: _Frame, copied: Copied) -> _Frame:
    pointer = frame.known(FRAME_POINTER)
    if pointer < frame.known(STACK_POINTER):
        raise _EndedError(End.UNKNOWN)
    caller = _Frame([None] * NR_REGISTERS)
    caller.begin = pointer + 2 * _WORD
    caller.registers[FRAME_POINTER] = copied.word(pointer)
    caller.registers[RETURN_ADDRESS] = copied.word(pointer + _WORD)
    caller.registers[STACK_POINTER] = caller.begin
    return caller


def _by_tables(frame: _Frame, rules: Rules, copied: Copied) -> _Frame:
    if rules.base is None:
        begin = _evaluate(rules.offset, frame, copied, ())
    else:
        begin = frame.known(rules.base) + rules.offset & _MASK
    if begin <= frame.begin and not rules.interrupted:  # a stack grows downwards; a signal may have one of its own
        raise _EndedError(End.UNKNOWN)
    caller = _Frame([value if number in _KEPT else None for number, value in enumerate(frame.registers)])
    caller.begin = begin
    caller.registers[STACK_POINTER] = begin
    for number, rule in rules.registers.items():
        if number == RETURN_ADDRESS and rule.kind == "UNDEFINED":
            raise _EndedError(End.WHOLE)
        caller.registers[number] = _value(rule, number, begin, frame, copied)
    return caller


def _value(rule: Rule, number: int, begin: int, frame: _Frame, copied: Copied) -> int | None:
    """The caller's register by its rule. One that cannot be read is not known, but for the return address."""
    value: int | None = None
    try:
        match rule.kind:
            case "OFFSET":
                value = copied.word(begin + rule.value)
            case "VAL_OFFSET":
                value = begin + rule.value & _MASK
            case "SAME_VALUE":
                value = frame.registers[number]
            case "REGISTER":
                value = frame.known(rule.value)
            case "EXPRESSION":
                value = copied.word(_evaluate(bytes(rule.value), frame, copied, (begin,)))
            case "VAL_EXPRESSION":
                value = _evaluate(bytes(rule.value), frame, copied, (begin,))
    except _EndedError:
        if number == RETURN_ADDRESS:
            raise
    return value


def _evaluate(expression: bytes, frame: _Frame, copied: Copied, start: tuple[int, ...]) -> int:
    """The value of a DWARF expression, of the operations that compilers and C libraries use in unwind tables."""
    stack, at = list(start), 0
    while at < len(expression):
        operation, at = expression[at], at + 1
        if 0x30 <= operation <= 0x4F:  # noqa: PLR2004 - DW_OP_lit0 to lit31
            stack.append(operation - 0x30)
        elif 0x70 <= operation <= 0x8F:  # noqa: PLR2004 - DW_OP_breg0 to breg31
            offset, at = _signed(expression, at)
            stack.append(frame.known(operation - 0x70) + offset & _MASK)
        elif operation == 0x06:  # noqa: PLR2004 - DW_OP_deref
            stack.append(copied.word(_pop(stack)))
        elif operation in {0x08, 0x09}:  # DW_OP_const1u, const1s
            stack.append(int.from_bytes(expression[at : at + 1], "little", signed=operation == 0x09) & _MASK)  # noqa: PLR2004
            at += 1
        elif operation == 0x23:  # noqa: PLR2004 - DW_OP_plus_uconst
            offset, at = _unsigned(expression, at)
            stack.append(_pop(stack) + offset & _MASK)
        elif operation in _BINARY:
            right, left = _pop(stack), _pop(stack)
            stack.append(_BINARY[operation](left, right) & _MASK)
        else:
            raise _EndedError(End.UNKNOWN)
    return _pop(stack)


def _pop(stack: list[int]) -> int:
    if not stack:
        raise _EndedError(End.UNKNOWN)
    return stack.pop()


_BINARY: Final[dict[int, Callable[[int, int], int]]] = {
    0x1A: lambda left, right: left & right,
    0x1C: lambda left, right: left - right,
    0x22: lambda left, right: left + right,
    0x24: lambda left, right: left << min(right, 64),
    0x2A: lambda left, right: int(left >= right),
}
"""DW_OP_and, minus, plus, shl, ge. Comparisons are of numbers below 1 << 63 alone."""


def _unsigned(text: bytes, at: int) -> tuple[int, int]:
    """A ULEB128 number, and where it ends."""
    value = shift = 0
    while at < len(text) and shift < 64:  # noqa: PLR2004 - bits of a word
        byte, at = text[at], at + 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if not byte & 0x80:
            return value, at
    raise _EndedError(End.UNKNOWN)


def _signed(text: bytes, at: int) -> tuple[int, int]:
    """An SLEB128 number, and where it ends."""
    value, end = _unsigned(text, at)
    bits = 7 * (end - at)
    return value - (1 << bits) if value >> bits - 1 & 1 else value, end
