"""Notices for the user during a recording, and the part of them that the spool keeps."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from lo2io.model.notices import Notice, NoticeKind

NOTICES_KEPT = 100
"""The number of first notices, and of last ones, that are kept."""


class Notices:
    """Passes each notice on and keeps it for the spool. If there are very many, it keeps the first and the last.

    Attributes:
        kinds: Every kind of notice that has been taken.
    """

    def __init__(self, tell: Callable[[Notice], None]) -> None:
        self.kinds: set[NoticeKind] = set()
        self._first: list[str] = []
        self._last: deque[str] = deque(maxlen=NOTICES_KEPT)
        self._passed_over = 0
        self._tell = tell

    def __call__(self, notice: Notice) -> None:
        """Take a notice."""
        self.kinds.add(notice.kind)
        if len(self._first) < NOTICES_KEPT:
            self._first.append(notice.text)
        else:
            self._passed_over += len(self._last) == NOTICES_KEPT
            self._last.append(notice.text)
        self._tell(notice)

    @property
    def texts(self) -> tuple[str, ...]:
        """The kept notices. A recording of days with a window every minute has more notices than anyone would read."""
        between = [f"{self._passed_over} further notices are not kept"] if self._passed_over else []
        return (*self._first, *between, *self._last)
