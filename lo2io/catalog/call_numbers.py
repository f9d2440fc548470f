"""The numbers of system calls: those of 64 bit programs, and the calls of 32 bit programs that do the same.

The kernel never changes a released number, and no file of tracefs tells the numbers. So ``tracepoints/syscalls.toml``
has them, in the keys ``number`` and ``i386``: docs/reference/tracepoint-files.md explains both.

A 32 bit program enters the kernel through another table, with other numbers, and with arguments of 32 bits in other
registers. Offsets come in two halves. lo2io's programs in the kernel join the halves, so that a record looks like that
of a 64 bit call. The tracepoints of system calls leave these calls out (``kernel/trace/trace_syscalls.c``:
``trace_get_syscall_nr``).
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any

from lo2io.model import CompatArgument, CompatCall

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lo2io.catalog.entry import Table
    from lo2io.model import CallSpec

MACHINES = ("x86_64", "aarch64")
"""Machines for which calls can have numbers, by the name of ``uname -m``."""
MAX_NUMBER = 512
"""All numbers are below this. From here on, x86-64 has the numbers of x32, which lo2io does not record."""
MAX_ARGUMENTS = 6
NO_NUMBER = -1
_COMPAT_MACHINE = "x86_64"
_SOCKETCALL_MEMORY, _OLD_MEMORY = 2, 1
"""The argument that points to the others: for socketcall (net/socket.c), and for calls with a single argument."""
_SAME_PLACES = tuple(CompatArgument(place) for place in range(1, MAX_ARGUMENTS + 1))
_COMPAT_CALL = re.compile(r"(socketcall )?(\d{1,3}): (?:([1-6]) words in memory|([^:]+))")
_COMPAT_ARGUMENT = re.compile(r"none|(?:(signed|pages|lock|result) )?([1-6])(?:\+([1-6]))?")


def call_number(call: CallSpec, machine: str | None = None) -> int:
    """The number of a call; ``NO_NUMBER``: the machine does not have the call, or has it under another name.

    Args:
        call: The call.
        machine: The machine's name by ``uname -m``; by default this machine.
    """
    return call.numbers.get(os.uname().machine if machine is None else machine, NO_NUMBER)


def compat_calls(call: CallSpec, machine: str | None = None) -> tuple[CompatCall, ...]:
    """The calls of 32 bit programs that do the same as a call.

    Args:
        call: The call.
        machine: The machine's name by ``uname -m``; by default this machine. Only calls of x86-64 are known.
    """
    return call.compat if knows_compat(machine) else ()


def knows_compat(machine: str | None = None) -> bool:
    """True if the 32 bit calls of a machine are known."""
    return (os.uname().machine if machine is None else machine) == _COMPAT_MACHINE


def read_numbers(table: Table) -> Mapping[str, int]:
    """The key ``number`` of a ``[[call]]``: machine → number.

    Raises:
        CatalogError: The value is no table of numbers.
    """
    return table.numbers("number", MACHINES, MAX_NUMBER)


def read_compat(table: Table) -> tuple[CompatCall, ...]:
    """The key ``i386`` of a ``[[call]]``: one call of 32 bit programs, or a list of them.

    Raises:
        CatalogError: A value is neither a number nor a text of the documented form.
    """
    value = table.left.pop("i386", [])
    return tuple(_read_compat(table, each) for each in (value if isinstance(value, list) else [value]))


def _read_compat(table: Table, value: Any) -> CompatCall:
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < MAX_NUMBER:
        return CompatCall(value, _SAME_PLACES)
    match = _COMPAT_CALL.fullmatch(value) if isinstance(value, str) else None
    if match is None or int(match[2]) >= MAX_NUMBER:
        table.fail("i386", f"{value!r} is neither a number below {MAX_NUMBER} nor a text such as '180: 1, 2, 3, 4+5'")
    is_socketcall, number = match[1] is not None, int(match[2])
    if match[3] is not None:
        memory = _SOCKETCALL_MEMORY if is_socketcall else _OLD_MEMORY
        return CompatCall(number, _SAME_PLACES[: int(match[3])], is_socketcall, memory)
    if is_socketcall:
        table.fail("i386", f"{value!r}: the arguments of a socketcall are words in memory")
    return CompatCall(number, _read_arguments(table, match[4]))


def _read_arguments(table: Table, text: str) -> tuple[CompatArgument, ...]:
    words = text.split(", ")
    matches = [_COMPAT_ARGUMENT.fullmatch(word) for word in words]
    for word, match in zip(words, matches, strict=True):
        if match is None:
            table.fail("i386", f"{word!r} is no argument such as '1', '4+5', 'signed 2' or 'none'")
    if len(words) > MAX_ARGUMENTS:
        table.fail("i386", f"{text!r} has more than {MAX_ARGUMENTS} arguments")
    return tuple(CompatArgument(int(m[2] or 0), int(m[3] or 0), m[1] or "") for m in matches if m)
