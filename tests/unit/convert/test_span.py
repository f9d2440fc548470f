"""From when to when a trace lasts."""

from __future__ import annotations

import pytest
from build.tablemaker import COMPLETE, meta

from lo2io.convert.convert import _end
from lo2io.model import UNKNOWN_I64, Totals


@pytest.mark.parametrize(
    ("stop_ns", "last_ns", "end_ns"), [(900, 700, 900), (None, 700, 700), (None, 300, 500), (None, UNKNOWN_I64, 500)]
)
def test_a_recording_that_was_cut_off_ends_with_its_last_record(stop_ns: int | None, last_ns: int, end_ns: int) -> None:
    """It does not end before it begins, though the oldest records of a flight recorder may be older than its window."""
    end = _end(meta(start_ns=500, stop_ns=stop_ns), Totals(last_time_ns=last_ns), COMPLETE, {})
    assert (end.start_ns, end.stop_ns) == (500, end_ns)
