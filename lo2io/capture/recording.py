"""One recording from start to end: options in, a spool out.

The order matters. The command is forked before anything exists that it must not inherit. lo2io drains buffers before
it lists tasks, and lists tasks before it samples: each event in between is in the buffers or in the list. The command
runs only when all is open. At the end, the last look at ``/proc`` comes before sampling stops, because a name is proven
only while the descriptor's life is recorded.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from dataclasses import field, replace
from typing import TYPE_CHECKING

from lo2io import _version
from lo2io.capture import waiting
from lo2io.capture.accounts import Accounting
from lo2io.capture.backend import BPF, PERF
from lo2io.capture.background_close import close_in_background
from lo2io.capture.checks import check_options
from lo2io.capture.devices import with_new_devices
from lo2io.capture.events.opened import SYSTEM
from lo2io.capture.hotplug import Hotplug
from lo2io.capture.launch import StoppedCommand, resolve_user
from lo2io.capture.notices import Notices
from lo2io.capture.opening import load_events, open_cpu, open_events, room_for_fds
from lo2io.capture.options import RecordOptions
from lo2io.capture.procscan.process import FactScanner, Scanner
from lo2io.capture.session import Session
from lo2io.capture.threads import go_first, going_first
from lo2io.errors import AccessError, CaptureError, Lo2ioError, refusal
from lo2io.frozen import dataclass
from lo2io.kernel import procfs, sysfs, tracefs
from lo2io.kernel.namespaces import check_namespaces
from lo2io.model import SpoolMeta
from lo2io.model.job import RankedProcess
from lo2io.model.layers import STACKS
from lo2io.model.notices import Notice, NoticeKind
from lo2io.rights import keep_for_recording
from lo2io.signals import interrupt_number
from lo2io.spool.facts import TASK_FROM_EXEC, TASK_SELECT
from lo2io.spool.sinks import WriteBehind
from lo2io.spool.writer import SpoolWriter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

    from lo2io.capture.clock_log import ClockLog
    from lo2io.capture.events.opened import OpenEvents
    from lo2io.capture.flight.recorder import FlightRecorder
    from lo2io.capture.session import Stopped
    from lo2io.kernel.cgroups import Cgroup
    from lo2io.model.events import Event
    from lo2io.model.job import Job
    from lo2io.model.recording import Cpu
    from lo2io.model.status import Status

__all__ = ["RecordOptions", "RecordingResult", "record"]

_SHOW_S = 0.5
_SWITCH_INTERVAL_S = 0.0005
"""The thread that reads /proc keeps the draining thread from running for at most this long."""


@dataclass(frozen=True, slots=True)
class RecordingResult:
    """A complete spool, and how the command ended."""

    spool: Path
    exit_code: int
    """The command's, 128 + n if signal n killed it. Without a command 0, or 6 if recording had to stop."""
    notices: tuple[str, ...]
    """The notices that the user saw. The spool keeps them, too."""
    meta: SpoolMeta


@dataclass(frozen=True, slots=True)
class _Plan:
    """The parts of one recording, before anything is opened."""

    options: RecordOptions
    events: Sequence[Event]
    command: StoppedCommand | None
    cgroup: Cgroup | None
    signals: waiting.BlockedSignals
    note: Notices
    show: Callable[[Status | None], None] | None
    later: contextlib.ExitStack | None
    cpus: tuple[Cpu, ...] = field(default_factory=sysfs.read_cpus)
    """The online CPUs, read once: all parts of the recording must see the same CPUs, even if a CPU goes offline now."""

    @property
    def roots(self) -> tuple[int, ...]:
        """The processes that the user named. A command may have other ranks of its job beside it."""
        others = self.options.meeting.others if self.options.meeting else ()
        return self.options.pids if self.command is None else (self.command.pid, *others)


