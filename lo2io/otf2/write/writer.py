"""Writes batches to an OTF2 archive: events natively as they come, definitions at the end.

Layout: a process is a location group of the host, and a thread is a location. A call is a region with its I/O operation
inside. A request of a ring is an operation of the thread that submitted it, and a region of the worker that executes
it. A block device is a location with its requests, or a CPU is a location with samples of requests (details:
``lo2io/native/otf2/writer.c``). Beyond ``OWN_LOCATIONS``, threads and rings share locations (``otf2/threads.c``). A gap
that the kernel reported is a marker of severity HIGH. It marks the CPU's location, or, if CPUs have no locations, the
host's node of the system tree. The marker's text names the CPU.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

from lo2io._version import __version__
from lo2io.errors import TraceError
from lo2io.model import UNKNOWN_I64, Batch, CallKind, CallSpec, OpcodeSpec, SpoolMeta, TraceEnd
from lo2io.model.layers import STACKS
from lo2io.native._lib import ffi, lib
from lo2io.otf2.values import value
from lo2io.otf2.write import definitions
from lo2io.otf2.write.archive import Archive
from lo2io.otf2.write.layout import choose_layout
from lo2io.otf2.write.native import native_values
from lo2io.otf2.write.open_flags import O_CLOEXEC, open_flags
from lo2io.otf2.write.parts import HOST_NODE, Trace
from lo2io.otf2.write.rings import RING_ATTRIBUTES, native_opcodes
from lo2io.otf2.write.rows import Rows
from lo2io.otf2.write.shared import LIFE_ATTRIBUTES
from lo2io.otf2.write.stacks import stack_texts
from lo2io.otf2.write.used import UsedIds
from lo2io.trace.names import USED_IDS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path
    from types import TracebackType

OWN_LOCATIONS = 768
"""The number of locations that belong to one thread, ring, disk … each. Further threads and rings share locations. As
many processes have a location group of their own.

