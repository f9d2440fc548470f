"""Unwind tables of a file: how a function's caller is found at each of its instructions (``.eh_frame``).

The search table ``.eh_frame_hdr`` leads to the entry of a function, and only that entry is decoded: the tables of a
large program have hundreds of thousands. Every number in them may be wrong on purpose, so all sizes are bounded.

Sources: Linux Standard Base Core 5.0, chapter 10.6 (Exception Frames); DWARF 5, section 6.4 (Call Frame Information).
"""

from __future__ import annotations

import io
import struct
from typing import TYPE_CHECKING, Any, BinaryIO, Final, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

NR_REGISTERS: Final = 17
"""Of x86-64, as DWARF counts them. The last one is the return address."""
STACK_POINTER, RETURN_ADDRESS, FRAME_POINTER = 7, 16, 6
_MAX_ENTRY_BYTES: Final = 1 << 12
_MAX_KEPT: Final = 1 << 14
"""Decoded entries that are kept, of one file."""
_HEAD: Final = struct.Struct("<BBBBiI")
_ENCODINGS: Final = (1, 0x1B, 0x03, 0x3B)
"""Version; then DW_EH_PE_pcrel | sdata4, DW_EH_PE_udata4, DW_EH_PE_datarel | sdata4: all linkers write these."""
_PLACES: Final = np.dtype([("begin", "<i4"), ("entry", "<i4")])
_MAX_TABLE_BYTES: Final = 1 << 23


class Rule(NamedTuple):
    """Where a register of the caller lies.

    ``kind`` is pyelftools' name of the rule; ``value`` an offset from the frame's start, a register's number, or the
    bytes of an expression.
    """

    kind: str
    value: Any


class Rules(NamedTuple):
    """What holds from one instruction of a function on, up to the next ``Rules``."""

    begin: int
    base: int | None
    """The register from which the frame's start (CFA) is counted; None: ``offset`` is an expression."""
    offset: Any
    registers: Mapping[int, Rule]
    interrupted: bool
    """True: a signal interrupted the caller, so its address is no return address."""


class _Entry(NamedTuple):
    end: int
    rules: tuple[Rules, ...]


class UnwindTables:
    """The tables of one file for x86-64.

    Args:
        stream: The file.
        header: Offset in the file, address and size of ``.eh_frame_hdr``.
        offset_of: Gives the offset in the file of an address; None: the file has no such address.
    """

    def __init__(self, stream: BinaryIO, header: tuple[int, int, int], offset_of: Callable[[int], int | None]) -> None:
        self._stream = stream
        self._offset_of = offset_of
        offset, self._address, size = header
        self._places = self._read_places(offset, min(size, _MAX_TABLE_BYTES))
        self._entries: dict[int, _Entry] = {}

    def _read_places(self, offset: int, size: int) -> NDArray[Any]:
        """Begin of each function and the address of its entry, both from the table's own address on."""
        head = self._read(offset, _HEAD.size)
        nothing = np.zeros(0, _PLACES)
        if len(head) < _HEAD.size or tuple(head[:4]) != _ENCODINGS:
            return nothing
        count = min(_HEAD.unpack(head)[5], (size - _HEAD.size) // _PLACES.itemsize)
        table = np.frombuffer(self._read(offset + _HEAD.size, max(count, 0) * _PLACES.itemsize), np.uint8)
        return table[: len(table) // _PLACES.itemsize * _PLACES.itemsize].view(_PLACES)

    def _read(self, offset: int, size: int) -> bytes:
        self._stream.seek(offset)
        return self._stream.read(size)

    def at(self, address: int) -> Rules | None:
        """What holds at an address; None: the tables do not say.

        Raises:
            Exception: Any of those that pyelftools raises at damaged tables, see ``damage()`` of ``modules.py``.
        """
        place = int(np.searchsorted(self._places["begin"], address - self._address, "right")) - 1
        if place < 0:
            return None
        entry = self._entries.get(place)
        if entry is None:
            if len(self._entries) >= _MAX_KEPT:
                self._entries.clear()
            entry = self._entries[place] = self._decode(self._address + int(self._places["entry"][place]))
        found = None
        for rules in entry.rules if address < entry.end else ():
            if rules.begin > address:
                break
            found = rules
        return found

    def _decode(self, address: int) -> _Entry:
        """Decode the entry (FDE) at an address, with the one that it builds on (CIE)."""
        from elftools.dwarf.callframe import CIE, FDE, CallFrameInfo  # noqa: PLC0415 -- few recordings need it
        from elftools.dwarf.structs import DWARFStructs  # noqa: PLC0415

        entry = self._read_entry(address)
        base = self._read_entry(address + 4 - int.from_bytes(entry[4:8], "little"))
        # Both stand alone in a stream of their own. Addresses in the second are relative to its place.
        whole = base + entry[:4] + struct.pack("<I", len(base) + 4) + entry[8:]
        structs = DWARFStructs(little_endian=True, dwarf_format=32, address_size=8)
        common, function = CallFrameInfo(
            io.BytesIO(whole), len(whole), address - len(base), structs, for_eh_frame=True
        ).get_entries()
        if not (isinstance(common, CIE) and isinstance(function, FDE)):
            raise ValueError("no entry of a function")  # noqa: TRY004 - it is the file's damage
        interrupted = b"S" in (common.header.get("augmentation") or b"")
        rows = function.get_decoded().table
        rules = tuple(_rules(row, interrupted=interrupted) for row in rows)
        begin = int(function["initial_location"])
        return _Entry(begin + int(function["address_range"]), rules)

    def _read_entry(self, address: int) -> bytes:
        offset = self._offset_of(address)
        if offset is None:
            raise ValueError("an entry lies outside of the file")
        length = int.from_bytes(self._read(offset, 4), "little")
        if not 4 < length <= _MAX_ENTRY_BYTES:  # noqa: PLR2004 - the word after the length
            raise ValueError(f"an entry of {length} bytes")
        entry = self._read(offset, 4 + length)
        if len(entry) != 4 + length:
            raise ValueError("an entry is cut")
        return entry


def _rules(row: Mapping[Any, Any], *, interrupted: bool) -> Rules:
    cfa = row["cfa"]
    registers = {
        number: Rule(rule.type, rule.arg)
        for number, rule in row.items()
        if isinstance(number, int) and number < NR_REGISTERS
    }
    if cfa.expr is not None:
        return Rules(row["pc"], None, bytes(cfa.expr), registers, interrupted)
    if not (isinstance(cfa.reg, int) and isinstance(cfa.offset, int)):
        raise ValueError("a row does not say where the frame begins")  # noqa: TRY004 - it is the file's damage
    return Rules(row["pc"], cfa.reg, cfa.offset, registers, interrupted)
