"""A trigger finds block requests or calls that are slower than a threshold, while the recording goes on.

A trigger is written as a filter (docs/reference/filters.md) of few fields: ``latency``, which it must have,
``operation``, ``kind`` and ``device``. A trigger looks at block requests, unless it names operations that only calls
have, or says ``kind == call``. A request's latency is the device's, from the last issue to the completion. A call's
latency is the time from entry to exit. ``native/capture/trigger.c`` looks at samples while they are drained.
"""

from __future__ import annotations

import os
import time
import weakref
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lo2io.catalog.catalog import load_catalog
from lo2io.errors import CaptureError, UsageError
from lo2io.filter.language import operation_names
from lo2io.kernel import procfs
from lo2io.model import RequestOp, Role
from lo2io.native._lib import ffi, lib
from lo2io.units import format_duration

if TYPE_CHECKING:
    from collections.abc import Container, Sequence

    from lo2io.catalog.layouts import EventLayout, Layout
    from lo2io.filter.language import Comparison, Filter
    from lo2io.model import BlockDevice

FIELDS = frozenset({"latency", "device", "operation", "kind"})
MAX_HITS = 256
"""The number of hits kept between two looks. One hit is enough for a dump."""
PERIOD_NS = 100_000_000
MANY = 1 << 15
"""The time, and the number of starts and ends, after which the gathered starts and ends are looked at."""
_BLOCK_EVENTS = {Role.RQ_ISSUE: "block:block_rq_issue", Role.RQ_COMPLETE: "block:block_rq_complete"}


@dataclass(frozen=True, slots=True)
class Trigger:
    """The condition that fires a trigger."""

    text: str
    least_ns: int
    """Requests or calls that took this long, or longer."""
    operations: frozenset[RequestOp]
    devices: tuple[BlockDevice, ...] | None
    """Disks; None: all, including those that come later."""
    calls: frozenset[str] = frozenset()
    """Calls to look at, by their tracepoints' names. Empty: block requests are looked at."""


def parse_trigger(text: str, devices: Sequence[BlockDevice]) -> Trigger:
    """Read ``latency > 100ms and device == vda``, or ``latency > 100ms and operation == sync``.

    Args:
        text: The expression.
        devices: The machine's disks and partitions.

    Raises:
        UsageError: The text is no trigger, or names a field that a trigger cannot have.
    """
    from lo2io.filter.parser import parse  # noqa: PLC0415 - few recordings have a trigger, and this import reads the catalog

    parsed = parse(text)
    tried = f"trigger by {text!r}"
    for comparison in parsed.comparisons:
        if comparison.field not in FIELDS:
            raise UsageError(
                tried, f"a trigger does not look at {comparison.field}", "write 'latency > 100ms and device == vda'"
            )
    limits = parsed.of("latency")
    if not limits or any(limit.operator not in {">", ">="} for limit in limits):
        raise UsageError(tried, "the trigger has no least latency", "write 'latency > 100ms'")
    operations = parsed.operations()
    calls = frozenset[str]() if operations.requests else operations.calls
    if not operations.requests and not calls:
        raise UsageError(tried, "no block request and no call is such an operation", "read, write, flush, sync …")
    if operations.requests and (lone := _of_calls_alone(parsed)):
        raise UsageError(
            tried,
            f"a trigger looks at block requests or at calls, not at both, and only calls can be {lone}",
            "add `kind == call` or `kind == request`",
        )
    if calls and parsed.of("device"):
        raise UsageError(
            tried, "a trigger does not know the device of a call", "leave the device away, or add `kind == request`"
        )
    return Trigger(
        text,
        max(int(limit.values[0]) + (limit.operator == ">") for limit in limits),
        operations.requests,
        _chosen_disks(tried, parsed.of("device"), devices),
        calls,
    )


def _of_calls_alone(parsed: Filter) -> str:
    """A named operation that only calls have, not block requests; empty: there is none."""
    if any(not comparison.negative for comparison in parsed.of("kind")):
        return ""
    named = [comparison for comparison in parsed.of("operation") if not comparison.negative]
    meant = (item for item in operation_names().items() if any(comparison.accepts(item[0]) for comparison in named))
    return next((name for name, operations in meant if operations.calls and not operations.requests), "")


