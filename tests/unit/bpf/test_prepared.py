"""Programs kept for the next start: only what root wrote, for this kernel and this object, is used."""

from __future__ import annotations

import contextlib
import errno
import struct
from typing import Any
from unittest.mock import Mock

import pytest

from lo2io.bpf import prepared


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
