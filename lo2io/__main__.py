"""``lo2io``, and ``python -m lo2io``: the steps before the command line is loaded."""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType


def _occupy_standard_streams() -> None:
    """Open /dev/null in place of a closed stdin, stdout or stderr, so that no file of lo2io gets their numbers.

    Python opens it close-on-exec, so the command to record finds these streams closed, as the user left them. For a
    closed stream Python has None, and print() would send messages for stderr to stdout.
    """
    for fd, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(fd)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # it gets the lowest free number, which is this one
            setattr(sys, name, open(fd, "w" if fd else "r", encoding="utf-8", closefd=False))  # noqa: SIM115


def _handle(number: signal.Signals, handler: Callable[[int, FrameType | None], object] | signal.Handlers) -> None:
    """Set what a signal does. A kernel that refuses that is no reason to end: the signal does what it did."""
    with contextlib.suppress(OSError):
        signal.signal(number, handler)


def main() -> None:
    """Load and run the command line. Ctrl-C while it loads ends the process without a traceback.

    The process ends at once after the command: Python's own end takes its modules apart, for a tenth of a second.
    """
    _occupy_standard_streams()
    if sys.argv[1:2] in (["record"], ["system-wide"]) and signal.getsignal(signal.SIGUSR1) == signal.SIG_DFL:
        # A request for a flight recorder's window that comes before the recorder is ready. A handler, unlike SIG_IGN,
        # is not passed on to the command.
        _handle(signal.SIGUSR1, lambda *_: None)
    gc.set_threshold(100_000)  # a command's imports make many objects and hardly any cycle: looking for these takes 6 %
    interruptible = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if interruptible:
        _handle(signal.SIGINT, signal.SIG_DFL)
    from lo2io.cli import main as line  # noqa: PLC0415 - this takes long

    command = line.load(sys.argv[1:])
    if interruptible:
        _handle(signal.SIGINT, signal.default_int_handler)
    try:
        line.main(command)
    except SystemExit as end:
        if not isinstance(end.code, int | None):
            raise
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(Exception):  # whoever listens no longer has been told of
                stream.flush()
        os._exit((end.code or 0) & 0xFF)


if __name__ == "__main__":
    main()
