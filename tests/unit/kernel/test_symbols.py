"""Names of the kernel's functions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lo2io.kernel.symbols import name_functions

if TYPE_CHECKING:
    from pathlib import Path

TABLE = """\
ffffffff81000000 T _stext
ffffffff81000100 t first
ffffffff81000200 T second
ffffffffc0300000 t of_late\t[late]
ffffffffc0200000 t of_module\t[module]
ffffffffc0200040 t of_module_too\t[module]
"""


def names(tmp_path: Path, table: str, *addresses: int) -> list[str | None]:
    """The function of each return address."""
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/kallsyms").write_text(table, encoding="ascii")
    found = name_functions(addresses, tmp_path)
    for address, function in found.items():
        assert function.is_lasting == (address < 0xFFFFFFFFC0000000)  # the kernel's own, in this table
    return [found[address].name if address in found else None for address in addresses]


def test_the_function_around_a_return_address(tmp_path: Path) -> None:
    """A call at a function's very end returns after it, and modules are in no order."""
    addresses = 0xFFFFFFFF81000110, 0xFFFFFFFF81000200, 0xFFFFFFFFC0200010, 0xFFFFFFFFC0200041, 0xFFFFFFFFC0300001
    assert names(tmp_path, TABLE, *addresses) == ["first", "first", "of_module", "of_module_too", "of_late"]


def test_addresses_without_a_function(tmp_path: Path) -> None:
    """Before the first one, far after the last one, and between kernel and modules."""
    addresses = 0xFFFFFFFF80000000, 0xFFFFFFFFD0000000, 0xFFFFFFFF91000000
    assert names(tmp_path, TABLE, *addresses) == [None, None, None]


def test_hidden_addresses(tmp_path: Path) -> None:
    """Without the right to see them, all are 0: nothing is named."""
    assert names(tmp_path, "0000000000000000 T _stext\n0000000000000000 t first\n", 0xFFFFFFFF81000110) == [None]
