"""Common parts of all benchmarks: runs measured as a whole, variants in turns, machine facts, results as JSON.

Only the standard library is imported, so that this process stays small. For a child's peak memory begins with its
parent's: the kernel keeps the larger of the two through exec.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from provenance import FIGURES_THEMSELVES

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

HERE = Path(__file__).parent
RESULTS = HERE / "results"
LO2IO = Path(sys.executable).parent / "lo2io"
_PROGRAM = ContextVar("program", default=LO2IO)
lo2io = _PROGRAM.get
"""The lo2io that the present run measures: this commit's, or that of the baseline."""
PR_SET_CHILD_SUBREAPER = 36
LEAST_TURNS = 3
BACKGROUND_LIMIT_S = 120
"""How long processes that a run left behind may live; closing a recorder's events takes 4 to 9 s."""


class BenchError(Exception):
    """A benchmark cannot run, or a run failed; the text says which and why."""


def baseline_name(variant: str, commit: str) -> str:
    """The name of a variant with another commit's lo2io."""
    return variant.replace("lo2io", commit) if "lo2io" in variant else f"{variant}, {commit}"


@dataclass(frozen=True)
class Baseline:
    """Another commit of lo2io, measured in the same turns.

    Attributes:
        commit: Its abbreviated name, which stands for lo2io in the names of variants.
        program: Its command.
    """

    commit: str
    program: Path

    def run(self, measure: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """Measure once, with this commit's lo2io."""
        token = _PROGRAM.set(self.program)
        try:
            return {**measure(), "baseline": True}
        finally:
            _PROGRAM.reset(token)


@dataclass(frozen=True)
class Settings:
    """How much to measure, and where.

    Attributes:
        runs: Runs of each variant.
        scale: 1 for figures that are kept; less for a quick look.
        directory: For spools and traces of this benchmark alone; removed afterwards.
        bin: Folder of the compiled programs of this directory.
        chosen: The variants to run; None: all.
        most_s: After this time no turn begins, once there were :data:`LEAST_TURNS`; None: no limit.
        baseline: Another commit to run variants of lo2io with, too; None: none.
    """

    runs: int
    scale: float
    directory: Path
    bin: Path
    chosen: frozenset[str] | None = None
    most_s: float | None = None
    baseline: Baseline | None = None

    def scaled(self, count: int) -> int:
        """A count of calls or samples, scaled for this run."""
        return max(1000, int(count * self.scale))


@dataclass(frozen=True)
class Usage:
    """One run of a command with all its descendants, by the kernel's account."""

    begin_ns: int
    """CLOCK_MONOTONIC right before its start …"""
    end_ns: int
    """… and right after its end."""
    cpu_s: float
    """User and system time of the command and of the descendants for which it waited."""
    max_rss_bytes: int
    """The peak of the largest single process."""
    background_s: float
    """How long other descendants lived on after the command's end."""
    background_cpu_s: float

    @property
    def wall_s(self) -> float:
        """From start to end."""
        return (self.end_ns - self.begin_ns) / 1e9


def adopt_orphans() -> None:
    """Become the parent of orphaned descendants, so that they can be waited for and their costs are known."""
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise BenchError(f"cannot become a subreaper: {os.strerror(ctypes.get_errno())}")


def answer(*command: object) -> str:
    """What a command prints.

    Raises:
        BenchError: It failed.
    """
    words = [str(word) for word in command]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise BenchError(f"`{' '.join(words)}` ended with {done.returncode}: {done.stderr}")
    return done.stdout


def size_of(path: Path) -> int:
    """Bytes of a file, or of all files of a folder."""
    files = path.rglob("*") if path.is_dir() else [path]
    return sum(file.stat().st_size for file in files if file.is_file())


def run(command: Sequence[object], output: Path) -> Usage:
    """Run a command, and wait for its end and for the end of all processes that it left behind.

    Args:
        command: Program and arguments.
        output: File for stdout and stderr.

    Raises:
        BenchError: The command failed, or left a process that does not end.
    """
    words = [str(word) for word in command]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("SUDO_")}
    with output.open("wb") as file:
        begin_ns = time.monotonic_ns()
        child = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=file, stderr=file, env=environment)
        _, status, usage = os.wait4(child.pid, 0)
        end_ns = time.monotonic_ns()
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode != 0:
        last = output.read_text(encoding="utf-8", errors="replace")[-2000:]
        raise BenchError(f"`{' '.join(words)[:500]}` ended with {child.returncode}:\n{last}")
    background_cpu_s = wait_for_orphans(words[0])
    return Usage(
        begin_ns,
        end_ns,
        usage.ru_utime + usage.ru_stime,
        usage.ru_maxrss * 1024,
        (time.monotonic_ns() - end_ns) / 1e9,
        background_cpu_s,
    )


