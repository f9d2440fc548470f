"""Definitions for io_uring and libaio: attributes, texts, handles, and the locations of rings' metrics.

The native loop numbers texts, handles and metrics in the order of first use. They get their names here, where the rows
of the rings are known.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from lo2io.model import CallKind, RingPath, RingStatus
from lo2io.native._lib import ffi, lib
from lo2io.otf2.library import UNDEFINED_U32
from lo2io.otf2.values import value
from lo2io.otf2.write.parts import HOST_NODE
from lo2io.otf2.write.rows import known
from lo2io.trace.columns import CACHE_VERDICT, WRITE_REASON
from lo2io.trace.ring_columns import RING_INFERRED, RING_TRAITS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from lo2io.model import OpcodeSpec
    from lo2io.otf2.write.handles import HandleTable
    from lo2io.otf2.write.parts import Parts, Trace
    from lo2io.otf2.write.rows import RingRow
    from lo2io.otf2.write.shared import Groups

RING_ATTRIBUTES: Final = {
    "ring": ("io_uring ring", "Ring of the request, or of the call: an io_uring, or a context of libaio", "STRING"),
    "user_data": ("io_uring user_data", "As the program chose it", "UINT64"),
    "sqe_flags": ("io_uring SQE flags", "IOSQE_*; the kernel may have set ASYNC or DRAIN itself", "STRING"),
    "previous": ("io_uring previous request", "The request it is linked after: its matching id", "UINT64"),
    "path": ("io_uring path", "The way the request went: inline, device, poll, worker, refused, cancelled", "STRING"),
    "status": ("io_uring status", "How the request ended, if it was not simply completed", "STRING"),
    "traits": ("io_uring traits", "What else is known of the request's way", "STRING"),
    "inferred": ("io_uring inferred", "What was inferred here, for the kernel does not state it", "STRING"),
    "worker": ("io_uring worker", "Thread that executed the request last, a worker of the ring", "UINT64"),
    "waker": ("io_uring waker", "Thread that woke the request last; 0: an interrupt on an idle CPU", "UINT64"),
    "queued": ("io_uring queued", "From submission to the first execution, in ns", "UINT64"),
    "executing": ("io_uring executing", "All executions that are known, in ns", "UINT64"),
    "waiting": ("io_uring waiting", "From submission to completion, neither queued nor executing, in ns", "UINT64"),
    "work_run_queue": (
        "io_uring run queue",
        "Time in ns in which a worker executed the request and could run, and others had the CPUs",
        "UINT64",
    ),
    "work_blocked": ("io_uring blocked", "Time in ns in which a worker executed the request and waited", "UINT64"),
    "result": ("io_uring result", "Of the last completion, as the kernel gave it", "INT32"),
    "culprit": ("io_uring culprit", "The request whose failure ended this one: its matching id", "UINT64"),
    "ring_handle": ("io_uring file", "The file, which was not known when the request began", "IO_HANDLE"),
    "ring_request": (
        "io_uring request",
        "The request that caused this or is executed here: its matching id",
        "UINT64",
    ),
    "queue_delay": ("io_uring queue delay", "From being handed to the workers to the execution, in ns", "UINT64"),
    "asked": ("asked", "Requests to submit, or events to collect, at most", "UINT32"),
    "wanted": ("wanted", "Completions to wait for", "UINT32"),
    "submitted": ("submitted", "Requests that were submitted", "UINT32"),
    "completed": ("completed", "Completions that came to the ring during the call; of libaio: collected", "UINT32"),
}
"""Members of ``lo2_otf2_attributes`` after the first ones. Only traces with requests or calls of rings define them."""

_SQE_FLAGS: Final = {
    1: "FIXED_FILE",
    2: "IO_DRAIN",
    4: "IO_LINK",
    8: "IO_HARDLINK",
    16: "ASYNC",
    32: "BUFFER_SELECT",
    64: "CQE_SKIP_SUCCESS",
    128: "bit 7",
}
"""include/uapi/linux/io_uring.h, io_uring_sqe_flags_bit."""
_KINDS: Final = ("io_uring", "libaio context")
_MODES: Final = {"read": "READ", "write": "WRITE"}


def native_opcodes(opcodes: Mapping[int, OpcodeSpec]) -> Any:
    """``lo2_otf2_opcode[]`` by number. Unknown opcodes count as flushes, since OTF2 has no better mode."""
    flush = value("IO_OPERATION_MODE_FLUSH"), False, False
    table = [flush] * (max(opcodes, default=-1) + 1)
    for number, spec in opcodes.items():
        mode = value(f"IO_OPERATION_MODE_{_MODES.get(spec.io_mode, 'FLUSH')}")
        table[number] = mode, spec.kind == CallKind.COPY, spec.io_mode == "none"
    return ffi.new("lo2_otf2_opcode[]", table)


def ring_texts(trace: Trace) -> dict[int, str]:
    """Reference of a string that events name → text."""
    view = trace.view
    return {text.ref: _text(trace, text.kind, text.key) for text in (view.texts[i] for i in range(view.nr_texts))}


def _text(trace: Trace, kind: int, key: int) -> str:
    if kind in {lib.LO2_OTF2_TEXT_RING, lib.LO2_OTF2_TEXT_OPCODE}:
        return ring_name(trace, key) if kind == lib.LO2_OTF2_TEXT_RING else trace.opcode_name(key)
    if kind == lib.LO2_OTF2_TEXT_STACK:
        return trace.stacks.get(key, "?")
    if kind in {lib.LO2_OTF2_TEXT_PATH, lib.LO2_OTF2_TEXT_STATUS}:
        return _member(RingPath if kind == lib.LO2_OTF2_TEXT_PATH else RingStatus, key)
    if kind == lib.LO2_OTF2_TEXT_SQE_FLAGS:
        return "|".join(_names(_SQE_FLAGS, key))
    if kind in {lib.LO2_OTF2_TEXT_CACHE, lib.LO2_OTF2_TEXT_REASON}:
        return (CACHE_VERDICT if kind == lib.LO2_OTF2_TEXT_CACHE else WRITE_REASON)[key]
    return ", ".join(_names(RING_TRAITS if kind == lib.LO2_OTF2_TEXT_TRAITS else RING_INFERRED, key))


def _member(kind: type[RingPath | RingStatus], code: int) -> str:
    return next((member.name.lower().replace("_", " ") for member in kind if member == code), f"code {code}")


def _names(names: Mapping[int, str], bits: int) -> Iterator[str]:
    return (names.get(1 << bit, f"bit {bit}") for bit in range(bits.bit_length()) if bits >> bit & 1)


def ring_name(trace: Trace, ring: int) -> str:
    """The name of a ring: ``ring 3: io_uring fd 5 of process 100``. The number is the row of the rings table."""
    row = trace.rows.rings.get(ring)
    if row is None:
        return f"ring {ring}" if known(ring) else "unknown ring"
    return f"ring {ring}: {_KINDS[bool(row.kind)]}{_place(row)}" + (f" of process {row.pid}" if known(row.pid) else "")


def _place(row: RingRow | None) -> str:
    """The fd or address by which the process knows the ring."""
    if row is not None and row.kind:
        return f" {row.context:#x}"
    return "" if row is None or row.fd < 0 else f" fd {row.fd}"


def write_ring_metrics(parts: Parts, groups: Groups) -> None:
    """Write the locations of rings' metrics, in the groups of the rings' processes."""
    trace = parts.trace
    view = trace.view
    nobody: int | None = None
    own = set()
    for location in range(view.nr_locations):
        kind, ring = view.locations[location].kind, view.locations[location].key
        if kind not in {lib.LO2_OTF2_RING_STATES, lib.LO2_OTF2_RING_BATCHES}:
            continue
        what = "states" if kind == lib.LO2_OTF2_RING_STATES else "batches"
        if view.locations[location].shared:
            group, whose = groups.shared(view.locations[location])
            parts.location(location, f"{what} of rings of {whose} in turn", group, "METRIC")
            parts.scopes[location] = ("LOCATION_GROUP", group)
            continue
        own.add(ring)
        row = trace.rows.rings.get(ring)
        place = groups.find(row.process) if row is not None else None
        if place is None:
            nobody = place = nobody if nobody is not None else parts.group("other rings", HOST_NODE, kind="UNKNOWN")
        group = place
        parts.location(location, f"{what} of {ring_name(trace, ring)}", group, "METRIC")
        parts.scopes[location] = ("LOCATION_GROUP", group)
        if row is not None:
            _write_properties(parts, location, row)
    if any(view.locations[location].shared for location in range(view.nr_locations)):
        _write_shared_rings(parts, groups, own)


def _write_shared_rings(parts: Parts, groups: Groups, own: set[int]) -> None:
    """Write the facts of rings without a location of their own as properties of their process' group."""
    for ring, row in sorted(parts.trace.rows.rings.items()):
        facts = {name: number for name, number in _facts(row) if number is not None}
        if ring in own or not facts:
            continue
        group = groups.find(row.process)
        text = ", ".join(f"{name} {number}" for name, number in facts.items())
        name = ring_name(parts.trace, ring)
        parts.text_property("LocationGroupProperty", groups.common() if group is None else group, name, text)


