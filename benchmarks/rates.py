"""What recording an idle machine costs, and what is lost when as much happens as possible.

Idle: CPU time of all threads of a recorder in 20 s of an idle machine, from 5 s after its start. Beside the flight
recorder 5,000 processes sleep. Rates: one process, then one for each CPU, then two, read from the page cache as fast as
they can.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from statistics import median
from typing import TYPE_CHECKING, Any

from common import BenchError, Settings, build, column, in_turns, lo2io, require, run, spread, table, verdict
from gated import cpu_s
from overhead import make_cached
from perf_data import count
from tracers import default_events, seen_and_lost

from lo2io.kernel.tracefs import find_tracefs, load_format
from lo2io.spool.segments import PARTS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

NAME = "rates"
LETTER = "g"
SETTLE_S, LEAST_SETTLE_S, IDLE_S = 5, 2, 20
SEGMENT_S = 60 / PARTS
"""A flight recorder with ``--last 60s`` looks at all processes this often: one look falls into any such time."""
ROUNDS = 1_000_000
PREAD = "syscalls:sys_exit_pread64"
TARGET_IDLE, TARGET_FLIGHT = 0.003, 0.005
TARGET_RATE = 1_000_000
RECORDERS = ("lo2io system-wide -a", "perf record -a")
SLEEPERS = 5_000
FLIGHT = f"lo2io system-wide -a --last 60s, {SLEEPERS:,} processes"


def measure(settings: Settings) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Measure both recorders idle, then under load."""
    require("perf", "gcc")
    data = settings.directory / "data"
    make_cached(data)
    events = build("events.c", settings.bin)
    nr_cpus = os.cpu_count() or 1
    variants: dict[str, Callable[[], dict[str, Any]]] = {f"idle, {name}": _idle(settings, name) for name in RECORDERS}
    variants[f"idle, {FLIGHT}"] = _idle_among(
        SLEEPERS, _idle(settings, RECORDERS[0], "--last", "60s", least_s=SEGMENT_S)
    )
    for processes in dict.fromkeys((1, nr_cpus, 2 * nr_cpus)):
        for name in RECORDERS:
            workload = _workload(settings.directory, events, data, processes, settings.scaled(ROUNDS))
            variants[f"{processes} at once, {name}"] = _loaded(settings.directory, name, workload, processes)
    ours = [name for name in variants if name.endswith(RECORDERS[0])]
    amount = {"idle_s": settings.scale * IDLE_S, "rounds": settings.scaled(ROUNDS)}
    return amount, in_turns(NAME, variants, settings, ours=ours)


def _command(name: str, folder: Path, *workload: str, options: Sequence[str] = ()) -> list[str]:
    if name == RECORDERS[0]:
        words = [str(lo2io()), "system-wide", "-a", *options, "-q", "--no-convert", "-o", str(folder / "recorded")]
    else:
        words = ["perf", "record", "-q", "-a", "-e", ",".join(default_events()), "-o", str(folder / "perf.data")]
    return [*words, *(("--", *workload) if workload else ())]


def _idle(settings: Settings, name: str, *options: str, least_s: float = 0) -> Callable[[], dict[str, Any]]:
    def measure_one() -> dict[str, Any]:
        directory, idle_s = settings.directory, max(least_s, settings.scale * IDLE_S)
        folder = directory / f"idle-{time.monotonic_ns()}"
        folder.mkdir()
        with (directory / "output.txt").open("wb") as output:
            command = _command(name, folder, options=options)
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output)
            time.sleep(SETTLE_S if least_s else max(LEAST_SETTLE_S, settings.scale * SETTLE_S))
            before = cpu_s(process.pid)
            time.sleep(idle_s)
            share = (cpu_s(process.pid) - before) / idle_s
            process.send_signal(signal.SIGINT)
            process.wait()
        return {"share": share}

    return measure_one


