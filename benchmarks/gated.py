"""A recording in which loops are timed, inside of it and beside it, while the recorder is watched.

The recorded command stands at a gate: it says that it runs, waits for the word, times its loops one after the other,
says so, and waits again. Beside the same recording, with nothing recorded running, the same loops are timed as a
neighbour's. Loops are those of ``events.c``, on the last CPU.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from common import BenchError, Settings, wait_for_orphans

if TYPE_CHECKING:
    from collections.abc import Callable

    from tracers import Tracer

ROUNDS = {"pread": 500_000, "open": 200_000, "getppid": 1_000_000, "switch": 100_000}
WAIT_S = 60
_GATE = """#!/bin/sh
cd {folder}
echo begin >told
read line <word
{loops}
echo end >told
read line <word
"""


def loop(settings: Settings, events: Path, data: Path, mode: str) -> list[str]:
    """The command of one loop."""
    cpu = max(os.sched_getaffinity(0))
    rounds = settings.scaled(ROUNDS[mode])
    return ["taskset", "-c", str(cpu), str(events), mode, str(rounds), str(data), f"{settings.directory}/ns-{mode}"]


def measured(settings: Settings, events: Path, data: Path, tracer: Tracer) -> Callable[[], dict[str, Any]]:
    """One recording: nanoseconds a round inside and beside, the recorder's CPU time meanwhile, its start and end."""

    def measure_one() -> dict[str, Any]:
        folder, recording = settings.directory, settings.directory / "run"
        recording.mkdir()
        workload = _write_gate(settings, events, data)
        begin = time.monotonic()
        with (folder / "output.txt").open("wb") as output:
            process = subprocess.Popen(
                tracer.command(recording, workload), stdin=subprocess.DEVNULL, stdout=output, stderr=output
            )
        try:
            _hear(folder / "told", "begin", process)
            start_s, before_s = time.monotonic() - begin, cpu_s(process.pid)
            _say(folder / "word")
            _hear(folder / "told", "end", process)
            busy_s = cpu_s(process.pid) - before_s
            row = {f"inside_{mode}_ns": _result(folder, mode) for mode in ROUNDS}
            for mode in ROUNDS:
                subprocess.run(loop(settings, events, data, mode), check=True)
            row |= {f"beside_{mode}_ns": _result(folder, mode) for mode in ROUNDS}
            end = time.monotonic()
            _say(folder / "word")
            if process.wait(timeout=WAIT_S) != 0:
                raise BenchError(f"the recorder ended with {process.returncode}: {(folder / 'output.txt').read_text()}")
        finally:
            process.kill()
        row |= {"start_s": start_s, "recorder_cpu_s": busy_s, "end_s": time.monotonic() - end}
        wait_for_orphans(tracer.command(recording, workload)[0])
        shutil.rmtree(recording)
        return row

    return measure_one


def cpu_s(pid: int) -> float:
    """User and system time of a process with all its threads (proc(5), /proc/PID/stat fields 14 and 15)."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise BenchError(f"the recorder has ended: {error}") from error
    fields = text.rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _write_gate(settings: Settings, events: Path, data: Path) -> Path:
    folder = settings.directory
    for name in ("told", "word"):
        (folder / name).unlink(missing_ok=True)
        os.mkfifo(folder / name)
    path = folder / "gate"
    loops = "\n".join(" ".join(loop(settings, events, data, mode)) for mode in ROUNDS)
    path.write_text(_GATE.format(folder=folder, loops=loops), encoding="ascii")
    path.chmod(0o755)
    return path


def _hear(path: Path, word: str, process: subprocess.Popen[bytes]) -> None:
    """Wait for the gate's word; a recorder that ends before is an error."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        end = time.monotonic() + WAIT_S
        said = b""
        while not said:
            if process.poll() is not None or time.monotonic() > end:
                raise BenchError(f"the recorded command never said {word}")
            time.sleep(0.001)
            with contextlib.suppress(BlockingIOError):  # it has opened the pipe, and not written yet
                said = os.read(descriptor, 64)
    finally:
        os.close(descriptor)
    if said.decode().strip() != word:
        raise BenchError(f"the recorded command said {said!r}, not {word}")


def _say(path: Path) -> None:
    path.write_text("go\n", encoding="ascii")


def _result(folder: Path, mode: str) -> float:
    return float((folder / f"ns-{mode}").read_text(encoding="ascii"))
