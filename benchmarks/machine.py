"""What recording the whole machine costs: direct I/O at depth 32, cached reads one at a time.

fio reads a file past the page cache, once by io_uring and once by libaio, 32 requests at a time, while block events are
recorded, and while all default events are. Then it reads from the page cache with pread, with the default events: the
worst case. Each recorder gets the same events on every CPU.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from common import (
    Settings,
    build,
    column,
    in_turns,
    lo2io,
    middle,
    names_of,
    require,
    slowdown,
    spread,
    table,
    verdict,
)
from overhead import BLOCK, FILE_BYTES, fio_command, make_cached, one_run
from perf_data import count
from tracers import CALLS, FLOOR, REQUEST_PASSES, SWITCHES, Bpftrace, Floor, Untraced, default_events, seen_and_lost

from lo2io.kernel.tracefs import find_tracefs, load_format

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from common import Usage
    from tracers import Tracer

    Row = dict[str, Any]

NAME = "machine"
LETTER = "f"
DIRECT_READS = 150_000
CACHED_READS = 1_000_000
DEPTH = 32
TARGET_RATIO = 1.05
ENGINES = ("io_uring", "libaio")
WITH_ALL = " with default events"
DEFAULT_JOBS = tuple(f"{engine}{WITH_ALL}" for engine in ENGINES)
"""The jobs of both engines again, with all default events instead of those of the block layer alone."""
BLOCK_PASSES = ("block_bio_queue", "block_rq_insert", "block_rq_issue", "block_rq_complete")
PASSED = {
    DEFAULT_JOBS[0]: (*REQUEST_PASSES, *BLOCK_PASSES, *SWITCHES),
    DEFAULT_JOBS[1]: (*BLOCK_PASSES, *SWITCHES),
    "cached": (),
}
"""The raw tracepoints that a read of each job passes besides those of system calls."""
LAST = "lo2io system-wide -a --last 60s"
"""The flight recorder."""
ISSUE, PREAD = "block:block_rq_issue", "syscalls:sys_exit_pread64"

BIOSNOOP = """
tracepoint:block:block_rq_issue
{
  @begin[args->dev, args->sector] = nsecs;
  @comm[args->dev, args->sector] = comm;
}

tracepoint:block:block_rq_complete
/@begin[args->dev, args->sector]/
{
  printf("%llu %s %u %s %llu %u %llu block_rq_issue\\n", nsecs, @comm[args->dev, args->sector], args->dev, args->rwbs,
         args->sector, args->nr_sector * 512, nsecs - @begin[args->dev, args->sector]);
  delete(@begin[args->dev, args->sector]);
  delete(@comm[args->dev, args->sector]);
}

END
{
  clear(@begin);
  clear(@comm);
}
"""
"""A line for each request with the thread that issued it, as biosnoop prints."""


class Lo2io:
    """`lo2io system-wide -a`, without converting."""

    def __init__(self, counted: str, *options: str) -> None:
        self.counted, self.options = counted, options

    def command(self, folder: Path, workload: Path) -> list[str]:
        """With all defaults but the events."""
        words = [str(lo2io()), "system-wide", "-a", "-q", "--no-convert", *self.options]
        return [*words, "-o", str(folder / "recorded"), "--", str(workload)]

    def outcome(self, folder: Path, _: str) -> dict[str, Any]:
        """From the trace, which is converted here."""
        return seen_and_lost(folder, self.counted)


class PerfRecord:
    """`perf record -a` of the same events."""

    def __init__(self, counted: str, events: Sequence[str]) -> None:
        self.counted, self.events = counted, events

    def command(self, folder: Path, workload: Path) -> list[str]:
        """As the manual page shows it."""
        words = ["perf", "record", "-q", "-a", "-e", ",".join(self.events), "-o", str(folder / "perf.data")]
        return [*words, "--", str(workload)]

    def outcome(self, folder: Path, _: str) -> dict[str, Any]:
        """From the file's records of loss."""
        counts = count(folder / "perf.data", load_format(find_tracefs(), self.counted)[0].id)
        return {"lost": counts.lost, "seen": counts.samples}


