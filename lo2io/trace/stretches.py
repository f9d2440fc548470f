"""The call of each stretch without a CPU. A worker's stretch belongs to a request, so it is handed out at once.

The engine writes a stretch before its call's row, perhaps batches earlier: the call is the next one that the thread
ends. So stretches wait here for that row. Memory: the stretches of calls that have not ended.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from lo2io.model import Batch, Columns

NO_OPERATION = 0
"""No operation has this id."""


class Stretches:
    """Takes the stretches of batches, and hands each out with the id of its call."""

    def __init__(self) -> None:
        self._open: Columns = {}

    def take(self, batch: Batch) -> Columns:
        """Take a batch. Return the columns of stretches whose calls are known now, in the order of their starts.

        The arrays do not depend on the batch's memory.
        """
        fresh = batch.off_cpu
        if not self._open:
            self._open = {name: values[:0].copy() for name, values in fresh.items()}
        if not len(fresh["task"]) and not len(self._open["task"]):
            return {**self._open, "operation": np.zeros(0, np.uint64)}
        rows = {name: np.concatenate([values, fresh[name]]) for name, values in self._open.items()}
        place, found = _find(rows, batch)
        of_request = rows["request"] != NO_OPERATION
        found |= of_request
        self._open = {name: values[~found] for name, values in rows.items()}
        known = {name: values[found] for name, values in rows.items()}
        operation = np.full(len(of_request), NO_OPERATION, np.uint64)
        operation[found & ~of_request] = batch.operations["id"][place[found & ~of_request]]
        return {**known, "operation": operation[found]}

    def rest(self) -> Columns:
        """The stretches whose calls never came."""
        return {**self._open, "operation": np.full(len(self._open.get("task", ())), NO_OPERATION, np.uint64)}


def _find(rows: Columns, batch: Batch) -> tuple[NDArray[np.intp], NDArray[np.bool_]]:
    """For each stretch, the place of its call among the batch's operations, and True if the call is there."""
    tasks = batch.operations["task"].astype(np.uint64)
    if not len(tasks):
        return np.zeros(len(rows["task"]), np.intp), np.zeros(len(rows["task"]), np.bool_)
    shift = np.uint64(32)
    keys = tasks << shift | np.arange(len(tasks), dtype=np.uint64)
    order = np.argsort(keys)
    begin = np.uint64(batch.first_operation)
    first = np.minimum(np.maximum(rows["before"], begin) - begin, np.uint64(0xFFFFFFFF))
    wanted = rows["task"].astype(np.uint64) << shift | first
    place = order[np.minimum(np.searchsorted(keys[order], wanted), len(keys) - 1)]
    return place, (tasks[place] == rows["task"]) & (place >= first)
