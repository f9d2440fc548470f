"""A dump makes a trace of a flight recorder's window: segments in, a directory beside the spool out.

The segments get second names (hard links), so that the recorder can go on removing them, and a description of their
own. A child process of low priority makes the trace: the recording's :class:`~lo2io.capture.options.Converter`. One
dump runs at a time. A failure becomes a notice and does not harm the recording. Clients outside get results through
the recorder's socket (:mod:`lo2io.capture.flight.control`).
"""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import subprocess
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lo2io.capture.flight.control import Control
from lo2io.errors import Lo2ioError
from lo2io.model.notices import Notice, no_window
from lo2io.spool.format import META_NAME, dump_meta
from lo2io.trace.directory import give_away
from lo2io.trace.names import SPOOL
from lo2io.units import NS_PER_S

if TYPE_CHECKING:
    from collections.abc import Callable

    from lo2io.capture.options import Converter
    from lo2io.folder import Folder
    from lo2io.model import SpoolMeta
    from lo2io.spool.segments import Segment, SegmentedSpool

NICE = 10
"""The nice value of the converter: the recorded programs come first."""
BEGUN, DONE, FAILED, REFUSED = "begun", "done", "failed", "refused"
BUSY = "busy"
"""Events in the life of a dump. BUSY: refused because another dump is under way; a later request may work."""
_POLL_S = 0.2


@dataclass(slots=True)
class _Child:
    """A converter process. Its times are CLOCK_MONOTONIC, taken before it began and after it had ended."""

    pid: int
    begin_ns: int
    end_ns: int | None = None


