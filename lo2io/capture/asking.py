"""Asking a flight recorder, from outside, for the window it keeps.

The recorder holds a lock on a file of its spool as long as it records: who holds it is the process that
``spool.json`` names, and not another that got its number. It gets SIGUSR1, and says in ``dumps.jsonl`` what came of it.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import select
import signal
from pathlib import Path
from typing import TYPE_CHECKING

from lo2io.capture.dumping import BEGUN, BUSY, DONE, FAILED, REFUSED
from lo2io.directory import SPOOL
from lo2io.errors import AccessError, CaptureError, UsageError
from lo2io.spool.format import DUMPS_NAME, LOCK_NAME, META_NAME, parse_meta

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import TextIO

    from lo2io.model import SpoolMeta

_POLL_MS = 50


def ask_for_dump(trace: Path) -> Path:
    """Have the flight recorder that writes ``trace`` write its window as a trace, and wait for that.

    Args:
        trace: The directory it was given with ``-o``.

    Returns:
        The new trace's directory, inside of ``trace``.

    Raises:
        UsageError: Nothing records there, or it keeps everything.
        AccessError: The recorder is another user's.
        CaptureError: The window could not be written.
    """
    tried = f"dump {trace}"
    meta = _read_meta(tried, trace)
    with contextlib.ExitStack() as held:
        try:
            process = os.pidfd_open(meta.recorder_pid)
        except ProcessLookupError:
            raise _over(tried, trace) from None
        held.callback(os.close, process)
        try:
            recorder = os.open(trace / SPOOL / LOCK_NAME, os.O_RDONLY | os.O_CLOEXEC)
            held.callback(os.close, recorder)
            log = held.enter_context((trace / SPOOL / DUMPS_NAME).open(encoding="ascii"))
        except FileNotFoundError:
            raise _over(tried, trace) from None
        if not _is_locked(recorder):
            raise _over(tried, trace)
        log.seek(0, os.SEEK_END)
        try:
            signal.pidfd_send_signal(process, signal.SIGUSR1)
        except PermissionError as error:
            raise AccessError(tried, "the recorder is another user's", "run it with sudo") from error
        except ProcessLookupError:
            raise _over(tried, trace) from None
        return _await_dump(tried, trace, log, process)


def _read_meta(tried: str, trace: Path) -> SpoolMeta:
    name = trace / SPOOL / META_NAME
    try:
        meta = parse_meta(name.read_bytes(), str(name))
    except PermissionError as error:
        raise AccessError(tried, f"{name}: {error.strerror}", "run it with sudo") from error
    except OSError as error:
        raise UsageError(
            tried, "nothing is being recorded there", "name the directory given with -o to a recording with --last"
        ) from error
    if not meta.segments:
        raise UsageError(
            tried, "its recording keeps everything, it is no flight recorder", "record with --last or --max-size"
        )
    return meta


def _is_locked(recorder: int) -> bool:
    try:
        fcntl.flock(recorder, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    return False


def _over(tried: str, trace: Path) -> UsageError:
    return UsageError(
        tried, "its recording is over, or was cut off", f"`lo2io convert {trace / SPOOL} -o {trace}` if that is left"
    )


def _await_dump(tried: str, trace: Path, log: TextIO, process: int) -> Path:
    """Read on in the log until it tells the end of the first window begun from here on."""
    poll = select.poll()
    poll.register(process, select.POLLIN)
    path = None
    while True:
        ended = bool(poll.poll(_POLL_MS))
        for event in _new_events(log):
            if event["event"] == BEGUN and path is None:
                path = event["path"]
            elif path is None and (event["event"] == REFUSED or (event["event"] == FAILED and event["path"] is None)):
                remedy = "try again a little later" if event["text"] == BUSY else "see what the recorder said"
                raise CaptureError(tried, event["text"], remedy)
            elif path is not None and event["path"] == path:
                if event["event"] == DONE:
                    return Path(path)
                raise CaptureError(tried, event["text"], "see what the recorder said")
        if ended:
            raise _over(tried, trace)


def _new_events(log: TextIO) -> Iterator[dict[str, str]]:
    while True:
        position = log.tell()
        line = log.readline()
        if not line.endswith("\n"):  # the rest is still being written
            log.seek(position)
            return
        yield json.loads(line)