def _facts(row: RingRow) -> tuple[tuple[str, int | None], ...]:
    return (
        ("lo2io ring", row.ring),
        ("Submission queue entries", row.sq_entries or None),
        ("Completion queue entries", row.cq_entries or None),
        ("Setup flags", row.flags if not row.kind and known(row.flags) else None),
    )


def _write_properties(parts: Parts, location: int, row: RingRow) -> None:
    for name, number in _facts(row):
        if number is not None:
            parts.number_property("LocationProperty", location, name, number)


def kinds_of_ring_handles(trace: Trace) -> list[int]:
    """The kind of ring of each of the view's ring handles: 0 io_uring, 1 libaio."""
    view, rings = trace.view, trace.rows.rings
    rows = (rings.get(view.ring_handles[index].ring) for index in range(view.nr_ring_handles))
    return [0 if row is None else int(row.kind) for row in rows]


def define_ring_handles(parts: Parts, table: HandleTable, paradigms: Mapping[int, int]) -> None:
    """Define the handles of requests, on a file or on the ring itself. ``paradigms``: kind of ring → paradigm."""
    trace = parts.trace
    view = trace.view
    handles = [view.ring_handles[index] for index in range(view.nr_ring_handles)]
    kinds = kinds_of_ring_handles(trace)
    for kind, paradigm in paradigms.items():
        mine = [handle for handle, of in zip(handles, kinds, strict=True) if of == kind]
        on_files = [(handle.ref, handle.handle) for handle in mine if known(handle.handle)]
        refs, numbers = np.array(on_files, np.uint32).reshape(-1, 2).T
        table.mirror(refs, numbers, paradigm)
        for handle in mine:
            if not known(handle.handle) and handle.ref in table:
                name = parts.out.string(_KINDS[kind] + _place(trace.rows.rings.get(handle.ring)))
                flags, access = value("IO_HANDLE_FLAG_PRE_CREATED"), value("IO_ACCESS_MODE_READ_WRITE")
                table.replace(handle.ref, name, UNDEFINED_U32, flags, access, paradigm=paradigm)
