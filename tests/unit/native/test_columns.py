"""Pointers that Python hands to loops in C, and the memory behind them."""

import gc

import numpy as np
import pytest
from lo2io.native._lib import ffi

from lo2io.native.columns import allocate_batch, pointer_to


def test_a_pointer_to_values_of_another_size_is_refused() -> None:
    """A loop that takes 32 bits for 64 would read after the array."""
    with pytest.raises(ValueError, match="int64_t, of values of uint32"):
        pointer_to(np.zeros(4, np.uint32), "int64_t")


def test_a_pointer_to_values_that_lie_apart_is_refused() -> None:
    """A loop goes from one value to the next."""
    with pytest.raises(ValueError, match="lie apart"):
        pointer_to(np.zeros(4, np.int64)[::2], "int64_t")


def test_a_pointer_leads_to_the_values() -> None:
    """They are neither copied nor converted."""
    values = np.arange(3, dtype=np.int64)
    pointer = pointer_to(values, "int64_t")
    pointer[1] = 7
    assert values.tolist() == [0, 7, 2]


def test_one_array_keeps_the_memory_of_a_whole_batch() -> None:
    """Columns, texts and stacks lie in one piece of memory, apart from each other."""
    native, tables = allocate_batch(8, 100, 50)
    kept = tables["operations"]["id"]
    arrays = [array for columns in tables.values() for array in columns.values()]
    for number, array in enumerate(arrays):
        array[:] = number % 2
    ffi.memmove(native.text, b"t" * 100, 100)
    ffi.memmove(native.told, b"s" * 50, 50)
    assert all((array == number % 2).all() for number, array in enumerate(arrays))
    del tables, arrays
    gc.collect()
    assert isinstance(kept.base, np.ndarray)
    first = kept.base.ctypes.data
    for pointer, size, letter in ((native.text, 100, b"t"), (native.told, 50, b"s")):
        address = int(ffi.cast("uintptr_t", pointer))
        assert first <= address <= first + kept.base.nbytes - size
        assert bytes(ffi.buffer(pointer, size)) == letter * size
    assert not kept.any()
