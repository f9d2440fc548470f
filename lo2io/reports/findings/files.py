"""Rules about a file.

Each rule takes the sums and gives findings. Rows are calls of ``operations``. A rule that only counts calls counts
those of all files with the same path. A rule about bytes looks at each file. Thresholds: docs/reference/findings.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from lo2io.model import UNKNOWN_U32, CallClass
from lo2io.reports.findings.finding import MAX_PER_RULE, Finding
from lo2io.reports.summary.file_types import FileType
from lo2io.reports.summary.io import largest
from lo2io.reports.summary.names import file_names
from lo2io.reports.summary.pattern import ALIGNMENT, SMALL_BYTES, odd
from lo2io.reports.words import count_of, printable, who
from lo2io.units import format_bytes, format_duration

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from lo2io.model import Columns
    from lo2io.reports.findings.finding import Where
    from lo2io.reports.summary.sums import TraceSums

MANY: Final = 1000
"""Least number of calls that are worth saving."""
SOME: Final = 100
MOSTLY: Final = 0.9
HALF: Final = 0.5
WHOLE: Final = 0.9
"""A file counts as read whole from this many bytes read for each byte between the first and the last."""
AGAIN: Final = 2.0
"""Above this many, it is read again and again: databases do so, and a single sweep cannot replace that."""
LEAST_EXTENT: Final = 1 << 20
"""The kernel reads smaller files ahead at once."""
FEW_WRITES: Final = 4
"""Most writes for each sync. One is not enough: a database writes several times for each commit."""
OFTEN: Final = 0.1
FEW: Final = 20
"""Least number of syncs, if they take a good part of the recording: a few syncs are dear on a slow device."""
LITTLE: Final = 64 << 10
"""Most bytes for each such sync: with more, the time depends on the device's rate."""
SMALL_REQUEST: Final = 64 << 10
"""Largest mean size: larger accesses keep a device busy one at a time."""
WAITED_NS: Final = 50_000_000
"""Least time in such accesses."""
SPARE_NS: Final = 10_000_000
"""Least time in small writes, or in reads that jump; ``HUNDREDTH`` is their least part of the recording."""
HUNDREDTH: Final = 0.01
LEAST_AGAIN: Final = 16 << 20
"""Least number of bytes that came from a device a second time."""
DEAR_NS: Final = 100_000_000
"""Least time in locks. A lock that nobody else holds takes a microsecond."""
MIXED: Final = 10
"""Least number of changes between O_DIRECT and the page cache. A program that writes a file first and then
bypasses the cache makes one change."""
ODD: Final = 10
"""Least number of accesses, if none was refused. A copy's last block has an odd size, and programs may write it
without O_DIRECT."""
SHORT: Final = 10


def many_small_reads(sums: TraceSums) -> list[Finding]:
    """Most reads of a file are below 4 KiB and start near the end of the read before: one read could bring many."""
    reads = sums.pattern.read
    small, number, sequential, time_ns = (
        sums.paths.merged(values) for values in (reads.small, reads.accesses, reads.sequential, reads.time_ns)
    )
    return listed(
        sums,
        (small >= MANY) & (small >= MOSTLY * number) & (sequential >= HALF * number) & are_files(sums),
        small,
        lambda key: file_finding(
            "many-small-reads",
            key,
            f"{small[key]:,} of {number[key]:,} reads ask for less than {format_bytes(SMALL_BYTES)}, "
            f"{sequential[key]:,} go on where the one before ended, or near",
            evidence={
                "small_reads": small[key],
                "reads": number[key],
                "sequential": sequential[key],
                "time_ns": time_ns[key],
            },
            rows=small[key],
            where=of_path(sums, key, CallClass.READ, _small),
            cost_ns=time_ns[key],
        ),
    )


