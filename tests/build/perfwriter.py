"""Spools written by hand: a few readable lines in, a directory for `lo2io convert` out.

Nothing is shared with the capture stage, so that a wrong layout there cannot hide. Framing of records:
``include/uapi/linux/perf_event.h``. Padding of raw samples: ``perf_prepare_sample`` in ``kernel/events/core.c`` (the
size of the raw data includes its padding). Layouts of the tracepoints: :mod:`perfformats`.

>>> builder = SpoolBuilder(folder / "spool").fact_task(0, 10, 10, comm=b"cat")
>>> path = builder.call(5, 0, 10, "read", 512, fd=3, count=512).write()
>>> builder.samples["syscalls:sys_exit_read"]  # on each CPU
[1, 0]
"""

from __future__ import annotations

import dataclasses
import struct
from typing import TYPE_CHECKING

from build.perfformats import (
    HEADER_PAGE,
    Layout,
    block_layouts,
    cgroup_layout,
    enter_layout,
    exit_layout,
    ring_layouts,
    switch_layout,
)
from lo2io.catalog.catalog import load_catalog
from lo2io.model import ClockSync, Cpu, EventCounts, KernelStack, SpoolMeta
from lo2io.spool.facts import pack_command, pack_fd, pack_rank, pack_ring, pack_task
from lo2io.spool.format import FACTS_NAME, META_NAME, dump_meta, ring_name

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

MMAP, COMM, EXIT, THROTTLE, UNTHROTTLE, FORK, SAMPLE, LOST = 1, 3, 4, 5, 6, 7, 9, 2
MISC_COMM_EXEC = 1 << 13
FIRST_ID = 700
"""Ids of tracepoints, which the kernel chooses."""
DEFAULT_CALLS = (
    "read",
    "write",
    "pread64",
    "pwrite64",
    "preadv2",
    "writev",
    "openat",
    "openat2",
    "creat",
    "socket",
    "memfd_create",
    "close",
    "close_range",
    "dup",
    "dup2",
    "dup3",
    "fcntl",
    "ioctl",
    "lseek",
    "fsync",
    "sync",
    "ftruncate",
    "newfstat",
    "copy_file_range",
    "sendfile64",
    "clone",
    "clone3",
    "vfork",
    "unshare",
    "execve",
)
RING_CALLS = (
    "io_uring_setup",
    "io_uring_enter",
    "io_uring_register",
    "io_setup",
    "io_submit",
    "io_getevents",
    "io_destroy",
)
"""Also recorded if ``rings`` names an era."""
_RING_NAMES = {layout.name.removeprefix("io_uring:io_uring_"): set(layout.names) for layout in ring_layouts()}


def frame(kind: int, body: bytes, misc: int = 0) -> bytes:
    """One record: header and body."""
    return struct.pack("<IHH", kind, misc, 8 + len(body)) + body


_DEFAULT_EVENTS = frozenset(load_catalog().select(()).events)
"""A spool lacks these on purpose, unless it says that its kernel does: all kernels here have them."""


