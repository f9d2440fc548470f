"""Units and their conversions. No other module converts units."""

from __future__ import annotations

import re

from lo2io.errors import UsageError

SECTOR_BYTES = 512
"""The block layer's sector, whatever the device's own block size."""
NS_PER_S = 1_000_000_000
MINOR_BITS = 20
"""Kernel-internal dev_t: major << 20 | minor (include/linux/kdev_t.h)."""


def kernel_dev(major: int, minor: int) -> int:
    """Kernel-internal ``dev_t``, as tracepoints print it."""
    return major << MINOR_BITS | minor


def split_kernel_dev(dev: int) -> tuple[int, int]:
    """Major and minor of a kernel-internal ``dev_t``."""
    return dev >> MINOR_BITS, dev & ((1 << MINOR_BITS) - 1)


def parse_bytes(text: str) -> int:
    """Read ``8MiB``, ``512k``, ``4096``: powers of 1024, with or without ``iB``.

    Raises:
        UsageError: The text is no size.
    """
    match = re.fullmatch(r"(\d+)\s*([kmgt]?)(i?b)?", text.strip().lower())
    if not match:
        raise UsageError(f"read the size {text!r}", "this is no size", "write it like 4096, 512KiB or 8MiB")
    return int(match[1]) << 10 * " kmgt".index(match[2] or " ")


_TIME_UNITS_NS = {
    "ns": 1,
    "us": 1_000,
    "µs": 1_000,
    "ms": 1_000_000,
    "s": NS_PER_S,
    "min": 60 * NS_PER_S,
    "h": 3600 * NS_PER_S,
}


def parse_duration(text: str) -> int:
    """Read ``30s``, ``1.5ms``, ``5min``, ``1h`` as nanoseconds. A number without a unit is in seconds.

    Raises:
        UsageError: The text is no length of time.
    """
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([a-zµ]*)", text.strip().lower())
    unit = None if not match else _TIME_UNITS_NS.get(match[2] or "s")
    if not match or unit is None:
        raise UsageError(f"read the time {text!r}", "this is no length of time", "write it like 500ms, 30s, 5min or 1h")
    return round(float(match[1]) * unit)


MAX_RATE = (1 << 32) - 1
"""The largest N of a share 1/N: the engine has uint32 for it."""


def parse_share(text: str) -> int:
    """Read ``1/100``, a share of one in N, and return N.

    Raises:
        UsageError: The text is not of the form ``1/N``.
    """
    match = re.fullmatch(r"1\s*/\s*([0-9]{1,10})", text.strip())
    rate = int(match[1]) if match else 0
    if not 1 <= rate <= MAX_RATE:
        raise UsageError(f"read the share {text!r}", "this is not of the form 1/N", "write it like 1/10 or 1/1000")
    return rate


def format_bytes(size: float) -> str:
    """``1.5 MiB``: three significant digits, powers of 1024."""
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if abs(size) < 1024 or unit == "TiB":  # noqa: PLR2004
            return f"{size:.0f} {unit}" if unit == "B" else f"{_digits(size, 3)} {unit}"
        size /= 1024
    raise AssertionError


def format_duration(ns: float) -> str:
    """``1.5 ms``: three significant digits."""
    for unit, scale in (("ns", 1), ("µs", 1e3), ("ms", 1e6)):
        if abs(ns) < scale * 1000:
            return f"{_digits(ns / scale, 3)} {unit}"
    return f"{_digits(ns / NS_PER_S, 4)} s"


def _digits(value: float, digits: int) -> str:
    """A number with this many significant digits, never with an exponent: 1023 KiB and 1,000,000 s have more digits."""
    return f"{value:.{digits}g}" if abs(value) < 10**digits - 0.5 else f"{value:,.0f}"
