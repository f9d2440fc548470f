"""What ``lo2io top`` shows of one window: plain values, which are the keys of its ``--json``."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Final

SCHEMA: Final = "lo2io-top"
SCHEMA_VERSION: Final = 3


@dataclass(frozen=True, slots=True)
class Spread:
    """Latencies of ``nr`` operations in ns: exact nearest-rank percentiles; zeros without any."""

    nr: int
    p50_ns: int
    p99_ns: int
    max_ns: int


@dataclass(frozen=True, slots=True)
class Activity:
    """System calls and requests of rings that ended in the window.

    ``latency`` is of those that read, write or flush: a call from entry to exit, a request from submission to its last
    completion. ``time_ns`` sums up all calls' durations, over all threads.
    """

    operations: int
    errors: int
    bytes_read: int
    bytes_written: int
    time_ns: int
    latency: Spread


@dataclass(frozen=True, slots=True)
class ProcessNow:
    """One process; ``pid`` None: threads nobody announced."""

    pid: int | None
    process: str | None
    """Its name: its title or script where the command line tells, else the kernel's."""
    activity: Activity


@dataclass(frozen=True, slots=True)
class FileNow:
    """All files of one path on one device.

    ``kind``: ``named``, ``unnamed`` (all unnamed descriptors of a process) or ``none`` (no descriptor).
    """

    kind: str
    path: str | None
    pid: int | None
    process: str | None
    activity: Activity


@dataclass(frozen=True, slots=True)
class DeviceNow:
    """One disk's requests that ended in the window; ``in_flight`` had not at its end.

    ``busy_ns``: some request was at the device. ``queue``: insert to issue; ``device``: issue to completion.
    """

    name: str
    requests: int
    errors: int
    bytes_read: int
    bytes_written: int
    in_flight: int
    busy_ns: int
    queue: Spread
    device: Spread


@dataclass(frozen=True, slots=True)
class Window:
    """The newest part of a recording that goes on.

    Amounts are the window's, not per second; lists begin with the most bytes.
    """

    span_ns: int
    total: Activity
    processes: tuple[ProcessNow, ...]
    files: tuple[FileNow, ...]
    devices: tuple[DeviceNow, ...]
    lost: int
    """Records for which a ring had no room."""
    vanished: int
    """Samples that were counted, and never delivered."""
    proven: bool
    """The recording of the window is proven complete."""

    def as_json(self) -> dict[str, Any]:
        """One object a window, with its schema."""
        return {"schema": SCHEMA, "schema_version": SCHEMA_VERSION, **asdict(self)}
