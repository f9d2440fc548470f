"""The doctor's judgement: from facts to checks, remedies and exit code."""

from __future__ import annotations

import dataclasses
import errno
import json
from typing import Any

import pytest

from lo2io.errors import AccessError
from lo2io.kernel.access import Attempt, Attempts
from lo2io.kernel.idle import IdleSamples
from lo2io.model import Role
from lo2io.model.layers import LAYERS
from lo2io.reports.doctor import facts, report
from lo2io.reports.doctor.facts import Answer, Facts
from lo2io.reports.doctor.rings import RingFacts

YES, NO = Attempt(0), Attempt(errno.EACCES)
ALL_WELL = Attempts(any_task=YES, own_task=YES, tracepoint=YES, own_tracepoint=YES, clockid=YES, lost=YES, cgroup=YES)
PRIVILEGED = frozenset({"CAP_BPF", "CAP_PERFMON", "CAP_IPC_LOCK", "CAP_SYS_PTRACE", "CAP_SYS_NICE"})
RINGS = [role for role in Role if role.name.startswith("RING_")]
HEALTHY = Facts(
    kernel="Linux 6.18.0 x86_64",
    root=True,
    capabilities=PRIVILEGED,
    paranoid=2,
    perf_mlock_bytes=516 << 10,
    memlock_bytes=8 << 20,
    page_bytes=4096,
    cpus=2,
    open_files=4096,
    tracefs=Answer("/sys/kernel/tracing"),
    readable=True,
    attempts=ALL_WELL,
    events=("syscalls:sys_enter_read", "syscalls:sys_exit_read", "block:block_rq_issue"),
    missing=(),
    optional=(),
    binding=Answer("/usr/lib/python3/dist-packages/perf.so"),
    otf2=Answer("3.2"),
    otf2_print="/usr/bin/otf2-print",
    rings=RingFacts(setup=YES, disabled="0", there=17),
    bpf=Answer("loaded and attached"),
    layers={"parts": (), "waits": (), "workers": ()},
    misfits=(),
    tables=Answer("unwind tables, frame pointers"),
    cgroups=Answer("/sys/fs/cgroup"),
    namespaces=Answer("the kernel's own"),
    idle=IdleSamples(120, 120, 300_000_000),
)


def judged(**changes: Any) -> report.Diagnosis:
    """The judgement on a healthy machine but for these facts."""
    return report.judge(dataclasses.replace(HEALTHY, **changes))


def tries(**changes: Attempt | None) -> Attempts:
    """All events can be opened but these."""
    return dataclasses.replace(ALL_WELL, **changes)


def test_healthy_machine() -> None:
    """No remarks, and nothing to do."""
    diagnosis = judged()
    assert {check.status for check in diagnosis.checks} == {report.OK}
    assert not any(check.remedy for check in diagnosis.checks)
    assert diagnosis.exit_code == 0


