"""Rules of lo2io's tables about rings, and comparisons of these tables with the trace.

Only lo2io's traces have such tables. Other tools' traces are not checked here.
"""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from lo2io.model import UNKNOWN_I64, UNKNOWN_U32, RingPath, RingStatus
from lo2io.model.number_sets import NumberSet
from lo2io.native._lib import lib
from lo2io.verify.rings import PATHS, STATUSES, path_problem

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from numpy.typing import NDArray

    from lo2io.model import Columns
    from lo2io.trace.reader import Trace
    from lo2io.verify.rings import RingCounts
    from lo2io.verify.rules import Verification

    Flags = NDArray[np.bool_]

_REFERENCES: Final = {
    "ring_requests": {
        "ring": "rings",
        "task": "threads",
        "worker": "threads",
        "waker": "threads",
        "handle": "handles",
        "handle2": "handles",
    },
    "ring_works": {"ring": "rings", "task": "threads"},
    "ring_states": {"ring": "rings"},
    "batches": {"ring": "rings"},
    "rings": {"task": "threads", "poller": "threads", "handle": "handles"},
    "iocbs": {"handle": "handles"},
}
"""Table → column → the table it refers to."""
_KEYS: Final = {"rings": "ring", "threads": "task", "handles": "handle"}
_REQUEST_COLUMNS: Final = (
    *("id", "status", "path", "traits", "previous", "culprit", "submit_time_ns", "issue_time_ns", "complete_time_ns"),
    *("queued_ns", "executing_ns", "waiting_ns", "worker", "nr_completions", "nr_polls", "nr_punts", "error"),
)
_COPY: Final = "copy"
"""The kind of calls that have two ids."""


