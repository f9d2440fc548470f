"""If the kernel refuses programs, all is recorded without them, and one line says why. Insisting is an error.

Each refusal is made outside of lo2io: capabilities are taken away, files hidden in a mount namespace, or bpf(2) answers
as another kernel or one in lockdown would.
"""

from __future__ import annotations

import errno
import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from build.rawspool import NR_CALLS, work
from workloads.served import lo2io

from lo2io.bpf import loader
from lo2io.spool.format import META_NAME, parse_meta
from lo2io.trace.reader import open_trace

if TYPE_CHECKING:
    from lo2io.model import SpoolMeta

pytestmark = pytest.mark.requires("root", "tracefs", "events", "syscalls:sys_enter_pwrite64")

LO2IO = Path(sys.executable).parent / "lo2io"
ANSWERING = """
import ctypes, os, struct, sys
number, command, error = int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
LOAD, EQUAL, RETURN = 0x20, 0x15, 0x06
allow, refuse = 0x7FFF0000, 0x00050000 | error
steps = [(LOAD, 0, 0, 0), (EQUAL, 0, 3 if command >= 0 else 1, number)]
if command >= 0:
    steps += [(LOAD, 0, 0, 16), (EQUAL, 0, 1, command)]
steps += [(RETURN, 0, 0, refuse), (RETURN, 0, 0, allow)]
code = b"".join(struct.pack("HBBI", *step) for step in steps)
class Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("code", ctypes.c_char_p)]
libc = ctypes.CDLL(None, use_errno=True)
if libc.prctl(22, 2, ctypes.byref(Program(len(steps), code)), 0, 0):
    sys.exit(f"seccomp: {os.strerror(ctypes.get_errno())}")
os.execv(sys.argv[4], sys.argv[4:])
"""
"""Runs a program for which bpf(2), or one of its commands, fails: seccomp(2), include/uapi/linux/filter.h."""
BPF_NUMBER = {"x86_64": 321}
PROG_LOAD, RAW_TRACEPOINT_OPEN, EVERY = 5, 17, -1
LIBRARIES = "/usr/lib/x86_64-linux-gnu"


def answering(command: int, error: int) -> tuple[str, ...]:
    """A prefix of a command for which bpf(2) answers so."""
    machine = subprocess.run(["uname", "-m"], capture_output=True, text=True, check=True).stdout.strip()
    if machine not in BPF_NUMBER:
        pytest.skip(f"the number of bpf(2) on {machine} is not known here")
    return (sys.executable, "-S", "-c", ANSWERING, str(BPF_NUMBER[machine]), str(command), str(error))


def without(capability: str) -> tuple[str, ...]:
    """A prefix: root without a capability, and without the one that includes it."""
    names = f"-{capability},-sys_admin"
    return ("setpriv", f"--bounding-set={names}", f"--inh-caps={names}")


def hiding(path: str) -> tuple[str, ...]:
    """A prefix that puts an empty file, or folder, in place of a path."""
    script = 'if [ -d "$0" ]; then mount -t tmpfs none "$0"; else mount --bind /dev/null "$0"; fi && exec "$@"'
    return ("unshare", "--mount", "sh", "-c", script, path)


REFUSALS = {
    "no CAP_BPF": (lambda: without("bpf"), "Operation not permitted", "CAP_BPF"),
    "no types": (lambda: hiding("/sys/kernel/btf"), "does not describe its types", "CONFIG_DEBUG_INFO_BTF"),
    "no libbpf": (lambda: hiding(str(Path(f"{LIBRARIES}/libbpf.so.1").resolve())), "libbpf", "install libbpf"),
    "no object": (lambda: hiding(str(loader.OBJECT.parent)), "built without them", "install clang"),
    "locked down": (lambda: answering(PROG_LOAD, errno.EPERM), "Operation not permitted", ""),
    "no bpf(2)": (lambda: answering(EVERY, errno.ENOSYS), "Function not implemented", ""),
    "an old verifier": (lambda: answering(PROG_LOAD, errno.EINVAL), "Invalid argument", "Linux 5.17 or later"),
    "not to be attached": (lambda: answering(RAW_TRACEPOINT_OPEN, errno.EINVAL), "Invalid argument", "Linux 5.17"),
}
"""What refuses → how that is made, what the answer has, and what the remedy names."""


@pytest.fixture(params=REFUSALS)
def refusal(request: pytest.FixtureRequest) -> tuple[tuple[str, ...], str, str]:
    """Prefix of a command, answer, remedy."""
    make, answer, remedy = REFUSALS[request.param]
    return make(), answer, remedy