def record(
    options: RecordOptions,
    tell: Callable[[Notice], None] = lambda _: None,
    show: Callable[[Status | None], None] | None = None,
    later: contextlib.ExitStack | None = None,
) -> RecordingResult:
    """Record a command, running processes or the whole machine. Call it from the main thread.

    Args:
        options: What to record.
        tell: Called with each notice at once, from any thread.
        show: Called now and then with the recording's status, and with None when it is over. Not called for a command,
            which may write to the same terminal.
        later: Gets a callback that closes the events in the background, for a caller that starts other work
            first. The callback forks: no thread may run then. None: this function closes them.

    Returns:
        The result, when recording has ended and the spool is complete.

    Raises:
        UsageError: Options contradict each other; a process, CPU, cgroup or tracepoint does not exist; the spool's
            directory is not empty.
        AccessError: The kernel refuses, or knows processes by other numbers than here. No spool is left.
        CommandError: The command could not be started; no spool is left.
        CaptureError: The kernel refused buffers, or the spool could not be written.
        KeyboardInterrupt: A signal came while recording was being stopped. The spool is complete all the same. The
            arguments are the signal's number and the command's exit code, as far as they are not 0.
    """
    check_options(options)
    check_namespaces()
    note = Notices(tell)
    cgroup = None if options.cgroup is None else _find_cgroup(options.cgroup, note)
    for text in options.notices:
        note(Notice(text))
    events = load_events(options, note)
    user, notice = resolve_user(options.user) if options.command else (None, "")
    if notice:
        note(Notice(notice))
    command = None
    try:
        # At a time limit Slurm sends SIGTERM several times, and SIGKILL after its KillWait.
        once = frozenset({signal.SIGTERM} if options.job else ())
        with waiting.BlockedSignals(once) as signals, _quick_switching():
            if options.until_last:
                waiting.adopt_orphans()
            if options.command:
                command = StoppedCommand(options.command, user, signals.before, signals.ignored, umask=options.umask)
            try:
                meta = _run(_Plan(options, events, command, cgroup, signals, note, show, later))
            except Exception as error:
                raise _with_exit_code(error, command) from error
            finally:
                if command:
                    command.abandon()
    except KeyboardInterrupt as interrupt:
        if command and command.exit_code:
            raise KeyboardInterrupt(interrupt_number(interrupt), command.exit_code) from None
        raise
    exit_code = meta.exit_code or 0
    if not command and NoticeKind.ENDED_EARLY in note.kinds:
        exit_code = CaptureError.exit_code
    return RecordingResult(options.spool, exit_code, note.texts, meta)


def _with_exit_code(error: Exception, command: StoppedCommand | None) -> Exception:
    """The error for the user. It ends lo2io with the exit code of the command, which runs to its end.

    The error's own code ends lo2io if the command has not begun, or has succeeded.
    """
    found = error if isinstance(error, Lo2ioError) else refusal("record", error)
    if command and command.is_released and command.exit_code is None:
        command.exit_code = waiting.outlive(command.pid)
    if found and command and command.exit_code:
        found.exit_code = command.exit_code
    return found or error


def _find_cgroup(path: str, note: Callable[[Notice], None]) -> Cgroup:
    from lo2io.kernel.cgroups import find_cgroup, has_processes  # noqa: PLC0415 - few recordings need this

    cgroup = find_cgroup(path)
    if not has_processes(cgroup):
        note(Notice(f"no process is in the cgroup {cgroup.path} yet"))
    return cgroup


