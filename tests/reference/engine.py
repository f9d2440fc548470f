"""The slow engine: takes a spool, gives tables as lists of dicts."""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING, Any

from lo2io.model import Role
from reference.cache import Cache
from reference.calls import Calls
from reference.commits import Commits
from reference.gaps import Gaps
from reference.kernel_files import Files
from reference.records import Decoder, Record
from reference.requests import Requests
from reference.rings import Rings
from reference.sched import Sched
from reference.specs import SPECS, Specs
from reference.tasks import Tasks

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from reference.tasks import Task

TOTALS = (
    "nr_samples",
    "nr_selected",
    "nr_late",
    "nr_reordered",
    "nr_orphan_exits",
    "nr_orphan_completions",
    "nr_in_flight_calls",
    "nr_in_flight_requests",
    "nr_inferred_ends",
    "nr_unknown_ends",
    "nr_lost_records",
    "nr_lost",
    "nr_lost_rows",
    "nr_throttled",
    "nr_undecoded",
    "truncated_bytes",
    "nr_names_verified",
    "nr_names_refused",
    "nr_files_told",
    "nr_files_refused",
    "nr_own_calls",
    "nr_own_requests",
    "nr_ring_requests",
    "nr_orphan_cqes",
    "nr_in_flight_ring_requests",
    "nr_ring_unclear",
    "nr_gone_in_exec",
    "nr_fills_unfollowed",
    "nr_compat_programs",
)
PAIRED = (Role.ENTER, Role.EXIT)


