"""From a spool to a trace: the engine's batches go to the archive and to the tables; both get the proof.

In: a spool. Out: the trace's directory, and how complete it is. Converting works without root and on any machine.
"""

from __future__ import annotations

import importlib
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from lo2io.catalog.catalog import load_catalog
from lo2io.catalog.fuse_opcodes import load_opcodes
from lo2io.catalog.wait_reasons import load_reasons
from lo2io.errors import SpoolError, UsageError
from lo2io.folder import Folder, private_umask
from lo2io.frozen import dataclass
from lo2io.libraries import prepare_libraries
from lo2io.model import UNKNOWN_I64, Completeness, TraceEnd
from lo2io.model.trace import BLOCK_RECORDS
from lo2io.rights import confine
from lo2io.trace.directory import give_away, locked_directory, whole_trace

if TYPE_CHECKING:
    import contextlib
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from lo2io.convert.reconcile import Reconciler
    from lo2io.convert.streams import Batches
    from lo2io.model import SpoolMeta, Totals
    from lo2io.spool.reader import SpoolReader

BATCHES_HELD = 4
"""Batches in use at a time. One writer may be ahead of the other by this many."""
_LATE_MODULES = (
    "lo2io.convert.streams",
    "lo2io.convert.reconcile",
    "lo2io.convert.completeness",
    "lo2io.spool.reader",
    "lo2io.trace.writer",
    "lo2io.otf2.write.writer",
    "lo2io.reports.summary.losses",
)


@dataclass(frozen=True, slots=True)
class Converted:
    """The result of converting: the trace's place, and how complete it is."""

    trace: Path
    completeness: Completeness
    reconciliation: str = ""
    """The captured part of the kernel's own counts, as text; empty: nothing was compared."""
    filtered: str = ""
    """The rows that a filter left out, as text; empty: there was no filter."""
    sampled: str = ""
    """The part of the rings' requests that was written, as text; empty: all of them."""
    shortfall: str = ""
    """A warning if too little of the kernel's own accounts was captured; empty: enough was."""


def check_block_records(block_records: str | None) -> None:
    """Refuse an unknown form of block requests.

    Raises:
        UsageError: ``block_records`` is not in :data:`~lo2io.model.trace.BLOCK_RECORDS`.
    """
    if block_records not in {None, *BLOCK_RECORDS}:
        raise UsageError(
            f"write block requests as {block_records!r}", "no such kind", f"one of {', '.join(BLOCK_RECORDS)}"
        )


def convert(
    spool_path: Path,
    trace: Path,
    *,
    force: bool = False,
    progress: Callable[[int], None] | None = None,
    filters: Sequence[str] = (),
    block_records: str | None = None,
    sample_rate: int | None = None,
) -> Converted:
    """Turn a spool into an OTF2 archive with tables beside it.

    Args:
        spool_path: The spool that ``record`` left.
        trace: Directory of the trace. It may exist and hold the spool. Only with ``force`` may it hold a trace.
        force: Replace an existing trace.
        progress: Called now and then with the bytes of the spool read so far.
        filters: Expressions. Written rows fit all of them, and the recording's filter.
        block_records: One of :data:`~lo2io.model.trace.BLOCK_RECORDS`; None: the default of the spool's mode.
        sample_rate: Write one of this many requests of rings; None: the recording's choice.

    Raises:
        UsageError: A filter or form of records is unknown; more requests are asked for than the recording kept; the
            directory holds a trace already, or other files; another process writes the spool or the trace.
        SpoolError: The spool cannot be read.
        TraceError: The trace cannot be written.
    """
    with private_umask(), _open_spool(spool_path) as spool:
        return convert_folder(
            spool,
            locked_directory(trace),
            force=force,
            progress=progress,
            filters=filters,
            block_records=block_records,
            sample_rate=sample_rate,
        )


def _open_spool(path: Path) -> Folder:
    """A spool that nobody writes, held open and locked for reading."""
    try:
        spool = Folder.open(path)
    except OSError as error:
        remedy = "name a spool: T/spool, if --keep-spool or --no-convert left it"
        raise SpoolError(f"read {path}", error.strerror or str(error), remedy) from error
    try:
        spool.lock(shared=True)
    except UsageError as error:
        raise UsageError(f"convert {path}", error.answer, "wait for its end, or try `lo2io dump`") from None
    return spool


def import_stages() -> None:
    """Import and load early what :func:`convert_folder` needs late: a tenth of a second of work.

    Python can keep compiled modules only now: :func:`convert_folder` gives up the right to write beside them.
    """
    prepare_libraries()
    for module in _LATE_MODULES:
        importlib.import_module(module)
    load_catalog()
    load_reasons()
    load_opcodes()


