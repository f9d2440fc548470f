"""The choice of what records calls and what names their files.

lo2io's programs in the kernel do both best. If an option excludes the programs, or the kernel refuses them, perf events
record the calls and ``/proc`` names the files. The two are mixed only if the user asks for that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lo2io.capture.events.opened import INHERIT, OPENERS
from lo2io.capture.options import AUTO, HOOKS, RAW, SINGLE
from lo2io.errors import UsageError
from lo2io.frozen import dataclass

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lo2io.capture.options import RecordOptions
    from lo2io.kernel.cgroups import Cgroup
    from lo2io.model.events import Event

BPF, PERF = BACKENDS = ("bpf", "perf")
KERNEL, PROC = NAMES = ("kernel", "proc")
FEW_CALLS = 12
"""At most this many calls are watched singly. Most groups of ``tracepoints/syscalls.toml`` have no more calls. A
recorded process makes such calls so seldom that it is worth more to spare all its other calls
(docs/explanation/performance.md)."""
_ENTRY = "syscalls:sys_enter_"


@dataclass(frozen=True, slots=True)
class BackendChoice:
    """The recorder of calls, and the source of files' names.

    Attributes:
        backend: ``bpf``: programs record the calls; ``perf``: perf events do.
        names: ``kernel``: programs name files and paths; ``proc``: ``/proc`` does.
        limit: The option that excludes the programs, in words; empty: none, or the user chose against the programs.
        required: True if the user asked for the programs, so a refusal is an error.
    """

    backend: str
    names: str
    limit: str = ""
    required: bool = False

    @property
    def needs_programs(self) -> bool:
        """True if programs must be loaded."""
        return self.names == KERNEL


WITHOUT_PROGRAMS = BackendChoice(PERF, PROC)
BY_DEFAULT = True
"""Programs are tried even if the user did not ask for them."""


def choose_backend(options: RecordOptions, events: Iterable[str], cgroup: Cgroup | None) -> BackendChoice:
    """Choose what to try first.

    Args:
        options: The options of the recording.
        events: Full names of the recorded tracepoints.
        cgroup: The only cgroup that is recorded; None: all are.

    Raises:
        UsageError: The user asked for programs and for an option that excludes them.
    """
    limit = _limit(options, cgroup)
    asked = _asked(options)
    if limit and asked:
        raise UsageError(f"record with {asked}", f"{limit} cannot use programs in the kernel", f"leave {asked} out")
    if options.names == PROC or not any(event.startswith(("syscalls:", "io_uring:")) for event in events):
        return WITHOUT_PROGRAMS
    if options.backend is None and options.names is None and not BY_DEFAULT:
        return WITHOUT_PROGRAMS
    if limit:
        return WITHOUT_PROGRAMS if options.opener == OPENERS[0] else BackendChoice(PERF, PROC, limit)
    return BackendChoice(options.backend or BPF, KERNEL, required=bool(asked))


def _asked(options: RecordOptions) -> str:
    """The option that demands programs in the kernel; empty: none does."""
    if options.backend == BPF:
        return f"--backend {BPF}"
    if options.names == KERNEL:
        return f"--names {KERNEL}"
    if options.layers:
        return f"--layers {','.join(options.layers)}"
    if options.stacks:
        return "--stacks"
    return "" if options.hook == AUTO else f"--hook {options.hook}"


def choose_hook(asked: str, events: Iterable[Event]) -> str:
    """Where programs are to see the calls that they record: ``raw``, where all calls pass, or at each ``single`` one.

    Args:
        asked: The user's choice.
        events: What is recorded. If an entry comes with strings (Linux 6.19), the kernel reads them out of the memory
            of everybody who makes the call, as soon as anybody watches that entry alone.
    """
    if asked != AUTO:
        return asked
    entries = [event.layout for event in events if event.name.startswith(_ENTRY)]
    has_strings = any(field.is_data_loc for layout in entries for field in layout.fields)
    return RAW if has_strings or len(entries) > FEW_CALLS else SINGLE


def check_backend(options: RecordOptions) -> None:
    """Check the choice before anything is opened.

    Raises:
        UsageError: There is no such backend, source of names or hook, or two of them contradict each other.
    """
    for asked, known, option in (
        (options.backend, BACKENDS, "--backend"),
        (options.names, NAMES, "--names"),
        (options.hook, HOOKS, "--hook"),
    ):
        if asked is not None and asked not in known:
            raise UsageError(f"record with {option} {asked}", "there is no such choice", f"use {' or '.join(known)}")
    if options.backend == BPF and options.names == PROC:
        raise UsageError(
            f"record with --backend {BPF} --names {PROC}",
            "programs that record calls also name the calls' files",
            "leave one of the two out",
        )
    without = f"--backend {PERF}" if options.backend == PERF else f"--names {PROC}" if options.names == PROC else ""
    if options.hook != AUTO and without:
        raise UsageError(
            f"record with --hook {options.hook} {without}",
            "perf events record the calls, each at its own tracepoints",
            "leave one of the two out",
        )
    asked = "--stacks" if options.stacks else f"--layers {','.join(options.layers)}" if options.layers else ""
    if asked and without:
        raise UsageError(
            f"record with {asked} {without}",
            "programs in the kernel record the layers",
            "leave one of the two out",
        )
    choose_backend(options, options.events, None)


def _limit(options: RecordOptions, cgroup: Cgroup | None) -> str:
    """The option that excludes programs in the kernel, in words; empty: none does."""
    if options.scope == INHERIT:
        return f"--scope {INHERIT}"
    if options.opener == OPENERS[0]:
        return f"--opener {OPENERS[0]}"
    if cgroup is not None and cgroup.controller:
        return "a cgroup of version 1"
    return ""
