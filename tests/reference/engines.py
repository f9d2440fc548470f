"""One fixture for both engines: every directed test runs on each."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from reference.compare import run_native, run_reference

if TYPE_CHECKING:
    from collections.abc import Callable

    from perfwriter import SpoolBuilder

    from reference.compare import Tables

ENGINES = {"reference": run_reference, "native": run_native}
DIFFERS = {
    "test_a_gap_begins_before_it_in_the_ring[native]": "sorts before it looks for a gap's neighbours",
    "test_recording_from_exec_on_begins_with_the_exec[native]": "takes what lo2io did before exec for the first use",
    "test_system_mode_leaves_the_recorder_out[native]": "records the recorder if a fact announces it",
    "test_a_fact_about_a_thread_that_has_exited_makes_no_new_one[native]": "makes a thread of it",
    "test_close_range_ends_every_handle_in_it[native]": "names the first handle",
    "test_unshare_parts_a_table[native]": "has one table per process",
    "test_a_fact_after_the_first_use_gives_what_nobody_knew[native]": "leaves flags and position unknown",
    "test_a_write_on_a_description_of_unknown_flags_has_no_offset[native]": "takes unknown flags for no O_APPEND",
    "test_a_copy_leaves_both_positions_unknown[native]": "follows the written side while a copy is under way",
    "test_a_lost_exit_leaves_the_position_unknown[native]": "gives calls in flight no followed offset",
    "test_every_requeued_twin_meets_its_own_insert[native]": "looks at one twin only",
    "test_rwbs_says_operation_and_flags[native-ZA-6-0]": "takes the A of ZA for readahead",
}
"""What the native engine does otherwise, until it is put right; an entry too many fails its test."""


@pytest.fixture(name="run", params=list(ENGINES))
def each_engine(request: pytest.FixtureRequest) -> Callable[[SpoolBuilder], Tables]:
    """An engine: spool in, tables out."""
    engine = ENGINES[request.param]
    if request.node.name in DIFFERS:
        request.applymarker(pytest.mark.xfail(strict=True, reason=DIFFERS[request.node.name]))
    return lambda builder: engine(builder.write())
