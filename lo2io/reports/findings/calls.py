"""Rules about what a process calls.

Each takes the sums and gives findings; rows are calls of ``operations``. Thresholds: docs/reference/findings.md.
"""

from __future__ import annotations

import errno
from collections import Counter
from typing import TYPE_CHECKING, Final

import numpy as np

from lo2io.errnos import INTERRUPTIONS, error_name
from lo2io.model import CallClass
from lo2io.reports.findings.finding import Finding
from lo2io.reports.summary.classes import METADATA, PASSIVE
from lo2io.reports.text.lines import count_of, who
from lo2io.units import format_bytes, format_duration

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from lo2io.model import Columns
    from lo2io.reports.summary.sums import TraceSums

MANY: Final = 1000
SOME: Final = 100
FEW: Final = 20
"""Syncs that are worth a word where they take a good part of the recording: on a slow device, few are dear."""
HALF: Final = 0.5
OFTEN: Final = 0.1
DEAR_NS: Final = 100_000_000
"""Time that is worth to spare: what takes less, nobody notices."""
SPARE_NS: Final = 10_000_000
"""Time in looks for files that are not there that is worth to spare; and what part of the recording."""
HUNDREDTH: Final = 0.01
STORM_NS: Final = 1_000_000_000
"""Time in calls about files that is worth to spare even where each is about another file …"""
SLOW_NS: Final = 100_000
"""… if they take so long each that a disk or a server is asked: from memory it takes a microsecond or ten."""
LITTLE: Final = 4096
"""Bytes moved for each call about a file, below which it is the files and not what is in them that costs."""
LOOKS: Final = (CallClass.OPEN, CallClass.STAT)
"""Calls that look a path up."""
_MISSING: Final = (errno.ENOENT, errno.ENOTDIR)


def metadata_storm(sums: TraceSums) -> list[Finding]:
    """A process that is busy for long with calls about files rather than about what is in them.

    For long: since they are slow, or since they are about the same files again and again. That git, tar, find or a
    compiler look at each of their files costs what it has to.
    """
    kinds = list(METADATA)
    about = sums.time.process_calls[:, kinds].sum(axis=1)
    lasted = sums.time.process_ns[:, kinds].sum(axis=1)
    calls = sums.time.process_calls.sum(axis=1)
    moved = sums.operations.by_process.bytes_read + sums.operations.by_process.bytes_written
    fits = (about >= MANY) & (about >= HALF * calls) & (moved < LITTLE * about)
    fits &= (lasted >= DEAR_NS) & (lasted >= HALF * sums.time.process_ns.sum(axis=1))
    slow = (lasted >= STORM_NS) & (lasted >= SLOW_NS * about)
    return [
        Finding(
            "metadata-storm",
            _process(sums, process),
            f"{about[process]:,} of {calls[process]:,} calls open, look at, name or change files, "
            f"and {format_bytes(int(moved[process]))} were moved",
            {
                "metadata_calls": int(about[process]),
                "calls": int(calls[process]),
                "time_ns": int(lasted[process]),
                "moved_bytes": int(moved[process]),
            },
            "operations",
            int(about[process]),
            _of(process, METADATA),
            cost_ns=int(lasted[process]),
            if_repeated=not slow[process],
        )
        for process in np.flatnonzero(fits).tolist()
    ]


def sync_bound(sums: TraceSums) -> list[Finding]:
    """A process that waits for syncs most of the time, of whatever files: one each of many is found here alone."""
    syncs, lasted = sums.time.process_syncs, sums.time.process_sync_ns
    writes = sums.time.process_calls[:, CallClass.WRITE]
    active = [kind for kind in CallClass if kind not in PASSIVE]
    time_ns = sums.time.process_ns[:, active].sum(axis=1)
    many = (syncs >= SOME) | (syncs >= FEW) & (lasted >= OFTEN * sums.span_ns)
    fits = many & (lasted >= DEAR_NS) & (lasted >= HALF * time_ns)
    return [
        Finding(
            "sync-bound",
            _process(sums, process),
            f"{count_of(int(syncs[process]), 'sync')} for {count_of(int(writes[process]), 'write')}, "
            f"of the {format_duration(int(time_ns[process]))} in calls",
            {
                "syncs": int(syncs[process]),
                "writes": int(writes[process]),
                "sync_ns": int(lasted[process]),
                "time_ns": int(time_ns[process]),
            },
            "operations",
            int(syncs[process]),
            _syncs(process),
            cost_ns=int(lasted[process]),
        )
        for process in np.flatnonzero(fits).tolist()
    ]


