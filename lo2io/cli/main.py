"""The command line: words in, exit code out."""

from __future__ import annotations

import signal
import sys
from typing import TYPE_CHECKING, NoReturn

from lo2io.cli import record, streams
from lo2io.cli.declared import read_plain
from lo2io.errors import Lo2ioError, refusal
from lo2io.rights import own_process

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


def load(words: Sequence[str]) -> Callable[[], None]:
    """Import what the command needs at once. A plain one that records does without Typer, whose import takes 60 ms.

    Args:
        words: The command line behind ``lo2io``.

    Returns:
        A function that runs the command. It raises SystemExit, or a Lo2ioError.
    """
    if words and words[0] in {record.RECORD, record.SYSTEM_WIDE}:
        given = read_plain(words[1:], {option.name: option.declared for option in record.options_of(words[0])})
        if given is not None:
            return lambda: sys.exit(record.run(words[0], given))
    from lo2io.cli.app import app

    return app


def main(command: Callable[[], None] | None = None) -> None:
    """Entry point: the one place where errors become messages and exit codes.

    Args:
        command: The command, from :func:`load`; None: that of ``sys.argv``.
    """
    try:
        streams.protect()
        own_process()
        try:
            (command or load(sys.argv[1:]))()
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
    streams.give_up()
    print(f"lo2io: {error}", file=sys.stderr)
    if error.remedy:
        print(f"       {error.remedy}", file=sys.stderr)
    sys.exit(error.exit_code)
