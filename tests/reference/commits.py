"""Commits of journals, as the slow engine follows them."""

from __future__ import annotations

from typing import Any

MOMENTS = ("begin_time_ns", "locking_time_ns", "flushing_time_ns", "logging_time_ns", "end_time_ns")


class Commits:
    """The commit of each journal's thread."""

    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []
        self.under_way: dict[int, dict[str, Any]] = {}

    def told(self, time: int, values: dict[str, int]) -> None:
        """``COMMIT``."""
        moment, tid = values["moment"], values["tid"]
        whose = {name: values[name] for name in ("device", "transaction", "tid")}
        row = self.under_way.get(tid)
        if row is not None and not (
            whose.items() <= row.items() and all(row[each] is None for each in MOMENTS[moment:])
        ):
            self._end(tid)
        row = self.under_way.setdefault(tid, whose | dict.fromkeys(MOMENTS))
        row[MOMENTS[moment]] = time
        if moment == len(MOMENTS) - 1:
            self._end(tid)

    def finish(self) -> None:
        """Nothing more is told."""
        for tid in list(self.under_way):
            self._end(tid)

    def _end(self, tid: int) -> None:
        self.rows.append(self.under_way.pop(tid))
