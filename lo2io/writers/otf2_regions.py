"""Definitions of regions: what a thread can be in, and the groups that viewers colour by."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING

from lo2io.model import CallKind
from lo2io.writers.otf2_library import value
from lo2io.writers.otf2_rows import known

if TYPE_CHECKING:
    from lo2io.writers.otf2_parts import Parts

_KINDS = {
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
}


def write_regions(parts: Parts) -> None:
    """The regions that events name, in the order of their references, and their groups."""
    out, trace = parts.out, parts.trace
    groups: dict[str, list[int]] = {}
    regions = trace.view.regions
    used = {regions[code]: spec for code, spec in enumerate(trace.calls) if known(regions[code])}
    for ref, spec in sorted(used.items(), key=lambda item: item[0]):
        role = value(f"REGION_ROLE_{spec.region_role.upper()}")
        names = (out.string(text) for text in (spec.abi_name, spec.name, spec.summary))
        none = value("PARADIGM_NONE"), value("REGION_FLAG_NONE")
        out.write("Region", ref, *names, role, *none, out.string(""), 0, 0)
        groups.setdefault(_KINDS[spec.kind], []).append(ref)
    for ref, (name, members) in enumerate(sorted(groups.items())):
        array = (ctypes.c_uint64 * len(members))(*members)
        kind, paradigm, flags = value("GROUP_TYPE_REGIONS"), value("PARADIGM_NONE"), value("GROUP_FLAG_NONE")
        out.write("Group", ref, out.string(name), kind, paradigm, flags, len(members), array)
