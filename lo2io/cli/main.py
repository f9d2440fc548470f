"""The command line: words in, exit code out."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from lo2io.cli import record
from lo2io.cli.declared import read_plain
from lo2io.cli.ending import run_to_end

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


def load(words: Sequence[str]) -> Callable[[], None]:
    """Import what the command needs at once. A plain one that records does without Typer, whose import takes 60 ms.

    Args:
        words: The command line after ``lo2io``.

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
    """Entry point.

    Args:
        command: The command, from :func:`load`; None: that of ``sys.argv``.
    """

    def run() -> None:
        (command or load(sys.argv[1:]))()

    run_to_end(run)
