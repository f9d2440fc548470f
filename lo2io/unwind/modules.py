"""Files of programs and libraries, found again by their build ids, and their functions.

Symbols come from the files' own ``.symtab`` and ``.dynsym``; packages with debugging information are not needed. A file
that was replaced since the recording has another build id: it names nothing.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
import stat
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final, NamedTuple

import numpy as np

from lo2io.kernel.elf import read_build_id
from lo2io.unwind.tables import STACK_POINTER, UnwindTables

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from lo2io.unwind.tables import Rules

_MAX_CANDIDATES: Final = 1 << 16
_MAX_BYTES: Final = 1 << 30
"""Of a file: its symbols are read into memory."""
_FUNCTIONS: Final = (2, 10)
"""STT_FUNC and STT_GNU_IFUNC, elf(5)."""
_SYMBOL: Final = {
    32: np.dtype([("name", "<u4"), ("value", "<u4"), ("size", "<u4"), ("info", "u1"), ("other", "u1"), ("at", "<u2")]),
    64: np.dtype([("name", "<u4"), ("info", "u1"), ("other", "u1"), ("at", "<u2"), ("value", "<u8"), ("size", "<u8")]),
}
"""``Elf32_Sym`` and ``Elf64_Sym``, elf(5)."""
_FUNCTION: Final = np.dtype([("value", "<u8"), ("size", "<u8"), ("name", "<u4"), ("table", "<u4")])
_MAX_SECTION_BYTES: Final = 256 << 20
_MAX_NAMES, _MAX_NAME = 64, 1024
"""Names at one address that are looked at, and bytes of a name."""
_X86_64, _WORD = "EM_X86_64", 8
_SEARCH_TABLE = "PT_GNU_EH_FRAME"


def damage() -> tuple[type[Exception], ...]:
    """What reading a damaged file raises: pyelftools', zlib's, and those of numbers that fit nothing."""
    from elftools.common.exceptions import DWARFError, ELFError  # noqa: PLC0415

    return (
        ELFError,
        DWARFError,
        ValueError,
        KeyError,
        TypeError,
        AttributeError,
        IndexError,
        AssertionError,
        OverflowError,
        MemoryError,
        zlib.error,
        OSError,
    )


def _open_regular(path: Path) -> BinaryIO:
    """Open a file that somebody else may exchange at any time.

    A FIFO must not stop lo2io, and opening a device may start something. So the file is opened only when it is known to
    be regular.
    """
    place = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        found = os.fstat(place)
        if not stat.S_ISREG(found.st_mode) or found.st_size > _MAX_BYTES:
            raise ValueError(f"{path} is no regular file, or too large")
        return os.fdopen(os.open(f"/proc/self/fd/{place}", os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK), "rb")
    finally:
        os.close(place)


def _text_at(texts: bytes, start: int) -> str:
    return texts[start : start + _MAX_NAME].partition(b"\0")[0].decode(errors="replace")


class Segment(NamedTuple):
    """A part of a file that is mapped as code. All numbers are in bytes."""

    offset: int
    size: int
    address: int


class Module:
    """The code of one file.

    Attributes:
        path: Where the file lies.
        build_id: 40 hexadecimal digits; a shorter id is filled with zeroes, as the kernel fills it.

    Raises:
        OSError: The file cannot be read.
        ValueError: It is no ELF file, or a damaged one.
    """

    def __init__(self, path: Path) -> None:
        from elftools.elf.elffile import ELFFile  # noqa: PLC0415 -- recordings without stacks do not need it

        self.path = path
        self._stream = _open_regular(path)
        self._functions: tuple[Any, list[bytes]] | None = None
        """Rows of functions in the order of their addresses, and the texts with their names."""
        self._tables: UnwindTables | None = None
        self._has_tables = True
        try:
            self._elf = ELFFile(self._stream)
            self.build_id = read_build_id(self._stream.fileno())
            self._code = self._read_segments(executable=True)
        except damage() as error:
            self._stream.close()
            raise ValueError(f"{path}: {error}") from error

    def close(self) -> None:
        """Close the file."""
        self._stream.close()

    def address_of(self, offset: int) -> int | None:
        """The address, as symbols count addresses, of an offset in the file's code; None: no code lies there."""
        for segment in self._code:
            if segment.offset <= offset < segment.offset + segment.size:
                return offset - segment.offset + segment.address
        return None

    def _read_segments(self, *, executable: bool) -> list[Segment]:
        """The parts of the file that are mapped: all, or those that are code."""
        parts = (each for each in self._elf.iter_segments("PT_LOAD") if not executable or each["p_flags"] & 1)
        return [Segment(each["p_offset"], each["p_filesz"], each["p_vaddr"]) for each in parts]

    def function_at(self, offset: int) -> str:
        """The function in which an offset in the file lies; empty: the file does not name it."""
        address = self.address_of(offset)
        if address is None:
            return ""
        if self._functions is None:
            self._functions = self._read_functions()
        table, texts = self._functions
        end = int(np.searchsorted(table["value"], address, "right"))
        begin = int(np.searchsorted(table["value"], table["value"][end - 1])) if end else 0
        # Of several names at an address, those without leading _ win.
        found = sorted(
            (name.startswith("_"), name, int(row["value"]) + int(row["size"]))
            for row in table[begin:end][:_MAX_NAMES]
            for name in [_text_at(texts[row["table"]], int(row["name"]))]
        )
        return found[0][1] if found and address < found[0][2] else ""

    def _read_functions(self) -> tuple[Any, list[bytes]]:
        parts, texts = [np.zeros(0, _FUNCTION)], list[bytes]()
        for symbols, names in self._symbols():
            chosen = symbols[np.isin(symbols["info"] & 15, _FUNCTIONS) & (symbols["at"] != 0) & (symbols["size"] != 0)]
            part = np.zeros(len(chosen), _FUNCTION)
            part["value"], part["size"], part["name"] = chosen["value"], chosen["size"], chosen["name"]
            part["table"] = len(texts)
            parts.append(part)
            texts.append(names)
        table = np.concatenate(parts)
        return table[np.argsort(table["value"], kind="stable")], texts

    def code_of(self, symbol: bytes, size: int) -> bytes:
        """The first bytes of a symbol's code; empty: the file has no such symbol, or less code."""
        with contextlib.suppress(*damage()):
            for table, texts in self._symbols():
                place = texts.find(b"\0" + symbol + b"\0") + 1  # 0: the name of no symbol
                addresses = table["value"][(table["name"] == place) & (table["at"] != 0)].tolist() if place else ()
                for address, part in itertools.product(addresses, self._code):
                    if part.address <= address <= part.address + part.size - size:
                        self._stream.seek(address - part.address + part.offset)
                        return self._stream.read(size)
        return b""

    def _symbols(self) -> Iterator[tuple[Any, bytes]]:
        """Each table of symbols that is not damaged, with the texts of its names."""
        for name in (".symtab", ".dynsym"):
            with contextlib.suppress(*damage()):
                section = self._elf.get_section_by_name(name)
                if section is not None:
                    texts = self._content(self._elf.get_section(section["sh_link"]))
                    yield np.frombuffer(self._content(section), _SYMBOL[self._elf.elfclass]), texts

    def _content(self, section: Any) -> bytes:
        """The content of a section as it stands in the file.

        pyelftools would also unpack compressed sections and make up those that stand in no file, of whatever size.

        Raises:
            ValueError: The section does not stand in the file, or is too large.
        """
        end = section["sh_offset"] + section["sh_size"]
        is_whole = end <= os.fstat(self._stream.fileno()).st_size and section["sh_size"] <= _MAX_SECTION_BYTES
        if section.compressed or section["sh_type"] == "SHT_NOBITS" or not is_whole:
            raise ValueError(f"{self.path}: the section {section.name} does not stand in the file")
        return bytes(section.data())

    def rules_at(self, offset: int) -> Rules | None:
        """How the caller is found of code at an offset in the file, by the file's unwind tables; None: they do not say.

        Raises:
            Exception: One of :func:`damage`.
        """
        address = self.address_of(offset)
        if address is None or not self._has_tables:
            return None
        if self._tables is None:
            self._tables = self._open_tables()
            self._has_tables = self._tables is not None
        return self._tables.at(address) if self._tables else None

    def _open_tables(self) -> UnwindTables | None:
        self._has_tables = False  # until they are read: damaged ones are not read again
        parts = self._read_segments(executable=False)
        headers = [
            (each["p_offset"], each["p_vaddr"], each["p_filesz"]) for each in self._elf.iter_segments(_SEARCH_TABLE)
        ]
        if self._elf["e_machine"] != _X86_64 or self._elf.elfclass != 64 or not headers:  # noqa: PLR2004 - bits
            return None

        def offset_of(address: int) -> int | None:
            for part in parts:
                if part.address <= address < part.address + part.size:
                    return address - part.address + part.offset
            return None

        return UnwindTables(self._stream, headers[0], offset_of)

    def returns_from_top(self, offset: int) -> bool:
        """True if the word at the stack's end is the return address where the code at this offset runs.

        The file's unwind tables tell it: there, the caller's frame begins one word after the stack's end.
        """
        with contextlib.suppress(*damage()):
            rules = self.rules_at(offset)
            return rules is not None and (rules.base, rules.offset) == (STACK_POINTER, _WORD)
        return False


