"""The trampolines of CPython: with them, Python functions have addresses (``-X perf``, Python 3.12 and later).

The interpreter copies a piece of its own code once for each Python function, and calls the evaluator of bytecode
through the copy. ``/tmp/perf-PID.map`` names the copies. The piece has no unwind tables and keeps no frame pointer. But
each copy is the same, so the interpreter's file tells how a copy's caller is found.

Source: the assembly of CPython's perf trampoline, of 3.12 and 3.13, and its documentation of perf support.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from lo2io.unwind.tables import RETURN_ADDRESS, STACK_POINTER, Rule, Rules

if TYPE_CHECKING:
    from lo2io.unwind.modules import Module

PREFIX: Final = "py::"
"""The start of each copy's name."""
SYMBOL: Final = b"_Py_trampoline_func_start"
_LANDING: Final = bytes.fromhex("f30f1efa")
"""``endbr64``: it stands in front where the interpreter is built for control-flow enforcement."""
_CALL: Final = bytes.fromhex("4883ec08 ffd1")
"""``sub $8, %rsp; call *%rcx``"""
_RETURN: Final = bytes.fromhex("4883c408 c3")
"""``add $8, %rsp; ret``"""
_RULES: Final = Rules(0, STACK_POINTER, 16, {RETURN_ADDRESS: Rule("OFFSET", -8)}, interrupted=False)
"""While the call goes on, 8 bytes and the return address lie between the stack pointer and the caller's frame."""


class Trampoline(NamedTuple):
    """The code that an interpreter copies."""

    back: int
    """Bytes from its start to where its call returns."""
    rules: Rules
    """How the caller is found there."""


def trampoline_of(module: Module) -> Trampoline | None:
    """The trampoline of an interpreter's file; None: it has none, or one of another form."""
    for begin in (_CALL, _LANDING + _CALL):
        code = begin + _RETURN
        if module.code_of(SYMBOL, len(code)) == code:
            return Trampoline(len(begin), _RULES)
    return None
