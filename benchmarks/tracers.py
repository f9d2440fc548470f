"""The compared recorders: how each one records the same calls, and how it reports its losses.

All record lo2io's default set of events, on every CPU or for the command alone, as the variant says.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, Protocol

from common import HERE, LO2IO, answer, lo2io, size_of
from perf_data import count

from lo2io.catalog.catalog import load_catalog
from lo2io.kernel.tracefs import event_exists, find_tracefs, load_format

if TYPE_CHECKING:
    from pathlib import Path

ENTER, EXIT = "syscalls:sys_enter_", "syscalls:sys_exit_"
CALLS = ("sys_enter", "sys_exit")
"""The raw tracepoints that all system calls pass."""
REQUEST_PASSES = ("io_uring_submit_req", "io_uring_file_get", "io_uring_complete")
"""The raw tracepoints that a read through io_uring passes, a NOP all but the second."""
SWITCHES = ("sched_switch", "sched_waking")
"""The raw tracepoints of the layer `waits`."""
FLOOR, SMALLEST = "empty programs", "smallest records"
KINDS = {FLOOR: "empty", SMALLEST: "record"}
"""The variants of :class:`Floor` → what floor.py calls them."""

OPEN_TRACE = """
import json, pathlib, sys
try:
    from lo2io.trace.reader import open_trace
except ImportError:  # a baseline before 2026-11-22
    from lo2io.tables import open_trace
"""
LOSSES = """
found = {}
for row in open_trace(pathlib.Path(sys.argv[1])).completeness.events:
    if missing := row.lost + row.vanished:
        found[row.event] = found.get(row.event, 0) + missing
print(json.dumps(found))
"""
"""Losses of a trace, by event."""

SEEN = """
events = open_trace(pathlib.Path(sys.argv[1])).completeness.events
lost = sum(row.lost for row in events)
vanished = sum(max(0, row.vanished) for row in events)
seen = sum(row.samples for row in events if row.event == sys.argv[2])
print(json.dumps({"seen": seen, "lost": lost + vanished, "vanished": vanished}))
"""
"""The number of samples of one event in a trace, and the losses of all events."""


def default_events() -> tuple[str, ...]:
    """The events that `lo2io record` records on this kernel by default."""
    tracefs = find_tracefs()
    return tuple(event for event in load_catalog().select(()).events if event_exists(tracefs, event))


class Tracer(Protocol):
    """A way to record a command."""

    def command(self, folder: Path, workload: Path) -> list[str]:
        """The command that runs ``workload`` and records it into ``folder``."""
        ...

    def outcome(self, folder: Path, output: str) -> dict[str, Any]:
        """Call after the run: ``lost`` events by the tool's own account, and recorded ``reads`` (pread64 calls)."""
        ...


class Untraced:
    """The workload alone."""

    def command(self, _: Path, workload: Path) -> list[str]:
        """The workload."""
        return [str(workload)]

    def outcome(self, _folder: Path, _output: str) -> dict[str, Any]:
        """Empty, for nothing was recorded."""
        return {"lost": None, "reads": None}


class Lo2io:
    """`lo2io record` without converting, which another benchmark measures."""

    def __init__(self, *options: str) -> None:
        self.options = options

    def command(self, folder: Path, workload: Path) -> list[str]:
        """With all defaults but a variant's options."""
        words = [str(lo2io()), "record", "-q", "--no-convert", *self.options, "-o", str(folder / "recorded")]
        return [*words, "--", str(workload)]

    def outcome(self, folder: Path, _: str) -> dict[str, Any]:
        """From the report of the trace, which is converted here.

        `lost` includes vanished events, which the kernel did not report.
        """
        trace = folder / "trace"
        answer(lo2io(), "convert", folder / "recorded/spool", "-o", trace)
        report = json.loads(answer(lo2io(), "report", trace, "--json"))
        reads = next(call["activity"]["calls"] for call in report["calls"] if call["name"] == "pread64")
        proof = report["completeness"]
        return {
            "lost": proof["lost"],
            "vanished": proof["vanished"],
            "lost_by_event": read_trace(trace, LOSSES),
            "reads": reads,
            "bytes": size_of(trace),
            "proven": proof["proven"],
        }


