"""Recording with few rights on the running kernel: smaller buffers, or only one's own tasks."""

from __future__ import annotations

import collections
import subprocess
from typing import TYPE_CHECKING

import pytest
from build.rawspool import EVENTS, NR_CALLS, WORK, ids_of, iter_samples, work

from lo2io.kernel import sysfs
from lo2io.spool.reader import SpoolReader

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from lo2io.capture.recording import RecordOptions

pytestmark = [
    pytest.mark.alone,
    pytest.mark.requires("root", "tracefs", "events", "syscalls:sys_enter_pwrite64"),
    pytest.mark.usefixtures("public"),
]


@pytest.mark.requires("setpriv", "prlimit")
def test_rings_are_halved_until_the_kernel_grants_them(
    options: RecordOptions, recorder: Callable[..., list[str]]
) -> None:
    """Without CAP_IPC_LOCK and with little locked memory, buffers become smaller; a notice and the spool say so."""
    capabilities = "+perfmon,+dac_read_search,+dac_override"
    prefix = (
        "prlimit", f"--memlock={1 << 20}", "setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups",
        "--bounding-set", "-all,+perfmon,+dac_read_search,+dac_override",
        "--inh-caps", capabilities, "--ambient-caps", capabilities,
    )  # fmt: skip
    line = recorder(
        prefix=prefix, spool=str(options.spool), events=EVENTS, opener=options.opener, command=work(),
        ring_bytes=16 << 20,
    )  # fmt: skip
    result = subprocess.run(line, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    meta = SpoolReader(options.spool).meta
    assert meta.ring_bytes_wanted == 16 << 20
    nr_cpus = len(sysfs.read_online_cpus())
    assert (64 << 10) <= meta.ring_bytes <= (1 << 20) // nr_cpus + (516 << 10)
    assert "KiB per CPU instead of 16384" in result.stderr
    assert sum(len(list(iter_samples(paths))) for paths, _ in SpoolReader(options.spool).streams()) >= 2 * NR_CALLS


@pytest.mark.requires("setpriv")
def test_users_without_rights_record_their_own_tasks(
    opener: str, recorder: Callable[..., list[str]], tmp_path: Path
) -> None:
    """Refused system-wide, system calls of the command and its children are recorded task by task, and no others."""
    capabilities = "+dac_read_search,+dac_override"  # tracefs, the environment; no right of perf's
    prefix = (
        "setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups", "--bounding-set", f"-all,{capabilities}",
        "--inh-caps", capabilities, "--ambient-caps", capabilities,
    )  # fmt: skip
    code = f"import os\npid = os.fork()\n{WORK}\nif pid: os.waitpid(pid, 0)"
    spool = tmp_path / "spool"
    events = (*EVENTS, "block:block_rq_issue")
    line = recorder(
        prefix=prefix,
        spool=str(spool),
        events=events,
        opener=None if opener == "native" else opener,
        command=work(code),
    )
    result = subprocess.run(line, capture_output=True, text=True, check=False)
    if opener == "python-perf":
        assert result.returncode == 3
        assert "perf_event_paranoid is" in result.stderr
        assert "CAP_PERFMON" in result.stderr
        assert not spool.exists()
        return
    assert result.returncode == 0, result.stderr
    assert "leaves out block:block_rq_issue" in result.stderr
    reader = SpoolReader(spool)
    assert (reader.meta.scope, reader.meta.opener, reader.meta.events) == ("inherit", "native", EVENTS)
    samples = [sample for paths, _ in reader.streams() for sample in iter_samples(paths)]
    assert collections.Counter(event for _, event, _ in samples) == dict.fromkeys(ids_of(reader), 2 * NR_CALLS)
    assert [sum(counts.counts) for counts in reader.meta.counts] == [2 * NR_CALLS] * 2