def _run(plan: _Plan) -> SpoolMeta:
    """Open, record, and write the result down. All that is opened here is closed here, also after an error.

    Only the events may be closed later.
    """
    options, command, note = plan.options, plan.command, plan.note
    numbers = tuple(each.cpu for each in plan.cpus)
    with room_for_fds(), _make_spool(options, numbers) as writer, contextlib.ExitStack() as undo:
        # Unwound last: a spool without a recording does not stay.
        unless_recorded = undo.enter_context(contextlib.ExitStack())
        unless_recorded.callback(writer.discard)
        opened = open_events(options, plan.events, plan.roots, note, cpus=numbers, cgroup=plan.cgroup)
        (plan.later or undo).callback(close_in_background, opened)
        keep_for_recording()
        if opened.kernel:
            writer.take_kernel(events=opened.kernel.has_events)
        filters = _set_filters(options, opened)
        flight = _make_flight(plan, writer, opened)
        if flight:
            undo.callback(flight.abandon)  # runs before the session closes things that the flight's thread uses
        session = Session(opened, writer, note, flight, _clock_log(writer, flight))
        undo.callback(session.abandon)
        if not flight:
            writer.put_aside(sum(len(event.text) for event in plan.events))
        meta = _write_first(writer, plan, _describe(plan, session, filters, flight.first_segments if flight else ()))
        undo.enter_context(going_first())
        scanner = _start(session, writer, plan)
        meta = _write_begun(writer, plan, meta, session)
        accounting = Accounting(command.pid if command else None, plan.cgroup.folder if plan.cgroup else None)
        if flight:
            flight.start(session, meta, scanner.rescan, accounting.look)
            plan.signals.own[signal.SIGUSR1] = lambda: flight.request_dump("SIGUSR1")
        ranks = undo.enter_context(_release(plan))
        unless_recorded.pop_all()
        scanner.start()
        undo.callback(scanner.abandon)
        hotplug = _follow_cpus(plan, session, writer, scanner, filters, flight)
        undo.callback(hotplug.close)
        if not command:  # a command goes on in any case
            plan.signals.is_over = lambda: not session.is_draining
        with contextlib.nullcontext() if command else _showing(plan, session, writer):
            exit_code = _wait(plan, accounting, ranks)
        if command and exit_code is None:
            note(Notice("the time is over; the command goes on"))
        hotplug.look()
        scanner.stop()
        accounting.end()
        stopped = session.stop()
        hotplug.look()  # for CPUs that came meanwhile
        meta = replace(meta, cpus=(*meta.cpus, *hotplug.new_cpus))
        meta = _complete(meta, stopped, exit_code, accounting, session)
        if flight:
            meta = flight.finish(meta, stopped, plan.signals.is_ending, accounting.last)
        meta = replace(meta, notices=note.texts, nr_bytes=None if flight else writer.size)
        writer.write_meta(meta)
    return meta


def _write_first(writer: SpoolWriter, plan: _Plan, meta: SpoolMeta) -> SpoolMeta:
    """Write the description before anything is enabled, so that a killed recorder leaves a readable spool.

    Warn if the disk may be full when the last description is written.
    """
    writer.write_meta(meta)
    if writer.unreserved:
        plan.note(
            Notice(
                f"no space could be put aside in {plan.options.spool} ({writer.unreserved}): "
                "if that disk fills up, the spool's description may stay that of the start"
            )
        )
    return meta


def _write_begun(writer: SpoolWriter, plan: _Plan, meta: SpoolMeta, session: Session) -> SpoolMeta:
    """Write the description again, with the facts that are known once sampling has begun."""
    meta = replace(meta, syncs=session.syncs, start_ns=session.start_ns, notices=plan.note.texts)
    writer.write_meta(meta)
    return meta


def _follow_cpus(  # noqa: PLR0917 - the parts of a recording
    plan: _Plan,
    session: Session,
    writer: SpoolWriter,
    scanner: Scanner,
    filters: Iterable[tuple[str, str]],
    flight: FlightRecorder | None,
) -> Hotplug:
    """Look after CPUs that go and come while lo2io waits for signals."""
    options, opened = plan.options, session.opened

    def reopen(cpu: int) -> OpenEvents:
        return open_cpu(opened, plan.events, cpu, filters, cgroup=plan.cgroup)

    def is_wanted(cpu: int) -> bool:
        return options.cpus is None or cpu in sysfs.parse_cpu_list(options.cpus)

    hotplug = Hotplug(
        session,
        writer,
        plan.note,
        reopen=None if opened.scope != SYSTEM else reopen,
        is_wanted=is_wanted,
        rescan=scanner.rescan,
        takes_new=not options.is_flight,
    )
    plan.signals.ticks.append(hotplug.look)
    if flight:
        flight.look_at_cpus = hotplug.look
    return hotplug


