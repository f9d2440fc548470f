"""Fixtures of all tests."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from build.traceprocessor import TraceProcessor

GOLDEN = Path(__file__).parent / "golden"

# A change is judged by the same made-up histories as the one before it; `make search` looks for others.
settings.register_profile("suite", deadline=None, derandomize=True)
settings.register_profile("search", deadline=None, print_blob=True)
settings.load_profile("search" if "LO2IO_EXAMPLES" in os.environ else "suite")


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
    from build.traceprocessor import TraceProcessor  # noqa: PLC0415 - takes a while, and few tests need it

    running = TraceProcessor()
    yield running
    running.close()