class PerfTrace:
    """`perf trace -a` of the block events, a line of text each."""

    def __init__(self, counted: str, events: Sequence[str]) -> None:
        self.counted, self.events = counted, events

    def command(self, folder: Path, workload: Path) -> list[str]:
        """No system calls."""
        words = ["perf", "trace", "-a", "--no-syscalls", "-e", ",".join(self.events), "-o", str(folder / "events.txt")]
        return [*words, "--", str(workload)]

    def outcome(self, folder: Path, _: str) -> dict[str, Any]:
        """A line of perf trace for each loss."""
        return _lines(folder / "events.txt", self.counted.partition(":")[2])


class Biosnoop:
    """bpftrace, printing a line for each request."""

    def command(self, folder: Path, workload: Path) -> list[str]:
        """With the program above, which is kept beside its output."""
        (folder / "biosnoop.bt").write_text(BIOSNOOP, encoding="ascii")
        return ["bpftrace", "-o", str(folder / "events.txt"), "-c", f"/bin/sh {workload}", str(folder / "biosnoop.bt")]

    def outcome(self, folder: Path, _: str) -> dict[str, Any]:
        """`Lost N events` in bpftrace's output, if its buffer was full."""
        return _lines(folder / "events.txt", "block_rq_issue")


def _lines(path: Path, word: str) -> dict[str, Any]:
    seen = lost = 0
    with path.open(encoding="utf-8", errors="replace") as file:
        for line in file:
            seen += word in line
            if line.startswith("Lost"):
                lost += int(line.split()[1])
            elif "LOST" in line:
                lost += int(line.split("LOST")[1].split()[0])
    return {"lost": lost, "seen": seen}


