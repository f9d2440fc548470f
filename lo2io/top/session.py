"""``lo2io top``: a live view of the newest part of a recording.

The recording is a flight recorder (``system-wide --last``). ``top`` starts one as a child process, or uses one that
runs already. At each interval ``top`` requests a dump, as ``lo2io dump`` does, sums up the window's tables, and removes
the window. So each number is the one that ``lo2io report`` gives for this window.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol, Self

from lo2io.capture.flight.request import ask_for_dump
from lo2io.errors import CaptureError, Lo2ioError, UsageError
from lo2io.folder import Folder
from lo2io.rights import confine
from lo2io.signals import end_with, ended_by_signals
from lo2io.spool.format import CONTROL_NAME
from lo2io.top.look import pressed, rows_of
from lo2io.trace.names import SPOOL

if TYPE_CHECKING:
    from types import TracebackType

    from lo2io.top.look import Look
    from lo2io.top.window import Window

FIRST_S: Final = 0.25
"""On a terminal the first view comes this soon after the recording's start: its reader waits for it."""
MIN_INTERVAL_S: Final = 1.0
"""A window takes half a second of work. With a shorter interval the view would mostly show lo2io itself."""
_KEY_S: Final = 0.1
_START_S: Final = 0.05
_END_S: Final = 20
_PREFIX: Final = "lo2io-top-"
_YOUNG_S: Final = 60


@dataclass(frozen=True, slots=True)
class TopOptions:
    """The options of ``lo2io top``.

    Attributes:
        trace: A recording that runs already, by its ``-o``; None: start one of the whole machine.
        interval_s: Time between two views. A view covers at least this time.
        first_s: The time until the first view, if that is shorter: somebody waits for it.
        count: Views until the end; None: until somebody quits.
        arguments: Further options of `lo2io system-wide`.
    """

    trace: Path | None = None
    interval_s: float = 3.0
    first_s: float | None = None
    count: int | None = None
    arguments: tuple[str, ...] = ()


class Screen(Protocol):
    """Shows views and reads keys."""

    def show(self, window: Window, look: Look) -> None:
        """Draw the view."""

    def key(self, timeout_s: float) -> str:
        """The key pressed within this time, or an empty text."""


class Recorder:
    """A flight recorder that dumps windows. As a context manager, the object ends a recorder that it started.

    Args:
        options: What to record.

    Raises:
        Lo2ioError: ``window`` failed: the recorder's own error, or an error of ``lo2io dump``.
    """

    def __init__(self, options: TopOptions) -> None:
        self._options = options
        self._folder: Path | None = None
        self._lock: Folder | None = None
        self._child: subprocess.Popen[bytes] | None = None
        self.trace = options.trace or Path()

    def __enter__(self) -> Self:
        if self._options.trace is None:
            _remove_stale(Path(tempfile.gettempdir()))
            self._folder = Path(tempfile.mkdtemp(prefix=_PREFIX))
            self._lock = Folder.open(self._folder)
            self._lock.lock()
            self.trace = self._folder / "T"
            try:
                self._start()
            except BaseException:
                self._end()
                raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    def window(self) -> Window:
        """The sums of the recorder's newest part. The files of the window are removed afterwards."""
        from lo2io.top.window import watch_window  # noqa: PLC0415 - the command starts without them
        from lo2io.trace.reader import open_trace  # noqa: PLC0415

        self.await_ready()
        try:
            path = ask_for_dump(self.trace)
        except UsageError:
            self._check_child()
            raise
        try:
            return watch_window(open_trace(path), {os.getpid()})
        finally:
            with contextlib.suppress(OSError, Lo2ioError), Folder.open(self.trace) as trace:
                trace.remove(path.name)

    def notice(self) -> str:
        """The recorder's last message, not counting those about windows; empty: there is none."""
        lines = [line for line in self._said() if " holds the last " not in line]
        return lines[-1].removeprefix("lo2io: ") if lines else ""

    def _start(self) -> None:
        options = self._options
        command = [sys.executable, "-P", "-m", "lo2io", "system-wide", "-a", "-o", str(self.trace)]
        command += ["--last", f"{options.interval_s:g}s", "--no-convert", *options.arguments]
        parent = os.getpid()
        assert self._folder is not None  # noqa: S101 - the caller made the folder

        def die_with_parent() -> None:
            # Not SIGINT: while a process imports modules, Python may drop its KeyboardInterrupt.
            end_with(parent, signal.SIGTERM)

        with (self._folder / "messages").open("wb") as messages:
            self._child = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=messages,
                start_new_session=True,  # Ctrl-C is for the view
                preexec_fn=die_with_parent,  # noqa: PLW1509 - there is one thread so far
            )

    def await_ready(self) -> None:
        """Wait until the started recorder takes requests. A recorder that ran already takes them."""
        while self._child is not None and not (self.trace / SPOOL / CONTROL_NAME).exists():
            self._check_child()
            time.sleep(_START_S)

    def _check_child(self) -> None:
        """If the recorder has ended, raise its error message as an error of the same exit code."""
        child = self._child
        if child is None or child.poll() is None:
            return
        said = self._said()
        answer = said[-1].strip() if said else f"exit code {child.returncode}"
        last = next((at for at in reversed(range(len(said))) if not said[at].startswith(" ")), 0)
        text, remedy = said[last].removeprefix("lo2io: ") if said else answer, " ".join(said[last + 1 :]).strip()
        kinds = {kind.exit_code: kind for kind in Lo2ioError.__subclasses__()}
        raise kinds.get(child.returncode, CaptureError)(
            "record the whole machine", text, remedy or "run `lo2io doctor`"
        )

    def _said(self) -> list[str]:
        if self._folder is None:
            return []
        with contextlib.suppress(OSError):
            return (self._folder / "messages").read_text(encoding="utf-8", errors="replace").splitlines()
        return []

    def _end(self) -> None:
        child, folder = self._child, self._folder
        self._child = self._folder = None
        if child is not None and child.poll() is None:
            child.send_signal(signal.SIGTERM)
            try:
                child.wait(_END_S)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)
        if self._lock is not None:
            self._lock.close()


