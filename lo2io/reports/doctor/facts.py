"""The facts that the doctor asks of the kernel and of this Python.

In: the catalog of events. Out: :class:`Facts`. This module judges nothing. It changes one thing: it mounts tracefs,
if tracefs is mounted nowhere and the user may mount it.
"""

from __future__ import annotations

import os
import resource
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from lo2io.bpf.probe import try_bpf
from lo2io.errors import AccessError, CaptureError, TraceError, UsageError
from lo2io.kernel import access, binding
from lo2io.kernel.cgroups import find_cgroup
from lo2io.kernel.idle import TIMER_EVENT, IdleSamples, try_idle
from lo2io.kernel.namespaces import check_namespaces
from lo2io.kernel.sysfs import read_online_cpus
from lo2io.kernel.tracefs import event_exists, find_tracefs, lacking_events
from lo2io.model.layers import LAYERS
from lo2io.otf2.library import find_library
from lo2io.reports.doctor.rings import RingFacts, ask_rings

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lo2io.catalog.catalog import Catalog

PROBE_EVENT = "syscalls:sys_enter_read"
ROOT = Path("/")


@dataclass(frozen=True, slots=True)
class Answer:
    """A fact, or else the error and its remedy."""

    found: str = ""
    error: str = ""
    remedy: str = ""


@dataclass(frozen=True, slots=True)
class Facts:
    """The facts that :func:`gather` found."""

    kernel: str
    root: bool
    """The user is root."""
    capabilities: frozenset[str]
    paranoid: int | None
    perf_mlock_bytes: int | None
    memlock_bytes: int | None
    page_bytes: int
    cpus: int
    open_files: int | None
    """The hard limit, because lo2io raises the soft one itself; None: unlimited."""
    tracefs: Answer
    readable: bool
    """True if ids of events can be read."""
    attempts: access.Attempts
    events: tuple[str, ...]
    """Events of the default set. A renamed event has the name that it has on this kernel."""
    missing: tuple[str, ...]
    """Events of the default set that this kernel lacks and recording needs."""
    optional: tuple[str, ...]
    """Events of the default set that this kernel lacks and recording does without."""
    binding: Answer
    otf2: Answer
    otf2_print: str | None
    rings: RingFacts
    bpf: Answer
    """Result of loading and attaching lo2io's programs in the kernel for a try."""
    layers: Mapping[str, tuple[str, ...]]
    """Layer → its tracepoints that this kernel lacks."""
    misfits: tuple[str, ...]
    """Layers that lack no tracepoint, but whose programs read types or members that this kernel does not have."""
    tables: Answer
    """How stacks of programs without frame pointers are unwound."""
    cgroups: Answer
    """The folder of the cgroup root that perf knows."""
    namespaces: Answer
    """Tells whether process numbers and times in the kernel are the same as here."""
    idle: IdleSamples | None
    """Events delivered from idle CPUs; None: this could not be tried."""


