"""The native engine: spools in, batches of operations, handles, tasks, requests and losses out.

C code (``lo2io/native``) merges, pairs and follows fd tables, by the rules of ``docs/explanation/design.md``. This
module hands it the spool and gives its rows names. It knows no writer.
"""

from __future__ import annotations

import os
import queue
import threading
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from lo2io.catalog.catalog import ENDING, MOVING, PAGE_FAULT, left_out
from lo2io.catalog.layouts import Layout, compile_layout
from lo2io.catalog.wait_reasons import LOCK, load_reasons
from lo2io.errors import SpoolError
from lo2io.model import UNKNOWN_U32, Batch, Columns, Role, Totals
from lo2io.model.layers import STACK_FROM_NS, WAITS, WORKERS
from lo2io.native._lib import ffi, lib
from lo2io.native.columns import allocate_batch, no_rows

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from lo2io.catalog.catalog import Catalog
    from lo2io.model import ClockSync, SpoolMeta
    from lo2io.spool.reader import SpoolReader
    from lo2io.unwind.stacks import Stacks

BATCH_ROWS = 1 << 16
"""Rows of a batch. With fewer, the work that each batch takes in Python would weigh more."""
MIN_BATCH_ROWS = 8
"""One record can give several rows."""
TEXT_BYTES = TOLD_BYTES = 1 << 20
BUFFER_BYTES = 1 << 18
"""Bytes of a stream that are read at a time. More would leave the CPU's cache before the engine sees them."""
_ADVICE = "advice"
"""The group of calls that tell the kernel which pages will be read."""
CLOCK_SLACK_NS = 2_000
"""Added to the clock's own error. A fact must lie this far inside a handle's life."""


