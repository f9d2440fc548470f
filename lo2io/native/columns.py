"""NumPy columns over the native batch: tables and dtypes are those of ``columns.h`` and ``ring_columns.h``."""

from __future__ import annotations

import weakref
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from lo2io.native._lib import ffi

if TYPE_CHECKING:
    from lo2io.model import Columns

CACHE_LINE_BYTES = 64
_memory: weakref.WeakKeyDictionary[Any, tuple[dict[str, Columns], Any]] = weakref.WeakKeyDictionary()
"""What each batch points to lives as long as the batch: C memory knows no reference counts."""


def column_dtypes(table: str) -> dict[str, np.dtype[Any]]:
    """Columns of ``lo2_<table>_columns`` (``operation`` …) in the header's order, and their dtypes."""
    return _dtypes(ffi.typeof(f"lo2_{table}_columns"))


def _dtypes(struct: Any) -> dict[str, np.dtype[Any]]:
    return {name: _dtype(field.type.item) for name, field in struct.fields}


def _dtype(scalar: Any) -> np.dtype[Any]:
    # cffi spells the fixed-width types uint8_t … int64_t: NumPy's names with a suffix.
    dtype: np.dtype[Any] = np.dtype(scalar.cname.removesuffix("_t"))
    return dtype


def allocate_batch(capacity: int, text_capacity: int) -> tuple[Any, dict[str, Columns]]:
    """Make an empty batch.

    Args:
        capacity: Rows of every table.
        text_capacity: Bytes for paths and names.

    Returns:
        The ``lo2_batch *`` and its tables by name (``operations``, ``handle_events`` …): per column an array of
        shape (capacity,) over the same memory. The memory lives as long as the pointer or an array is held.
        The counts (``nr_operations`` …) are zero.
    """
    batch = ffi.new("lo2_batch *")
    layout = _layout(capacity)
    # One piece of memory for all: the pages of columns that nothing fills are never touched.
    memory = np.zeros(layout[-1][-1] if layout else 0, np.uint8)
    start = memory.ctypes.data
    tables: dict[str, Columns] = {}
    for table, column, dtype, field_type, begin, end in layout:
        tables.setdefault(table, {})[column] = memory[begin:end].view(dtype)
        setattr(getattr(batch, table), column, ffi.cast(field_type, start + begin))
    text = ffi.new("char[]", max(text_capacity, 1))
    batch.text = text
    batch.capacity = capacity
    batch.text_capacity = text_capacity
    _memory[batch] = (tables, text)
    return batch, tables


@cache
def _layout(capacity: int) -> list[tuple[str, str, np.dtype[Any], Any, int, int]]:
    """Table, column, dtype, C type, and the bytes from and to which it lies, aligned to cache lines."""
    found, begin = [], 0
    for table, field in ffi.typeof("lo2_batch").fields:
        if field.type.kind != "struct":
            continue
        dtypes = _dtypes(field.type)
        for column, field_of_column in field.type.fields:
            end = begin + capacity * dtypes[column].itemsize
            found.append((table, column, dtypes[column], field_of_column.type, begin, end))
            begin = -(-end // CACHE_LINE_BYTES) * CACHE_LINE_BYTES
    return found
