"""Rings of io_uring and contexts of libaio: ``Summary.rings`` as tables of the page."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lo2io.reports.html.cells import LATENCY, Cell, Sheet, count, file_of, latency, sheet, size, text, time
from lo2io.reports.words import who

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lo2io.reports.rings.summary import RingRow, RingsSummary


def ring_sheets(rings: RingsSummary) -> list[Sheet]:
    """The tables, empty ones included."""
    return [_rings(rings), _ways(rings), _opcodes(rings), _batches(rings), _workers(rings), _ends(rings), _files(rings)]


def _name(ring: RingRow) -> Cell:
    return Cell("others" if ring.kind is None else f"{ring.kind} {ring.ring}")


def _rings(rings: RingsSummary) -> Sheet:
    columns = [("ring", False), ("process", False), ("set up with", False), ("SQ", True), ("CQ", True)]
    columns += [("requests", True), ("most in flight", True), ("rows", True), ("read", True), ("written", True)]
    columns += [("errors", True), ("executed by workers", True), ("multi-shot", True), ("overflows", True)]
    columns += [("enters", True)]
    rows = [_ring(ring) for ring in rings.rings]
    return sheet("rings", "Rings", columns, rows, "io_uring instances and libaio contexts")


def _ring(ring: RingRow) -> list[Cell]:
    """The cells of a ring. libaio: only programs in the kernel know results; nobody knows who executed requests."""
    has_workers = ring.kind != "libaio"
    has_details = has_workers or ring.written > 0
    workers = ring.workers.bounded + ring.workers.unbounded + ring.workers.untold
    return [
        _name(ring),
        Cell(who(ring.pid, ring.process)),
        text(" ".join(ring.flags or ())),
        count(ring.sq_entries),
        count(ring.cq_entries),
        count(ring.requests),
        count(ring.most_in_flight),
        count(ring.written if has_details else None),
        size(ring.bytes_read if has_details else None),
        size(ring.bytes_written if has_details else None),
        count(ring.errors if has_details else None),
        count(workers if has_workers else None),
        count(ring.multishot if has_workers else None),
        count(ring.overflows if has_workers else None),
        count(ring.batches.calls),
    ]


def _ways(rings: RingsSummary) -> Sheet:
    columns = [("ring", False), ("path", False), ("requests", True), ("inferred", True), ("mean queued", True)]
    columns += [("executing", True), ("waiting", True), *LATENCY]
    rows = [
        [
            _name(ring),
            Cell(way.path),
            count(way.requests),
            count(way.inferred),
            *(time(phase.mean_ns if phase.nr else None) for phase in (way.queued, way.executing, way.waiting)),
            *latency(way.latency),
        ]
        for ring in rings.rings
        for way in ring.paths
    ]
    return sheet("ring-ways", "The ways that requests of rings went", columns, rows)


def _opcodes(rings: RingsSummary) -> Sheet:
    columns = [("ring", False), ("opcode", False), ("path", False), ("requests", True), ("bytes", True)]
    columns += [("errors", True), *LATENCY]
    rows = [
        [
            _name(ring),
            Cell(row.opcode),
            Cell(row.path),
            count(row.requests),
            size(row.bytes),
            count(row.errors),
            *latency(row.latency),
        ]
        for ring in rings.rings
        for row in ring.opcodes
    ]
    return sheet("ring-opcodes", "Requests of rings by opcode", columns, rows)


def _batches(rings: RingsSummary) -> Sheet:
    columns = [("ring", False), ("calls that", False), ("at least", True), ("at most", True), ("calls", True)]
    rows = [
        [_name(ring), Cell(did), count(row.least), count(row.most), count(row.calls)]
        for ring in rings.rings
        for did, sizes in (("submitted", ring.batches.sizes), ("collected", ring.batches.collected_sizes))
        for row in sizes
    ]
    return sheet("ring-batches", "Requests at a call", columns, rows)


def _workers(rings: RingsSummary) -> Sheet:
    columns = [("ring", False), ("why on a worker", False), ("inferred", False), ("requests", True)]
    rows = [
        [_name(ring), Cell(row.reason), Cell("inferred" if row.inferred else ""), count(row.requests)]
        for ring in rings.rings
        for row in ring.punted
    ]
    return sheet("ring-workers", "Requests that workers executed", columns, rows)


def _ends(rings: RingsSummary) -> Sheet:
    columns = [("ring", False), ("requests", True), ("ended", False), ("opcode", False), ("error", False)]
    rows = [row for ring in rings.rings for row in _ends_of(ring)]
    return sheet("ring-ends", "Requests of rings that did not end as asked", columns, rows)


def _ends_of(ring: RingRow) -> Iterator[Sequence[Cell]]:
    for end in ring.ends:
        yield _name(ring), count(end.requests), Cell(end.status), Cell(end.opcode), Cell(end.error)
    for link in ring.broken_links:
        culprit = f"after a failed {link.opcode}" if link.opcode else "after a failed one"
        yield _name(ring), count(link.ended), Cell("cancelled"), Cell(culprit), Cell(link.error or "")


def _files(rings: RingsSummary) -> Sheet:
    columns = [("file", False), ("requests", True), ("read", True), ("written", True), ("errors", True)]
    columns += [("on workers", True), ("workers' time", True)]
    rows = [
        [
            file_of(row),
            count(row.requests),
            size(row.bytes_read),
            size(row.bytes_written),
            count(row.errors),
            count(row.on_workers),
            time(row.worker_ns),
        ]
        for row in rings.files
    ]
    return sheet("ring-files", "Files in rings", columns, rows)
