"""Names of the kernel's functions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lo2io.kernel.symbols import Functions

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
    found = Functions(tmp_path).name(addresses)
    return [found.get(address) for address in addresses]


def test_the_function_around_a_return_address(tmp_path: Path) -> None:
    """A call at a function's very end returns behind it, and modules are in no order."""
    addresses = 0xFFFFFFFF81000110, 0xFFFFFFFF81000200, 0xFFFFFFFFC0200010, 0xFFFFFFFFC0200041, 0xFFFFFFFFC0300001
    assert names(tmp_path, TABLE, *addresses) == ["first", "first", "of_module", "of_module_too", "of_late"]


def test_addresses_without_a_function(tmp_path: Path) -> None:
    """Before the first one, far behind the last one, and between kernel and modules."""
    addresses = 0xFFFFFFFF80000000, 0xFFFFFFFFD0000000, 0xFFFFFFFF91000000
    assert names(tmp_path, TABLE, *addresses) == [None, None, None]


def test_hidden_addresses(tmp_path: Path) -> None:
    """Without the right to see them, all are 0: nothing is named."""
    assert names(tmp_path, "0000000000000000 T _stext\n0000000000000000 t first\n", 0xFFFFFFFF81000110) == [None]


MODULES = "module 4096 0 - Live 0xffffffffc0200000\nlate 4096 1 module, Live 0xffffffffc0300000\n"


def ahead(tmp_path: Path, table: str = TABLE) -> Functions:
    """Functions whose names have been read ahead."""
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/kallsyms").write_text(table, encoding="ascii")
    (tmp_path / "proc/modules").write_text(MODULES, encoding="ascii")
    functions = Functions(tmp_path)
    functions.read_ahead()
    return functions


def test_names_that_were_read_ahead_serve_while_modules_stay(tmp_path: Path) -> None:
    """The file is not read again, by another look ahead either. How often a module is used does not matter."""
    functions = ahead(tmp_path)
    (tmp_path / "proc/kallsyms").unlink()
    (tmp_path / "proc/modules").write_text(MODULES.replace(" 0 - ", " 7 - "), encoding="ascii")
    functions.read_ahead()
    addresses = 0xFFFFFFFF81000110, 0xFFFFFFFFC0300001
    assert functions.name(addresses) == dict(zip(addresses, ("first", "of_late"), strict=True))


def test_names_are_read_again_when_a_module_was_exchanged(tmp_path: Path) -> None:
    """Another module lies at the place of one that was removed."""
    functions = ahead(tmp_path)
    for name in ("kallsyms", "modules"):
        file = tmp_path / "proc" / name
        file.write_text(file.read_text(encoding="ascii").replace("late", "other"), encoding="ascii")
    assert functions.name([0xFFFFFFFFC0300001]) == {0xFFFFFFFFC0300001: "of_other"}


def test_a_name_that_was_not_there_is_read_again(tmp_path: Path) -> None:
    """The kernel has made code since, which lies behind the last module."""
    functions = ahead(tmp_path)
    with (tmp_path / "proc/kallsyms").open("a", encoding="ascii") as file:
        file.write("ffffffffc1000000 t bpf_prog_1\t[bpf]\n")
    assert functions.name([0xFFFFFFFFC1000001]) == {0xFFFFFFFFC1000001: "bpf_prog_1"}


def test_names_of_code_that_the_kernel_made_are_those_of_the_end(tmp_path: Path) -> None:
    """BPF's programs come and go without a change of modules."""
    functions = ahead(tmp_path, TABLE + "ffffffffc1000000 t bpf_prog_1\t[bpf]\n")
    (tmp_path / "proc/kallsyms").write_text(TABLE + "ffffffffc1000000 t bpf_prog_2\t[bpf]\n", encoding="ascii")
    assert functions.name([0xFFFFFFFFC1000001]) == {0xFFFFFFFFC1000001: "bpf_prog_2"}
