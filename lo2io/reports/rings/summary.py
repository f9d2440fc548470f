"""The numbers of rings: io_uring and libaio, ring by ring.

In: a trace's tables. Out: a :class:`RingsSummary` of plain values, which are keys of ``lo2io report --json``. The
kernel does not tell why a worker executed a request; :data:`REASONS` names the facts that lo2io infers this from.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from lo2io.errnos import error_name
from lo2io.frozen import dataclass
from lo2io.model import UNKNOWN_U32, RingPath, RingStatus
from lo2io.reports.rings.tally import (
    NR_OPCODES,
    NR_PATHS,
    PHASES,
    WORKER_KINDS,
    PuntReason,
    RingSlots,
    RingTally,
    bin_range,
)
from lo2io.reports.summary.names import file_names
from lo2io.reports.words import count_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from lo2io.reports.rings.works import WorkTimeRow
    from lo2io.reports.summary.histogram import Latency
    from lo2io.reports.summary.names import FileName, People
    from lo2io.reports.summary.owners import Owners
    from lo2io.reports.summary.paths import Paths
    from lo2io.trace.reader import Trace


@dataclass(frozen=True, slots=True)
class RingPathRow:
    """Requests that took one path. ``latency`` is from submission to last completion; other times are its phases."""

    path: str
    requests: int
    inferred: int
    """Requests for which the path is inferred, not stated by the kernel."""
    latency: Latency
    queued: Latency
    executing: Latency
    waiting: Latency


@dataclass(frozen=True, slots=True)
class RingOpcodeRow:
    """Requests of one opcode that took one path."""

    opcode: str
    path: str
    requests: int
    bytes: int
    """Bytes read, written, or both for a copy."""
    errors: int
    latency: Latency


@dataclass(frozen=True, slots=True)
class PuntRow:
    """Requests that a worker executed, for one reason."""

    reason: str
    inferred: bool
    """The kernel does not tell the reason; it follows from flags, opcode and earlier events."""
    requests: int


@dataclass(frozen=True, slots=True)
class RingFileRow:
    """Requests on one file. ``kind`` has the same values as in :class:`~lo2io.reports.summary.summary.FileRow`."""

    kind: str
    path: str | None
    pid: int | None
    process: str | None
    requests: int
    errors: int
    bytes_read: int
    bytes_written: int
    on_workers: int
    """Requests that worker threads executed."""
    worker_ns: int
    """Time of these executions with a known start and end."""


@dataclass(frozen=True, slots=True)
class WorkerFileRow:
    """A file of one ring: its requests that workers executed, and their time, if start and end are known."""

    kind: str
    path: str | None
    pid: int | None
    process: str | None
    requests: int
    worker_ns: int


@dataclass(frozen=True, slots=True)
class BatchSizeRow:
    """Calls that submitted (for libaio, also collected) ``least`` to ``most`` requests at once."""

    least: int
    most: int
    calls: int


@dataclass(frozen=True, slots=True)
class BatchesRow:
    """The calls about one ring. ``submitting`` counts successful calls that had a request to submit."""

    calls: int
    submitting: int
    submitted: int
    sizes: tuple[BatchSizeRow, ...]
    collecting: int
    """For libaio: calls that returned completions, or none in time."""
    collected: int
    collected_sizes: tuple[BatchSizeRow, ...]
    slept: int
    """Calls that went to sleep to wait for completions."""


@dataclass(frozen=True, slots=True)
class BrokenLinkRow:
    """Requests that ended because an earlier one of their chain failed, and the request that failed, if known."""

    opcode: str | None
    error: str | None
    culprits: int
    ended: int


@dataclass(frozen=True, slots=True)
class EndRow:
    """Requests of one opcode that were refused or cancelled (``status``), with their error."""

    status: str
    opcode: str
    error: str
    requests: int


@dataclass(frozen=True, slots=True)
class WorkersRow:
    """The kernel's worker threads of one ring's submitters."""

    born: int
    most: int
    """The largest number alive at one time."""
    executions: int
    busy_ns: int
    """Sum of all known executions."""
    inferred: int
    """Executions with an inferred start, end or thread."""
    bounded: int
    """Requests executed by workers that the kernel bounds by the number of CPUs."""
    unbounded: int
    """Requests executed by workers without this bound."""
    untold: int
    """Requests executed by workers of an unknown kind."""
    hashed: int
    """Bounded requests that ran one after the other for each file."""
    time: WorkTimeRow | None
    """Where the time of the exactly known executions went; None: no execution is known exactly."""


@dataclass(frozen=True, slots=True)
class RingRow:
    """One ring; ``kind`` None: the sum of the rings not listed.

    ``requests``, ``completions`` and the next fields are totals of the ring, also with sampling or a filter.
    ``written`` is the number of requests with a row in the trace; all fields below are about these.
    """

    kind: str | None
    """``io_uring`` or ``libaio``."""
    ring: int | None
    """Number in the table of rings."""
    pid: int | None
    process: str | None
    """Name of the process, as in :attr:`~lo2io.reports.summary.summary.ProcessRow.name`."""
    fd: int | None
    context: str
    """The kernel's address of the ring, or libaio's context."""
    sq_entries: int | None
    cq_entries: int | None
    flags: tuple[str, ...] | None
    """Flags of the ring's setup."""
    poller: bool
    """True if a thread of the kernel submits."""
    nr_files: int | None
    """The largest number of registered files."""
    nr_buffers: int | None
    requests: int
    completions: int
    overflows: int
    """Completions that found no room in the queue."""
    messages: int
    """Completions that other rings sent."""
    orphans: int
    punts: int
    most_in_flight: int
    written: int
    bytes_read: int
    bytes_written: int
    errors: int
    multishot: int
    """Requests that completed and went on. Latencies leave them out."""
    multishot_completions: int
    """Completions of these requests, all together."""
    statuses: Mapping[str, int]
    paths: tuple[RingPathRow, ...]
    opcodes: tuple[RingOpcodeRow, ...]
    punted: tuple[PuntRow, ...]
    workers: WorkersRow
    worker_files: tuple[WorkerFileRow, ...]
    """Files with requests that workers executed, by the workers' time."""
    batches: BatchesRow
    ends: tuple[EndRow, ...]
    broken_links: tuple[BrokenLinkRow, ...]


