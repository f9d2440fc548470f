"""Rules about devices. Each rule takes the sums and gives findings. Rows are block requests of ``requests``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lo2io.model import UNKNOWN_I64
from lo2io.reports.findings.finding import Finding
from lo2io.reports.summary.io import device_name
from lo2io.reports.summary.tally import MERGED, NR_REQUEST_OPS
from lo2io.trace.reader import REQUEST_OPERATION
from lo2io.units import format_duration

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np
    from numpy.typing import NDArray

    from lo2io.model import Columns
    from lo2io.reports.summary.sums import TraceSums

SOME: Final = 100
"""Least number of queued reads."""
DEEP: Final = 4.0
"""Least mean number of reads that wait while the device is in use."""

_READ: Final = REQUEST_OPERATION.index("read")


def queue_saturation(sums: TraceSums) -> list[Finding]:
    """Reads wait longer in the queue than in the device, so programs ask for more than the device can do.

    Writes do not count: write-back and syncs send many writes at once, and the last of them has to wait.
    """
    requests = sums.requests
    found = []
    for index, device in enumerate(requests.devices.tolist()):
        reads = index * NR_REQUEST_OPS + _READ
        queue, served = requests.queue.latency(reads), requests.device.latency(reads)
        span_ns = int(requests.last_ns[index] - requests.first_ns[index])
        if span_ns <= 0 or queue.nr < SOME or queue.p50_ns <= served.p50_ns:
            continue
        waiting = queue.total_ns / span_ns  # Little's law: the mean number is arrivals times mean time
        if waiting < DEEP:
            continue
        found.append(
            Finding(
                "queue-saturation",
                device_name(sums.trace.metadata, device),
                f"{queue.nr:,} reads waited, {waiting:.1f} at a time on average; half of them over "
                f"{format_duration(queue.p50_ns)}, where the device takes {format_duration(served.p50_ns)}",
                {
                    "queued": queue.nr,
                    "waiting": round(waiting, 3),
                    "at_device": round(served.total_ns / span_ns, 3),
                    "queue_p50_ns": queue.p50_ns,
                    "device_p50_ns": served.p50_ns,
                },
                "requests",
                queue.nr,
                _queued(device),
            )
        )
    return found


DEVICE_RULES: Final[dict[str, Callable[[TraceSums], list[Finding]]]] = {"queue-saturation": queue_saturation}


def _queued(device: int) -> Callable[[Columns], NDArray[np.bool_]]:
    def where(rows: Columns) -> NDArray[np.bool_]:
        known = (rows["insert_time_ns"] != UNKNOWN_I64) & (rows["issue_time_ns"] != UNKNOWN_I64)
        known &= (rows["device"] == device) & (rows["operation"] == _READ)
        found: NDArray[np.bool_] = known & (rows["status"] != MERGED)
        return found

    return where
