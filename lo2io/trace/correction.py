"""The correction of a host's clock: what makes it the clock of all hosts.

A correction is a broken line through points of time and offset. The formula is that of libotf2 (OTF2_EvtReader.c). So a
table's time is that of the event in the archive, to the nanosecond.
"""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING, Any

import numpy as np

from lo2io.errors import TraceError
from lo2io.frozen import dataclass

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from numpy.typing import NDArray


def _no_times() -> NDArray[np.int64]:
    return np.empty(0, np.int64)


@dataclass(frozen=True, slots=True)
class Correction:
    """Break points, in rising order. One line leads from each to the next; the first and the last line go on.

    Attributes:
        time_ns: Of the host's clock.
        offset_ns: What is added there.
    """

    time_ns: NDArray[np.int64] = field(default_factory=_no_times)
    offset_ns: NDArray[np.int64] = field(default_factory=_no_times)

    def __len__(self) -> int:
        return len(self.time_ns)

    def apply(self, times: Any) -> NDArray[np.int64]:
        """Times of the host's clock, as the clock of all hosts has them."""
        own = np.asarray(times, np.int64)
        if not len(self):
            return own
        first = np.clip(np.searchsorted(self.time_ns, own, "right") - 1, 0, len(self) - 2)
        rise = (self.offset_ns[1:] - self.offset_ns[:-1]) / (self.time_ns[1:] - self.time_ns[:-1])
        bend = np.rint(rise[first] * (own - self.time_ns[first]).astype(np.float64)).astype(np.int64)
        corrected: NDArray[np.int64] = own + self.offset_ns[first] + bend
        return corrected

    def one(self, time_ns: int) -> int:
        """One time, as by :meth:`apply`."""
        return int(self.apply([time_ns])[0])


def correction_of(points: Sequence[tuple[int, int]]) -> Correction:
    """The correction through points of time and offset. One point is a constant offset; none changes nothing.

    Raises:
        ValueError: The times do not rise.
    """
    if len(points) == 1:  # a line needs two, and libotf2 ignores a single offset
        points = (points[0], (points[0][0] + 1, points[0][1]))
    times = np.array([time for time, _ in points], np.int64)
    if (np.diff(times) <= 0).any():
        raise ValueError("the times of a correction's points do not rise")
    return Correction(times, np.array([offset for _, offset in points], np.int64))


def load_correction(path: Path) -> Correction:
    """The correction in a file of Arrow: columns ``time_ns`` and ``offset_ns``. Without the file: none.

    Raises:
        TraceError: The file is damaged.
    """
    if not path.exists():
        return Correction()
    import pyarrow as pa  # noqa: PLC0415 - a fifth of a second

    try:
        table = pa.ipc.open_file(path).read_all()
        rows = zip(table["time_ns"].to_pylist(), table["offset_ns"].to_pylist(), strict=True)
        return correction_of(list(rows))
    except (pa.ArrowException, KeyError, ValueError, TypeError, OSError) as error:
        raise TraceError(f"reading {path}", str(error), "remove the file, and merge again") from error