def _chosen_disks(
    tried: str, comparisons: Sequence[Comparison], devices: Sequence[BlockDevice]
) -> tuple[BlockDevice, ...] | None:
    if not comparisons:
        return None
    chosen = [
        device
        for device in devices
        if all(comparison.accepts(device.name) is not comparison.negative for comparison in comparisons)
    ]
    disks = tuple(device for device in chosen if device.disk is None)
    if not disks:
        names = ", ".join(device.name for device in devices if device.disk is None)
        answer = "requests name disks, not their partitions" if chosen else "there is no such disk"
        raise UsageError(tried, answer, f"the disks are {names}")
    return disks


class Watcher:
    """Finds the requests or calls that fire a trigger.

    Args:
        trigger: The condition.
        layout: The layouts of the recorded events.
        nr_rings: The number of perf's buffers.
        devices: The machine's disks, for their names.
        nr_kernel_rings: The number of buffers of lo2io's programs.

    Attributes:
        nr_hits: Number of requests or calls that were slow enough.
        nr_fired: Number of dumps that were requested and not refused.

    Raises:
        UsageError: The events that the trigger needs are not recorded.
        CaptureError: There is not enough memory.
    """

    def __init__(
        self,
        trigger: Trigger,
        layout: Layout,
        nr_rings: int,
        devices: Sequence[BlockDevice],
        nr_kernel_rings: int = 0,
    ) -> None:
        self.trigger = trigger
        self.nr_hits = 0
        self.nr_fired = 0
        self._nr_rings = nr_rings
        self._nr_gathered = 0
        self._looked_ns = 0
        self._names = {device.device: device.name for device in devices}
        self._pairs = _call_pairs(trigger, layout) if trigger.calls else [_block_pair(trigger, layout)]
        types = ffi.new("uint16_t[]", [event.type for pair in self._pairs for event in pair])
        block = ffi.NULL if trigger.calls else _native_events(self._pairs[0])
        disks = ffi.new("uint32_t[]", [disk.device for disk in trigger.devices or ()])
        config = ffi.new(
            "lo2_watch_config *",
            {
                "nr_rings": nr_rings + nr_kernel_rings,
                "type_offset": layout.type_offset,
                "tid_offset": layout.pid_offset,
                "types": types,
                "nr_pairs": len(self._pairs),
                "block": block,
                "operations": sum(1 << operation for operation in trigger.operations),
                "devices": disks,
                "nr_devices": len(disks),
                "least_ns": trigger.least_ns,
            },
        )
        self._native = lib.lo2_watch_new(config)
        if self._native == ffi.NULL:
            raise CaptureError(f"trigger by {trigger.text!r}", "out of memory", "free some")
        weakref.finalize(self, lib.lo2_watch_free, self._native)
        self._hits = ffi.new("lo2_hit[]", MAX_HITS)

    def feed(self, index: int, views: Sequence[memoryview], *, of_programs: bool = False) -> None:
        """Look at bytes just drained from a buffer of perf, or of lo2io's programs."""
        number = index + self._nr_rings * of_programs
        for view in views:
            with ffi.from_buffer("uint8_t[]", view) as content:
                self._nr_gathered = lib.lo2_watch_feed(self._native, number, of_programs, content, len(view))

    @property
    def is_due(self) -> bool:
        """True if it is time to drain all buffers and call :meth:`take_hits`."""
        late = time.monotonic_ns() - self._looked_ns >= PERIOD_NS
        return self._nr_gathered > 0 and (late or self._nr_gathered >= MANY)

    def take_hits(self, converters: Container[int] = ()) -> list[str]:
        """The slow requests or calls since the last call, in words. Drain every buffer before.

        Calls of lo2io and of its converters do not count.

        Args:
            converters: Their pids.
        """
        count = lib.lo2_watch_hits(self._native, self._hits, MAX_HITS)
        self._nr_gathered = 0
        self._looked_ns = time.monotonic_ns()
        hits = [self._hits[index] for index in range(count)]
        if self.trigger.calls:
            tids = {hit.owner for hit in hits}
            threads = {tid: _describe_thread(tid) for tid in tids if not _is_own(tid, converters)}
            lines = [self._describe_call(hit, threads[hit.owner]) for hit in hits if hit.owner in threads]
        else:
            lines = [self._describe_request(hit) for hit in hits]
        self.nr_hits += len(lines)
        return lines

    def summary(self) -> str:
        """The number of hits and dumps, in words, for the end of the recording."""
        what = "call" if self.trigger.calls else "request"
        forgotten = lib.lo2_watch_forgotten(self._native)
        text = (
            f"the trigger {self.trigger.text!r} was met by {self.nr_hits:,} {what}{'' if self.nr_hits == 1 else 's'} "
            f"and had {self.nr_fired:,} window{'' if self.nr_fired == 1 else 's'} written"
        )
        if not forgotten:
            return text
        return f"{text}; {forgotten:,} were not followed to their ends: records were lost, or too many were under way"

    def _describe_call(self, hit: Any, thread: str) -> str:
        call = load_catalog().calls[self._pairs[hit.pair][0].call]
        return f"{call.abi_name} of {thread} took {format_duration(hit.end_ns - hit.begin_ns)}"

    def _describe_request(self, hit: Any) -> str:
        name = self._names.get(hit.owner, f"{hit.owner >> 20}:{hit.owner & 0xFFFFF}")
        operation = RequestOp(hit.operation).name.lower()
        return f"a {operation} at sector {hit.sector} of {name} took {format_duration(hit.end_ns - hit.begin_ns)}"