class Dumper:
    """Writes one window at a time.

    Args:
        spool: The flight recorder's spool.
        note: Called with each notice for the user, from any thread.
        converter: Makes the trace of a window.
        keep_spool: Leave the window's spool beside its trace.
    """

    def __init__(
        self,
        spool: SegmentedSpool,
        note: Callable[[Notice], None],
        converter: Converter,
        *,
        keep_spool: bool = False,
    ) -> None:
        self._children: list[_Child] = []
        self._spool = spool
        self._note = note
        self._converter = converter
        self._keep_spool = keep_spool
        self._lock = threading.Lock()
        self._busy = False
        self._thread: threading.Thread | None = None
        self._child: subprocess.Popen[str] | None = None
        self._given_up = False
        self.control = Control(spool.folder, note)

    def claim(self) -> bool:
        """Reserve the dump for one request. False: another window is being written."""
        with self._lock:
            busy, self._busy = self._busy, True
        return not busy

    def refuse(self, why: str, reason: str) -> None:
        """Say that a request failed after :meth:`claim`."""
        self._note(no_window(why, reason))
        self._post(REFUSED, text=reason)
        self._free()

    def start(self, why: str, end: Segment, describe: Callable[[tuple[str, ...]], SpoolMeta]) -> None:
        """Write the segments before ``end``, after :meth:`claim`. Return when they have their second names.

        Args:
            why: The reason of the request, for the notice.
            end: The first segment after the window.
            describe: Makes the description of the segments with the given names.
        """
        target = None
        try:
            trace = self._spool.folder.parent
            assert trace is not None  # noqa: S101 - the spool was made there
            target = _new_folder(trace)
            self._post(BEGUN, target)
            folder = target.make(SPOOL)
            names = self._spool.link(folder, end)
            if not names:
                self._fail(why, target, "the spool's bound left no room for a window")
                return
            meta = describe(names)
            folder.write(META_NAME, dump_meta(meta))
        except Lo2ioError as error:
            self._fail(why, target, str(error))
            return
        except OSError as error:
            self._fail(why, target, error.strerror or str(error))
            return
        thread = threading.Thread(target=self._run, args=(why, target, folder, meta), name="lo2io-dump", daemon=True)
        try:
            thread.start()
        except RuntimeError as error:  # no more threads
            self._fail(why, target, str(error))
            return
        self._thread = thread

    def wait(self, is_given_up: Callable[[], bool]) -> None:
        """Wait for the window that is being written, and take no more requests.

        Args:
            is_given_up: Asked now and then; true ends the writing.
        """
        thread = self._thread
        interrupted = None
        while thread is not None and thread.is_alive():
            self._given_up = self._given_up or is_given_up()
            child = self._child
            if self._given_up and child is not None and child is not interrupted:
                # The child removes what it has written. A second signal would interrupt that.
                child.send_signal(signal.SIGTERM)
                interrupted = child
            thread.join(_POLL_S)
        self.control.close()

    def lived(self, begin_ns: int, end_ns: int) -> tuple[int, ...]:
        """Processes that converted during a span of CLOCK_MONOTONIC: their I/O is lo2io's own."""
        return tuple(
            child.pid
            for child in list(self._children)
            if child.begin_ns <= end_ns and (child.end_ns is None or child.end_ns >= begin_ns)
        )

    def forget(self, before_ns: int) -> None:
        """Forget converters that ended before this time."""
        self._children[:] = [one for one in self._children if one.end_ns is None or one.end_ns >= before_ns]

    # ---- in a thread of its own ----

    def _run(self, why: str, target: Folder, spool: Folder, meta: SpoolMeta) -> None:
        try:
            answer = self._run_child(self._converter.run(spool.place, target.place), (spool, target))
        except (OSError, Lo2ioError) as error:
            reason = "given up" if self._given_up else str(error)
            shown = self._converter.show(spool.path, target.path)
            self._fail(why, target, f"{reason}; its spool is kept: `{shown}`", keep=True)
            return
        if not self._keep_spool:
            with contextlib.suppress(OSError):
                spool.discard()
        give_away(target)
        seconds = ((meta.stop_ns or meta.start_ns) - meta.start_ns) / NS_PER_S
        self._free()
        self._note(Notice(f"{target.path} holds the last {seconds:.1f} s ({why}); {answer}"))
        self._post(DONE, target, answer)

    def _run_child(self, command: list[str], folders: tuple[Folder, ...] = ()) -> str:
        """Convert, and return the last line of the child's output.

        Args:
            command: The converter's command line.
            folders: Folders that the child gets by descriptor.

        Raises:
            Lo2ioError: The conversion failed.
        """
        if self._given_up:
            raise Lo2ioError("convert the window")
        begin_ns = time.monotonic_ns()
        # The child inherits this mask: it blocks SIGCHLD alone, which the child does not need. This thread must block
        # it, too. Otherwise it could take the signal about the recorded command, and the main thread would wait for
        # ever.
        before = signal.pthread_sigmask(signal.SIG_SETMASK, {signal.SIGCHLD})
        try:
            child = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                text=True,
                errors="replace",
                start_new_session=True,  # Ctrl-C is the recorder's
                pass_fds=[folder.fd for folder in folders],
            )
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        life = _Child(child.pid, begin_ns)
        self._children.append(life)
        self._child = child
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, child.pid, NICE)
        try:
            _, output = child.communicate()
        finally:
            life.end_ns = time.monotonic_ns()
        for folder in folders:
            output = output.replace(str(folder.place), str(folder.path))
        lines = output.rstrip().splitlines()
        if child.returncode:
            # The remedy stands in an indented line of its own. The error is the line above.
            last = next((at for at in reversed(range(len(lines))) if not lines[at].startswith(" ")), 0)
            answer = "; ".join(line.strip().removeprefix("lo2io: ") for line in lines[last:])
            raise Lo2ioError("convert the window", answer or f"exit code {child.returncode}")
        return lines[-1].strip() if lines else ""

    # ---- telling ----

    def _fail(self, why: str, target: Folder | None, answer: str, *, keep: bool = False) -> None:
        if target is not None and not keep:
            with contextlib.suppress(OSError):
                target.discard()
        self._free()
        self._note(no_window(why, answer))
        self._post(FAILED, target, answer)

    def _free(self) -> None:
        with self._lock:
            self._busy = False

    def _post(self, event: str, target: Folder | None = None, text: str = "") -> None:
        self.control.post(event, target.path.name if target else "", text)


def _new_folder(trace: Folder) -> Folder:
    """Make the folder ``dump-20261121-060000`` in a directory, with a number after if the name exists.

    Raises:
        OSError: The folder cannot be created.
        UsageError: As :meth:`Folder.make`.
    """
    stem = time.strftime("dump-%Y%m%d-%H%M%S")
    for number in itertools.count(1):
        with contextlib.suppress(FileExistsError):
            return trace.make(stem if number == 1 else f"{stem}-{number}")
    raise AssertionError
