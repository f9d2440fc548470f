"""Operations added up by the native part, which ``lo2io/native/api/sums.h`` describes.

In: batches of the table of operations. Out: the arrays of the tallies, filled. The native part looks up files and
processes, and adds a row to all sums before it goes on to the next row.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from lo2io.model import UNKNOWN_I64
from lo2io.native._lib import ffi, lib
from lo2io.native.columns import array_members, pointer_to
from lo2io.reports.summary.call_time import Slow
from lo2io.reports.summary.classes import CLASS_OF_TYPE, NR_CLASSES, PASSIVE, native_traits
from lo2io.reports.summary.file_types import FileType
from lo2io.reports.summary.pattern import ALIGNMENT, NEAR_BYTES, SMALL_BYTES

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from lo2io.model import Columns
    from lo2io.reports.summary.call_time import TimeTally
    from lo2io.reports.summary.owners import Owners
    from lo2io.reports.summary.pattern import PatternTally
    from lo2io.reports.summary.spans import CallSpans
    from lo2io.reports.summary.tally import OperationTally

_DERIVED: Final = array_members("lo2_derived_rows")


class RowContext:
    """How rows of operations are looked up.

    Args:
        calls: The metadata's ``calls``.
        owners: The process and the file group of each operation.
        spans: When each thread had requests under way.
        is_direct: For each handle, True if it was opened with O_DIRECT.
    """

    def __init__(
        self, calls: Sequence[Mapping[str, Any]], owners: Owners, spans: CallSpans, is_direct: NDArray[np.bool_]
    ) -> None:
        self._kept = owners, spans, is_direct, native_traits(calls)
        self.native = ffi.new("lo2_sum_context *")
        owners.tell(self.native)
        self.native.is_direct, self.native.nr_direct = pointer_to(is_direct, "bool"), len(is_direct)
        self.native.storage = FileType.STORAGE
        self.native.class_of_type = pointer_to(CLASS_OF_TYPE, "uint8_t")
        self.native.calls = self._kept[-1]
        self.native.spans = spans.native[0]

    def derive(self, rows: Columns) -> Columns:
        """Work out what sums need of rows with the columns of :data:`~lo2io.reports.summary.tally.OPERATION_COLUMNS`.

        Returns:
            The rows, and ``class``, ``ended``, ``duration_ns`` (0: in flight, or negative), ``moved`` (bytes, 0: none),
            ``synced`` (a write that is also a sync: O_SYNC, O_DSYNC, RWF_SYNC, RWF_DSYNC), ``process`` and ``group`` as
            the owners number them, ``device_ns`` and ``queue_ns`` (:class:`~lo2io.reports.summary.spans.CallSpans`).
        """
        native, kept = native_rows(rows)
        derived = ffi.new("lo2_derived_rows *")
        columns: Columns = {}
        for name, (item, dtype) in _DERIVED.items():
            columns[name] = values = np.zeros(native.nr, dtype)
            setattr(derived, name, pointer_to(values, item))
        lib.lo2_derive(self.native, native, derived)
        del kept
        columns["class"] = columns.pop("kind")
        numbers = {name: columns[name].astype(np.intp) for name in ("class", "process", "group")}
        return {**rows, **columns, **numbers}


def native_rows(rows: Columns, struct: str = "lo2_sum_rows") -> tuple[Any, Any]:
    """Such a struct, whose members are columns, and what it points to."""
    native, kept = ffi.new(f"{struct} *"), []
    for name, (item, dtype) in array_members(struct).items():
        kept.append(np.ascontiguousarray(rows[name], dtype))
        setattr(native, name, pointer_to(kept[-1], item))
    native.nr = len(rows["task"])
    return native, kept


class Adder:
    """Fills the arrays of the tallies.

    Args:
        context: How rows are looked up.
        operations: Sums by call, process and file.
        pattern: Sizes and order of accesses.
        time: Where the time went.
    """

    def __init__(self, context: RowContext, operations: OperationTally, pattern: PatternTally, time: TimeTally) -> None:
        self._pattern, self._time = pattern, time
        passive = np.isin(np.arange(NR_CLASSES), PASSIVE)
        latency = operations.latency
        self._kept = context, operations, passive
        config = ffi.new("lo2_tally_config *")
        config.context = context.native[0]
        for name, sums in (
            ("by_call", operations.by_call),
            ("by_process", operations.by_process),
            ("by_group", operations.by_group),
        ):
            setattr(config, name, pointer_to(sums.rows, "lo2_activity_sums"))
        for name, values in (
            ("thread_ns", operations.thread_ns),
            ("in_flight", operations.in_flight),
            ("errnos", operations.errnos),
            ("latency_row", operations.latency_row),
            ("sizes", pattern.sizes),
            ("ends", pattern.ends),
            ("process_calls", time.process_calls),
            ("process_ns", time.process_ns),
            ("process_syncs", time.process_syncs),
            ("process_sync_ns", time.process_sync_ns),
        ):
            setattr(config, name, pointer_to(values, "int64_t"))
        config.latency = {name: pointer_to(values, "int64_t") for name, values in latency.arrays().items()}
        config.accesses = [pointer_to(sums.rows, "lo2_access_sums") for sums in (pattern.read, pattern.write)]
        config.groups = pointer_to(pattern.rows, "lo2_group_sums")
        config.time = pointer_to(time.rows, "lo2_time_sums")
        config.passive = pointer_to(passive, "bool")
        config.near_bytes, config.small_bytes, config.alignment = NEAR_BYTES, SMALL_BYTES, ALIGNMENT
        native = lib.lo2_tally_new(config)
        if native == ffi.NULL:
            raise MemoryError
        self._native = ffi.gc(native, lib.lo2_tally_free)

    def add(self, rows: Columns, worked: NDArray[np.int64] | None) -> None:
        """Add operations in the order of their ends, without the GIL.

        Args:
            rows: Columns of :data:`~lo2io.reports.summary.tally.OPERATION_COLUMNS`.
            worked: How long each call worked before it waited, in ns; None: unknown of all.
        """
        native, kept = native_rows(rows)
        if not lib.lo2_tally_add(self._native, native, ffi.NULL if worked is None else pointer_to(worked, "int64_t")):
            raise MemoryError
        del kept

    def finish(self) -> tuple[Slow, ...]:
        """Hand out the sums that are no arrays; return the slowest calls, longest first."""
        view = lib.lo2_tally_view_of(self._native)
        for common, rows, nr in zip(self._pattern.common, view.common, view.nr_common, strict=True):
            common.update((rows[row].size, rows[row].accesses) for row in range(nr))
        for row in range(view.nr_failures):
            failure = view.failures[row]
            key = failure.process, failure.call, failure.kind, failure.error
            self._time.failures[key], self._time.failure_ns[key] = failure.calls, failure.time_ns
        return tuple(_slow(view.slow[row]) for row in range(view.nr_slow))


def _slow(row: Any) -> Slow:
    size = row.bytes_request if row.bytes_result == UNKNOWN_I64 else row.bytes_result
    return Slow(
        id=row.id,
        call=row.call,
        task=row.task,
        begin_ns=row.begin_ns,
        duration_ns=row.duration_ns,
        group=row.group,
        offset_bytes=None if row.offset_bytes == UNKNOWN_I64 else row.offset_bytes,
        bytes=None if size == UNKNOWN_I64 else size,
        error=abs(row.error),
        device_ns=row.device_ns,
        queue_ns=row.queue_ns,
    )
