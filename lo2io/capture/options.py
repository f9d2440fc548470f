"""What to record: the options of one recording, and what can be wrong with them before anything is opened."""

from __future__ import annotations

import re
import resource
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from lo2io.capture import waiting
from lo2io.capture.backend import check_rung
from lo2io.capture.events.opened import INHERIT, OPENERS, SYSTEM
from lo2io.capture.launch import find_program
from lo2io.errors import UsageError
from lo2io.kernel import sysfs
from lo2io.model import CallFilter

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from lo2io.folder import Folder

DEFAULT_RING_BYTES = 4 << 20
_CPU_LIST = re.compile(r"\d+(-\d+)?(,\d+(-\d+)?)*")


@dataclass(frozen=True, slots=True)
class Converter:
    """The command that makes a trace of a flight recorder's window: a process of its own.

    Both get the window's spool and the directory of the trace to make. The command's last line on stderr says what
    came of it; after an error that line begins with ``lo2io: ``, and indented lines behind it say what helps.
    """

    run: Callable[[Path, Path], list[str]]
    """What is started, program first."""
    show: Callable[[Path, Path], str]
    """The same as the user would type it."""


@dataclass(frozen=True, slots=True)
class RecordOptions:
    """What to record, and why one would change it.

    Attributes:
        spool: Directory to create. Choose a disk that the recorded program does not use, and that is fast.
        events: Full tracepoint names. Fewer cost less; each costs the recorded program about 0.4 µs when it happens.
        optional: Of these, the ones a kernel may lack; they are left out with a notice.
        newer: Event to the one that took its place: a kernel has one of the two, and lacks nothing.
        filters: Event to what the kernel lets pass of it, in the kernel's syntax; where it refuses, all of it passes.
        command: Program and arguments to start and record …
        pids: … or processes that run, recorded with all their threads until they end or a signal stops it.
        duration_s: End the recording after so long, whatever runs on; not with a command unless ``system``.
        ring_bytes: Per CPU, a power of two. Larger if samples are lost under load, smaller if locked memory is scarce.
        user: Whom the command runs as; by default the one who called sudo, else whoever runs lo2io.
        backend: ``bpf`` has programs in the kernel record the calls, which costs half as much and leaves neighbours
            alone; ``perf`` has perf events do it. None: the former where it is allowed.
        names: ``kernel`` has these programs tell about files and paths, ``proc`` looks into ``/proc``, which sees less.
            None: the former where it is allowed.
        opener: ``python-perf`` or ``native``. Native puts samples on CLOCK_MONOTONIC, as other tools' logs are.
        scope: ``system`` opens per CPU and selects when converting; ``inherit`` opens for the tasks alone, which needs
            no rights but knows system calls only and costs each context switch some µs. None: system if allowed.
        until_last: With ``command``: record until all that it started has ended, too.
        scan_period_s: Rest between two looks at open files; shorter names more short-lived ones. 0: none but at the
            start and the stop.
        system: Record every process of the machine; then ``command`` only says when to end, and there may be none.
        cpus: With ``system``: only these CPUs, as the kernel writes lists of them.
        cgroup: With ``system``: only this cgroup and those below it.
        filter: What the user chose by a filter, for the spool.
        left_out: Which calls the programs in the kernel leave out by it.
        last_s: With ``system``: keep only the newest so many seconds …
        max_bytes: … or so much that the spool never takes more than so many bytes …
        trigger: … and write them as a trace of their own whenever a block request or call is slow: ``latency > 100ms``.
        sample_rate: Of the requests of rings, one in so many is to be written when converting; recorded are all.
        keep_spool: Leave the spool beside each trace that is written meanwhile.
        converter: Makes these traces; needed with ``last_s`` and ``max_bytes``.
        notices: What the user must know of this choice; told first, and kept in the spool …
        unnamed: … and what only if files are named by ``/proc``.
        tracefs: Where tracefs is mounted; None: find it.
        folder: The spool's directory if it is made already; None: ``spool`` is to be made.
        umask: The command's; None: as lo2io's is.
    """

    spool: Path
    events: tuple[str, ...]
    optional: frozenset[str] = frozenset()
    newer: Mapping[str, str] = field(default_factory=dict)
    filters: Mapping[str, str] = field(default_factory=dict)
    command: tuple[str, ...] = ()
    pids: tuple[int, ...] = ()
    duration_s: float | None = None
    until_last: bool = False
    ring_bytes: int = DEFAULT_RING_BYTES
    user: str | None = None
    backend: str | None = None
    names: str | None = None
    opener: str | None = None
    scope: str | None = None
    scan_period_s: float = 0.1
    system: bool = False
    cpus: str | None = None
    cgroup: str | None = None
    filter: str = ""
    left_out: CallFilter = field(default_factory=CallFilter)
    last_s: float | None = None
    max_bytes: int | None = None
    trigger: str | None = None
    sample_rate: int = 1
    keep_spool: bool = False
    converter: Converter | None = None
    notices: tuple[str, ...] = ()
    unnamed: tuple[str, ...] = ()
    tracefs: Path | None = None
    folder: Folder | None = None
    umask: int | None = None

    @property
    def is_flight(self) -> bool:
        """Only the newest part is kept."""
        return self.last_s is not None or self.max_bytes is not None