def gather(catalog: Catalog, root: Path = ROOT) -> Facts:
    """Ask the kernel and this Python.

    Args:
        catalog: It has the default set of events.
        root: The folder above ``proc`` and ``sys``. The tries are always made on the running kernel.
    """
    try:
        tracefs = find_tracefs(root)
        mounted = Answer(str(tracefs))
    except AccessError as error:
        tracefs, mounted = root / "sys/kernel/tracing", Answer(error=str(error), remedy=error.remedy)
    number = access.read_event_id(tracefs, PROBE_EVENT)
    selection = catalog.select(())
    there = [event for event in selection.events if number is None or event_exists(tracefs, event)]
    lacking = lacking_events(selection.events, selection.newer, there)
    cpus = read_online_cpus(root)
    cgroups = _ask_cgroups(root)
    attempts = access.try_events(cpus[0], number, Path(cgroups.found) if cgroups.found else None)
    layers = _ask_layers(tracefs, readable=number is not None)
    bpf, misfits = _ask_bpf(cpus[0], number, layers)
    uname = os.uname()
    return Facts(
        kernel=f"Linux {uname.release} {uname.machine}",
        root=os.geteuid() == 0,
        capabilities=access.read_capabilities(root),
        paranoid=access.read_paranoid(root),
        perf_mlock_bytes=access.read_perf_mlock_bytes(root),
        memlock_bytes=access.read_limit(resource.RLIMIT_MEMLOCK)[0],
        page_bytes=resource.getpagesize(),
        cpus=len(cpus),
        open_files=access.read_limit(resource.RLIMIT_NOFILE)[1],
        tracefs=mounted,
        readable=number is not None,
        attempts=attempts,
        events=(*there, *lacking),
        missing=tuple(event for event in lacking if event not in selection.optional),
        optional=tuple(event for event in lacking if event in selection.optional),
        binding=_ask_binding(),
        otf2=_ask_otf2(),
        otf2_print=shutil.which("otf2-print"),
        rings=ask_rings(catalog, tracefs, root, readable=number is not None),
        bpf=bpf,
        layers=layers,
        misfits=misfits,
        tables=_ask_tables(cpus[0]),
        cgroups=cgroups,
        namespaces=_ask_namespaces(root),
        idle=_ask_idle(tracefs, cpus, has_lost=attempts.lost.ok),
    )


def _ask_idle(tracefs: Path, cpus: Sequence[int], *, has_lost: bool) -> IdleSamples | None:
    number = access.read_event_id(tracefs, TIMER_EVENT)
    try:
        return None if number is None else try_idle(number, cpus, has_lost=has_lost)
    except (OSError, CaptureError):
        return None


def _ask_namespaces(root: Path) -> Answer:
    try:
        check_namespaces(root)
    except AccessError as error:
        return Answer(error=str(error), remedy=error.remedy)
    return Answer("the kernel's own")


def _ask_cgroups(root: Path) -> Answer:
    try:
        return Answer(str(find_cgroup("/", root).folder))
    except UsageError as error:
        return Answer(error=str(error), remedy="sudo mount -t cgroup2 none /sys/fs/cgroup")


def _ask_layers(tracefs: Path, *, readable: bool) -> dict[str, tuple[str, ...]]:
    wanted = {layer.name: layer.tracepoints if readable else () for layer in LAYERS.values()}
    return {name: tuple(each for each in events if not event_exists(tracefs, each)) for name, events in wanted.items()}


def _ask_tables(cpu: int) -> Answer:
    """By unwind tables: on x86-64, where the kernel tells which files are mapped."""
    if os.uname().machine != "x86_64":
        return Answer(error="lo2io unwinds on x86-64 alone", remedy="programs built with -fno-omit-frame-pointer")
    if not access.tells_code(cpu):
        return Answer(error=access.NO_BUILD_IDS, remedy="a newer kernel")
    return Answer("unwind tables, frame pointers")


def _ask_bpf(
    cpu: int, tracepoint_id: int | None, layers: Mapping[str, tuple[str, ...]]
) -> tuple[Answer, tuple[str, ...]]:
    """The answer, and the layers that do not fit. Without tracefs, no layer is tried: nothing tells its tracepoints."""
    tried = [name for name, lacking in layers.items() if not lacking and tracepoint_id is not None]
    try:
        fitting = try_bpf(cpu, tracepoint_id, tried)
    except (AccessError, CaptureError) as error:
        return Answer(error=str(error), remedy=error.remedy), ()
    answer = Answer("loaded and attached" if tracepoint_id is not None else "loaded")
    return answer, tuple(name for name in tried if name not in fitting)


def _ask_binding() -> Answer:
    try:
        return Answer(str(binding.find_binding().path))
    except AccessError as error:
        return Answer(error=str(error), remedy=error.remedy)


def _ask_otf2() -> Answer:
    try:
        return Answer(str(find_library()))
    except TraceError as error:
        return Answer(error=str(error), remedy=error.remedy)
