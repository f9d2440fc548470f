"""Requests to the servers of FUSE file systems, by file system and by what they ask for.

In: the table of these requests, and the mounts of the metadata. Out: a :class:`FuseSummary`.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

import numpy as np

from lo2io.catalog.fuse_opcodes import NR_OPCODES, load_opcodes
from lo2io.frozen import dataclass
from lo2io.model import UNKNOWN_I64
from lo2io.model.number_sets import distinct
from lo2io.units import split_kernel_dev

if TYPE_CHECKING:
    from lo2io.reports.summary.sums import TraceSums
    from lo2io.trace.reader import Trace

MAX_ROWS: Final = 100
"""Rows listed by the time of their requests."""


@dataclass(frozen=True, slots=True)
class FuseRow:
    """The requests of one kind to one file system's server."""

    mount_point: str | None
    """None: the recording knows no mount of the file system."""
    connection: str
    """The file system's number, as major:minor."""
    opcode: str
    requests: int
    in_flight: int
    """Of them, had not ended when the recording did."""
    errors: int
    time_ns: int
    """From sending to end, added up over those that ended."""
    longest_ns: int
    bytes_sent: int
    """Messages with their headers."""
    bytes_replied: int


@dataclass(frozen=True, slots=True)
class FuseSummary:
    """What recorded threads asked the servers of FUSE file systems."""

    requests: int
    in_flight: int
    outside_calls: int
    """Of them, sent in no recorded call: by read-ahead and write-back of the kernel, say."""
    rows: tuple[FuseRow, ...]


def summarize_fuse(sums: TraceSums) -> FuseSummary | None:
    """Sum up the requests; None: the layer was not recorded, or there was none.

    Raises:
        TraceError: A table is missing or damaged.
    """
    trace = sums.trace
    if not trace.rows("fuse_requests"):
        return None
    found: dict[int, list[int]] = {}
    in_flight = outside = number = 0
    columns = (
        "connection",
        "opcode",
        "operation",
        "begin_time_ns",
        "end_time_ns",
        "bytes_sent",
        "bytes_replied",
        "error",
    )
    for rows in trace.batches("fuse_requests", columns):
        ended = rows["end_time_ns"] != UNKNOWN_I64
        lasted = np.where(ended, rows["end_time_ns"] - rows["begin_time_ns"], 0)
        replied = np.where(ended, rows["bytes_replied"], 0)
        key = rows["connection"].astype(np.int64) * NR_OPCODES + rows["opcode"]
        numbers = np.stack(
            [np.ones(len(key), np.int64), ~ended, rows["error"] != 0, lasted, rows["bytes_sent"], replied], 1
        )
        for each in distinct(key).tolist():
            mine = key == each
            known = found.get(each, [0] * 7)
            added = numbers[mine].sum(axis=0).tolist()
            longest = max(known[-1], int(lasted[mine].max()))
            found[each] = [*(old + new for old, new in zip(known[:-1], added, strict=True)), longest]
        number += len(key)
        in_flight += int(np.count_nonzero(~ended))
        outside += int(np.count_nonzero(rows["operation"] == 0))
    shown = sorted(found, key=lambda each: -found[each][3])[:MAX_ROWS]
    places = _mount_points(trace)
    return FuseSummary(number, in_flight, outside, tuple(_row(each, found[each], places) for each in shown))


def _row(key: int, numbers: list[int], places: dict[tuple[int, int], str]) -> FuseRow:
    device = split_kernel_dev(key // NR_OPCODES)
    requests, in_flight, errors, time_ns, sent, replied, longest = numbers
    return FuseRow(
        mount_point=places.get(device),
        connection=f"{device[0]}:{device[1]}",
        opcode=load_opcodes()[key % NR_OPCODES],
        requests=requests,
        in_flight=in_flight,
        errors=errors,
        time_ns=time_ns,
        longest_ns=longest,
        bytes_sent=sent,
        bytes_replied=replied,
    )


def _mount_points(trace: Trace) -> dict[tuple[int, int], str]:
    """Where each file system is mounted first, by its numbers."""
    found: dict[tuple[int, int], str] = {}
    for mount in trace.metadata.get("mounts", ()):
        found.setdefault((os.major(mount["device"]), os.minor(mount["device"])), mount["mount_point"])
    return found
