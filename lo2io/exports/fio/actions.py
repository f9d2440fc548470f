"""Actions that fio can repeat: programs' operations on files, or the kernel's requests to disks.

In: a trace's tables, batch by batch. Out: rows, one for each *action* (read, write, sync, datasync, trim), with time,
job, file, offset and length, in the order of their starts. This module does not know how logs are written.

An action has the number of bytes that were moved. Operations that failed or moved nothing are left out, as fio takes
both for errors. Operations that are left out are counted by reason.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from lo2io.catalog.catalog import load_catalog
from lo2io.exports.fio.owners import ALIKE, UNNAMED, Devices, Names, Owners
from lo2io.model import UNKNOWN_I64, UNKNOWN_U32, OpcodeTrait, RingStatus

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

    from lo2io.model import Columns
    from lo2io.trace.reader import Trace

READ, WRITE, SYNC, DATASYNC, TRIM = range(5)
ACTIONS: Final = ("read", "write", "sync", "datasync", "trim")
"""The actions' names in an iolog."""
COLUMNS: Final = ("time_ns", "owner", "modes", "file", "action", "offset", "length")
NO_ACTION: Final = -1
SECTOR_BYTES: Final = 512

(
    KEPT, NOT_FILE, NO_NAME, COPY, OTHER_SYNC, IN_FLIGHT, NOTHING, NO_OFFSET, OTHER_REQUEST,
) = range(9)  # fmt: skip
REASONS: Final = (
    "",
    "on pipes, sockets, terminals, folders, /proc and their like",
    "on files without a known name",
    "copies between descriptors",
    "syncs of ranges or whole file systems",
    "in flight at the end of the trace",
    "failed, or moved nothing",
    "at offsets that are not known",
    "block requests that were merged, never issued, or neither read, write, flush nor discard",
)
"""Reasons for leaving out an operation, by code. If several hold, the operation counts under the first."""
_REQUEST_ACTIONS: Final = (READ, WRITE, SYNC, TRIM)
_DATASYNC_FLAG: Final = 1
"""IORING_FSYNC_DATASYNC (include/uapi/linux/io_uring.h)."""


@dataclass(frozen=True, slots=True)
class Source:
    """Rows of one table."""

    batches: Callable[[Counter[int] | None], Iterator[Columns]]
    """Yields ``COLUMNS``, one batch of the table at a time. Given a counter, counts left out rows by code."""
    rows: int


def sources(trace: Trace, by: str) -> tuple[Owners | Devices, Names, list[Source]]:
    """The sources of all actions, with the owners of jobs and the names of files.

    Args:
        trace: A trace.
        by: The owner of a job: ``process``, ``thread`` or ``device``.

    Raises:
        TraceError: A table cannot be read.
    """
    if by == "device":
        devices = Devices(trace)
        return devices, devices.names, [Source(lambda left: _requests(trace, devices, left), trace.rows("requests"))]
    owners, names = Owners(trace, by), Names(trace)
    found = [Source(lambda left: _calls(trace, owners, names, left), trace.rows("operations"))]
    if trace.rows("ring_requests"):
        found.append(Source(lambda left: _ring_requests(trace, owners, names, left), trace.rows("ring_requests")))
    return owners, names, found


def _calls(trace: Trace, owners: Owners, names: Names, left_out: Counter[int] | None) -> Iterator[Columns]:
    kinds = [call["kind"] for call in trace.metadata["calls"]]
    syncs = {call.abi_name: call.syncs for call in load_catalog().calls}
    synced = [syncs.get(call["name"], "") for call in trace.metadata["calls"]]
    actions = np.array([_action(kind, what) for kind, what in zip(kinds, synced, strict=True)])
    refused = np.array([_refusal(kind) for kind in kinds])
    wanted = ["begin_time_ns", "end_time_ns", "task", "call", "handle", "offset_bytes", "bytes_result", "error"]
    for batch in trace.batches("operations", wanted):
        call = batch["call"].astype(np.intp)
        action, file = actions[call], names.files(batch["handle"])
        code = np.where(action == NO_ACTION, refused[call], KEPT)
        moves = (action == READ) | (action == WRITE)
        _mark(code, file, batch["offset_bytes"], batch["bytes_result"], moves)
        nothing = np.where(moves, batch["bytes_result"] <= 0, batch["error"] != 0)
        _refine(code, batch["end_time_ns"] == UNKNOWN_I64, nothing)
        rows = {
            "time_ns": batch["begin_time_ns"], "owner": owners.of_tasks(batch["task"]),
            "modes": names.modes(batch["handle"]), "file": file, "action": action,
            "offset": np.where(moves, batch["offset_bytes"], 0), "length": np.where(moves, batch["bytes_result"], 0),
        }  # fmt: skip
        yield _kept(rows, code, (action != NO_ACTION) | (refused[call] != KEPT), left_out)