class Engine:
    """Reads one spool from beginning to end, once.

    Args:
        spool: The spool.
        catalog: The meaning of its events.
        batch_rows: A batch is handed on after this many rows, at least 8.
        stacks: Unwinds copies of stacks; None: they are passed over.

    Raises:
        SpoolError: A stream cannot be opened, or a format cannot be read.
        ValueError: ``batch_rows`` is too small.
    """

    def __init__(
        self, spool: SpoolReader, catalog: Catalog, *, batch_rows: int = BATCH_ROWS, stacks: Stacks | None = None
    ) -> None:
        if batch_rows < MIN_BATCH_ROWS:
            raise ValueError(f"batches of {batch_rows} rows: at least {MIN_BATCH_ROWS} are needed")
        self.spool = spool
        self.catalog = catalog
        self.batch_rows = batch_rows
        self.stacks = stacks
        meta = spool.meta
        self.layout = compile_layout(meta.events, meta.formats, catalog, kernel_records=meta.has_kernel_records)
        self._alive: list[Any] = []  # keeps C memory alive that the engine points to
        config = self._config()
        error = ffi.new("char[]", 256)
        engine = lib.lo2_engine_new(config, error, 256)
        if engine == ffi.NULL:
            raise SpoolError(f"read {spool.path}", ffi.string(error).decode(errors="replace"))
        self._engine = ffi.gc(engine, lib.lo2_engine_free)

    def batches(self) -> Iterator[Batch]:
        """Yield every batch of the spool in order, filled in the caller's thread.

        Yields:
            Batches with arrays that are valid until the caller asks for the next batch.

        Raises:
            SpoolError: A stream cannot be read any further.
        """
        native, tables = self.allocate()
        more = 1
        while more > 0:
            more = self.fill(native)
            yield self.view(native, tables)

    def allocate(self) -> tuple[Any, dict[str, Columns]]:
        """An empty ``lo2_batch`` and its tables."""
        return allocate_batch(self.batch_rows, TEXT_BYTES, TOLD_BYTES if self.stacks else 0)

    def view(self, native: Any, tables: dict[str, Columns]) -> Batch:
        """A filled batch. Take them in their order: calls get the numbers of their stacks here."""
        batch = _view(native, tables)
        if self.stacks:
            self.stacks.take(bytes(ffi.buffer(native.told, native.told_length)), batch.call_stacks)
        return batch

    def fill(self, native: Any) -> int:
        """Fill a ``lo2_batch``; 0: it was the last one. The native part runs without the GIL.

        Raises:
            SpoolError: A stream cannot be read any further.
        """
        more: int = lib.lo2_engine_run(self._engine, native)
        if more < 0:
            answer = ffi.string(lib.lo2_engine_error(self._engine)).decode(errors="replace")
            raise SpoolError(f"read {self.spool.path}", answer)
        return more

    @property
    def totals(self) -> Totals:
        """Counters so far. They are final when every batch was taken."""
        native = lib.lo2_engine_totals(self._engine)
        return Totals(**{name: getattr(native, name) for name, _ in ffi.typeof("lo2_totals").fields})

    def seen(self, cpu: int) -> NDArray[np.uint64]:
        """Samples of each event on one CPU (an index into ``meta.cpus``), shape (events,).

        These are samples in the CPU's buffer, and calls and events that lo2io's programs reported there.
        """
        nr_events = len(self.spool.meta.events)
        total = np.zeros(nr_events, np.uint64)
        for stream in range(cpu, self._nr_streams, len(self.spool.meta.cpus)):
            view = ffi.buffer(lib.lo2_engine_seen(self._engine, stream), 8 * nr_events)
            total += np.frombuffer(view, np.uint64, nr_events)
        return total

    @property
    def bytes_read(self) -> int:
        """Bytes of the spool read so far, for progress."""
        return int(lib.lo2_engine_bytes_read(self._engine))

    # ---- configuration ----

    def _config(self) -> Any:
        meta = self.spool.meta
        config = ffi.new("lo2_config *")
        streams = [(paths, cpu, lib.LO2_STREAM_KERNEL) for paths, cpu in self.spool.kernel_streams()]
        streams += [(paths, cpu, lib.LO2_STREAM_EVENTS) for paths, cpu in self.spool.event_streams()]
        streams += [(paths, cpu, lib.LO2_STREAM_SAMPLES) for paths, cpu in self.spool.streams()]
        self._nr_streams = len(streams)
        streams.append((self.spool.facts, UNKNOWN_U32, lib.LO2_STREAM_FACTS))
        config.streams = self._keep(ffi.new("lo2_stream[]", len(streams)))
        config.nr_streams = len(streams)
        for index, stream in enumerate(streams):
            self._set_stream(config.streams[index], *stream)
        self._set_events(config)
        self._set_calls(config)
        self._set_opcodes(config)
        config.sample_rate = meta.sample_rate
        self._set_partitions(config)
        events = {*meta.events, *meta.lacking}
        cgroup = os.fsencode(meta.cgroup)
        config.cgroup, config.cgroup_length = self._keep(ffi.new("char[]", cgroup)), len(cgroup)
        config.ends_unseen = bool(meta.chosen_cpus or left_out(self.catalog.calls, ENDING, events))
        config.moves_unseen = bool(meta.chosen_cpus or left_out(self.catalog.calls, MOVING, events))
        config.records_lost = _records_lost(meta)
        config.all_tasks = meta.mode == "system"
        config.compat_unseen = meta.compat_unseen
        config.recorder_pid = meta.recorder_pid
        config.own_pids = self._keep(ffi.new("uint32_t[]", meta.own_pids))
        config.nr_own_pids = len(meta.own_pids)
        config.buffer_bytes = BUFFER_BYTES
        config.start_ns = meta.start_ns
        config.cache = _cache_layer(meta)
        config.parts = "parts" in meta.layers
        config.dirty = {"dirty", "parts"} <= set(meta.layers)
        config.faults = "faults" in meta.layers
        config.fault_call = self.catalog.rows.index(PAGE_FAULT)
        self._set_clock(config)
        self._set_completions(config)
        return config

    def _set_stream(self, stream: Any, paths: Sequence[Path], cpu: int, kind: int) -> None:
        names = [self._keep(ffi.new("char[]", bytes(path))) for path in paths]
        stream.paths = self._keep(ffi.new("char *[]", names))
        stream.nr_paths, stream.cpu, stream.kind = len(names), cpu, kind

    def _keep(self, memory: Any) -> Any:
        self._alive.append(memory)
        return memory

    def _set_events(self, config: Any) -> None:
        layout: Layout = self.layout
        nr_types = max((event.type for event in layout.events), default=0) + 1
        events = self._keep(ffi.new("lo2_event[]", nr_types))
        for index in range(nr_types):
            events[index].event = UNKNOWN_U32
        for event in layout.events:
            row = events[event.type]
            row.event, row.role, row.call = event.event, event.role, event.call
            for place, field in enumerate(event.fields):
                if field is not None:
                    row.fields[place].offset = field.offset
                    row.fields[place].size = field.size
                    row.fields[place].is_signed = field.signed
        config.events_by_type, config.nr_types = events, nr_types
        config.nr_events = len(layout.events)
        config.sched_waiting, config.sched_blocked = layout.sched_waiting, layout.sched_blocked
        self._set_stacks(config)
        config.type_offset, config.pid_offset = layout.type_offset, layout.pid_offset

    def _set_stacks(self, config: Any) -> None:
        """What each kernel stack waits for, and which stacks of programs are known."""
        meta, reasons = self.spool.meta, load_reasons()
        config.waits, config.stack_from_ns = WAITS in meta.layers, STACK_FROM_NS
        config.workers = {WAITS, WORKERS} <= {*meta.layers} and not meta.facts_lost
        config.nr_stacks = 1 + max((stack.stack for stack in meta.kernel_stacks), default=-1)
        numbers = [lib.LO2_WAIT_UNKNOWN] * max(config.nr_stacks, 1)
        for stack in meta.kernel_stacks:
            numbers[stack.stack] = reasons.number_of(stack.functions)
        config.lock_reason = reasons.names.index(LOCK)
        config.stack_reasons = self._keep(ffi.new("uint8_t[]", numbers))
        known = {stack.stack for stack in meta.user_stacks if stack.offsets}
        config.slow_from_ns, config.nr_user_stacks = meta.slow_from_ns, 1 + max(known, default=-1)
        config.unwinds = self.stacks is not None
        flags = [number in known for number in range(config.nr_user_stacks or 1)]
        config.user_stacks = self._keep(ffi.new("uint8_t[]", flags))

    def _set_calls(self, config: Any) -> None:
        calls = self._keep(ffi.new("lo2_call[]", max(len(self.catalog.rows), 1)))
        for row, call in zip(calls, self.catalog.rows, strict=False):
            row.kind, row.returns, row.vectored = call.kind, call.returns, call.vectored
            row.has_flags = "flags" in call.fields
            row.fixed_flags = -1 if call.fixed_flags is None else call.fixed_flags
            row.fd_unless = call.fd_unless
            row.reads_first, row.advises = call.reads_first, call.group == _ADVICE
        config.calls, config.nr_calls = calls, len(self.catalog.rows)

    def _set_opcodes(self, config: Any) -> None:
        opcodes = self._keep(ffi.new("lo2_opcode[]", max(len(self.catalog.opcodes), 1)))
        for row, opcode in zip(opcodes, self.catalog.opcodes, strict=False):
            row.kind, row.returns, row.traits = opcode.kind, opcode.returns, opcode.traits
            row.iocbs = sum(1 << command for command in opcode.iocbs)
        config.opcodes, config.nr_opcodes = opcodes, len(self.catalog.opcodes)

    def _set_partitions(self, config: Any) -> None:
        partitions = [(d.device, d.disk) for d in self.spool.meta.devices if d.disk is not None]
        rows = self._keep(ffi.new("lo2_partition[]", len(partitions) or 1))
        for row, (partition, disk) in zip(rows, partitions, strict=False):
            row.partition, row.disk = partition, disk
        config.partitions, config.nr_partitions = rows, len(partitions)

    def _set_clock(self, config: Any) -> None:
        """Set the readings of the spool's clock together with CLOCK_MONOTONIC, which facts bear.

        There is one at the start and, in a complete recording, one at the stop. A reading that is not later on
        CLOCK_MONOTONIC than the one before it is skipped.
        """
        syncs = self.spool.meta.syncs
        if not syncs:
            return
        rising: list[ClockSync] = []
        for sync in syncs:
            if not rising or sync.monotonic_ns > rising[-1].monotonic_ns:
                rising.append(sync)
        rows = self._keep(ffi.new("lo2_sync[]", len(rising)))
        for row, sync in zip(rows, rising, strict=True):
            row.time_ns, row.monotonic_ns, row.error_ns = sync.time_ns, sync.monotonic_ns, sync.error_ns
        config.syncs, config.nr_syncs = rows, len(rising)
        config.clock_error_ns = max(sync.error_ns for sync in syncs) + CLOCK_SLACK_NS

    def _set_completions(self, config: Any) -> None:
        """The kernel's counts of completed block requests, by which the engine finds out whether some are missing."""
        completions = {self.spool.meta.events[e.event] for e in self.layout.events if e.role is Role.RQ_COMPLETE}
        counted = [c for c in self.spool.meta.counts if c.name in completions]
        if any(any(c.lost or ()) for c in counted):
            config.completions = lib.LO2_COMPLETIONS_MISSING
        elif any(any(c.counts) for c in counted):
            sums = [sum(column) for column in zip(*(c.counts for c in counted), strict=True)]
            config.completions, config.nr_cpus = lib.LO2_COMPLETIONS_COUNTED, len(sums)
            config.nr_completions = self._keep(ffi.new("uint64_t[]", sums))


