"""The choice of what records calls and what names their files.

lo2io's programs in the kernel do both best. If an option excludes the programs, or the kernel refuses them, perf events
record the calls and ``/proc`` names the files. The two are mixed only if the user asks for that.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lo2io.capture.events.opened import INHERIT, OPENERS
from lo2io.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lo2io.capture.options import RecordOptions
    from lo2io.kernel.cgroups import Cgroup

BPF, PERF = BACKENDS = ("bpf", "perf")
KERNEL, PROC = NAMES = ("kernel", "proc")


@dataclass(frozen=True, slots=True)
class BackendChoice:
    """What records calls, and what names their files.

    Attributes:
        backend: ``bpf``: programs record the calls; ``perf``: perf events do.
        names: ``kernel``: programs name files and paths; ``proc``: ``/proc`` does.
        limit: Which option excludes the programs, in words; empty: none, or the user chose against the programs.
        required: The user asked for the programs, so a refusal is an error.
    """

    backend: str
    names: str
    limit: str = ""
    required: bool = False

    @property
    def needs_programs(self) -> bool:
        """Whether programs must be loaded."""
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
    required = options.backend == BPF or options.names == KERNEL
    if limit and required:
        asked = f"--backend {BPF}" if options.backend == BPF else f"--names {KERNEL}"
        raise UsageError(f"record with {asked}", f"{limit} knows no programs in the kernel", f"leave {asked} out")
    if options.names == PROC or not any(event.startswith(("syscalls:", "io_uring:")) for event in events):
        return WITHOUT_PROGRAMS
    if options.backend is None and options.names is None and not BY_DEFAULT:
        return WITHOUT_PROGRAMS
    if limit:
        return WITHOUT_PROGRAMS if options.opener == OPENERS[0] else BackendChoice(PERF, PROC, limit)
    return BackendChoice(options.backend or BPF, KERNEL, required=required)


def check_backend(options: RecordOptions) -> None:
    """Check the choice before anything is opened.

    Raises:
        UsageError: There is no such backend or source of names, or the two contradict each other.
    """
    for asked, known, option in ((options.backend, BACKENDS, "--backend"), (options.names, NAMES, "--names")):
        if asked is not None and asked not in known:
            raise UsageError(f"record with {option} {asked}", "no such choice", f"{' or '.join(known)}")
    if options.backend == BPF and options.names == PROC:
        raise UsageError(
            f"record with --backend {BPF} --names {PROC}",
            "programs that record calls tell about their files, too",
            "leave one of the two out",
        )
    choose_backend(options, options.events, None)


def _limit(options: RecordOptions, cgroup: Cgroup | None) -> str:
    """The option that excludes programs in the kernel, in words; empty: none does."""
    if options.is_flight:
        return "a recording that keeps only its newest part"
    if options.scope == INHERIT:
        return f"--scope {INHERIT}"
    if options.opener == OPENERS[0]:
        return f"--opener {OPENERS[0]}"
    if cgroup is not None and cgroup.controller:
        return "a cgroup of version 1"
    return ""
