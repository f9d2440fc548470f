"""What recording costs the recorded program, beside other recorders of the same events.

fio reads a cached file with a million preads of 4 KiB, in one process. Such a read takes less than a microsecond, so
recorders show their largest share here: this is the worst case. After fio, in the same recording, a loop of getppid
shows the price of calls that no recorder records.
"""

from __future__ import annotations

import json
import shutil
from statistics import median
from typing import TYPE_CHECKING, Any

from common import Settings, build, column, in_turns, middle, require, run, spread, table, verdict
from tracers import FLOOR, variants

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from common import Usage
    from tracers import Tracer

    Row = dict[str, Any]

NAME = "overhead"
LETTER = "a"
READS = 1_000_000
BLOCK = 4096
FILE_BYTES = 256 << 20
LOOP_BYTES = 1 << 20
"""The size of the file that loops read. The CPU's own caches hold it, so that the memory's other users do not count."""
GETPPID = 200_000
TARGET_RATIO = 1.25
SLOW = {"strace -f -c": 2}
"""A run takes a minute and a half, and this ratio differs from all others by far."""


def measure(settings: Settings) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Run fio untraced and under every recorder, in turns."""
    require("fio", "perf", "strace", "bpftrace", "gcc")
    reads = settings.scaled(READS)
    data = settings.directory / "data"
    make_cached(data)
    workload = write_workload(settings, data, reads)
    rows = in_turns(
        NAME,
        {name: one_run(settings.directory, tracer, workload, figures_of) for name, tracer in variants().items()},
        settings,
        slow=SLOW,
        ours=("lo2io record",),
    )
    return {"reads": reads, "block_bytes": BLOCK, "file_bytes": FILE_BYTES, "getppid_calls": GETPPID}, rows


def make_cached(path: Path, nr_bytes: int = FILE_BYTES) -> None:
    """A file of random bytes, in the page cache."""
    with path.open("wb") as file, open("/dev/urandom", "rb") as random:  # noqa: PTH123 - a device
        for _ in range(nr_bytes >> 20):
            file.write(random.read(1 << 20))
    with path.open("rb") as file:
        while file.read(1 << 20):
            pass


def fio_command(data: Path, reads: int, result: Path) -> list[str]:
    """A fixed number of cached reads by fio, which does not empty the cache; its result is JSON."""
    return [
        *("fio", "--name=cached", f"--filename={data}", f"--size={FILE_BYTES}", "--ioengine=psync", "--rw=randread"),
        *(f"--bs={BLOCK}", f"--number_ios={reads}", f"--io_size={reads * BLOCK}", "--norandommap", "--invalidate=0"),
        *("--output-format=json", f"--output={result}"),
    ]


def write_workload(settings: Settings, data: Path, reads: int) -> Path:
    """A script, which every recorder can start: bpftrace takes no arguments with spaces."""
    timed, calls = build("timed.c", settings.bin), build("calls.c", settings.bin)
    folder = settings.directory
    path = folder / "workload"
    fio = " ".join(fio_command(data, reads, folder / "fio.json"))
    path.write_text(
        f"#!/bin/sh\nset -e\n{timed} {folder}/times.json {fio}\n{calls} getppid {GETPPID} {folder}/getppid\n",
        encoding="ascii",
    )
    path.chmod(0o755)
    return path


def one_run(
    directory: Path, tracer: Tracer, workload: Path, figures: Callable[[Path, Usage, Row, Row], Row]
) -> Callable[[], Row]:
    """A workload of fio under a recorder; ``figures`` of the folder, the whole run, ``timed``'s times and fio's job."""

    def measure_one() -> Row:
        folder = directory / "run"
        folder.mkdir()
        output = directory / "output.txt"
        whole = run(tracer.command(folder, workload), output)
        times = json.loads((directory / "times.json").read_text(encoding="ascii"))
        job = json.loads((directory / "fio.json").read_text(encoding="utf-8"))["jobs"][0]
        cpu_s = times["user_s"] + times["system_s"]
        row = {
            "cpu_s": cpu_s,
            "fio_ios": job["read"]["total_ios"],
            # All other CPU time counts as the recorder's, also the shell's, which takes some hundredths of a second.
            "recorder_cpu_s": whole.cpu_s - cpu_s + whole.background_cpu_s,
            **figures(directory, whole, times, job),
            **tracer.outcome(folder, output.read_text(encoding="utf-8", errors="replace")),
        }
        shutil.rmtree(folder)
        return row

    return measure_one


def figures_of(directory: Path, whole: Usage, times: Row, _: Row) -> Row:
    """Wall clock and CPU time of fio, the price of getppid, and the recorder's time for start and end."""
    return {
        "wall_s": (times["end_ns"] - times["begin_ns"]) / 1e9,
        "system_s": times["system_s"],
        "getppid_ns": float((directory / "getppid").read_text(encoding="ascii")),
        "command_wall_s": whole.wall_s,
        "background_s": whole.background_s,
    }


