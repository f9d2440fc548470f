"""Rules about rings of io_uring and libaio.

Each rule takes the numbers of rings and gives findings. Rows are of ``batches`` or ``ring_requests``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from lo2io.model import RingPath
from lo2io.native._lib import lib
from lo2io.reports.findings.finding import Finding
from lo2io.reports.words import count_of, share_of
from lo2io.units import format_duration

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from lo2io.model import Columns
    from lo2io.reports.rings.summary import RingRow, RingsSummary

MANY: Final = 100
"""Least number of requests or calls that make a habit."""
MOSTLY: Final = 0.9
"""A program uses its ring this way, if this part of its submitting calls submits a single request."""
OFTEN: Final = 0.1
"""Least part of the requests on workers."""


def one_request_batches(rings: RingsSummary) -> list[Finding]:
    """A program makes a system call for each request, although rings exist to save calls. SQPOLL rings do not count."""
    found = []
    for ring in _known(rings):
        batches = ring.batches
        single = sum(size.calls for size in batches.sizes if size.most == 1 and size.least == 1)
        if kernel_submits(ring) or batches.submitting < MANY or single < MOSTLY * batches.submitting:
            continue
        most = ring.most_in_flight
        depth = f"at most {most:,} under way at a time" if most else "how many were under way is not known"
        found.append(
            Finding(
                "one-request-batches",
                f"ring {ring_name(ring)}",
                f"{single:,} of {batches.submitting:,} submitting calls submit a single request ({depth})",
                {"single": single, "submitting": batches.submitting, "most_in_flight": most},
                "batches",
                single,
                _of(ring, lambda rows: (rows["submitted"] == 1) & (rows["asked"] > 0)),
            )
        )
    return found


def punted_requests(rings: RingsSummary) -> list[Finding]:
    """Each request goes to a worker thread and back. The text says why, if one reason stands out.

    Where the workers' time went decides what helps.
    """
    found = []
    for ring in _known(rings):
        on_workers = sum(row.requests for row in ring.punted)
        if ring.written < MANY or on_workers < OFTEN * ring.written:
            continue
        main = ring.punted[0]
        because = f"{main.reason}{' (inferred)' if main.inferred else ''}: {main.requests:,}"
        further = _slower(ring) + _time(ring, on_workers)
        found.append(
            Finding(
                "punted-requests",
                f"ring {ring_name(ring)}",
                f"{on_workers:,} of {ring.written:,} requests went to worker threads ({because}){further}",
                {"on_workers": on_workers, "requests": ring.written, **_parts(ring)},
                "ring_requests",
                on_workers,
                _of(ring, lambda rows: (rows["path"] == RingPath.WORKER) | (rows["nr_punts"] > 0)),
            )
        )
    return found


def completion_overflow(rings: RingsSummary) -> list[Finding]:
    """Completions found no room in their queue, and the kernel had to keep them aside."""
    found = []
    for ring in _known(rings):
        if not ring.overflows:
            continue
        room = f" in the queue of {ring.cq_entries:,}" if ring.cq_entries else ""
        found.append(
            Finding(
                "completion-overflow",
                f"ring {ring_name(ring)}",
                f"{count_of(ring.overflows, 'completion')} found no room{room}",
                {"overflows": ring.overflows, "cq_entries": ring.cq_entries or 0},
                "ring_requests",
                ring.overflows,
                _of(ring, lambda rows: (rows["traits"] & lib.LO2_TRAIT_OVERFLOWED) != 0),
            )
        )
    return found


RING_RULES: Final[dict[str, Callable[[RingsSummary], list[Finding]]]] = {
    "one-request-batches": one_request_batches,
    "punted-requests": punted_requests,
    "completion-overflow": completion_overflow,
}


def ring_name(ring: RingRow) -> str:
    """The ring's number in the table, its process, and its descriptor; libaio's has none."""
    who = ring.process or "unknown"
    owner = who if ring.pid is None else f"{who} ({ring.pid})"
    where = " libaio" if ring.kind == "libaio" else "" if ring.fd is None else f" fd {ring.fd}"
    return owner if ring.ring is None else f"{ring.ring}: {owner}{where}"


def kernel_submits(ring: RingRow) -> bool:
    """True if the kernel submits: calls only wake its thread, but return the number that they were asked to submit."""
    return ring.poller or "SQPOLL" in (ring.flags or ())


def _known(rings: RingsSummary) -> Iterator[RingRow]:
    """The rings that are listed, without the row for all others."""
    return (ring for ring in rings.rings if ring.kind is not None)


def _of(ring: RingRow, fits: Callable[[Columns], Any]) -> Any:
    number = np.uint32(0 if ring.ring is None else ring.ring)
    return lambda rows: (rows["ring"] == number) & fits(rows)


def _parts(ring: RingRow) -> dict[str, int]:
    """Parts of the workers' time, if any are known."""
    time = ring.workers.time
    if time is None:
        return {}
    return {"cpu_ns": time.cpu_ns, "run_queue_ns": time.run_queue_ns, "blocked_ns": time.blocked_ns}


def _time(ring: RingRow, on_workers: int) -> str:
    """The parts in words, with the reason that blocked longest."""
    time = ring.workers.time
    if time is None or not time.time_ns:
        return ""
    cpu, queue, blocked = (share_of(part / time.time_ns) for part in (time.cpu_ns, time.run_queue_ns, time.blocked_ns))
    most = f", {share_of(time.reasons[0].time_ns / time.time_ns)} by {time.reasons[0].reason}" if time.reasons else ""
    of = "" if time.requests == on_workers else f" on {time.requests:,} of them"
    at_most = "at most " if time.inferred else ""
    spent = f"; workers spent {at_most}{format_duration(time.time_ns)}{of}"
    return f"{spent}: CPU {at_most}{cpu}, run queue {queue}, blocked {blocked}{most}"


def _slower(ring: RingRow) -> str:
    """The time on a worker beside the time inline, if there are enough requests of both to compare."""
    enough = OFTEN * ring.written
    medians = {row.path: row.latency.p50_ns for row in ring.paths if row.latency.nr >= enough}
    if "worker" not in medians or "inline" not in medians:
        return ""
    return f"; half took over {format_duration(medians['worker'])}, inline {format_duration(medians['inline'])}"
