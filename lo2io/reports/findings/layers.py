"""Rules about what lies between calls and the disk: locks, the journal, dirty pages and the page cache.

Each rule takes the sums and gives findings. Rows are calls of ``operations``. Without the layer that it needs, a rule
finds nothing. Thresholds: docs/reference/findings.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from lo2io.model import UNKNOWN_I64, CallClass
from lo2io.reports.findings.files import are_files, file_finding, listed, of_path
from lo2io.reports.findings.finding import Finding
from lo2io.trace.columns import CACHE_VERDICT
from lo2io.units import format_bytes

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from lo2io.model import Columns
    from lo2io.reports.findings.finding import Where
    from lo2io.reports.summary.sums import TraceSums

DEAR_NS: Final = 100_000_000
"""Least time in waits: nobody notices less."""
OFTEN: Final = 0.1
"""Least part of the recording that the waits take."""
SOME: Final = 20
"""Least number of waits. One alone is an accident."""
MANY: Final = 100
"""Least number of reads that missed the page cache."""
HALF: Final = 0.5
MOSTLY: Final = 0.9
LEAST_UNUSED: Final = 4 << 20
"""Least number of bytes that were read ahead for nothing."""
SMALL_READ: Final = 64 << 10
"""Largest mean size of a read: larger ones keep a disk busy without read-ahead."""
_MISS: Final = CACHE_VERDICT.index("miss")


def lock_contention(sums: TraceSums) -> list[Finding]:
    """Calls on a file wait for a lock of the kernel that another thread holds, most often the inode's."""
    waited = sums.waits.of_file.get("lock")
    if waited is None:
        return []
    times, total_ns = (
        sums.paths.merged(_array(counts, sums.owners.nr_groups)) for counts in (waited.times, waited.total_ns)
    )
    ids = sums.waits.calls("lock")
    return listed(
        sums,
        (times >= SOME) & (total_ns >= DEAR_NS) & (total_ns >= OFTEN * sums.span_ns) & are_files(sums),
        times,
        lambda key: file_finding(
            "lock-contention",
            key,
            f"calls on it waited {times[key]:,} times for a lock that another thread held",
            evidence={"waits": times[key], "wait_ns": total_ns[key]},
            rows=times[key],
            where=_waiting_on(sums.paths.of, key, ids),
            cost_ns=total_ns[key],
        ),
    )


def journal_bound(sums: TraceSums) -> list[Finding]:
    """A process' calls that are no syncs wait for the file system's journal: somebody else's syncs fill it."""
    return _of_processes(
        sums, "journal-bound", "journal", "calls other than syncs waited {} times for the file system's journal"
    )


def throttled_writer(sums: TraceSums) -> list[Finding]:
    """The kernel slows a process down, for too many pages are dirty."""
    return _of_processes(
        sums, "throttled-writer", "throttled", "its calls were slowed down {} times: too many pages were dirty"
    )


def wasted_read_ahead(sums: TraceSums) -> list[Finding]:
    """The kernel read far more of a file in advance than was read of it later."""
    found = sums.cache.by_group
    ahead, unused, missed = (
        sums.paths.merged(values) for values in (found.ahead_bytes, found.unused_bytes, found.missed_bytes)
    )
    reads = sums.paths.merged(found.reads.sum(axis=1))
    return listed(
        sums,
        (unused >= LEAST_UNUSED) & (unused >= HALF * (ahead + missed)) & (reads > 0),
        reads,
        lambda key: file_finding(
            "wasted-read-ahead",
            key,
            f"{format_bytes(int(unused[key]))} of {format_bytes(int(ahead[key]))} read in advance were not used",
            evidence={"unused_bytes": unused[key], "ahead_bytes": ahead[key], "reads": reads[key]},
            rows=reads[key],
            where=of_path(sums, key, CallClass.READ, _moved),
        ),
    )


