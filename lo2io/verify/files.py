"""Rules of lo2io's tables of handles, files and paths, and of the number of rows of all tables.

In: the tables. Out: findings. ``docs/explanation/rules/names.md`` says where names come from; this module does not
    know.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from lo2io.model import UNKNOWN_I64, UNKNOWN_U32
from lo2io.model.number_sets import NumberSet
from lo2io.trace.columns import NAME_SOURCE

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from lo2io.trace.reader import Trace
    from lo2io.verify.rules import Verification

UNKNOWN, KERNEL = NAME_SOURCE.index("unknown"), NAME_SOURCE.index("kernel")
_OF_PROC: Final = re.compile(r"/.*|\w+:\[\d+\]|anon_inode:.+", re.DOTALL)
"""The texts that readlink(2) of /proc/PID/fd can show."""
MOST_PATHS: Final = 2


def knows_paths(trace: Trace) -> bool:
    """True if the version of lo2io that wrote the trace takes names from programs in the kernel."""
    return "paths" in trace.metadata.get("tables", {})


def check_rows(trace: Trace, verdict: Verification) -> None:
    """Read each table to its end, and compare its number of rows with the metadata.

    Raises:
        TraceError: A table is missing or cannot be read.
    """
    for name in trace.metadata["tables"]:
        rows = sum(batch.num_rows for batch in trace.record_batches(name))
        if rows != trace.rows(name):
            verdict.report("count.tables", f"{name} has {rows:,} rows; by the metadata there are {trace.rows(name):,}")


class FileRules:
    """Checks the rules of handles, files and paths, once for one trace."""

    def __init__(self, trace: Trace, verdict: Verification) -> None:
        self._trace = trace
        self._verdict = verdict
        self._files = NumberSet()
        self._by_kernel = NumberSet()

    def check(self) -> None:
        """Report the rows that break a rule.

        Raises:
            TraceError: A table cannot be read.
        """
        self._check_files()
        self._check_handles()
        self._check_paths()

    def _report(self, rule: str, text: str) -> None:
        self._verdict.report(rule, text)

    def _check_files(self) -> None:
        for batch in self._trace.batches("files", ["file", "name_source", "generation", "links"]):
            told = batch["name_source"] == KERNEL
            self._files.add(batch["file"])
            self._by_kernel.add(batch["file"][told])
            known = (batch["generation"] != UNKNOWN_I64) & (batch["links"] != UNKNOWN_U32)
            for number in batch["file"][told != known].tolist():
                self._report("table.file", f"files: the generation and links of {number} do not fit its name_source")
        self._check_names()

    def _check_names(self) -> None:
        for batch in self._trace.text_batches("files", ["file", "name_source", "path"]):
            for number, source, path in zip(*batch, strict=True):
                if source == NAME_SOURCE[KERNEL] and not (path and _OF_PROC.fullmatch(path)):
                    self._report("table.file", f"files: {number} has the name {path!r}, which no descriptor can show")

    def _check_handles(self) -> None:
        """Check handles. If programs in the kernel named a description, it has one name from one source."""
        parts: list[NDArray[Any]] = []
        for batch in self._trace.batches("handles", ["handle", "file", "name_source", "description"]):
            named = batch["file"] != UNKNOWN_U32
            for number in batch["handle"][named & ~self._files.holds(batch["file"])].tolist():
                self._report("table.reference", f"handles: the file of {number} is no row of files")
            told = batch["name_source"] == KERNEL
            wrong = told != (named & self._by_kernel.holds(batch["file"]))
            for number in batch["handle"][wrong].tolist():
                self._report("table.file", f"handles: {number} has its name from another source than its file")
            parts.append(np.stack([batch["description"][told], batch["file"][told]]))
        pairs = np.unique(np.concatenate(parts, axis=1), axis=1) if parts else np.zeros((2, 0), np.uint32)
        for number in np.unique(pairs[0][1:][pairs[0][1:] == pairs[0][:-1]]).tolist():
            self._report("table.file", f"handles: the open file description {number} has two names")

    def _check_paths(self) -> None:
        """Check that paths belong to calls, have the order of the calls, and occur once for each place."""
        calls = NumberSet()
        for batch in self._trace.batches("operations", ["id"]):
            calls.add(batch["id"])
        last = (-1, -1)
        for batch in self._trace.batches("paths", ["operation", "place"]):
            for number in batch["operation"][~calls.holds(batch["operation"])].tolist():
                self._report("table.reference", f"paths: {number} is no call")
            for row in zip(batch["operation"].tolist(), batch["place"].tolist(), strict=True):
                if row[1] >= MOST_PATHS or (row[0] == last[0] and row[1] <= last[1]):
                    self._report("table.path", f"paths: call {row[0]} has a path at place {row[1]} again, or too many")
                last = row
        for columns in self._trace.text_batches("paths", ["operation", "source", "path"]):
            for number, source, path in zip(*columns, strict=True):
                if (source == NAME_SOURCE[UNKNOWN]) != (path is None):
                    self._report("table.path", f"paths: {source} has read {path!r} for call {number}")