class SpoolBuilder:
    """Collects records in the order of the calls; :meth:`write` makes the spool.

    Each record method takes the time first and the CPU second. Facts take a time on the facts' clock
    (``CLOCK_MONOTONIC``), which is the spool's minus ``shift_ns``. The clock readings may be off by ``error_ns``.
    """

    def __init__(
        self,
        path: Path,
        cpus: int = 2,
        *,
        mode: str = "system",
        era: str = "6.18",
        rings: str | None = None,
        sample_rate: int = 1,
        calls: Sequence[str] = DEFAULT_CALLS,
        recorder_pid: int = 999_999,
        roots: tuple[int, ...] = (),
        start_ns: int = 0,
        stop_ns: int | None = 10**9,
        shift_ns: int = 0,
        error_ns: int = 0,
        layers: tuple[str, ...] = (),
        kernel_stacks: tuple[KernelStack, ...] = (),
    ) -> None:
        self.path = path
        self.rings: list[list[bytes]] = [[] for _ in range(cpus)]
        self.facts: list[bytes] = []
        self.layouts: dict[str, Layout] = {}
        for call in (*calls, *(RING_CALLS if rings else ())):
            for layout in (enter_layout(call, era), exit_layout(call)):
                self.layouts[layout.name] = layout
        self.layouts.update({layout.name: layout for layout in (*block_layouts(era), cgroup_layout(), switch_layout())})
        self.layouts.update({layout.name: layout for layout in (ring_layouts(rings) if rings else ())})
        self.ids = {name: FIRST_ID + 3 * index for index, name in enumerate(self.layouts)}
        self.samples = {name: [0] * cpus for name in self.layouts}
        self.lost_counts: dict[str, list[int]] = {}
        self.vanished_counts: dict[str, list[int]] = {}
        self._meta = {
            "mode": mode,
            "layers": layers,
            "kernel_stacks": kernel_stacks,
            "roots": roots,
            "recorder_pid": recorder_pid,
            "start_ns": start_ns,
            "sample_rate": sample_rate,
        }
        self._stop_ns = stop_ns
        self._clock = (shift_ns, error_ns)

    # -- system calls

    def enter(self, t: int, cpu: int, tid: int, call: str, **args: int | bytes) -> SpoolBuilder:
        """A ``sys_enter``; arguments have the kernel's names, absent ones are 0."""
        return self.event(t, cpu, tid, f"syscalls:sys_enter_{call}", **args)

    def exit(self, t: int, cpu: int, tid: int, call: str, ret: int = 0) -> SpoolBuilder:
        """A ``sys_exit``."""
        return self.event(t, cpu, tid, f"syscalls:sys_exit_{call}", ret=ret)

    def call(self, t: int, cpu: int, tid: int, call: str, ret: int = 0, **args: int | bytes) -> SpoolBuilder:
        """Entry at ``t`` and exit at ``t + 1``, on one CPU."""
        return self.enter(t, cpu, tid, call, **args).exit(t + 1, cpu, tid, call, ret)

    # -- tasks

    def fork(self, t: int, cpu: int, pid: int, tid: int, ppid: int, ptid: int) -> SpoolBuilder:  # noqa: PLR0917 - perf's order
        """``PERF_RECORD_FORK``: ``ptid`` made the thread ``tid`` of ``pid``."""
        return self.raw(cpu, frame(FORK, struct.pack("<IIIIQQ", pid, ppid, tid, ptid, t, t)))

    def task_exit(self, t: int, cpu: int, pid: int, tid: int) -> SpoolBuilder:
        """``PERF_RECORD_EXIT``."""
        return self.raw(cpu, frame(EXIT, struct.pack("<IIIIQQ", pid, 1, tid, 1, t, t)))

    def comm(self, t: int, cpu: int, pid: int, tid: int, comm: bytes, *, is_exec: bool = False) -> SpoolBuilder:
        """``PERF_RECORD_COMM``, of an exec or of a new name."""
        text = comm + bytes(8 - len(comm) % 8)
        body = struct.pack("<II", pid, tid) + text + struct.pack("<Q", t)
        return self.raw(cpu, frame(COMM, body, MISC_COMM_EXEC if is_exec else 0))

    def mapping(self, t: int, cpu: int, pid: int, tid: int, *, address: int, name: bytes) -> SpoolBuilder:
        """``PERF_RECORD_MMAP``, of executable memory."""
        body = struct.pack("<IIQQQ", pid, tid, address, 4096, 0) + name + bytes(8 - len(name) % 8)
        return self.raw(cpu, frame(MMAP, body + struct.pack("<Q", t)))

    def attach(self, t: int, cpu: int, tid: int, path: bytes, hierarchy: int = 0) -> SpoolBuilder:
        """``cgroup_attach_task``: the process (or thread) ``tid`` was moved."""
        return self.event(t, cpu, 2, "cgroup:cgroup_attach_task", dst_root=hierarchy, pid=tid, dst_path=path)

    def switch(self, t: int, cpu: int, prev: int, following: int, state: int = 0) -> SpoolBuilder:
        """``sched_switch``: the CPU leaves ``prev`` for another thread; 0 is the idle thread.

        The state is the kernel's.
        """
        return self.event(t, cpu, prev, "sched:sched_switch", prev_pid=prev, prev_state=state, next_pid=following)

    # -- what went wrong

    def lost(self, t: int, cpu: int, count: int) -> SpoolBuilder:
        """``PERF_RECORD_LOST``."""
        return self.raw(cpu, frame(LOST, struct.pack("<QQQ", 1, count, t)))

    def throttle(self, t: int, cpu: int, *, end: bool = False) -> SpoolBuilder:
        """``PERF_RECORD_THROTTLE``, or the end of it."""
        return self.raw(cpu, frame(UNTHROTTLE if end else THROTTLE, struct.pack("<QQQQ", t, 1, 1, t)))

    def undecodable(self, t: int, cpu: int, tid: int, common_type: int = 9) -> SpoolBuilder:
        """A sample whose type no event of the spool has."""
        return self.raw(cpu, self._sample(t, struct.pack("<HBBi8x", common_type, 0, 0, tid)))

    def raw(self, cpu: int, data: bytes) -> SpoolBuilder:
        """Any bytes."""
        self.rings[cpu].append(data)
        return self

    def truncate(self, cpu: int, size: int) -> SpoolBuilder:
        """Cut off the last ``size`` bytes of a buffer's file."""
        whole = b"".join(self.rings[cpu])
        self.rings[cpu] = [whole[: len(whole) - size]]
        return self

    # -- block

    def block(self, t: int, cpu: int, tid: int, event: str, **fields: int | bytes) -> SpoolBuilder:
        """An event of ``block:``: ``block(5, 0, 10, "rq_insert", dev=…, sector=…, nr_sector=…, rwbs=b"W")``."""
        name = f"block:block_{event}"
        if "bytes" in self.layouts[name].names and "bytes" not in fields:
            fields["bytes"] = int(fields.get("nr_sector", 0)) * 512
        return self.event(t, cpu, tid, name, **fields)

    def ring(self, t: int, cpu: int, tid: int, event: str, **fields: int) -> SpoolBuilder:
        """An event of ``io_uring:`` by the names of 6.18: ``ring(5, 0, 10, "file_get", ctx=…, req=…, fd=3)``.

        Fields and events that the era's kernel lacks are left out.
        """
        older = {"submit_req": "submit_sqe"}
        name = next((n for n in (event, older.get(event)) if f"io_uring:io_uring_{n}" in self.layouts), None)
        if name is None:
            return self
        name = f"io_uring:io_uring_{name}"
        has = self.layouts[name].names
        unknown = fields.keys() - has - _RING_NAMES[event]
        if unknown:
            raise KeyError(f"{event} has no {', '.join(sorted(unknown))}")
        return self.event(t, cpu, tid, name, **{key: value for key, value in fields.items() if key in has})

    def event(self, t: int, cpu: int, tid: int, name: str, **fields: int | bytes) -> SpoolBuilder:
        """A sample of any event of the spool."""
        self.samples[name][cpu] += 1
        raw = self.layouts[name].pack(self.ids[name], tid, fields)
        return self.raw(cpu, self._sample(t, raw))

    @staticmethod
    def _sample(t: int, raw: bytes) -> bytes:
        raw += bytes(-(4 + len(raw)) % 8)
        return frame(SAMPLE, struct.pack("<QI", t, len(raw)) + raw)

    # -- facts

    def fact_task(
        self,
        t: int,
        pid: int,
        tid: int,
        *,
        begin: int | None = None,
        ppid: int = 1,
        comm: bytes = b"",
        flags: int = 0,
        cgroup: tuple[int, bytes] | None = None,
    ) -> SpoolBuilder:
        """``/proc``'s facts about a thread; ``flags=1`` selects it, ``flags=3`` from its exec on."""
        self.facts.append(
            pack_task(
                begin_ns=t if begin is None else begin,
                end_ns=t,
                pid=pid,
                tid=tid,
                ppid=ppid,
                comm=comm,
                flags=flags,
                cgroup=cgroup,
            )
        )
        return self

    def fact_command(
        self, t: int, pid: int, command: bytes, *, begin: int | None = None, cut: bool = False
    ) -> SpoolBuilder:
        """The content of ``/proc/PID/cmdline``."""
        begin = t if begin is None else begin
        self.facts.append(pack_command(begin_ns=begin, end_ns=t, pid=pid, command=command, cut=cut))
        return self

    def fact_rank(self, t: int, pid: int, rank: int, *, begin: int | None = None) -> SpoolBuilder:
        """The rank that ``/proc/PID/environ`` tells."""
        self.facts.append(pack_rank(begin_ns=t if begin is None else begin, end_ns=t, pid=pid, rank=rank))
        return self

    def fact_fd(
        self,
        t: int,
        pid: int,
        fd: int,
        path: bytes,
        *,
        begin: int | None = None,
        inode: int = 1,
        mode: int = 0o100644,
        position: int | None = None,
        open_flags: int | None = 0,
    ) -> SpoolBuilder:
        """``/proc``'s facts about a descriptor."""
        self.facts.append(
            pack_fd(
                begin_ns=t if begin is None else begin,
                end_ns=t,
                pid=pid,
                fd=fd,
                path=path,
                device=0x801,
                inode=inode,
                mode=mode,
                position=position,
                open_flags=open_flags,
                mount=25,
            )
        )
        return self

    def fact_ring(self, t: int, pid: int, fd: int, *, begin: int | None = None, **known: int) -> SpoolBuilder:
        """A ring's facts from fdinfo: ``sq_entries``, ``cq_entries``, ``poller``, ``nr_files``, ``nr_buffers``."""
        self.facts.append(pack_ring(begin_ns=t if begin is None else begin, end_ns=t, pid=pid, fd=fd, **known))
        return self

    # -- counts

    def count_lost(self, name: str, per_cpu: Sequence[int]) -> SpoolBuilder:
        """The kernel's ``lost`` figures of one event; its counts grow by them."""
        self.lost_counts[name] = list(per_cpu)
        return self

    def count_vanished(self, name: str, per_cpu: Sequence[int]) -> SpoolBuilder:
        """Samples that the kernel counted, and neither delivered nor called lost."""
        self.vanished_counts[name] = list(per_cpu)
        return self

    def _counts(self) -> tuple[EventCounts, ...]:
        none = [0] * len(self.rings)
        rows = []
        for name, seen in self.samples.items():
            lost = self.lost_counts.get(name, none)
            parts = zip(seen, lost, self.vanished_counts.get(name, none), strict=True)
            rows.append(EventCounts(name, tuple(map(sum, parts)), tuple(lost)))
        return tuple(rows)

    def meta(self) -> SpoolMeta:
        """The content of ``spool.json``."""
        shift, error = self._clock
        stop = self._stop_ns
        syncs = [ClockSync(at + shift, at, at + 10**18, error) for at in (0, max(10**9, stop or 0))]
        return SpoolMeta(
            lo2io_version="0",
            complete=stop is not None,
            command=("true",),
            hostname="host",
            kernel="6.18.0",
            machine="x86_64",
            cpus=tuple(Cpu(cpu, cpu, 0) for cpu in range(len(self.rings))),
            events=tuple(self.layouts),
            formats=tuple(layout.text(self.ids[name]) for name, layout in self.layouts.items()),
            header_page=HEADER_PAGE,
            clock="perf",
            syncs=tuple(syncs),
            stop_ns=stop,
            ring_bytes=1 << 20,
            ring_bytes_wanted=1 << 20,
            opener="native",
            scope="system",
            counts=self._counts() if stop is not None else (),
            mounts=(),
            devices=(),
            lacking=tuple(sorted(_DEFAULT_EVENTS - self.layouts.keys())),
            **self._meta,  # type: ignore[arg-type]
        )

    def write(self, **changes: object) -> Path:
        """Write all files; ``changes`` replace values of ``spool.json``."""
        self.path.mkdir(parents=True, exist_ok=True)
        for cpu, ring in enumerate(self.rings):
            (self.path / ring_name(cpu)).write_bytes(b"".join(ring))
        (self.path / FACTS_NAME).write_bytes(b"".join(self.facts))
        meta = dataclasses.replace(self.meta(), **changes)  # type: ignore[arg-type]
        (self.path / META_NAME).write_bytes(dump_meta(meta))
        return self.path


def replay(builder: SpoolBuilder, history: Sequence[tuple[str, tuple[object, ...], Mapping[str, object]]]) -> None:
    """Call the builder's methods one by one; generated histories are such calls."""
    for method, args, options in history:
        getattr(builder, method)(*args, **options)
