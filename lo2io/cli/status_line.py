"""The line on a terminal with the state of a recording."""

from __future__ import annotations

import sys
import threading
from typing import TYPE_CHECKING

from lo2io.units import format_bytes

if TYPE_CHECKING:
    from typing import TextIO

    from lo2io.model.status import Status

_START, _ERASE = "\r", "\x1b[K"
_MINUTE_S, _HOUR_S = 60, 3600


class StatusLine:
    """A line on a terminal that is drawn again in place. Before another message is printed, :meth:`clear` removes it.

    Args:
        stream: The terminal; by default stderr.
    """

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = sys.stderr if stream is None else stream
        self._lock = threading.Lock()
        self._shown = False

    def show(self, status: Status | None) -> None:
        """Draw the line again; None: the recording is over."""
        if status is None:
            self.clear()
            return
        import shutil  # brings in what unpacks archives, and a command's recording shows no status

        columns = shutil.get_terminal_size().columns
        with self._lock:
            self._stream.write(f"{_START}{render(status)[: columns - 1]}{_ERASE}")
            self._stream.flush()
            self._shown = True

    def clear(self) -> None:
        """Leave an empty line for other messages."""
        with self._lock:
            if self._shown:
                self._stream.write(f"{_START}{_ERASE}")
                self._stream.flush()
                self._shown = False


def render(status: Status) -> str:
    """The line's text."""
    parts = (
        _elapsed(status.elapsed_s),
        f"{_count(status.events_per_s)} events/s",
        f"{format_bytes(status.bytes_per_s)}/s",
        f"{status.nr_lost:,} lost",
        f"buffers {status.ring_fill:.0%} full",
        f"spool {format_bytes(status.spool_bytes)}",
    )
    return f"lo2io: {' · '.join(parts)}"


def _elapsed(seconds: float) -> str:
    whole = int(seconds)
    if whole < _MINUTE_S:
        return f"{whole} s"
    if whole < _HOUR_S:
        return f"{whole // _MINUTE_S}:{whole % _MINUTE_S:02} min"
    return f"{whole // _HOUR_S}:{whole % _HOUR_S // _MINUTE_S:02} h"


def _count(number: float) -> str:
    """A count; from a thousand on, three significant digits."""
    for unit, scale in (("", 1), ("k", 1e3), ("M", 1e6)):
        value = number / scale
        if value < 999.5 or unit == "M":  # noqa: PLR2004 - rounds to 1000
            return f"{value:.0f}" if not unit else f"{value:.3g} {unit}"
    raise AssertionError