def no_read_ahead(sums: TraceSums) -> list[Finding]:
    """Reads in the order of the file miss the page cache again and again: the kernel does not read ahead.

    The kernel reads little ahead for a read that begins neither where the one before ended nor in the page after it
    (mm/readahead.c).
    """
    found, reads = sums.cache.by_group, sums.pattern.read
    missed, missed_bytes, ahead, wait_ns = (
        sums.paths.merged(values)
        for values in (found.reads[:, _MISS], found.missed_bytes, found.ahead_bytes, found.wait_ns)
    )
    number, sequential, consecutive, moved = (
        sums.paths.merged(values)
        for values in (reads.accesses, reads.sequential, reads.consecutive, found.bytes.sum(axis=1))
    )
    fits = (missed >= MANY) & (missed >= HALF * number) & (sequential >= MOSTLY * number)
    fits &= (ahead < missed_bytes) & (moved <= SMALL_READ * number)
    return listed(
        sums,
        fits & (wait_ns >= DEAR_NS / 2) & (wait_ns >= OFTEN * sums.span_ns) & are_files(sums),
        missed,
        lambda key: file_finding(
            "no-read-ahead",
            key,
            f"{missed[key]:,} of {number[key]:,} reads in the file's order missed the page cache, for only "
            f"{format_bytes(int(ahead[key]))} were read in advance"
            + ("" if consecutive[key] >= MOSTLY * number[key] else ": these reads leave gaps"),
            evidence={
                "misses": missed[key],
                "reads": number[key],
                "consecutive": consecutive[key],
                "missed_bytes": missed_bytes[key],
                "ahead_bytes": ahead[key],
            },
            rows=number[key],
            where=of_path(sums, key, CallClass.READ, _moved),
            cost_ns=wait_ns[key],
        ),
    )


def faults_one_by_one(sums: TraceSums) -> list[Finding]:
    """A mapped file is read by page faults, each of which waits for the disk alone."""
    if not sums.trace.rows("faults"):
        return []
    number, total_ns = np.zeros((2, sums.owners.nr_groups), np.int64)
    ids = [np.zeros(0, np.uint64)]
    for rows in sums.trace.batches("faults", ("operation", "inside", "begin_time_ns", "end_time_ns", "file")):
        known = (rows["begin_time_ns"] != UNKNOWN_I64) & (rows["file"] < sums.owners.nr_files) & ~rows["inside"]
        np.add.at(number, rows["file"][known], 1)
        np.add.at(total_ns, rows["file"][known], (rows["end_time_ns"] - rows["begin_time_ns"])[known])
        ids.append(rows["operation"][known])
    number, total_ns = sums.paths.merged(number), sums.paths.merged(total_ns)
    of_faults = np.concatenate(ids)
    return listed(
        sums,
        (number >= MANY) & (total_ns >= DEAR_NS) & (total_ns >= OFTEN * sums.span_ns),
        number,
        lambda key: file_finding(
            "faults-one-by-one",
            key,
            f"{number[key]:,} page faults on its mapping waited for the disk, one after the other",
            evidence={"faults": number[key], "fault_ns": total_ns[key]},
            rows=number[key],
            where=of_path(sums, key, CallClass.READ, lambda rows: np.isin(rows["id"], of_faults)),
            cost_ns=total_ns[key],
        ),
    )


LAYER_RULES: Final[dict[str, Callable[[TraceSums], list[Finding]]]] = {
    "lock-contention": lock_contention,
    "journal-bound": journal_bound,
    "throttled-writer": throttled_writer,
    "wasted-read-ahead": wasted_read_ahead,
    "no-read-ahead": no_read_ahead,
    "faults-one-by-one": faults_one_by_one,
}


def _of_processes(sums: TraceSums, rule: str, reason: str, text: str) -> list[Finding]:
    waited = sums.waits.of_process.get(reason)
    ids = sums.waits.calls(reason)
    least_ns = max(DEAR_NS, OFTEN * sums.span_ns)
    return [
        Finding(
            rule,
            "",
            text.format(f"{waited.times[process]:,}"),
            {"waits": waited.times[process], "wait_ns": total_ns},
            "operations",
            waited.times[process],
            _waiting_of(process, ids),
            cost_ns=total_ns,
            process=process,
        )
        for process, total_ns in (waited.total_ns.items() if waited else ())
        if waited and total_ns >= least_ns and waited.times[process] >= SOME
    ]


def _array(counts: dict[int, int], nr: int) -> NDArray[np.int64]:
    values = np.zeros(nr, np.int64)
    values[list(counts)] = list(counts.values())
    return values


def _waiting_on(of: NDArray[np.intp], key: int, ids: NDArray[np.uint64]) -> Where:
    def where(rows: Columns) -> NDArray[np.bool_]:
        found: NDArray[np.bool_] = (of[rows["group"]] == key) & np.isin(rows["id"], ids)
        return found

    return where


def _waiting_of(process: int, ids: NDArray[np.uint64]) -> Where:
    def where(rows: Columns) -> NDArray[np.bool_]:
        synced = (rows["class"] == CallClass.SYNC) | rows["synced"]
        found: NDArray[np.bool_] = (rows["process"] == process) & ~synced & np.isin(rows["id"], ids)
        return found

    return where


def _moved(rows: Columns) -> NDArray[np.bool_]:
    found: NDArray[np.bool_] = rows["moved"] > 0
    return found
