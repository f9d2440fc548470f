"""``lo2io``, and ``python -m lo2io``: what comes before the command line is loaded."""

import contextlib
import os
import signal
import sys


def main() -> None:
    """Load and run it. Who presses Ctrl-C meanwhile ends a program that has done nothing yet, not a traceback.

    The process ends with the command: Python would take its modules apart one by one before, for a tenth of a second.
    """
    interruptible = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if interruptible:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from lo2io.cli import main as run  # noqa: PLC0415 - that is what takes its time

    if interruptible:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        run()
    except SystemExit as end:
        if not isinstance(end.code, int | None):
            raise
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(Exception):  # whoever listens no longer has been told of
                stream.flush()
        os._exit((end.code or 0) & 0xFF)


if __name__ == "__main__":
    main()