def _complete(
    meta: SpoolMeta, stopped: Stopped, exit_code: int | None, accounting: Accounting, session: Session
) -> SpoolMeta:
    """The description, with the facts that are known only at the end."""
    return replace(
        with_new_devices(meta),
        complete=True,
        stop_ns=stopped.stop_ns,
        syncs=stopped.syncs,
        counts=tuple(sorted(stopped.counts, key=lambda each: meta.events.index(each.name))),
        **stopped.misses._asdict(),
        absences=session.absences,
        kernel_stacks=stopped.kernel_stacks,
        user_stacks=stopped.user_stacks,
        exit_code=exit_code,
        accounts=accounting.accounts(session.to_spool_clock),
        usage=None if meta.job and len(meta.job.ranks) > 1 else accounting.usage,  # that of one rank says little
    )


def _set_filters(options: RecordOptions, opened: OpenEvents) -> tuple[tuple[str, str], ...]:
    """Pairs of an event and its filter, for each filter that the kernel took.

    A program applies the filter that it was chosen for.
    """
    samples = opened.kernel.samples if opened.kernel else ()
    return tuple(
        (name, text)
        for name, text in options.filters.items()
        if name in samples or (name in opened.names and opened.set_filter(name, text))
    )


def _make_spool(options: RecordOptions, cpus: tuple[int, ...]) -> SpoolWriter:
    if not options.is_flight:
        return SpoolWriter(options.spool, cpus, folder=options.folder, behind=WriteBehind(go_first))
    from lo2io.spool.segments import SegmentedSpool  # noqa: PLC0415 - only flight recorders need it

    return SegmentedSpool(options.spool, cpus, options.max_bytes, folder=options.folder)


def _make_flight(plan: _Plan, writer: SpoolWriter, opened: OpenEvents) -> FlightRecorder | None:
    if not plan.options.is_flight:
        return None
    from lo2io.capture.flight.recorder import make_flight  # noqa: PLC0415 - loads the native library

    return make_flight(plan.options, writer, opened, plan.events, plan.note)


def _clock_log(writer: SpoolWriter, flight: FlightRecorder | None) -> ClockLog | None:
    """The log of the machine's clocks. A flight recorder has none: its windows have the readings of their borders."""
    if flight:
        return None
    from lo2io.capture.clock_log import ClockLog  # noqa: PLC0415 - loads the native library

    return ClockLog(writer.take_clocks())


def _start(session: Session, writer: SpoolWriter, plan: _Plan) -> Scanner:
    """Drain, list the tasks and their open files, sample: in this order.

    The programs in the kernel follow forks before the first look at ``/proc`` begins, so none is missed in between.
    """
    options, roots, kernel = plan.options, plan.roots, session.opened.kernel
    session.begin()
    if kernel and not options.system:
        for pid in roots:
            kernel.select(pid)
    scanner = _make_scanner(session, writer, plan)
    scanner.look_first(TASK_SELECT | (TASK_FROM_EXEC if options.command else 0))
    session.enable()
    return scanner


def _make_scanner(session: Session, writer: SpoolWriter, plan: _Plan) -> Scanner:
    options, roots, note, kernel = plan.options, plan.roots, plan.note, session.opened.kernel
    unwinds = kernel is not None and STACKS in kernel.layers
    if not options.system:
        recorded = kernel.selected if kernel else tuple
        return FactScanner(
            writer.facts,
            roots,
            options.scan_period_s,
            note,
            seldom=kernel is not None,
            recorded=recorded,
            code=unwinds,
        )
    command = roots[0] if roots else 0
    controller = plan.cgroup.controller if plan.cgroup else None
    if kernel and options.is_flight:
        from lo2io.bpf.looks import Looks  # noqa: PLC0415 - a command starts without it
        from lo2io.capture.procscan.iterated import IteratedScanner  # noqa: PLC0415

        with contextlib.suppress(AccessError):  # then /proc tells the same, at a higher cost
            return IteratedScanner(
                writer.facts,
                options.scan_period_s,
                note,
                Looks(),
                command=command,
                controller=controller,
                code=unwinds,
            )
    from lo2io.capture.procscan.machine import MachineScanner  # noqa: PLC0415 - a command starts without it

    return MachineScanner(
        writer.facts,
        options.scan_period_s,
        note,
        command=command,
        skip=frozenset({os.getpid()}),
        controller=controller,
        seldom=kernel is not None,
        code=unwinds,
    )


