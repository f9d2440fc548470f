"""What tests of exports share."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from traceprocessor import TraceProcessor


@pytest.fixture(scope="session")
def processor() -> Iterator[TraceProcessor]:
    """Perfetto's trace processor: one for all, for starting it takes longer than most tests."""
    from traceprocessor import TraceProcessor  # noqa: PLC0415 - takes a while, and few tests need it

    running = TraceProcessor()
    yield running
    running.close()
