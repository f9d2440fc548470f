"""One recording from start to end: options in, a spool out.

The order matters. The command is forked before anything it must not inherit exists; rings are drained before tasks are
listed, and tasks are listed before sampling begins, so that what happens in between is in one of the two; the command
runs only when all is open. At the end the last look at ``/proc`` comes before sampling stops, for a name is proven only
while the descriptor's life is recorded.
"""

from __future__ import annotations

import contextlib
import os
import platform
import resource
import socket
import sys
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from lo2io import _version
from lo2io.capture import wait
from lo2io.capture.accounting import Accounting
from lo2io.capture.closing import close_in_background
from lo2io.capture.launch import StoppedCommand, find_program, resolve_user
from lo2io.capture.scan import FactScanner
from lo2io.capture.session import Session
from lo2io.capture.source import INHERIT, SYSTEM, OpenEvents, OpenRequest, select_source
from lo2io.errors import AccessError, UsageError
from lo2io.kernel import procfs, sysfs, tracefs
from lo2io.model import SpoolMeta
from lo2io.spool.facts import TASK_FROM_EXEC, TASK_SELECT
from lo2io.spool.writer import SpoolWriter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

DEFAULT_RING_BYTES = 4 << 20
_SWITCH_INTERVAL_S = 0.0005
"""So long at most the thread that reads /proc keeps the one that drains from running."""


@dataclass(frozen=True, slots=True)
class RecordOptions:
    """What to record, and why one would change it.

    Attributes:
        spool: Directory to create. Choose a disk that the recorded program does not use, and that is fast.
        events: Full tracepoint names. Fewer cost less; each costs the recorded program about 0.4 µs when it happens.
        optional: Of these, the ones a kernel may lack; they are left out with a notice.
        filters: Event to what the kernel lets pass of it, in the kernel's syntax; where it refuses, all of it passes.
        command: Program and arguments to start and record …
        pids: … or processes that run, recorded with all their threads until they end or a signal stops it.
        duration_s: With ``pids``: end the recording after so long, whatever runs on.
        ring_bytes: Per CPU, a power of two. Larger if samples are lost under load, smaller if locked memory is scarce.
        user: Whom the command runs as; by default the one who called sudo, else whoever runs lo2io.
        opener: ``python-perf`` or ``native``. Native puts samples on CLOCK_MONOTONIC, as other tools' logs are.
        scope: ``system`` opens per CPU and selects when converting; ``inherit`` opens for the tasks alone, which needs
            no rights but knows system calls only and costs each context switch some µs. None: system if allowed.
        scan_period_s: Rest between two looks at open files; shorter names more short-lived ones. 0: none but at the
            start and the stop.
        system: Record every process of the machine; then ``command`` only says when to end, and there may be none.
        cpus: With ``system``: only these CPUs, as the kernel writes lists of them.
        cgroup: With ``system``: only this cgroup and those below it.
        filter: What the user chose by a filter, for the spool.
        tracefs: Where tracefs is mounted; None: find it.
    """

    spool: Path
    events: tuple[str, ...]
    optional: frozenset[str] = frozenset()
    filters: Mapping[str, str] = field(default_factory=dict)
    command: tuple[str, ...] = ()
    pids: tuple[int, ...] = ()
    duration_s: float | None = None
    ring_bytes: int = DEFAULT_RING_BYTES
    user: str | None = None
    opener: str | None = None
    scope: str | None = None
    scan_period_s: float = 0.1
    system: bool = False
    cpus: str | None = None
    cgroup: str | None = None
    filter: str = ""
    tracefs: Path | None = None


@dataclass(frozen=True, slots=True)
class RecordingResult:
    """A spool that is complete, and how the command ended."""

    spool: Path
    exit_code: int
    """The command's, 128 + n if signal n killed it; 0 without a command."""
    notices: tuple[str, ...]
    """What the user was told on the way; the spool keeps it, too."""
    meta: SpoolMeta


@dataclass(frozen=True, slots=True)
class _Event:
    name: str
    id: int
    text: str


class _Notices:
    """Passes each notice on, and keeps it for the spool."""

    def __init__(self, tell: Callable[[str], None]) -> None:
        self.texts: list[str] = []
        self._tell = tell

    def __call__(self, text: str) -> None:
        self.texts.append(text)
        self._tell(text)


