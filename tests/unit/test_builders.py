"""The examples at the top of tests/build/*.py are true."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import build
import pytest

if TYPE_CHECKING:
    from build.traceprocessor import TraceProcessor

ELSEWHERE = {"bpffiles", "bpfrig", "pagerig"}
"""They need the kernel (tests/kernel/test_builders_kernel.py) or a browser (tests/browser/test_odd_pages.py)."""
BUILDERS = {path.stem for path in Path(build.__file__).parent.glob("*.py")} - {"__init__"}


@pytest.mark.parametrize("name", sorted(BUILDERS - ELSEWHERE - {"traceprocessor"}))
def test_example(name: str, tmp_path: Path) -> None:
    """Each builder has an example, which shows the true result."""
    build.run_example(name, tmp_path)


def test_example_of_the_trace_processor(tmp_path: Path, processor: TraceProcessor) -> None:
    """The processor's start takes long, so all tests share one."""
    build.run_example("traceprocessor", tmp_path, processor=processor)
