"""The screens of ``lo2io top``: a terminal with keys, or a pipe with text or JSON."""

from __future__ import annotations

import contextlib
import json
import os
import select
import sys
import termios
import time
import tty
from typing import TYPE_CHECKING, Self

from rich.live import Live

from lo2io.reports.text.page import report_console
from lo2io.top.page import REDRAW, render_top

if TYPE_CHECKING:
    from types import TracebackType

    from lo2io.top.look import Look
    from lo2io.top.window import Window


class Terminal:
    """The whole terminal, as a context manager that restores the terminal at its end.

    Keys come from stdin, if stdin is a terminal too: one at a time, without Enter. A change of the terminal's size
    counts as the key that draws the view again.
    """

    def __init__(self) -> None:
        self._console = report_console()
        self._size = self._console.size
        self._live = Live(console=self._console, screen=True, auto_refresh=False, redirect_stderr=False)
        self._undo = contextlib.ExitStack()
        self._keys = sys.stdin.fileno() if sys.stdin is not None and sys.stdin.isatty() else -1

    def __enter__(self) -> Self:
        if self._keys >= 0:
            before = termios.tcgetattr(self._keys)
            self._undo.callback(termios.tcsetattr, self._keys, termios.TCSADRAIN, before)
            tty.setcbreak(self._keys)
        self._undo.enter_context(self._live)
        self._live.update("lo2io top: the first view comes in a moment", refresh=True)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._undo.close()

    def show(self, window: Window, look: Look) -> None:
        """Draw over the previous view."""
        self._size = width, height = self._console.size
        self._live.update(render_top(window, look, width, height), refresh=True)

    def key(self, timeout_s: float) -> str:
        """The key pressed within this time, or an empty text."""
        if self._console.size != self._size:
            self._size = self._console.size
            return REDRAW
        if self._keys < 0:
            time.sleep(timeout_s)
            return ""
        ready, _, _ = select.select([self._keys], [], [], timeout_s)
        pressed = os.read(self._keys, 1) if ready else b""
        if ready and not pressed:  # the terminal was hung up
            self._keys = -1
        if pressed == b"\x1b" and select.select([self._keys], [], [], 0)[0]:  # an arrow is Escape and two more bytes
            pressed += os.read(self._keys, 2).replace(b"O", b"[")
        return pressed.decode("ascii", "replace")


class Pipe:
    """Prints each view with all its rows below the previous one; with ``as_json``, one JSON object a line."""

    def __init__(self, *, as_json: bool = False) -> None:
        self._console = report_console()
        self._as_json = as_json

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def show(self, window: Window, look: Look) -> None:
        """Print the view and flush it, so that the reader has it at once."""
        if self._as_json:
            print(json.dumps(window.as_json(), ensure_ascii=True))
        else:
            self._console.print(render_top(window, look, self._console.width))
            self._console.print()
        sys.stdout.flush()

    def key(self, timeout_s: float) -> str:
        """Wait. A pipe has no keys."""
        time.sleep(timeout_s)
        return ""
