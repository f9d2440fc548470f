"""The part of the page about rings. A trace without rings has no such part.

In: a :class:`~lo2io.reports.rings.summary.RingsSummary`. Out: lines on a rich console.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lo2io.reports.findings.rings import kernel_submits, ring_name
from lo2io.reports.text.lines import ROWS, print_line, print_more, print_table
from lo2io.reports.words import count_of, duration_of, printable, who
from lo2io.units import format_bytes, format_duration

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from rich.console import Console

    from lo2io.reports.rings.summary import (
        BatchSizeRow,
        BrokenLinkRow,
        EndRow,
        RingFileRow,
        RingRow,
        RingsSummary,
        WorkerFileRow,
        WorkersRow,
    )
    from lo2io.reports.summary.histogram import Latency

DETAILED: Final = 3
"""The number of rings that get more than one line."""
NAMED: Final = 3
"""The number of files, errors and reasons that a line names."""


def render_rings(rings: RingsSummary, console: Console) -> None:
    """Print the numbers of each ring, and of the files in them."""
    _overview(rings, console)
    with_requests = [ring for ring in rings.rings if ring.written or ring.batches.calls]
    for ring in with_requests[:DETAILED]:
        _details(ring, console)
    _files(rings.files, console)


def rings_line(rings: RingsSummary) -> str:
    """The line about rings in the head of the page. Bytes and errors count only requests that the trace holds."""
    text = f"{count_of(rings.requests, 'request')} on {count_of(rings.nr_rings, 'ring')}"
    if rings.libaio_untold:
        untold = "all" if rings.libaio_untold == rings.requests else f"{rings.libaio_untold:,}"
        text += f", {untold} of libaio, whose bytes are not known"
    if not rings.written:
        return text
    moved = f"read {format_bytes(rings.bytes_read)}, written {format_bytes(rings.bytes_written)}"
    of = f"{rings.written:,} of them in this trace: " if rings.written < rings.requests - rings.libaio_untold else ""
    return f"{text} · {of}{moved} · {count_of(rings.errors, 'error')}"


def _overview(rings: RingsSummary, console: Console) -> None:
    """Print a line for each ring. Without programs in the kernel, libaio's requests are unknown."""
    rows = []
    shown = rings.rings[:ROWS]
    for ring in shown:
        batches = ring.batches
        submitting = 0 if kernel_submits(ring) else batches.submitting
        mean = f"{batches.submitted / submitting:.3g}" if submitting else "-"
        counts = (ring.requests, ring.batches.calls)
        rows.append(
            [
                printable(ring_name(ring)),
                f"{ring.sq_entries or '?'}/{ring.cq_entries or '?'}" if ring.kind == "io_uring" else "-",
                *(f"{number:,}" for number in counts),
                mean,
                _on_workers(ring),
                f"{ring.most_in_flight:,}",
                f"{ring.overflows:,}" if ring.kind != "libaio" else "-",
                f"{ring.errors:,}{_of(ring)}" if ring.kind != "libaio" or ring.written else "-",
            ]
        )
    headings = ["Ring", "entries", "requests", "calls", "per call", "on workers", "at once", "overflows", "errors"]
    leads = ["" if ring.ring is None else f"{ring.ring}: " for ring in shown]
    print_table(console, headings, "lrrrrrrrr", rows, leads=leads)
    print_more(console, len(rings.rings) - ROWS)


def _of(ring: RingRow) -> str:
    """The number of requests in the trace, if the ring had more."""
    return f" of {ring.written:,}" if 0 < ring.written < ring.requests else ""


def _on_workers(ring: RingRow) -> str:
    if ring.kind == "libaio":
        return "-"
    number = sum(row.requests for row in ring.punted)
    return f"{100 * number / ring.written:.3g} %" if ring.written else "-"


def _details(ring: RingRow, console: Console) -> None:
    """Print ways and opcodes, then a line for each further fact."""
    name = printable(ring_name(ring))
    title = name[:1].upper() + name[1:] if ring.ring is None else f"Ring {name}"
    if _of(ring):
        title += f", {ring.written:,} of its {ring.requests:,} requests"
    if ring.paths:
        _paths(ring, title, console)
        _opcodes(ring, console)
    else:
        print_line(console, f"\n{title}", "bold")
    for text in _lines(ring):
        print_line(console, printable(f"  {text}"))


def _paths(ring: RingRow, title: str, console: Console) -> None:
    rows = []
    for row in ring.paths:
        phases = [_mean(phase) for phase in (row.queued, row.executing, row.waiting)]
        inferred = f"{row.inferred:,}" if row.inferred else "-"
        rows.append([row.path, f"{row.requests:,}", inferred, *phases, *_percentiles(row.latency)])
    headings = ["Path", "requests", "inferred", "mean queued", "executing", "waiting", "p50", "p99", "max"]
    print_table(console, headings, "lrrrrrrrr", rows, title=title)


def _opcodes(ring: RingRow, console: Console) -> None:
    rows = []
    for row in ring.opcodes[:ROWS]:
        counts = [f"{row.requests:,}", format_bytes(row.bytes), f"{row.errors:,}"]
        rows.append([row.opcode, row.path, *counts, *_percentiles(row.latency)])
    print_table(console, ["Opcode", "path", "requests", "bytes", "errors", "p50", "p99", "max"], "llrrrrrr", rows)
    print_more(console, len(ring.opcodes) - ROWS)


def _mean(latency: Latency) -> str:
    return duration_of(latency, latency.mean_ns)


def _percentiles(latency: Latency) -> list[str]:
    return [duration_of(latency, value) for value in (latency.p50_ns, latency.p99_ns, latency.max_ns)]