def record(options: RecordOptions, tell: Callable[[str], None] = lambda _: None) -> RecordingResult:
    """Record a command or running processes. Call it from the main thread.

    Args:
        options: What to record.
        tell: Called with each notice as it arises, from whatever thread.

    Returns:
        When recording has ended and the spool is complete; events are closed in the background.

    Raises:
        UsageError: Contradicting options, no such process or tracepoint, the spool's directory is not empty.
        AccessError: The kernel refuses; no spool is left.
        CommandError: The command could not be started; no spool is left.
        CaptureError: Rings refused, or the spool could not be written.
        KeyboardInterrupt: SIGINT came while recording was being stopped. The spool is complete nevertheless.
    """
    _check(options)
    note = _Notices(tell)
    events = _load_events(options, note)
    user, notice = resolve_user(options.user) if options.command else (None, "")
    if notice:
        note(notice)
    with wait.BlockedSignals() as signals, _quick_switching():
        command = None
        if options.command:
            command = StoppedCommand(options.command, user, signals.before, signals.ignored)
        try:
            meta = _run(options, events, command, signals, note)
        finally:
            if command:
                command.abandon()
    return RecordingResult(options.spool, meta.exit_code or 0, tuple(note.texts), meta)


def _run(
    options: RecordOptions,
    events: Sequence[_Event],
    command: StoppedCommand | None,
    signals: wait.BlockedSignals,
    note: _Notices,
) -> SpoolMeta:
    """Open, record, and write down how it was. What is opened here is closed here, whatever happens."""
    roots = options.pids if command is None else (command.pid,)
    with (
        _room_for_fds(),
        SpoolWriter(options.spool, sysfs.read_online_cpus()) as writer,
        contextlib.ExitStack() as undo,
    ):
        # Unwound last: a spool nothing was recorded into does not stay.
        unless_recorded = undo.enter_context(contextlib.ExitStack())
        unless_recorded.callback(writer.discard)
        opened = _open(options, events, roots, note)
        undo.callback(close_in_background, opened)
        filters = tuple(
            (name, text)
            for name, text in options.filters.items()
            if name in opened.names and opened.set_filter(name, text)
        )
        session = Session(opened, writer, note)
        undo.callback(session.abandon)
        scanner = _start(session, writer, roots, options, note)
        meta = replace(_describe(options, events, session, roots, note.texts), filters=filters)
        writer.write_meta(meta)
        accounting = Accounting(command.pid if command else None)
        if command:
            command.release()
        unless_recorded.pop_all()
        scanner.start()
        undo.callback(scanner.abandon)
        exit_code = _wait(options, command, signals, accounting)
        scanner.stop()
        accounting.end()
        stopped = session.stop()
        meta = replace(
            meta,
            complete=True,
            stop_ns=stopped.stop_ns,
            syncs=stopped.syncs,
            counts=stopped.counts,
            mounts=tuple(dict.fromkeys((*meta.mounts, *procfs.read_mounts()))),
            exit_code=exit_code,
            notices=tuple(note.texts),
            accounts=accounting.accounts(session.to_spool_clock),
        )
        writer.write_meta(meta)
    return meta


def _start(
    session: Session,
    writer: SpoolWriter,
    roots: tuple[int, ...],
    options: RecordOptions,
    note: Callable[[str], None],
) -> FactScanner:
    """Drain, list the tasks and their open files, sample: in this order."""
    session.begin()
    scanner = FactScanner(writer.facts, roots, options.scan_period_s, note)
    scanner.scan_tasks(TASK_SELECT | (TASK_FROM_EXEC if options.command else 0))
    scanner.scan_fds()
    session.enable()
    return scanner


def _check(options: RecordOptions) -> None:
    """What can be wrong before anything is opened."""
    if options.system:
        raise UsageError("record the whole machine", "this lo2io cannot", "`lo2io record -- CMD` or `-p PID`")
    if bool(options.command) == bool(options.pids):
        raise UsageError("choose what to record", "either a command or processes", "`lo2io record -- CMD` or `-p PID`")
    if options.scope not in {None, SYSTEM, INHERIT}:
        raise UsageError(f"record with scope {options.scope}", "no such scope", f"{SYSTEM} or {INHERIT}")
    if options.command and options.duration_s is not None:
        raise UsageError("record a command for a time", "a command is recorded to its end", "leave the duration out")
    page = resource.getpagesize()
    if options.ring_bytes < page or options.ring_bytes & (options.ring_bytes - 1):
        raise UsageError(
            f"map rings of {options.ring_bytes} bytes", f"a ring is a power of two of at least {page}", "--ring 4MiB"
        )
    if options.command:
        find_program(options.command[0])
    wait.check_processes(options.pids)


