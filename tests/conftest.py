"""Fixtures of all tests."""

from __future__ import annotations

import ctypes
import gc
import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import Phase, settings
from hypothesis.internal.conjecture import providers
from leftovers import kept

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from build.traceprocessor import TraceProcessor

M_MMAP_THRESHOLD = -3
"""Of mallopt(3)."""
ctypes.CDLL(None).mallopt(M_MMAP_THRESHOLD, 1 << 20)  # the engine's large tables come zeroed from the kernel, each time
GOLDEN = Path(__file__).parent / "golden"

# Each change is judged by the same made-up histories as the one before; `make search` looks for others.
settings.register_profile("suite", deadline=None, derandomize=True)
settings.register_profile("search", deadline=None, print_blob=True)
settings.register_profile(  # scripts/mutate.py asks whether a test fails, not for the smallest example
    "mutants", deadline=None, derandomize=True, database=None, phases=[Phase.explicit, Phase.generate]
)
settings.load_profile("search" if "LO2IO_EXAMPLES" in os.environ else "suite")
if "LO2IO_EXAMPLES" not in os.environ:
    # Hypothesis tries the constants of all modules outside of site-packages, too. So each change of any module, and the
    # choice of tests, would make other histories.
    providers.is_local_module_file = lambda _: False


def pytest_collection_finish() -> None:
    """Keep the collected tests out of the garbage collector's sight: its rounds over them took a tenth of the time."""
    gc.collect()
    gc.freeze()


def pytest_sessionfinish() -> None:
    """Give the collected tests back, so that libraries find nothing left over at the end."""
    gc.unfreeze()


def pytest_addoption(parser: pytest.Parser) -> None:
    """``--update-golden`` is the only way to change golden files."""
    parser.addoption("--update-golden", action="store_true", help="write the golden files instead of comparing")


@pytest.fixture(scope="session", autouse=True)
def _nothing_left_behind() -> Iterator[None]:
    """Neither a recorder nor a process of the tests outlives them."""
    with kept():
        yield


@pytest.fixture(scope="session", autouse=True)
def _signals_as_from_a_terminal() -> None:
    """Restore the default of signals that pytest was started to ignore (``nohup``, ``sh … &``), for tests' processes.

    An ignored signal stays ignored across exec, while a handled one becomes the default again.
    """
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, signal.default_int_handler if number == signal.SIGINT else lambda *_: None)


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
    """Perfetto's trace processor. All tests share one, for its start takes longer than most tests."""
    from build.traceprocessor import TraceProcessor  # noqa: PLC0415 - takes a while, and few tests need it

    running = TraceProcessor()
    yield running
    running.close()
