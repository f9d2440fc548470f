"""The examples at the top of those builders that need programs in the kernel."""

from __future__ import annotations

from typing import TYPE_CHECKING

import build
import pytest

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.requires("root", "tracefs")


@pytest.mark.parametrize("name", ["bpffiles", "bpfrig"])
def test_example(name: str, tmp_path: Path) -> None:
    """It shows the true result."""
    build.run_example(name, tmp_path)