def _load_events(options: RecordOptions, note: Callable[[str], None]) -> tuple[_Event, ...]:
    folder = tracefs.find_tracefs() if options.tracefs is None else options.tracefs
    found, missing = [], []
    for name in options.events:
        if name in options.optional and not tracefs.event_exists(folder, name):
            missing.append(name)
            continue
        layout, text = tracefs.load_format(folder, name)
        found.append(_Event(name, layout.id, text))
    if missing:
        note(f"this kernel has no {', '.join(missing)}: recorded without")
    if not found:
        raise UsageError("choose events", "this kernel has none of them", "`lo2io tracepoints check` lists what it has")
    return tuple(found)


def _open(
    options: RecordOptions, events: Sequence[_Event], roots: tuple[int, ...], note: Callable[[str], None]
) -> OpenEvents:
    """Open system-wide, or where that is refused and nobody insisted, for the tasks alone."""
    cpus = sysfs.read_online_cpus()

    def attempt(scope: str) -> OpenEvents:
        source, notice = select_source(options.opener, scope)
        if notice:
            note(notice)
        chosen = [e for e in events if scope == SYSTEM or e.name.startswith("syscalls:")]
        if not chosen:
            raise AccessError("record per task", "only system calls can be recorded so", "choose system calls")
        tids = tuple(tid for pid in roots for tid in procfs.iter_tids(pid)) if scope == INHERIT else ()
        request = OpenRequest(tuple((e.name, e.id) for e in chosen), cpus, options.ring_bytes, scope, tids)
        opened = source.open(request)
        if len(chosen) < len(events):
            left_out = ", ".join(e.name for e in events if e not in chosen)
            note(f"recording tasks instead of CPUs leaves out {left_out}")
        return opened

    try:
        opened = attempt(options.scope or SYSTEM)
    except AccessError as refusal:
        if options.scope is not None or options.opener == "python-perf":
            raise
        try:
            opened = attempt(INHERIT)
        except AccessError:
            raise refusal from None
        note(f"only the tasks themselves are recorded: {refusal.answer}")
    if opened.ring_bytes < opened.ring_bytes_wanted:
        note(
            f"rings are {opened.ring_bytes >> 10} KiB per CPU instead of {opened.ring_bytes_wanted >> 10}: "
            "the kernel grants no more locked memory (ulimit -l, kernel.perf_event_mlock_kb)"
        )
    return opened


def _describe(
    options: RecordOptions, events: Sequence[_Event], session: Session, roots: tuple[int, ...], notices: list[str]
) -> SpoolMeta:
    """The spool's description as far as it is known at the start."""
    opened = session.opened
    by_cpu = {cpu.cpu: cpu for cpu in sysfs.read_cpus()}
    kept = [event for event in events if event.name in opened.names]
    folder = tracefs.find_tracefs() if options.tracefs is None else options.tracefs
    return SpoolMeta(
        lo2io_version=_version.__version__,
        complete=False,
        mode="process",
        command=options.command,
        roots=roots,
        recorder_pid=os.getpid(),
        hostname=socket.gethostname(),
        kernel=platform.release(),
        machine=platform.machine(),
        cpus=tuple(by_cpu[cpu] for cpu in opened.cpus),
        events=tuple(event.name for event in kept),
        formats=tuple(event.text for event in kept),
        header_page=(folder / "events/header_page").read_text(encoding="utf-8"),
        clock=opened.clock,
        syncs=session.syncs,
        start_ns=session.start_ns,
        stop_ns=None,
        ring_bytes=opened.ring_bytes,
        ring_bytes_wanted=opened.ring_bytes_wanted,
        opener=opened.opener,
        scope=opened.scope,
        counts=(),
        mounts=procfs.read_mounts(),
        devices=sysfs.read_devices(),
        notices=tuple(notices),
    )


def _wait(
    options: RecordOptions, command: StoppedCommand | None, signals: wait.BlockedSignals, accounting: Accounting
) -> int | None:
    if command:
        return wait.wait_for_command(command.pid, signals, accounting.command_ended)
    wait.wait_for_processes(options.pids, signals, options.duration_s)
    return None


@contextlib.contextmanager
def _room_for_fds() -> Iterator[None]:
    """As many open files as the kernel allows this process, for one per event and CPU."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    try:
        yield
    finally:
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@contextlib.contextmanager
def _quick_switching() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(_SWITCH_INTERVAL_S)
    try:
        yield
    finally:
        sys.setswitchinterval(before)
