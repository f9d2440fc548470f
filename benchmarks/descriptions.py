"""The description of a spool that was never recorded, for benchmarks of the stages after the engine."""

from __future__ import annotations

from lo2io.model import SpoolMeta

META = SpoolMeta(
    lo2io_version="0",
    complete=True,
    mode="process",
    command=("bench",),
    roots=(1,),
    recorder_pid=0,
    hostname="host",
    kernel="6.18",
    machine="x86_64",
    cpus=(),
    events=(),
    formats=(),
    header_page="",
    clock="perf",
    syncs=(),
    start_ns=0,
    stop_ns=None,
    ring_bytes=0,
    ring_bytes_wanted=0,
    opener="native",
    scope="system",
    counts=(),
    mounts=(),
    devices=(),
)