class Floor:
    """Empty programs at the tracepoints where lo2io's programs run: the floor below every recorder by programs.

    Args:
        tracepoints: The raw tracepoints.
        variant: Which of the two floors.
    """

    def __init__(self, *tracepoints: str, variant: str = FLOOR) -> None:
        self.tracepoints = tracepoints
        self.variant = variant

    def words(self) -> list[str]:
        """The words before the command."""
        return [str(LO2IO.parent / "python"), str(HERE / "floor.py"), KINDS[self.variant], ",".join(self.tracepoints)]

    def command(self, _: Path, workload: Path) -> list[str]:
        """The workload, with the programs attached."""
        return [*self.words(), str(workload)]

    def outcome(self, _folder: Path, _output: str) -> dict[str, Any]:
        """Empty, for nothing is recorded."""
        return {"lost": None, "reads": None}


class PerfRecord:
    """`perf record` of the same events."""

    def __init__(self, *options: str) -> None:
        self.options = options
        self.events = default_events()
        self.read_event = load_format(find_tracefs(), ENTER + "pread64")[0].id

    def command(self, folder: Path, workload: Path) -> list[str]:
        """As the manual page shows it, with this variant's options."""
        return [
            *("perf", "record", "-q", *self.options, "-e", ",".join(self.events)),
            *("-o", str(folder / "perf.data"), "--", str(workload)),
        ]

    def outcome(self, folder: Path, _: str) -> dict[str, Any]:
        """From the file's records of loss."""
        counts = count(folder / "perf.data", self.read_event)
        return {"lost": counts.lost, "reads": counts.samples, "bytes": size_of(folder / "perf.data")}


class PerfTrace:
    """`perf trace` of the same calls, each printed to a file. It records the command and its children by default."""

    def __init__(self) -> None:
        self.calls = [event.removeprefix(ENTER) for event in default_events() if event.startswith(ENTER)]

    def command(self, folder: Path, workload: Path) -> list[str]:
        """Without block requests, for which perf trace would need each call twice."""
        return ["perf", "trace", "-o", str(folder / "calls.txt"), "-e", ",".join(self.calls), "--", str(workload)]

    def outcome(self, folder: Path, _: str) -> dict[str, Any]:
        """A line of perf trace for each loss."""
        reads = lost = 0
        with (folder / "calls.txt").open("rb") as file:
            for line in file:
                reads += b" pread64(fd" in line
                if (said := re.search(rb"LOST (\d+) events", line)) is not None:
                    lost += int(said[1])
        return {"lost": lost, "reads": reads}


class Strace:
    """`strace -f -c`: every call stops the command and its children twice; counts only."""

    def command(self, folder: Path, workload: Path) -> list[str]:
        """All calls, for without --seccomp-bpf, calls that are not chosen stop the program, too."""
        return ["strace", "-f", "-c", "-o", str(folder / "counts.txt"), str(workload)]

    def outcome(self, folder: Path, _: str) -> dict[str, Any]:
        """Empty: a stopped program cannot outrun its tracer, so nothing is ever lost."""
        lines = [line.split() for line in (folder / "counts.txt").read_text(encoding="utf-8").splitlines()]
        return {"lost": 0, "reads": next(int(words[3]) for words in lines if words[-1:] == ["pread64"])}