def _block_pair(trigger: Trigger, layout: Layout) -> tuple[EventLayout, EventLayout]:
    """The events of issues and completions.

    Raises:
        UsageError: These events are not recorded.
    """
    by_role = {event.role: event for event in layout.events}
    missing = [name for role, name in _BLOCK_EVENTS.items() if role not in by_role]
    if missing:
        raise UsageError(f"trigger by {trigger.text!r}", f"{' and '.join(missing)} are not recorded", "add `-e +block`")
    return by_role[Role.RQ_ISSUE], by_role[Role.RQ_COMPLETE]


def _call_pairs(trigger: Trigger, layout: Layout) -> list[tuple[EventLayout, EventLayout]]:
    """The events of entry and exit of each call that is looked at and recorded.

    Raises:
        UsageError: None of these calls is recorded.
    """
    calls = load_catalog().calls
    enters = {event.call: event for event in layout.events if event.role is Role.ENTER}
    exits = {event.call: event for event in layout.events if event.role is Role.EXIT}
    pairs = [(enters[call], exits[call]) for call in sorted(enters.keys() & exits.keys())]
    pairs = [pair for pair in pairs if calls[pair[0].call].name in trigger.calls]
    if not pairs:
        names = sorted(call.abi_name for call in calls if call.name in trigger.calls)
        raise UsageError(
            f"trigger by {trigger.text!r}",
            f"none of the calls it looks at is recorded: {', '.join(names)}",
            f"add `-e +{names[0]}`",
        )
    return pairs


def _native_events(layouts: Sequence[EventLayout]) -> Any:
    events = ffi.new("lo2_event[]", len(layouts))
    for native, layout in zip(events, layouts, strict=True):
        for place, field in enumerate(layout.fields):
            if field is not None:
                native.fields[place].offset = field.offset
                native.fields[place].size = field.size
                native.fields[place].is_signed = field.signed
    return events


def _is_own(tid: int, converters: Container[int]) -> bool:
    """True if a thread belongs to lo2io, to a fork of it, or to a converter. False if the thread has ended.

    A fork of lo2io has lo2io's command line. The recorded command is a child of lo2io, too, but has another one.
    """
    process = procfs.read_process_of(tid)
    if process is None or process == os.getpid() or process in converters:
        return process is not None
    command = procfs.read_command(process)
    return command is not None and command == procfs.read_command(os.getpid())


def _describe_thread(tid: int) -> str:
    stat = procfs.read_stat(tid)
    if stat is None:
        return f"thread {tid}"
    comm = stat.comm.decode("utf-8", "backslashreplace")
    return f"{''.join(each if each.isprintable() else '?' for each in comm)} (thread {tid})"
