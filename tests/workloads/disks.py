"""Block devices of a test's own."""

from __future__ import annotations

import contextlib
import os
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

from lo2io.units import kernel_dev

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextlib.contextmanager
def loop_device(image: Path, size_bytes: int = 16 << 20) -> Iterator[Path]:
    """A disk backed by a new sparse file, which is read and written through the page cache."""
    with image.open("wb") as file:
        file.truncate(size_bytes)
    command = ["losetup", "--find", "--show", "--direct-io=off", str(image)]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    assert found.returncode == 0, f"losetup: {found.stderr}"
    device = found.stdout.strip()
    try:
        yield Path(device)
    finally:
        subprocess.run(["losetup", "--detach", device], check=True)


def device_number(device: Path) -> int:
    """The number in the tracepoints' form."""
    number = device.stat().st_rdev
    return kernel_dev(os.major(number), os.minor(number))