def measure(settings: Settings) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Measure each job untraced and under every recorder, in turns."""
    require("fio", "perf", "bpftrace", "gcc")
    # Direct I/O drives its file out of the page cache, so the cached reads need another file.
    direct, cached = settings.directory / "direct", settings.directory / "cached"
    make_cached(direct)
    make_cached(cached)
    direct_jobs = (*ENGINES, *DEFAULT_JOBS)
    data = dict.fromkeys(direct_jobs, direct) | {"cached": cached}
    reads = {job: settings.scaled(DIRECT_READS) for job in direct_jobs} | {"cached": settings.scaled(CACHED_READS)}
    timed = build("timed.c", settings.bin)
    folder = settings.directory
    variants = {
        f"{job}, {name}": one_run(folder, tracer, _workload(folder, timed, data[job], job, reads[job]), _figures)
        for job in reads
        for name, tracer in _tracers(job).items()
    }
    ours = [name for name in variants if "lo2io" in name]
    return {"reads": reads, "block_bytes": BLOCK, "depth": DEPTH}, in_turns(NAME, variants, settings, ours=ours)


def _tracers(job: str) -> dict[str, Tracer]:
    block = [event for event in default_events() if event.startswith("block:block_rq_")]
    if job not in ENGINES:
        counted = PREAD if job == "cached" else ISSUE
        return {
            "untraced": Untraced(),
            FLOOR: Floor(*CALLS, *PASSED[job]),
            "lo2io system-wide -a": Lo2io(counted),
            **({LAST: Lo2io(counted, "--last", "60s")} if job == "cached" else {}),
            "perf record -a": PerfRecord(counted, default_events()),
            "bpftrace, sums": Bpftrace(printing=False, counted=counted),
        }
    return {
        "untraced": Untraced(),
        "lo2io system-wide -a": Lo2io(ISSUE, "-e", ",".join(block)),
        "perf record -a": PerfRecord(ISSUE, block),
        "perf trace -a": PerfTrace(ISSUE, block),
        "bpftrace, biosnoop": Biosnoop(),
    }


def _workload(folder: Path, timed: Path, data: Path, job: str, reads: int) -> Path:
    """A script, which every recorder can start."""
    if job == "cached":
        words = fio_command(data, reads, folder / "fio.json")
    else:
        engine = job.removesuffix(WITH_ALL)
        words = [
            *(
                "fio",
                "--name=direct",
                f"--filename={data}",
                f"--size={FILE_BYTES}",
                f"--ioengine={engine}",
                "--direct=1",
            ),
            *("--rw=randread", f"--bs={BLOCK}", f"--iodepth={DEPTH}", f"--io_size={reads * BLOCK}", "--norandommap"),
            *("--output-format=json", f"--output={folder / 'fio.json'}"),
        ]
    path = folder / f"workload-{job.replace(' ', '-')}"
    # Minutes lie between two runs. Pages that the kernel dropped in between are read back, unmeasured.
    warm = f"cat {data} >/dev/null\n" if job == "cached" else ""
    path.write_text(f"#!/bin/sh\n{warm}exec {timed} {folder}/times.json {' '.join(words)}\n", encoding="ascii")
    path.chmod(0o755)
    return path


def _figures(_folder: Path, _whole: Usage, _times: Row, job: Row) -> Row:
    # fio's own clock, from its first read to its last, for its start takes as long as thousands of reads.
    return {"wall_s": job["read"]["runtime"] / 1e3, "mean_latency_ns": job["read"]["clat_ns"]["mean"]}


def render(document: Mapping[str, Any]) -> str:
    """A table a job, and the verdict."""
    rows, reads = document["runs"], document["settings"]["reads"]
    runs = max(row["run"] for row in rows)
    parts = [f"Medians and least to most of {runs} runs in turns; ratios are to the untraced median."]
    parts += [_table(rows, job, reads[job]) for job in reads]
    worst = max(slowdown(rows, job, "lo2io system-wide -a", "wall_s") for job in ENGINES)
    ours, rival = (slowdown(rows, "cached", name, "cpu_s") for name in ("lo2io system-wide -a", "perf record -a"))
    lost = sum(row["lost"] - row.get("vanished", 0) for row in rows if "lo2io" in row["variant"])
    parts.append(
        f"Targets: slowdown of direct I/O at most {TARGET_RATIO}: {worst:.2f} at worst "
        f"({verdict(met=worst <= TARGET_RATIO)}); of cached reads not above perf record's: {ours:.2f} to {rival:.2f} "
        f"({verdict(met=ours <= rival)}); nothing lost to full rings: {lost:,} in all runs ({verdict(met=lost == 0)})."
    )
    return "\n\n".join(parts)


def _table(rows: Sequence[Mapping[str, Any]], job: str, reads: int) -> str:
    depth = "one at a time from the page cache" if job == "cached" else f"{DEPTH} at a time past the page cache"
    base = {key: middle(rows, f"{job}, untraced", key) for key in ("wall_s", "cpu_s", "mean_latency_ns")}

    def line(name: str) -> list[str]:
        variant, traced = f"{job}, {name}", name != "untraced"
        recorded = traced and name != FLOOR
        ratios = [[value / base[key] for value in column(rows, variant, key)] for key in base]
        missing = [max(0, reads - seen) for seen in column(rows, variant, "seen")] if recorded else []
        return [
            name,
            *(spread(each) if traced else "1" for each in ratios),
            spread(column(rows, variant, "wall_s")),
            spread(column(rows, variant, "recorder_cpu_s")) if traced else "",
            spread(missing, 0) if recorded else "",
            spread(column(rows, variant, "lost"), 0) if recorded else "",
        ]

    head = [f"{job}: {reads:,} reads", "wall ratio", "CPU ratio", "latency ratio", "wall s", "recorder's CPU s"]
    lines = [line(name) for name in names_of(rows, job)]
    return f"{depth[0].upper()}{depth[1:]}:\n\n{table([*head, 'missing', 'lost'], lines)}"
