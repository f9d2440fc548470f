"""Pointers that Python hands to loops in C."""

import numpy as np
import pytest

from lo2io.native.columns import pointer_to


def test_a_pointer_to_values_of_another_size_is_refused() -> None:
    """A loop that takes 32 bits for 64 would read behind the array."""
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