def many_small_writes(sums: TraceSums) -> list[Finding]:
    """Most writes to a file are below 4 KiB, near each other, and take time: a buffer could collect them."""
    writes = sums.pattern.write
    small, number, sequential, time_ns = (
        sums.paths.merged(values) for values in (writes.small, writes.accesses, writes.sequential, writes.time_ns)
    )
    many = (small >= MANY) & (small >= MOSTLY * number) & (sequential >= HALF * number)
    synced = sums.paths.merged(sums.pattern.synced_writes)
    costly = (time_ns >= SPARE_NS) & (time_ns >= HUNDREDTH * sums.span_ns) & (synced < HALF * number)
    return listed(
        sums,
        many & costly & are_files(sums),
        small,
        lambda key: file_finding(
            "many-small-writes",
            key,
            f"{small[key]:,} of {number[key]:,} writes are of less than {format_bytes(SMALL_BYTES)}, "
            f"{sequential[key]:,} go on where the one before ended, or near",
            evidence={
                "small_writes": small[key],
                "writes": number[key],
                "sequential": sequential[key],
                "time_ns": time_ns[key],
            },
            rows=small[key],
            where=of_path(sums, key, CallClass.WRITE, _small),
            cost_ns=time_ns[key],
        ),
    )


def one_at_a_time(sums: TraceSums) -> list[Finding]:
    """Small accesses wait for a device, one after the other: the device is idle between them."""
    pattern, reads, writes = sums.pattern, sums.pattern.read, sums.pattern.write
    number, alone, moved, lasted = (
        getattr(reads, name) + getattr(writes, name) for name in ("unaided", "alone", "unaided_bytes", "unaided_ns")
    )
    fits = (number >= SOME) & (alone >= MOSTLY * number) & (moved <= SMALL_REQUEST * number)
    fits &= (lasted >= WAITED_NS) & (lasted >= OFTEN * sums.span_ns)
    waited = reads.waited + writes.waited
    return listed(
        sums,
        fits,
        waited,
        lambda key: file_finding(
            "one-at-a-time",
            key,
            f"{alone[key]:,} of {number[key]:,} accesses that no read-ahead can help "
            f"({'with' if pattern.direct[key] else 'without'} O_DIRECT, {format_bytes(int(moved[key] // number[key]))} "
            "on average) waited for the device with no other of this file under way",
            evidence={
                "alone": alone[key],
                "accesses": number[key],
                "bytes": moved[key],
                "time_ns": lasted[key],
            },
            rows=waited[key],
            where=_waited_for(key),
            cost_ns=lasted[key],
        ),
    )


def random_reads_of_whole_file(sums: TraceSums) -> list[Finding]:
    """A program reads a file from end to end, but in no order. Read-ahead cannot help; one sweep would."""
    reads = sums.pattern.read
    extent, random = reads.extent(), reads.random()
    fits = (random >= SOME) & (random >= HALF * reads.placed) & (extent >= LEAST_EXTENT)
    fits &= (reads.bytes >= WHOLE * extent) & (reads.bytes <= AGAIN * extent)
    fits &= (reads.time_ns >= SPARE_NS) & (reads.time_ns >= HUNDREDTH * sums.span_ns)
    return listed(
        sums,
        fits,
        reads.accesses,
        lambda key: file_finding(
            "random-reads-of-whole-file",
            key,
            f"{random[key]:,} of {reads.placed[key]:,} reads jump, and together they moved "
            f"{format_bytes(int(reads.bytes[key]))} of the {format_bytes(int(extent[key]))} that they span",
            evidence={
                "random_reads": random[key],
                "reads": reads.placed[key],
                "bytes": reads.bytes[key],
                "extent_bytes": extent[key],
            },
            rows=reads.accesses[key],
            where=_accesses(key, CallClass.READ, _moved),
            cost_ns=reads.time_ns[key],
        ),
    )


