"""Tables of definitions: columns that read as a dict does."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lo2io.otf2.read.tables import Rows, StringRows, repeated

REFS = st.integers(0, 12) | st.sampled_from([2**31, 2**32 - 1])
VALUES = st.integers(0, 2**32 - 1)


@given(st.lists(st.tuples(REFS, VALUES, VALUES)))
def test_a_table_is_a_dict(rows: list[tuple[int, int, int]]) -> None:
    """Whatever the order and the gaps of references: the last definition counts, and further ones are named."""
    found, expected, again = Rows(("one", "other")), dict[int, tuple[int, int]](), list[int]()
    for ref, *values in rows:
        found.add(ref, *values)
        again += [ref] if ref in expected else []
        expected[ref] = values[0], values[1]
    table = found.table()
    assert dict(table.items()) == {ref: table[ref] for ref in table} == expected
    assert list(table) == table.refs.tolist() == sorted(expected)
    assert list(table.values()) == [expected[ref] for ref in sorted(expected)]
    assert table.column("other").tolist() == [expected[ref][1] for ref in sorted(expected)]
    assert len(table) == len(expected)
    for probe in (*range(-1, 14), 2**31, 2**32 - 1, 2**40, 2**64 - 1):
        assert (probe in table) == (probe in expected)
        assert table.get(probe) == expected.get(probe)
        assert table.place(probe) == (sorted(expected).index(probe) if probe in expected else -1)
    assert repeated(found.array()) == sorted(again)


def test_other_keys() -> None:
    """A key that is no number is not there."""
    rows = Rows(("one",))
    rows.add(0, 7)
    table = rows.table()
    assert "0" not in table
    with pytest.raises(KeyError):
        table[1]


@given(st.lists(st.tuples(REFS, st.binary(max_size=4))))
def test_strings_are_a_dict(rows: list[tuple[int, bytes]]) -> None:
    """As of numbers, with the bytes of each string."""
    found = StringRows()
    for row in rows:
        found.add(*row)
    assert dict(found.table().items()) == {ref: (text,) for ref, text in rows}


def test_chunks_join() -> None:
    """More rows than become objects at once."""
    rows = Rows(("one",))
    for ref in range(70_000):
        rows.add(ref, 2 * ref)
    table = rows.table()
    assert sum(1 for _ in table) == len(list(table.values())) == 70_000
    assert np.array_equal([values[0] for _, values in table.items()], table.column("one"))
