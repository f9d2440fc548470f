"""Runs ``lo2io record`` like a user, and reads its trace."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
from typer.testing import CliRunner

from lo2io.cli.app import app
from lo2io.trace.reader import Trace, open_trace
from workloads.served import lo2io

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lo2io.model import Completeness

LO2IO = Path(sys.executable).parent / "lo2io"


@dataclass(frozen=True)
class Recorded:
    """A finished recording."""

    trace: Trace
    exit_code: int
    stdout: str
    stderr: str

    def operations(self) -> list[dict[str, Any]]:
        """All operations in the order of their start; ``path`` and ``path2`` are their files' names, or None.

        ``fd`` is -1 for calls without one, as the program passed it.
        """
        return self._rows(self.trace.operations)

    def calls(self, *names: str) -> list[dict[str, Any]]:
        """The operations of these calls. Of a whole machine's others, Python makes no rows."""
        table = self.trace.operations
        return self._rows(table.filter(pc.is_in(table["call"].cast(pa.string()), pa.array(names))))

    def _rows(self, operations: pa.Table) -> list[dict[str, Any]]:
        files = dict(zip(*(self.trace.files[column].to_pylist() for column in ("file", "path")), strict=True))
        of_handle = dict(zip(*(self.trace.handles[column].to_pylist() for column in ("handle", "file")), strict=True))
        rows = sorted(operations.to_pylist(), key=lambda row: (row["begin_time_ns"], row["id"]))
        for row in rows:
            row["fd"] = -1 if row["fd"] is None else row["fd"]
            row["path"] = files.get(of_handle.get(row["handle"]))
            row["path2"] = files.get(of_handle.get(row["handle2"]))
        return rows


def has_begun(spool: Path) -> bool:
    """True if the recording has begun: from then on its description has a comparison of clocks."""
    try:
        return '"syncs": []' not in (spool / "spool.json").read_text(encoding="utf-8")
    except FileNotFoundError:
        return False


def record(
    trace: Path,
    command: Sequence[str | Path],
    *options: str,
    stdin: Path | None = None,
    cwd: Path | None = None,
    attempts: int = 3,
) -> Recorded:
    """Record a command from start to end; it must succeed.

    All acts of the command must be proven captured, and none of them may be late, orphan or in flight, for tests
    compare exact numbers. Ends of block requests may be missing, if the kernel's counts prove that nothing else is:
    some virtual machines do not deliver them (docs/how-to/losses.md), unless they end in a worker's context, like a
    loop device's. If calls are perf samples, all processes' count, and those of process 1 may vanish, too. Only for
    that reason, the command is recorded again: ``attempts`` times in all.
    """
    done = lo2io("record", "--force", "-o", trace, *options, "--", *command, stdin=stdin or os.devnull, cwd=cwd)
    assert done.returncode == 0, f"exit code {done.returncode}: {done.stderr}"
    recorded = Recorded(open_trace(trace), done.returncode, done.stdout, done.stderr)
    proof = recorded.trace.completeness
    if attempts > 1 and proof.vanished and not proof.whole:
        return record(trace, command, *options, stdin=stdin, cwd=cwd, attempts=attempts - 1)
    assert proof.whole, done.stderr
    begun_before = recorded.trace.metadata["totals"]["nr_orphan_completions"]  # by any process
    assert (proof.late, proof.orphan - begun_before, proof.in_flight) == (0, 0, 0), done.stderr
    return recorded


def only_ends_missing(proof: Completeness) -> bool:
    """True if only ends of block requests are missing, by the kernel's counts."""
    ends = sum(event.lost + event.vanished for event in proof.events if event.event == "block:block_rq_complete")
    return proof.lost == ends and not any(event.surplus for event in proof.events)


def verified(trace: Path) -> str:
    """The verdict of ``lo2io verify``, which must find nothing wrong. Without a process of its own, to be fast."""
    done = CliRunner().invoke(app, ["verify", str(trace)], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.stdout


def finished(trace: Path) -> bool:
    """The trace keeps every rule, and no spool is left beside it."""
    verified(trace)
    return not (trace / "spool").exists()


def read_json_lines(text: str) -> list[dict[str, Any]]:
    """The ground truth that a workload printed."""
    return [json.loads(line) for line in text.splitlines()]