def sync_per_write(sums: TraceSums) -> list[Finding]:
    """A sync follows every few writes. Each sync waits for the device, unless it costs almost nothing (tmpfs)."""
    pattern, time_ns = sums.pattern, sums.operations.by_group.time_ns
    writes, calls, synced, sync_ns, synced_ns, time_ns, moved = (
        sums.paths.merged(values)
        for values in (
            pattern.write.accesses,
            pattern.syncs,
            pattern.synced_writes,
            pattern.sync_ns,
            pattern.synced_write_ns,
            time_ns,
            sums.operations.by_group.bytes_written,
        )
    )
    syncs, sync_ns = calls + synced, sync_ns + synced_ns
    often = (syncs >= SOME) & (FEW_WRITES * syncs >= writes)
    dear = (syncs >= FEW) & (sync_ns >= DEAR_NS) & (sync_ns >= OFTEN * sums.span_ns) & (moved <= LITTLE * syncs)
    return listed(
        sums,
        (often | dear) & (writes > 0) & (sync_ns >= OFTEN * time_ns) & (sums.owners.types <= FileType.STORAGE),
        syncs,
        lambda key: file_finding(
            "sync-per-write",
            key,
            f"{count_of(int(syncs[key]), 'sync')} for {count_of(int(writes[key]), 'write')}"
            + (f", {synced[key]:,} by O_SYNC, O_DSYNC or their like in the write itself" if synced[key] else ""),
            evidence={
                "syncs": syncs[key],
                "synced_writes": synced[key],
                "writes": writes[key],
                "sync_ns": sync_ns[key],
            },
            rows=syncs[key],
            where=_syncsof_path(sums, key),
            cost_ns=sync_ns[key],
        ),
    )


def misaligned_direct(sums: TraceSums) -> list[Finding]:
    """O_DIRECT with an offset or a size that is no multiple of any disk's block: refused, or done through the cache."""
    pattern = sums.pattern
    return listed(
        sums,
        (pattern.misaligned >= ODD) | (pattern.invalid > 0) & (pattern.misaligned > 0),
        pattern.misaligned,
        lambda key: file_finding(
            "misaligned-direct",
            key,
            f"{pattern.misaligned[key]:,} of {pattern.direct[key]:,} accesses with O_DIRECT have an offset or a size "
            f"that is no multiple of {ALIGNMENT} B; {pattern.invalid[key]:,} failed with EINVAL",
            evidence={
                "misaligned": pattern.misaligned[key],
                "direct": pattern.direct[key],
                "invalid": pattern.invalid[key],
            },
            rows=pattern.misaligned[key],
            where=_direct_accesses(key, pattern.is_direct, odd),
        ),
    )


def mixed_direct(sums: TraceSums) -> list[Finding]:
    """Some accesses of a file bypass the page cache, others use it. Direct ones must write back or drop its pages."""
    pattern = sums.pattern
    return listed(
        sums,
        pattern.turns >= MIXED,
        pattern.direct,
        lambda key: file_finding(
            "mixed-direct",
            key,
            f"{pattern.direct[key]:,} accesses with O_DIRECT and {pattern.buffered[key]:,} through the page "
            f"cache, {pattern.turns[key]:,} changes from one to the other",
            evidence={"direct": pattern.direct[key], "buffered": pattern.buffered[key], "turns": pattern.turns[key]},
            rows=pattern.direct[key],
            where=_direct_accesses(key, pattern.is_direct, _every),
        ),
    )


def uncached_rereads(sums: TraceSums) -> list[Finding]:
    """Reads fetched more bytes from a device than they span in the file: some bytes came twice.

    Fetched are the bytes of reads that had a request at a device, or the bytes that reads put into the page cache: the
    larger number counts.
    """
    pattern, reads, cache = sums.pattern, sums.pattern.read, sums.cache.by_group
    fetched = np.maximum(reads.waited_bytes, cache.missed_bytes + cache.ahead_bytes)
    again = fetched - reads.extent()
    return listed(
        sums,
        (again >= LEAST_AGAIN) & (pattern.direct < HALF * reads.accesses),
        reads.accesses,
        lambda key: file_finding(
            "uncached-rereads",
            key,
            f"reads fetched {format_bytes(int(fetched[key]))} from a device, and span "
            f"{format_bytes(int(reads.extent([key])[0]))}: at least "
            f"{format_bytes(int(again[key]))} should have been cached",
            evidence={
                "device_bytes": fetched[key],
                "extent_bytes": reads.extent([key])[0],
                "again_bytes": again[key],
            },
            rows=reads.accesses[key],
            where=_accesses(key, CallClass.READ, _moved),
        ),
    )