class Bpftrace:
    """bpftrace, counting or printing the same calls and requests on every CPU."""

    def __init__(self, *, printing: bool, counted: str = EXIT + "pread64") -> None:
        self.printing, self.counted = printing, counted

    def command(self, folder: Path, workload: Path) -> list[str]:
        """With this variant's program, which is kept beside its output."""
        (folder / "calls.bt").write_text(bpftrace_program(default_events(), printing=self.printing), encoding="utf-8")
        # bpftrace starts binaries only.
        return ["bpftrace", "-o", str(folder / "calls.txt"), "-c", f"/bin/sh {workload}", str(folder / "calls.bt")]

    def outcome(self, folder: Path, output: str) -> dict[str, Any]:
        """`Lost N events` in bpftrace's output, if its buffer was full. Counts in maps cannot be lost so."""
        lost, reads = 0, 0
        counted = re.compile(rf"^@calls\[tracepoint:{self.counted}\]: (\d+)$")
        with (folder / "calls.txt").open(encoding="utf-8", errors="replace") as file:
            for line in file:
                if self.printing:
                    reads += f" tracepoint:{self.counted} " in line
                elif (found := counted.match(line)) is not None:
                    reads = int(found[1])
                if line.startswith("Lost"):
                    lost += int(line.split()[1])
        lost += sum(int(said) for said in re.findall(r"^Lost (\d+) events", output, re.MULTILINE))
        return {"lost": lost, "reads": reads, "seen": reads}


def bpftrace_program(events: tuple[str, ...], *, printing: bool) -> str:
    """A program for every call's time: summed up in the kernel, or one line a call and request.

    Both keep the time of entry by thread, like bpftrace's own examples. The first gives numbers and sums of times by
    call. The second prints time, thread, call and duration of every call, which comes nearest to lo2io's record.
    (Arguments and results are left out: they differ by call, so each call would need a program.)
    """
    enters = ",\n".join(f"tracepoint:{event}" for event in events if event.startswith(ENTER))
    exits = ",\n".join(f"tracepoint:{event}" for event in events if event.startswith(EXIT))
    others = ",\n".join(f"tracepoint:{event}" for event in events if not event.startswith((ENTER, EXIT)))
    each = '  printf("%llu %d %s %llu\\n", nsecs, tid, probe, nsecs - @begin[tid]);\n'
    summed = "  @calls[probe] = count();\n  @time_ns[probe] = sum(nsecs - @begin[tid]);\n"
    other = '  printf("%llu %d %s\\n", nsecs, tid, probe);\n' if printing else "  @calls[probe] = count();\n"
    return (
        f"{enters}\n{{\n  @begin[tid] = nsecs;\n}}\n\n"
        f"{exits}\n/@begin[tid]/\n{{\n{each if printing else summed}  delete(@begin[tid]);\n}}\n\n"
        f"{others}\n{{\n{other}}}\n\nEND\n{{\n  clear(@begin);\n}}\n"
    )


def read_trace(trace: Path, script: str, *words: str) -> Any:
    """What a script says of a trace, with the Python of the lo2io that made it.

    It runs in a process of its own, for reading tables takes memory (see common.py).
    """
    python = lo2io().parent / "python"
    return json.loads(answer(python, "-P", "-c", OPEN_TRACE + script, trace, *words))


def seen_and_lost(folder: Path, event: str) -> dict[str, Any]:
    """Convert ``folder/recorded`` now: ``seen`` samples of an event, ``lost`` of all, ``vanished`` ones among these."""
    trace = folder / "trace"
    answer(lo2io(), "convert", folder / "recorded/spool", "-o", trace)
    found: dict[str, Any] = read_trace(trace, SEEN, event)
    return found


def variants() -> dict[str, Tracer]:
    """Every way to record, by its name in results and tables. All others are divided by `untraced`."""
    return {
        "untraced": Untraced(),
        FLOOR: Floor(*CALLS),
        "lo2io record": Lo2io(),
        "perf record -a": PerfRecord("-a"),
        "perf record -a -m 4M": PerfRecord("-a", "-m", "4M"),
        "perf record": PerfRecord(),
        "perf trace": PerfTrace(),
        "strace -f -c": Strace(),
        "bpftrace, sums": Bpftrace(printing=False),
        "bpftrace, each call": Bpftrace(printing=True),
    }
