"""Recordings that a program makes, by the program ``lo2io`` in a process of its own.

A recorder blocks signals, forks, and gives up rights; in a process of its own it disturbs nobody.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Self

from lo2io.errors import CaptureError, Lo2ioError, UsageError
from lo2io.folder import sudo_caller
from lo2io.spool.format import META_NAME
from lo2io.trace.names import ANCHOR, SPOOL

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from lo2io.api.trace import Trace

_LOOK_S = 0.005
_NOT_BEGUN = '"syncs": []'
"""In a spool's description until the recording has begun."""


class Recording:
    """A recording. As a context manager it ends with the block; the processes go on.

    Attributes:
        output: The directory of the trace.
        exit_code: lo2io's: that of the command, or 0; None: it has not ended.
        messages: What lo2io said about processes, once it has ended. Beside a command, lo2io says it on stderr.
    """

    def __init__(self, process: subprocess.Popen[str], output: Path) -> None:
        self._process = process
        self.output = output
        self.exit_code: int | None = None
        self.messages = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """End the recording, and wait for the trace. A second call does nothing.

        Raises:
            CaptureError: lo2io made no trace. The message is its own.
        """
        if self.exit_code is None:
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(signal.SIGINT)
            self._wait()

    @property
    def trace(self) -> Trace:
        """The trace of a recording that has ended.

        Raises:
            TraceError: There is none.
        """
        from lo2io.api.trace import open_trace  # noqa: PLC0415 - takes 0.2 s

        return open_trace(self.output)

    def _wait(self) -> None:
        self.messages = self._process.communicate()[1] or ""
        self.exit_code = self._process.returncode
        if not _is_trace(self.output):
            raise CaptureError("record", self.messages.strip() or f"lo2io ended with {self.exit_code}")

    def _wait_for_begin(self) -> None:
        while self._process.poll() is None:
            with contextlib.suppress(FileNotFoundError):
                if _NOT_BEGUN not in (self.output / SPOOL / META_NAME).read_text(encoding="utf-8"):
                    return
            time.sleep(_LOOK_S)
        self._wait()


def record(
    command: Sequence[str | os.PathLike[str]] = (),
    *,
    pid: int | Iterable[int] | None = None,
    output: str | os.PathLike[str] | None = None,
    options: Sequence[str] = (),
) -> Recording:
    """Record a command to its end; or, with ``pid``, processes until the recording is stopped.

    In a rank of a job this rank records alone: the others need not call the function.

    Args:
        command: Program and arguments. Its input and output are this process's.
        pid: A running process, or several. The function returns when the recording has begun.
        output: The directory of the trace. None: a temporary one, which is removed when the program ends.
        options: Further options of ``lo2io record``, such as ``["-e", "syscalls", "--force"]``.

    Raises:
        UsageError: Neither a command nor a process is given, or both.
        CaptureError: lo2io made no trace. The message is its own.
    """
    pids = () if pid is None else (pid,) if isinstance(pid, int) else tuple(pid)
    if bool(command) == bool(pids):
        raise UsageError("record", "give either a command or processes", "lo2io.record([...]) or lo2io.record(pid=...)")
    chosen = [word for each in pids for word in ("-p", str(each))]
    target = _temporary() if output is None else Path(output)
    chosen += ["--alone", "--", *(os.fspath(word) for word in command)] if command else []
    words = ["record", "-o", os.fspath(target), "-q", *options, *chosen]
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "lo2io", *words], stderr=None if command else subprocess.PIPE, text=True
    )
    recording = Recording(process, target)
    try:
        if command:
            recording._wait()  # noqa: SLF001 - its own class
        else:
            recording._wait_for_begin()  # noqa: SLF001
    except Lo2ioError:
        raise
    except BaseException:
        with contextlib.suppress(Lo2ioError):
            recording.stop()
        raise
    return recording


def _temporary() -> Path:
    """A place for a trace, which is removed when this process ends, and not when a child of it does.

    A spool that did not become a trace stays: the error of the recording names it.
    """
    folder, owner = Path(tempfile.mkdtemp(prefix="lo2io-")), os.getpid()
    caller = sudo_caller()
    if caller:  # lo2io becomes this user to convert
        os.chown(folder, *caller)
    target = folder / "T"

    def remove() -> None:
        if os.getpid() == owner and (_is_trace(target) or not (target / SPOOL).exists()):
            shutil.rmtree(folder, ignore_errors=True)

    atexit.register(remove)
    return target


def _is_trace(directory: Path) -> bool:
    return (directory / ANCHOR).exists()