def run(prefix: tuple[str, ...], trace: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """Record the known number of calls."""
    events = ("-e", "pwrite64,close,descriptor")
    command = [str(LO2IO), "record", *events, "-o", str(trace), "--keep-spool", *options, "--", *work()]
    return subprocess.run([*prefix, *command], capture_output=True, text=True, check=False)


def read_meta(trace: Path) -> SpoolMeta:
    """Of the spool that was kept."""
    return parse_meta((trace / "spool" / META_NAME).read_bytes())


def test_the_next_rung_records_all(refusal: tuple[tuple[str, ...], str, str], tmp_path: Path) -> None:
    """One line has the refusal and the least that helps; nothing in the spool comes from programs."""
    prefix, answer, remedy = refusal
    done = run(prefix, tmp_path / "T")
    assert done.returncode == 0, done.stderr
    meta = read_meta(tmp_path / "T")
    assert (meta.backend, meta.kernel_facts, meta.scope) == ("perf", False, "system")
    assert not list((tmp_path / "T/spool").glob("*.calls"))
    (line,) = [text for text in meta.notices if "/proc" in text]
    assert line.startswith("calls are recorded as perf samples, and files are named by /proc: ")
    assert answer in line
    assert remedy in line
    assert f"lo2io: {line}\n" in done.stderr
    calls = open_trace(tmp_path / "T").operations.column("call").to_pylist()
    assert calls.count("pwrite64") == NR_CALLS


def test_insisting_is_refused(refusal: tuple[tuple[str, ...], str, str], tmp_path: Path) -> None:
    """Exit code 3, the same answer, nothing recorded and nothing left."""
    prefix, answer, remedy = refusal
    for options in (("--backend", "bpf"), ("--backend", "perf", "--names", "kernel")):
        done = run(prefix, tmp_path / "T", *options)
        assert done.returncode == 3, done.stderr
        assert answer in done.stderr
        assert remedy in done.stderr
        assert not (tmp_path / "T").exists()


def test_samples_without_programs_name_no_others(tmp_path: Path) -> None:
    """With --backend perf, only the names have another source, and the line says only that."""
    done = run(without("bpf"), tmp_path / "T", "--backend", "perf")
    assert done.returncode == 0, done.stderr
    meta = read_meta(tmp_path / "T")
    assert (meta.backend, meta.kernel_facts) == ("perf", False)
    (line,) = [text for text in meta.notices if "/proc" in text]
    assert line.startswith("files are named by /proc: ")


def test_who_may_record_own_tasks_only_is_told_once(public: Path) -> None:
    """Without CAP_PERFMON, neither programs nor the machine's events are allowed: the one line is about the tasks."""
    if not hasattr(loader, "OBJECT"):
        pytest.skip("lo2io was built without programs")
    done = run(without("perfmon"), public / "T")
    if done.returncode == 3:
        pytest.skip(f"not even own tasks may be recorded here: {done.stderr}")
    meta = read_meta(public / "T")
    assert (meta.scope, meta.backend, meta.kernel_facts) == ("inherit", "perf", False)
    assert [text for text in meta.notices if "perf samples" in text or "/proc" in text] == []
    assert [text for text in meta.notices if text.startswith("events are recorded per task, not per CPU")] != []


@pytest.mark.alone  # the kernel counts locked memory by user
@pytest.mark.requires("setpriv")
def test_three_capabilities_are_all_it_takes(public: Path) -> None:
    """CAP_BPF, CAP_PERFMON, and CAP_DAC_READ_SEARCH for tracefs suffice for programs; the command gets none of them."""
    lent = "-all,+bpf,+perfmon,+dac_read_search"
    user = ("--reuid", "65534", "--regid", "65534", "--clear-groups")
    prefix = ("setpriv", *user, f"--inh-caps={lent}", f"--ambient-caps={lent}")
    command = [str(LO2IO), "record", "-o", str(public / "T"), "--keep-spool", "--"]
    looking = ["grep", "-E", "Cap(Prm|Eff|Amb)", "/proc/self/status"]
    done = subprocess.run([*prefix, *command, *looking], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    meta = read_meta(public / "T")
    assert (meta.scope, meta.backend, meta.kernel_facts) == ("system", "bpf", True)
    assert [line.split()[1] for line in done.stdout.splitlines()] == ["0" * 16] * 3


def test_nothing_is_said_where_perf_was_asked_for(tmp_path: Path) -> None:
    """--backend perf needs no programs, so their refusal is not reported."""
    done = run(without("bpf"), tmp_path / "T", "--backend", "perf", "--names", "proc")
    assert done.returncode == 0, done.stderr
    assert read_meta(tmp_path / "T").notices == ()


@pytest.mark.requires("setpriv")
def test_the_doctor_says_the_same(refusal: tuple[tuple[str, ...], str, str]) -> None:
    """The doctor finds the same as a recording meets: recording works, with a remark."""
    prefix, answer, remedy = refusal
    done = subprocess.run([*prefix, str(LO2IO), "doctor", "--json"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (check,) = [check for check in json.loads(done.stdout)["checks"] if check["name"] == "BPF programs"]
    assert check["status"] == "warn"
    assert answer in check["found"]
    assert check["remedy"]
    assert remedy in check["remedy"] or prefix[0] == "setpriv"


def test_where_nothing_refuses_the_doctor_is_content() -> None:
    """The refusals of the tests above work here."""
    done = lo2io("doctor", "--json", check=True)
    (check,) = [check for check in json.loads(done.stdout)["checks"] if check["name"] == "BPF programs"]
    assert (check["status"], check["found"]) == ("ok", "loaded and attached")