@pytest.mark.parametrize(
    ("name", "status", "remedy", "changes"),
    [
        ("kernel", "fail", "CONFIG_PERF_EVENTS", {"paranoid": None, "perf_mlock_bytes": None}),
        (
            "tracefs",
            "fail",
            "mount -t tracefs",
            {"tracefs": Answer(error="not mounted", remedy="sudo mount -t tracefs nodev /x"), "readable": False},
        ),
        ("tracefs", "fail", "remount,mode=0750", {"readable": False}),
        ("tracepoints", "fail", "CONFIG_FTRACE_SYSCALLS", {"missing": ("syscalls:sys_enter_read",)}),
        ("tracepoints", "ok", "", {"optional": ("block:block_rq_merge",)}),
        ("perf events", "warn", "--cap-add PERFMON", {"attempts": tries(any_task=NO, tracepoint=NO)}),
        ("perf events", "warn", "sudo", {"root": False, "attempts": tries(tracepoint=NO)}),
        ("perf events", "fail", "sudo", {"root": False, "attempts": Attempts(NO, NO, NO, NO, NO, NO, NO)}),
        ("perf_event_paranoid", "warn", "perf_event_paranoid=-1", {"capabilities": frozenset()}),
        ("perf_event_paranoid", "ok", "", {"capabilities": frozenset(), "paranoid": -1}),
        ("capabilities", "warn", "sudo", {"root": False, "capabilities": PRIVILEGED - {"CAP_SYS_NICE"}}),
        ("capabilities", "ok", "", {"capabilities": PRIVILEGED - {"CAP_PERFMON"} | {"CAP_SYS_ADMIN"}}),
        ("locked memory", "ok", "", {"capabilities": frozenset()}),
        ("locked memory", "warn", "--memlock=", {"capabilities": frozenset(), "memlock_bytes": 64 << 10}),
        (
            "locked memory",
            "fail",
            "--memlock=",
            {"capabilities": frozenset(), "memlock_bytes": 4096, "perf_mlock_bytes": 4096},
        ),
        ("open files", "fail", "--nofile=", {"root": False, "open_files": 64}),
        ("open files", "ok", "", {"root": False, "open_files": None}),
        ("idle CPUs", "warn", "losses.md#what-helps", {"idle": IdleSamples(120, 3, 0)}),
        ("idle CPUs", "ok", "", {"idle": IdleSamples(120, 120, 10_000_000)}),
        ("loss accounting", "warn", "Linux 6.0", {"attempts": tries(lost=Attempt(errno.EINVAL))}),
        (
            "cgroup events",
            "warn",
            "mount -t cgroup2",
            {"cgroups": Answer(error="none", remedy="sudo mount -t cgroup2 none /x"), "attempts": tries(cgroup=None)},
        ),
        ("cgroup events", "warn", "CONFIG_CGROUP_PERF", {"attempts": tries(cgroup=Attempt(errno.EINVAL))}),
        ("cgroup events", "warn", "--cap-add PERFMON", {"attempts": tries(cgroup=NO)}),
        ("perf binding", "warn", "get it", {"binding": Answer(error="not installed", remedy="get it")}),
        (
            "perf binding",
            "fail",
            "get it",
            {"binding": Answer(error="not installed", remedy="get it"), "attempts": tries(clockid=NO)},
        ),
        ("OTF2 library", "fail", "pip", {"otf2": Answer(error="ImportError: no", remedy="pip install otf2")}),
        ("otf2-print", "warn", "otf2-tools", {"otf2_print": None}),
        ("io_uring", "warn", "Linux 5.5", {"rings": RingFacts(YES, "", lacking=frozenset(RINGS))}),
        ("io_uring", "warn", "sudo", {"root": False, "attempts": tries(any_task=NO)}),
        ("io_uring", "ok", "", {"rings": RingFacts(Attempt(errno.ENOSYS), lacking=frozenset(RINGS))}),
        ("namespaces", "fail", "use the host", {"namespaces": Answer(error="a container", remedy="use the host")}),
        ("BPF programs", "warn", "get it", {"bpf": Answer(error="no libbpf", remedy="get it")}),
        (
            "BPF programs",
            "warn",
            "sudo",
            {"root": False, "capabilities": PRIVILEGED - {"CAP_BPF"}, "bpf": Answer(error="refused", remedy="get it")},
        ),
        ("stacks", "warn", "a newer kernel", {"tables": Answer(error="too old", remedy="a newer kernel")}),
        ("layers", "warn", "waits: no sched:sched_waking", {"layers": {"parts": (), "waits": ("sched:sched_waking",)}}),
        ("layers", "warn", "workers: not all of the kernel's types", {"misfits": ("workers",)}),
    ],
)
def test_each_lack(name: str, status: str, remedy: str, changes: dict[str, Any]) -> None:
    """Each lack is found by the one check that is about it, with its remedy; only failures change the exit code."""
    diagnosis = judged(**changes)
    check = next(check for check in diagnosis.checks if check.name == name)
    assert (check.status, remedy in check.remedy) == (status, True)
    assert bool(check.remedy) == bool(remedy)
    assert diagnosis.exit_code == (3 if any(c.status == "fail" for c in diagnosis.checks) else 0)


