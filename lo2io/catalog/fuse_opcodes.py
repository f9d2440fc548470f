"""``tracepoints/fuse.toml``: what the kernel asks the server of a FUSE file system."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Final

from lo2io.catalog import compiled
from lo2io.catalog.entry import Table
from lo2io.errors import CatalogError

if TYPE_CHECKING:
    from pathlib import Path

FILE: Final = "fuse.toml"
SCHEMA: Final = 1
NR_OPCODES: Final = 256
"""Numbers that the tables know. The last one stands for all higher numbers of the kernel."""


@cache
def load_opcodes(directory: Path | None = None) -> tuple[str, ...]:
    """The name of each number below ``NR_OPCODES``; ``opcode 70`` if the file has none.

    Args:
        directory: The folder that has the file. None: lo2io's own.

    Raises:
        CatalogError: The file is no TOML, or breaks a rule.
    """
    return compiled.load("opcodes", _load) if directory is None else _load(directory)


def _load(directory: Path) -> tuple[str, ...]:
    import tomllib  # noqa: PLC0415 - what was kept is read without it

    file = directory / FILE
    try:
        document = tomllib.loads(file.read_text("utf-8"))
    except (ValueError, OSError) as error:
        raise CatalogError(f"read {FILE}", str(error)) from error
    entries = document.get("opcode", [])
    if document.get("schema") != SCHEMA or not isinstance(entries, list) or {*document} != {"schema", "opcode"}:
        raise CatalogError(f"read {FILE}", f"it is not made of schema = {SCHEMA} and [[opcode]]")
    names = [*(f"opcode {number}" for number in range(NR_OPCODES - 1)), "other"]
    known: set[int] = set()
    for place, entry in enumerate(entries, 1):
        number, name = _read(Table(FILE, f"opcode {place}", entry))
        if number in known or name in names:
            raise CatalogError(f"read {FILE}", f"opcode {number}, {name}, stands twice", "keep one entry")
        known.add(number)
        names[number] = name
    return tuple(names)


def _read(table: Table) -> tuple[int, str]:
    number = table.left.pop("number", None)
    if not isinstance(number, int) or not 0 <= number < NR_OPCODES - 1:
        table.fail("number", f"is no number from 0 to {NR_OPCODES - 2}")
    name = table.text("name")
    table.text("summary")
    table.done()
    return number, name