def _locks_of_paths(sums: TraceSums) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.bool_]]:
    """By path: calls about locks, their time in ns, and whether it is much, also among all calls on the file."""
    locks, lock_ns, time_ns = (
        sums.paths.merged(values)
        for values in (sums.pattern.locks, sums.pattern.lock_ns, sums.operations.by_group.time_ns)
    )
    return locks, lock_ns, (lock_ns >= DEAR_NS) & (lock_ns >= OFTEN * time_ns)


def lock_storm(sums: TraceSums) -> list[Finding]:
    """Locks of a file are taken again and again and cost time, or programs wait for them."""
    locks, lock_ns, costly = _locks_of_paths(sums)
    refused = sums.paths.merged(sums.pattern.locks_refused)
    return listed(
        sums,
        ((locks >= MANY) & costly) | (refused >= SOME),
        locks,
        lambda key: file_finding(
            "lock-storm",
            key,
            f"{locks[key]:,} calls about locks, {refused[key]:,} refused",
            evidence={"locks": locks[key], "refused": refused[key], "lock_ns": lock_ns[key]},
            rows=locks[key],
            where=of_path(sums, key, CallClass.LOCK, _every),
            cost_ns=lock_ns[key],
        ),
    )


def file_lock_wait(sums: TraceSums) -> list[Finding]:
    """A few calls about locks of a file take long: most often somebody else holds one. Many calls are a lock-storm."""
    locks, lock_ns, costly = _locks_of_paths(sums)
    return listed(
        sums,
        costly & (lock_ns >= OFTEN * sums.span_ns) & (locks < MANY),
        locks,
        lambda key: file_finding(
            "file-lock-wait",
            key,
            f"{count_of(int(locks[key]), 'call')} about locks took {format_duration(float(lock_ns[key]))}",
            evidence={"locks": locks[key], "lock_ns": lock_ns[key]},
            rows=locks[key],
            where=of_path(sums, key, CallClass.LOCK, _every),
            cost_ns=lock_ns[key],
        ),
    )


def short_writes(sums: TraceSums) -> list[Finding]:
    """Writes to a file wrote less than asked: the disk is full, a limit is reached, or a signal interrupted them."""
    short, writes = (sums.paths.merged(values) for values in (sums.pattern.short_writes, sums.pattern.write.accesses))
    return listed(
        sums,
        (short >= SHORT) & are_files(sums),
        short,
        lambda key: file_finding(
            "short-writes",
            key,
            f"{short[key]:,} of {writes[key]:,} writes wrote less than was asked",
            evidence={"short_writes": short[key], "writes": writes[key]},
            rows=short[key],
            where=of_path(sums, key, CallClass.WRITE, _short),
        ),
    )


FILE_RULES: Final[dict[str, Callable[[TraceSums], list[Finding]]]] = {
    "many-small-reads": many_small_reads,
    "many-small-writes": many_small_writes,
    "random-reads-of-whole-file": random_reads_of_whole_file,
    "sync-per-write": sync_per_write,
    "one-at-a-time": one_at_a_time,
    "misaligned-direct": misaligned_direct,
    "mixed-direct": mixed_direct,
    "uncached-rereads": uncached_rereads,
    "lock-storm": lock_storm,
    "file-lock-wait": file_lock_wait,
    "short-writes": short_writes,
}


def are_files(sums: TraceSums) -> NDArray[np.bool_]:
    """True for groups that are files: no pipes or sockets, and no files without a name, which may be either."""
    found: NDArray[np.bool_] = np.isin(sums.owners.types, (FileType.STORAGE, FileType.UNKNOWN))
    found[sums.owners.nr_files :] = False
    return found


