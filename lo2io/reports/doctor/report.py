"""Tells whether this user can record here, and names the least change that helps if not.

In: the facts of ``facts.py``. Out: a :class:`Diagnosis`, as text or JSON. This module asks the kernel nothing:
tests can have made-up facts judged.
"""

from __future__ import annotations

import errno
import io
import json
import sys
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from lo2io.errors import AccessError
from lo2io.kernel import access
from lo2io.model.layers import LAYERS
from lo2io.reports.doctor.facts import PROBE_EVENT, ROOT, Facts, gather
from lo2io.reports.doctor.rings import FOLLOWED, describe_rings
from lo2io.units import format_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from lo2io.catalog.catalog import Catalog

OK, WARN, FAIL = "ok", "warn", "fail"
SCHEMA_VERSION = 1
LEAST_IDLE_NS = 50_000_000
"""Missing events prove little if CPUs idled for less time than this."""
WANTED_RING_BYTES = 1 << 20
"""Buffers of this size recorded 1.9 M events/s without loss."""
LEAST_RING_BYTES = 64 << 10
_AS_ROOT = 'run it as root: sudo "$(command -v lo2io)" record … (the recorded command stays yours)'
_WANTED = ("BPF", "PERFMON", "IPC_LOCK", "SYS_PTRACE", "SYS_NICE")
_IN_CONTAINER = f"start the container with {' '.join(f'--cap-add {name}' for name in _WANTED)}"


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that recording depends on."""

    name: str
    status: str
    """``ok``, ``warn`` (recording works with a limit) or ``fail`` (recording does not work)."""
    found: str
    meaning: str
    remedy: str = ""
    """The least that helps, a command if there is one; empty if nothing is missing."""


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """All checks, in the order in which recording depends on them."""

    checks: tuple[Check, ...]

    @property
    def can_record(self) -> bool:
        """True if no check fails."""
        return all(check.status != FAIL for check in self.checks)

    @property
    def exit_code(self) -> int:
        """0: ``record`` can work for this user now; 3 (as for ``AccessError``): it cannot."""
        return 0 if self.can_record else AccessError.exit_code


def diagnose(catalog: Catalog, root: Path = ROOT) -> Diagnosis:
    """Gather the facts, and judge them."""
    return judge(gather(catalog, root))


def judge(facts: Facts) -> Diagnosis:
    """Judge what the facts mean for recording."""
    checks = (
        _kernel,
        _namespaces,
        _tracefs,
        _tracepoints,
        _events,
        _paranoid,
        _capabilities,
        _rings,
        _open_files,
        _accounting,
        _idle,
    )
    return Diagnosis(
        (
            *(check for judgement in checks for check in judgement(facts)),
            *_cgroups(facts),
            _binding(facts),
            *_libraries(facts),
            _io_uring(facts),
            _programs(facts),
            *_layers(facts),
            *_stacks(facts),
        )
    )


def _kernel(facts: Facts) -> Iterator[Check]:
    if facts.paranoid is None:
        remedy = "a kernel with CONFIG_PERF_EVENTS"
        yield Check("kernel", FAIL, facts.kernel, "the kernel has no perf events: nothing can be recorded", remedy)
    else:
        yield Check("kernel", OK, facts.kernel, "the kernel has perf events")


def _namespaces(facts: Facts) -> Iterator[Check]:
    """A check only if something is wrong: outside of containers, nothing is."""
    if facts.namespaces.error:
        meaning = "process numbers or times here differ from those in the kernel's records"
        yield Check("namespaces", FAIL, facts.namespaces.error, meaning, facts.namespaces.remedy)


def _tracefs(facts: Facts) -> Iterator[Check]:
    if facts.tracefs.error:
        meaning = "without it events have no numbers and no formats"
        yield Check("tracefs", FAIL, facts.tracefs.error, meaning, facts.tracefs.remedy)
    elif not facts.readable:
        path = facts.tracefs.found  # a remount for one group opens it to fewer users than a chmod
        meaning = f"the id of {PROBE_EVENT} cannot be read"
        remedy = f"sudo mount -o remount,mode=0750,gid=$(id -g) {path}"
        yield Check("tracefs", FAIL, f"{path}, not readable", meaning, remedy)
    else:
        yield Check("tracefs", OK, facts.tracefs.found, "ids and formats of events can be read")


def _tracepoints(facts: Facts) -> Iterator[Check]:
    if not facts.readable:
        return
    lacking = len(facts.missing) + len(facts.optional)
    found = f"{len(facts.events) - lacking} of {len(facts.events)} of the default set"
    if facts.missing:
        remedy = "name events that are there: lo2io tracepoints check"
        if any(event.startswith("syscalls:") for event in facts.missing):
            remedy = "a kernel with CONFIG_FTRACE_SYSCALLS; or leave the calls out: --events block"
        yield Check("tracepoints", FAIL, f"{found}; not {_some(facts.missing)}", "recording needs all of them", remedy)
    elif facts.optional:
        meaning = "recording works without the events that this kernel lacks"
        yield Check("tracepoints", OK, f"{found}; not {_some(facts.optional)}", meaning)
    else:
        yield Check("tracepoints", OK, found, "the default set is recorded whole")


def _events(facts: Facts) -> Iterator[Check]:
    tries = facts.attempts
    system = tries.any_task if tries.tracepoint is None else tries.tracepoint
    if _every_task(facts):
        yield Check("perf events", OK, "opened for every task", "calls and block requests can be recorded")
        return
    found = f"for every task: {system if tries.any_task.ok else tries.any_task}"
    if (tries.own_tracepoint or tries.own_task).ok:
        found += "; for own tasks: works"
        meaning = "only own commands and their calls: no block requests, no system-wide, and only with --scope inherit"
        status = WARN
    else:
        found += f"; for own tasks: {tries.own_tracepoint or tries.own_task}"
        meaning = "the kernel lets this user record nothing"
        status = FAIL
    yield Check("perf events", status, found, meaning, _more_rights(facts))


def _every_task(facts: Facts) -> bool:
    tries = facts.attempts
    return tries.any_task.ok and (tries.tracepoint is None or tries.tracepoint.ok)


def _paranoid(facts: Facts) -> Iterator[Check]:
    if facts.paranoid is None:
        return
    privileged = facts.capabilities & {"CAP_PERFMON", "CAP_SYS_ADMIN"}
    found = str(facts.paranoid)
    name = "perf_event_paranoid"
    if privileged:
        yield Check(name, OK, found, f"does not bind this user, who has {' and '.join(sorted(privileged))}")
    elif facts.paranoid <= -1:
        yield Check(name, OK, found, "everybody may record everything")
    else:
        meaning = "without CAP_PERFMON, -1 is needed for every task's events, 2 or less for one's own"
        yield Check(name, WARN, found, meaning, "sudo sysctl kernel.perf_event_paranoid=-1")


def _capabilities(facts: Facts) -> Iterator[Check]:
    have = facts.capabilities
    wants = {
        "CAP_PERFMON": "events of every task",
        "CAP_BPF": "programs in the kernel",
        "CAP_IPC_LOCK": "buffers beyond the limits of locked memory",
        "CAP_SYS_PTRACE": "names of files that other users' processes hold open",
        "CAP_SYS_NICE": "draining before everything else, so that a busy machine loses nothing",
    }
    # CAP_SYS_ADMIN stood for both before Linux 5.8, and still does.
    granted = have | ({"CAP_PERFMON", "CAP_BPF"} if "CAP_SYS_ADMIN" in have else set())
    lacking = [name for name in wants if name not in granted]
    found = ", ".join(sorted(have)) or "none"
    if lacking:
        meaning = "lacking: " + "; ".join(f"{name} ({wants[name]})" for name in lacking)
        yield Check("capabilities", WARN, found, meaning, _more_rights(facts))
    else:
        yield Check("capabilities", OK, found, "all that recording can use")


def _rings(facts: Facts) -> Iterator[Check]:
    if facts.perf_mlock_bytes is None:
        return
    memlock = "unlimited" if facts.memlock_bytes is None else format_bytes(facts.memlock_bytes)
    found = f"RLIMIT_MEMLOCK {memlock}; perf_event_mlock_kb {facts.perf_mlock_bytes >> 10} for each CPU"
    bound = facts.paranoid is not None and facts.paranoid > -1 and "CAP_IPC_LOCK" not in facts.capabilities
    largest = access.largest_ring_bytes(facts.cpus, facts.perf_mlock_bytes, facts.memlock_bytes, facts.page_bytes)
    if not bound or largest is None:
        yield Check("locked memory", OK, found, "buffers can have any size")
        return
    meaning = f"buffers of up to {format_bytes(largest)} for each of {facts.cpus} CPUs"
    need = facts.cpus * (WANTED_RING_BYTES + facts.page_bytes)
    remedy = f"sudo prlimit --pid $$ --memlock={need}:{need}"
    if largest < LEAST_RING_BYTES:
        yield Check("locked memory", FAIL, found, f"{meaning}: too small to record anything whole", remedy)
    elif largest < WANTED_RING_BYTES:
        yield Check("locked memory", WARN, found, f"{meaning}: a fast program can lose events", remedy)
    else:
        yield Check("locked memory", OK, found, meaning)


def _open_files(facts: Facts) -> Iterator[Check]:
    need = (len(facts.events) + 2) * facts.cpus + 64
    found = "unlimited" if facts.open_files is None else f"up to {facts.open_files}"
    meaning = f"{need} are needed: one for each event and CPU"
    if facts.open_files is not None and facts.open_files < need and not facts.root:
        yield Check("open files", FAIL, found, meaning, f"sudo prlimit --pid $$ --nofile={need}:{need}")
    else:
        yield Check("open files", OK, found, meaning)


def _accounting(facts: Facts) -> Iterator[Check]:
    name = "loss accounting"
    if facts.attempts.lost.ok:
        yield Check(name, OK, "lost samples are counted for each event", "every run can prove its completeness")
    else:
        meaning = "losses are known per CPU, not per event; count and samples are compared all the same"
        yield Check(name, WARN, f"PERF_FORMAT_LOST: {facts.attempts.lost}", meaning, "Linux 6.0 or newer")


def _idle(facts: Facts) -> Iterator[Check]:
    """A check only if the try was possible."""
    name, tried = "idle CPUs", facts.idle
    if tried is None:
        return
    found = f"of {tried.counted:,} timers that the kernel counted {tried.delivered:,} were delivered"
    if tried.delivered < tried.counted:
        meaning = (
            "while a CPU is idle (or runs a thread of process 1), this machine delivers no event and runs no program: "
            "completions of requests vanish in bursts, and recordings say how many"
        )
        yield Check(name, WARN, found, meaning, "keep the CPUs busy: docs/how-to/losses.md#what-helps")
    elif tried.idle_ns < LEAST_IDLE_NS:
        yield Check(
            name, OK, "hardly any CPU was idle during the trial", "it is not known whether events are delivered"
        )
    else:
        yield Check(name, OK, found, "completions of requests can be recorded at all times")


def _cgroups(facts: Facts) -> Iterator[Check]:
    """No check for users who may not record every task: they may not record a cgroup either."""
    name, tried = "cgroup events", facts.attempts.cgroup
    meaning = "`lo2io system-wide --cgroup`, for one container, cannot work; all else does"
    if not facts.attempts.any_task.ok:
        return
    if tried is None:
        yield Check(name, WARN, facts.cgroups.error, meaning, facts.cgroups.remedy)
    elif tried.ok:
        yield Check(name, OK, facts.cgroups.found, "one cgroup, that is one container, can be recorded: --cgroup")
    elif tried.error == errno.EINVAL:
        yield Check(name, WARN, f"{facts.cgroups.found}: {tried}", meaning, "a kernel with CONFIG_CGROUP_PERF")
    else:
        yield Check(name, WARN, f"{facts.cgroups.found}: {tried}", meaning, _more_rights(facts))


def _binding(facts: Facts) -> Check:
    name = "perf binding"
    if not facts.binding.error:
        return Check(name, OK, facts.binding.found, "events are opened through the kernel's Python binding")
    if facts.attempts.clockid.ok:
        meaning = "lo2io opens the events itself, which records the same"
        return Check(name, WARN, facts.binding.error, meaning, facts.binding.remedy)
    return Check(name, FAIL, facts.binding.error, "no other way to open events works here", facts.binding.remedy)


def _libraries(facts: Facts) -> Iterator[Check]:
    name, tool = "OTF2 library", "otf2-print"
    if facts.otf2.error:
        yield Check(name, FAIL, facts.otf2.error, "traces cannot be written", facts.otf2.remedy)
    else:
        yield Check(name, OK, facts.otf2.found, "traces can be written")
    if facts.otf2_print:
        yield Check(tool, OK, facts.otf2_print, "shows a trace as text")
    else:
        meaning = "recording does not need it; it shows a trace as text"
        yield Check(tool, WARN, "not found", meaning, "sudo apt-get install otf2-tools")


def _io_uring(facts: Facts) -> Check:
    followed, found, meaning = describe_rings(facts.rings)
    if meaning.startswith(FOLLOWED) and not _every_task(facts):
        meaning = "only the calls of rings are recorded: their requests need events of every task"
        return Check("io_uring", WARN, found, meaning, _more_rights(facts))
    remedy = (
        "" if followed else "a kernel with the tracepoints of io_uring: Linux 5.5 or newer, with CONFIG_TRACEPOINTS"
    )
    return Check("io_uring", OK if followed else WARN, found, meaning, remedy)


def _programs(facts: Facts) -> Check:
    name = "BPF programs"
    if not facts.bpf.error:
        meaning = "calls are recorded by programs in the kernel, which also tell whose file a descriptor is"
        return Check(name, OK, facts.bpf.found, meaning)
    meaning = "calls are recorded as perf samples, which costs more, and only files that /proc shows have names"
    wanting = not {"CAP_BPF", "CAP_PERFMON"} <= facts.capabilities and "CAP_SYS_ADMIN" not in facts.capabilities
    return Check(name, WARN, facts.bpf.error, meaning, _more_rights(facts) if wanting else facts.bpf.remedy)


def _layers(facts: Facts) -> Iterator[Check]:
    """A check only where programs can be loaded: layers are theirs."""
    if facts.bpf.error:
        return
    lacks = {name: f"no {_some(missing)}" for name, missing in facts.layers.items() if missing}
    lacks |= dict.fromkeys(facts.misfits, "not all of the kernel's types that it reads")
    found = ", ".join(name for name in facts.layers if name not in lacks) or "none"
    if lacks:
        untold = "; ".join(LAYERS[name].tells for name in facts.layers if name in lacks)
        remedy = f"a kernel that has what is missing ({'; '.join(f'{name}: {what}' for name, what in lacks.items())})"
        yield Check("layers", WARN, found, f"recordings do not tell {untold}", remedy)
    else:
        yield Check("layers", OK, found, "recordings tell why calls were slow: lo2io why, lo2io report")


def _stacks(facts: Facts) -> Iterator[Check]:
    """As the layers: programs in the kernel take the stacks."""
    if facts.bpf.error:
        return
    if facts.tables.error:
        meaning = "--stacks tells callers of programs with frame pointers alone"
        yield Check("stacks", WARN, facts.tables.error, meaning, facts.tables.remedy)
    else:
        yield Check("stacks", OK, facts.tables.found, "--stacks tells which functions of a program led to slow calls")


def _more_rights(facts: Facts) -> str:
    return _IN_CONTAINER if facts.root else _AS_ROOT


def _some(events: tuple[str, ...], limit: int = 3) -> str:
    more = f" and {len(events) - limit} more" if len(events) > limit else ""
    return ", ".join(events[:limit]) + more


def to_json(diagnosis: Diagnosis) -> str:
    """One object: ``schema``, ``version``, ``can_record``, ``exit_code`` and the checks."""
    return json.dumps(
        {
            "schema": "lo2io-doctor",
            "version": SCHEMA_VERSION,
            "can_record": diagnosis.can_record,
            "exit_code": diagnosis.exit_code,
            "checks": [asdict(check) for check in diagnosis.checks],
        },
        indent=2,
        ensure_ascii=False,
    )


def render(diagnosis: Diagnosis, *, terminal: bool | None = None) -> str:
    """Text for people: one or two lines for a check, and one for its remedy.

    Args:
        diagnosis: The diagnosis to show.
        terminal: True for colours; by default, whether stdout is a terminal.
    """
    from rich.console import Console  # noqa: PLC0415 - --json needs no rich
    from rich.text import Text  # noqa: PLC0415

    is_terminal = sys.stdout.isatty() if terminal is None else terminal
    buffer = io.StringIO()
    out = Console(file=buffer, force_terminal=is_terminal, no_color=not is_terminal, width=10_000)
    styles = {OK: "green", WARN: "yellow", FAIL: "bold red"}
    width = max(len(check.name) for check in diagnosis.checks)
    for check in diagnosis.checks:
        name = f"{check.name:{width}}"
        out.print(Text.assemble((f"{check.status:4}", styles[check.status]), "  ", (name, "bold"), f"  {check.found}"))
        indent = " " * (width + 8)
        out.print(Text(f"{indent}{check.meaning}", "dim"))
        if check.remedy:
            out.print(Text.assemble(indent, ("→ ", styles[check.status]), check.remedy))
    out.print(_verdict(diagnosis))
    return buffer.getvalue().rstrip("\n")


def _verdict(diagnosis: Diagnosis) -> str:
    failing = ", ".join(check.name for check in diagnosis.checks if check.status == FAIL)
    if failing:
        return f"\nlo2io record cannot work here, for this user: {failing}"
    warnings = sum(check.status == WARN for check in diagnosis.checks)
    return "\nlo2io record works here" + (f", with {warnings} reservation{'s'[: warnings > 1]}" if warnings else "")
