"""Recording processes that run already, on the running kernel."""

from __future__ import annotations

import collections
import dataclasses
import os
import subprocess
import threading
from typing import TYPE_CHECKING

import pytest
from build.rawspool import fd_facts, ids_of, iter_samples, task_facts, work
from workloads.record import has_begun

from lo2io.capture.recording import RecordOptions, record
from lo2io.kernel import procfs
from lo2io.spool.facts import TASK_SELECT
from lo2io.spool.reader import SpoolReader

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.requires("root", "tracefs", "events", "syscalls:sys_enter_pwrite64")


def test_attached_processes_are_recorded_with_all_threads_until_they_end(options: RecordOptions) -> None:
    """Every thread of each PID gets a TASK fact that selects it at once, and the open files are sighted."""
    code = """
import os, sys, threading
def run():
    line = os.read(0, 1)
    fd = os.open("/dev/null", os.O_WRONLY)
    for _ in range(50): os.pwrite(fd, b"x", 0)
threads = [threading.Thread(target=run) for _ in range(3)]
for t in threads: t.start()
print("ready", flush=True)
for t in threads: t.join()
"""
    processes = [subprocess.Popen(work(code), stdin=subprocess.PIPE, stdout=subprocess.PIPE) for _ in range(2)]
    for process in processes:
        assert process.stdout is not None
        process.stdout.readline()
    threads = {(process.pid, tid) for process in processes for tid in procfs.iter_tids(process.pid)}
    assert len(threads) == 8

    def feed() -> None:
        wait_for_begin(options.spool)
        for process in processes:
            process.communicate(b"abc")

    feeder = threading.Thread(target=feed)
    feeder.start()
    result = record(dataclasses.replace(options, command=(), pids=tuple(process.pid for process in processes)))
    feeder.join()
    assert result.exit_code == 0
    assert result.meta.exit_code is None
    spool = SpoolReader(options.spool)
    assert {(pid, tid, flags) for pid, tid, _, flags in task_facts(spool)} == {(*each, TASK_SELECT) for each in threads}
    enter = ids_of(spool)[0]
    calls = collections.Counter(
        tid for paths, _ in spool.streams() for _, event, tid in iter_samples(paths) if event == enter
    )
    leaders = {process.pid for process in processes}
    assert {tid: calls[tid] for _, tid in threads} == {tid: 0 if tid in leaders else 50 for _, tid in threads}
    first = {(fields[5], fields[6]) for fields, _ in fd_facts(spool)}
    assert {(pid, fd) for pid in leaders for fd in (0, 1, 2)} <= first


def wait_for_begin(spool: Path) -> None:
    """Wait until recording has begun."""
    for _ in range(10_000):
        if has_begun(spool):
            return
        threading.Event().wait(0.005)
    raise AssertionError(spool)


def test_interrupted_attaching_leaves_the_process_unharmed(options: RecordOptions) -> None:
    """SIGINT ends the recording, not the process, and the spool is complete."""
    process = subprocess.Popen(("cat",), stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    # A process of its own, for a thread of this one would take the signal itself.
    begun = f"grep -qs '\"syncs\": \\[{{' {options.spool}/spool.json"
    script = f"until {begun}; do sleep 0.01; done; kill -INT {os.getpid()}"
    killer = subprocess.Popen(("sh", "-c", script))
    try:
        result = record(dataclasses.replace(options, command=(), pids=(process.pid,)))
        assert killer.wait() == 0
        assert result.meta.complete
        assert process.poll() is None
    finally:
        assert process.communicate(b"still there")[0] == b"still there"