@dataclass(frozen=True, slots=True)
class RingsSummary:
    """All numbers about rings; empty for a trace without rings."""

    nr_rings: int
    requests: int
    """Requests of all rings, also with sampling or a filter."""
    libaio_untold: int
    """Requests on contexts of libaio that no program in the kernel recorded: the trace has no row for them."""
    written: int
    sample_rate: int
    bytes_read: int
    bytes_written: int
    errors: int
    rings: tuple[RingRow, ...]
    files: tuple[RingFileRow, ...]
    """Files with most bytes first."""


MAX_RINGS: Final = 20
"""Listed rings: those with most requests and calls. One row sums the rest."""
MAX_FILES: Final = 100
MAX_WORKER_FILES: Final = 10
"""Listed files of each ring."""
RING_KIND: Final = ("io_uring", "libaio")
SETUP_FLAGS: Final = (
    "IOPOLL", "SQPOLL", "SQ_AFF", "CQSIZE", "CLAMP", "ATTACH_WQ", "R_DISABLED", "SUBMIT_ALL", "COOP_TASKRUN",
    "TASKRUN_FLAG", "SQE128", "CQE32", "SINGLE_ISSUER", "DEFER_TASKRUN", "NO_MMAP", "REGISTERED_FD_ONLY",
    "NO_SQARRAY", "HYBRID_IOPOLL", "CQE_MIXED",
)  # fmt: skip
"""IORING_SETUP_*, from bit 0 on (include/uapi/linux/io_uring.h)."""
ALWAYS_ASYNC: Final = frozenset(
    {
        "FALLOCATE", "FGETXATTR", "FSETXATTR", "FSYNC", "FTRUNCATE", "GETXATTR", "LINKAT", "MADVISE",
        "MKDIRAT", "RENAMEAT", "SETXATTR", "SHUTDOWN", "SPLICE", "STATX", "SYMLINKAT", "SYNC_FILE_RANGE", "TEE",
        "UNLINKAT",
    }
)  # fmt: skip
"""Opcodes that always need a thread that may sleep: their preparation sets REQ_F_FORCE_ASYNC (io_uring/*.c, io_*_prep),
or on older kernels their execution refuses to begin in the submitter."""
WITHOUT_FILE: Final = frozenset(
    {
        "ASYNC_CANCEL", "FILES_UPDATE", "FUTEX_WAIT", "FUTEX_WAITV", "FUTEX_WAKE", "LINK_TIMEOUT", "MSG_RING", "NOP",
        "NOP128", "PIPE", "PROVIDE_BUFFERS", "REMOVE_BUFFERS", "SOCKET", "TIMEOUT", "TIMEOUT_REMOVE", "WAITID",
    }
)  # fmt: skip
"""Opcodes without a file to wait for that may go to a worker, such as the head of a chain with a draining member."""
REASONS: Final = {
    PuntReason.LINKED: ("after another on its worker (link)", False),
    PuntReason.DRAINED: ("drained: it waited for all before it", True),
    PuntReason.ALWAYS: ("the kernel never tries this opcode inline", True),
    PuntReason.ASKED: ("ASYNC, set by the program or the kernel", False),
    PuntReason.POLLED: ("would have waited again after its file was ready", True),
    PuntReason.HASHED: ("a write that would have waited, one at a time for each file", True),
    PuntReason.BLOCKED: ("would have waited, and its file cannot be polled", True),
    PuntReason.UNTOLD: ("for a reason the kernel does not tell", False),
}
"""The text, and True if the reason is inferred: from the SQE's flags, the opcode, links and earlier events."""