def test_layers_that_lack_something() -> None:
    """They are not among those found, and the meaning is what recordings do not tell."""
    diagnosis = judged(
        layers={"parts": (), "waits": ("sched:sched_waking",), "workers": (), "journal": ()}, misfits=("workers",)
    )
    check = next(check for check in diagnosis.checks if check.name == "layers")
    assert check.found == "parts, journal"
    assert check.meaning == f"recordings do not tell {LAYERS['waits'].tells}; {LAYERS['workers'].tells}"


@pytest.mark.parametrize(("readable", "tried"), [(7, ["parts", "workers"]), (None, [])])
def test_layers_are_tried_in_the_kernel(
    readable: int | None, tried: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A layer without a lack is a misfit if the kernel's answer lacks it. Without tracefs none is tried."""
    asked = []

    def answers(_cpu: int, _number: int | None, layers: list[str]) -> tuple[str, ...]:
        asked.append(layers)
        return tuple(name for name in layers if name != "workers")

    monkeypatch.setattr(facts, "try_bpf", answers)
    answer, misfits = facts._ask_bpf(0, readable, {"parts": (), "waits": ("sched:sched_waking",), "workers": ()})
    assert (asked, misfits) == ([tried], ("workers",) if tried else ())
    assert answer.found == ("loaded and attached" if tried else "loaded")


def test_layers_of_programs_that_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """The refusal is the answer; nothing is said about layers."""

    def refuses(*_: object) -> tuple[str, ...]:
        raise AccessError("load", "Operation not permitted", "sudo")

    monkeypatch.setattr(facts, "try_bpf", refuses)
    answer, misfits = facts._ask_bpf(0, 7, {"parts": ()})
    assert (answer.remedy, misfits) == ("sudo", ())


def test_json_is_versioned() -> None:
    """Scripts read the schema's version, the verdict and every check."""
    diagnosis = judged(otf2=Answer(error="ImportError: no", remedy="pip install otf2"))
    loaded = json.loads(report.to_json(diagnosis))
    assert (loaded["schema"], loaded["version"]) == ("lo2io-doctor", 1)
    assert (loaded["can_record"], loaded["exit_code"]) == (False, 3)
    assert [check["name"] for check in loaded["checks"]] == [check.name for check in diagnosis.checks]
    assert set(loaded["checks"][0]) == {"name", "status", "found", "meaning", "remedy"}


def test_text_is_plain_when_piped() -> None:
    """No escape sequences for those who read it through a pipe; each remedy stands whole on a line of its own."""
    diagnosis = judged(otf2_print=None, otf2=Answer(error="ImportError: no", remedy="pip install otf2"))
    lines = report.render(diagnosis, terminal=False).splitlines()
    assert not any("\x1b" in line for line in lines)
    assert "→ pip install otf2" in [line.strip() for line in lines]
    assert lines[-1] == "lo2io record cannot work here, for this user: OTF2 library"
    assert "\x1b" in report.render(diagnosis, terminal=True)


def test_reservations_are_counted() -> None:
    """The last line says whether recording works, and with how many warnings."""
    assert report.render(judged(), terminal=False).splitlines()[-1] == "lo2io record works here"
    text = report.render(judged(otf2_print=None), terminal=False)
    assert text.splitlines()[-1] == "lo2io record works here, with 1 reservation"


def test_cgroups_are_no_matter_to_whom_others_are_closed() -> None:
    """A user who may not record every task is told that once, and not that cgroups are closed as well."""
    names = [check.name for check in judged(attempts=tries(any_task=NO, tracepoint=NO, cgroup=NO)).checks]
    assert "cgroup events" not in names
    assert "cgroup events" in [check.name for check in judged().checks]


@pytest.mark.parametrize(
    ("missing", "words"),
    [(("a",), "not a"), (("a", "b", "c"), "not a, b, c"), (("a", "b", "c", "d", "e"), "not a, b, c and 2 more")],
)
def test_three_missing_events_are_named(missing: tuple[str, ...], words: str) -> None:
    """The others are counted."""
    found = next(check.found for check in judged(missing=missing).checks if check.name == "tracepoints")
    assert found.endswith(words)
