"""NumPy columns over the native batch, with the tables and dtypes of ``columns.h`` and ``ring_columns.h``."""

from __future__ import annotations

import contextlib
import mmap
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from lo2io.native._lib import ffi

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from lo2io.model import Columns

CACHE_LINE_BYTES = 64


def column_dtypes(table: str) -> dict[str, np.dtype[Any]]:
    """The columns of ``lo2_<table>_columns`` (``operation`` …) in the header's order, with their dtypes."""
    return _dtypes(ffi.typeof(f"lo2_{table}_columns"))


@cache
def array_members(struct: str) -> dict[str, tuple[str, np.dtype[Any]]]:
    """C type and dtype of the elements that the struct's pointers point to."""
    members = ((name, field.type) for name, field in ffi.typeof(struct).fields)
    return {name: (kind.item.cname, _dtype(kind.item)) for name, kind in members if kind.kind == "pointer"}


def allocate_rows(struct: str, nr: int) -> NDArray[Any]:
    """``nr`` rows of a native struct, filled with zeros, whose members are the fields of the array's dtype."""
    members = ffi.typeof(struct)
    dtype = np.dtype([(name, _dtype(field.type)) for name, field in members.fields])
    assert dtype.itemsize == ffi.sizeof(members)  # noqa: S101 - all members of such a struct have the same size
    return np.zeros(nr, dtype)


def pointer_to(values: NDArray[Any], native: str) -> Any:
    """A C pointer to the first element of a contiguous array. The caller keeps the array alive.

    Raises:
        ValueError: The array is not contiguous, or its elements have another size than ``native``.
    """
    if not values.flags.c_contiguous:
        raise ValueError("a pointer to values that lie apart")
    if values.itemsize != ffi.sizeof(native):
        raise ValueError(f"a pointer to {native}, of values of {values.dtype}")
    return ffi.cast(f"{native} *", values.ctypes.data)


@cache
def _dtypes(struct: Any) -> dict[str, np.dtype[Any]]:
    return {name: _dtype(field.type.item) for name, field in struct.fields}


@cache
def _dtype(scalar: Any) -> np.dtype[Any]:
    # cffi spells the fixed-width types uint8_t … int64_t: NumPy's names with a suffix.
    dtype: np.dtype[Any] = np.dtype("bool" if scalar.cname == "_Bool" else scalar.cname.removesuffix("_t"))
    return dtype


def allocate_batch(capacity: int, text_capacity: int, told_capacity: int = 0) -> tuple[Any, dict[str, Columns]]:
    """Make an empty batch.

    Args:
        capacity: Rows of every table.
        text_capacity: Bytes for paths and names.
        told_capacity: Bytes for what unwinding needs.

    Returns:
        The ``lo2_batch *`` and its tables by name (``operations``, ``handle_events`` …). Each column is an array of
        shape (capacity,) over the same memory, which lives as long as one of the arrays is held. Hold one while the
        pointer is used. The counts (``nr_operations`` …) are zero.
    """
    batch = ffi.new("lo2_batch *")
    layout = _layout(capacity)
    text_at = layout[-1][-1]
    told_at = text_at + text_capacity
    memory = _empty_pages(told_at + told_capacity)
    start = memory.ctypes.data
    tables: dict[str, Columns] = {}
    for table, column, dtype, field_type, begin, end in layout:
        tables.setdefault(table, {})[column] = memory[begin:end].view(dtype)
        setattr(getattr(batch, table), column, ffi.cast(field_type, start + begin))
    batch.text = ffi.cast("char *", start + text_at)
    batch.capacity = capacity
    batch.text_capacity = text_capacity
    batch.told = ffi.cast("uint8_t *", start + told_at)
    batch.told_capacity = told_capacity
    return batch, tables


@cache
def no_rows(table: str) -> Columns:
    """The columns of a table without rows, as most tables of most batches are: slices of all would cost more."""
    (struct,) = (field.type for name, field in ffi.typeof("lo2_batch").fields if name == table)
    return {column: np.zeros(0, dtype) for column, dtype in _dtypes(struct).items()}


def _empty_pages(size: int) -> NDArray[np.uint8]:
    """Zeros for all columns of a batch, most of which stay empty or nearly so. Only pages that are written take memory.

    NumPy would ask for huge pages. Then the first row of a column makes the kernel clear the pages of many others.
    """
    memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    with contextlib.suppress(OSError):  # a kernel without huge pages refuses, which does no harm
        memory.madvise(mmap.MADV_NOHUGEPAGE)
    return np.frombuffer(memory, np.uint8)


@cache
def _layout(capacity: int) -> list[tuple[str, str, np.dtype[Any], Any, int, int]]:
    """Table, column, dtype, C type, first byte and end of each column.

    Columns are aligned to cache lines, and a free line lies between two of them. Without it, the fields of a row would
    compete for one set of the CPU's cache, because the columns' sizes are powers of two.
    """
    found, begin = [], 0
    for table, field in ffi.typeof("lo2_batch").fields:
        if field.type.kind != "struct":
            continue
        dtypes = _dtypes(field.type)
        for column, field_of_column in field.type.fields:
            end = begin + capacity * dtypes[column].itemsize
            found.append((table, column, dtypes[column], field_of_column.type, begin, end))
            begin = (-(-end // CACHE_LINE_BYTES) + 1) * CACHE_LINE_BYTES
    return found