def summarize_rings(trace: Trace, owners: Owners, people: People, paths: Paths) -> tuple[RingsSummary, RingTally]:
    """Read the tables about rings once and sum them up; files are summed by path.

    Returns:
        The summary, and the tally behind it: the list of processes uses the sums by process.

    Raises:
        TraceError: A table is missing or damaged.
    """
    slots = RingSlots(trace, MAX_RINGS)
    tally = RingTally(trace, owners, slots, ALWAYS_ASYNC, WITHOUT_FILE)
    tally.merge(paths)
    rows = _ring_columns(trace, slots)
    most_used = _most_used(tally)
    by_workers = [_by_workers(tally, slot) for slot in range(slots.nr_slots)]
    names = file_names(trace, owners, people, [*most_used, *(group for groups in by_workers for group in groups)])
    made = _Rows(trace, tally, names)
    processes = owners.process_rows(rows["process"][: slots.others]).tolist()
    process_names = people.names(set(processes))
    rings = [
        made.ring(slot, _identity(rows, slot, process_names.get(process)), by_workers[slot])
        for slot, process in enumerate(processes)
    ]
    rest = made.ring(slots.others, _sum_of_others(rows, slots), by_workers[-1])
    if rest.requests or rest.written or rest.batches.calls:
        rings.append(rest)
    summary = RingsSummary(
        nr_rings=slots.nr_rings,
        requests=sum(ring.requests for ring in rings),
        libaio_untold=_untold(rows, tally, slots),
        written=int(tally.written.sum()),
        sample_rate=trace.metadata.get("sample_rate", 1),
        bytes_read=int(tally.bytes_read.sum()),
        bytes_written=int(tally.bytes_written.sum()),
        errors=int(tally.errors.sum()),
        rings=tuple(rings),
        files=made.files(most_used),
    )
    return summary, tally


def _untold(rows: dict[str, NDArray[Any]], tally: RingTally, slots: RingSlots) -> int:
    """Requests on contexts of libaio without a row. Those of rings that are not listed count together."""
    slot = np.minimum(np.arange(len(rows["kind"])), slots.others)
    which = (rows["kind"] == RING_KIND.index("libaio")) & (tally.written[slot] == 0)
    return int(rows["nr_requests"][which].sum())


_TOTALS: Final = {
    "requests": "nr_requests",
    "completions": "nr_completions",
    "overflows": "nr_overflows",
    "messages": "nr_messages",
    "orphans": "nr_orphans",
    "punts": "nr_punts",
    "most_in_flight": "most_in_flight",
}
_RING_COLUMNS: Final = (
    "ring", "kind", "context", "process", "pid", "fd", "sq_entries", "cq_entries", "flags", "poller", "nr_files",
    "nr_buffers", "nr_workers", *_TOTALS.values(),
)  # fmt: skip


def _ring_columns(trace: Trace, slots: RingSlots) -> dict[str, NDArray[Any]]:
    """The table of rings: first the listed ones in the order of their slots, then all others."""
    rows = {column: trace.column("rings", column) for column in _RING_COLUMNS}
    order = np.argsort(slots.slots(rows["ring"]), kind="stable")
    return {column: values[order] for column, values in rows.items()}


