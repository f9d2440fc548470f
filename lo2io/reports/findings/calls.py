"""Rules about what a process calls.

Each rule takes the sums and gives findings. Rows are calls of ``operations``. Thresholds: docs/reference/findings.md.
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
from lo2io.reports.words import count_of, who
from lo2io.units import format_bytes, format_duration

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from numpy.typing import NDArray

    from lo2io.model import Columns
    from lo2io.reports.summary.sums import TraceSums

MANY: Final = 1000
SOME: Final = 100
FEW: Final = 20
"""Least number of syncs, if they take a good part of the recording: a few syncs are dear on a slow device."""
HALF: Final = 0.5
OFTEN: Final = 0.1
DEAR_NS: Final = 100_000_000
"""Least time of a finding: nobody notices less."""
SPARE_NS: Final = 10_000_000
"""Least time in looks for missing files; ``HUNDREDTH`` is their least part of the recording."""
HUNDREDTH: Final = 0.01
STORM_NS: Final = 1_000_000_000
"""Least time in calls about files, if they are about different files and take ``SLOW_NS`` or more on average."""
SLOW_NS: Final = 100_000
"""A call about a file asks a disk or a server if it takes this long: from memory it takes 1 to 10 microseconds."""
LITTLE: Final = 4096
"""Bytes moved for each call about a file. Below this number the calls cost more than the data."""
LOOKS: Final = (CallClass.OPEN, CallClass.STAT)
"""Calls that look up a path."""
_MISSING: Final = (errno.ENOENT, errno.ENOTDIR)


def metadata_storm(sums: TraceSums) -> list[Finding]:
    """A process is busy for long with calls about files, and not with their data.

    The calls are slow, or they are about the same files again and again. Programs such as git, tar, find or a compiler
    look at each of their files once: that is no finding.
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
            "",
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
            process=process,
            if_repeated=not slow[process],
        )
        for process in np.flatnonzero(fits).tolist()
    ]


def sync_bound(sums: TraceSums) -> list[Finding]:
    """A process waits for syncs most of the time. Only this rule finds many files with one sync each."""
    syncs, lasted = sums.time.process_syncs, sums.time.process_sync_ns
    writes = sums.time.process_calls[:, CallClass.WRITE]
    active = [kind for kind in CallClass if kind not in {*PASSIVE, CallClass.LOCK}]
    time_ns = sums.time.process_ns[:, active].sum(axis=1)
    many = (syncs >= SOME) | (syncs >= FEW) & (lasted >= OFTEN * sums.span_ns)
    fits = many & (lasted >= DEAR_NS) & (lasted >= HALF * time_ns)
    return [
        Finding(
            "sync-bound",
            "",
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
            process=process,
        )
        for process in np.flatnonzero(fits).tolist()
    ]


def missing_files(sums: TraceSums) -> list[Finding]:
    """A process mostly looks for files that do not exist."""
    looks = sums.time.process_calls[:, list(LOOKS)].sum(axis=1)
    missing = _failures(sums.time.failures, _MISSING, LOOKS)
    lasted = _failures(sums.time.failure_ns, _MISSING, LOOKS)
    least_ns = max(SPARE_NS, HUNDREDTH * sums.span_ns)
    return [
        Finding(
            "missing-files",
            "",
            f"{number:,} of {looks[process]:,} opens and looks at files found none",
            {"missing": number, "looks": int(looks[process])},
            "operations",
            number,
            _of(process, LOOKS, _MISSING),
            cost_ns=lasted[process],
            process=process,
        )
        for process, number in missing.items()
        if number >= MANY and number >= HALF * looks[process] and lasted[process] >= least_ns
    ]


def interrupted_calls(sums: TraceSums) -> list[Finding]:
    """Signals interrupt a call again and again, and the program makes the call again each time.

    Polls do not count: many loops wait there for signals, such as those of children that end (pselect(2)).
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
                    "",
                    f"{times:,} of {calls:,} {kind.name.lower()} calls were ended by signals: "
                    f"{name}, {error_name(number)}",
                    {"interrupted": times, "calls": calls},
                    "operations",
                    times,
                    _of(process, (kind,), (number,), call),
                    process=process,
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
    """Calls of these classes with these errors, by process; or the time in these calls."""
    found: Counter[int] = Counter()
    for (process, _, kind, number), value in failures.items():
        if number in errors and kind in kinds:
            found[process] += value
    return found


def _of(
    process: int, kinds: Sequence[CallClass], errors: Sequence[int] = (), call: int | None = None
) -> Callable[[Columns], NDArray[np.bool_]]:
    """Choose the calls of a process and these classes; also by error, or by call, if either is given."""

    def where(rows: Columns) -> NDArray[np.bool_]:
        found: NDArray[np.bool_] = rows["process"] == process
        own = np.flatnonzero(found)  # few rows, if the trace has many processes
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


def process_names(sums: TraceSums, processes: Collection[int]) -> dict[int, str]:
    """These processes, as text. Each call reads the table of threads: ask for many processes at once."""
    names = sums.people.names(processes)
    return {process: who(sums.people.pid(process), names.get(process)) for process in processes}
