"""Opens the events of a recording: options in, disabled events and their buffers out."""

from __future__ import annotations

import contextlib
import resource
from dataclasses import replace
from typing import TYPE_CHECKING

from lo2io.capture.backend import BPF, choose_backend, choose_hook
from lo2io.capture.checks import choose_cpus
from lo2io.capture.events.opened import INHERIT, MIN_RING_BYTES, SYSTEM, OpenEvents, OpenRequest
from lo2io.capture.events.select import select_source
from lo2io.capture.options import SINGLE
from lo2io.errors import AccessError, CaptureError, UsageError
from lo2io.kernel import access, procfs, tracefs
from lo2io.model import layers
from lo2io.model.events import Event
from lo2io.model.layers import STACKS
from lo2io.model.notices import Notice

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from lo2io.capture.backend import BackendChoice
    from lo2io.capture.events.programs import Kernel
    from lo2io.capture.options import RecordOptions
    from lo2io.kernel.cgroups import Cgroup

FACTS_SHARE = 4
"""If calls are perf samples, the programs' buffer is smaller than the samples' buffer by this factor. It then holds
only facts about files, and most calls use files that are known already. If programs record the calls of a flight
recorder, perf's buffers are smaller: they hold births, names and ends of threads, and few events. All buffers count for
``max_bytes``."""


def load_events(options: RecordOptions, note: Callable[[Notice], None]) -> tuple[Event, ...]:
    """The requested tracepoints that this kernel has.

    Raises:
        UsageError: The kernel lacks a tracepoint that is not optional, or all tracepoints.
        AccessError: The tracepoints' formats cannot be read.
    """
    folder = tracefs.find_tracefs() if options.tracefs is None else options.tracefs
    found = []
    for name in options.events:
        if name not in options.optional or tracefs.event_exists(folder, name):
            layout, text = tracefs.load_format(folder, name)
            found.append(Event(name, layout.id, text, layout))
    missing = tracefs.lacking_events(options.events, options.newer, {event.name for event in found})
    if missing:
        note(Notice(f"this kernel has no {', '.join(_brief(missing, options.events))}: recording without it"))
    if not found:
        raise UsageError(
            "choose events", "this kernel has none of them", "`lo2io tracepoints check` lists the kernel's events"
        )
    return tuple(found)


def _brief(missing: Sequence[str], events: Sequence[str]) -> list[str]:
    """The names of missing tracepoints. A subsystem without any of its chosen tracepoints is named once."""
    subsystems = {name.partition(":")[0] for name in missing}
    chosen = {each: [name for name in events if name.startswith(f"{each}:")] for each in subsystems}
    whole = [each for each, names in chosen.items() if len(names) > 1 and set(names) <= set(missing)]
    return list(dict.fromkeys(f"{each}:*" if (each := name.partition(":")[0]) in whole else name for name in missing))


def open_events(
    options: RecordOptions,
    events: Sequence[Event],
    roots: tuple[int, ...],
    note: Callable[[Notice], None],
    *,
    cpus: tuple[int, ...],
    cgroup: Cgroup | None = None,
) -> OpenEvents:
    """Open programs and perf events. A notice tells if less than usual is recorded.

    lo2io tries its programs in the kernel first, then perf events of every CPU. If the kernel refuses those, lo2io
    tries perf events of the recorded tasks alone, unless the user chose a scope.

    Args:
        options: The options of the recording.
        events: The events to open.
        roots: Processes that are recorded.
        note: Takes notices.
        cpus: The online CPUs.
        cgroup: The only cgroup whose system calls are recorded; None: all are.

    Raises:
        UsageError: A CPU is not online, or the user asked for programs and for an option that excludes them.
        AccessError: The kernel refuses.
        CaptureError: The kernel cannot open that much.
    """
    notices: list[Notice] = []
    choice = choose_backend(options, [event.name for event in events], cgroup)
    kernel = _try_programs(options, events, choice, notices.append, cpus=cpus, cgroup=cgroup)
    opened = None
    if kernel:
        opened = _open_beside(kernel, options, events, note, cpus=cpus, cgroup=cgroup, required=choice.required)
    if opened is None:
        opened = _open_perf(options, events, roots, note, cpus=cpus, cgroup=cgroup)
    if opened.scope == SYSTEM or options.scope is not None:  # else the notice about the scope tells more
        for notice in notices:
            note(notice)
    for text in () if opened.kernel else options.unnamed:
        note(Notice(text))
    if opened.ring_bytes < opened.ring_bytes_wanted:
        note(
            Notice(
                f"buffers are {opened.ring_bytes >> 10} KiB per CPU instead of {opened.ring_bytes_wanted >> 10}: "
                "the kernel grants no more locked memory (ulimit -l, kernel.perf_event_mlock_kb)"
            )
        )
    return opened