def _identity(rows: dict[str, NDArray[Any]], slot: int, process: str | None) -> dict[str, Any]:
    """One ring's facts from the table of rings."""
    row = {column: int(values[slot]) for column, values in rows.items()}
    return {
        "kind": RING_KIND[row["kind"]],
        "ring": row["ring"],
        "pid": None if row["pid"] == UNKNOWN_U32 else row["pid"],
        "process": process,
        "fd": None if row["fd"] < 0 else row["fd"],
        "context": f"{row['context']:#x}",
        "sq_entries": row["sq_entries"] or None,
        "cq_entries": row["cq_entries"] or None,
        "flags": None if row["flags"] == UNKNOWN_U32 or row["kind"] else setup_flags(row["flags"]),
        "poller": row["poller"] != UNKNOWN_U32,
        "nr_files": None if row["nr_files"] == UNKNOWN_U32 else row["nr_files"],
        "nr_buffers": None if row["nr_buffers"] == UNKNOWN_U32 else row["nr_buffers"],
        "born": row["nr_workers"],
        **{name: row[column] for name, column in _TOTALS.items()},
    }


def _sum_of_others(rows: dict[str, NDArray[Any]], slots: RingSlots) -> dict[str, Any]:
    """The sum of the rings that are not listed."""
    rest = {column: values[slots.others :] for column, values in rows.items()}
    unknown = dict.fromkeys(
        ("kind", "ring", "pid", "process", "fd", "sq_entries", "cq_entries", "flags", "nr_files", "nr_buffers")
    )
    totals = {name: int(rest[column].sum()) for name, column in _TOTALS.items()}
    totals["most_in_flight"] = int(rest["most_in_flight"].max(initial=0))
    number = slots.nr_rings - slots.others
    others = count_of(number, "other ring") if number else "no ring that is known"
    return {
        **unknown,
        **totals,
        "process": others,
        "context": "",
        "poller": False,
        "born": int(rest["nr_workers"].sum()),
    }


def setup_flags(flags: int) -> tuple[str, ...]:
    """Names of IORING_SETUP_* bits. A bit without a name gets its number."""
    bits = [bit for bit in range(32) if flags >> bit & 1]
    return tuple(SETUP_FLAGS[bit] if bit < len(SETUP_FLAGS) else f"bit {bit}" for bit in bits)


def _most_used(tally: RingTally) -> list[int]:
    """Files by bytes moved, then by requests."""
    sums = tally.by_group
    moved = sums["read"] + sums["written"]
    used = np.flatnonzero(sums["requests"] + sums["written"])
    order = np.lexsort((used, -sums["requests"][used], -moved[used]))
    return [int(group) for group in used[order][:MAX_FILES]]


def _by_workers(tally: RingTally, slot: int) -> list[int]:
    """Files of a ring by the workers' time, or by requests if this time is unknown."""
    found = {group: row for (place, group), row in tally.worker_files.items() if place == slot}
    order = sorted(found, key=lambda group: (-int(found[group][1]), -int(found[group][0]), group))
    return order[:MAX_WORKER_FILES]


