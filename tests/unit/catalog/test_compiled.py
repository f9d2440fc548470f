"""The compiled catalog equals the files', and is made anew when they change."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING

from lo2io.catalog import compiled
from lo2io.catalog.catalog import _load, load_catalog

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def test_the_catalog_survives_being_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second time, the files are not read; a changed or unreadable file is made anew."""
    monkeypatch.setattr("sys.dont_write_bytecode", False)
    monkeypatch.setattr("sys.pycache_prefix", str(tmp_path))
    asked: list[Path] = []

    def make(directory: Path) -> object:
        asked.append(directory)
        return _load(directory)

    first = compiled.load("catalog", make)
    assert compiled.load("catalog", make) == first == load_catalog()
    assert len(asked) == 1
    (kept,) = tmp_path.rglob("*.pickle")
    known, catalog = pickle.loads(kept.read_bytes())  # noqa: S301 - its own
    kept.write_bytes(pickle.dumps((known[1:], catalog)))
    assert compiled.load("catalog", make) == first
    kept.write_bytes(b"nothing")
    assert compiled.load("catalog", make) == first
    assert len(asked) == 3
    monkeypatch.setattr("sys.dont_write_bytecode", True)
    kept.unlink()
    compiled.load("catalog", make)
    assert not kept.exists()