def _lines(ring: RingRow) -> Iterable[str]:
    """The facts beside the tables. Only what happened gets a line."""
    if ring.flags:
        yield f"set up with {', '.join(ring.flags)}"
    batches = ring.batches
    if batches.submitting and not kernel_submits(ring):
        yield f"{count_of(batches.submitting, 'call')} submitted {batches.submitted:,}: {_sizes(batches.sizes)}"
    if batches.collecting:
        collected = f"{count_of(batches.collecting, 'call')} collected {batches.collected:,}"
        yield f"{collected}: {_sizes(batches.collected_sizes)}"
    if ring.multishot:
        times = f"completed {count_of(ring.multishot_completions, 'time')}; the times above leave them out"
        yield f"{count_of(ring.multishot, 'multi-shot request')} {times}"
    if ring.punted:
        yield f"why on workers: {_reasons(ring)}"
    if ring.workers.executions or ring.workers.born:
        yield _workers(ring)
    if ring.punted:
        yield f"kinds of workers: {_worker_kinds(ring.workers)}"
    if ring.worker_files:
        yield f"files that cause workers: {_named([_worker_file(row) for row in ring.worker_files])}"
    yield from _odd_ends(ring)
    if ring.broken_links:
        yield f"broken links: {_named([_broken(row) for row in ring.broken_links])}"


def _odd_ends(ring: RingRow) -> Iterable[str]:
    """Requests with an unusual end, and completions that belong to no request."""
    for status in ("refused", "cancelled"):
        ends = [row for row in ring.ends if row.status == status]
        if ends:
            number = sum(row.requests for row in ends)
            yield f"{number:,} {status}: {_named([_end(row) for row in ends])}"
    others = [
        ("in flight", "in flight"),
        ("torn down", "torn down with the ring"),
        ("silent", "asked for no completion"),
        ("unseen", "ended unseen: no call collected their completions"),
    ]
    counts = [f"{ring.statuses[status]:,} {words}" for status, words in others if status in ring.statuses]
    counts += [
        f"{count_of(number, 'completion')} {words}"
        for number, words in ((ring.orphans, "of requests not seen begin"), (ring.messages, "sent by other rings"))
        if number
    ]
    if counts:
        yield ", ".join(counts)


def _end(row: EndRow) -> str:
    """The end and its error. A cancelled request always fails with ECANCELED, so that error is left out."""
    error = f" {row.error}" if row.status == "refused" else ""
    return f"{row.requests:,} {row.opcode}{error}"


def _sizes(sizes: Sequence[BatchSizeRow]) -> str:
    """``20 x 1, 3 x 5-8``: calls, and how many each had."""
    spans = ((f"{row.least:,}" if row.least == row.most else f"{row.least:,}-{row.most:,}", row.calls) for row in sizes)
    return ", ".join(f"{calls:,} x {span}" for span, calls in spans)


def _reasons(ring: RingRow) -> str:
    return "; ".join(f"{row.requests:,} {row.reason}{' (inferred)' if row.inferred else ''}" for row in ring.punted)


def _workers(ring: RingRow) -> str:
    workers = ring.workers
    inferred = f", inferred {workers.inferred:,}" if workers.inferred else ""
    known = f"{count_of(workers.executions, 'execution')} known"
    executions = f", {known}, in {format_duration(workers.busy_ns)}{inferred}"
    born = f"workers: {workers.born:,} born, {workers.most:,} at a time at most"
    return born + (executions if workers.executions else "")


def _worker_kinds(workers: WorkersRow) -> str:
    """How many requests each kind of worker executed."""
    hashed = f" ({workers.hashed:,} hashed)" if workers.hashed else ""
    kinds = ((workers.bounded, f"bounded{hashed}"), (workers.unbounded, "unbounded"), (workers.untold, "not known"))
    return ", ".join(f"{number:,} {kind}" for number, kind in kinds if number)


def _worker_file(row: WorkerFileRow) -> str:
    spent = f" in {format_duration(row.worker_ns)}" if row.worker_ns else ""
    return f"{_file_name(row)} {row.requests:,}{spent}"


def _broken(row: BrokenLinkRow) -> str:
    if row.opcode is None:
        return f"{count_of(row.ended, 'request')} by what is not in the trace"
    why = row.error or "without an error"
    return f"{row.opcode} {why} ended {count_of(row.ended, 'request')} linked after {row.culprits:,} of them"


def _named(texts: Sequence[str]) -> str:
    rest = len(texts) - NAMED
    return ", ".join(texts[:NAMED]) + (f" and {rest} more" if rest > 0 else "")


def _files(files: Sequence[RingFileRow], console: Console) -> None:
    if not files:
        return
    rows = []
    for row in files[:ROWS]:
        counts = (row.requests, row.on_workers, row.errors)
        rows.append(
            [
                _file_name(row),
                *(f"{number:,}" for number in counts),
                format_bytes(row.bytes_read),
                format_bytes(row.bytes_written),
                format_duration(row.worker_ns) if row.worker_ns else "-",
            ]
        )
    headings = ["File in rings", "requests", "on workers", "errors", "read", "written", "workers' time"]
    print_table(console, headings, "lrrrrrr", rows)
    print_more(console, len(files) - ROWS)


def _file_name(row: RingFileRow | WorkerFileRow) -> str:
    if row.kind == "unnamed":
        return f"unnamed fds of {who(row.pid, row.process)}"
    if row.kind == "none":
        return "no fd, or a registered file"
    return printable(row.path or "unnamed")
