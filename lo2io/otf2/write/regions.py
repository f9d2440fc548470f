"""Definitions of regions and calling contexts, and of the groups by which viewers colour them."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any, NamedTuple

from lo2io.catalog.wait_reasons import load_reasons
from lo2io.model import CallClass, CallKind, RequestOp
from lo2io.native._lib import lib
from lo2io.otf2.library import UNDEFINED_U32
from lo2io.otf2.values import value
from lo2io.otf2.write.archive import MAX_MEMBERS
from lo2io.otf2.write.rows import REQUEST_NAMES
from lo2io.otf2.write.shared import LIFE, life_words

if TYPE_CHECKING:
    from lo2io.otf2.write.parts import Parts, Trace

_CALL_GROUPS = {
    CallKind.READ: "I/O read",
    CallKind.WRITE: "I/O write",
    CallKind.SYNC: "I/O sync",
    CallKind.COPY: "I/O copy",
    CallKind.OPEN: "I/O open and close",
    CallKind.CLOSE: "I/O open and close",
    CallKind.CLOSE_RANGE: "I/O open and close",
    CallKind.SEEK: "I/O seek",
    CallKind.DUP: "I/O descriptors",
    CallKind.DUP_TO: "I/O descriptors",
    CallKind.FCNTL: "I/O descriptors",
    CallKind.IOCTL: "I/O descriptors",
    CallKind.CLONE: "Processes",
    CallKind.UNSHARE: "Processes",
    CallKind.META: "I/O metadata",
    CallKind.RING_SETUP: "I/O open and close",
    CallKind.RING_ENTER: "I/O batches",
    CallKind.AIO_SETUP: "I/O open and close",
    CallKind.AIO_SUBMIT: "I/O batches",
    CallKind.AIO_COLLECT: "I/O batches",
    CallKind.AIO_DESTROY: "I/O open and close",
    CallKind.RING_REGISTER: "I/O metadata",
}
_CLASS_GROUPS = {CallClass.FUTEX: "Futexes"}
"""Calls that are about no file, whatever their kind."""
_OFF_CPU = (
    ("preempted", "The thread could have run: another had its CPU"),
    ("waiting for device", "Waiting while a block request of its own was under way"),
    ("blocked", "In an uninterruptible wait, no block request of its own under way"),
    ("sleeping", "In an interruptible wait, no block request of its own under way"),
)
"""Name and description of each ``enum lo2_off_state``."""
_WITHOUT_STACK = {
    lib.LO2_WAIT_SHORT: "A wait too short for a look at its cause",
    lib.LO2_WAIT_SHORT_IO: "A wait for I/O too short for a look at its cause",
    lib.LO2_WAIT_OTHER: "Waiting in the kernel, at a place that lo2io does not know",
}
"""Description of the reasons that no function of the kernel tells."""


class _Region(NamedTuple):
    name: str
    canonical: str
    description: str
    role: str
    group: str
    paradigm: str = "NONE"


def write_regions(parts: Parts) -> None:
    """Write the regions that events name, in the order of their references, and their groups."""
    out, trace = parts.out, parts.trace
    groups: dict[str, list[int]] = {}
    view = trace.view
    for ref in range(view.nr_regions):
        region = _describe(trace, view.regions[ref])
        texts = (out.string(text) for text in (region.name, region.canonical, region.description))
        role, paradigm = value(f"REGION_ROLE_{region.role.upper()}"), value(f"PARADIGM_{region.paradigm}")
        out.write("Region", ref, *texts, role, paradigm, value("REGION_FLAG_NONE"), out.string(""), 0, 0)
        groups.setdefault(region.group, []).append(ref)
    pieces = [
        (name, members[at : at + MAX_MEMBERS])
        for name, members in sorted(groups.items())
        for at in range(0, len(members), MAX_MEMBERS)
    ]
    for ref, (name, members) in enumerate(pieces):
        array = (ctypes.c_uint64 * len(members))(*members)
        kind, none = value("GROUP_TYPE_REGIONS"), value("PARADIGM_NONE")
        out.write("Group", ref, out.string(name), kind, none, value("GROUP_FLAG_NONE"), len(members), array)


def write_contexts(parts: Parts, *, samples: bool) -> None:
    """Write the calling contexts, each after its parent, and the interrupt generator, whose period is one event."""
    view = parts.trace.view
    for ref in range(view.nr_contexts):
        context = view.contexts[ref]
        parts.out.write("CallingContext", ref, context.region, UNDEFINED_U32, context.parent)
    if samples:
        mode, base = value("INTERRUPT_GENERATOR_MODE_COUNT"), value("BASE_DECIMAL")
        parts.out.write("InterruptGenerator", 0, parts.out.string("block events"), mode, base, 0, 1)


def _describe(trace: Trace, region: Any) -> _Region:
    if region.kind == lib.LO2_OTF2_CALL:
        spec = trace.calls[region.key]
        group = _CLASS_GROUPS.get(spec.report_class, _CALL_GROUPS[spec.kind])
        return _Region(spec.abi_name, spec.name, spec.summary, spec.region_role, group)
    if region.kind == lib.LO2_OTF2_OFF_CPU:
        name, meaning = _describe_stretch(region.key)
        return _Region(name, name, meaning, "ARTIFICIAL", "off CPU")
    if region.kind == lib.LO2_OTF2_REQUEST:
        name = f"{trace.device_name(region.key)} {REQUEST_NAMES[RequestOp(region.operation)]}"
        # A region of this paradigm is only sampled and never entered (OTF2_GeneralDefinitions.h).
        return _Region(name, name, "Block request", "FILE_IO", "block I/O", "SAMPLING")
    if region.kind == lib.LO2_OTF2_RING_WORK:
        return _describe_work(trace, region.key)
    return _describe_thread(trace, region)


def _describe_stretch(key: int) -> tuple[str, str]:
    """Name and description of a stretch without a CPU."""
    if key == lib.LO2_OTF2_RUN_QUEUE:
        return "run queue", "The thread could run again, and waited for a CPU"
    if key < len(_OFF_CPU):
        return _OFF_CPU[key]
    reason = key - lib.LO2_OTF2_REASONS
    reasons = load_reasons()
    first: int = lib.LO2_WAIT_FIRST_KNOWN
    known = reasons.known[reason - first].summary if reason >= first else _WITHOUT_STACK.get(reason, "")
    return f"waits: {reasons.names[reason]}", f"Waiting for {known}" if reason >= first else known


def _describe_thread(trace: Trace, region: Any) -> _Region:
    if region.kind == lib.LO2_OTF2_LIFE:
        name, text = life_words(trace, region.key)
        return _Region(name, LIFE, text, "CODE", "threads in turn")
    row = trace.rows.tasks.get(region.key) if region.kind == lib.LO2_OTF2_RUNNING else None
    if row is not None:
        return _Region(f"{row.comm or 'thread'} {row.tid}", str(row.tid), "Thread on a CPU", "CODE", "threads on CPUs")
    own = region.kind == lib.LO2_OTF2_STRANGER and region.key == trace.meta.recorder_pid
    name = f"lo2io {region.key}" if own else f"thread {region.key}"
    return _Region(name, name, "Thread on a CPU, not recorded", "CODE", "threads on CPUs")


def _describe_work(trace: Trace, opcode: int) -> _Region:
    name = trace.opcode_name(opcode)
    spec = trace.opcodes.get(opcode)
    role = "FILE_IO" if spec is not None and spec.io_mode != "none" else "FILE_IO_METADATA"
    text = "A worker thread executes a request of a ring"
    return _Region(f"io_uring worker: {name}", name, text, role, "io_uring workers")
