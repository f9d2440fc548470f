"""Which files a process has mapped as code, and where: from perf's records and facts of ``/proc``."""

from __future__ import annotations

import bisect
import struct
from typing import Final, NamedTuple

from lo2io.spool.facts import FACT_MAPPING, read_mapping

_MAX_MAPPINGS: Final = 1 << 12
"""Of a process. Further ones are not noticed."""
_MAX_SPACES: Final = 1 << 16
_HEAD: Final = struct.Struct("<IHH")
_IDS: Final = struct.Struct("<4I")
_MMAP2: Final = struct.Struct("<IIQQQB3x20sII")
_BORN_AT: Final = _HEAD.size + _IDS.size
_NAME_AT: Final = _HEAD.size + _MMAP2.size
_LOST, _COMM, _EXIT, _FORK, _MAPPED = 2, 3, 4, 7, 10
"""PERF_RECORD_*, include/uapi/linux/perf_event.h. ``_MAPPED`` is MMAP2."""
_HAS_BUILD_ID: Final = 1 << 14
"""PERF_RECORD_MISC_MMAP_BUILD_ID"""
_BUILD_ID_DIGITS: Final = 40
_KERNELS: Final = ("[vdso]", "[vsyscall]")
"""Code that the kernel lends to each process."""
_WITHOUT_FILE: Final = ("//anon", "/memfd:", "/dev/zero", "/anon_hugepage")
"""Begins of names that perf and ``/proc`` give to memory without a file."""
_CODE: Final = 4
"""PROT_EXEC"""


class CodeAt(NamedTuple):
    """A piece of a process' memory that can be run: addresses from ``begin`` up to ``end``, from a place of a file."""

    begin: int
    end: int
    offset: int
    build_id: str
    """40 hexadecimal digits; empty: the file is not known, or it is none."""
    path: str

    @property
    def is_made(self) -> bool:
        """True: no file has this code. The program has made it, as compilers at run time do."""
        return self.path not in _KERNELS and (not self.path.startswith("/") or self.path.startswith(_WITHOUT_FILE))


class Space:
    """The code of one process.

    Attributes:
        born_ns: When the process began, on the spool's clock; None: before the recording.
    """

    def __init__(self, pieces: list[CodeAt], born_ns: int | None = None) -> None:
        self._pieces = pieces
        self.born_ns = born_ns

    def for_child(self, born_ns: int) -> Space:
        """The same, for a child, which then maps files of its own."""
        return Space(list(self._pieces), born_ns)

    def add(self, new: CodeAt) -> None:
        """Note a mapping, which replaces others at its addresses."""
        first = bisect.bisect_right(self._pieces, new.begin, key=lambda piece: piece.end)
        last = bisect.bisect_left(self._pieces, new.end, key=lambda piece: piece.begin)
        rest = [new]
        if first < last:
            low, high = self._pieces[first], self._pieces[last - 1]
            if low.begin < new.begin:
                rest.insert(0, low._replace(end=new.begin))
            if high.end > new.end:
                rest.append(high._replace(begin=new.end, offset=high.offset + new.end - high.begin))
        if len(self._pieces) + len(rest) - max(last - first, 0) <= _MAX_MAPPINGS:
            self._pieces[first : max(first, last)] = rest

    def at(self, address: int) -> CodeAt | None:
        """The code at an address; None: there is none, or it is not known."""
        place = bisect.bisect_right(self._pieces, address, key=lambda piece: piece.begin) - 1
        if place < 0 or address >= self._pieces[place].end:
            return None
        return self._pieces[place]


class Spaces:
    """The code of all processes, as far as the records so far tell."""

    def __init__(self) -> None:
        self._of: dict[int, Space] = {}

    def of(self, pid: int) -> Space | None:
        """The code of a process; None: nothing is known of it."""
        return self._of.get(pid)

    def take(self, record: bytes) -> None:
        """Follow one record. One that is damaged changes nothing."""
        if len(record) < _HEAD.size:
            return
        kind, misc, _ = _HEAD.unpack_from(record)
        if kind == FACT_MAPPING:
            if fact := read_mapping(record):
                self._map(fact.pid, CodeAt(fact.begin, fact.end, fact.offset, fact.build_id, fact.path))
        elif kind == _MAPPED and len(record) > _NAME_AT:
            self._on_mapping(record, misc)
        elif kind == _LOST:
            self._of.clear()  # a file may be mapped where another one was: nobody knows
        elif kind in {_COMM, _EXIT, _FORK} and len(record) >= _HEAD.size + _IDS.size:
            self._on_task(kind, record)

    def _on_task(self, kind: int, record: bytes) -> None:
        """A process begins, has another program (COMM of an exec), or ends."""
        pid, parent, _, _ = _IDS.unpack_from(record, _HEAD.size)
        before = self._of.pop(pid, None)
        if kind == _COMM and before:
            self._of[pid] = Space([], before.born_ns)
        elif kind == _FORK and parent in self._of and len(self._of) < _MAX_SPACES:
            born_ns = int.from_bytes(record[_BORN_AT : _BORN_AT + 8], "little")
            self._of[pid] = self._of[parent].for_child(born_ns)

    def _on_mapping(self, record: bytes, misc: int) -> None:
        pid, _, begin, size, offset, id_bytes, build_id, protection, _ = _MMAP2.unpack_from(record, _HEAD.size)
        if not protection & _CODE:
            return
        known = build_id[:id_bytes].hex().ljust(_BUILD_ID_DIGITS, "0") if misc & _HAS_BUILD_ID and id_bytes else ""
        name = record[_NAME_AT:].split(b"\0", 1)[0]
        self._map(pid, CodeAt(begin, begin + size, offset, known, name.decode(errors="surrogateescape")))

    def _map(self, pid: int, code: CodeAt) -> None:
        if code.begin >= code.end or (pid not in self._of and len(self._of) >= _MAX_SPACES):
            return
        self._of.setdefault(pid, Space([])).add(code)
