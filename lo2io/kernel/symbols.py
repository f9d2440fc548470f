"""Names of the kernel's functions, by address: ``/proc/kallsyms``.

The kernel itself comes first in the file, in the order of addresses, then its modules (kernel/kallsyms.c). Without
CAP_SYSLOG all addresses are 0 (kernel.kptr_restrict): no function has a name then.
"""

from __future__ import annotations

import threading
from bisect import bisect_right
from pathlib import Path
from typing import TYPE_CHECKING, Final

from lo2io.frozen import dataclass

if TYPE_CHECKING:
    from collections.abc import Iterable

_DIGITS: Final = 16
_LONGEST: Final = 1 << 20
"""No function of the kernel is longer, in bytes."""


class Functions:
    """The functions of the running kernel.

    The kernel takes some 50 ms to write the file. So :meth:`read_ahead` reads the file when nobody waits. The kernel's
    own functions stay where they are until it ends, and those of a module until it is removed. A table that was read
    ahead serves as long as the same modules lie at the same places. What lies elsewhere, code that the kernel made
    itself for BPF, say, may change at any time: its names are those of the last moment.
    """

    def __init__(self, root: Path = Path("/")) -> None:
        self._root = root
        self._lock = threading.Lock()
        self._table: _Table | None = None

    def read_ahead(self) -> None:
        """Read all names, unless they were read. A caller of :meth:`name` meanwhile waits for them.

        Raises:
            OSError: A file cannot be read.
        """
        with self._lock:
            if self._table is None:
                self._table = _read_table(self._root)

    def name(self, addresses: Iterable[int]) -> dict[int, str]:
        """The function in which each return address lies now; an address without one is left out.

        Raises:
            OSError: A file cannot be read.
        """
        wanted = set(addresses)
        with self._lock:
            if self._table is not None and self._table.modules == _read_modules(self._root):
                names = self._table.names(wanted, lasting=True)
                if names.keys() == wanted:
                    return names
            self._table = _read_table(self._root)
            return self._table.names(wanted)


@dataclass(frozen=True, slots=True)
class _Table:
    """The lines of the file, and the modules that the kernel had before they were read."""

    kernel: list[bytes]
    others: list[bytes]
    """The lines of modules, and of code that the kernel made, in the order of addresses."""
    modules: frozenset[tuple[bytes, ...]]

    def names(self, addresses: Iterable[int], *, lasting: bool = False) -> dict[int, str]:
        """The names of addresses; ``lasting``: only of those in the kernel itself and in modules."""
        of_modules = {b"[" + module[0] + b"]" for module in self.modules}
        names = {}
        for address in addresses:
            line = _find(self.kernel, address) or _find(self.others, address)
            words = line.split()
            if words and not (lasting and words[3:] and words[3] not in of_modules):
                names[address] = words[2].decode(errors="replace")
        return names


def _read_table(root: Path) -> _Table:
    modules = _read_modules(root)
    lines = (root / "proc/kallsyms").read_bytes().splitlines()
    end = next((number for number, line in enumerate(reversed(lines)) if not line.endswith(b"]")), 0)
    return _Table(lines[: len(lines) - end], sorted(lines[len(lines) - end :]), modules)


def _read_modules(root: Path) -> frozenset[tuple[bytes, ...]]:
    """Name, size and address of each module: words 1, 2 and 6 of a line (kernel/module/procfs.c)."""
    try:
        content = (root / "proc/modules").read_bytes()
    except FileNotFoundError:  # a kernel without modules
        return frozenset()
    return frozenset((words[0], words[1], words[5]) for words in map(bytes.split, content.splitlines()))


def _find(lines: list[bytes], address: int) -> bytes:
    """The last line whose address is below a return address; empty: there is none. The lines are in order."""
    wanted = f"{address - 1:0{_DIGITS}x}".encode()
    place = bisect_right(lines, wanted, key=lambda line: line[:_DIGITS]) - 1
    if place < 0:
        return b""
    begin = int(lines[place][:_DIGITS], 16)
    return lines[place] if 0 < begin <= address <= begin + _LONGEST else b""
