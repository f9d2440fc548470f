"""``lo2io``, and ``python -m lo2io``: what comes before the command line is loaded."""

import signal


def main() -> None:
    """Load and run it. Who presses Ctrl-C meanwhile ends a program that has done nothing yet, not a traceback."""
    interruptible = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if interruptible:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from lo2io.cli import main as run  # noqa: PLC0415 - that is what takes its time

    if interruptible:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    run()


if __name__ == "__main__":
    main()
