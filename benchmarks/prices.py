"""What one event of each group costs the thread in which it happens, and what is free.

A loop makes one kind of call, untraced and recorded by turns. The difference, divided by the events of a round, is the
price of an event. The price of filters, in the kernel or when converting, is measured the same way.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from functools import partial
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from common import BenchError, Settings, build, column, in_turns, lo2io, require, run, spread, table
from overhead import LOOP_BYTES, make_cached
from tracers import CALLS, KINDS, SWITCHES, Floor, default_events

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

NAME = "prices"
LETTER = "h"
ROUNDS = {
    "getppid": 1_000_000,
    "pread": 500_000,
    "open": 200_000,
    "fstat": 500_000,
    "switch": 200_000,
    "direct": 20_000,
    "wake": 500_000,
    "futex": 100_000,
}
NEIGHBOUR = "default, another cgroup (`--cgroup G`)"
SCHED = "default and scheduler (`--sched`)"
FUTEX = "futexes (`-e +futex`), whose calls sleep"
PRICES: dict[str, tuple[str, int, str, tuple[str, ...]]] = {
    "reads and writes (`-e read`)": ("pread", 2, "pread64", ("-e", "read")),
    "open and close (`-e open,close`)": ("open", 4, "openat and close", ("-e", "open,close")),
    "metadata (`-e metadata`)": ("fstat", 2, "fstat", ("-e", "metadata")),
    "default": ("pread", 2, "pread64", ()),
    "default, of a call not in it": ("getppid", 1, "getppid", ()),
    "everything (`-e all`), of a call not in it": ("getppid", 1, "getppid", ("-e", "all")),
    "block (`-e block`)": ("direct", 3, "direct read", ("-e", "block")),
    "block, another device (`--filter 'device == loop0'`)": (
        *("direct", 3, "direct read"),
        ("-e", "block", "--filter", "device == loop0"),
    ),
    "scheduler (`-e sched`)": ("switch", 2, "two switches", ("-e", "sched")),
    "default, of a futex": ("futex", 4, "two waits and wakes", ()),
    "futexes (`-e +futex`), whose calls keep the CPU": ("wake", 1, "wake nobody", ("-e", "+futex")),
    FUTEX: ("futex", 4, "two waits and wakes", ("-e", "+futex")),
    SCHED: ("switch", 10, "two switches, four calls", ("--sched",)),
    NEIGHBOUR: ("pread", 2, "pread64", ("--cgroup", "{cgroup}")),
    "default, other CPUs (`--cpus`)": ("pread", 2, "pread64", ("--cpus", "{other}")),
}
"""Name in the table: loop, events in a round, description of a round, options."""
FLOORS = {
    "default": CALLS,
    NEIGHBOUR: CALLS,
    SCHED: (*CALLS, *SWITCHES),
    FUTEX: (*CALLS, *SWITCHES),
}
"""Choice of events → the raw tracepoints at which floor.py's programs run in its stead."""
RIVALS = {
    "default": (),
    SCHED: ("sched:sched_switch",),
    FUTEX: ("syscalls:sys_enter_futex", "syscalls:sys_exit_futex"),
}
"""Of these, perf record -a records the same: the default events, and those named here."""


def measure(settings: Settings) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Run every loop alone, and with every choice of events."""
    require("gcc", "perf", "taskset")
    make_cached(settings.directory / "direct")
    make_cached(settings.directory / "others", LOOP_BYTES)
    events = build("events.c", settings.bin)
    with _cgroup() as cgroup:
        variants = {
            f"untraced {mode}": _one(settings, events, mode, list)
            for mode in dict.fromkeys(mode for mode, *_ in PRICES.values())
        }
        for name, (mode, _, _, options) in PRICES.items():
            words = [option.format(cgroup=cgroup, other=0) for option in options]
            variants[name] = _one(settings, events, mode, partial(_lo2io, settings.directory, words))
        for name, more in RIVALS.items():
            perf = partial(_perf, settings.directory, (*default_events(), *more))
            variants[f"{name}, perf record -a"] = _one(settings, events, PRICES[name][0], perf)
        for name, tracepoints in FLOORS.items():
            for floor in KINDS:
                words = Floor(*tracepoints, variant=floor).words
                variants[f"{name}, {floor}"] = _one(settings, events, PRICES[name][0], words)
        rows = in_turns(NAME, variants, settings, ours=(SCHED, NEIGHBOUR))
    return {"rounds": {mode: settings.scaled(count) for mode, count in ROUNDS.items()}}, rows


def _one(settings: Settings, events: Path, mode: str, recorder: Callable[[], list[str]]) -> Callable[[], Any]:
    folder = settings.directory
    data = folder / ("direct" if mode == "direct" else "others")
    # On the last CPU, so that --cpus 0 selects another one.
    pinned = ["taskset", "-c", str(_last_cpu()), str(events), mode, str(settings.scaled(ROUNDS[mode])), str(data)]

    def measure_one() -> dict[str, Any]:
        run([*recorder(), *pinned, str(folder / "ns")], folder / "output.txt")
        shutil.rmtree(folder / "recorded", ignore_errors=True)
        return {"round_ns": float((folder / "ns").read_text(encoding="ascii"))}

    return measure_one


def _lo2io(folder: Path, options: Sequence[str]) -> list[str]:
    words = [str(lo2io()), "system-wide", "-a", "-q", "--no-convert", "-o", str(folder / "recorded")]
    return [*words, *options, "--"]


def _perf(folder: Path, events: Sequence[str]) -> list[str]:
    return ["perf", "record", "-q", "-a", "-e", ",".join(events), "-o", str(folder / "perf.data"), "--"]


def _last_cpu() -> int:
    return max(os.sched_getaffinity(0))


@contextlib.contextmanager
def _cgroup() -> Iterator[Path]:
    """An empty cgroup, in the hierarchy of perf's events (cgroup v2, or v1's perf_event)."""
    for line in Path("/proc/mounts").read_text(encoding="utf-8").splitlines():
        _, place, kind, options = line.split()[:4]
        if kind == "cgroup2" or (kind == "cgroup" and "perf_event" in options.split(",")):
            path = Path(place) / "lo2io-bench"
            path.mkdir(exist_ok=True)
            try:
                yield path
            finally:
                path.rmdir()
            return
    raise BenchError("no cgroup hierarchy for perf events is mounted")


def render(document: Mapping[str, Any]) -> str:
    """A line for each choice of events."""
    rows = document["runs"]
    lines = []
    measured = {row["variant"] for row in rows}
    for name, (mode, nr_events, what, _) in PRICES.items():
        if name not in measured:  # the kept result is older than this row
            continue
        alone = median(column(rows, f"untraced {mode}", "round_ns"))
        extra = [(value - alone) / nr_events for value in column(rows, name, "round_ns")]
        lines.append(
            [name, what, spread([alone], 0), spread(extra, 0), f"{100 * nr_events * median(extra) / alone:+.0f} %"]
        )
    head = ["events", "loop of", "ns untraced", "ns an event", "slower by"]
    return (
        f"Medians and least to most of {max(row['run'] for row in rows)} runs in turns. The loop does nothing else, so "
        f"the last column is the worst case.\n\n{table(head, lines)}"
    )
