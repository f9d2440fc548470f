"""A trace's tables as batches of the engine, with only the columns that the rules of filters need.

In: a trace. Out: batches, calls and the machine in the form that ``filter/rows.py`` and ``filter/batches.py`` take.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from lo2io.catalog.catalog import load_catalog
from lo2io.frozen import dataclass
from lo2io.model import Batch, BlockDevice, CallKind, CallSpec, Mount, Returns

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from lo2io.model import Columns
    from lo2io.trace.reader import Trace

_SUBJECTS: Final = ("id", "task", "handle", "handle2")
CALLS: Final = (*_SUBJECTS, "pid", "tid", "call", "begin_time_ns", "end_time_ns", "bytes_request")
RINGS: Final = (
    *(*_SUBJECTS, "pid", "tid", "opcode", "path"),
    *("submit_time_ns", "issue_time_ns", "complete_time_ns", "bytes_result"),
)
REQUESTS: Final = (
    *("id", "device", "task", "tid", "sector", "operation", "status", "bytes_request", "bytes_issued"),
    *("insert_time_ns", "issue_time_ns", "complete_time_ns", "end_latest_ns"),
)


@dataclass(frozen=True, slots=True)
class Machine:
    """The facts about a machine that a filter's matcher needs."""

    devices: tuple[BlockDevice, ...]
    mounts: tuple[Mount, ...]

    @classmethod
    def of(cls, metadata: Mapping[str, Any]) -> Machine:
        """The machine that a trace's metadata describe."""
        return cls(
            tuple(BlockDevice(**device) for device in metadata["devices"]),
            tuple(Mount(**mount) for mount in metadata["mounts"]),
        )


def call_specs(metadata: Mapping[str, Any]) -> tuple[CallSpec, ...]:
    """The calls by their codes. A call that this version no longer knows counts as one without paths."""
    known = {call.name: call for call in load_catalog().rows}
    return tuple(
        known.get(call["tracepoint"])
        or CallSpec(
            name=call["tracepoint"],
            abi_name=call["name"],
            group=call["group"],
            core=False,
            kind=CallKind[call["kind"].upper()],
            returns=Returns.ZERO,
            io_mode="none",
            region_role="file_io",
            fields={},
        )
        for call in metadata["calls"]
    )


_COLUMNS: Final = {
    "operations": CALLS,
    "handles": ("handle", "parent", "file"),
    "files": ("file", "device", "mode", "mount", "path_offset", "path_length"),
    "tasks": ("task", "pid", "comm_offset", "comm_length", "cgroup_offset", "cgroup_length"),
    "paths": ("operation", "source", "path_offset", "path_length", "directory_offset", "directory_length"),
    "requests": REQUESTS,
    "ring_requests": RINGS,
    "rings": ("ring", "handle"),
}
_EMPTY: Final = {table: {name: np.zeros(0, np.int64) for name in columns} for table, columns in _COLUMNS.items()}


def make_batch(text: bytes = b"", **tables: Columns) -> Batch:
    """A batch like the engine's, with only the given tables and columns."""
    nothing: Columns = {}
    rest = ("handle_events", "request_events", "completions", "switches", "off_cpu", "losses")
    return Batch(text=text, first_operation=0, **{**_EMPTY, **dict.fromkeys(rest, nothing), **tables})


def iter_subjects(trace: Trace) -> Iterator[Batch]:
    """Batches of the subjects of rows: threads, files, paths given to calls, handles, rings.

    Raises:
        TraceError: A table cannot be read.
    """
    for rows, text in _with_texts(trace, "threads", ("task", "pid"), ("comm", "cgroup")):
        yield make_batch(text, tasks=rows)
    for rows, text in _with_texts(trace, "files", ("file", "device", "mode", "mount"), ("path",)):
        yield make_batch(text, files=rows)
    for rows, text in _with_texts(trace, "paths", ("operation", "source"), ("path", "directory")):
        yield make_batch(text, paths=rows)
    for rows in trace.batches("handles", ("handle", "parent", "file")):
        yield make_batch(handles=rows)
    for rows in trace.batches("rings", ("ring", "handle")):
        yield make_batch(rings=rows)


def _with_texts(
    trace: Trace, table: str, numbers: Sequence[str], texts: Sequence[str]
) -> Iterator[tuple[Columns, bytes]]:
    """Batches that hold texts as the engine does: all bytes together, and each row's offset and length."""
    if not trace.rows(table):
        return
    for rows, strings in zip(trace.batches(table, numbers), trace.text_batches(table, texts), strict=True):
        found, text = dict(rows), b""
        for name, values in zip(texts, strings, strict=True):
            raw = [b"" if value is None else value.encode() for value in values]
            lengths = np.fromiter(map(len, raw), np.int64, len(raw))
            found[f"{name}_offset"] = len(text) + np.cumsum(lengths) - lengths
            found[f"{name}_length"] = lengths
            text += b"".join(raw)
        yield found, text
