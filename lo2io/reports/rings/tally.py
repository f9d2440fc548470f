"""One pass over each table about rings: sums by ring, opcode, path, file and process.

In: a trace, streamed. Out: arrays by slot. A slot is one of the busiest rings; the last slot is all other rings. This
module knows no names. Memory: some MB a listed ring, some bytes a ring, file and process, nothing for a request.
"""

from __future__ import annotations

import enum
from collections import Counter
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from lo2io.model import UNKNOWN_I64, RingPath, RingStatus
from lo2io.model.number_sets import distinct
from lo2io.native._lib import lib
from lo2io.reports.rings.works import WorkTimes
from lo2io.reports.summary.histogram import LatencyHistograms
from lo2io.reports.summary.tally import read_ahead

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from lo2io.model import Columns
    from lo2io.reports.summary.owners import Owners
    from lo2io.reports.summary.paths import Paths
    from lo2io.trace.reader import Trace

NR_OPCODES: Final = 256
NR_PATHS: Final = len(RingPath)
NR_STATUSES: Final = len(RingStatus)
NR_SIZES: Final = 34
"""Sizes of batches: 0, 1, 2, up to 4, up to 8 and so on, up to 2^32."""
MAX_CULPRITS: Final = 1 << 16
"""Requests that broke a chain and are looked up. Further ones are only counted."""
_ASYNC: Final = 1 << 4
"""IOSQE_ASYNC (include/uapi/linux/io_uring.h)."""
_INFERRED_WORK: Final = lib.LO2_INFERRED_WORKER | lib.LO2_INFERRED_WORK_BEGIN | lib.LO2_INFERRED_WORK_END
_ERRNO_BITS: Final = 12
_COLUMNS: Final = (
    "id", "ring", "task", "opcode", "sqe_flags", "status", "path", "traits", "inferred", "handle", "handle2",
    "submit_time_ns", "complete_time_ns", "work_begin_time_ns", "work_end_time_ns", "queued_ns", "executing_ns",
    "waiting_ns", "culprit", "bytes_result", "error", "nr_completions", "nr_polls", "nr_punts", "run_queue_ns",
    "blocked_ns",
)  # fmt: skip
_BATCH_COLUMNS: Final = ("ring", "asked", "submitted", "collected", "sleep_time_ns")
PHASES: Final = ("queued", "executing", "waiting")
WORKER_KINDS: Final = ("bounded", "unbounded", "untold", "hashed")


class PuntReason(enum.IntEnum):
    """Why a worker executed a request. The first reason that holds counts."""

    LINKED = 0
    DRAINED = 1
    ALWAYS = 2
    ASKED = 3
    POLLED = 4
    HASHED = 5
    UNTOLD = 6
    BLOCKED = 7


class RingSlots:
    """The listed rings, those with most requests and calls first, and their facts from the table ``rings``."""

    def __init__(self, trace: Trace, limit: int) -> None:
        columns = ("ring", "nr_requests", "nr_batches")
        rings, requests, batches = (trace.column("rings", column) for column in columns)
        weight = requests.astype(np.int64) + batches.astype(np.int64)
        order = np.lexsort((rings, -weight))
        self.listed: list[int] = rings[order[:limit]].tolist()
        self.nr_rings = len(rings)
        self.others = len(self.listed)
        """The slot of all rings that are not listed, and of requests without a known ring."""
        self.nr_slots = self.others + 1
        self._slot_of_ring = np.full(int(rings.max(initial=0)) + 2, self.others, np.intp)
        self._slot_of_ring[self.listed] = np.arange(self.others)

    def slots(self, ring: NDArray[np.uint32]) -> NDArray[np.intp]:
        """Slot of each ring."""
        return self._slot_of_ring[np.minimum(ring, len(self._slot_of_ring) - 1)]


