"""A part of a trace: the rows that match a filter and belong to a span of time.

In: a trace. Out: a trace again, which yields only the rows of the part, batch by batch. Memory: one bit for each row.
Filters mean the same as when recording: ``filter/rows.py`` and ``filter/batches.py`` decide.

A row belongs to a span if it began before the span's end, and ended after the span's start or lasts until the trace's
end. Such a row stays unchanged. So a row across a border belongs to both sides. ``filter/batches.py`` says which other
rows stay. The tables of threads, rings, losses and devices, and the proof of completeness, stay whole. Of
``ring_states`` the span's rows stay, and for each ring the row that held at the span's start.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from lo2io.errors import UsageError
from lo2io.filter.batches import LeftOut, Passing
from lo2io.filter.parser import parse_all
from lo2io.filter.rows import Criteria, Matcher
from lo2io.model import UNKNOWN_I64
from lo2io.model.layers import WORKERS
from lo2io.model.number_sets import NumberSet
from lo2io.trace.columns import latest_end
from lo2io.trace.reader import Trace, as_numpy
from lo2io.trace.selection.batches import CALLS, REQUESTS, RINGS, Machine, call_specs, iter_subjects, make_batch
from lo2io.trace.selection.moments import parse_moment
from lo2io.units import format_duration

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from lo2io.model import Columns

    Flags = NDArray[np.bool_]
    Rule = Callable[[Columns], Flags]

_MERGED: Final = 2
"""``requests.status`` of a merged request. It ended when it was merged; no column has this time."""


@dataclass(frozen=True)
class Selection(Trace):
    """A trace of which only the chosen rows are read."""

    kept: Mapping[str, tuple[NDArray[np.uint8] | bool, ...]] = field(repr=False)
    """Table → for each batch one bit a row (1: the row stays), or one bool for all rows. Other tables stay whole."""
    named: Callable[[NDArray[Any]], Flags] = field(repr=False)
    """Says for handles whether a row that stays names them."""

    def record_batches(self, name: str, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        """As :meth:`Trace.record_batches`, with only the rows that stay. Batches without such a row are not read."""
        kept = self.kept.get(name)
        if kept is None:
            yield from super().record_batches(name, columns)
            return
        renew = name == "handles" and (columns is None or "used" in columns)
        wanted = columns if columns is None or not renew else (*columns, "handle")
        with self._open(name, wanted) as reader:
            schema = reader.schema
            for index, flags in enumerate(kept):
                if flags is False:
                    continue
                batch = self._read(name, reader, index)
                if renew:
                    batch = self._renewed(batch)
                if columns is not None and len(batch.schema) > len(set(columns)):
                    batch = batch.select([each for each in schema.names if each in columns])
                if flags is not True:
                    batch = _filtered(batch, _flags(flags, batch.num_rows))
                yield batch

    def _renewed(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The batch of handles with ``used`` set only for handles that a row that stays names."""
        place = batch.schema.get_field_index("used")
        used = as_numpy(batch.column("used")) & self.named(as_numpy(batch.column("handle")))
        return batch.set_column(place, batch.schema.field(place), pa.array(used))


def select(trace: Trace, filters: Sequence[str] = (), *, begin: str | None = None, end: str | None = None) -> Trace:
    """The part of a trace that matches all filters and belongs to a span. Without filter and span, the trace itself.

    The metadata describe the part. ``filter`` and ``filtered`` are as if the part had been recorded with these filters.
    ``start_ns`` and ``stop_ns`` are the span's, ``tables`` has the part's rows. A further key, ``selection``, holds
    ``filter``, ``begin_ns`` and ``end_ns`` (null: not given), and the numbers of rows ``outside`` of the span. The
    counters of completeness stay those of the whole recording.

    Args:
        trace: The whole trace.
        filters: Texts of ``--filter``.
        begin: First moment of the span, as :func:`lo2io.trace.selection.moments.parse_moment` reads it.
        end: The first moment after the span.

    Raises:
        UsageError: A filter or time cannot be read, or the span lies outside of the trace.
        TraceError: A table cannot be read.
    """
    chosen = parse_all(filters)
    span = _Span.of(trace, begin, end)
    if not chosen and span is None:
        return trace
    return _Choice(trace, Criteria(chosen), span or _Span(None, None)).make()


