"""Units and their conversions; they are converted nowhere else."""

from __future__ import annotations

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


def format_bytes(size: float) -> str:
    """``1.5 MiB``: three significant digits, powers of 1024."""
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if abs(size) < 1024 or unit == "TiB":  # noqa: PLR2004
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.3g} {unit}"
        size /= 1024
    raise AssertionError


def format_duration(ns: float) -> str:
    """``1.5 ms``: three significant digits."""
    for unit, scale in (("ns", 1), ("µs", 1e3), ("ms", 1e6)):
        if abs(ns) < scale * 1000:
            return f"{ns / scale:.3g} {unit}"
    return f"{ns / NS_PER_S:.4g} s"