def _idle_among(processes: int, idle: Callable[[], dict[str, Any]]) -> Callable[[], dict[str, Any]]:
    def measure_one() -> dict[str, Any]:
        script = f"n=0; while [ $n -lt {processes} ]; do sleep 1000 & n=$((n + 1)); done; echo all; wait"
        crowd = subprocess.Popen(["sh", "-c", script], stdout=subprocess.PIPE, text=True, start_new_session=True)
        assert crowd.stdout is not None
        try:
            if crowd.stdout.readline() != "all\n":
                raise BenchError(f"{processes:,} processes could not be started")
            return idle()
        finally:
            os.killpg(crowd.pid, signal.SIGKILL)
            crowd.communicate()

    return measure_one


def _workload(directory: Path, events: Path, data: Path, processes: int, rounds: int) -> Path:
    path = directory / f"workload-{processes}"
    lines = [f"{events} pread {rounds} {data} {directory}/result-{number} &" for number in range(processes)]
    path.write_text("\n".join(["#!/bin/sh", *lines, "wait", ""]), encoding="ascii")
    path.chmod(0o755)
    return path


def _loaded(directory: Path, name: str, workload: Path, processes: int) -> Callable[[], dict[str, Any]]:
    def measure_one() -> dict[str, Any]:
        folder = directory / f"loaded-{time.monotonic_ns()}"
        folder.mkdir()
        run(_command(name, folder, str(workload)), directory / "output.txt")
        ns = [float((directory / f"result-{number}").read_text(encoding="ascii")) for number in range(processes)]
        row: dict[str, Any] = {"events_per_s": sum(2e9 / each for each in ns)}
        if name == RECORDERS[0]:
            return row | seen_and_lost(folder, PREAD)
        counts = count(folder / "perf.data", load_format(find_tracefs(), PREAD)[0].id)
        return row | {"lost": counts.lost, "seen": counts.samples}

    return measure_one


def render(document: Mapping[str, Any]) -> str:
    """Two tables and the verdict."""
    rows = document["runs"]
    names = list(dict.fromkeys(row["variant"] for row in rows))
    idle = [
        [name.partition(", ")[2], spread([100 * value for value in column(rows, name, "share")])]
        for name in names
        if name.startswith("idle")
    ]
    loaded = [name for name in names if not name.startswith("idle")]
    lines = [
        [
            name,
            spread([value / 1e6 for value in column(rows, name, "events_per_s")]),
            spread(column(rows, name, "lost"), 0),
        ]
        for name in loaded
    ]
    share = median(column(rows, f"idle, {RECORDERS[0]}", "share"))
    flight = column(rows, f"idle, {FLIGHT}", "share")
    ours = [row for row in rows if row["variant"].endswith(RECORDERS[0]) and "lost" in row]
    within = [row for row in ours if row["events_per_s"] <= TARGET_RATE]
    beyond = max(row["events_per_s"] for row in ours)
    full = sum(row["lost"] - row.get("vanished", 0) for row in ours)
    return (
        f"Medians and least to most of {max(row['run'] for row in rows)} runs in turns. On an idle machine, for "
        f"{document['settings']['idle_s']:.0f} s:\n\n{table(['', '% of one CPU'], idle)}\n\n"
        f"{document['settings']['rounds']:,} reads from the page cache by each process:\n\n"
        f"{table(['processes', 'million events/s', 'lost'], lines)}\n\n"
        f"Targets: idle at most {TARGET_IDLE:.1%} of one CPU: {share:.2%} ({verdict(met=share <= TARGET_IDLE)}); "
        f"{_of_flight(flight)}"
        f"nothing lost to full rings up to {TARGET_RATE:,} events/s: {full:,} in all runs, {len(within)} of them below "
        f"that rate, the fastest at {beyond:,.0f} ({verdict(met=full == 0)})."
    )


def _of_flight(shares: Sequence[float]) -> str:
    if not shares:  # a kept result that is older than this variant
        return ""
    share = median(shares)
    return (
        f"the flight recorder among {SLEEPERS:,} processes {TARGET_FLIGHT:.1%}: {share:.2%} "
        f"({verdict(met=share <= TARGET_FLIGHT)}); "
    )
