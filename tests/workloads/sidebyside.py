"""One run of a program, recorded by several recorders at once.

Two runs of a program differ in a hundred irrelevant ways. One run that two recorders have watched does not, so that
recordings can be compared row by row, with pids, tids and CPUs.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING

from lo2io.trace.reader import open_trace
from workloads.record import LO2IO, Recorded, has_begun

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

WAIT_S = 60
_GATE = 'kill -STOP $$; exec "$@"'


@contextlib.contextmanager
def gate(
    command: Sequence[str | Path], *, stdin: Path | None = None, cwd: Path | None = None, ends: bool = True
) -> Iterator[int]:
    """A process that waits before it becomes the command; yields its pid, and ends it on leaving.

    A process that ``ends`` by itself must succeed.
    """
    words = ["sh", "-c", _GATE, "gate", *map(str, command)]
    with (
        open(stdin or "/dev/null", "rb") as source,  # noqa: PTH123
        subprocess.Popen(words, stdin=source, stdout=subprocess.DEVNULL, cwd=cwd) as process,
    ):
        try:
            _wait(lambda: state_of(process.pid) == "T", "the program never came to the gate")
            yield process.pid
            if ends:
                process.wait(timeout=WAIT_S)
                assert process.returncode == 0, f"the program ended with {process.returncode}"
        finally:
            process.kill()


def go_on(pid: int) -> None:
    """Open the gate."""
    os.kill(pid, signal.SIGCONT)


def ended(pid: int) -> None:
    """Wait until a child has ended; it is not reaped."""
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)


def overflow(recorder: subprocess.Popen[str], pid: int) -> None:
    """Let a gated process run to its end while a recorder of it stands still, and its buffers overflow."""
    recorder.send_signal(signal.SIGSTOP)
    go_on(pid)
    ended(pid)
    recorder.send_signal(signal.SIGCONT)


def state_of(pid: int) -> str:
    """The state letter of /proc/PID/stat (proc(5))."""
    return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()[0]


def _wait(condition: object, otherwise: str) -> None:
    end = time.monotonic() + WAIT_S
    assert callable(condition)
    while not condition():
        assert time.monotonic() < end, otherwise
        time.sleep(0.005)


@contextlib.contextmanager
def recorders(
    folder: Path, sides: Mapping[str, Sequence[str]], *common: str
) -> Iterator[dict[str, subprocess.Popen[str]]]:
    """``lo2io`` once for each side, all sampling; traces are ``folder/SIDE``. The caller ends them."""
    with contextlib.ExitStack() as stack:
        running = {}
        for side, options in sides.items():
            shutil.rmtree(folder / side / "spool", ignore_errors=True)  # one that was kept has begun already
            words = [str(LO2IO), *common, "--force", "-o", str(folder / side), *options]
            running[side] = stack.enter_context(subprocess.Popen(words, stderr=subprocess.PIPE, text=True))
            stack.callback(running[side].kill)
        for side, process in running.items():
            spool = folder / side / "spool"
            _wait(
                lambda process=process, spool=spool: has_begun(spool) or process.poll() is not None, f"{side}: no start"
            )
            assert has_begun(spool), f"{side}: {process.communicate()[1]}"
        yield running


def read_all(folder: Path, running: Mapping[str, subprocess.Popen[str]]) -> dict[str, Recorded]:
    """The traces of the recorders, which must have succeeded."""
    found = {}
    for side, process in running.items():
        _, stderr = process.communicate(timeout=2 * WAIT_S)
        assert process.returncode == 0, f"{side}: {stderr}"
        found[side] = Recorded(open_trace(folder / side), process.returncode, "", stderr)
    return found


def record_sides(
    folder: Path,
    command: Sequence[str | Path],
    sides: Mapping[str, Sequence[str]],
    events: str,
    *,
    stdin: Path | None = None,
    cwd: Path | None = None,
    attempts: int = 8,
) -> dict[str, Recorded]:
    """The command in process mode, by all sides at once; each must prove its part complete.

    Samples of process 1's calls may vanish on some virtual machines (see ``workloads.record``). Only for that reason,
    the command is run and recorded again.
    """
    with (
        gate(command, stdin=stdin, cwd=cwd) as pid,
        recorders(folder, sides, "record", "-p", str(pid), "-e", events) as running,
    ):
        go_on(pid)
        found = read_all(folder, running)
    proofs = [each.trace.completeness for each in found.values()]
    if attempts > 1 and any(proof.vanished and not proof.whole for proof in proofs):
        return record_sides(folder, command, sides, events, stdin=stdin, cwd=cwd, attempts=attempts - 1)
    for side, each in found.items():
        proof = each.trace.completeness
        assert proof.whole, f"{side}: {each.stderr}"
        assert (proof.late, proof.in_flight) == (0, 0), f"{side}: {each.stderr}"
    return found
