"""Messages of a window's converter go to the process that requested the window."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from build.flightrig import CONVERTER

from lo2io.capture.flight.dump import Dumper
from lo2io.errors import Lo2ioError
from lo2io.spool.segments import SegmentedSpool

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("says", "text"),
    [
        ("lo2io: write x: no room\n       make room", "convert the window: write x: no room; make room"),
        ("a notice\nlo2io: read x: gone", "convert the window: read x: gone"),
        ("", "convert the window: exit code 5"),
    ],
)
def test_what_a_converter_failed_of_is_told_whole(tmp_path: Path, says: str, text: str) -> None:
    """The attempt and the remedy, not only the last line."""
    dumper = Dumper(SegmentedSpool(tmp_path / "spool", [0]), print, CONVERTER)
    with pytest.raises(Lo2ioError) as failed:
        dumper._run_child(["sh", "-c", 'printf "%s" "$1" >&2; exit 5', "sh", says])
    dumper.wait(lambda: False)
    assert str(failed.value) == text
