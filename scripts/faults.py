#!/usr/bin/env python3
"""Tries what can go wrong around a recording, and prints a row of a table for each kind of fault.

    sudo .venv/bin/python scripts/faults.py [NAME…] [--tries N] [--seed N]

Every try must end without a traceback, and leave behind either a trace that keeps all rules, a spool that `lo2io
convert` takes or refuses in at most three lines, or nothing. No process, program in the kernel, or enabled event may
stay. NAME chooses faults whose name contains that text; N replaces each fault's own number of tries. The exit code is 1
if a try went wrong.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import ctypes
import functools
import os
import random
import resource
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

TESTS = Path(__file__).resolve().parent.parent / "tests"
sys.path.insert(0, str(TESTS))
import leftovers  # noqa: E402
from workloads import refused  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

LO2IO = str(Path(sys.executable).parent / "lo2io")
WORK = "for i in 1 2 3 4 5 6 7 8; do dd if=/dev/zero of=/dev/null bs=4k count=50 2>&-; cat /etc/passwd >&-; done"
LOAD = "end=$(($(date +%s) + {0})); while [ $(date +%s) -lt $end ]; do cat /etc/passwd > /dev/null; done"
MODES = {
    "record": ("record", "-q"),
    "system-wide": ("system-wide", "-q"),
    "flight recorder": ("system-wide", "-q", "--last", "1s"),
}
LONGEST_S = 120
MOST_LINES = 3
"""Of a refusal: what was tried, the answer, the least that helps."""
LIBRARY_S = {"execve", "exit_group", "rt_sigreturn", "brk", "futex"}
"""Calls without which the C library itself ends the process, by abort(3) or a segmentation fault."""
NEVER_FAIL = {"getpid", "getppid", "gettid", "getuid", "geteuid", "getgid", "getegid", "umask"}
"""Calls that no kernel refuses: their manual pages name no error."""
EXIT_CODE = 7
"""The recorded command's, where calls are refused."""
SIZES = (0, 1 << 10, 16 << 10, 64 << 10, 200 << 10, 500 << 10, 1 << 20, 2 << 20, 4 << 20, 8 << 20)
_BPF, _MAP_NEXT, _PROGRAM_NEXT = 321, 12, 11
"""bpf(2) on x86-64, BPF_MAP_GET_NEXT_ID and BPF_PROG_GET_NEXT_ID."""


class WrongError(Exception):
    """A try ended as none may end."""


@dataclass
class Place:
    """A folder for one try."""

    folder: Path
    chance: random.Random

    @property
    def trace(self) -> Path:
        """Where the recording goes."""
        return self.folder / "T"


@dataclass(frozen=True)
class Fault:
    """A kind of fault: its name, how often it is tried, and a try, which returns its outcome."""

    name: str
    tries: int
    attempt: Callable[[Place, int], str]


