"""Texts that users or kernels write, damaged: each is read, or refused by an error of lo2io, never by a traceback.

``LO2IO_FUZZ=N`` tries N of each tracepoint file, and 30 times as many filters and format files (``make fuzz``).
LO2IO_FUZZ_FIRST makes other damage.
"""

from __future__ import annotations

import contextlib
import os
import random
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from lo2io.catalog.catalog import load_catalog
from lo2io.catalog.wait_reasons import load_reasons
from lo2io.errors import Lo2ioError
from lo2io.filter.parser import parse
from lo2io.kernel.tracefs import parse_format

if TYPE_CHECKING:
    from collections.abc import Callable

COUNT = int(os.environ.get("LO2IO_FUZZ", "10"))
FIRST = os.environ.get("LO2IO_FUZZ_FIRST", "1")
FORMATS = sorted((Path(__file__).parent.parent / "data/6.18/events").rglob("format"))
FILTERS = [
    "size >= 64KiB and path ~ '/etc/**' and operation == read, discard",
    "pid == 17 and comm ~ x* and operation != pread64 and kind == call",
]
TOML = Path(__file__).parent.parent.parent / "tracepoints"
PIECES = (
    "\0",
    "\ud800",
    "\u202e",
    "\n",
    "'",
    '"',
    "((((",
    "[[",
    "=",
    "-1",
    "9" * 30,
    "1e999",
    "nan",
    "{}",
    "#",
    "\x1b[2J",
)


def damaged(text: str, chance: random.Random) -> str:
    """The text with a few pieces put in, taken out, doubled or exchanged."""
    for _ in range(chance.randint(1, 4)):
        at, kind = chance.randrange(len(text) + 1), chance.randrange(4)
        if kind == 0:
            text = text[:at] + chance.choice(PIECES) + text[at:]
        elif kind == 1:
            text = text[:at] + text[at + chance.randint(1, 40) :]
        elif kind == 2:
            text = text[:at] + text[at : at + chance.randint(1, 200)] + text[at:]
        else:
            text = text[:at] + chance.choice(PIECES) + text[at + 1 :]
    return text


@pytest.mark.parametrize(
    ("texts", "read"),
    [(FILTERS, parse), ([path.read_text() for path in FORMATS], parse_format)],
    ids=["filters", "formats"],
)
def test_a_damaged_text(texts: list[str], read: Callable[[str], object]) -> None:
    """Filters of the command line, and the kernel's format files."""
    for text in texts:
        read(text)
    chance = random.Random(FIRST)  # noqa: S311
    for _ in range(30 * COUNT):
        with contextlib.suppress(Lo2ioError):
            read(damaged(chance.choice(texts), chance))


@pytest.mark.parametrize("file", sorted(path.name for path in TOML.glob("*.toml")))
def test_a_damaged_tracepoint_file(tmp_path: Path, file: str) -> None:
    """One file of the catalog is damaged, the others are whole."""
    shutil.copytree(TOML, tmp_path / "toml")
    chance, whole = random.Random(FIRST + file), (TOML / file).read_text()  # noqa: S311
    for _ in range(COUNT):
        text = damaged(whole, chance)
        (tmp_path / "toml" / file).write_bytes(text.encode(errors="surrogatepass"))
        for load in (load_catalog, load_reasons):
            with contextlib.suppress(Lo2ioError):
                load(tmp_path / "toml")
