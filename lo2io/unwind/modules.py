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
        self._functions: tuple[Any, list[str]] | None = None
        self._tables: UnwindTables | None = None
        self._has_tables = True
        try:
            self._elf = ELFFile(self._stream)
            self.build_id = self._read_build_id()
            self._code = self._read_segments(executable=True)
        except damage() as error:
            self._stream.close()
            raise ValueError(f"{path}: {error}") from error

    def close(self) -> None:
        """Close the file."""
        self._stream.close()

    def _read_build_id(self) -> str:
        notes: Any
        for notes in self._elf.iter_segments("PT_NOTE"):
            for note in notes.iter_notes():
                if note["n_type"] == "NT_GNU_BUILD_ID":
                    return str(note["n_desc"]).ljust(40, "0")
        return ""

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
            self._functions = np.zeros(0, _SYMBOL[64]), []
            with contextlib.suppress(*damage()):
                self._functions = self._read_functions()
        table, names = self._functions
        place = int(np.searchsorted(table["value"], address, "right")) - 1
        if place < 0 or address >= int(table["value"][place]) + int(table["size"][place]):
            return ""
        return names[place]

    def _read_functions(self) -> tuple[Any, list[str]]:
        """The functions in the order of their addresses. Of several names, those without leading _ win."""
        parts, names = list[Any](), list[str]()
        for symbols, texts in self._symbols():
            table = symbols[np.isin(symbols["info"] & 15, _FUNCTIONS) & (symbols["at"] != 0) & (symbols["size"] != 0)]
            parts.append(table)
            names += [
                texts[start : texts.find(b"\0", start)].decode(errors="replace") for start in table["name"].tolist()
            ]
        if not parts:
            return np.zeros(0, _SYMBOL[64]), []
        table = np.concatenate(parts)
        order = sorted(
            range(len(names)), key=lambda at: (int(table["value"][at]), names[at].startswith("_"), names[at])
        )
        chosen = {int(table["value"][at]): at for at in reversed(order)}
        places = sorted(chosen.values(), key=lambda at: int(table["value"][at]))
        return table[places], [names[at] for at in places]

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
        """Each table of symbols, with the texts of its names."""
        for name in (".symtab", ".dynsym"):
            section = self._elf.get_section_by_name(name)
            if section is not None:
                texts = self._content(self._elf.get_section(section["sh_link"]))
                yield np.frombuffer(self._content(section), _SYMBOL[self._elf.elfclass]), texts

    def _content(self, section: Any) -> bytes:
        """The content of a section as it stands in the file.

        pyelftools would also unpack compressed sections and make up those that stand in no file, of whatever size.

        Raises:
            ValueError: The section does not stand in the file.
        """
        size = os.fstat(self._stream.fileno()).st_size
        if section.compressed or section["sh_type"] == "SHT_NOBITS" or section["sh_offset"] + section["sh_size"] > size:
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
            try:
                module = Module(Path(place))
            except (OSError, ValueError):
                continue
            if module.build_id in wanted and module.build_id not in found:
                found[module.build_id] = module
            else:
                module.close()
        return found