@dataclass(frozen=True, slots=True)
class _Span:
    """From ``begin`` to before ``end``, on the trace's clock; None: open."""

    begin: int | None
    end: int | None

    @classmethod
    def of(cls, trace: Trace, begin: str | None, end: str | None) -> _Span | None:
        if begin is None and end is None:
            return None
        moments = [None if text is None else parse_moment(text, trace.metadata) for text in (begin, end)]
        start, stop = trace.metadata["start_ns"], trace.metadata["stop_ns"]
        first = start if moments[0] is None else max(start, moments[0])
        last = stop if moments[1] is None else min(stop, moments[1])
        if first >= last:
            asked = f"from {begin or 'its start'} until {end or 'its end'}"
            length = format_duration(stop - start)
            raise UsageError(
                f"take the part of the trace {asked}", f"nothing lies there: it is {length} long", "name another span"
            )
        return cls(*moments)

    def holds(self, begin: NDArray[np.int64], end: NDArray[np.int64]) -> Flags:
        """True for rows that lie at least partly in the span.

        An unknown start is before, an unknown end after all times.
        """
        inside = np.ones(len(begin), np.bool_)
        if self.end is not None:
            inside &= begin < self.end
        if self.begin is not None:
            inside &= (end > self.begin) | (begin >= self.begin) | (end == UNKNOWN_I64)
        return inside


@dataclass(slots=True)
class _Outside:
    """Numbers of rows outside of the span."""

    calls: int = 0
    requests: int = 0
    ring_requests: int = 0