def find_file(build_id: str, path: str) -> Module | None:
    """A file at a whole path, if it has this build id; else None."""
    if not path.startswith("/"):
        return None
    try:
        module = Module(Path(path))
    except (OSError, ValueError):
        return None
    if module.build_id == build_id:
        return module
    module.close()
    return None


class Modules:
    """Finds files by build id, among the files that the trace names."""

    def __init__(self) -> None:
        self._candidates: dict[str, None] = {}

    def see(self, paths: Iterable[str | None]) -> None:
        """Look into these files, too, when a build id is wanted. Beyond 65,536 files, further ones are not noticed."""
        for path in paths:
            if path and len(self._candidates) < _MAX_CANDIDATES:
                self._candidates[path] = None

    def find(self, build_ids: Iterable[str]) -> dict[str, Module]:
        """Build id → its file. Ids without a file are left out. The caller closes the modules."""
        wanted = set(build_ids) - {""}
        found: dict[str, Module] = {}
        for path in self._candidates:
            if len(found) == len(wanted):
                break
            place = path if path.startswith("/") else shutil.which(path)
            if place is None:
                continue
            build_id = _build_id_of(Path(place))
            module = find_file(build_id, place) if build_id in wanted and build_id not in found else None
            if module:
                found[build_id] = module
        return found


def _build_id_of(path: Path) -> str:
    """The build id of a file; empty: it has none, or cannot be read."""
    try:
        with _open_regular(path) as stream:
            return read_build_id(stream.fileno())
    except (OSError, ValueError):
        return ""
