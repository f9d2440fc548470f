"""The errors that a user can do something about, and their exit codes.

::

    Lo2ioError                   1
    ├── UsageError               2   unknown option or event, output that exists already
    ├── AccessError              3   the kernel refuses; the remedy is the least change that helps
    ├── CommandError             126 not executable, 127 not found
    ├── SpoolError               4   not a spool, or one that cannot be read
    ├── TraceError               5   not a trace, or one that breaks the rules
    ├── CaptureError             6   recording had to stop (disk full, buffers refused)
    └── CatalogError             1   a file of tracepoints/ breaks its rules

An error has three parts: the attempt, the answer of the kernel or a library, and the least change that helps.
"""

from __future__ import annotations


class Lo2ioError(Exception):
    """Base of all errors.

    Args:
        tried: The attempt, e.g. ``write T``.
        answer: The answer of the kernel or a library; may be empty.
        remedy: The least change that helps; may be empty.
    """

    exit_code = 1

    def __init__(self, tried: str, answer: str = "", remedy: str = "") -> None:
        self.tried = tried
        self.answer = answer
        self.remedy = remedy
        super().__init__(": ".join(part for part in (tried, answer) if part))


class UsageError(Lo2ioError):
    """The command line names something that does not exist, or something that must not be overwritten."""

    exit_code = 2


class AccessError(Lo2ioError):
    """The kernel refuses something that recording needs."""

    exit_code = 3


class CommandError(Lo2ioError):
    """The command to record could not be started."""

    exit_code = 127

    def __init__(self, tried: str, answer: str = "", remedy: str = "", *, exit_code: int = 127) -> None:
        super().__init__(tried, answer, remedy)
        self.exit_code = exit_code


class SpoolError(Lo2ioError):
    """A directory is no spool, or a newer version of lo2io wrote the spool."""

    exit_code = 4


class TraceError(Lo2ioError):
    """A directory is no trace, or the trace breaks the rules of OTF2."""

    exit_code = 5


class CaptureError(Lo2ioError):
    """Recording had to stop. The part recorded so far is kept."""

    exit_code = 6


class CatalogError(Lo2ioError):
    """A file of ``tracepoints/`` breaks the rules of docs/reference/tracepoint-files.md."""