class _Rows:
    """Makes rows from the tally."""

    def __init__(self, trace: Trace, tally: RingTally, names: dict[int, FileName]) -> None:
        self._tally = tally
        self._names = names
        self._opcodes: dict[int, str] = {
            opcode["number"]: opcode["name"] for opcode in trace.metadata.get("opcodes", ())
        }

    def _opcode(self, number: int) -> str:
        return self._opcodes.get(number, "unknown" if number == NR_OPCODES - 1 else f"opcode {number}")

    def ring(self, slot: int, identity: dict[str, Any], by_workers: list[int]) -> RingRow:
        """One ring, or the sum of those not listed."""
        tally = self._tally
        born = identity.pop("born")
        numbers = zip(
            (status.name.lower().replace("_", " ") for status in RingStatus), tally.statuses[slot], strict=True
        )
        return RingRow(
            **identity,
            written=int(tally.written[slot]),
            bytes_read=int(tally.bytes_read[slot]),
            bytes_written=int(tally.bytes_written[slot]),
            errors=int(tally.errors[slot]),
            multishot=int(tally.multishot[slot]),
            multishot_completions=int(tally.multishot_completions[slot]),
            statuses={name: int(number) for name, number in numbers if number},
            paths=self._paths(slot),
            opcodes=self._by_opcode(slot),
            punted=self._punted(slot),
            workers=WorkersRow(
                born=born,
                most=int(tally.most_workers[slot]),
                executions=int(tally.executions[slot]),
                busy_ns=int(tally.busy_ns[slot]),
                inferred=int(tally.work_inferred[slot]),
                **{kind: int(number) for kind, number in zip(WORKER_KINDS, tally.worker_kinds[slot], strict=True)},
                time=tally.work_times.row(slot),
            ),
            worker_files=tuple(
                WorkerFileRow(*self._names[group], *map(int, tally.worker_files[slot, group])) for group in by_workers
            ),
            batches=self._batches(slot),
            ends=self._ends(slot),
            broken_links=self._broken_links(slot),
        )

    def _paths(self, slot: int) -> tuple[RingPathRow, ...]:
        tally = self._tally
        rows = []
        for path in RingPath:
            place = slot * NR_PATHS + path
            phases: dict[str, Latency] = {phase: tally.phases[phase].latency(place) for phase in PHASES}
            requests, inferred = (int(sums[slot, path]) for sums in (tally.path_requests, tally.path_inferred))
            if requests:
                rows.append(RingPathRow(path.name.lower(), requests, inferred, tally.latency.latency(place), **phases))
        return tuple(sorted(rows, key=lambda row: -row.requests))

    def _by_opcode(self, slot: int) -> tuple[RingOpcodeRow, ...]:
        tally = self._tally
        width = NR_OPCODES * NR_PATHS
        first, behind = np.searchsorted(tally.keys, [slot * width, (slot + 1) * width])
        rows = []
        for index in range(first, behind):
            opcode, path = divmod(int(tally.keys[index]) - slot * width, NR_PATHS)
            requests, moved, errors = (int(s[index]) for s in (tally.key_requests, tally.key_bytes, tally.key_errors))
            name = RingPath(path).name.lower()
            rows.append(
                RingOpcodeRow(self._opcode(opcode), name, requests, moved, errors, tally.key_latency.latency(index))
            )
        return tuple(sorted(rows, key=lambda row: (-row.requests, row.opcode, row.path)))

    def _punted(self, slot: int) -> tuple[PuntRow, ...]:
        counts = self._tally.reasons[slot]
        rows = [PuntRow(*REASONS[reason], int(counts[reason])) for reason in PuntReason if counts[reason]]
        return tuple(sorted(rows, key=lambda row: -row.requests))

    def files(self, groups: list[int]) -> tuple[RingFileRow, ...]:
        """Requests on these files, over all rings."""
        sums = self._tally.by_group
        columns = ("requests", "errors", "read", "written", "on_workers", "ns")
        return tuple(
            RingFileRow(*self._names[group], *(int(sums[column][group]) for column in columns)) for group in groups
        )

    def _batches(self, slot: int) -> BatchesRow:
        tally = self._tally
        return BatchesRow(
            calls=int(tally.calls[slot]),
            submitting=int(tally.submitting[slot].sum()),
            submitted=int(tally.submitted[slot]),
            sizes=_sizes(tally.submitting[slot]),
            collecting=int(tally.collecting[slot].sum()),
            collected=int(tally.collected[slot]),
            collected_sizes=_sizes(tally.collecting[slot]),
            slept=int(tally.slept[slot]),
        )

    def _ends(self, slot: int) -> tuple[EndRow, ...]:
        found = ((key, number) for key, number in self._tally.ends.items() if key[0] == slot)
        rows = [
            EndRow(RingStatus(status).name.lower(), self._opcode(opcode), error_name(error), number)
            for (_, status, opcode, error), number in found
        ]
        return tuple(sorted(rows, key=lambda row: (-row.requests, row.status, row.opcode, row.error)))

    def _broken_links(self, slot: int) -> tuple[BrokenLinkRow, ...]:
        """Rows by opcode and error of the request that failed."""
        tally = self._tally
        culprits: Counter[tuple[int, int] | None] = Counter()
        ended: Counter[tuple[int, int] | None] = Counter()
        for culprit, (place, number) in tally.ended_by.items():
            if place == slot:
                what = tally.culprits.get(culprit)
                culprits[what] += 1
                ended[what] += number
        ended[None] += tally.ended_by_others[slot]
        rows = []
        for what, number in ended.most_common():
            opcode, error = (None, None) if what is None else (self._opcode(what[0]), error_name(what[1]))
            if number:
                rows.append(BrokenLinkRow(opcode, None if what and not what[1] else error, culprits[what], number))
        return tuple(rows)


def _sizes(counts: Sequence[int] | NDArray[np.int64]) -> tuple[BatchSizeRow, ...]:
    return tuple(BatchSizeRow(*bin_range(number), int(calls)) for number, calls in enumerate(counts) if calls)
