"""``served.lo2io`` answers as the program itself does."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

import pytest
from workloads import served
from workloads.record import LO2IO

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(autouse=True)
def _server_ends() -> Iterator[None]:
    yield
    served.close()


def test_same_answers(tmp_path: Path) -> None:
    """Output, messages, exit code; one command after another, each with its own folder and streams."""
    (tmp_path / "here").touch()
    for words in (["--version"], ["bogus"], ["report", "here"], ["convert", tmp_path / "none", "-o", "T"]):
        there = subprocess.run([LO2IO, *words], capture_output=True, text=True, cwd=tmp_path, check=False)
        here = served.lo2io(*words, cwd=tmp_path)
        assert (here.returncode, here.stdout, here.stderr) == (there.returncode, there.stdout, there.stderr)
    with pytest.raises(subprocess.CalledProcessError):
        served.lo2io("bogus", check=True)
