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


@pytest.fixture(name="run", params=list(ENGINES))
def each_engine(request: pytest.FixtureRequest) -> Callable[[SpoolBuilder], Tables]:
    """An engine: spool in, tables out."""
    engine = ENGINES[request.param]
    return lambda builder: engine(builder.write())
