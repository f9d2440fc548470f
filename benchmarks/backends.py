"""What each way to record system calls costs, and at which rate calls are lost.

lo2io pairs calls in the kernel and looks at files there (`--backend bpf`), samples calls and looks at files in the
kernel (`--backend perf`), or samples calls alone (`--names proc`). perf record and bpftrace record the same events.
fio reads a cached file as in (a). Loops of one call are timed inside of a recording and beside it (`gated.py`).
"""

from __future__ import annotations

import json
import os
import shutil
from typing import TYPE_CHECKING, Any

from common import LO2IO, Settings, build, column, in_turns, middle, require, run, slowdown, spread, table, verdict
from gated import ROUNDS, measured
from overhead import LOOP_BYTES, figures_of, make_cached, one_run, write_workload
from tracers import CALLS, KINDS, Bpftrace, Floor, Lo2io, PerfRecord, Strace, Untraced, seen_and_lost

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from tracers import Tracer

    Row = dict[str, Any]

NAME = "backends"
LETTER = "j"
READS = 1_000_000
PREAD = "syscalls:sys_exit_pread64"
BPF, PERF, PROC = "lo2io --backend bpf", "lo2io --backend perf", "lo2io --backend perf --names proc"
OURS = {BPF: ("--backend", "bpf"), PERF: ("--backend", "perf"), PROC: ("--backend", "perf", "--names", "proc")}
TARGET_RATIO = 1.4
TARGET_START_S = 0.3
SMALL_RING = "256KiB"
STRACE_SHARE = 0.01
"""Of the rounds of a loop: a call takes 200 times as long under strace."""
LOOPS = {
    "pread": "pread",
    "seek": "lseek and read",
    "pwrite": "pwrite 64 B",
    "open": "open and close",
    "getppid": "getppid",
    "switch": "switch",
}


def _tracers() -> dict[str, Tracer]:
    return {
        "untraced": Untraced(),
        **{name: Lo2io(*options) for name, options in OURS.items()},
        "perf record -a": PerfRecord("-a"),
        "perf record": PerfRecord(),
        "bpftrace, counting": Bpftrace(printing=False),
        "bpftrace, printing": Bpftrace(printing=True),
    }


def measure(settings: Settings) -> tuple[Row, list[Row]]:
    """Run fio, loops and start-up under every recorder; then make as many calls as possible."""
    require("fio", "perf", "bpftrace", "gcc", "taskset")
    data, loops = settings.directory / "data", settings.directory / "loops"
    make_cached(data)
    make_cached(loops, LOOP_BYTES)
    reads = settings.scaled(READS)
    workload = write_workload(settings, data, reads)
    events, timed = build("events.c", settings.bin), build("timed.c", settings.bin)
    folder = settings.directory
    variants: dict[str, Callable[[], Row]] = {}
    for name, tracer in _tracers().items():
        variants[f"fio, {name}"] = one_run(folder, tracer, workload, figures_of)
        if name != "bpftrace, printing":  # a run takes a minute, and (a) has its price
            variants[f"loops, {name}"] = measured(settings, events, loops, tracer)
    for floor in KINDS:
        variants[f"loops, {floor}"] = measured(settings, events, loops, Floor(*CALLS, "sched_switch", variant=floor))
    variants["loops, strace"] = measured(settings, events, loops, Strace(), share=STRACE_SHARE)
    for name, options in OURS.items():
        variants[f"start, {name}"] = _start(folder, timed, options)
    nr_cpus = os.cpu_count() or 1
    for processes in (1, nr_cpus, 2 * nr_cpus):
        for name in (BPF, PROC):
            variants[f"{processes} at once, {name}"] = _rate(settings, events, data, processes, OURS[name])
    small = (*OURS[BPF], "--ring", SMALL_RING)
    variants[f"{nr_cpus} at once, {BPF} --ring {SMALL_RING}"] = _rate(settings, events, data, nr_cpus, small)
    rounds = {mode: settings.scaled(count) for mode, count in ROUNDS.items()}
    return {"reads": reads, "rounds": rounds}, in_turns(NAME, variants, settings, ours=(f"loops, {BPF}",))


def _start(folder: Path, timed: Path, options: Sequence[str]) -> Callable[[], Row]:
    def measure_one() -> Row:
        command = [LO2IO, "record", *options, "-o", folder / "trace", "--", timed, folder / "times.json", "true"]
        usage = run(command, folder / "output.txt")
        times = json.loads((folder / "times.json").read_text(encoding="ascii"))
        shutil.rmtree(folder / "trace")
        return {
            "wall_s": usage.wall_s,
            "cpu_s": usage.cpu_s,
            "until_exec_s": (times["begin_ns"] - usage.begin_ns) / 1e9,
            "background_s": usage.background_s,
        }

    return measure_one


