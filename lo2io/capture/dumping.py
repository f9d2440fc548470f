"""Windows of a flight recorder become traces: segments in, a directory beside the spool out.

The segments get second names (hard links), so that the recorder may go on removing them, and a description of their
own; `lo2io convert`, a child of low priority, makes the trace. One at a time. Whatever fails there is told, and harms
nothing. ``dumps.jsonl`` in the spool tells those who asked from outside what became of it.
"""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, TextIO

from lo2io.capture.session import NO_WINDOW
from lo2io.directory import SPOOL, give_away, sudo_caller
from lo2io.errors import Lo2ioError
from lo2io.spool.format import DUMPS_NAME, LOCK_NAME, META_NAME, dump_meta
from lo2io.units import NS_PER_S

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from lo2io.model import SpoolMeta
    from lo2io.spool.segments import Segment, SegmentedSpool

NICE = 10
"""What converts a window gives way to what is being recorded."""
BEGUN, DONE, FAILED, REFUSED = "begun", "done", "failed", "refused"
BUSY = "another window is still being written"
"""The one reason to refuse that passes."""
_POLL_S = 0.2


@dataclass(slots=True)
class _Child:
    """A process that converts; times are CLOCK_MONOTONIC, before it began and after it had ended."""

    pid: int
    begin_ns: int
    end_ns: int | None = None


