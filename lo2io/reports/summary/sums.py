"""The numbers of a report: every table of a trace is read once, in a stream, and summed up.

In: a trace, or a selection of one. Out: :class:`TraceSums`, arrays and counters for text, JSON and pictures. This
module renders nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lo2io.reports.summary.call_time import OffCpuTally, SlowTally, TimeTally
from lo2io.reports.summary.classes import Classes
from lo2io.reports.summary.names import People
from lo2io.reports.summary.owners import Owners
from lo2io.reports.summary.paths import Paths
from lo2io.reports.summary.pattern import PatternTally
from lo2io.reports.summary.spans import CallSpans
from lo2io.reports.summary.tally import OPERATION_COLUMNS, SLICE_ROWS, OperationTally, RequestTally, derive, read_ahead
from lo2io.reports.summary.usage import UsageTally

if TYPE_CHECKING:
    from lo2io.trace.reader import Trace


@dataclass(frozen=True, slots=True)
class TraceSums:
    """The sums from one reading of a trace's tables."""

    trace: Trace
    owners: Owners
    paths: Paths
    people: People
    classes: Classes
    operations: OperationTally
    pattern: PatternTally
    time: TimeTally
    slow: SlowTally
    off_cpu: OffCpuTally
    requests: RequestTally
    spans: CallSpans
    usage: UsageTally

    @property
    def span_ns(self) -> int:
        """Length of the recording, or of the chosen part."""
        return max(0, int(self.trace.metadata["stop_ns"] - self.trace.metadata["start_ns"]))


def gather(trace: Trace) -> TraceSums:
    """Read the tables of calls and block requests, and sum them up.

    Raises:
        TraceError: A table is missing or damaged.
    """
    calls = trace.metadata["calls"]
    owners = Owners(trace)
    requests = RequestTally(trace, owners)
    spans, classes = CallSpans(trace), Classes(calls)
    time = TimeTally(trace, owners, classes, spans)
    sums = TraceSums(
        trace=trace,
        owners=owners,
        paths=Paths(trace, owners),
        people=People(trace, owners),
        classes=classes,
        operations=OperationTally(calls, owners),
        pattern=PatternTally(trace, owners),
        time=time,
        slow=SlowTally(owners.waits, classes),
        off_cpu=OffCpuTally(trace),
        requests=requests,
        spans=spans,
        usage=UsageTally(trace, owners),
    )
    consumers = (sums.operations, sums.pattern, sums.time, sums.slow)
    for batch in read_ahead(trace.batches("operations", OPERATION_COLUMNS)):
        for start in range(0, len(batch["call"]), SLICE_ROWS):
            rows = {name: values[start : start + SLICE_ROWS] for name, values in batch.items()}
            rows = derive(rows, owners, sums.classes, spans)
            for consumer in consumers:
                consumer.add(rows)
    return sums
