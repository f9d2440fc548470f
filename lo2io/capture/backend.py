"""How calls are recorded, and who names their files: from what was asked for to what can be tried.

The best is lo2io's programs in the kernel for both. Where something that was asked for cannot go with them, or the
kernel refuses them, perf events record the calls and ``/proc`` names the files: never a mixture nobody asked for.
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
class Rung:
    """What is tried first.

    Attributes:
        backend: ``bpf``: programs record the calls; ``perf``: perf events do.
        names: ``kernel``: programs tell about files and paths; ``proc``: what ``/proc`` shows has to do.
        limit: What stands in the way of more, in words; empty: nothing, or it was asked for.
        required: A refusal is an error.
    """

    backend: str
    names: str
    limit: str = ""
    required: bool = False

    @property
    def needs_programs(self) -> bool:
        """Programs are to be loaded."""
        return self.names == KERNEL


LOWEST = Rung(PERF, PROC)
BY_DEFAULT = True
"""Programs are tried where nobody asked for them."""


def choose_rung(options: RecordOptions, events: Iterable[str], cgroup: Cgroup | None) -> Rung:
    """What to try first.

    Args:
        options: What was asked for.
        events: What is recorded.
        cgroup: The one that alone is recorded.

    Raises:
        UsageError: Programs were asked for, and cannot go with something else that was.
    """
    limit = _limit(options, cgroup)
    required = options.backend == BPF or options.names == KERNEL
    if limit and required:
        asked = f"--backend {BPF}" if options.backend == BPF else f"--names {KERNEL}"
        raise UsageError(f"record with {asked}", f"{limit} knows no programs in the kernel", f"leave {asked} out")
    if options.names == PROC or not any(event.startswith(("syscalls:", "io_uring:")) for event in events):
        return LOWEST
    if options.backend is None and options.names is None and not BY_DEFAULT:
        return LOWEST
    if limit:
        return LOWEST if options.opener == OPENERS[0] else Rung(PERF, PROC, limit)
    return Rung(options.backend or BPF, KERNEL, required=required)


def check_rung(options: RecordOptions) -> None:
    """What can be wrong before anything is opened.

    Raises:
        UsageError: No such back end or source of names, or they contradict each other.
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
    choose_rung(options, options.events, None)


def _limit(options: RecordOptions, cgroup: Cgroup | None) -> str:
    """What was asked for that does not go with programs in the kernel."""
    if options.is_flight:
        return "a recording that keeps only its newest part"
    if options.scope == INHERIT:
        return f"--scope {INHERIT}"
    if options.opener == OPENERS[0]:
        return f"--opener {OPENERS[0]}"
    if cgroup is not None and cgroup.controller:
        return "a cgroup of version 1"
    return ""