class _Choice:
    """Finds the rows that stay in two passes: the first learns what passes, the second notes each row."""

    def __init__(self, trace: Trace, criteria: Criteria, span: _Span) -> None:
        self._trace = trace
        self._filter = criteria.filter
        self._span = span
        self._passing = Passing(Matcher(criteria, Machine.of(trace.metadata), call_specs(trace.metadata)))
        self._kept: dict[str, tuple[NDArray[np.uint8] | bool, ...]] = {}
        self._rows: dict[str, int] = {}
        self._served = NumberSet()
        """Ids of block requests that stay."""
        self._ringed = NumberSet()
        """Ids of requests of rings that stay."""
        self._calls = NumberSet()
        """Ids of calls that stay, where some table refers to them."""
        self._left_out = LeftOut()
        self._outside = _Outside()

    def make(self) -> Selection:
        self._learn()
        passing = self._passing
        self._note("requests", REQUESTS, self._requests)
        self._note("ring_requests", RINGS, self._ring_requests)
        self._note_calls()
        self._note("ring_works", ("id",), lambda rows: passing.rings.holds(rows["id"]))
        self._note("handles", ("handle",), lambda rows: passing.handles.at(rows["handle"]))
        self._note("files", ("file",), lambda rows: passing.files.at(rows["file"]))
        for table, column in (("paths", "operation"), ("batches", "id"), ("iocbs", "operation")):
            self._note(table, (column,), lambda rows, column=column: self._calls.holds(rows[column]))  # type: ignore[misc]
        for table in ("request_parts", "write_backs"):
            self._note(table, ("request",), lambda rows: self._served.holds(rows["request"]))
        for table in ("faults", "fuse_requests", "call_stacks", "futexes"):
            self._note(table, ("operation",), lambda rows: self._calls.holds(rows["operation"]))
        for table in ("fills", "evictions"):
            self._note(
                table, ("cause",), lambda rows: self._calls.holds(rows["cause"]) | passing.rings.holds(rows["cause"])
            )
        if self._span.begin is not None or self._span.end is not None:
            self._note_states()
        return Selection(self._trace.path, self._metadata(), self._kept, passing.named.at)

    # ---- what passes ----

    def _learn(self) -> None:
        trace, passing = self._trace, self._passing
        for batch in iter_subjects(trace):
            passing.learn(batch)
        for rows in trace.batches("operations", CALLS):
            passing.learn(make_batch(operations=_where(rows, self._call_in_span(rows))))
        for rows in trace.batches("requests", REQUESTS):
            passing.learn(make_batch(requests=_where(rows, self._request_in_span(rows))))
        for rows in trace.batches("request_parts", ("request", "file")):
            passing.learn_parts(rows)
        for rows in trace.batches("ring_requests", RINGS):
            passing.learn(make_batch(ring_requests=_where(rows, self._ring_request_in_span(rows))))
        passing.conclude()
        if passing.rings_open:
            for rows in trace.batches("ring_requests", RINGS):
                passing.find_rings(_where(rows, self._ring_request_in_span(rows)))

    def _call_in_span(self, rows: Columns) -> Flags:
        return self._span.holds(rows["begin_time_ns"], rows["end_time_ns"])

    def _request_in_span(self, rows: Columns) -> Flags:
        begin = np.where(rows["insert_time_ns"] == UNKNOWN_I64, rows["issue_time_ns"], rows["insert_time_ns"])
        end = np.where(rows["status"] == _MERGED, begin, latest_end(rows))
        return self._span.holds(begin, end)

    def _ring_request_in_span(self, rows: Columns) -> Flags:
        return self._span.holds(rows["submit_time_ns"], rows["complete_time_ns"])

    # ---- what stays, row by row ----

    def _note(self, table: str, columns: Sequence[str], rule: Rule) -> None:
        notes: list[NDArray[np.uint8] | bool] = []
        self._rows[table] = 0
        for rows in self._trace.batches(table, columns):
            flags = rule(rows)
            count = int(np.count_nonzero(flags))
            self._rows[table] += count
            notes.append(np.packbits(flags) if 0 < count < len(flags) else count > 0)
        former = self._trace.kept.get(table) if isinstance(self._trace, Selection) else None
        self._kept[table] = tuple(notes) if former is None else _within(former, notes)

    def _requests(self, rows: Columns) -> Flags:
        inside = self._request_in_span(rows)
        passes = self._passing.requests(rows)
        self._outside.requests += _nr_false(inside)
        self._left_out.requests += _nr_false(passes | ~inside)
        self._served.add(rows["id"][inside & passes])
        return inside & passes

    def _ring_requests(self, rows: Columns) -> Flags:
        inside = self._ring_request_in_span(rows)
        passes = self._passing.rings.holds(rows["id"])
        self._outside.ring_requests += _nr_false(inside)
        self._left_out.ring_requests += _nr_false(passes | ~inside)
        self._ringed.add(rows["id"][inside & passes])
        return inside & passes

    def _note_calls(self) -> None:
        """Note calls, and the stretches in which their threads had no CPU."""
        referred = any(self._trace.rows(table) for table in ("paths", "batches", "iocbs", "fills", "evictions"))
        waits = _Waits(self._trace) if self._trace.rows("off_cpu") else None

        def of_calls(rows: Columns) -> Flags:
            inside = self._call_in_span(rows)
            passes = self._passing.calls(rows)
            self._outside.calls += _nr_false(inside)
            self._left_out.calls += _nr_false(passes | ~inside)
            passes &= inside
            if referred:
                self._calls.add(rows["id"][passes])
            if waits is not None:
                waits.claim(rows["task"], rows["begin_time_ns"], passes)
            return passes

        self._note("operations", CALLS, of_calls)
        if waits is not None:
            flags = waits.kept()
            places = iter(
                np.split(flags, np.cumsum([len(r["task"]) for r in self._trace.batches("off_cpu", ("task",))]))
            )
            told = WORKERS in self._trace.metadata.get("layers", ())
            rule = (lambda rows: self._of_wait(rows, next(places))) if told else (lambda _: next(places))
            self._note("off_cpu", ("request" if told else "task",), rule)

    def _of_wait(self, rows: Columns, of_call: Flags) -> Flags:
        """True for stretches whose call stays, and for those of workers whose request stays."""
        kept: Flags = np.where(rows["request"] == 0, of_call, self._ringed.holds(rows["request"]))
        return kept

    def _note_states(self) -> None:
        """Note the rings' states in the span, and for each ring the last state before the span."""
        span, number = self._span, 0
        last: dict[int, int] = {}
        for rows in self._trace.batches("ring_states", ("time_ns", "ring")) if span.begin is not None else ():
            for row in np.flatnonzero(rows["time_ns"] < span.begin).tolist():
                last[int(rows["ring"][row])] = number + row
            number += len(rows["ring"])
        standing, number = np.array(sorted(last.values()), np.int64), 0

        def rule(rows: Columns) -> Flags:
            nonlocal number
            here = standing[(standing >= number) & (standing < number + len(rows["ring"]))] - number
            number += len(rows["ring"])
            flags = span.holds(rows["time_ns"], rows["time_ns"])
            flags[here] = True
            return flags

        self._note("ring_states", ("time_ns", "ring"), rule)

    def _metadata(self) -> dict[str, Any]:
        meta, span = self._trace.metadata, self._span
        recorded = parse_all([meta.get("filter", "")])
        filtered = {key: count + meta.get("filtered", {}).get(key, 0) for key, count in asdict(self._left_out).items()}
        tables = {
            name: {**facts, "rows": self._rows.get(name, facts["rows"])} for name, facts in meta["tables"].items()
        }
        selection = {
            "filter": str(self._filter),
            "begin_ns": span.begin,
            "end_ns": span.end,
            "outside": asdict(self._outside),
        }
        return {
            **meta,
            **({"filter": str(recorded & self._filter), "filtered": filtered} if self._filter else {}),
            "start_ns": max(meta["start_ns"], meta["start_ns"] if span.begin is None else span.begin),
            "stop_ns": min(meta["stop_ns"], meta["stop_ns"] if span.end is None else span.end),
            "tables": tables,
            "selection": selection,
        }


