"""Fixtures of all tests."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from traceprocessor import TraceProcessor

GOLDEN = Path(__file__).parent / "golden"


def pytest_addoption(parser: pytest.Parser) -> None:
    """``--update-golden``: the only way golden files change."""
    parser.addoption("--update-golden", action="store_true", help="write the golden files instead of comparing")


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """Compare a text, whole, with ``tests/golden/NAME``."""

    def check(name: str, text: str) -> None:
        file = GOLDEN / name
        if request.config.getoption("--update-golden"):
            file.write_text(text, encoding="utf-8")
        assert text == file.read_text(encoding="utf-8")

    return check


@pytest.fixture(scope="session")
def processor() -> Iterator[TraceProcessor]:
    """Perfetto's trace processor: one for all, for starting it takes longer than most tests."""
    from traceprocessor import TraceProcessor  # noqa: PLC0415 - takes a while, and few tests need it

    running = TraceProcessor()
    yield running
    running.close()
