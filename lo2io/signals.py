"""Signals that end a command as Ctrl-C does, and one that ends a child with its parent."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_PR_SET_PDEATHSIG, _PR_GET_PDEATHSIG = 1, 2
"""include/uapi/linux/prctl.h."""


def end_with(parent: int, number: int) -> None:
    """In a child: the kernel sends this process a signal when its parent's forking thread ends, however that ends."""
    import ctypes  # noqa: PLC0415 - most commands have no such child

    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, number)
    if os.getppid() != parent:  # it ended before
        os._exit(1)


@contextlib.contextmanager
def end_kept() -> Iterator[None]:
    """Keep what :func:`end_with` asked for while this process changes its ids, for the kernel forgets it then."""
    import ctypes  # noqa: PLC0415 - most commands change no ids

    parent, number = os.getppid(), ctypes.c_int()
    ctypes.CDLL(None).prctl(_PR_GET_PDEATHSIG, ctypes.byref(number))
    try:
        yield
    finally:
        if number.value:
            end_with(parent, number.value)


@contextlib.contextmanager
def interrupted_by_signals() -> Iterator[None]:
    """SIGTERM and SIGHUP, unless ignored, raise KeyboardInterrupt as Ctrl-C does, with their number as its argument."""

    def interrupt(number: int, _: object) -> None:
        raise KeyboardInterrupt(number)

    numbers = [n for n in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(n) == signal.SIG_DFL]
    for number in numbers:
        signal.signal(number, interrupt)
    try:
        yield
    finally:
        for number in numbers:
            signal.signal(number, signal.SIG_DFL)


def interrupt_number(interrupt: KeyboardInterrupt) -> int:
    """The number of the signal that raised it."""
    return int(interrupt.args[0]) if interrupt.args else signal.SIGINT


@contextlib.contextmanager
def interrupts_held_back() -> Iterator[None]:
    """A KeyboardInterrupt that arrives inside is raised at the end of the block, for steps that belong together.

    Blocked signals would not help: the kernel hands a signal to any thread, and Python raises in the main thread.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[int] = []
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    before = {number: handler for number, handler in before.items() if callable(handler)}
    for number in before:
        signal.signal(number, lambda number, _: came.append(number))
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        if came:
            signal.raise_signal(came[0])


@contextlib.contextmanager
def ended_by_signals() -> Iterator[None]:
    """SIGTERM and SIGHUP, unless ignored, end the command as Ctrl-C does: unfinished work is undone first.

    Raises:
        SystemExit: A signal came. The exit code is the one that the signal would have caused.
    """
    try:
        with interrupted_by_signals():
            yield
    except KeyboardInterrupt as interrupt:
        if not interrupt.args:
            raise
        raise SystemExit(128 + interrupt.args[0]) from None
