"""A page shown in the user's browser.

A browser needs what lo2io gives up before it reads a trace: to write its profile, to use the network. So the process
that starts it begins earlier, and waits for the page. Under sudo it runs as the user who called sudo.
"""

from __future__ import annotations

import contextlib
import os
import sys
from functools import partial
from typing import TYPE_CHECKING, Final

from lo2io.capture.launch import StoppedCommand, resolve_user
from lo2io.errors import CommandError, Lo2ioError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

_NO_BROWSER, _UNREADABLE = 3, 4
_PROGRAM: Final = f"""
import os, pathlib, sys, webbrowser
page = pathlib.Path(sys.argv[1])
if not os.access(page, os.R_OK):
    sys.exit({_UNREADABLE})
null = os.open(os.devnull, os.O_RDWR)
for fd in 0, 1, 2:
    os.dup2(null, fd)
sys.exit(0 if webbrowser.open(page.as_uri()) else {_NO_BROWSER})
"""
"""The program that starts the browser. It closes lo2io's streams: their readers would wait until the browser ends."""
_NAMED_BY: Final = ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER")


@contextlib.contextmanager
def browser_for(page: Path, environ: Mapping[str, str] = os.environ) -> Iterator[Callable[[], str]]:
    """Start the process that will show a page. Call this before rights are given up, and before other threads begin.

    Args:
        page: The file. It need not be there yet.
        environ: It says whether there is a screen.

    Yields:
        A function that shows the page, and returns why that was impossible; empty if the page is shown.
    """
    if not any(environ.get(name) for name in _NAMED_BY):
        yield lambda: "there is no screen: none of DISPLAY, WAYLAND_DISPLAY and BROWSER is set"
        return
    try:
        user, _ = resolve_user(None, environ)
        process = StoppedCommand([sys.executable, "-I", "-c", _PROGRAM, os.path.abspath(page)], user)  # noqa: PTH100
    except Lo2ioError as error:
        reason = str(error)
        yield lambda: reason
        return
    try:
        yield partial(_show, process, user.name if user else "you")
    finally:
        process.abandon()


def _show(process: StoppedCommand, who: str) -> str:
    try:
        process.release()
    except CommandError as error:
        return str(error)
    _, status = os.waitpid(process.pid, 0)
    code = os.waitstatus_to_exitcode(status)
    reasons = {0: "", _NO_BROWSER: "no browser was found", _UNREADABLE: f"{who} may not read it"}
    return reasons.get(code, f"what starts browsers ended with {code}")
