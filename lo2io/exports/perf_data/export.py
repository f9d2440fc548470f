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
"""The least number of records of a round. perf sorts records within two rounds, so it holds two rounds in memory."""


def export(trace: Trace, target: Path, progress: Progress) -> ExportSummary:
    """Write all samples of the spool beside the trace.

    Args:
        trace: A trace that was recorded with --keep-spool.
        target: The file to make.
        progress: Called with the finished share.

    Returns:
        ``rows``: the number of samples.

    Raises:
        UsageError: There is no spool; or ``trace`` is a part of a trace: the samples cannot be chosen alike.
        SpoolError: The spool cannot be read.
        OSError: The file cannot be written.
    """
    place = trace.path / SPOOL
    if not place.is_dir():
        raise UsageError(
            f"export {trace.path} to perf-data",
            f"there is no {place}",
            "record with --keep-spool: the spool has the samples",
        )
    if "selection" in trace.metadata:
        remedy = "leave --filter, --from and --until away; `perf script --time` chooses samples by time"
        raise UsageError(
            f"export a part of {trace.path} to perf-data", "samples cannot be chosen by a filter or a span", remedy
        )
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
    notes = [f"left out: {records.nr_unknown:,} samples of unknown events"] if records.nr_unknown else []
    return ExportSummary(records.nr_samples, notes=tuple(notes))
