"""Definitions by their references, as columns where an archive may have millions; places of whole columns."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

Values = tuple[Any, ...]
_CHUNK: Final = 1 << 16
"""Rows that become Python objects at once."""


class Table(Mapping[int, Values]):
    """The definitions of one kind: reference → values. Each value is a number of at most 32 bits, and takes 4 bytes.

    Iteration follows the references. Of several definitions with one reference, the last counts.

    Args:
        names: The names of the values.
        rows: Rows of a reference and the values, in the order of the archive.
    """

    def __init__(self, names: Sequence[str], rows: NDArray[np.uint32]) -> None:
        if not bool((rows[1:, 0] > rows[:-1, 0]).all()):
            rows = rows[np.argsort(rows[:, 0], kind="stable")]
            rows = rows[np.append(rows[1:, 0] != rows[:-1, 0], np.ones(min(len(rows), 1), np.bool_))]
        self._names = tuple(names)
        self._rows = rows
        self.refs = np.ascontiguousarray(rows[:, 0])
        self._gapless = len(rows) > 0 and int(rows[-1, 0]) == len(rows) - 1

    def column(self, name: str) -> NDArray[np.uint32]:
        """A value of all definitions, in the order of their references."""
        found: NDArray[np.uint32] = self._rows[:, 1 + self._names.index(name)]
        return found

    def place(self, ref: object) -> int:
        """The place of a reference; -1: it is not defined."""
        if not isinstance(ref, int):
            return -1
        if self._gapless:
            return ref if 0 <= ref < len(self.refs) else -1
        place = bisect_left(self.refs, ref)
        return place if place < len(self.refs) and self.refs[place] == ref else -1

    def _values(self, first: int, end: int) -> list[Values]:
        return [tuple(row) for row in self._rows[first:end, 1:].tolist()]

    def __getitem__(self, ref: int) -> Values:
        place = self.place(ref)
        if place < 0:
            raise KeyError(ref)
        return self._values(place, place + 1)[0]

    def __contains__(self, ref: object) -> bool:
        return self.place(ref) >= 0

    def __len__(self) -> int:
        return len(self.refs)

    def __iter__(self) -> Iterator[int]:
        for first in range(0, len(self.refs), _CHUNK):
            yield from self.refs[first : first + _CHUNK].tolist()

    def values(self) -> Iterator[Values]:  # type: ignore[override]
        """The values of each definition: no view, since nobody needs one."""
        for first in range(0, len(self.refs), _CHUNK):
            yield from self._values(first, first + _CHUNK)

    def items(self) -> Iterator[tuple[int, Values]]:  # type: ignore[override]
        """Reference and values of each definition: no view, either."""
        return zip(self, self.values(), strict=True)


class Strings(Table):
    """Strings: reference → a tuple of the bytes. ``rows`` hold references and the places of the ends in ``ends``."""

    def __init__(self, rows: NDArray[np.uint32], ends: NDArray[np.uint64], text: bytearray) -> None:
        super().__init__(("end",), rows)
        self._ends, self._text = ends, text

    def _values(self, first: int, end: int) -> list[Values]:
        found = []
        for place in self._rows[first:end, 1].tolist():
            begin = int(self._ends[place - 1]) if place else 0
            found.append((bytes(self._text[begin : int(self._ends[place])]),))
        return found


class Rows:
    """Collects the rows of a :class:`Table`."""

    def __init__(self, names: Sequence[str]) -> None:
        self._names = tuple(names)
        self._flat = array("I")

    def add(self, *row: int) -> None:
        """Add a reference and its values."""
        self._flat.extend(row)

    def array(self) -> NDArray[np.uint32]:
        """All rows so far, which must not be added to any more."""
        return np.frombuffer(self._flat, np.uint32).reshape(-1, 1 + len(self._names))

    def table(self) -> Table:
        """The table."""
        return Table(self._names, self.array())


class StringRows:
    """Collects the rows of :class:`Strings`."""

    def __init__(self) -> None:
        self._rows, self._ends, self._text = Rows(("end",)), array("Q"), bytearray()

    def add(self, *row: Any) -> None:
        """Add a reference and the bytes of its string."""
        ref, text = row
        self._rows.add(ref, len(self._ends))
        self._text += text
        self._ends.append(len(self._text))

    def array(self) -> NDArray[np.uint32]:
        """As of :class:`Rows`."""
        return self._rows.array()

    def table(self) -> Strings:
        """The table."""
        return Strings(self._rows.array(), np.frombuffer(self._ends, np.uint64), self._text)


def repeated(rows: NDArray[np.uint32]) -> list[int]:
    """The references of rows that are there already, one for each further row."""
    refs = rows[:, 0]
    if bool((refs[1:] > refs[:-1]).all()):
        return []
    refs = np.sort(refs)
    found: list[int] = refs[1:][refs[1:] == refs[:-1]].tolist()
    return found


def references(table: Mapping[int, Any]) -> NDArray[Any] | list[int]:
    """The references of a table."""
    return table.refs if isinstance(table, Table) else list(table)


class Places:
    """Finds the places of references in the ascending list of references, for whole columns."""

    _LOOSE: Final = 4
    """A table finds the references if it has at most this many entries for each reference; else a binary search
    does."""

    def __init__(self, refs: NDArray[Any] | Sequence[int]) -> None:
        self.refs = np.sort(refs if isinstance(refs, np.ndarray) else np.array(refs, np.uint64))
        self._table: NDArray[np.int64] | None = None
        highest = int(self.refs[-1]) if len(refs) else 0
        self._gapless = len(refs) > 0 and highest == len(refs) - 1
        if highest < self._LOOSE * len(refs) + 1024 and not self._gapless:
            self._table = np.full(highest + 2, -1, np.int64)
            self._table[self.refs.astype(np.int64)] = np.arange(len(refs))

    def __len__(self) -> int:
        return len(self.refs)

    def of(self, column: NDArray[Any]) -> NDArray[np.int64]:
        """The place of each reference; -1: not in the list."""
        if self._gapless:
            inside = column < len(self.refs)
            return np.where(inside, np.where(inside, column, 0).astype(np.int64), np.int64(-1))
        if self._table is not None:
            capped = np.minimum(column, np.uint64(len(self._table) - 1)).astype(np.int64)
            found: NDArray[np.int64] = self._table[capped]
            return found
        found = np.minimum(np.searchsorted(self.refs, column.astype(np.uint64)), len(self.refs) - 1)
        return np.where(self.refs[found] == column, found, np.int64(-1))
