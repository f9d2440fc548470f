"""Gaps: knowledge about descriptors ends with each. The slow engine's rules."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reference.fds import LONG_AGO

if TYPE_CHECKING:
    from reference.engine import Reference
    from reference.records import Stream


class Gaps:
    """Knows all gaps beforehand if the spool's counts show losses; else each from its ``LOST`` record on."""

    def __init__(self, engine: Reference, streams: list[Stream]) -> None:
        self.engine = engine
        self.known = engine.files.records_lost
        self.ahead: list[tuple[int, int]] = []
        self.until = LONG_AGO
        """The end of the last gap that has begun."""
        losses = [(begin, end) for stream in streams for begin, end, _ in stream.losses]
        pairs = sorted((LONG_AGO if begin is None else min(begin, end), end) for begin, end in losses)
        for begin, end in pairs if self.known else []:
            if self.ahead and begin <= self.ahead[-1][1]:
                self.ahead[-1] = (self.ahead[-1][0], max(end, self.ahead[-1][1]))
            else:
                self.ahead.append((begin, end))

    def spare(self, begin: int) -> bool:
        """True if nothing has been lost since ``begin``, as far as was seen by now."""
        return self.until <= begin

    def passed(self, time: int) -> None:
        """A record of that time comes next."""
        while self.ahead and time > self.ahead[0][0]:
            self.until = self.ahead[0][1]
            if time < self.until:
                return
            self._forget(self.until)
            self.ahead.pop(0)

    def told(self, end: int) -> None:
        """``LOST``."""
        if not self.known:
            self.until = max(self.until, end)
            self._forget(end)

    def _forget(self, time: int) -> None:
        self.engine.cache.lost()
        for table in {id(task.table): task.table for task in self.engine.tasks.alive.values()}.values():
            table.forget(time)