def _rate(settings: Settings, events: Path, data: Path, processes: int, options: Sequence[str]) -> Callable[[], Row]:
    folder, rounds = settings.directory, settings.scaled(READS)
    workload = folder / f"workload-{processes}"
    lines = [f"{events} pread {rounds} {data} {folder}/result-{number} &" for number in range(processes)]
    workload.write_text("\n".join(["#!/bin/sh", *lines, "wait", ""]), encoding="ascii")
    workload.chmod(0o755)

    def measure_one() -> Row:
        recording = folder / "rate"
        recording.mkdir()
        usage = run(Lo2io(*options).command(recording, workload), folder / "output.txt")
        ns = [float((folder / f"result-{number}").read_text(encoding="ascii")) for number in range(processes)]
        row = {"calls_per_s": sum(1e9 / each for each in ns), "wall_s": usage.wall_s}
        row |= seen_and_lost(recording, PREAD)
        shutil.rmtree(recording)
        return row | {"missing": max(0, rounds * processes - row["seen"])}

    return measure_one


def render(document: Mapping[str, Any]) -> str:
    """Four tables and the verdict."""
    rows = document["runs"]
    runs = max(row["run"] for row in rows)
    return "\n\n".join([
        f"Medians and least to most of {runs} runs in turns; ratios are to the untraced median.",
        f"fio, {document['settings']['reads']:,} reads of 4 KiB from the page cache:",
        _fio_table(rows, document["settings"]["reads"]),
        "Loops inside of the recording, in ns a round (a round of `switch`: two switches between processes):",
        _loop_table(rows, "inside"),
        "The same loops of a process beside the recording, which it does not concern:",
        _loop_table(rows, "beside"),
        "Start of `record -- true`, in seconds:",
        _start_table(rows),
        "Reads from the page cache as fast as they go, recorded in process mode:",
        _rate_table(rows),
        _verdict(rows),
    ])  # fmt: skip


def _names(rows: Sequence[Row], job: str) -> list[str]:
    found = dict.fromkeys(row["variant"] for row in rows if row["variant"].startswith(f"{job}, "))
    return [name.partition(", ")[2] for name in found]


def _ratios(rows: Sequence[Row], job: str, name: str, key: str) -> list[float]:
    base = middle(rows, f"{job}, untraced", key)
    return [value / base for value in column(rows, f"{job}, {name}", key)]


def _fio_table(rows: Sequence[Row], reads: int) -> str:
    lines = []
    for name in _names(rows, "fio"):
        variant, traced = f"fio, {name}", name != "untraced"
        missing = [max(0, reads - seen) for seen in column(rows, variant, "reads")] if traced else []
        lines.append([
            name,
            *(spread(_ratios(rows, "fio", name, key)) if traced else "1" for key in ("wall_s", "cpu_s")),
            spread(column(rows, variant, "wall_s")),
            spread(column(rows, variant, "recorder_cpu_s")) if traced else "",
            spread(missing, 0) if traced else "",
            spread(column(rows, variant, "lost"), 0) if traced else "",
            spread(column(rows, variant, "getppid_ns"), 0),
        ])  # fmt: skip
    head = ["", "wall ratio", "CPU ratio", "wall s", "recorder's CPU s", "reads missing", "lost", "getppid ns"]
    return table(head, lines)


def _loop_table(rows: Sequence[Row], place: str) -> str:
    measured_loops = {mode for mode in LOOPS if any(f"{place}_{mode}_ns" in row for row in rows)}
    heads = {mode: text for mode, text in LOOPS.items() if mode in measured_loops}
    lines = [
        [
            name,
            *(spread(column(rows, f"loops, {name}", f"{place}_{mode}_ns"), 0) for mode in heads),
            *([spread(column(rows, f"loops, {name}", "recorder_cpu_s"))] if place == "inside" else []),
        ]
        for name in _names(rows, "loops")
    ]
    return table(["", *heads.values(), *(["recorder's CPU s"] if place == "inside" else [])], lines)


def _start_table(rows: Sequence[Row]) -> str:
    lines = [
        [name, *(spread(column(rows, f"start, {name}", key), 3) for key in ("until_exec_s", "wall_s"))]
        for name in _names(rows, "start")
    ]
    return table(["", "until the command runs", "in all"], lines)


def _rate_table(rows: Sequence[Row]) -> str:
    lines = [
        [
            name,
            spread([value / 1e6 for value in column(rows, name, "calls_per_s")]),
            spread(column(rows, name, "missing"), 0),
            spread(column(rows, name, "lost"), 0),
        ]
        for name in dict.fromkeys(row["variant"] for row in rows)
        if " at once, " in name
    ]
    return table(["processes", "million calls/s", "reads missing", "lost"], lines)


def _verdict(rows: Sequence[Row]) -> str:
    ratios = [slowdown(rows, "fio", BPF, key) for key in ("wall_s", "cpu_s")]
    met = max(ratios) <= TARGET_RATIO
    later = middle(rows, f"start, {BPF}", "wall_s") - middle(rows, f"start, {PROC}", "wall_s")
    ours = [row for row in rows if row["variant"].endswith(f" at once, {BPF}")]
    lost, fastest = sum(row["missing"] for row in ours), max(row["calls_per_s"] for row in ours)
    return (
        f"Targets: cached reads at most {TARGET_RATIO} times the untraced, wall and CPU: {ratios[0]:.2f} and "
        f"{ratios[1]:.2f} ({verdict(met=met)}); nothing lost up to the machine's limit: {lost:,} reads missing in all "
        f"runs, the fastest at {fastest:,.0f} calls/s ({verdict(met=not lost)}); start-up at most {TARGET_START_S} s "
        f"more: {later:+.3f} s ({verdict(met=later <= TARGET_START_S)})."
    )
