"""A trace as logs for ``fio --read_iolog``: one log for each process, thread or disk, and a job file for all logs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lo2io.exports.fio.iolog import JOB_FILE, default_settings, is_fit, job_file, write_logs
from lo2io.exports.fio.plan import make_plan
from lo2io.exports.target import ExportSummary

if TYPE_CHECKING:
    from pathlib import Path

    from lo2io.exports.target import Progress
    from lo2io.trace.reader import Trace


def export(trace: Trace, target: Path, progress: Progress, *, by: str = "process", version: str = "3") -> ExportSummary:
    """Write ``LABEL.iolog`` for each process, thread or disk that has read, written or synced, and ``job.fio``.

    Args:
        trace: The trace to write.
        target: An empty folder.
        progress: Called with the finished share.
        by: ``process``, ``thread`` or ``device``.
        version: Version of the logs: 3 with times, 2 without.

    Returns:
        ``rows``: the number of actions in the logs. Notes: what the logs leave out, and why.

    Raises:
        OSError: A log cannot be written.
        TraceError: A table cannot be read.
    """
    plan = make_plan(trace, by, lambda share: progress(share / 2))
    names = {number: path for number, path in enumerate(plan.paths) if is_fit(path)}
    written = write_logs(plan, target, names, lambda share: progress(0.5 + share / 2), version=int(version))
    text = job_file(plan, names, default_settings(by))
    (target / JOB_FILE).write_text(text, encoding="utf-8")
    notes = list(plan.notes())
    if unfit := plan.nr_actions - written:
        notes.append(f"left out: {unfit:,} on files whose names no iolog can hold; `lo2io replay` can do them")
    return ExportSummary(written, notes=tuple(notes))
