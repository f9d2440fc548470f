"""Results kept for the next recording: only what root wrote, for the same key, is used."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest

from lo2io.bpf import kept

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

KIND = "programs"
KEY = ["object", 1, 2, b"build id", "#1 SMP", ["lo2_fork"]]
PLAN: dict[str, Any] = {"maps": [{"name": "lo2_cpus", "value": None}], "programs": [], "types": b"btf"}


@pytest.fixture(autouse=True)
def folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """In place of /run/lo2io, with the user of the tests in place of root."""
    monkeypatch.setattr(kept, "FOLDER", tmp_path / "kept")
    monkeypatch.setattr(kept, "_is_root", lambda: True)
    assert kept.may_keep()
    return tmp_path / "kept"


def test_a_plan_is_read_back(folder: Path) -> None:
    """With the same key, and in files and a folder that nobody else may read."""
    kept.keep(KIND, KEY, PLAN)
    assert kept.read(KIND, KEY) == PLAN
    (file,) = folder.iterdir()
    assert (folder.stat().st_mode & 0o777, file.stat().st_mode & 0o777) == (0o700, 0o600)


def test_another_kernel_or_object_has_another_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if both keys had the same file."""
    kept.keep(KIND, KEY, PLAN)
    file = kept.place(KIND, KEY)
    for place in range(len(KEY)):
        other = [*KEY[:place], "other", *KEY[place + 1 :]]
        assert kept.read(KIND, other) is None
        with monkeypatch.context() as patched:
            patched.setattr(kept, "place", lambda *_: file)
            assert kept.read(KIND, other) is None


def _link(file: Path) -> None:
    file.rename(file.with_name("other"))
    file.symlink_to("other")


def _damage(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)


@pytest.mark.parametrize(
    "spoil",
    [
        lambda file: file.chmod(0o620),
        lambda file: file.parent.chmod(0o770),
        _link,
        _damage,
        lambda file: file.write_bytes(b""),
        lambda file: os.truncate(file, 40),
    ],
    ids=["file of others", "folder of others", "link", "damaged", "empty", "cut"],
)
def test_a_file_that_is_not_roots_own_is_not_used(folder: Path, spoil: Callable[[Path], None]) -> None:
    """It is as if there were none."""
    kept.keep(KIND, KEY, PLAN)
    (file,) = folder.iterdir()
    spoil(file)
    assert kept.read(KIND, KEY) is None


def test_others_than_root_keep_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their files could be used by root."""
    kept.keep(KIND, KEY, PLAN)
    monkeypatch.setattr(kept, "_is_root", lambda: False)
    assert not kept.may_keep()
    assert kept.read(KIND, KEY) is None


def test_the_oldest_goes(folder: Path) -> None:
    """There are never more files than allowed."""
    keys = [[*KEY[:-1], [str(number)]] for number in range(kept.MAX_KEPT + 2)]
    for number, key in enumerate(keys):
        kept.keep(KIND, key, PLAN)
        os.utime(kept.place(KIND, key), (number, number))
    assert [kept.read(KIND, key) is not None for key in keys] == [False] * 2 + [True] * kept.MAX_KEPT
    assert len(list(folder.iterdir())) == kept.MAX_KEPT


def test_kinds_have_files_of_their_own(folder: Path) -> None:
    """One kind neither shows nor removes what another keeps."""
    kept.keep("functions", KEY, {1: "f"})
    for number in range(kept.MAX_KEPT + 1):
        kept.keep(KIND, [number], PLAN)
    assert kept.read(KIND, KEY) is None
    assert kept.read("functions", KEY) == {1: "f"}
    assert len(list(folder.iterdir())) == kept.MAX_KEPT + 1