class _Waits:
    """The call of each stretch without a CPU: its thread's call that began last before the stretch."""

    def __init__(self, trace: Trace) -> None:
        tasks, begins = trace.column("off_cpu", "task"), trace.column("off_cpu", "begin_time_ns")
        self._times = np.unique(begins)
        keys = self._keys(tasks, begins)
        self._order = np.argsort(keys, kind="stable")
        self._sorted = keys[self._order]
        self._claims = np.full(len(keys), UNKNOWN_I64, np.int64)
        """One number for each wait, in that order: twice the start of the last call between the previous wait and this
        one, plus 1 if that call stays. Unknown: no call began between the two waits."""

    def _keys(self, tasks: NDArray[Any], times: NDArray[Any]) -> NDArray[np.uint64]:
        """Keys that sort by thread, then by time: the time's place among all times at which a wait began."""
        places = np.searchsorted(self._times, times).astype(np.uint64)
        return tasks.astype(np.uint64) << np.uint64(32) | places

    def claim(self, tasks: NDArray[Any], begins: NDArray[Any], stays: Flags) -> None:
        """Take calls, in any order."""
        places = np.searchsorted(self._sorted, self._keys(tasks, begins))
        nearest = self._sorted[np.minimum(places, len(self._sorted) - 1)] >> np.uint64(32)
        own = (places < len(self._sorted)) & (nearest == tasks)
        np.maximum.at(self._claims, places[own], begins[own] * 2 + stays[own])

    def kept(self) -> Flags:
        """One flag for each wait, in the table's order: True if the wait's call stays."""
        places = np.arange(len(self._claims))
        last = np.maximum.accumulate(np.where(self._claims != UNKNOWN_I64, places, -1))
        own = (last >= 0) & (self._sorted[last] >> np.uint64(32) == self._sorted >> np.uint64(32))
        flags = np.zeros(len(places), np.bool_)
        flags[self._order] = own & (self._claims[last] & 1 == 1)
        return flags


def _where(rows: Columns, flags: Flags) -> Columns:
    return rows if flags.all() else {name: column[flags] for name, column in rows.items()}


def _nr_false(flags: Flags) -> int:
    return len(flags) - int(np.count_nonzero(flags))


# ---- rows of a batch ----


def _flags(bits: NDArray[np.uint8] | bool, rows: int) -> Flags:
    return np.unpackbits(np.asarray(bits), count=rows).astype(np.bool_)


def _within(
    former: Sequence[NDArray[np.uint8] | bool], notes: Sequence[NDArray[np.uint8] | bool]
) -> tuple[NDArray[np.uint8] | bool, ...]:
    """Notes about a part's batches as notes about the whole trace's batches."""
    found: list[NDArray[np.uint8] | bool] = []
    later = iter(notes)
    for before in former:
        note = before is not False and next(later)
        if note is not False and before is not True:
            bits = np.unpackbits(np.asarray(before))
            if note is not True:
                bits[bits == 1] = np.unpackbits(np.asarray(note), count=int(np.count_nonzero(bits)))
            note = np.packbits(bits)
        found.append(note)
    return tuple(found)


def _filtered(batch: pa.RecordBatch, flags: Flags) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([_filter(column, flags) for column in batch.columns], schema=batch.schema)


def _filter(array: pa.Array, flags: Flags) -> pa.Array:
    """The chosen rows of a column. Values under nulls are kept, which Arrow's own filter does not promise."""
    kind = array.type
    is_labelled = pa.types.is_dictionary(kind)
    if pa.types.is_boolean(kind) or not (is_labelled or pa.types.is_primitive(kind)):
        return array.filter(pa.array(flags))
    values = as_numpy(array)[flags]
    known = np.asarray(array.is_valid())[flags] if array.null_count else None
    valid = None if known is None else pa.py_buffer(np.packbits(known, bitorder="little"))
    numbers = pa.from_numpy_dtype(values.dtype)
    chosen = pa.Array.from_buffers(numbers, len(values), [valid, pa.py_buffer(values)])
    return pa.DictionaryArray.from_arrays(chosen, array.dictionary) if is_labelled else chosen
