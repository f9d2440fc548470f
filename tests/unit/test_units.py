"""Times and sizes in the form that people write."""

from __future__ import annotations

import pytest

from lo2io.errors import UsageError
from lo2io.units import kernel_dev, parse_duration, parse_share, split_kernel_dev


@pytest.mark.parametrize(
    ("text", "ns"),
    [
        ("30s", 30_000_000_000),
        ("30", 30_000_000_000),
        ("500 ms", 500_000_000),
        ("1.5ms", 1_500_000),
        ("100us", 100_000),
        ("100µs", 100_000),
        ("7ns", 7),
        ("5min", 300_000_000_000),
        ("1h", 3_600_000_000_000),
    ],
)
def test_durations(text: str, ns: int) -> None:
    """Every unit, fractions, and seconds without one."""
    assert parse_duration(text) == ns


@pytest.mark.parametrize("text", ["", "s", "-1s", "1 day", "1s2", "1,5s", "0x10s", "1e3s"])
def test_what_is_no_duration(text: str) -> None:
    """The error shows how to write a duration."""
    with pytest.raises(UsageError, match="this is no length of time") as caught:
        parse_duration(text)
    assert "30s" in caught.value.remedy


@pytest.mark.parametrize(("text", "rate"), [("1/1", 1), ("1/100", 100), (" 1 / 7 ", 7), ("1/4294967295", 2**32 - 1)])
def test_shares(text: str, rate: int) -> None:
    """One in so many, up to the engine's largest count."""
    assert parse_share(text) == rate


@pytest.mark.parametrize(
    "text", ["", "1", "100", "2/100", "1/0", "1/", "/100", "1/1.5", "1/-1", "1%", "1/4294967296", "1/٣"]
)
def test_what_is_no_share(text: str) -> None:
    """A share that is this is not of the form 1/N is refused, too; the error shows how to write one."""
    with pytest.raises(UsageError, match="this is not of the form 1/N") as caught:
        parse_share(text)
    assert "1/100" in caught.value.remedy


@pytest.mark.parametrize("pair", [(0, 0), (7, 1), (8, (1 << 20) - 1), ((1 << 12) - 1, 0)])
def test_numbers_of_devices(pair: tuple[int, int]) -> None:
    """Major and minor come back, with the highest bits of each."""
    assert split_kernel_dev(kernel_dev(*pair)) == pair