def listed(
    sums: TraceSums, fits: NDArray[np.bool_], rows: NDArray[np.int64], make: Callable[[int], Finding]
) -> list[Finding]:
    """The fitting files with most rows, and the number of the others."""
    fits = fits[: sums.owners.no_handle]  # calls without a descriptor belong to no file
    found = [make(key) for key in largest(rows[: sums.owners.no_handle] * fits, MAX_PER_RULE)]
    for finding in found[-1:]:
        finding.more = int(np.count_nonzero(fits)) - len(found)
    names = file_names(sums.trace, sums.owners, sums.people, [finding.group for finding in found])
    for finding in found:
        name = names[finding.group]
        is_named = name.kind == "named"
        finding.subject = (
            printable(name.path or "unnamed") if is_named else f"unnamed fds of {who(name.pid, name.process)}"
        )
    return found


def file_finding(
    rule: str, key: int, text: str, *, evidence: dict[str, Any], rows: Any, where: Where, cost_ns: Any = None
) -> Finding:
    """A finding about a file, by its number, whose rows are calls. :func:`listed` adds its name."""
    numbers = {what: int(value) for what, value in evidence.items()}
    cost = None if cost_ns is None else int(cost_ns)
    return Finding(rule, "", text, numbers, "operations", int(rows), where, group=key, cost_ns=cost)


def _accesses(key: int, kind: CallClass, fits: Where) -> Where:
    def where(rows: Columns) -> NDArray[np.bool_]:
        found: NDArray[np.bool_] = (rows["group"] == key) & (rows["class"] == kind) & fits(rows)
        return found

    return where


def of_path(sums: TraceSums, key: int, kind: CallClass, fits: Where) -> Where:
    """The same choice for all files with the path of this one."""
    of = sums.paths.of

    def where(rows: Columns) -> NDArray[np.bool_]:
        found: NDArray[np.bool_] = (of[rows["group"]] == key) & (rows["class"] == kind) & fits(rows)
        return found

    return where


def _syncsof_path(sums: TraceSums, key: int) -> Where:
    of = sums.paths.of

    def where(rows: Columns) -> NDArray[np.bool_]:
        syncs = (rows["class"] == CallClass.SYNC) | rows["synced"]
        found: NDArray[np.bool_] = (of[rows["group"]] == key) & syncs
        return found

    return where


def _waited_for(key: int) -> Where:
    def where(rows: Columns) -> NDArray[np.bool_]:
        found: NDArray[np.bool_] = (rows["group"] == key) & (rows["class"] <= CallClass.WRITE) & _waited(rows)
        return found

    return where


def _direct_accesses(key: int, is_direct: NDArray[np.bool_], fits: Where) -> Where:
    def where(rows: Columns) -> NDArray[np.bool_]:
        direct = is_direct[np.minimum(rows["handle"], len(is_direct) - 1)]
        found: NDArray[np.bool_] = (rows["group"] == key) & (rows["class"] <= CallClass.WRITE) & direct & fits(rows)
        return found

    return where


def _every(rows: Columns) -> NDArray[np.bool_]:
    return np.ones(len(rows["id"]), np.bool_)


def _moved(rows: Columns) -> Any:
    return rows["moved"] > 0


def _small(rows: Columns) -> Any:
    asked = np.where(rows["bytes_request"] >= 0, rows["bytes_request"], rows["moved"])
    return (rows["moved"] > 0) & (asked < SMALL_BYTES)


def _waited(rows: Columns) -> Any:
    known = (rows["offset_bytes"] >= 0) & (rows["handle"] != UNKNOWN_U32)
    return (rows["moved"] > 0) & known & (rows["device_ns"] > 0)


def _short(rows: Columns) -> Any:
    return (rows["moved"] > 0) & (rows["bytes_request"] > rows["moved"]) & (rows["error"] == 0)
