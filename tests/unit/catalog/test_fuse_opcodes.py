"""The opcodes of ``tracepoints/fuse.toml``."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from lo2io.catalog.fuse_opcodes import NR_OPCODES, load_opcodes
from lo2io.errors import CatalogError

if TYPE_CHECKING:
    from pathlib import Path

ENTRY = '[[opcode]]\nnumber = 15\nname = "READ"\nsummary = "reads"\n'


def test_names_by_number() -> None:
    """Of the kernel's header (include/uapi/linux/fuse.h); numbers without a name go by the number."""
    names = load_opcodes()
    assert len(names) == len(set(names)) == NR_OPCODES
    assert (names[1], names[15], names[20], names[46], names[52]) == ("LOOKUP", "READ", "FSYNC", "LSEEK", "STATX")
    assert (names[0], names[254], names[255]) == ("opcode 0", "opcode 254", "other")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (f"schema = 2\n{ENTRY}", "it is not made of schema = 1"),
        (f"schema = 1\n{ENTRY}{ENTRY}", "stands twice"),
        (f"schema = 1\n{ENTRY.replace('15', '255')}", "is no number from 0 to 254"),
        (f"schema = 1\n{ENTRY}more = 1\n", "more"),
        ("schema = ", "Invalid value"),
    ],
)
def test_what_no_file_may_hold(tmp_path: Path, text: str, told: str) -> None:
    """Another schema, numbers twice or out of range, unknown keys, and what is no TOML."""
    (tmp_path / "fuse.toml").write_text(text, encoding="utf-8")
    with pytest.raises(CatalogError, match=re.escape(told)):
        load_opcodes(tmp_path)