def missing_files(sums: TraceSums) -> list[Finding]:
    """A process that mostly looks for files that are not there."""
    looks = sums.time.process_calls[:, list(LOOKS)].sum(axis=1)
    missing = _failures(sums.time.failures, _MISSING, LOOKS)
    lasted = _failures(sums.time.failure_ns, _MISSING, LOOKS)
    least_ns = max(SPARE_NS, HUNDREDTH * sums.span_ns)
    return [
        Finding(
            "missing-files",
            _process(sums, process),
            f"{number:,} of {looks[process]:,} opens and looks at files found none",
            {"missing": number, "looks": int(looks[process])},
            "operations",
            number,
            _of(process, LOOKS, _MISSING),
            cost_ns=lasted[process],
        )
        for process, number in missing.items()
        if number >= MANY and number >= HALF * looks[process] and lasted[process] >= least_ns
    ]


def interrupted_calls(sums: TraceSums) -> list[Finding]:
    """A call that signals interrupt again and again, and that is made anew each time.

    Polls are none: many a loop waits there for its signals, of children that end for example (pselect(2)).
    """
    found = []
    for (process, call, of_class, number), times in sums.time.failures.items():
        kind = CallClass(of_class)
        calls = int(sums.time.process_calls[process, kind])
        if kind is CallClass.POLL or number not in INTERRUPTIONS:
            continue
        if times >= SOME and times >= OFTEN * calls:
            name = sums.trace.metadata["calls"][call]["name"]
            found.append(
                Finding(
                    "interrupted-calls",
                    _process(sums, process),
                    f"{times:,} of {calls:,} {kind.name.lower()} calls were ended by signals: "
                    f"{name}, {error_name(number)}",
                    {"interrupted": times, "calls": calls},
                    "operations",
                    times,
                    _of(process, (kind,), (number,), call),
                )
            )
    return found


CALL_RULES: Final[dict[str, Callable[[TraceSums], list[Finding]]]] = {
    "sync-bound": sync_bound,
    "metadata-storm": metadata_storm,
    "missing-files": missing_files,
    "interrupted-calls": interrupted_calls,
}


def _failures(
    failures: Counter[tuple[int, int, int, int]], errors: tuple[int, ...], kinds: tuple[CallClass, ...]
) -> Counter[int]:
    """By process: calls of these classes that ended so, or their time."""
    found: Counter[int] = Counter()
    for (process, _, kind, number), value in failures.items():
        if number in errors and kind in kinds:
            found[process] += value
    return found


def _of(
    process: int, kinds: Sequence[CallClass], errors: Sequence[int] = (), call: int | None = None
) -> Callable[[Columns], NDArray[np.bool_]]:
    """Which calls are of this process and these classes; ended so, if that is said; of one call, if that is."""

    def where(rows: Columns) -> NDArray[np.bool_]:
        found: NDArray[np.bool_] = rows["process"] == process
        own = np.flatnonzero(found)  # few, where many processes are looked at
        fits = np.isin(rows["class"][own], kinds)
        if errors:
            fits &= np.isin(np.abs(rows["error"][own].astype(np.int64)), errors)
        if call is not None:
            fits &= rows["call"][own] == call
        found[own] = fits
        return found

    return where


def _syncs(process: int) -> Callable[[Columns], NDArray[np.bool_]]:
    def where(rows: Columns) -> NDArray[np.bool_]:
        synced = (rows["class"] == CallClass.SYNC) | rows["synced"]
        found: NDArray[np.bool_] = (rows["process"] == process) & synced
        return found

    return where


def _process(sums: TraceSums, process: int) -> str:
    return who(sums.people.pid(process), sums.people.names([process]).get(process))
