"""The errors that a user can do something about, and their exit codes.

::

    Lo2ioError                   1
    ├── UsageError               2   unknown option or event, output that exists already
    │   └── InUseError           2   another process has the directory locked
    ├── AccessError              3   the kernel refuses; the remedy is the least change that helps
    ├── CommandError             126 not executable, 127 not found
    ├── SpoolError               4   not a spool, or one that cannot be read
    ├── TraceError               5   not a trace, or one that breaks the rules
    ├── CaptureError             6   recording had to stop (disk full, buffers refused)
    └── CatalogError             1   a file of tracepoints/ breaks its rules

An error has three parts: the attempt, the answer of the kernel or a library, and the least change that helps.
"""

from __future__ import annotations

import errno
import os


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


class InUseError(UsageError):
    """Another process of lo2io has the directory locked."""


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


_LIMITS = "raise the limit that is used up: ulimit -u, -n or -v, or the cgroup's pids.max or memory.max"
_FILTERED = "allow the call: a seccomp filter or a security module forbids it, often that of a container"
_REMEDIES = {
    **dict.fromkeys((errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE), _LIMITS),
    **dict.fromkeys((errno.EPERM, errno.EACCES, errno.ENOSYS), _FILTERED),
    **dict.fromkeys((errno.ENOSPC, errno.EDQUOT, errno.EFBIG), "free space, or use another disk"),
}
_NO_THREAD = "can't start new thread"
"""Python's RuntimeError if the kernel refuses a thread. It has no class and no number of its own."""


def refusal(tried: str, error: BaseException) -> CaptureError | None:
    """The error for the user if the kernel refused a system call that no stage answers for itself.

    Args:
        tried: The attempt.
        error: Any exception. None is returned unless the kernel caused it.
    """
    if isinstance(error, RuntimeError) and str(error).startswith(_NO_THREAD):
        return CaptureError(tried, "the kernel starts no more threads", _LIMITS)
    if isinstance(error, MemoryError):
        return CaptureError(tried, "out of memory", _LIMITS)
    if isinstance(error, ImportError):  # Python says so, too, if the kernel refuses to show the module's file
        return CaptureError(tried, str(error), "check that lo2io is installed whole, and that you may read its files")
    if not isinstance(error, OSError) or error.errno is None:
        return None
    place = f" ({os.fsdecode(error.filename)})" if isinstance(error.filename, str | bytes) else ""
    return CaptureError(tried, f"{os.strerror(error.errno)}{place}", _REMEDIES.get(error.errno, ""))


class CatalogError(Lo2ioError):
    """A file of ``tracepoints/`` breaks the rules of docs/reference/tracepoint-files.md."""
