"""Signals that end a command wait while steps that belong together are done."""

from __future__ import annotations

import signal
import threading

import pytest

from lo2io.signals import interrupted_by_signals, interrupts_held_back


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_an_interrupt_waits_for_the_last_step(number: int) -> None:
    """All steps are done, then the interrupt comes, once. Afterwards, interrupts come at once again."""
    wanted = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: signal.SIG_DFL, signal.SIGHUP: signal.SIG_DFL}
    before = {each: signal.signal(each, handler) for each, handler in wanted.items()}  # nohup's tests have others
    done = []

    def steps() -> None:
        with interrupted_by_signals(), interrupts_held_back():
            for step in ("first", "second"):
                signal.raise_signal(number)
                done.append(step)

    try:
        with pytest.raises(KeyboardInterrupt):
            steps()
        assert done == ["first", "second"]
        with pytest.raises(KeyboardInterrupt), interrupted_by_signals():
            signal.raise_signal(number)
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


def test_an_ignored_signal_stays_ignored() -> None:
    """Under nohup, for example."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with interrupts_held_back():
            signal.raise_signal(signal.SIGHUP)
        assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


def test_other_threads_have_no_interrupts() -> None:
    """Only the main thread may set handlers, so other threads need not wait."""
    done = []

    def steps() -> None:
        with interrupts_held_back():
            done.append(True)

    thread = threading.Thread(target=steps)
    thread.start()
    thread.join()
    assert done == [True]