def wait_for_orphans(name: str) -> float:
    """Wait for all children; their CPU time in seconds. lo2io closes its events in such a process."""
    deadline = time.monotonic() + BACKGROUND_LIMIT_S
    cpu_s = 0.0
    with contextlib.suppress(ChildProcessError):
        while time.monotonic() < deadline:
            pid, _, usage = os.wait4(-1, os.WNOHANG)
            if pid:
                cpu_s += usage.ru_utime + usage.ru_stime
            else:
                time.sleep(0.005)
        raise BenchError(f"what {name} left in the background still runs after {BACKGROUND_LIMIT_S} s")
    return cpu_s


def in_turns(
    name: str,
    variants: Mapping[str, Callable[[], dict[str, Any]]],
    settings: Settings,
    *,
    slow: Mapping[str, int] | None = None,
    ours: Collection[str] = (),
) -> list[dict[str, Any]]:
    """Run every variant once, then every one again, and so on: A B C A B C.

    So a machine that is slower for a while slows all variants. Dirty pages of a run are written before the next one
    begins.

    Args:
        name: The benchmark, for messages.
        variants: What to run, by name.
        settings: The number of turns, the chosen variants, and the baseline.
        slow: Variants that take minutes, and in how many turns they run.
        ours: Variants that the baseline runs, too, right after this commit.

    Returns:
        The result of each run, with ``variant``, ``run`` and ``stolen_s`` added.

    Raises:
        BenchError: A chosen variant does not exist.
    """
    measured = _chosen(variants, settings, ours)
    rows = []
    start = time.monotonic()
    for number in range(1, settings.runs + 1):
        if settings.most_s is not None and number > LEAST_TURNS and time.monotonic() - start > settings.most_s:
            break
        for variant, measure in measured.items():
            if number > (slow or {}).get(variant, settings.runs):
                continue
            os.sync()
            begin, before_s = time.monotonic(), stolen_s()
            row = {"variant": variant, "run": number, **measure()}
            rows.append(row | {"stolen_s": round(stolen_s() - before_s, 2)})
            seconds = time.monotonic() - begin
            print(f"  {name} {number}/{settings.runs}  {variant}  {seconds:.1f} s", file=sys.stderr, flush=True)
    return rows


def stolen_s() -> float:
    """CPU time since boot that a hypervisor gave to other machines while this one had work; see proc_stat(5)."""
    of_all_cpus = Path("/proc/stat").read_text(encoding="ascii").partition("\n")[0].split()
    return int(of_all_cpus[8]) / os.sysconf("SC_CLK_TCK")


def _chosen(
    variants: Mapping[str, Callable[[], dict[str, Any]]], settings: Settings, ours: Collection[str]
) -> dict[str, Callable[[], dict[str, Any]]]:
    """The variants that run, those of the baseline among them."""
    if settings.chosen is not None and (unknown := settings.chosen - variants.keys()):
        raise BenchError(f"no variant {', '.join(sorted(unknown))}")
    found = {}
    for variant, measure in variants.items():
        if settings.chosen is None or variant in settings.chosen:
            found[variant] = measure
            if settings.baseline and variant in ours:
                found[baseline_name(variant, settings.baseline.commit)] = partial(settings.baseline.run, measure)
    return found


