"""Signals that end a command as Ctrl-C does."""

from __future__ import annotations

import contextlib
import signal
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextlib.contextmanager
def interrupted_by_signals() -> Iterator[None]:
    """SIGTERM and SIGHUP, unless they are ignored, raise what Ctrl-C raises, with their number as its argument."""

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


@contextlib.contextmanager
def interrupts_held_back() -> Iterator[None]:
    """What would raise KeyboardInterrupt meanwhile does so at the end: for steps that belong together.

    Blocking the signals would not do: the kernel hands them to any thread, and Python raises in the main one.
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
    """SIGTERM and SIGHUP, unless they are ignored, end the command as Ctrl-C does: what is half done is undone first.

    Raises:
        SystemExit: One came; with the exit code that it would have given by itself.
    """
    try:
        with interrupted_by_signals():
            yield
    except KeyboardInterrupt as interrupt:
        if not interrupt.args:
            raise
        raise SystemExit(128 + interrupt.args[0]) from None