class Reference:
    """The results of one run. Rows hold objects where the native engine has numbers."""

    def __init__(self, path: Path, specs: Specs = SPECS) -> None:
        self.specs = specs
        self.decoder = Decoder(path, specs)
        self.meta = self.decoder.meta
        self.all_tasks = self.meta.mode == "system"
        self.totals = dict.fromkeys(TOTALS, 0)
        self.operations: list[dict[str, Any]] = []
        self.handle_events: list[dict[str, Any]] = []
        self.requests: list[dict[str, Any]] = []
        self.request_events: list[dict[str, Any]] = []
        self.completions: list[dict[str, Any]] = []
        self.switches: list[dict[str, Any]] = []
        self.off_cpu: list[dict[str, Any]] = []
        self.losses: list[dict[str, Any]] = []
        self.batches: list[dict[str, Any]] = []
        self.now = 0
        self.over = False
        """The last record has been read."""
        self.tasks = Tasks(self)
        self.calls = Calls(self)
        self.files = Files(self)
        self.block = Requests(self)
        self.sched = Sched(self)
        self.rings = Rings(self)
        self.cache = Cache(self)
        self.commits = Commits()
        streams = self.decoder.streams()
        self.seen = [[0] * len(self.meta.events) for _ in self.meta.cpus]
        for stream in streams:
            self.totals["nr_reordered"] += 0 if stream.cpu is None else stream.reordered
            self.totals["truncated_bytes"] += stream.truncated
            for record in stream.records:
                self._count(record)
            self.totals["nr_lost_rows"] += stream.lost_rows
            for last, end, lost in stream.losses:
                begin = self.meta.start_ns if last is None else last
                self.losses.append({"cpu": stream.cpu, "begin_time_ns": begin, "end_time_ns": end, "lost": lost})
                self.totals["nr_lost_records"] += 1
                self.totals["nr_lost"] += lost
        for record in reversed(streams[-1].records):
            if record.kind == "fact_task":
                self.tasks.pids[record.values["tid"]] = record.values["pid"]
        self.completions_missing = self._count_completions()
        self.gaps = Gaps(self, streams)
        self._run([stream.records for stream in streams])

    def _count(self, record: Record) -> None:
        self.totals["nr_undecoded"] += record.kind == "broken"
        self.totals["nr_throttled"] += record.kind == "throttle"
        if record.kind == "sample":
            meaning = record.values["meaning"]
            self.totals["nr_samples"] += 1
            self.totals["nr_undecoded"] += meaning is None
            if meaning is not None:
                self.seen[record.stream][meaning.index] += 1

    def _count_completions(self) -> bool:
        """True if the kernel counted more completions than the spool has."""
        name = "block:block_rq_complete"
        counted = sum(sum(row.counts) for row in self.meta.counts if row.name == name)
        return counted > sum(row[self.meta.events.index(name)] for row in self.seen)

    def _run(self, streams: list[list[Record]]) -> None:
        steps: dict[str, Callable[[Record], None]] = {
            "sample": self._sample,
            "value": self._value,
            "usage": self._usage,
            "sleep": self._sleep,
            "file": lambda record: self.files.told(record.values),
            "lost": self._lost,
            "pages": lambda record: self.cache.pages(record.values),
            "iowait": lambda record: self.cache.wait(record.values, record.time),
            "commit": lambda record: self.commits.told(record.time, record.values),
            "fork": lambda record: self.tasks.fork(record.time, record.values),
            "exit": lambda record: self.tasks.exit(record.time, record.values),
            "comm": lambda record: self.tasks.comm(record.time, record.values),
            "mapping": lambda record: self.tasks.mapping(record.values),
            "fact_task": lambda record: self.tasks.fact(record.values),
            "fact_rank": lambda record: self.tasks.rank(record.values),
            "fact_command": lambda record: self.tasks.command(record.values),
            "exec": lambda record: self.tasks.executed(record.time, record.values),
            "fact_fd": lambda record: self.calls.fact(record.values),
            "fact_ring": lambda record: self.rings.fact(record.values),
        }
        for record in heapq.merge(*streams, key=lambda record: (record.time, record.order)):
            self.now = record.time
            self.gaps.passed(record.time)
            if record.kind in steps:
                steps[record.kind](record)
            self.block.write_ended()
            self.rings.look_for_ends(record.time)
        self.over = True
        for task in [each for each in self.tasks.alive.values() if each.exec_exit is not None]:
            self.tasks.end_unseen(task)
        for op in sorted((t.pending for t in self.tasks.all if t.pending), key=lambda op: (op.time, op.task.tid)):
            self.calls.in_flight(op)
        self.block.finish()
        self.rings.finish()
        self.commits.finish()

    def _sample(self, record: Record) -> None:
        meaning, tid = record.values["meaning"], record.values.get("common_pid", 0)
        if meaning is None:
            return
        task = self.tasks.of_sample(tid, create=meaning.role in PAIRED)
        if task is not None and meaning.role in PAIRED:
            task.lives()
        recorded = task is not None and task.recorded
        self.totals["nr_selected"] += recorded and meaning.role in PAIRED
        values = {k: v for k, v in record.values.items() if k not in ("meaning", "common_pid")}
        if meaning.role in PAIRED:
            if task is None or not (recorded or task.from_exec):
                self.totals["nr_own_calls"] += task is not None and self.all_tasks and meaning.role is Role.ENTER
                return
            if meaning.role is Role.ENTER:
                self.calls.enter(task, record.time, record.stream, meaning.call, values)
            else:
                self._tell(task, values)
                self.calls.exit(task, record.time, meaning.call, values["ret"])
        elif meaning.role is Role.SCHED_SWITCH:
            self.sched.switch(record.time, record.stream, values)
        elif meaning.role is Role.CGROUP_ATTACH:
            self.tasks.attached(record.time, values)
        elif meaning.role >= Role.RING_CREATE:
            self.rings.sample(meaning.role, record.time, tid, values)
        elif meaning.role is not Role.IGNORED:
            self.block.sample(meaning.role, record.time, tid, task, values, cpu=record.stream)

    def _lost(self, record: Record) -> None:
        self.files.lost()
        self.gaps.told(record.time)

    def _value(self, record: Record) -> None:
        """``VALUE``: position and value of the call that a thread is about to leave."""
        task = self.tasks.of_sample(record.values["tid"], create=True)
        if task is not None and (task.recorded or task.from_exec):
            self._tell(task, record.values)

    def _usage(self, record: Record) -> None:
        """``USAGE``: what a thread has used, at its exit."""
        task = self.tasks.of_sample(record.values["tid"], create=True)
        if task is not None and (task.recorded or task.from_exec):
            task.usage = {name: value for name, value in record.values.items() if name != "tid"}

    def _sleep(self, record: Record) -> None:
        """``SLEEP``: a stretch without a CPU."""
        task = self.tasks.of_sample(record.values["tid"], create=True)
        if task is not None and (task.recorded or task.from_exec):
            self.sched.slept(task, record.time, record.values)

    @staticmethod
    def _tell(task: Task, values: dict[str, Any]) -> None:
        if task.pending is not None and "told_position" in values:
            task.pending.told_position, task.pending.told_value = values["told_position"], values["told_value"]