def convert_folder(
    spool_folder: Folder,
    output: contextlib.AbstractContextManager[Folder],
    *,
    force: bool = False,
    progress: Callable[[int], None] | None = None,
    filters: Sequence[str] = (),
    block_records: str | None = None,
    sample_rate: int | None = None,
) -> Converted:
    """Convert as :func:`convert` does. The output is opened first, so that nothing of the spool is read before."""
    check_block_records(block_records)
    prepare_libraries()
    # These imports are late, so that a recording starts without them.
    from lo2io.convert.reconcile import Reconciler  # noqa: PLC0415
    from lo2io.convert.streams import open_batches  # noqa: PLC0415
    from lo2io.filter.for_events import check_devices  # noqa: PLC0415
    from lo2io.filter.parser import parse_all  # noqa: PLC0415
    from lo2io.filter.rows import Criteria  # noqa: PLC0415
    from lo2io.spool.reader import SpoolReader  # noqa: PLC0415

    with output as trace, spool_folder.named():
        if trace.parent is not None:
            give_away(trace, contents=False)
        confine((spool_folder.path, trace.path), (trace.place,))
        spool = SpoolReader(spool_folder.place)
        catalog = load_catalog()
        criteria = Criteria(parse_all((spool.meta.filter, *filters)), spool.meta.cgroup)
        check_devices(criteria.filter, spool.meta.devices)
        rate = _sample_rate(spool.meta, sample_rate)
        spool.meta = meta = replace(spool.meta, filter=str(criteria.filter), sample_rate=rate)
        accounts = Reconciler(meta, catalog.rows)
        with (
            whole_trace(trace, spool_folder, force=force) as part,
            open_batches(
                spool, catalog, criteria, held=BATCHES_HELD, watch=accounts.write, progress=progress
            ) as batches,
        ):
            return replace(_write_trace(part.place, spool, batches, accounts, block_records), trace=trace.path)


def _sample_rate(meta: SpoolMeta, wanted: int | None) -> int:
    """The sample rate. As with a filter, converting may leave out more than the recording did, never less."""
    if wanted is not None and wanted < meta.sample_rate:
        chosen = f"1/{meta.sample_rate} was chosen when recording"
        raise UsageError(
            f"write 1/{wanted} of the requests", chosen, f"leave --sample out, or 1/{meta.sample_rate} at most"
        )
    return wanted or meta.sample_rate


def _write_trace(
    trace: Path, spool: SpoolReader, batches: Batches, accounts: Reconciler, block_records: str | None
) -> Converted:
    """Write archive and tables, then the facts that are known at the end."""
    # The engine works while the writers' large libraries load.
    from lo2io.convert.completeness import completeness  # noqa: PLC0415
    from lo2io.convert.reconcile import reconciliation_line, shortfall_line  # noqa: PLC0415
    from lo2io.convert.streams import hand_out  # noqa: PLC0415
    from lo2io.filter.batches import properties  # noqa: PLC0415
    from lo2io.otf2.write.writer import Otf2Writer  # noqa: PLC0415
    from lo2io.reports.summary.losses import filtered_words, sampled_words  # noqa: PLC0415
    from lo2io.trace.writer import TableWriter  # noqa: PLC0415

    meta, criteria, engine = spool.meta, batches.criteria, batches.engine
    calls, opcodes = engine.catalog.rows, engine.catalog.opcodes
    with (
        TableWriter(trace, meta, calls, opcodes, clocks=spool.clocks) as tables,
        Otf2Writer(trace, meta, calls, opcodes, block_records=block_records) as otf2,
    ):
        hand_out(batches, (otf2, tables) if criteria else (otf2, tables, accounts), BATCHES_HELD)
        left_out = batches.left_out
        left_out = replace(left_out, calls=left_out.calls + meta.nr_left_out)
        seen = [engine.seen(i) for i in range(len(meta.cpus))]
        proof = completeness(meta, seen, engine.totals, spool.missing_bytes)
        compared = accounts.close()
        line, shortfall = reconciliation_line(compared), shortfall_line(compared, meta, proof)
        sampled = sampled_words(meta.sample_rate, engine.totals.nr_ring_requests)
        facts = properties(criteria, left_out) | {"RECONCILIATION": line, "SHORTFALL": shortfall}
        frames = tables.write_program_stacks(engine.stacks) if engine.stacks else ()
        end = replace(_end(meta, engine.totals, proof, facts), frames=frames)
        otf2.close(end)
        known: dict[str, Any] = {
            "reconciliation": [asdict(row) for row in compared],
            "reconciliation_line": line,
            "shortfall": shortfall,
        }
        if criteria:
            known["filtered"] = asdict(left_out)
        tables.close(engine.totals, proof, end.start_ns, end.stop_ns, known)
    filtered = filtered_words(meta.filter, left_out.calls, left_out.requests, left_out.ring_requests)
    return Converted(trace, proof, line, filtered, sampled, shortfall)


def _end(meta: SpoolMeta, totals: Totals, proof: Completeness, properties: Mapping[str, str]) -> TraceEnd:
    """The trace's span: while tracepoints were enabled, or up to the spool's last record if it was cut off."""
    stop_ns = meta.stop_ns
    if stop_ns is None:
        stop_ns = meta.start_ns if totals.last_time_ns == UNKNOWN_I64 else max(totals.last_time_ns, meta.start_ns)
    return TraceEnd(meta.start_ns, stop_ns, proof, totals, properties)
