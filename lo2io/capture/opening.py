"""Opening what a recording needs: options in, disabled events and their rings out."""

from __future__ import annotations

import contextlib
import resource
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lo2io.capture.options import choose_cpus
from lo2io.capture.source import INHERIT, SYSTEM, OpenEvents, OpenRequest, select_source
from lo2io.errors import AccessError, UsageError
from lo2io.kernel import procfs, sysfs, tracefs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

    from lo2io.capture.options import RecordOptions


@dataclass(frozen=True, slots=True)
class Event:
    """A tracepoint to open: name, id, and its ``format`` file's text."""

    name: str
    id: int
    text: str


def load_events(options: RecordOptions, note: Callable[[str], None]) -> tuple[Event, ...]:
    """The tracepoints that were asked for and that this kernel has.

    Raises:
        UsageError: One is missing that is not optional, or all are.
        AccessError: Their formats cannot be read.
    """
    folder = tracefs.find_tracefs() if options.tracefs is None else options.tracefs
    found = []
    for name in options.events:
        if name not in options.optional or tracefs.event_exists(folder, name):
            layout, text = tracefs.load_format(folder, name)
            found.append(Event(name, layout.id, text))
    missing = tracefs.lacking_events(options.events, options.newer, {event.name for event in found})
    if missing:
        note(f"this kernel has no {', '.join(_brief(missing, options.events))}: recorded without")
    if not found:
        raise UsageError("choose events", "this kernel has none of them", "`lo2io tracepoints check` lists what it has")
    return tuple(found)


def _brief(missing: Sequence[str], events: Sequence[str]) -> list[str]:
    """The names; of a subsystem of which all that was chosen is missing, its name alone."""
    subsystems = {name.partition(":")[0] for name in missing}
    chosen = {each: [name for name in events if name.startswith(f"{each}:")] for each in subsystems}
    whole = [each for each, names in chosen.items() if len(names) > 1 and set(names) <= set(missing)]
    return list(dict.fromkeys(f"{each}:*" if (each := name.partition(":")[0]) in whole else name for name in missing))


def open_events(
    options: RecordOptions,
    events: Sequence[Event],
    roots: tuple[int, ...],
    note: Callable[[str], None],
    *,
    cgroup: Path | None = None,
) -> OpenEvents:
    """Open system-wide, or where that is refused, and it would do, and nobody insisted, for the tasks alone.

    Args:
        options: What was asked for.
        events: What to open.
        roots: Processes that are recorded.
        note: Takes notices.
        cgroup: Folder of the cgroup whose system calls are recorded; None: everybody's.

    Raises:
        UsageError: A CPU is not online.
        AccessError: The kernel refuses.
        CaptureError: The kernel cannot, or not so much.
    """
    try:
        opened = _attempt(options, events, roots, note, scope=options.scope or SYSTEM, cgroup=cgroup)
    except AccessError as refusal:
        if options.system or options.scope is not None or options.opener == "python-perf":
            raise
        try:
            opened = _attempt(options, events, roots, note, scope=INHERIT)
        except AccessError:
            raise refusal from None
        note(f"only the tasks themselves are recorded: {refusal.answer}")
    if opened.ring_bytes < opened.ring_bytes_wanted:
        note(
            f"rings are {opened.ring_bytes >> 10} KiB per CPU instead of {opened.ring_bytes_wanted >> 10}: "
            "the kernel grants no more locked memory (ulimit -l, kernel.perf_event_mlock_kb)"
        )
    return opened


def _attempt(
    options: RecordOptions,
    events: Sequence[Event],
    roots: tuple[int, ...],
    note: Callable[[str], None],
    *,
    scope: str,
    cgroup: Path | None = None,
) -> OpenEvents:
    source, notice = select_source(options.opener or (None if cgroup is None else "native"), scope)
    if notice:
        note(notice)
    chosen = [event for event in events if scope == SYSTEM or event.name.startswith("syscalls:")]
    if not chosen:
        raise AccessError("record per task", "only system calls can be recorded so", "choose system calls")
    cpus = sysfs.read_online_cpus()
    request = OpenRequest(
        tuple((event.name, event.id) for event in chosen),
        cpus,
        options.ring_bytes,
        scope,
        tuple(tid for pid in roots for tid in procfs.iter_tids(pid)) if scope == INHERIT else (),
        cgroup,
    )
    opened = source.open(request)
    wanted = choose_cpus(options.cpus, cpus)
    # Tasks are followed everywhere: the others' events are open, too, and stay disabled, which costs nothing.
    opened.sampled = tuple(index for index, cpu in enumerate(cpus) if cpu in wanted)
    if len(chosen) < len(events):
        left_out = _brief([event.name for event in events if event not in chosen], [event.name for event in events])
        note(f"recording tasks instead of CPUs leaves out {', '.join(left_out)}")
    return opened


def open_cpu(
    opened: OpenEvents,
    events: Sequence[Event],
    cpu: int,
    filters: Iterable[tuple[str, str]],
    *,
    cgroup: Path | None = None,
) -> OpenEvents:
    """Open on one more CPU what is open already: by the same opener, with the same clock and filters.

    Raises:
        AccessError: The kernel refuses.
        CaptureError: The kernel cannot.
    """
    source, _ = select_source(opened.opener, opened.scope)
    chosen = tuple((event.name, event.id) for event in events if event.name in opened.names)
    extra = source.open(OpenRequest(chosen, (cpu,), opened.ring_bytes, opened.scope, (), cgroup))
    for name, text in filters:
        extra.set_filter(name, text)
    return extra


@contextlib.contextmanager
def room_for_fds() -> Iterator[None]:
    """As many open files as the kernel allows this process, for one per event and CPU."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    try:
        yield
    finally:
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