class Dumper:
    """Writes one window at a time.

    Args:
        spool: The flight recorder's; its directory is locked from here on.
        note: Called with each notice for the user, from whatever thread.
        convert: Further options of `lo2io convert`.
        keep_spool: Leave the window's spool beside its trace.
    """

    def __init__(
        self,
        spool: SegmentedSpool,
        note: Callable[[str], None],
        convert: tuple[str, ...] = (),
        *,
        keep_spool: bool = False,
    ) -> None:
        self._children: list[_Child] = []
        self._spool = spool
        self._note = note
        self._convert = convert
        self._keep_spool = keep_spool
        self._lock = threading.Lock()
        self._busy = False
        self._thread: threading.Thread | None = None
        self._child: subprocess.Popen[str] | None = None
        self._given_up = False
        self._log: TextIO = (spool.path / DUMPS_NAME).open("x", encoding="ascii")
        self._recorder = os.open(spool.path / LOCK_NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        fcntl.flock(self._recorder, fcntl.LOCK_EX)

    def claim(self, why: str) -> bool:
        """Make sure that no other window is being written; if one is, the request is refused."""
        with self._lock:
            busy, self._busy = self._busy, True
        if busy:
            self.refuse(why, BUSY)
        return not busy

    def refuse(self, why: str, reason: str, *, claimed: bool = False) -> None:
        """Tell that a request was not followed; ``claimed``: it had been accepted."""
        self._note(f"{NO_WINDOW} for {why}: {reason}")
        self._post(REFUSED, text=reason)
        if claimed:
            self._free()

    def start(self, why: str, end: Segment, describe: Callable[[tuple[str, ...]], SpoolMeta]) -> None:
        """Write the segments before ``end``, after :meth:`claim`; returns when they are safe, and converts then.

        Args:
            why: What asked for it.
            end: The segment that is none of the window's any more.
            describe: From the names of the segments to their description.
        """
        target = None
        try:
            target = _new_folder(self._spool.path.parent)
            self._post(BEGUN, path=target)
            folder = target / SPOOL
            folder.mkdir()
            names = self._spool.link(folder, end)
            if not names:
                self._fail(why, target, "the spool's bound left no room for a window")
                return
            meta = describe(names)
            (folder / META_NAME).write_bytes(dump_meta(meta))
        except OSError as error:
            self._fail(why, target, error.strerror or str(error))
            return
        thread = threading.Thread(target=self._run, args=(why, target, meta), name="lo2io-dump", daemon=True)
        try:
            thread.start()
        except RuntimeError as error:  # no more threads
            self._fail(why, target, str(error))
            return
        self._thread = thread

    def wait(self, is_given_up: Callable[[], bool]) -> None:
        """Wait for the window that is being written; nothing can be asked for any more.

        Args:
            is_given_up: Asked now and then; true ends the writing.
        """
        thread = self._thread
        told = None
        while thread is not None and thread.is_alive():
            self._given_up = self._given_up or is_given_up()
            child = self._child
            if self._given_up and child is not None and child is not told:
                # It removes what it has written, as after Ctrl-C; another one would stop it from that.
                child.send_signal(signal.SIGINT)
                told = child
            thread.join(_POLL_S)
        if self._recorder >= 0:
            os.close(self._recorder)
            self._recorder = -1
            self._log.close()
            for name in (DUMPS_NAME, LOCK_NAME):
                (self._spool.path / name).unlink(missing_ok=True)

    def lived(self, begin_ns: int, end_ns: int) -> tuple[int, ...]:
        """The processes that converted somewhen in a span of CLOCK_MONOTONIC: their I/O is lo2io's own."""
        return tuple(
            child.pid
            for child in list(self._children)
            if child.begin_ns <= end_ns and (child.end_ns is None or child.end_ns >= begin_ns)
        )

    def forget(self, before_ns: int) -> None:
        """Nobody will ask about a time before this one."""
        self._children[:] = [one for one in self._children if one.end_ns is None or one.end_ns >= before_ns]

    # ---- in a thread of its own ----

    def _run(self, why: str, target: Path, meta: SpoolMeta) -> None:
        spool = target / SPOOL
        arguments = ["convert", str(spool), "-o", str(target), *self._convert]
        try:
            answer = self._run_child([sys.executable, "-P", "-m", "lo2io", *arguments])
        except (OSError, Lo2ioError) as error:
            reason = "given up" if self._given_up else str(error)
            command = shlex.join(["lo2io", *arguments])
            self._fail(why, target, f"{reason}; its spool is kept: `{command}`", keep=True)
            return
        if not self._keep_spool:
            shutil.rmtree(spool, ignore_errors=True)
        caller = sudo_caller()
        if caller:
            give_away(target, caller)
        seconds = ((meta.stop_ns or meta.start_ns) - meta.start_ns) / NS_PER_S
        self._free()
        self._note(f"{target} holds the last {seconds:.1f} s ({why}); {answer}")
        self._post(DONE, path=target, text=answer)

    def _run_child(self, command: list[str]) -> str:
        """Convert; the last line of what the child said.

        Raises:
            Lo2ioError: It failed.
        """
        if self._given_up:
            raise Lo2ioError("convert the window")
        begin_ns = time.monotonic_ns()
        # The child shall be as any other, which needs no SIGCHLD. Here, a thread that does not block it would be given
        # the one about the recorded command, and the main thread waited for ever.
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
            )
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        life = _Child(child.pid, begin_ns)
        self._children.append(life)
        self._child = child
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, child.pid, NICE)
        try:
            _, told = child.communicate()
        finally:
            life.end_ns = time.monotonic_ns()
        lines = told.rstrip().splitlines()
        if child.returncode:
            # An error's remedy stands in a line of its own, set in: the error is above it.
            last = next((at for at in reversed(range(len(lines))) if not lines[at].startswith(" ")), 0)
            answer = "; ".join(line.strip().removeprefix("lo2io: ") for line in lines[last:])
            raise Lo2ioError("convert the window", answer or f"exit code {child.returncode}")
        return lines[-1].strip() if lines else ""

    # ---- telling ----

    def _fail(self, why: str, target: Path | None, answer: str, *, keep: bool = False) -> None:
        if target is not None and not keep:
            shutil.rmtree(target, ignore_errors=True)
        self._free()
        self._note(f"{NO_WINDOW} for {why}: {answer}")
        self._post(FAILED, path=target, text=answer)

    def _free(self) -> None:
        with self._lock:
            self._busy = False

    def _post(self, event: str, *, path: Path | None = None, text: str = "") -> None:
        line = json.dumps({"event": event, "path": None if path is None else str(path), "text": text})
        with self._lock, contextlib.suppress(OSError, ValueError):  # a full disk, or the recording is over
            self._log.write(line + "\n")
            self._log.flush()


def _new_folder(beside: Path) -> Path:
    """``dump-20261121-060000`` in a directory, or with a number behind it.

    Raises:
        OSError: It cannot be created.
    """
    stem = time.strftime("dump-%Y%m%d-%H%M%S")
    for number in itertools.count(1):
        path = (beside / (stem if number == 1 else f"{stem}-{number}")).absolute()
        with contextlib.suppress(FileExistsError):
            path.mkdir()
            return path
    raise AssertionError