def build(source: str, folder: Path) -> Path:
    """Compile a C program of this directory.

    Raises:
        BenchError: The compiler failed.
    """
    target = folder / Path(source).stem
    command = ["gcc", "-std=c11", "-O2", "-Wall", "-Wextra", "-pthread", "-o", str(target), str(HERE / source)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise BenchError(f"cannot compile {source}:\n{done.stderr}")
    return target


def require(*programs: str) -> None:
    """Check that programs are installed.

    Raises:
        BenchError: One is missing.
    """
    missing = [program for program in programs if not shutil.which(program)]
    if missing:
        raise BenchError(f"no {', '.join(missing)} in PATH: `scripts/setup.sh bench` installs what benchmarks need")


def require_root() -> None:
    """Check that this process is root's.

    Raises:
        BenchError: It is not.
    """
    if os.geteuid() != 0:
        raise BenchError("the benchmarks record whole machines with five tools: run them as root")


@contextlib.contextmanager
def workspace(parent: Path | None) -> Iterator[Path]:
    """A private directory that is removed afterwards. Its path has no space, since bpftrace splits arguments there."""
    with tempfile.TemporaryDirectory(prefix="lo2io-bench-", dir=parent) as name:
        yield Path(name)


# ---- figures ----


def spread(values: Sequence[float], digits: int = 2) -> str:
    """``median (least to most)``, or the figure itself if all runs gave the same."""
    low, middle, high = (f"{value:,.{digits}f}" for value in (min(values), median(values), max(values)))
    return middle if low == high else f"{middle} ({low} to {high})"


def column(rows: Sequence[Mapping[str, Any]], variant: str, key: str) -> list[float]:
    """A figure of all runs of a variant."""
    return [row[key] for row in rows if row["variant"] == variant]


def middle(rows: Sequence[Mapping[str, Any]], variant: str, key: str) -> float:
    """The median of a figure of a variant."""
    return median(column(rows, variant, key))


def slowdown(rows: Sequence[Mapping[str, Any]], job: str, name: str, key: str) -> float:
    """The median of a figure of a job's variant, divided by that of the untraced variant."""
    return middle(rows, f"{job}, {name}", key) / middle(rows, f"{job}, untraced", key)


def names_of(rows: Sequence[Mapping[str, Any]], job: str) -> list[str]:
    """The names of a job's variants, in the order of their first runs."""
    return [v.partition(", ")[2] for v in dict.fromkeys(r["variant"] for r in rows) if v.startswith(f"{job}, ")]


def verdict(*, met: bool) -> str:
    """Word for a target that is met, or missed."""
    return "met" if met else "missed"


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table; all columns but the first are figures."""
    lines = [head, ["---", *("--:" for _ in head[1:])], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


# ---- results ----


def machine_facts() -> dict[str, Any]:
    """The facts on which figures depend, besides lo2io."""
    cpu = next((line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")), ":")
    memory = next(line for line in Path("/proc/meminfo").read_text().splitlines() if line.startswith("MemTotal"))
    virtual = "hypervisor" in Path("/proc/cpuinfo").read_text()
    return {
        "cpu": cpu.partition(":")[2].strip(),
        "cpus": os.cpu_count(),
        "virtual": virtual,
        "memory_gib": round(int(memory.split()[1]) / 2**20, 1),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "load_average": round(os.getloadavg()[0], 2),
        "commit": commit_name(),
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "tools": {tool: version for tool in ("fio", "perf", "strace", "bpftrace") if (version := _version(tool))},
    }


def commit_name() -> str:
    """The commit that is measured, with `-dirty` if a file differs from it that is no figure and no page of figures."""
    name = _first_line("git", "-C", str(HERE), "rev-parse", "--short=12", "HEAD")
    changed = _first_line(
        "git", "-C", str(HERE.parent), "status", "--porcelain", "-uno", "--", ".", *FIGURES_THEMSELVES
    )
    return f"{name}-dirty" if changed else name


def _version(tool: str) -> str:
    """The tool's own version text, without its name."""
    words = _first_line(tool, "--version").replace("-", " ", 1).split()
    return next((word for word in words if any(c.isdigit() for c in word)), "")


def _first_line(*command: str) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError:
        return ""
    return done.stdout.partition("\n")[0].strip()


def describe_machine(document: Mapping[str, Any]) -> str:
    """The facts as a sentence, and how much CPU time the machine lacked during all runs."""
    machine, stolen = document["machine"], sum(row.get("stolen_s", 0) for row in document["runs"])
    lacking = f"; a hypervisor took {stolen:.1f} s of CPU time" if stolen >= 0.05 else ""  # else it is rounded to 0.0
    tools = ", ".join(f"{tool} {version}" for tool, version in machine["tools"].items())
    return (
        f"{machine['cpu']}{' (virtual machine)' if machine['virtual'] else ''}, {machine['cpus']} CPUs, "
        f"{machine['memory_gib']} GiB, Linux {machine['kernel']}, Python {machine['python']}, {tools}; "
        f"load average at the start {machine['load_average']}{lacking}; "
        f"lo2io at {machine['commit']}, {machine['date']}."
    )


def save(folder: Path, document: Mapping[str, Any]) -> None:
    """Write every run's figures, unrounded, as ``NAME.json``, from which all tables are made."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{document['benchmark']}.json").write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
