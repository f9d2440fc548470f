"""The starts of records in a spool's file."""

from __future__ import annotations

import struct

import pytest

from lo2io.native.framing import FACTS, KERNEL, SAMPLES, list_records
from lo2io.native.records import DISCARDED, UNFINISHED, framed, pack


def sample(size: int) -> bytes:
    """A record of perf's."""
    return struct.pack("<IHH", 9, 0, size) + bytes(size - 8)


CALL = framed(pack("exit", 5, 9))


@pytest.mark.parametrize("kind", [SAMPLES, FACTS])
def test_perf_records(kind: int) -> None:
    """One after another; a half one is left for the next piece."""
    content = sample(16) + sample(40) + sample(24)
    places, end = list_records(kind, content + sample(32)[:20])
    assert (places.tolist(), end) == ([0, 2, 7], 80)
    assert list_records(kind, content + sample(32))[0].tolist() == [0, 2, 7, 10]


def test_kernel_records() -> None:
    """Discarded ones are passed over."""
    content = CALL + framed(bytes(3), DISCARDED) + CALL
    places, end = list_records(KERNEL, content + CALL[:-8])
    assert (places.tolist(), end) == ([0, len(CALL) // 8 + 2], len(content))


@pytest.mark.parametrize(
    ("kind", "before", "behind"),
    [
        (SAMPLES, sample(16), bytes(16)),
        (SAMPLES, sample(16), struct.pack("<IHHQ", 9, 0, 20, 0) + bytes(12)),
        (SAMPLES, sample(16), sample(8)),
        (KERNEL, CALL, bytes(8)),
        (KERNEL, CALL, framed(bytes(64), UNFINISHED)),
    ],
    ids=["no size", "half a word", "no time", "zeroes", "never finished"],
)
def test_what_is_no_record_ends_a_file(kind: int, before: bytes, behind: bytes) -> None:
    """Records after it cannot be framed."""
    places, end = list_records(kind, before + behind + before)
    assert places[0] == 0
    assert end is None


def test_nothing() -> None:
    """An empty piece, and one without a whole record."""
    for kind in (SAMPLES, KERNEL):
        for content in (b"", b"\x01", *([bytes(8), bytes(15)] if kind == SAMPLES else [])):
            places, end = list_records(kind, content)
            assert (len(places), end) == (0, 0)