def check_options(options: RecordOptions) -> None:
    """What can be wrong before anything is opened.

    Raises:
        UsageError: Options contradict each other, or name what does not exist.
        CommandError: There is no such command.
    """
    if options.system:
        _check_system(options)
    elif bool(options.command) == bool(options.pids):
        raise UsageError("choose what to record", "either a command or processes", "`lo2io record -- CMD` or `-p PID`")
    elif options.cpus is not None or options.cgroup is not None:
        raise UsageError("record some CPUs or a cgroup", "only of the whole machine", "`lo2io system-wide`")
    elif options.command and options.duration_s is not None:
        raise UsageError("record a command for a time", "a command is recorded to its end", "leave the duration out")
    if options.until_last and (options.system or not options.command):
        remedy = "`lo2io record --until-last -- CMD`"
        raise UsageError("record until the last process has ended", "there is no command to record", remedy)
    _check_flight(options)
    if options.scope not in {None, SYSTEM, INHERIT}:
        raise UsageError(f"record with scope {options.scope}", "no such scope", f"{SYSTEM} or {INHERIT}")
    check_rung(options)
    page = resource.getpagesize()
    if options.ring_bytes < page or options.ring_bytes & (options.ring_bytes - 1):
        raise UsageError(
            f"map rings of {options.ring_bytes} bytes", f"a ring is a power of two of at least {page}", "--ring 4MiB"
        )
    if options.command:
        find_program(options.command[0])
    waiting.check_processes(options.pids)


def _check_system(options: RecordOptions) -> None:
    if options.pids:
        raise UsageError("record the whole machine and processes", "they are in it", "choose one of the two")
    if options.scope == INHERIT:
        raise UsageError("record the whole machine per task", "its tasks are not known", "leave --scope out")
    if options.user is not None and not options.command:
        raise UsageError(f"run a command as {options.user}", "there is no command", "name one behind `--`")
    if options.cgroup is not None and options.opener == OPENERS[0]:
        raise UsageError("open a cgroup's events with python-perf", "it knows no cgroups", "leave --opener out")
    choose_cpus(options.cpus, sysfs.read_online_cpus())


def _check_flight(options: RecordOptions) -> None:
    if options.is_flight and not options.system:
        raise UsageError(
            "keep the newest part only", "which processes are recorded is known from the beginning on", "system-wide"
        )
    if options.last_s is not None and options.last_s <= 0:
        raise UsageError(f"keep the last {options.last_s:g} s", "that is nothing", "--last 60s")
    if options.trigger is not None and not options.is_flight:
        raise UsageError("write a window at a trigger", "everything is kept", "add --last 60s or --max-size 2GiB")


def choose_cpus(text: str | None, online: tuple[int, ...]) -> tuple[int, ...]:
    """The CPUs that a list names; all that are online without one.

    Raises:
        UsageError: It is no list, or names a CPU that is not online.
    """
    if text is None:
        return online
    shown = sysfs.format_cpu_list(online)
    if not _CPU_LIST.fullmatch(text):
        raise UsageError(f"read the CPUs {text!r}", "not a list of CPUs", f"write it like 0-3,6; online: {shown}")
    cpus = tuple(sorted(set(sysfs.parse_cpu_list(text))))
    absent = [cpu for cpu in cpus if cpu not in online]
    if absent or not cpus:
        which = sysfs.format_cpu_list(absent)
        answer = f"{'CPU' if len(absent) == 1 else 'CPUs'} {which} not online" if absent else "there is none in it"
        raise UsageError(f"record the CPUs {text!r}", answer, f"online: {shown}")
    return cpus