Readers open one file for each location, and a process may open 1,024 files by default. A quarter of them is left for
shared locations.
"""
_BATCHES_IN_MEMORY = 16
"""The events of so many batches, some 60 MB, may wait in memory when there are many locations."""
_LOST, _VANISHED = 0, 1
"""The two kinds of markers."""
_FOR_EVER = 2**63 - 1


class Otf2Writer:
    """Writes ``traces.otf2``, ``traces.def`` and ``traces/`` into a directory that exists.

    Only ``close`` writes the anchor. If the context ends without ``close``, by an error or otherwise, all written files
    are removed.

    Args:
        directory: A directory without an OTF2 archive. Other files in it stay untouched.
        meta: The recording's metadata.
        calls: The calls, indexed by the codes of ``operations.call``.
        opcodes: io_uring's opcodes by number. Other opcodes are named by their number.
        block_records: ``samples``: block events as samples on the locations of their CPUs. ``begin-end``: requests as
            operations on the locations of their devices. Or ``both``. None: operations; for a whole machine both.

    Raises:
        TraceError: libotf2 refuses; the error has its message. Every method may raise this.
        UsageError: ``block_records`` has an unknown value.
    """

    def __init__(
        self,
        directory: Path,
        meta: SpoolMeta,
        calls: Sequence[CallSpec],
        opcodes: Sequence[OpcodeSpec] = (),
        *,
        block_records: str | None = None,
    ) -> None:
        self._layout = choose_layout(meta, block_records)
        self._meta = meta
        self._calls = tuple(calls)
        self._opcodes = {spec.number: spec for spec in opcodes}
        self._rows = Rows(directory, [spec.number for spec in opcodes if spec.io_mode == "none"])
        self._native: Any = None
        self._archive = Archive(directory)
        self._nr_batches = 0
        try:
            self._keep_alive, config = self._config()
            self._native = self._new_native(config)
            self._used = UsedIds(self._native, directory)
            for cpu in meta.cpus if self._layout.contexts else ():
                self._check(lib.lo2_otf2_add_cpu(self._native, cpu.cpu))
        except BaseException:
            self._abandon()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._abandon()

    def write(self, batch: Batch) -> None:
        """Write a batch's events, one batch at a time. The native part runs without the GIL."""
        self._check(lib.lo2_otf2_write(self._open_native(), batch.native))
        with self._archive.refusing("what definitions are made of"):
            self._rows.add(batch)
            self._used.relieve()
        self._nr_batches += 1
        if self._nr_batches % _BATCHES_IN_MEMORY == 0:
            self._check(lib.lo2_otf2_relieve(self._open_native()))

    def close(self, end: TraceEnd) -> None:
        """Close open regions; then write definitions, markers and properties, and last the anchor."""
        native = self._open_native()
        try:
            self._end_locations(end)
            self._check(lib.lo2_otf2_finish(native))
            view = lib.lo2_otf2_state(native)
            for location in range(view.nr_locations):
                self._archive.require_events(location, view.locations[location].nr_events)
            start_ns, stop_ns = self._span(end, view)
            self._archive.call("CloseEvtFiles")
            self._archive.write_local_definitions(range(view.nr_locations))
            self._archive.write_beside_events(USED_IDS, self._used)
            facts = self._meta, self._layout, self._calls, self._opcodes, self._rows, native
            trace = Trace(*facts, start_ns, stop_ns, stack_texts(end.frames))
            with self._archive.definitions() as out:
                definitions.Writer(out, trace).write_all()
            self._markers(end, start_ns, stop_ns)
            self._properties(end, view.nr_clamped)
            self._archive.close()
        except BaseException:
            self._abandon()
            raise
        self._free_native()

    # ---- native state ----

    def _config(self) -> tuple[list[Any], Any]:
        """The native loop's configuration, and the objects that it points to."""
        flags = ffi.new("lo2_otf2_flag[]", open_flags(self._meta.machine))
        calls = ffi.new(
            "lo2_otf2_call[]",
            [
                (
                    int(spec.kind),
                    spec.kind == CallKind.OPEN and "flags" in spec.fields,
                    -1 if spec.fixed_flags is None else spec.fixed_flags,
                    len(spec.fields.keys() & {"path", "path2"}),
                )
                for spec in self._calls
            ],
        )
        opcodes = native_opcodes(self._opcodes)
        config = ffi.new("lo2_otf2_config *")
        config.files = self._archive.events
        config.values = native_values()[0]
        optional = (
            *definitions.TOLD_ATTRIBUTES,
            *RING_ATTRIBUTES,
            *LIFE_ATTRIBUTES,
            *definitions.END_ATTRIBUTES,
            *definitions.CACHE_ATTRIBUTES,
            *definitions.PART_ATTRIBUTES,
            *definitions.WAIT_ATTRIBUTES,
            *definitions.WRITE_BACK_ATTRIBUTES,
            *definitions.STACK_ATTRIBUTES,
        )
        for ref, member in enumerate((*definitions.ATTRIBUTES, *optional)):
            setattr(config.attributes, member, ref)
        config.flags, config.nr_flags = flags, len(flags)
        config.calls, config.nr_calls = calls, len(calls)
        config.opcodes, config.nr_opcodes = opcodes, len(opcodes)
        layout = self._layout
        config.event_strings = 1  # 0 is the empty string
        config.first_string = config.event_strings + (len(definitions.SAMPLE_EVENTS) if layout.samples else 0)
        config.close_on_exec = O_CLOEXEC
        config.samples, config.begin_end = layout.samples, layout.begin_end
        config.contexts, config.metrics = layout.contexts, layout.metrics
        config.sampled = self._meta.sample_rate > 1
        config.slow_from_ns = self._meta.slow_from_ns if STACKS in self._meta.layers else _FOR_EVER
        config.start_ns = self._meta.start_ns
        config.stop_ns = _FOR_EVER if self._meta.stop_ns is None else self._meta.stop_ns
        config.most_own = OWN_LOCATIONS
        return [flags, calls, opcodes], config

    def _new_native(self, config: Any) -> Any:
        native = lib.lo2_otf2_new(config)
        if native == ffi.NULL:
            raise self._archive.error("lo2_otf2_new: out of memory")
        return native

    def _open_native(self) -> Any:
        if self._native is None:
            raise TraceError("write to the trace", "it is closed", "open another writer")
        return self._native

    def _check(self, code: int) -> None:
        if code:
            failed = lib.lo2_otf2_state(self._native).failed
            raise self._archive.error(ffi.string(failed).decode())

    def _free_native(self) -> None:
        native, self._native = self._native, None
        self._rows.handles.close()
        if native is not None:
            self._used.close()
            lib.lo2_otf2_free(native)

    def _abandon(self) -> None:
        """Remove all written files. After ``close`` this does nothing."""
        self._archive.abort()
        self._free_native()

    def _end_locations(self, end: TraceEnd) -> None:
        """End all locations. A call in flight ends with its thread or the trace, anything else with the trace."""
        self._check(lib.lo2_otf2_add_waiting(self._native))
        view = lib.lo2_otf2_state(self._native)
        if not view.nr_locations:
            # otf2-print and other readers refuse a trace without locations. So all threads get one, though they did
            # nothing. Without any thread, task 0 gets one.
            for task in self._rows.tasks or (0,):
                self._check(lib.lo2_otf2_add_task(self._native, task))
        for location in range(view.nr_locations):
            of_task = view.locations[location].kind == lib.LO2_OTF2_TASK
            row = self._rows.tasks.get(view.locations[location].user) if of_task else None
            exit_time = row.exit_time_ns if row is not None else UNKNOWN_I64
            ended = exit_time != UNKNOWN_I64
            end_ns = min(exit_time, end.stop_ns) if ended else end.stop_ns
            self._check(lib.lo2_otf2_end_location(self._native, location, end_ns, ended))

    @staticmethod
    def _span(end: TraceEnd, view: Any) -> tuple[int, int]:
        """The clock's range. No event lies outside of it."""
        start = max(min(end.start_ns, view.first_time_ns), 0)
        return start, max(end.stop_ns, view.last_time_ns, start)

    # ---- what is said about the trace ----

    def _markers(self, end: TraceEnd, start_ns: int, stop_ns: int) -> None:
        vanished = end.completeness.vanished
        if not self._rows.losses and not vanished:
            return
        whole, host = value("MARKER_SCOPE_GLOBAL"), (value("MARKER_SCOPE_SYSTEM_TREE_NODE"), HOST_NODE)
        view = lib.lo2_otf2_state(self._open_native())
        of_cpus = (i for i in range(view.nr_locations) if view.locations[i].kind == lib.LO2_OTF2_CPU)
        scopes = {view.locations[i].key: (value("MARKER_SCOPE_LOCATION"), i) for i in of_cpus}
        with self._archive.markers() as out:
            out.define(_LOST, "lo2io", "lost records", value("SEVERITY_HIGH"))
            severity = value("SEVERITY_LOW" if end.completeness.whole else "SEVERITY_HIGH")
            out.define(_VANISHED, "lo2io", "vanished samples", severity)
            if vanished:
                text = f"{vanished} samples were counted by the kernel, but neither delivered nor reported as lost"
                text += f"; {end.completeness.elsewhere} of them elsewhere" if end.completeness.elsewhere else ""
                out.mark(_VANISHED, text, time=start_ns, duration=stop_ns - start_ns, scope=whole, scope_ref=0)
            for cpu, begin, until, lost in self._rows.losses:
                first = min(max(begin, start_ns), stop_ns)  # an unknown time is below every start
                last = stop_ns if until == UNKNOWN_I64 else max(first, min(until, stop_ns))
                what = f"the kernel dropped {lost} records" if lost else "records of layers were lost"
                scope, ref = scopes.get(cpu, host)
                out.mark(_LOST, f"CPU {cpu}: {what}", time=first, duration=last - first, scope=scope, scope_ref=ref)

    def _properties(self, end: TraceEnd, clamped: int) -> None:
        meta = self._meta
        self._archive.call("SetMachineName", _line(meta.hostname))
        self._archive.call("SetDescription", _line(f"lo2io {meta.mode}: {' '.join(meta.command)}"))
        self._archive.call("SetCreator", _line(f"lo2io {__version__}"))
        for name, fact in self._facts(end, clamped).items():
            text = _line(str(fact))
            if text:  # libotf2 would remove a property with an empty value
                key = "".join(letter if letter.isascii() and letter.isalnum() else "_" for letter in name.upper())
                self._archive.call("SetProperty", f"LO2IO::{key}".encode(), text, True)

    def _facts(self, end: TraceEnd, clamped: int) -> Mapping[str, object]:
        """The values of the archive's properties; empty: the archive does not get that property."""
        meta, proof = self._meta, end.completeness
        return {
            "VERSION": __version__,
            "RECORDED_BY": meta.lo2io_version,
            "MODE": meta.mode,
            "COMMAND": " ".join(meta.command),
            "KERNEL": meta.kernel,
            "MACHINE": meta.machine,
            "CLOCK": meta.clock,
            "LOST": proof.lost,
            "VANISHED": proof.vanished,
            "LATE": proof.late,
            "ORPHAN": proof.orphan,
            "IN_FLIGHT": proof.in_flight,
            "SAMPLES": proof.samples,
            "NR_OWN_CALLS": end.totals.nr_own_calls,
            "NR_OWN_REQUESTS": end.totals.nr_own_requests,
            "BLOCK_RECORDS": self._layout.block_records,
            "FILTER": meta.filter,
            "CGROUP": meta.cgroup,
            "CHOSEN_CPUS": ",".join(map(str, meta.chosen_cpus)),
            "NOTICES": "; ".join(meta.notices),
            "RECORDING_START": "" if meta.recording_start_ns is None else meta.recording_start_ns,
            "COMPLETENESS": "proven" if proof.proven else "not proven",
            "UNFOLLOWED": proof.unfollowed or "",
            "COMPAT": proof.compat or "",
            "FOREIGN": proof.foreign or "",
            "ABSENT_CPUS": proof.absent_cpus or "",
            "UNTOLD_IOCBS": proof.untold_iocbs or "",
            "ENDED_EARLY": int(proof.ended_early) or "",
            "MISSING_BYTES": proof.missing_bytes or "",
            "RECORDED_PROCESSES": proof.whose,
            "RECORDED_COMPLETENESS": ("proven" if proof.recorded_whole else "not proven") if proof.whose else "",
            "INFERRED_ENDS": proof.inferred_ends or "",
            "UNKNOWN_ENDS": proof.unknown_ends or "",
            "THROTTLED": end.totals.nr_throttled,
            "MOVED_EVENTS": clamped,
            "IO_URING_REQUESTS": end.totals.nr_ring_requests or "",
            "IO_URING_NO_DATA": self._rows.nr_without_data or "",
            "IO_URING_SAMPLE_RATE": meta.sample_rate if meta.sample_rate > 1 else "",
            **end.properties,
        }


def _line(text: str) -> bytes:
    """The text as one line: the anchor file holds one property in each line."""
    printable = "".join(letter if letter.isprintable() else letter.encode("unicode_escape").decode() for letter in text)
    return printable.encode(errors="backslashreplace")