class BatchStream:
    """An engine that works in a thread of its own from now on: it fills batches before the caller asks for them.

    Iterate over it and give each batch back with :meth:`release` when nobody reads it any more. Up to ``held`` batches
    can be out at a time. Leaving the context ends the engine's work.

    Raises:
        SpoolError: While iterating, when a stream cannot be read any further.
    """

    def __init__(self, engine: Engine, held: int) -> None:
        self._engine = engine
        self._free: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._full: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._memory: dict[Any, Any] = {}
        self._ended = False
        for _ in range(held + 1):
            self._free.put(engine.allocate())
        self._thread = threading.Thread(target=self._run, name="lo2io-engine", daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._ended = True
        self._free.put(None)
        self._thread.join()
        # A callback of threading follows the end of the object, and Python drops what interrupts a callback. So the
        # object must not end where memory is freed, which gives an interrupt time to come.
        del self._thread

    def __iter__(self) -> Iterator[Batch]:
        while (item := self._full.get()) is not None:
            if isinstance(item, BaseException):
                raise item
            native, tables = item
            self._memory[native] = tables
            yield self._engine.view(native, tables)

    def release(self, batch: Batch) -> None:
        """Allow the engine to fill the batch's memory again."""
        self._free.put((batch.native, self._memory.pop(batch.native)))

    def _run(self) -> None:
        try:
            while (item := self._free.get()) is not None and not self._ended:
                more = self._engine.fill(item[0])
                self._full.put(item)
                if more == 0:
                    break
            self._full.put(None)
        except BaseException as error:  # noqa: BLE001 - raised again in the thread that takes the batches
            self._full.put(error)


def _records_lost(meta: SpoolMeta) -> bool:
    """True if records may be missing: losses are known, or the kernel's counts are missing."""
    has_counts = meta.complete and all(counts.lost is not None for counts in meta.counts)
    unseen = meta.missed_runs or meta.facts_lost or meta.tasks_lost or meta.absences
    return not has_counts or bool(unseen) or any(sum(c.lost or ()) for c in meta.counts)


def _cache_layer(meta: SpoolMeta) -> int:
    """ON: the layer ``cache`` was recorded, and gaps tell all that is missing of it. DOUBTFUL: gaps do not tell all."""
    if "cache" not in meta.layers:
        return int(lib.LO2_CACHE_LAYER_OFF)
    return int(lib.LO2_CACHE_LAYER_DOUBTFUL if meta.missed_runs or not meta.complete else lib.LO2_CACHE_LAYER_ON)


def _view(native: Any, tables: dict[str, Columns]) -> Batch:
    cut: dict[str, Columns] = {}
    for name, columns in tables.items():
        rows = getattr(native, f"nr_{name}")
        cut[name] = {column: array[:rows] for column, array in columns.items()} if rows else no_rows(name)
    text = bytes(ffi.buffer(native.text, native.text_length))
    return Batch(**cut, text=text, first_operation=native.first_operation, native=native)
