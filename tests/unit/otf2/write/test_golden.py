"""A trace of each layout, whole: a small spool written by hand, converted, and printed by otf2-print."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from build.otf2_written import whole_text
from build.small_machine import spool_of_a_small_machine

from lo2io.convert.convert import convert
from lo2io.verify import exit_code, verify

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@pytest.mark.parametrize(
    ("name", "block_records"),
    [
        ("process-begin-end", None),
        ("process-sched", None),
        ("system-samples", "samples"),
        ("system-begin-end", "begin-end"),
        ("system-both", "both"),
        ("system-sched", "samples"),
    ],
)
def test_layout(tmp_path: Path, golden: Callable[[str, str], None], name: str, block_records: str | None) -> None:
    """Every record of the trace, as it is meant to be; and `lo2io verify` finds no fault in it."""
    mode = name.partition("-")[0]
    spool = spool_of_a_small_machine(tmp_path / "spool", mode, sched=name.endswith("sched"))
    convert(spool, tmp_path / "T", block_records=block_records)
    verdict = verify(tmp_path / "T")
    assert exit_code(verdict) == 0, verdict.findings
    golden(f"otf2-{name}.txt", whole_text(tmp_path / "T"))
