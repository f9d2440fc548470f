"""What recording costs a program that does nothing but io_uring, and whether every request is in the trace.

A million NOPs, a million reads from the page cache, and reads past it at depth 32, each by one thread through one ring
(`rings.c`). The requests are as cheap as possible, so the ratios of the first two are the worst case. lo2io records its
default events; the others only the tracepoints of io_uring, on every CPU.
"""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING, Any

from common import (
    Settings,
    answer,
    build,
    column,
    in_turns,
    lo2io,
    middle,
    names_of,
    require,
    run,
    slowdown,
    spread,
    table,
    verdict,
)
from overhead import make_cached
from perf_data import count
from tracers import CALLS, FLOOR, REQUEST_PASSES, SMALLEST, Floor, Untraced, read_trace

from lo2io.kernel.tracefs import find_tracefs, load_format

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from tracers import Tracer

    Row = dict[str, Any]

NAME = "rings"
LETTER = "i"
REQUESTS = {"nop": 1_000_000, "cached": 1_000_000, "direct": 150_000}
WORDS = {
    "nop": "NOPs, 32 a call",
    "cached": "reads of 4 KiB from the page cache, 32 a call",
    "direct": "reads of 4 KiB past the page cache, 32 at a time",
}
TARGET_DIRECT = 1.1
COMPLETE = "io_uring:io_uring_complete"

TOLD = """
trace = open_trace(pathlib.Path(sys.argv[1]))
events = trace.completeness.events
status = trace.ring_requests.column("status").to_pylist()
print(json.dumps({
    "requests": len(status),
    "complete": sum(each == "completed" for each in status),
    "lost": sum(row.lost for row in events),
    "vanished": sum(max(0, row.vanished) for row in events),
}))
"""
"""Requests in the table, complete ones among them, and events that the trace lacks."""

COUNTING = "tracepoint:io_uring:*\n{\n  @events[probe] = count();\n}\n"
PRINTING = """
tracepoint:io_uring:io_uring_submit_req,
tracepoint:io_uring:io_uring_complete
{
  printf("%llu %d %s %llx %llx %llx\\n", nsecs, tid, probe, args->ctx, args->req, args->user_data);
}

OTHERS
{
  printf("%llu %d %s\\n", nsecs, tid, probe);
}
"""
"""A line for each event: of submissions and completions all that pairing needs, of the others time and CPU."""


class Lo2io:
    """`lo2io record` without converting, which another benchmark measures."""

    def __init__(self, *options: str) -> None:
        self.options = options

    def command(self, folder: Path, workload: Path) -> list[str]:
        """With all defaults but the events of a variant."""
        words = [str(lo2io()), "record", "-q", "--no-convert", *self.options, "-o", str(folder / "recorded")]
        return [*words, "--", str(workload)]

    def outcome(self, folder: Path, _: str) -> Row:
        """From the trace, which is converted here. `lost` includes vanished events, which the kernel did not report."""
        trace = folder / "trace"
        answer(lo2io(), "convert", folder / "recorded/spool", "-o", trace)
        told: Row = read_trace(trace, TOLD)
        return told | {"seen": told["complete"], "lost": told["lost"] + told["vanished"]}


class PerfRecord:
    """`perf record -a` of io_uring's tracepoints."""

    def command(self, folder: Path, workload: Path) -> list[str]:
        """As the manual page shows it."""
        words = ["perf", "record", "-q", "-a", "-e", "io_uring:*", "-o", str(folder / "perf.data")]
        return [*words, "--", str(workload)]

    def outcome(self, folder: Path, _: str) -> Row:
        """From the file's records of loss."""
        counts = count(folder / "perf.data", load_format(find_tracefs(), COMPLETE)[0].id)
        return {"lost": counts.lost, "seen": counts.samples}


class Bpftrace:
    """bpftrace on the same tracepoints."""

    def __init__(self, program: str) -> None:
        self.program = program

    def command(self, folder: Path, workload: Path) -> list[str]:
        """With this variant's program, which is kept beside its output."""
        (folder / "rings.bt").write_text(self.program, encoding="ascii")
        # bpftrace starts binaries only.
        return ["bpftrace", "-o", str(folder / "rings.txt"), "-c", f"/bin/sh {workload}", str(folder / "rings.bt")]

    def outcome(self, folder: Path, output: str) -> Row:
        """`Lost N events` in bpftrace's output, if its buffer was full. Counts in maps cannot be lost so."""
        seen = lost = 0
        counted = f"@events[tracepoint:{COMPLETE}]: "
        with (folder / "rings.txt").open(encoding="utf-8", errors="replace") as file:
            for line in (*file, *output.splitlines()):
                if line.startswith(counted):
                    seen = int(line.removeprefix(counted))
                elif line.startswith("Lost"):
                    lost += int(line.split()[1])
                else:
                    seen += f"tracepoint:{COMPLETE} " in line
        return {"lost": lost, "seen": seen}


