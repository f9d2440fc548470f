"""Batches that a thread reads ahead."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from lo2io.errors import TraceError
from lo2io.reports.summary.tally import read_ahead

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lo2io.model import Columns


def batches(number: int) -> Iterator[Columns]:
    """Batches of one row, which is the batch's number."""
    return ({"id": np.array([row], np.uint64)} for row in range(number))


@pytest.mark.parametrize("number", [0, 1, 4, 5, 8, 9, 30])
def test_all_batches_come_in_their_order(number: int) -> None:
    """However many batches are read at once."""
    assert [int(batch["id"][0]) for batch in read_ahead(batches(number))] == list(range(number))


def test_a_damaged_batch_is_told() -> None:
    """The error of the reading thread reaches the caller."""

    def damaged() -> Iterator[Columns]:
        yield from batches(6)
        raise TraceError("read T", "batch 6 is damaged", "record again")

    with pytest.raises(TraceError, match="batch 6 is damaged"):
        list(read_ahead(damaged()))
