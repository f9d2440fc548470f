"""How a command ends: the one place where errors become messages and exit codes."""

from __future__ import annotations

import signal
import sys
from typing import TYPE_CHECKING, NoReturn

from lo2io.cli import streams
from lo2io.errors import Lo2ioError, refusal
from lo2io.rights import own_process

if TYPE_CHECKING:
    from collections.abc import Callable


def run_to_end(command: Callable[[], None]) -> None:
    """Run a command.

    Raises:
        SystemExit: The command has ended.
    """
    try:
        streams.protect()
        own_process()
        try:
            command()
        finally:
            streams.flush()
    except Lo2ioError as error:
        _end(error)
    except streams.ReaderGone:
        streams.end_by_pipe()  # only now: temporary files and recorders have ended
    except KeyboardInterrupt:
        sys.exit(128 + signal.SIGINT)
    except (OSError, MemoryError, RuntimeError, ImportError) as error:
        refused = refusal("run this command", error)
        if refused is None:
            raise
        refused.exit_code = Lo2ioError.exit_code
        _end(refused)


def _end(error: Lo2ioError) -> NoReturn:
    """Tell the user of an error, and exit with its code."""
    from lo2io.reports.words import printable

    streams.give_up()
    for start, text in (("lo2io: ", str(error)), ("       ", error.remedy)):
        if text:  # which may name a file of somebody else
            print(start + "\n".join(map(printable, text.split("\n"))), file=sys.stderr)
    sys.exit(error.exit_code)
