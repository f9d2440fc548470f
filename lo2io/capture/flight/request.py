"""A dump request: ask a running flight recorder, through the socket in its spool, to write its window as a trace."""

from __future__ import annotations

import contextlib
import json
import os
import socket
from typing import TYPE_CHECKING, Any

from lo2io.capture.flight.control import REQUEST, peer_uid
from lo2io.capture.flight.dump import BEGUN, BUSY, DONE, FAILED, REFUSED
from lo2io.errors import AccessError, CaptureError, UsageError
from lo2io.folder import Folder
from lo2io.spool.format import CONTROL_NAME, META_NAME, parse_meta
from lo2io.trace.directory import is_dump
from lo2io.trace.names import SPOOL

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_MAX_LINE = 1 << 16


def ask_for_dump(trace: Path) -> Path:
    """Ask the flight recorder that writes ``trace`` for a dump, and wait for it.

    Args:
        trace: The directory that the recorder got with ``-o``.

    Returns:
        The new trace's directory, inside of ``trace``.

    Raises:
        UsageError: Nothing records there, or the recording keeps everything.
        AccessError: The recorder is another user's.
        CaptureError: The window could not be written.
    """
    tried = f"dump {trace}"
    with contextlib.ExitStack() as held:
        try:
            spool = held.enter_context(held.enter_context(Folder.open(trace)).enter(SPOOL))
        except PermissionError as error:
            raise AccessError(tried, error.strerror or str(error), "run it with sudo") from error
        except OSError as error:
            remedy = "name the directory given with -o to a recording with --last"
            raise UsageError(tried, "nothing is being recorded there", remedy) from error
        recorder = held.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
        _connect(tried, trace, spool, recorder)
        try:
            recorder.sendall(REQUEST)
            return trace / _await_dump(tried, trace, recorder)
        except ConnectionError:
            raise _over(tried, trace) from None
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            answer = "the process that answers there is no recorder of this version of lo2io"
            raise CaptureError(tried, answer, "find out which process it is") from error


def _connect(tried: str, trace: Path, spool: Folder, recorder: socket.socket) -> None:
    """Connect to the recorder, and check that its process belongs to the spool's owner."""
    try:
        recorder.connect(str(spool.place / CONTROL_NAME))
    except PermissionError as error:
        raise AccessError(tried, "the recorder is another user's", "run it with sudo") from error
    except FileNotFoundError:
        raise _no_socket(tried, trace, spool) from None
    except OSError:
        raise _over(tried, trace) from None
    owner = os.fstat(spool.fd).st_uid
    if peer_uid(recorder) != owner:
        answer = f"a process of uid {peer_uid(recorder)} answers there, but the recording belongs to uid {owner}"
        raise AccessError(tried, answer, "find out who made that directory")


def _no_socket(tried: str, trace: Path, spool: Folder) -> UsageError:
    with contextlib.suppress(OSError):
        if not parse_meta(spool.read(META_NAME), str(trace / SPOOL / META_NAME)).segments:
            answer = "the recording keeps everything: it is no flight recorder"
            return UsageError(tried, answer, "record with --last or --max-size")
    return _over(tried, trace)


def _over(tried: str, trace: Path) -> UsageError:
    return UsageError(
        tried,
        "the recording is over, or was cut off",
        f"if its spool is left: `lo2io convert {trace / SPOOL} -o {trace}`",
    )


def _await_dump(tried: str, trace: Path, recorder: socket.socket) -> str:
    """Read the recorder's events until the first dump that begins from now on is written; return its name."""
    window = ""
    for event, name, text in _events(recorder):
        if event == BEGUN and not window:
            window = name
        elif not window and (event in {REFUSED, BUSY} or (event == FAILED and not name)):
            remedy = "try again a little later" if event == BUSY else "read the recorder's messages"
            raise CaptureError(tried, text, remedy)
        elif window and name == window:
            if event == DONE and is_dump(window):
                return window
            raise CaptureError(tried, text, "read the recorder's messages")
    raise _over(tried, trace)


def _events(recorder: socket.socket) -> Iterator[tuple[str, str, str]]:
    """The recorder's events: kind, the window's name, and a text without control characters."""
    with recorder.makefile("rb") as lines:
        while (line := lines.readline(_MAX_LINE)).endswith(b"\n"):
            event: dict[str, Any] = json.loads(line)
            text = "".join(each if each.isprintable() else "?" for each in str(event["text"]))
            yield str(event["event"]), str(event["name"]), text
