"""Every error lo2io raises for a reason the user can act on, and the exit code it ends with.

::

    Lo2ioError                   1
    ├── UsageError               2   an option or an event nobody knows, output that exists
    ├── AccessError              3   the kernel refuses; remedy says the least that helps
    ├── CommandError             126 not executable, 127 not found
    ├── SpoolError               4   not a spool, or one that cannot be read
    ├── TraceError               5   not a trace, or one that breaks the rules
    ├── CaptureError             6   recording had to stop (disk full, rings refused)
    └── CatalogError             1   a file of tracepoints/ breaks its rules

The text of an error is three facts: what was tried, what the kernel (or library) answered, the least that helps.
"""

from __future__ import annotations


class Lo2ioError(Exception):
    """Base of all: ``exit_code`` is the command's, ``remedy`` the least that helps (or empty)."""

    exit_code = 1

    def __init__(self, tried: str, answer: str = "", remedy: str = "") -> None:
        self.tried = tried
        self.answer = answer
        self.remedy = remedy
        super().__init__(": ".join(part for part in (tried, answer) if part))


class UsageError(Lo2ioError):
    """The command line asks for what does not exist or must not be overwritten."""

    exit_code = 2


class AccessError(Lo2ioError):
    """The kernel refuses what recording needs."""

    exit_code = 3


class CommandError(Lo2ioError):
    """The command to record could not be started."""

    exit_code = 127

    def __init__(self, tried: str, answer: str = "", remedy: str = "", *, exit_code: int = 127) -> None:
        super().__init__(tried, answer, remedy)
        self.exit_code = exit_code


class SpoolError(Lo2ioError):
    """What should be a spool is none, or a newer one."""

    exit_code = 4


class TraceError(Lo2ioError):
    """What should be a trace is none, or breaks the rules of OTF2."""

    exit_code = 5


class CaptureError(Lo2ioError):
    """Recording had to stop; what was recorded is kept."""

    exit_code = 6


class CatalogError(Lo2ioError):
    """A file of ``tracepoints/`` is not what docs/reference/tracepoint-files.md says."""
