"""Programs kept for the next start: only what root wrote, for this kernel and this object, is used."""

from __future__ import annotations

import contextlib
import errno
import os
import struct
from typing import TYPE_CHECKING, Any
from unittest.mock import Mock

import pytest

from lo2io.bpf import prepared

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

KEY = ["object", 1, 2, b"build id", "#1 SMP", ["lo2_fork"]]
PLAN: dict[str, Any] = {"maps": [{"name": "lo2_cpus", "value": None}], "programs": [], "types": b"btf"}


@pytest.fixture(autouse=True)
def folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """In place of /run/lo2io, with the user of the tests in place of root."""
    monkeypatch.setattr(prepared, "FOLDER", tmp_path / "kept")
    monkeypatch.setattr(prepared, "_is_root", lambda: True)
    assert prepared._may_keep()
    return tmp_path / "kept"


def test_a_plan_is_read_back(folder: Path) -> None:
    """With the same key, and in files and a folder that nobody else may read."""
    prepared._keep(KEY, PLAN)
    assert prepared._read(KEY) == PLAN
    (file,) = folder.iterdir()
    assert (folder.stat().st_mode & 0o777, file.stat().st_mode & 0o777) == (0o700, 0o600)


def test_another_kernel_or_object_has_another_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if both keys had the same file."""
    prepared._keep(KEY, PLAN)
    kept = prepared._place(KEY)
    for place in range(len(KEY)):
        other = [*KEY[:place], "other", *KEY[place + 1 :]]
        assert prepared._read(other) is None
        with monkeypatch.context() as patched:
            patched.setattr(prepared, "_place", lambda _: kept)
            assert prepared._read(other) is None


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
    prepared._keep(KEY, PLAN)
    (file,) = folder.iterdir()
    spoil(file)
    assert prepared._read(KEY) is None


def test_others_than_root_keep_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their files could be used by root."""
    prepared._keep(KEY, PLAN)
    monkeypatch.setattr(prepared, "_is_root", lambda: False)
    assert not prepared._may_keep()
    assert prepared._read(KEY) is None


def test_the_oldest_goes(folder: Path) -> None:
    """There are never more files than allowed."""
    keys = [[*KEY[:-1], [str(number)]] for number in range(prepared.MAX_KEPT + 2)]
    for number, key in enumerate(keys):
        prepared._keep(key, PLAN)
        os.utime(prepared._place(key), (number, number))
    assert [prepared._read(key) is not None for key in keys] == [False] * 2 + [True] * prepared.MAX_KEPT
    assert len(list(folder.iterdir())) == prepared.MAX_KEPT


def test_loads_of_maps_are_found() -> None:
    """An instruction of 64 bits takes two places. The second is no instruction of its own."""

    def insn(code: int, source: int, number: int) -> bytes:
        return struct.pack("<BBhi", code, source << 4, 0, number)

    code = insn(0xB7, 0, 1) + insn(0x18, 1, 5) + insn(0x18, 1, 9) + insn(0x18, 0, 7) + insn(0, 0, 0) + insn(0x18, 2, 6)
    assert list(prepared._map_loads(code + insn(0, 0, 64))) == [(1, 5), (5, 6)]


def test_loads_of_maps_are_found_in_code() -> None:
    """Wide instructions have two places. Other wide loads, and the second half of one, are none."""

    def load(kind: int, number: int) -> bytes:
        return struct.pack("<BBhi", 0x18, kind << 4 | 1, 0, number) + struct.pack("<BBhi", 0x18, 1 << 4, 0, -1)

    move = struct.pack("<BBhi", 0xB7, 1, 0, 7)
    code = load(1, 5) + move + load(0, 9) + load(2, -3) + move + load(1, 6)
    assert list(prepared._map_loads(code)) == [(0, 5), (5, -3), (8, 6)]
    assert list(prepared._map_loads(b"")) == []


@pytest.mark.parametrize("refused", [False, True])
def test_maps_that_cannot_be_filled_are_an_error(refused: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Though a thread of its own fills them: whoever waits for it is told."""
    put = Mock(side_effect=OSError(errno.ENOMEM, "no memory") if refused else None)
    monkeypatch.setattr(prepared.libbpf, "put_fds", put)
    made: Any = prepared._Loaded.__new__(prepared._Loaded)
    made._maps = {"rings": 7}
    told = pytest.raises(OSError, match="no memory") if refused else contextlib.nullcontext()
    with told, made._filling({"rings": {0: 5}}):
        pass
    put.assert_called_once_with(7, {0: 5})