def _ring_requests(trace: Trace, owners: Owners, names: Names, left_out: Counter[int] | None) -> Iterator[Columns]:
    actions, refused = np.full(256, NO_ACTION), np.full(256, KEPT)
    files = {opcode.name for opcode in load_catalog().opcodes if OpcodeTrait.RANGE in opcode.traits}
    for opcode in trace.metadata["opcodes"]:
        actions[opcode["number"]] = _action(opcode["kind"], "file" if opcode["name"] in files else "")
        refused[opcode["number"]] = _refusal(opcode["kind"])
    wanted = [
        "submit_time_ns", "issue_time_ns", "complete_time_ns", "task", "opcode", "handle", "offset_bytes",
        "bytes_request", "bytes_result", "error", "op_flags", "status",
    ]  # fmt: skip
    for batch in trace.batches("ring_requests", wanted):
        unseen = batch["status"] == RingStatus.UNSEEN  # the result is not known, so the requested bytes count
        length = np.where(unseen, batch["bytes_request"], batch["bytes_result"])
        opcode = batch["opcode"].astype(np.intp)
        action, file = actions[opcode], names.files(batch["handle"])
        known = batch["op_flags"] != UNKNOWN_U32
        action = np.where((action == SYNC) & known & (batch["op_flags"] & _DATASYNC_FLAG != 0), DATASYNC, action)
        code = np.where(action == NO_ACTION, refused[opcode], KEPT)
        moves = (action == READ) | (action == WRITE)
        time = np.where(batch["submit_time_ns"] == UNKNOWN_I64, batch["issue_time_ns"], batch["submit_time_ns"])
        _mark(code, file, batch["offset_bytes"], length, moves)
        nothing = np.where(moves, length <= 0, batch["error"] != 0)
        in_flight = ((batch["complete_time_ns"] == UNKNOWN_I64) & ~unseen) | (time == UNKNOWN_I64)
        _refine(code, in_flight, nothing)
        rows = {
            "time_ns": time, "owner": owners.of_tasks(batch["task"]), "modes": names.modes(batch["handle"]),
            "file": file, "action": action, "offset": np.where(moves, batch["offset_bytes"], 0),
            "length": np.where(moves, length, 0),
        }  # fmt: skip
        yield _kept(rows, code, (action != NO_ACTION) | (refused[opcode] != KEPT), left_out)


def _requests(trace: Trace, devices: Devices, left_out: Counter[int] | None) -> Iterator[Columns]:
    """Block requests as they were issued to the disks."""
    actions = np.array([*_REQUEST_ACTIONS, *[NO_ACTION] * (256 - len(_REQUEST_ACTIONS))])
    wanted = ["device", "issue_time_ns", "sector", "bytes_issued", "operation", "error"]
    for batch in trace.batches("requests", wanted):
        action = actions[batch["operation"].astype(np.intp)]
        time, file = batch["issue_time_ns"], devices.files(batch["device"])
        code = np.where((action == NO_ACTION) | (time == UNKNOWN_I64), OTHER_REQUEST, KEPT)
        code[(code == KEPT) & (file == UNNAMED)] = NO_NAME
        sized = (action != SYNC) & (action != NO_ACTION)
        code[(code == KEPT) & ((batch["error"] != 0) | (sized & (batch["bytes_issued"] <= 0)))] = NOTHING
        rows = {
            "time_ns": time, "owner": batch["device"].astype(np.int64), "modes": np.zeros(len(file), np.uint8),
            "file": file, "action": action,
            "offset": np.where(sized, batch["sector"].astype(np.int64) * SECTOR_BYTES, 0),
            "length": np.where(sized, batch["bytes_issued"], 0),
        }  # fmt: skip
        yield _kept(rows, code, np.ones(len(code), np.bool_), left_out)


def _action(kind: str, synced: str) -> int:
    """The action of a kind of call. ``synced`` is the part of a file that a sync covers, as in ``CallSpec.syncs``."""
    if kind == "sync" and synced:
        return DATASYNC if synced == "data" else SYNC
    return {"read": READ, "write": WRITE}.get(kind, NO_ACTION)


def _refusal(kind: str) -> int:
    """The code of the reason why a kind of call that moves or syncs data has no action; ``KEPT`` for other kinds."""
    return {"copy": COPY, "sync": OTHER_SYNC}.get(kind, KEPT)


def _mark(
    code: NDArray[Any], file: NDArray[Any], offset: NDArray[Any], moved: NDArray[Any], moves: NDArray[np.bool_]
) -> None:
    """Mark rows without a usable file or without an offset."""
    open_ = code == KEPT
    code[open_ & moves & (moved > 0) & (offset == UNKNOWN_I64)] = NO_OFFSET
    code[open_ & (file == UNNAMED)] = NO_NAME
    code[open_ & (file == ALIKE)] = NOT_FILE


def _refine(code: NDArray[Any], in_flight: NDArray[np.bool_], nothing: NDArray[np.bool_]) -> None:
    """Mark rows that did not end or did nothing."""
    code[(code == KEPT) & in_flight] = IN_FLIGHT
    code[(code == KEPT) & nothing] = NOTHING


def _kept(rows: Columns, code: NDArray[Any], concerned: NDArray[np.bool_], left_out: Counter[int] | None) -> Columns:
    """The rows to repeat. Other rows are counted, unless they are no I/O."""
    if left_out is not None:
        codes, counts = np.unique(code[concerned & (code != KEPT)], return_counts=True)
        for reason, count in zip(codes.tolist(), counts.tolist(), strict=True):
            left_out[reason] += count
    keep = concerned & (code == KEPT)
    return {name: rows[name][keep] for name in COLUMNS}
