"""Names of the kernel's functions, by address: ``/proc/kallsyms``.

The kernel itself comes first in the file, in the order of addresses, then its modules (kernel/kallsyms.c). Without
CAP_SYSLOG all addresses are 0 (kernel.kptr_restrict): no function has a name then.
"""

from __future__ import annotations

from bisect import bisect_right
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

_DIGITS: Final = 16
_LONGEST: Final = 1 << 20
"""No function of the kernel is longer, in bytes."""


class Function(NamedTuple):
    """A function of the kernel."""

    name: str
    is_lasting: bool
    """True if it is the kernel's own. One of a module, or made at run time, may give way to another."""


def name_functions(addresses: Iterable[int], root: Path = Path("/")) -> dict[int, Function]:
    """The function in which each return address lies; an address without one is left out.

    Raises:
        OSError: The file cannot be read.
    """
    content = (root / "proc/kallsyms").read_bytes()
    lines = content.splitlines()
    end = next((number for number, line in enumerate(reversed(lines)) if not line.endswith(b"]")), 0)
    kernel, modules = lines[: len(lines) - end], sorted(lines[len(lines) - end :])
    found = {}
    for address in addresses:
        own = _find(kernel, address)
        if name := own or _find(modules, address):
            found[address] = Function(name, bool(own))
    return found


def _find(lines: list[bytes], address: int) -> str:
    """The symbol of the last line whose address is below a return address. The lines are in the order of addresses."""
    wanted = f"{address - 1:0{_DIGITS}x}".encode()
    place = bisect_right(lines, wanted, key=lambda line: line[:_DIGITS]) - 1
    if place < 0:
        return ""
    begin = lines[place][:_DIGITS]
    if not 0 < int(begin, 16) <= address <= int(begin, 16) + _LONGEST:
        return ""
    return lines[place].split()[2].decode(errors="replace")