class TableRules:
    """Checks the rules of the tables about rings, once for one trace."""

    def __init__(self, trace: Trace, verdict: Verification) -> None:
        self._trace = trace
        self._verdict = verdict
        self._ids = NumberSet()
        self._requests = NumberSet()
        self._partial = bool(trace.metadata.get("filter")) or int(trace.metadata.get("sample_rate", 1)) > 1

    def check(self, counts: RingCounts) -> None:
        """Report the rows that break a rule.

        Args:
            counts: The counts of the trace's events.

        Raises:
            TraceError: A table cannot be read.
        """
        without_data, number = self._opcodes_without_data(), 0
        for batch in self._trace.batches("ring_requests", ["id", "opcode"]):
            self._requests.add(batch["id"])
            number += int(np.count_nonzero(np.isin(batch["opcode"], without_data)))
        self._check_ids()
        self._check_references()
        for batch in self._trace.batches("ring_requests", _REQUEST_COLUMNS):
            self._check_ways(batch)
            self._check_phases(batch)
            self._check_named(batch)
        for batch in self._trace.batches("requests", ["id", "ring_request"]):
            self._check_request_ids("requests", batch, "ring_request")
        for batch in self._trace.batches("iocbs", ["operation", "request"]):
            self._check_request_ids("iocbs", {**batch, "id": batch["operation"]}, "request")
        works = self._check_works()
        operations = self._trace.rows("ring_requests") - number
        self._compare("ring_requests", "operations of the paradigms io_uring and libaio", operations, counts.requests)
        self._compare("ring_works", "regions of workers", works, counts.works)
        self._check_batches(counts.batches)
        self._check_iocbs()
        self._check_states(counts)

    def _report(self, rule: str, text: str, time: int | None = None) -> None:
        self._verdict.report(rule, text, time=None if time == UNKNOWN_I64 else time)

    def _report_rows(self, rule: str, bad: Flags, rows: Columns, text: str) -> None:
        """Report one finding for each flagged row. ``text`` holds names of columns in braces."""
        for place in np.flatnonzero(bad).tolist():
            self._report(rule, text.format(**{name: column[place] for name, column in rows.items()}))

    # ---- ids and references ----

    def _check_ids(self) -> None:
        """Check that no id is used twice. Calls, block requests and requests of rings share one counter."""
        calls = self._trace.metadata.get("calls", ())
        copies = np.array([call["kind"] == _COPY for call in calls] or [False], np.bool_)
        for batch in self._trace.batches("operations", ["id", "call"]):
            self._take_ids("operations", batch["id"])
            self._take_ids("operations", batch["id"][copies[batch["call"]]] + np.uint64(1))
        for table in ("requests", "ring_requests"):
            for batch in self._trace.batches(table, ["id"]):
                self._take_ids(table, batch["id"])

    def _take_ids(self, table: str, ids: NDArray[np.uint64]) -> None:
        ordered = np.sort(ids)
        twice = np.union1d(ordered[1:][ordered[1:] == ordered[:-1]], ids[self._ids.holds(ids)])
        for number in twice.tolist():
            self._report("table.id-again", f"{table}: id {number} served before")
        self._ids.add(ids)

    def _check_references(self) -> None:
        known = {}
        for table, key in _KEYS.items():
            known[table] = NumberSet()
            for batch in self._trace.batches(table, [key]):
                known[table].add(batch[key])
        for table, columns in _REFERENCES.items():
            for batch in self._trace.batches(table, list(columns)):
                for column, target in columns.items():
                    values = batch[column]
                    bad = (values != UNKNOWN_U32) & ~known[target].holds(values)
                    text = f"{table}: {column} {{{column}}} is no row of {target}"
                    self._report_rows("table.reference", bad, batch, text)

    def _check_named(self, rows: Columns) -> None:
        for column in ("previous", "culprit"):
            self._check_request_ids("ring_requests", rows, column)

    def _check_request_ids(self, table: str, rows: Columns, column: str) -> None:
        """Check requests that another row names, unless a filter or sampling may have left them out."""
        if not self._partial:
            values = rows[column]
            bad = (values != 0) & ~self._requests.holds(values)
            self._report_rows("table.reference", bad, rows, f"{table} {{id}}: {column} {{{column}}} is no request")

    # ---- requests ----

    def _check_ways(self, rows: Columns) -> None:
        """Report paths and statuses that cannot be."""
        path, status, error = rows["path"], rows["status"], rows["error"]
        for number, way in enumerate(PATHS):
            for code, end in enumerate(STATUSES):
                problem = path_problem(way, end)
                if problem:
                    bad = (path == number) & (status == code)
                    self._report_rows("ring.path", bad, rows, f"ring_requests {{id}}: {problem}")
        worked = (rows["nr_punts"] > 0) | (rows["worker"] != UNKNOWN_U32)
        never_polled = (rows["nr_polls"] == 0) & (rows["traits"] & lib.LO2_TRAIT_OLDER == 0)
        never = (path == RingPath.REFUSED) | (path == RingPath.CANCELLED)
        with_chain = (status == RingStatus.CANCELLED) & (
            rows["culprit"] != 0
        )  # cancelled with a silent request of its chain: no completion is needed
        no_end = (rows["nr_completions"] == 0) & ~with_chain
        ended = (status == RingStatus.COMPLETED) | (status == RingStatus.CANCELLED)
        for bad, problem in (
            ((path == RingPath.WORKER) & ~worked, "its path is 'worker', but it was never handed to a worker"),
            ((path != RingPath.WORKER) & worked & ~never, "it was handed to a worker, but its path is not 'worker'"),
            ((path == RingPath.POLL) & never_polled, "its path is 'poll', but it never waited for its file"),
            (
                ended & ((status == RingStatus.CANCELLED) != (error == errno.ECANCELED)),
                "its error does not fit its status",
            ),
            (ended & no_end, "it ended, but has no completion"),
        ):
            self._report_rows("ring.path", bad, rows, f"ring_requests {{id}}: {problem}")

    def _check_phases(self, rows: Columns) -> None:
        """Check that queued, executing and waiting time add up to the duration, and that times are in order."""
        begin, end, issue = rows["submit_time_ns"], rows["complete_time_ns"], rows["issue_time_ns"]
        phases = [rows[name] for name in ("queued_ns", "executing_ns", "waiting_ns")]
        known = np.logical_and.reduce([column != UNKNOWN_I64 for column in (begin, end, *phases)])
        known &= rows["traits"] & lib.LO2_TRAIT_OLDER == 0
        wrong = known & (sum(phases) != end - begin)
        text = "ring_requests {id}: {queued_ns} + {executing_ns} + {waiting_ns} ns is not its duration"
        self._report_rows("ring.phases", wrong, rows, text)
        for column in phases:
            bad = (column < 0) & (column != UNKNOWN_I64)
            self._report_rows("ring.phases", bad, rows, "ring_requests {id}: a phase ends before it begins")
        for earlier, later, what in (
            (begin, end, "completes"),
            (begin, issue, "is executed"),
            (issue, end, "completes"),
        ):
            bad = (earlier != UNKNOWN_I64) & (later != UNKNOWN_I64) & (later < earlier)
            then = "it was submitted" if earlier is begin else "it was executed"
            self._report_rows("ring.phases", bad, rows, f"ring_requests {{id}}: it {what} before {then}")

    # ---- workers ----

    def _check_works(self) -> int:
        """Check that executions of one worker do not overlap; return the number of executions that the trace shows."""
        last: dict[int, int] = {}
        seen = 0
        columns = ["id", "task", "queue_time_ns", "begin_time_ns", "end_time_ns"]
        for batch in self._trace.batches("ring_works", columns):
            queue, begin, end = (batch[name] for name in columns[2:])
            bad = ~self._requests.holds(batch["id"])
            self._report_rows("table.reference", bad, batch, "ring_works: id {id} is no request")
            for earlier, later, text in (
                (begin, end, "ends before it begins"),
                (queue, begin, "begins before it was handed over"),
            ):
                bad = (earlier != UNKNOWN_I64) & (later != UNKNOWN_I64) & (later < earlier)
                self._report_rows("ring.worker", bad, batch, f"ring_works: the execution of {{id}} {text}")
            seen += int(np.count_nonzero((begin != UNKNOWN_I64) | (end != UNKNOWN_I64)))
            for task in np.unique(batch["task"]).tolist():
                self._check_row_of_works(batch, batch["task"] == task, task, last)
        return seen

    def _check_row_of_works(self, batch: Columns, of_task: Flags, task: int, last: dict[int, int]) -> None:
        rows = {name: column[of_task] for name, column in batch.items()}
        begins = np.where(rows["begin_time_ns"] == UNKNOWN_I64, rows["end_time_ns"], rows["begin_time_ns"])
        ends = np.where(rows["end_time_ns"] == UNKNOWN_I64, begins, rows["end_time_ns"])
        before = np.concatenate([[last.get(task, UNKNOWN_I64)], np.maximum.accumulate(ends)[:-1]])
        bad = (begins != UNKNOWN_I64) & (begins < before)
        self._report_rows(
            "ring.worker", bad, rows, "ring_works: thread {task} begins {id} before another execution has ended"
        )
        last[task] = int(max(last.get(task, UNKNOWN_I64), ends.max()))

    # ---- trace and tables ----

    def _opcodes_without_data(self) -> list[int]:
        """Numbers of the opcodes whose requests carry no data, and so are no operations of the trace."""
        opcodes = self._trace.metadata.get("opcodes", ())
        return [opcode["number"] for opcode in opcodes if opcode["io_mode"] == "none"]

    def _compare(self, table: str, what: str, rows: int, number: int) -> None:
        if rows != number:
            self._report(
                "count.rings", f"{table} has {rows} rows that belong into the trace; the trace has {number} {what}"
            )

    def _check_batches(self, number: int) -> None:
        """Check that every batch belongs to a call. Calls without an end have no counts in the trace."""
        ended, in_flight = NumberSet(), NumberSet()
        for batch in self._trace.batches("operations", ["id", "end_time_ns"]):
            over = batch["end_time_ns"] != UNKNOWN_I64
            ended.add(batch["id"][over])
            in_flight.add(batch["id"][~over])
        rows = 0
        for batch in self._trace.batches("batches", ["id"]):
            over = ended.holds(batch["id"])
            rows += int(np.count_nonzero(over))
            bad = ~over & ~in_flight.holds(batch["id"])
            self._report_rows("table.reference", bad, batch, "batches: id {id} is no call")
        self._compare("batches", "calls with their counts", rows, number)

    def _check_iocbs(self) -> None:
        """Check that a call's iocbs are numbered from 0 without gaps, and that the call has taken all of them."""
        taken: dict[int, int] = {}
        for batch in self._trace.batches("batches", ["id", "submitted"]):
            taken |= zip(batch["id"].tolist(), batch["submitted"].tolist(), strict=True)
        last = (0, -1)
        for batch in self._trace.batches("iocbs", ["operation", "place"]):
            for call, place in zip(batch["operation"].tolist(), batch["place"].tolist(), strict=True):
                expected = last[1] + 1 if call == last[0] else 0
                if place != expected:
                    self._report("table.iocb", f"iocbs: {place} of call {call} stands where {expected} should")
                if place >= taken.get(call, 0):
                    self._report("table.iocb", f"iocbs: call {call} has not taken its request {place}")
                last = call, place

    def _check_states(self, counts: RingCounts) -> None:
        """Check that each ring has as many metrics as rows of states, and that its last metric is its last row."""
        load, fill = ("in_flight", "punted", "workers"), ("cq_least", "cq_most")
        last: dict[tuple[int, int], tuple[int, ...]] = {}
        times: dict[tuple[int, int], int] = {}
        for batch in self._trace.batches("ring_states", ["ring", *load, *fill]):
            known = (batch["cq_least"] != UNKNOWN_U32) & (batch["cq_most"] != UNKNOWN_U32)
            for columns, told in ((load, np.ones(len(known), np.bool_)), (fill, known)):
                for ring, at, number in _last_rows(batch["ring"], told):
                    key = ring, len(columns)
                    last[key] = tuple(int(batch[name][at]) for name in columns)
                    times[key] = times.get(key, 0) + number
        for key in sorted(last.keys() | counts.last.keys()):
            number, there = times.get(key, 0), counts.states.get(key[0], {}).get(key[1], 0)
            if number != there:
                text = f"ring {key[0]} has {number} rows in ring_states; {there} metrics of {key[1]} values are there"
                self._report("count.rings", text)
            elif last[key] != counts.last[key]:
                self._report("ring.state", f"ring {key[0]}: the last metric is {counts.last[key]}, its row {last[key]}")


def _last_rows(rings: NDArray[Any], told: Flags) -> Iterator[tuple[int, int, int]]:
    """For each ring among the chosen rows: the ring, the place of its last row, and its number of rows."""
    places = np.flatnonzero(told)[::-1]
    found, first, number = np.unique(rings[places], return_index=True, return_counts=True)
    yield from zip(found.tolist(), places[first].tolist(), number.tolist(), strict=True)


def has_rings(metadata: Mapping[str, Any]) -> bool:
    """True if the version of lo2io that wrote the trace knows rings."""
    return "ring_requests" in metadata.get("tables", {})