class RingTally:
    """Sums of requests of rings, and of calls about rings."""

    def __init__(
        self,
        trace: Trace,
        owners: Owners,
        slots: RingSlots,
        always_async: frozenset[str],
        without_file: frozenset[str],
    ) -> None:
        self._owners = owners
        self._slots = slots
        opcodes = trace.metadata.get("opcodes", ())
        self._reads = _which(opcodes, {"read", "copy"})
        self._writes = _which(opcodes, {"write", "copy"})
        self._always, self._without_file = (np.zeros(NR_OPCODES, np.bool_) for _ in range(2))
        for which, names in ((self._always, always_async), (self._without_file, without_file)):
            which[[op["number"] for op in opcodes if op["name"] in names]] = True
        self._make_sums(slots.nr_slots, owners)
        self._make_histograms(trace)
        self.work_times = WorkTimes(trace, slots.nr_slots)
        for batch in read_ahead(trace.batches("ring_requests", _COLUMNS)):
            self._add(batch)
        self.work_times.add_waits()
        self._find_culprits(trace)
        self._add_works(trace)
        self._add_states(trace)
        self._add_batches(trace)

    def _make_sums(self, slots: int, owners: Owners) -> None:
        def sums(*shape: int) -> NDArray[np.int64]:
            return np.zeros(shape, np.int64)

        self.written, self.errors = sums(slots), sums(slots)
        self.multishot, self.multishot_completions = sums(slots), sums(slots)
        self.bytes_read, self.bytes_written = sums(slots), sums(slots)
        self.statuses = sums(slots, NR_STATUSES)
        self.path_inferred = sums(slots, NR_PATHS)
        self.path_requests = sums(slots, NR_PATHS)
        self.reasons = sums(slots, len(PuntReason))
        self.executions, self.busy_ns, self.work_inferred = sums(slots), sums(slots), sums(slots)
        self.worker_kinds = sums(slots, len(WORKER_KINDS))
        self.most_workers = sums(slots)
        self.calls, self.slept = sums(slots), sums(slots)
        self.submitting, self.submitted = sums(slots, NR_SIZES), sums(slots)
        self.collecting, self.collected = sums(slots, NR_SIZES), sums(slots)
        groups = owners.nr_groups
        self.by_group = {name: sums(groups) for name in ("requests", "errors", "read", "written", "on_workers", "ns")}
        """Sums by file, as numbered in ``Owners.groups``."""
        self.worker_files: dict[tuple[int, int], NDArray[np.int64]] = {}
        """By slot and file: requests that workers executed, and their time."""
        self.process_requests, self.process_bytes = sums(owners.nr_processes + 1), sums(owners.nr_processes + 1)
        self.ends: Counter[tuple[int, int, int, int]] = Counter()
        """By slot, status, opcode and errno: requests that were refused or cancelled."""
        self.ended_by: dict[int, tuple[int, int]] = {}
        """By id of a request that broke a chain: the slot, and the number of requests that it ended."""
        self.ended_by_others: Counter[int] = Counter()
        """By slot: the number of requests ended by those beyond :data:`MAX_CULPRITS`."""
        self.culprits: dict[int, tuple[int, int]] = {}
        """By id of a request that broke a chain and is in the trace: opcode and errno."""

    def _make_histograms(self, trace: Trace) -> None:
        keys = np.zeros(0, np.int64)
        for batch in trace.batches("ring_requests", ["ring", "opcode", "path"]):
            keys = distinct(np.append(keys, self._key(self._slots.slots(batch["ring"]), batch)))
        self.keys = keys
        """``(slot * 256 + opcode) * 7 + path`` of all combinations that occur, ascending."""
        self.key_requests, self.key_bytes, self.key_errors = (np.zeros(len(keys), np.int64) for _ in range(3))
        self.key_latency = LatencyHistograms(len(keys))
        rows = self._slots.nr_slots * NR_PATHS
        self.latency = LatencyHistograms(rows)
        self.phases = {phase: LatencyHistograms(rows) for phase in PHASES}

    @staticmethod
    def _key(slot: NDArray[np.intp], rows: Columns) -> NDArray[np.int64]:
        opcode = rows["opcode"].astype(np.int64) % NR_OPCODES
        return (slot * NR_OPCODES + opcode) * NR_PATHS + rows["path"]

    def _add(self, rows: Columns) -> None:
        slot = self._slots.slots(rows["ring"])
        moved = rows["bytes_result"] * (rows["bytes_result"] != UNKNOWN_I64)
        opcode = rows["opcode"].astype(np.int64) % NR_OPCODES
        read, written = moved * self._reads[opcode], moved * self._writes[opcode]
        failed = (rows["error"] != 0).astype(np.int64)
        multishot = (rows["traits"] & lib.LO2_TRAIT_MULTISHOT) != 0
        for sums, amount in (
            (self.written, 1),
            (self.errors, failed),
            (self.bytes_read, read),
            (self.bytes_written, written),
            (self.multishot, multishot),
            (self.multishot_completions, np.where(multishot, rows["nr_completions"], 0)),
        ):
            np.add.at(sums, slot, amount)
        np.add.at(self.statuses, (slot, rows["status"]), 1)
        np.add.at(self.path_requests, (slot, rows["path"]), 1)
        np.add.at(self.path_inferred, (slot, rows["path"]), (rows["inferred"] & lib.LO2_INFERRED_PATH) != 0)
        self._add_times(rows, slot, moved, failed)
        self._add_files(rows, slot, read, written, failed)
        process = self._owners.processes(rows["task"])
        np.add.at(self.process_requests, process, 1)
        np.add.at(self.process_bytes, process, read + written)
        self._add_ends(rows, slot, opcode)
        self.work_times.add(rows, slot)

    def _add_times(
        self, rows: Columns, slot: NDArray[np.intp], moved: NDArray[np.int64], failed: NDArray[np.int64]
    ) -> None:
        key = np.searchsorted(self.keys, self._key(slot, rows))
        np.add.at(self.key_requests, key, 1)
        np.add.at(self.key_bytes, key, moved)
        np.add.at(self.key_errors, key, failed)
        path = slot * NR_PATHS + rows["path"]
        submit, complete = rows["submit_time_ns"], rows["complete_time_ns"]
        done = (rows["status"] == RingStatus.COMPLETED) & (submit != UNKNOWN_I64) & (complete != UNKNOWN_I64)
        done &= (rows["traits"] & lib.LO2_TRAIT_MULTISHOT) == 0  # these last as long as the program likes
        lasted = complete[done] - submit[done]
        self.latency.add(path[done], lasted)
        self.key_latency.add(key[done], lasted)
        for phase, histograms in self.phases.items():
            known = done & (rows[f"{phase}_ns"] != UNKNOWN_I64)
            histograms.add(path[known], rows[f"{phase}_ns"][known])

    def _add_files(
        self,
        rows: Columns,
        slot: NDArray[np.intp],
        read: NDArray[np.int64],
        written: NDArray[np.int64],
        failed: NDArray[np.int64],
    ) -> None:
        """A copy's written bytes count for the written file, its request for the file that it read."""
        group = self._owners.groups(rows["handle"])
        copies = np.where(self._reads & self._writes, 1, 0)[rows["opcode"].astype(np.int64) % NR_OPCODES] != 0
        target = np.where(copies, self._owners.groups(rows["handle2"]), group)
        begin, end = rows["work_begin_time_ns"], rows["work_end_time_ns"]
        worked = np.where((begin != UNKNOWN_I64) & (end != UNKNOWN_I64), np.maximum(end - begin, 0), 0)
        on_worker = (rows["path"] == RingPath.WORKER) | (rows["nr_punts"] > 0)
        for name, keys, amount in (
            ("requests", group, 1),
            ("errors", group, failed),
            ("read", group, read),
            ("written", target, written),
            ("on_workers", group, on_worker),
            ("ns", group, worked),
        ):
            np.add.at(self.by_group[name], keys, amount)
        which = np.flatnonzero(on_worker)
        np.add.at(self.reasons, (slot[which], self._reason({name: rows[name][which] for name in rows})), 1)
        traits = rows["traits"][which]
        bits = (lib.LO2_TRAIT_BOUNDED, lib.LO2_TRAIT_UNBOUNDED, lib.LO2_TRAIT_HASHED)
        bounded, unbounded, hashed = ((traits & bit) != 0 for bit in bits)
        for kind, holds in enumerate((bounded, unbounded, ~(bounded | unbounded), hashed)):
            np.add.at(self.worker_kinds[:, kind], slot[which], holds)
        pairs, places = np.unique(slot[which] * self._owners.nr_groups + group[which], return_inverse=True)
        sums = np.zeros((len(pairs), 2), np.int64)
        np.add.at(sums, (places, 0), 1)
        np.add.at(sums, (places, 1), worked[which])
        for pair, row in zip(pairs.tolist(), sums, strict=True):
            place = divmod(pair, self._owners.nr_groups)
            self.worker_files[place] = self.worker_files.get(place, 0) + row

    def _reason(self, rows: Columns) -> NDArray[np.intp]:
        is_async = (rows["sqe_flags"] & _ASYNC) != 0
        opcode = rows["opcode"].astype(np.int64) % NR_OPCODES
        choices = [
            (rows["traits"] & lib.LO2_TRAIT_CONTINUED) != 0,
            (rows["traits"] & lib.LO2_TRAIT_DRAINED) != 0,
            self._always[opcode],
            is_async,
            rows["nr_polls"] > 0,
            (rows["traits"] & lib.LO2_TRAIT_HASHED) != 0,
            self._without_file[opcode],
        ]
        return np.select(choices, list(range(len(choices))), PuntReason.BLOCKED).astype(np.intp)

    def _add_ends(self, rows: Columns, slot: NDArray[np.intp], opcode: NDArray[np.int64]) -> None:
        status = rows["status"].astype(np.int64)
        which = (status == RingStatus.REFUSED) | (status == RingStatus.CANCELLED)
        error = np.abs(rows["error"][which].astype(np.int64)).clip(0, (1 << _ERRNO_BITS) - 1)
        codes = (slot[which] * NR_STATUSES + status[which]) * NR_OPCODES + opcode[which]
        for code, number in zip(*np.unique(codes << _ERRNO_BITS | error, return_counts=True), strict=True):
            place, errno = divmod(int(code), 1 << _ERRNO_BITS)
            place, op = divmod(place, NR_OPCODES)
            self.ends[(*divmod(place, NR_STATUSES), op, errno)] += int(number)
        broken = np.flatnonzero(rows["culprit"])
        culprits, first, numbers = np.unique(rows["culprit"][broken], return_index=True, return_counts=True)
        for culprit, place, number in zip(culprits.tolist(), slot[broken[first]].tolist(), numbers, strict=True):
            known = self.ended_by.get(culprit)
            if known or len(self.ended_by) < MAX_CULPRITS:
                self.ended_by[culprit] = (place, (known[1] if known else 0) + int(number))
            else:
                self.ended_by_others[place] += int(number)

    def _find_culprits(self, trace: Trace) -> None:
        wanted = np.fromiter(self.ended_by, np.uint64, len(self.ended_by))
        for batch in trace.batches("ring_requests", ["id", "opcode", "error"]) if len(wanted) else ():
            for row in np.flatnonzero(np.isin(batch["id"], wanted)).tolist():
                opcode = int(batch["opcode"][row]) % NR_OPCODES
                self.culprits[int(batch["id"][row])] = (opcode, abs(int(batch["error"][row])))

    def _add_works(self, trace: Trace) -> None:
        for batch in trace.batches("ring_works", ["ring", "inferred", "begin_time_ns", "end_time_ns"]):
            slot = self._slots.slots(batch["ring"])
            begin, end = batch["begin_time_ns"], batch["end_time_ns"]
            known = (begin != UNKNOWN_I64) & (end != UNKNOWN_I64)
            np.add.at(self.executions, slot, 1)
            np.add.at(self.busy_ns, slot, np.where(known, np.maximum(end - begin, 0), 0))
            np.add.at(self.work_inferred, slot, (batch["inferred"] & _INFERRED_WORK) != 0)

    def _add_states(self, trace: Trace) -> None:
        for batch in trace.batches("ring_states", ["ring", "workers"]):
            np.maximum.at(self.most_workers, self._slots.slots(batch["ring"]), batch["workers"].astype(np.int64))

    def _add_batches(self, trace: Trace) -> None:
        for batch in trace.batches("batches", _BATCH_COLUMNS):
            slot = self._slots.slots(batch["ring"])
            np.add.at(self.calls, slot, 1)
            np.add.at(self.slept, slot, batch["sleep_time_ns"] != UNKNOWN_I64)
            submitted, collected = batch["submitted"].astype(np.int64), batch["collected"].astype(np.int64)
            submits = (submitted >= 0) & (batch["asked"] > 0)
            for sizes, total, amount, which in (
                (self.submitting, self.submitted, submitted, submits),
                (self.collecting, self.collected, collected, collected >= 0),
            ):
                np.add.at(sizes, (slot[which], _size_bin(amount[which])), 1)
                np.add.at(total, slot[which], amount[which])

    def merge(self, paths: Paths) -> None:
        """Sum files up by path: to a reader, a file that is made anew again and again is one file."""
        self.by_group = {name: paths.merged(values) for name, values in self.by_group.items()}
        by_file, self.worker_files = self.worker_files, {}
        for (slot, group), row in by_file.items():
            place = slot, int(paths.of[group])
            self.worker_files[place] = self.worker_files.get(place, 0) + row


def _which(opcodes: Any, kinds: set[str]) -> NDArray[np.int64]:
    """1 for each opcode of these kinds, shape (256,)."""
    found = np.zeros(NR_OPCODES, np.int64)
    found[[opcode["number"] for opcode in opcodes if opcode["kind"] in kinds]] = 1
    return found


def _size_bin(sizes: NDArray[np.int64]) -> NDArray[np.intp]:
    """Bin of each size: 0 and 1 have their own; bin b has 2^(b-2) + 1 … 2^(b-1)."""
    exact = np.frexp(np.maximum(sizes - 1, 0).astype(np.float64))[1]
    return np.where(sizes > 0, exact + 1, 0).clip(0, NR_SIZES - 1).astype(np.intp)


def bin_range(number: int) -> tuple[int, int]:
    """Smallest and largest size of a bin."""
    if number <= 1:
        return number, number
    return (1 << number >> 2) + 1, 1 << number >> 1
