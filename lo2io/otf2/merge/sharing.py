"""Work shared between this process and others."""

from __future__ import annotations

from concurrent.futures import FIRST_COMPLETED, wait
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Executor, Future

_AHEAD: Final = 2
"""Pieces of work that wait for each other process. What waits takes memory."""


class Share:
    """Hands work to others as long as they have little. Then this process does the next piece itself.

    Args:
        executor: The others; None: there are none.
        nr_others: How many they are.
        by_messages: They are ranks of MPI, whose library may open files at any time.
    """

    def __init__(self, executor: Executor | None = None, nr_others: int = 0, *, by_messages: bool = False) -> None:
        self.by_messages = by_messages
        self._executor = executor if nr_others else None
        self._most = nr_others * (1 + _AHEAD)
        self._given: set[Future[Any]] = set()

    @property
    def has_others(self) -> bool:
        """Some work is done by other processes."""
        return self._executor is not None

    def do(self, function: Callable[..., object], *arguments: object) -> None:
        """Do a piece of work, here or elsewhere. What an earlier piece raised is raised here."""
        self._collect({future for future in self._given if future.done()})
        if self._executor is not None and len(self._given) < self._most:
            self._given.add(self._executor.submit(function, *arguments))
        else:
            function(*arguments)

    def finish(self) -> None:
        """Wait until all is done, and raise what a piece raised."""
        while self._given:
            self._collect(wait(self._given, return_when=FIRST_COMPLETED).done)

    def stop(self) -> None:
        """Wait for the pieces that have begun, and begin no other. After :meth:`finish` this does nothing."""
        wait([future for future in self._given if not future.cancel()])
        self._given.clear()

    def _collect(self, done: set[Future[Any]]) -> None:
        self._given -= done
        for future in done:
            future.result()