def render(document: Mapping[str, Any]) -> str:
    """Tables and verdict."""
    rows, reads = document["runs"], document["settings"]["reads"]
    names = list(dict.fromkeys(row["variant"] for row in rows))
    lines = [_line(rows, name, reads) for name in names]
    head = ["", "wall ratio", "CPU ratio", "wall s", "CPU s", "recorder's CPU s", "reads missing", "lost", "getppid ns"]
    wall, ratio = (median(ratios(rows, "lo2io record", key)) for key in ("wall_s", "cpu_s"))
    rival = median(ratios(rows, "perf record -a", "cpu_s"))
    calls, others = _lost(rows)
    return (
        f"{reads:,} reads of {document['settings']['block_bytes']} bytes; medians and least to most of "
        f"{max(row['run'] for row in rows)} runs in turns, of strace {SLOW['strace -f -c']}; "
        "ratios are to the untraced median.\n\n"
        f"{table(head, lines)}\n\n"
        f"Targets: wall clock at most {TARGET_RATIO} times the untraced: {wall:.2f} "
        f"({verdict(met=wall <= TARGET_RATIO)}); CPU time not above perf record's: {ratio:.2f} to {rival:.2f} "
        f"({verdict(met=ratio <= rival)}); no call lost at default rings: {calls:,} in all runs "
        f"({verdict(met=calls == 0)}).{others}"
    )


def _lost(rows: Sequence[Mapping[str, Any]]) -> tuple[int, str]:
    """System calls that lo2io lost in all runs, and a sentence on other events that are missing."""
    lost: dict[str, int] = {}
    for row in rows:
        if row.get("baseline"):
            continue
        for event, number in row.get("lost_by_event", {}).items():
            lost[event] = lost.get(event, 0) + number
    calls = sum(number for event, number in lost.items() if event.startswith("syscalls:"))
    others = ", ".join(f"{number:,} of {event}" for event, number in lost.items() if not event.startswith("syscalls:"))
    if not others:
        return calls, ""
    return calls, (
        f" Other events that the kernel counted and did not deliver, in all runs: {others}. In virtual machines "
        "samples can vanish so while a CPU idles; lo2io counts them as lost, the others cannot tell."
    )


def ratios(rows: Sequence[Mapping[str, Any]], variant: str, key: str) -> list[float]:
    """A variant's runs over the untraced median."""
    base = middle(rows, "untraced", key)
    return [value / base for value in column(rows, variant, key)]


def _line(rows: Sequence[Mapping[str, Any]], name: str, reads: int) -> list[str]:
    traced, recorded = name != "untraced", name not in ("untraced", FLOOR)
    missing = [max(0, reads - seen) for seen in column(rows, name, "reads")] if recorded else []
    return [
        name,
        spread(ratios(rows, name, "wall_s")) if traced else "1",
        spread(ratios(rows, name, "cpu_s")) if traced else "1",
        spread(column(rows, name, "wall_s")),
        spread(column(rows, name, "cpu_s")),
        spread(column(rows, name, "recorder_cpu_s")) if traced else "",
        spread(missing, 0) if recorded else "",
        spread(column(rows, name, "lost"), 0) if recorded else "",
        spread(column(rows, name, "getppid_ns"), 0),
    ]