def _describe(
    plan: _Plan, session: Session, filters: tuple[tuple[str, str], ...], segments: tuple[str, ...]
) -> SpoolMeta:
    """The spool's description, as far as it is known at the start. Before sampling it has no comparison of clocks."""
    options, opened, machine = plan.options, session.opened, os.uname()
    kept = [event for event in plan.events if event.name in opened.recorded]
    folder = tracefs.find_tracefs() if options.tracefs is None else options.tracefs
    return SpoolMeta(
        lo2io_version=_version.__version__,
        complete=False,
        mode="system" if options.system else "process",
        command=options.command,
        roots=plan.roots,
        recorder_pid=os.getpid(),
        hostname=machine.nodename,
        kernel=machine.release,
        machine=machine.machine,
        cpus=plan.cpus,
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
        filters=filters,
        lacking=tracefs.lacking_events(options.events, options.newer, {event.name for event in plan.events}),
        notices=plan.note.texts,
        filter=options.filter,
        cgroup=plan.cgroup.path if plan.cgroup else "",
        segments=segments,
        sample_rate=options.sample_rate,
        backend=BPF if opened.kernel and opened.kernel.names else PERF,
        hook=opened.kernel.hook if opened.kernel else "",
        layers=opened.kernel.layers if opened.kernel else (),
        slow_from_ns=options.slow_calls.from_ns,
        slow_one_of=options.slow_calls.one_of,
        kernel_facts=opened.kernel is not None,
        kernel_events=opened.kernel.samples if opened.kernel else (),
        chosen_cpus=() if options.cpus is None else tuple(opened.cpus[index] for index in opened.sampled or ()),
        boot_id=procfs.read_boot_id(),
        job=_describe_job(plan),
    )


def _describe_job(plan: _Plan) -> Job | None:
    """The job with its ranks on this node. The leader's rank is its child, which becomes the command."""
    job, command = plan.options.job, plan.command
    if job is None or command is None:
        return job
    ranks = (RankedProcess(command.pid if each.pid == os.getpid() else each.pid, each.rank) for each in job.ranks)
    return replace(job, ranks=tuple(sorted(ranks, key=lambda each: each.rank)))


@contextlib.contextmanager
def _release(plan: _Plan) -> Iterator[waiting.Watch | None]:
    """Let the command go, and the other ranks of this node, which are watched from now on."""
    if plan.command:
        plan.command.release()
    if plan.options.meeting is None:
        yield None
        return
    with waiting.Watch(plan.options.meeting.fds) as watch:
        plan.options.meeting.release()
        yield watch


def _wait(plan: _Plan, accounting: Accounting, ranks: waiting.Watch | None) -> int | None:
    options, command, signals = plan.options, plan.command, plan.signals
    if command:
        duration_s = options.duration_s if options.system else None
        exit_code = waiting.wait_for_command(
            command.pid, signals, accounting.ended, duration_s, accounting.command_used
        )
        command.exit_code = exit_code
        command.is_released = exit_code is not None  # else the command goes on, and nobody waits for it
        if options.until_last:
            waiting.wait_for_descendants(signals, accounting.ended)
        if ranks and exit_code == 0:  # a rank that failed must end now: its launcher waits for that to end the others
            waiting.wait_for_watched(ranks, signals)
        return exit_code
    if options.system:
        waiting.wait_for_end(signals, options.duration_s)
    else:
        waiting.wait_for_processes(options.pids, signals, options.duration_s)
    return None


@contextlib.contextmanager
def _showing(plan: _Plan, session: Session, writer: SpoolWriter) -> Iterator[None]:
    """The user can see the status while lo2io waits for signals."""
    signals, show = plan.signals, plan.show
    if show is None:
        yield
        return
    from lo2io.capture.meter import Meter  # noqa: PLC0415 - recordings of a command show no status

    meter = Meter(session.opened, lambda: writer.size)
    signals.ticks.append(lambda: show(meter.read()))
    signals.tick_s = _SHOW_S
    try:
        yield
    finally:
        show(None)


@contextlib.contextmanager
def _quick_switching() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(_SWITCH_INTERVAL_S)
    try:
        yield
    finally:
        sys.setswitchinterval(before)