def _try_programs(
    options: RecordOptions,
    events: Sequence[Event],
    choice: BackendChoice,
    note: Callable[[Notice], None],
    *,
    cpus: tuple[int, ...],
    cgroup: Cgroup | None,
) -> Kernel | None:
    """Load and attach the programs. None: perf events and ``/proc`` replace them, and a notice tells the reason.

    Raises:
        AccessError: The user asked for the programs, and the kernel refuses them.
        CaptureError: The user asked for the programs, and the kernel cannot load them.
    """
    lower = "files are named by /proc"
    if choice.backend == BPF or choice.limit:
        lower = f"calls are recorded as perf samples, and {lower}"
    if not choice.needs_programs:
        if choice.limit:
            note(Notice(f"{lower}: {choice.limit} cannot use programs in the kernel"))
        return None
    from lo2io.capture.events.programs import KernelRequest, open_kernel  # noqa: PLC0415 - brings in libbpf and the native library
    from lo2io.catalog.catalog import load_catalog  # noqa: PLC0415

    request = KernelRequest(
        tuple(events),
        load_catalog(),
        choose_cpus(options.cpus, cpus),
        options.ring_bytes if choice.backend == BPF else max(options.ring_bytes // FACTS_SHARE, MIN_RING_BYTES),
        calls=choice.backend == BPF,
        hook=choose_hook(options.hook, events),
        layers=_existing_layers(options, note) if choice.backend == BPF else (),
        all_tasks=options.system,
        cgroup=None if cgroup is None else cgroup.folder,
        left_out=options.left_out,
        filters=options.filters,
        slow_calls=options.slow_calls,
    )
    try:
        return open_kernel(request)
    except (AccessError, CaptureError) as error:
        if choice.required:
            raise
        note(Notice(f"{lower}: {error}{'; ' if error.remedy else ''}{error.remedy}"))
    return None


def _existing_layers(options: RecordOptions, note: Callable[[Notice], None]) -> tuple[str, ...]:
    """The wanted layers whose tracepoints this kernel has. A notice tells of others that the user named.

    A kernel without the tracepoints of a default layer is no news: the trace's metadata say which layers it has.
    """
    folder = tracefs.find_tracefs() if options.tracefs is None else options.tracefs
    found = []
    wanted = {*(layers.DEFAULT if options.layers is None else options.layers), *((STACKS,) if options.stacks else ())}
    for name in (name for name in layers.LAYERS if name in wanted):
        missing = [each for each in layers.LAYERS[name].tracepoints if not tracefs.event_exists(folder, each)]
        if not missing:
            found.append(name)
        elif options.layers is not None:
            note(Notice(f"this kernel has no {', '.join(missing)}: recording without the layer {name}"))
    return tuple(found)


def _open_beside(
    kernel: Kernel,
    options: RecordOptions,
    events: Sequence[Event],
    note: Callable[[Notice], None],
    *,
    cpus: tuple[int, ...],
    cgroup: Cgroup | None,
    required: bool,
) -> OpenEvents | None:
    """Open perf events of every task for events that the programs do not record.

    None: the kernel refuses them, and the programs are closed.
    """
    rest = [event for event in events if event.name not in kernel.names]
    try:
        single = kernel.hook == SINGLE
        if options.is_flight and kernel.names:
            options = replace(options, ring_bytes=max(options.ring_bytes // FACTS_SHARE, MIN_RING_BYTES))
        code = STACKS in kernel.layers and _tells_code(kernel.cpus[0], note)
        opened = _attempt(
            options, rest, (), note, scope=SYSTEM, cpus=cpus, cgroup=cgroup, native=True, single=single, code=code
        )
    except AccessError:
        kernel.close()
        if required:
            raise
        return None
    except BaseException:
        kernel.close()
        raise
    opened.kernel = kernel
    return opened


def _tells_code(cpu: int, note: Callable[[Notice], None]) -> bool:
    """True if the kernel tells which files are mapped; else a notice says what is missing."""
    found = access.tells_code(cpu)
    if not found:
        note(Notice(f"{access.NO_BUILD_IDS}: stacks are known by frame pointers alone"))
    return found


def _open_perf(
    options: RecordOptions,
    events: Sequence[Event],
    roots: tuple[int, ...],
    note: Callable[[Notice], None],
    *,
    cpus: tuple[int, ...],
    cgroup: Cgroup | None,
) -> OpenEvents:
    """Open all events as perf events."""
    try:
        return _attempt(options, events, roots, note, scope=options.scope or SYSTEM, cpus=cpus, cgroup=cgroup)
    except AccessError as refusal:
        if options.system or options.scope is not None or options.opener == "python-perf":
            raise
        try:
            opened = _attempt(options, events, roots, note, scope=INHERIT, cpus=cpus)
        except AccessError:
            raise refusal from None
        note(Notice(f"events are recorded per task, not per CPU: {refusal.answer}"))
        return opened


def _attempt(
    options: RecordOptions,
    events: Sequence[Event],
    roots: tuple[int, ...],
    note: Callable[[Notice], None],
    *,
    scope: str,
    cpus: tuple[int, ...],
    cgroup: Cgroup | None = None,
    native: bool = False,
    single: bool = False,
    code: bool = False,
) -> OpenEvents:
    """Open perf events.

    ``native`` puts samples on CLOCK_MONOTONIC, the clock of the programs' records. ``single``: programs watch each call
    at its own tracepoints. ``code``: mappings of code are told, too.
    """
    source, notice = select_source(options.opener or ("native" if native or cgroup is not None else None), scope)
    if notice:
        note(Notice(notice))
    chosen = [event for event in events if scope == SYSTEM or event.name.startswith("syscalls:")]
    if not chosen and not native:
        raise AccessError(
            "record per task", "only system calls can be recorded per task", "choose system calls with -e"
        )
    request = OpenRequest(
        tuple((event.name, event.id) for event in chosen),
        cpus,
        options.ring_bytes,
        scope,
        tuple(tid for pid in roots for tid in procfs.iter_tids(pid)) if scope == INHERIT else (),
        None if cgroup is None else cgroup.folder,
        single=single,
        code=code,
    )
    opened = source.open(request)
    wanted = choose_cpus(options.cpus, cpus)
    # Tasks are followed on all CPUs. Events of CPUs that are not wanted stay disabled, which costs nothing.
    opened.sampled = tuple(index for index, cpu in enumerate(cpus) if cpu in wanted)
    if len(chosen) < len(events):
        left_out = _brief([event.name for event in events if event not in chosen], [event.name for event in events])
        note(Notice(f"recording tasks instead of CPUs leaves out {', '.join(left_out)}"))
    return opened


def open_cpu(
    opened: OpenEvents,
    events: Sequence[Event],
    cpu: int,
    filters: Iterable[tuple[str, str]],
    *,
    cgroup: Cgroup | None = None,
) -> OpenEvents:
    """Open the same events on one more CPU, with the same opener, clock and filters.

    Raises:
        AccessError: The kernel refuses the events.
        CaptureError: The kernel cannot open the events.
    """
    source, _ = select_source(opened.opener, opened.scope)
    chosen = tuple((event.name, event.id) for event in events if event.name in opened.names)
    folder = None if cgroup is None else cgroup.folder
    single = opened.kernel is not None and opened.kernel.hook == SINGLE
    code = opened.kernel is not None and STACKS in opened.kernel.layers and access.tells_code(cpu)
    extra = source.open(
        OpenRequest(chosen, (cpu,), opened.ring_bytes, opened.scope, (), folder, single=single, code=code)
    )
    for name, text in filters:
        if name in extra.names:  # programs apply the other filters, on every CPU
            extra.set_filter(name, text)
    return extra


@contextlib.contextmanager
def room_for_fds() -> Iterator[None]:
    """Raise the limit of open files as far as allowed, since each event takes a descriptor on each CPU."""
    before: tuple[int, int] | None = None
    with contextlib.suppress(ValueError, OSError):
        before = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (before[1], before[1]))
    try:
        yield
    finally:
        if before:
            with contextlib.suppress(ValueError, OSError):
                resource.setrlimit(resource.RLIMIT_NOFILE, before)
