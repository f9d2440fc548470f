"""A recording in which loops are timed, inside of it and beside it, while the recorder's CPU time is measured.

The recorded command stands at a gate: it reports that it runs, waits for a word, times its loops one after another,
reports that, and waits again. Then a process that is not recorded times the same loops beside the same recording, while
no recorded program runs. Loops are those of ``events.c``, on the last CPU.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import time
from typing import TYPE_CHECKING, Any

from common import BenchError, Settings, wait_for_orphans

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from tracers import Tracer

ROUNDS = {
    "pread": 500_000,
    "seek": 300_000,
    "pwrite": 500_000,
    "open": 200_000,
    "getppid": 1_000_000,
    "switch": 100_000,
}
WAIT_S = 60
_GATE = """#!/bin/sh
cd {folder}
echo begin >told
read line <word
{loops}
echo end >told
read line <word
"""


def loop(settings: Settings, events: Path, data: Path, mode: str, *, parts: int = 0, share: float = 1) -> list[str]:
    """The command of one loop; ``parts``: for the CPU time of its undisturbed parts; ``share`` of the rounds."""
    cpu = max(os.sched_getaffinity(0))
    rounds = settings.scaled(int(share * ROUNDS[mode]))
    result = f"{settings.directory}/ns-{mode}"
    words = ["taskset", "-c", str(cpu), str(events), mode, str(rounds), str(data), result]
    return [*words, str(parts)] if parts else words


def measured(
    settings: Settings,
    events: Path,
    data: Path,
    tracer: Tracer,
    *,
    modes: Sequence[str] = tuple(ROUNDS),
    parts: int = 0,
    share: float = 1,
) -> Callable[[], dict[str, Any]]:
    """One recording: nanoseconds a round inside and beside, the recorder's CPU time in between, its start and end.

    ``modes``: the loops. ``parts`` and ``share``: see :func:`loop`.
    """

    def measure_one() -> dict[str, Any]:
        folder, recording = settings.directory, settings.directory / "run"
        recording.mkdir()
        workload = _write_gate(
            settings, [loop(settings, events, data, mode, parts=parts, share=share) for mode in modes]
        )
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
            row = {f"inside_{mode}_ns": _result(folder, mode) for mode in modes}
            for mode in modes:
                subprocess.run(loop(settings, events, data, mode, parts=parts, share=share), check=True)
            row |= {f"beside_{mode}_ns": _result(folder, mode) for mode in modes}
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
    """The CPU time of a process with all its threads, by its own clock, whose resolution is a nanosecond.

    The number of this clock is what clock_getcpuclockid(3) returns (include/linux/posix-timers_types.h:
    CPUCLOCK_SCHED is 2).
    """
    try:
        return time.clock_gettime(~pid << 3 | 2)
    except OSError as error:
        raise BenchError(f"the recorder has ended: {error}") from error


def _write_gate(settings: Settings, commands: Sequence[Sequence[str]]) -> Path:
    folder = settings.directory
    for name in ("told", "word"):
        (folder / name).unlink(missing_ok=True)
        os.mkfifo(folder / name)
    path = folder / "gate"
    loops = "\n".join(" ".join(command) for command in commands)
    path.write_text(_GATE.format(folder=folder, loops=loops), encoding="ascii")
    path.chmod(0o755)
    return path


def _hear(path: Path, word: str, process: subprocess.Popen[bytes]) -> None:
    """Wait for the gate's word. A recorder that ends before is an error."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        end = time.monotonic() + WAIT_S
        said = b""
        while not said:
            if process.poll() is not None or time.monotonic() > end:
                raise BenchError(f"the recorded command never said {word}")
            time.sleep(0.001)
            with contextlib.suppress(BlockingIOError):  # the command has opened the pipe and not written yet
                said = os.read(descriptor, 64)
    finally:
        os.close(descriptor)
    if said.decode().strip() != word:
        raise BenchError(f"the recorded command said {said!r}, not {word}")


def _say(path: Path) -> None:
    path.write_text("go\n", encoding="ascii")


def _result(folder: Path, mode: str) -> float:
    return float((folder / f"ns-{mode}").read_text(encoding="ascii"))