def _remove_stale(place: Path) -> None:
    """Remove the folders of views that were killed: nobody holds their locks.

    A view locks its folder just after it has made it, so young folders are left alone.
    """
    for folder in place.glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError, UsageError):
            found = folder.lstat()
            if (
                not stat.S_ISDIR(found.st_mode)
                or found.st_uid != os.geteuid()
                or time.time() - found.st_mtime < _YOUNG_S
            ):
                continue
            with Folder.open(folder) as held:
                held.lock()
                shutil.rmtree(folder, ignore_errors=True)


def watch(options: TopOptions, screen: Screen, look: Look) -> None:
    """Show views until the user quits, or until ``options.count`` views were shown.

    Raises:
        UsageError: The interval is too short, no recorder writes into ``options.trace``, or options were given that a
            running recorder cannot follow.
        Lo2ioError: An error of ``lo2io system-wide`` or ``lo2io dump``.
    """
    if options.interval_s < MIN_INTERVAL_S:
        tried = f"draw a view every {options.interval_s:g} s"
        raise UsageError(tried, f"the shortest interval is {MIN_INTERVAL_S:g} s", "use --interval 2s")
    if options.trace is not None and options.arguments:
        tried = f"look at {options.trace}"
        answer = "that recording runs already, with options of its own"
        raise UsageError(tried, answer, "leave away --events, --filter, --cpus, --cgroup and --backend")
    if options.trace is not None:  # the recording may be another user's
        confine((options.trace,), (options.trace,))
    with (
        contextlib.suppress(KeyboardInterrupt),
        ended_by_signals(),
        Recorder(options) as recorder,
        ThreadPoolExecutor(1, "lo2io-window") as pool,
    ):
        _Loop(options, screen, look, recorder).run(pool)


class _Loop:
    """Shows windows and answers keys. A thread makes the windows, so keys are answered at once."""

    def __init__(self, options: TopOptions, screen: Screen, look: Look, recorder: Recorder) -> None:
        self._options, self._screen, self._recorder = options, screen, recorder
        self._look = look
        self._window: Window | None = None
        first = options.interval_s if options.first_s is None else options.first_s
        self._wait_s = min(first, options.interval_s)
        self._over = False

    def run(self, pool: ThreadPoolExecutor) -> None:
        """Run until the user quits, or until all views were shown."""
        shown = 0
        coming = pool.submit(self._next)
        try:
            while not self._over and shown != self._options.count:
                self._press(self._screen.key(_KEY_S))
                if coming.done():
                    self._take(coming.result())
                    shown += 1
                    coming = pool.submit(self._next)
        finally:
            self._over = True

    def _next(self) -> Window | None:
        """The window after one more interval; None: the view is over. Runs in a thread of its own."""
        for module in ("lo2io.top.window", "lo2io.trace.reader"):  # they load while the recorder starts
            importlib.import_module(module)
        self._recorder.await_ready()  # the interval begins with the recording
        end = time.monotonic() + self._wait_s
        self._wait_s = self._options.interval_s
        while not self._over and (rest := end - time.monotonic()) > 0:
            time.sleep(min(rest, _KEY_S))
        return None if self._over else self._recorder.window()

    def _take(self, window: Window | None) -> None:
        self._look = replace(self._look, notice=self._recorder.notice())
        if window is not None and not self._look.paused:
            self._window = window
            self._screen.show(window, self._look)

    def _press(self, key: str) -> None:
        from lo2io.top.page import REDRAW  # noqa: PLC0415 - rich is loaded by whoever draws

        if not key:
            return
        if key == "\x03" or (key == "q" and not self._look.typing):
            self._over = True
        names = [row.name for row in rows_of(self._window, self._look)] if self._window else []
        look = pressed(self._look, key, names)
        if look != self._look or key == REDRAW:
            self._look = look
            if self._window is not None:
                self._screen.show(self._window, look)
