"""Leftovers of killed recorders: what holds no event goes, all else stays."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lo2io.errors import UsageError
from lo2io.folder import Folder
from lo2io.spool.format import META_NAME
from lo2io.trace.directory import fresh_directory

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    """A directory whose recorder was killed before its first ``spool.json``."""
    spool = tmp_path / "T/spool"
    spool.mkdir(parents=True, mode=0o700)
    for name in ("cpu-0000.ring", "cpu-0000.calls", "facts.ring"):
        (spool / name).touch()
    (spool / ".reserve").write_bytes(bytes(4096))
    return tmp_path / "T"


def record_into(trace: Path) -> None:
    """Make the spool's directory as a recording does."""
    with Folder.open(trace) as held, fresh_directory(held, force=False) as spool:
        assert spool.names() == []


def test_a_spool_without_any_record_makes_way(trace: Path) -> None:
    """Without --force."""
    record_into(trace)


def test_a_spool_with_records_stays(trace: Path) -> None:
    """Also if its description is missing or cannot be read."""
    (trace / "spool/cpu-0000.ring").write_bytes(b"x")
    with pytest.raises(UsageError, match="it exists"):
        record_into(trace)
    (trace / "spool" / META_NAME).write_text("{")
    with pytest.raises(UsageError, match="it exists"):
        record_into(trace)


def test_a_spool_with_other_files_stays(trace: Path) -> None:
    """Somebody else's file is never removed."""
    (trace / "spool/notes.txt").touch()
    with pytest.raises(UsageError):
        record_into(trace)
    assert (trace / "spool/notes.txt").exists()


def test_windows_that_were_just_begun_go_and_others_stay(trace: Path) -> None:
    """An empty window, and one whose spool has no record; but not one with a file."""
    for name in ("dump-20261121-060000", "dump-20261121-060001/spool", "dump-20261121-060002"):
        (trace / name).mkdir(parents=True)
    (trace / "dump-20261121-060002/traces.otf2").touch()
    record_into(trace)
    assert {path.name for path in trace.iterdir()} == {"dump-20261121-060002", "spool"}