def _tracers() -> dict[str, Tracer]:
    folder = find_tracefs() / "events/io_uring"
    others = [each.name for each in sorted(folder.iterdir()) if each.is_dir()]
    others = [name for name in others if name not in ("io_uring_submit_req", "io_uring_complete")]
    named = ",\n".join(f"tracepoint:io_uring:{name}" for name in others)
    return {
        "untraced": Untraced(),
        FLOOR: Floor(*CALLS, *REQUEST_PASSES),
        SMALLEST: Floor(*CALLS, *REQUEST_PASSES, variant=SMALLEST),
        "lo2io record": Lo2io(),
        "lo2io record -e io_uring": Lo2io("-e", "io_uring"),
        "perf record -a": PerfRecord(),
        "bpftrace, counting": Bpftrace(COUNTING),
        "bpftrace, printing": Bpftrace(PRINTING.replace("OTHERS", named)),
    }


def measure(settings: Settings) -> tuple[Row, list[Row]]:
    """Measure each loop alone and under each recorder."""
    require("perf", "bpftrace", "gcc")
    data = settings.directory / "data"
    make_cached(data)
    program = build("rings.c", settings.bin)
    requests = {job: settings.scaled(number) for job, number in REQUESTS.items()}
    variants = {
        f"{job}, {name}": _one_run(settings.directory, tracer, _workload(settings, program, data, job, number))
        for job, number in requests.items()
        for name, tracer in _tracers().items()
    }
    return {"requests": requests}, in_turns(
        NAME, variants, settings, ours=[name for name in variants if "lo2io" in name]
    )


def _workload(settings: Settings, program: Path, data: Path, job: str, number: int) -> Path:
    """A script, which every recorder can start."""
    path = settings.directory / f"workload-{job}"
    # Minutes lie between two runs. Pages that the kernel dropped in between are read back, unmeasured.
    warm = f"cat {data} >/dev/null\n" if job == "cached" else ""
    text = f"#!/bin/sh\n{warm}exec {program} {job} {number} {data} {settings.directory}/loop.json\n"
    path.write_text(text, encoding="ascii")
    path.chmod(0o755)
    return path


def _one_run(directory: Path, tracer: Tracer, workload: Path) -> Callable[[], Row]:
    def measure_one() -> Row:
        folder, output = directory / "run", directory / "output.txt"
        folder.mkdir()
        whole = run(tracer.command(folder, workload), output)
        loop = json.loads((directory / "loop.json").read_text(encoding="ascii"))
        said = output.read_text(encoding="utf-8", errors="replace")
        recorder = whole.cpu_s - loop["cpu_s"] + whole.background_cpu_s
        row = loop | {"recorder_cpu_s": recorder} | tracer.outcome(folder, said)
        shutil.rmtree(folder)
        return row

    return measure_one


def render(document: Mapping[str, Any]) -> str:
    """A table a kind of request, and the verdict."""
    rows, requests = document["runs"], document["settings"]["requests"]
    runs = max(row["run"] for row in rows)
    parts = [f"Medians and least to most of {runs} runs in turns; ratios are to the untraced median."]
    parts += [_table(rows, job, number) for job, number in requests.items()]
    ours = [row for row in rows if ", lo2io record" in row["variant"]]
    wanted = [requests[row["variant"].partition(",")[0]] for row in ours]
    short = sum(not row["requests"] == row["complete"] == number for row, number in zip(ours, wanted, strict=True))
    lost = sum(row["lost"] - row["vanished"] for row in ours)
    pairs = {
        job: [slowdown(rows, job, name, "wall_s") for name in ("lo2io record", "perf record -a")] for job in requests
    }
    beside = ", ".join(f"{job} {mine:.2f} to {rival:.2f}" for job, (mine, rival) in pairs.items())
    parts.append(
        f"Targets: every request in the table and complete: in {len(ours) - short} of {len(ours)} runs "
        f"({verdict(met=not short)}); nothing lost to full rings: {lost:,} in all runs ({verdict(met=not lost)}); not "
        f"slower than under perf record: {beside} ({verdict(met=all(m <= r for m, r in pairs.values()))}); direct "
        f"reads at most {TARGET_DIRECT}: {pairs['direct'][0]:.2f} ({verdict(met=pairs['direct'][0] <= TARGET_DIRECT)})."
    )
    return "\n\n".join(parts)


def _table(rows: Sequence[Mapping[str, Any]], job: str, number: int) -> str:
    base = {key: middle(rows, f"{job}, untraced", key) for key in ("wall_s", "cpu_s")}

    def line(name: str) -> list[str]:
        variant, traced = f"{job}, {name}", name != "untraced"
        recorded = traced and name not in (FLOOR, SMALLEST)
        ratios = [[value / base[key] for value in column(rows, variant, key)] for key in base]
        missing = [max(0, number - seen) for seen in column(rows, variant, "seen")] if recorded else []
        return [
            name,
            *(spread(each) if traced else "1" for each in ratios),
            spread(column(rows, variant, "wall_s"), 3),
            spread(column(rows, variant, "recorder_cpu_s")) if traced else "",
            spread(missing, 0) if recorded else "",
            spread(column(rows, variant, "lost"), 0) if recorded else "",
        ]

    head = [f"{number:,} {WORDS[job]}", "wall ratio", "CPU ratio", "wall s", "recorder's CPU s", "missing", "lost"]
    return table(head, [line(name) for name in names_of(rows, job)])
