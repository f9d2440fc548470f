"""Writes the kernel's samples as ``perf.data``, for ``perf script``, ``perf report`` and other readers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lo2io.errors import UsageError
from lo2io.exports.perf_data.file import PerfDataFile
from lo2io.exports.perf_data.records import FINISHED_ROUND, Records
from lo2io.exports.target import ExportSummary
from lo2io.spool.reader import SpoolReader
from lo2io.trace.names import SPOOL

if TYPE_CHECKING:
    from pathlib import Path

    from lo2io.exports.target import Progress
    from lo2io.trace.reader import Trace

ROUND_RECORDS: Final = 10_000
"""A round has at least so many records. perf sorts what came since the last round but one, so it holds two of them."""


def export(trace: Trace, target: Path, progress: Progress) -> ExportSummary:
    """Write all samples of the spool beside the trace.

    Args:
        trace: Of a recording with --keep-spool.
        target: The file to make.
        progress: Told how far it is.

    Returns:
        ``rows``: samples.

    Raises:
        UsageError: There is no spool; or a part of the trace is asked for, which samples have no way to be.
        SpoolError: It cannot be read.
        OSError: The file cannot be written.
    """
    place = trace.path / SPOOL
    if not place.is_dir():
        raise UsageError(
            f"export {trace.path} to perf-data", f"there is no {place}", "record with --keep-spool: samples are there"
        )
    if "selection" in trace.metadata:
        remedy = "leave --filter, --from and --until away; `perf script --time` chooses among samples"
        raise UsageError(f"export a part of {trace.path} to perf-data", "samples are no rows of the tables", remedy)
    spool = SpoolReader(place)
    with target.open("wb") as file:
        out = PerfDataFile(file, spool.meta)
        records = Records(spool, out, progress)
        in_round = 0
        for number, some in records:
            file.write(some)
            in_round += number
            if in_round >= ROUND_RECORDS:
                file.write(FINISHED_ROUND)
                in_round = 0
        out.close(records.first_ns, records.last_ns)
    notes = [f"left out: {records.nr_unknown:,} samples of no known event"] if records.nr_unknown else []
    return ExportSummary(records.nr_samples, notes=tuple(notes))