def start(*words: str | Path, under: tuple[str, ...] = (), **options: object) -> subprocess.Popen[str]:
    """Start lo2io."""
    line = [*under, LO2IO, *map(str, words)]
    popen = functools.partial(subprocess.Popen, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
    return popen(line, stderr=subprocess.PIPE, **options)  # type: ignore[call-overload,no-any-return]


def end(process: subprocess.Popen[str], *, killed: bool = False) -> str:
    """Wait for its end; its messages.

    Raises:
        WrongError: It hung, showed a traceback, or died of a signal that nobody sent.
    """
    try:
        shown = process.communicate(timeout=LONGEST_S)[1]
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        raise WrongError(f"it hung: {process.args}") from None
    if "Traceback" in shown:
        raise WrongError(shown[-3000:])
    if process.returncode < 0 and not killed:
        raise WrongError(f"signal {-process.returncode}: {shown[-1000:]}")
    return shown


def run(*words: str | Path, under: tuple[str, ...] = (), **options: object) -> subprocess.Popen[str]:
    """Run lo2io to its end."""
    process = start(*words, under=under, **options)
    process.shown = end(process)  # type: ignore[attr-defined]
    return process


def verify(trace: Path) -> None:
    """Have a trace keep all rules.

    Raises:
        WrongError: It does not.
    """
    done = subprocess.run([LO2IO, "verify", str(trace)], capture_output=True, text=True, check=False)
    if done.returncode:
        raise WrongError(f"verify: {done.stdout[-1500:]}{done.stderr[-1500:]}")


def outcome(trace: Path, target: Path) -> str:
    """What is left of a recording. A spool is converted to ``target``."""
    if (trace / "traces.otf2").exists():
        verify(trace)
        return "trace"
    spool = trace / "spool"
    if not spool.exists():
        return "nothing"
    done = start("convert", "--force", spool, "-o", target)
    shown = end(done)
    if not done.returncode:
        verify(target)
        return "spool, converted"
    lines = [line for line in shown.splitlines() if line]
    if len(lines) > MOST_LINES:
        raise WrongError(f"a refusal of {len(lines)} lines: {shown}")
    return "spool, refused"


def killed(mode: str, place: Place, _: int) -> str:
    """Kill a recorder at a random moment."""
    process = start(*MODES[mode], "-o", place.trace, "--", "sh", "-c", WORK)
    time.sleep(place.chance.uniform(0, 1.3))
    process.kill()
    end(process, killed=True)
    return outcome(place.trace, place.folder / "converted")


def killed_converting(place: Place, _: int) -> str:
    """Kill `lo2io convert` at a random moment. The spool must be convertible still."""
    run("record", "-q", "--keep-spool", "-o", place.trace, "--", "sh", "-c", WORK)
    process = start("convert", place.trace / "spool", "-o", place.folder / "other")
    time.sleep(place.chance.uniform(0, 0.8))
    process.kill()
    end(process, killed=True)
    again = run("convert", "--force", place.trace / "spool", "-o", place.folder / "other")
    if again.returncode:
        raise WrongError(again.shown)  # type: ignore[attr-defined]
    verify(place.folder / "other")
    return "spool, converted"


@contextlib.contextmanager
def mounted(folder: Path, *arguments: str) -> Iterator[Path]:
    """Mount a file system for one try."""
    folder.mkdir()
    subprocess.run(["mount", *arguments, str(folder)], check=True)
    try:
        yield folder
    finally:
        if subprocess.run(["umount", str(folder)], check=False, capture_output=True).returncode:
            subprocess.run(["umount", "-l", str(folder)], check=False)  # something is still in use


def full_disk(place: Place, number: int) -> str:
    """Record onto a file system of few bytes."""
    size = SIZES[1 + number % (len(SIZES) - 1)]
    with mounted(place.folder / "disk", "-t", "tmpfs", "-o", f"size={size}", "none") as disk:
        run("record", "-q", "-o", disk / "T", "--", "sh", "-c", WORK)
        return outcome(disk / "T", place.folder / "converted")


def full_disk_converting(place: Place, number: int) -> str:
    """Convert onto such a file system. The spool stays."""
    run("record", "-q", "--keep-spool", "-o", place.trace, "--", "sh", "-c", WORK)
    with mounted(place.folder / "disk", "-t", "tmpfs", "-o", f"size={SIZES[1 + number % 9]}", "none") as disk:
        done = run("convert", place.trace / "spool", "-o", disk / "T")
        if not done.returncode:
            verify(disk / "T")
    run("convert", "--force", place.trace / "spool", "-o", place.folder / "other")
    verify(place.folder / "other")
    return "trace" if not done.returncode else "message; spool, converted"


def broken_disk(place: Place, number: int) -> str:
    """Record onto a loop device whose image cannot grow: the disk answers writes with EIO."""
    size = (2 + number) << 20
    with mounted(place.folder / "below", "-t", "tmpfs", "-o", f"size={size}", "none") as below:
        image = below / "image"
        with image.open("wb") as file:
            file.truncate(64 << 20)
        subprocess.run(["mkfs.ext4", "-q", "-O", "^has_journal", str(image)], check=True)
        with mounted(place.folder / "disk", "-o", "loop", str(image)) as disk:
            run("record", "-q", "--keep-spool", "-o", disk / "T", "--", "sh", "-c", f"{WORK}; sync")
            return outcome(disk / "T", place.folder / "converted")


def read_only(place: Place, _: int) -> str:
    """Record and convert onto a file system that is read-only."""
    run("record", "-q", "--keep-spool", "-o", place.trace, "--", "true")
    with mounted(place.folder / "disk", "-t", "tmpfs", "-o", "ro", "none") as disk:
        for words in (("record", "-o", disk / "T", "--", "true"), ("convert", place.trace / "spool", "-o", disk / "T")):
            done = run(*words)
            if not done.returncode:
                raise WrongError(f"{words[0]} wrote to it")
    return "message"


def small_files(place: Place, number: int) -> str:
    """Record, then convert, with RLIMIT_FSIZE."""
    size = SIZES[number % len(SIZES)]
    limit = functools.partial(resource.setrlimit, resource.RLIMIT_FSIZE, (size, size))
    run("record", "-q", "--keep-spool", "-o", place.trace, "--", "sh", "-c", WORK, preexec_fn=limit)
    found = outcome(place.trace, place.folder / "converted")
    if (place.trace / "spool").exists():
        done = run("convert", place.trace / "spool", "-o", place.folder / "other", preexec_fn=limit)
        if not done.returncode:
            verify(place.folder / "other")
    return found


def refusal(error: str, calls: tuple[str, ...], place: Place, number: int) -> str:
    """Record with a system call that the kernel always refuses."""
    call = calls[number % len(calls)]
    under = (sys.executable, "-S", refused.__file__, call, error)
    mode = list(MODES.values())[number // len(calls) % len(MODES)]
    done = start(*mode, "-o", place.trace, "--", "sh", "-c", f"echo ran; exit {EXIT_CODE}", under=under)
    out, shown = done.communicate(timeout=LONGEST_S)
    if "Traceback" in shown or done.returncode < 0 or (done.returncode == EXIT_CODE) != (out == "ran\n"):
        raise WrongError(f"{call}: exit code {done.returncode}, {out!r}: {shown[-2000:]}")
    return outcome(place.trace, place.folder / "converted")


def refused_once(place: Place, number: int) -> str:
    """Refuse one of the system calls that lo2io makes, once: strace answers it."""
    calls, errors = calls_made(), ("EPERM", "ENOSPC", "EIO", "EDQUOT")
    name, last = calls[number % len(calls)]
    first = max(1, last // 2)  # Python itself starts before
    error = errors[number // len(calls) % len(errors)]
    fault = f"inject={name}:error={error}:when={place.chance.randint(first, last)}"
    under = ("strace", "-qq", "-o", "/dev/null", "-e", f"trace={name}", "-e", fault)
    process = start("record", "-q", "-o", place.trace, "--", "sh", "-c", "exit 7", under=under)
    try:
        end(process)
    except WrongError as wrong:
        raise WrongError(f"{fault}: {wrong}") from None
    return outcome(place.trace, place.folder / "converted")


@functools.cache
def calls_made() -> list[tuple[str, int]]:
    """Names of the calls that the main thread of a recording makes, and how many of each."""
    with tempfile.TemporaryDirectory() as folder:
        under = ("strace", "-qq", "-c", "-U", "name,calls", "-o", f"{folder}/calls")
        run("record", "-q", "-o", f"{folder}/T", "--", "true", under=under)
        rows = [line.split() for line in Path(folder, "calls").read_text().splitlines()]
    found = [(row[0], int(row[1])) for row in rows if row[1:] and row[1].isdecimal() and row[0] != "total"]
    return sorted(each for each in found if each[0] not in LIBRARY_S | NEVER_FAIL)


def stopped(place: Place, _: int) -> str:
    """Stop the recorder for 10 s under load: what does not fit into the buffers is lost, and counted."""
    process = start("record", "-q", "-o", place.trace, "--", "sh", "-c", LOAD.format(12))
    time.sleep(1.5)
    process.send_signal(signal.SIGSTOP)
    time.sleep(10)
    process.send_signal(signal.SIGCONT)
    end(process)
    return outcome(place.trace, place.folder / "converted")


def crowd(program: str, place: Place, number: int) -> str:
    """Record a program that makes many of something: a command's recording and the whole machine's in turn."""
    mode = list(MODES.values())[number % 2]
    done = run(*mode, "-o", place.trace, "--", *shlex.split(program.replace("FOLDER", str(place.folder))))
    if done.returncode:
        raise WrongError(done.shown)  # type: ignore[attr-defined]
    return outcome(place.trace, place.folder / "converted")


def beside(other: tuple[str, ...], place: Place, number: int) -> str:
    """Record while another tracer records everything."""
    line = [word.replace("FOLDER", str(place.folder)) for word in other]
    with subprocess.Popen(line, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=place.folder) as process:
        time.sleep(1)
        if process.poll() is not None:
            raise WrongError(f"{other[0]} has ended at once")
        try:
            run(*list(MODES.values())[number % 2], "-o", place.trace, "--", "sh", "-c", WORK)
        finally:
            process.send_signal(signal.SIGINT)
    return outcome(place.trace, place.folder / "converted")


def little_memory(megabytes: int, place: Place, number: int) -> str:
    """Record in a cgroup with little memory."""
    group = Path("/sys/fs/cgroup/memory", f"lo2io-faults-{os.getpid()}-{place.folder.name}")
    group.mkdir()
    (group / "memory.limit_in_bytes").write_text(str(megabytes << 20))
    enter = ("sh", "-c", f'echo $$ > {group}/cgroup.procs; exec "$@"', "sh")
    mode = list(MODES.values())[number % len(MODES)]
    process = start(*mode, "-o", place.trace, "--", "sh", "-c", WORK, under=enter)
    shown = process.communicate(timeout=LONGEST_S)[1]
    if "Traceback" in shown:
        raise WrongError(shown[-2000:])
    ended = "; the kernel ended lo2io" if process.returncode == -signal.SIGKILL else ""
    for _ in range(100):
        with contextlib.suppress(OSError):
            group.rmdir()
            break
        time.sleep(0.05)
    return outcome(place.trace, place.folder / "converted") + ended


PYTHON = shlex.join([sys.executable, "-S", "-c"])
FORKS = """
import os, sys, time
living = []
for number in range(10000):
    pid = os.fork()
    if not pid:
        time.sleep(.2); os._exit(0)
    living.append(pid)
    if len(living) == 1000:
        for each in living: os.waitpid(each, 0)
        living = []
"""
BOMB = """
import os
for _ in range(10): os.fork()
open('/etc/passwd').read()
while True:
    try: os.wait()
    except ChildProcessError: os._exit(0)
"""
THREADS = """
import threading
threading.stack_size(65536)
gate = threading.Event()
each = [threading.Thread(target=gate.wait) for _ in range(5000)]
for t in each: t.start()
gate.set()
for t in each: t.join()
"""
FILES = """
import os
os.mkdir('FOLDER/many')
for n in range(100000): os.close(os.open(f'FOLDER/many/{n}', os.O_CREAT | os.O_WRONLY))
"""
WRAP = (
    "unshare --pid --fork --mount-proc sh -c 'echo 400 > /proc/sys/kernel/pid_max; i=0; "
    "while [ $i -lt 1500 ]; do /bin/true; i=$((i+1)); done'"
)
PERF = ("perf", "record", "-q", "-a", "-e", "raw_syscalls:*", "-o", "FOLDER/perf")
BPFTRACE = ("bpftrace", "-e", "tracepoint:raw_syscalls:sys_enter { @ = count(); }")
DISK_CALLS = ("fallocate", "ftruncate", "flock")
FAULTS = [
    *(Fault(f"kill -9: {mode}", 100, functools.partial(killed, mode)) for mode in MODES),
    Fault("kill -9: convert", 100, killed_converting),
    Fault("disk full: record", 18, full_disk),
    Fault("disk full: convert", 9, full_disk_converting),
    Fault("EIO of the disk", 6, broken_disk),
    Fault("read-only", 1, read_only),
    Fault("RLIMIT_FSIZE", 20, small_files),
    Fault("quota (EDQUOT)", 6, functools.partial(refusal, "EDQUOT", DISK_CALLS)),
    Fault("call refused always", 48, functools.partial(refusal, "EPERM", tuple(refused.NUMBERS))),
    Fault("call refused once", 200, refused_once),
    Fault("recorder stopped for 10 s", 1, stopped),
    Fault("1,024 forks at once", 2, functools.partial(crowd, f"{PYTHON} {shlex.quote(BOMB)}")),
    Fault("10,000 processes", 2, functools.partial(crowd, f"{PYTHON} {shlex.quote(FORKS)}")),
    Fault("pids that wrap", 2, functools.partial(crowd, WRAP)),
    Fault("5,000 threads", 2, functools.partial(crowd, f"{PYTHON} {shlex.quote(THREADS)}")),
    Fault("100,000 files", 2, functools.partial(crowd, f"{PYTHON} {shlex.quote(FILES)}")),
    Fault("beside lo2io", 2, functools.partial(beside, (LO2IO, "system-wide", "-q", "-o", "FOLDER/first"))),
    Fault("beside perf", 2, functools.partial(beside, PERF)),
    Fault("beside bpftrace", 2, functools.partial(beside, BPFTRACE)),
    Fault("200 MB of memory", 3, functools.partial(little_memory, 200)),
    Fault("100 MB of memory", 3, functools.partial(little_memory, 100)),
]


def identities(command: int) -> set[int]:
    """Numbers of all BPF programs or maps of the kernel, by bpf(2)."""
    libc, found, number = ctypes.CDLL(None), set(), 0
    while True:
        question = (ctypes.c_uint32 * 4)(number)
        if libc.syscall(_BPF, command, ctypes.byref(question), ctypes.sizeof(question)):
            return found
        number = question[1]
        found.add(number)


def enabled() -> str:
    """Events that anybody has enabled in tracefs, and probes."""
    files = (Path("/sys/kernel/tracing", name) for name in ("set_event", "kprobe_events", "uprobe_events"))
    return "".join(file.read_text() for file in files if file.exists())


def state() -> tuple[set[int], set[int], str]:
    """What could remain in the kernel."""
    return identities(_PROGRAM_NEXT), identities(_MAP_NEXT), enabled()


def remains(before: tuple[set[int], set[int], str], mark: str) -> str:
    """Say what is left after a try, 5 s later at most: new programs and maps, events, processes."""
    until = time.monotonic() + 5
    while True:
        now = state()
        told = [
            *(["BPF programs"] if now[0] - before[0] else []),
            *(["BPF maps"] if now[1] - before[1] else []),
            *(["events in tracefs"] if now[2] != before[2] else []),
            *(leftovers.described(pid) for pid in leftovers.living(mark)),
        ]
        if not told or time.monotonic() > until:
            return ", ".join(told)
        time.sleep(0.1)


def attempt(fault: Fault, number: int, seed: int, mark: str) -> str:
    """Try a fault once.

    Raises:
        WrongError: The try went wrong, or left something behind.
    """
    before, folder = state(), Path(tempfile.mkdtemp(prefix="lo2io-faults-"))
    try:
        found = fault.attempt(Place(folder, random.Random(f"{seed} {fault.name} {number}")), number)  # noqa: S311
        if left := remains(before, mark):
            raise WrongError(f"left behind: {left}")
    finally:
        leftovers.end_all(mark)
        shutil.rmtree(folder, ignore_errors=True)
    return found


def try_often(fault: Fault, tries: int, seed: int, mark: str) -> tuple[collections.Counter[str], bool]:
    """Try a fault so often, or until Ctrl-C: outcomes, and True if it was Ctrl-C."""
    counts: collections.Counter[str] = collections.Counter()
    for number in range(tries):
        try:
            counts[attempt(fault, number, seed, mark)] += 1
        except WrongError as wrong:
            counts["**wrong**"] += 1
            print(f"{fault.name}, try {number}: {wrong}", file=sys.stderr, flush=True)
        except KeyboardInterrupt:
            return counts, True
    return counts, False


def main() -> None:
    """Try the chosen faults."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--tries", type=int)
    parser.add_argument("--seed", type=int, default=1)
    chosen = parser.parse_args()
    mark = os.environ[leftovers.VARIABLE] = f"faults-{os.getpid()}"
    print("| fault | tries | outcome |\n|---|---|---|", flush=True)
    failed = False
    for fault in FAULTS:
        if chosen.names and not any(name in fault.name for name in chosen.names):
            continue
        counts, was_stopped = try_often(fault, chosen.tries or fault.tries, chosen.seed, mark)
        failed = failed or "**wrong**" in counts
        told = " · ".join(f"{count} {name}" for name, count in counts.most_common())
        print(f"| {fault.name} | {counts.total()} | {told} |", flush=True)
        if was_stopped:
            break
    sys.exit(failed)


if __name__ == "__main__":
    main()
