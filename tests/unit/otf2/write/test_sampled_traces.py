"""A trace has the rate of its sampled ring requests; converting may lower it, never raise it."""

from __future__ import annotations

import dataclasses
import subprocess
from typing import TYPE_CHECKING

import pytest
from build.perfwriter import SpoolBuilder

from lo2io.convert.convert import convert
from lo2io.errors import UsageError
from lo2io.spool.format import META_NAME, dump_meta, parse_meta
from lo2io.trace.reader import open_trace

if TYPE_CHECKING:
    from pathlib import Path


def definitions(trace: Path) -> str:
    """otf2-print's output about the archive."""
    command = ["otf2-print", "-I", trace / "traces.otf2"]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return " ".join(said.split())


@pytest.fixture
def spool(tmp_path: Path) -> Path:
    """An empty recording that keeps one request in ten."""
    folder = SpoolBuilder(tmp_path / "spool", 2).write()
    name = folder / META_NAME
    name.write_bytes(dump_meta(dataclasses.replace(parse_meta(name.read_bytes()), sample_rate=10)))
    return folder


@pytest.mark.parametrize(("wanted", "rate"), [(None, 10), (10, 10), (11, 11), (1000, 1000)])
def test_the_rate_stands_in_the_trace(spool: Path, tmp_path: Path, wanted: int | None, rate: int) -> None:
    """In the tables' metadata, in a property of the archive, and in the last line."""
    converted = convert(spool, tmp_path / "T", sample_rate=wanted)
    assert open_trace(tmp_path / "T").metadata["sample_rate"] == rate
    assert f"LO2IO::IO_URING_SAMPLE_RATE Property value {rate} " in definitions(tmp_path / "T")
    assert converted.sampled == f"sampled: 1 in {rate:,} of 0 requests of rings written"


def test_all_of_them_need_no_word(tmp_path: Path) -> None:
    """No property and nothing in the last line, where nothing is left out."""
    spool = SpoolBuilder(tmp_path / "spool", 2).write()
    converted = convert(spool, tmp_path / "T")
    assert "SAMPLE_RATE" not in definitions(tmp_path / "T")
    assert converted.sampled == ""


@pytest.mark.parametrize("wanted", [1, 9])
def test_more_than_was_chosen_is_refused(spool: Path, tmp_path: Path, wanted: int) -> None:
    """As with filters, omissions while recording are final; nothing is written."""
    with pytest.raises(UsageError, match="1/10 was chosen when recording") as caught:
        convert(spool, tmp_path / "T", sample_rate=wanted)
    assert "1/10 at most" in caught.value.remedy
    assert not (tmp_path / "T").exists()
