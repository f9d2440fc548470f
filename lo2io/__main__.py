"""``lo2io``, and ``python -m lo2io``: what comes before the command line is loaded."""

import contextlib
import os
import signal
import sys


def _occupy_standard_streams() -> None:
    """Open /dev/null where stdin, stdout or stderr is closed: no file or pipe of lo2io's may get their numbers.

    Python opens it close-on-exec: the command to record finds them closed, as the user gave them. Of a closed stream
    Python has made None, and print() would send messages for stderr to stdout.
    """
    for fd, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(fd)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets the lowest number that is free, which is this one
            setattr(sys, name, open(fd, "w" if fd else "r", encoding="utf-8", closefd=False))  # noqa: SIM115


def main() -> None:
    """Load and run it. Who presses Ctrl-C meanwhile ends a program that has done nothing yet, not a traceback.

    The process ends with the command: Python would take its modules apart one by one before, for a tenth of a second.
    """
    _occupy_standard_streams()
    interruptible = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if interruptible:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from lo2io.cli.app import main as run  # noqa: PLC0415 - that is what takes its time

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
