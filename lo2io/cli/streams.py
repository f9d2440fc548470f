"""stdout and stderr that fail as users expect of a command.

Messages may get lost: a closed terminal, a closed pipe or a full disk below stderr must not end a recording. Data that
cannot be written is an error. A reader that has enough (``| head``) ends the command.
"""

from __future__ import annotations

import contextlib
import io
import os
import signal
import sys
from typing import TYPE_CHECKING, TextIO

from lo2io.errors import Lo2ioError

if TYPE_CHECKING:
    from typing_extensions import Buffer


def protect() -> None:
    """Replace Python's stdout and stderr by streams that fail so. A missing or already replaced stream stays."""
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    with contextlib.suppress(OSError, ValueError, AttributeError):
        sys.stderr = wrap(_Messages(sys.stderr.fileno(), "wb", closefd=False), sys.stderr, line_buffering=True)
    with contextlib.suppress(OSError, ValueError, AttributeError):
        sys.stdout = wrap(_Data(sys.stdout.fileno(), "wb", closefd=False), sys.stdout, line_buffering=False)


def wrap(raw: io.FileIO, former: TextIO, *, line_buffering: bool) -> TextIO:
    """A text stream like the former one. On a terminal, each line is written at once."""
    return io.TextIOWrapper(
        io.BufferedWriter(raw),
        encoding=former.encoding,
        errors=former.errors,
        line_buffering=line_buffering or raw.isatty(),
    )


def flush() -> None:
    """Flush stdout, if there is one.

    Raises:
        Lo2ioError: stdout cannot be written.
    """
    with contextlib.suppress(AttributeError):  # a command may be started with stdout closed: Python has None then
        sys.stdout.flush()


def give_up() -> None:
    """Drop the rest of stdout's buffer: else the interpreter complains about it at its end."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        nowhere = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
        os.dup2(nowhere, sys.stdout.fileno(), inheritable=True)
        os.close(nowhere)


class ReaderGone(BaseException):
    """The reader of stdout has enough. Like an interrupt, this is no error, and nobody catches it on the way out."""


def end_by_pipe() -> None:
    """End by SIGPIPE without a message, as other commands do when their reader is gone."""
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    signal.raise_signal(signal.SIGPIPE)


class _Messages(io.FileIO):
    """Takes all bytes, and writes them if possible."""

    def write(self, data: Buffer, /) -> int:
        try:
            return super().write(data)
        except OSError:
            return memoryview(data).nbytes


class _Data(io.FileIO):
    """A failed write is an error for the user."""

    def write(self, data: Buffer, /) -> int:
        try:
            return super().write(data)
        except BrokenPipeError:
            raise ReaderGone from None
        except OSError as error:
            raise Lo2ioError("write to stdout", error.strerror or str(error), "send it elsewhere") from error
