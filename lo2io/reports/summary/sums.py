"""The numbers of a report: every table of a trace is read once, in a stream, and summed up.

In: a trace, or a selection of one. Out: :class:`TraceSums`, arrays and counters for text, JSON and pictures. This
module renders nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from lo2io.frozen import dataclass
from lo2io.reports.summary.adding import Adder, RowContext
from lo2io.reports.summary.cache import COLUMNS as CACHE_COLUMNS
from lo2io.reports.summary.cache import CacheTally
from lo2io.reports.summary.call_time import OffCpuTally, Sleeps, TimeTally
from lo2io.reports.summary.names import People
from lo2io.reports.summary.overlap import OverlapAdder
from lo2io.reports.summary.owners import Owners
from lo2io.reports.summary.paths import Paths
from lo2io.reports.summary.pattern import PatternTally
from lo2io.reports.summary.spans import CallSpans
from lo2io.reports.summary.tally import OPERATION_COLUMNS, OperationTally, RequestTally, read_ahead, shared
from lo2io.reports.summary.usage import UsageTally
from lo2io.reports.summary.waits import SHARES, WaitTally

if TYPE_CHECKING:
    from collections.abc import Callable

    from lo2io.model import Columns
    from lo2io.reports.summary.call_time import Slow
    from lo2io.reports.summary.overlap import OverlapTally
    from lo2io.trace.reader import Trace


@dataclass(frozen=True, slots=True)
class TraceSums:
    """The sums from one reading of a trace's tables."""

    trace: Trace
    owners: Owners
    paths: Paths
    people: People
    context: RowContext
    operations: OperationTally
    pattern: PatternTally
    time: TimeTally
    slow: tuple[Slow, ...]
    """Longest first."""
    off_cpu: OffCpuTally
    waits: WaitTally
    requests: RequestTally
    spans: CallSpans
    usage: UsageTally
    cache: CacheTally
    overlap: OverlapTally

    @property
    def span_ns(self) -> int:
        """Length of the recording, or of the chosen part."""
        return max(0, int(self.trace.metadata["stop_ns"] - self.trace.metadata["start_ns"]))


Watch: TypeAlias = "Callable[[Owners, Paths, RowContext], Callable[[Columns], None] | None]"
"""Takes the objects that look up rows. Returns a function that a thread of its own calls with each batch of calls."""


def gather(trace: Trace, watch: Watch | None = None) -> TraceSums:
    """Read the tables of calls and block requests, and sum them up.

    Raises:
        TraceError: A table is missing or damaged.
    """
    calls = trace.metadata["calls"]
    owners = Owners(trace)
    requests = RequestTally(trace, owners)
    spans, pattern = CallSpans(trace), PatternTally(trace, owners)
    operations, time = OperationTally(calls, owners), TimeTally(owners, spans)
    context = RowContext(calls, owners, spans, pattern.is_direct)
    adder = Adder(context, operations, pattern, time)
    overlap = OverlapAdder(trace, owners, context)
    sleeps, waits, cache = Sleeps(trace, spans), WaitTally(trace), CacheTally(trace, owners, context)
    layers = (*(SHARES if waits.recorded else ()), *(CACHE_COLUMNS if cache.recorded else ()))
    columns = tuple(dict.fromkeys((*OPERATION_COLUMNS, *layers)))
    paths = Paths(trace, owners)
    see = watch(owners, paths, context) if watch else None

    def add_beside(batch: Columns) -> None:
        overlap.add(batch, waits.away(batch) if waits.recorded else None)
        if cache.recorded:
            cache.add(batch)
        if see:
            see(batch)

    for batch in shared(read_ahead(trace.batches("operations", columns)), add_beside):
        adder.add(batch, None if spans.knows_cpu else sleeps.worked(batch))
        if waits.recorded:
            which = waits.which(batch)
            rows = {name: values[which] for name, values in batch.items()}
            waits.add(context.derive(rows))
    return TraceSums(
        trace=trace,
        owners=owners,
        paths=paths,
        people=People(trace, owners),
        context=context,
        operations=operations,
        pattern=pattern,
        time=time,
        slow=adder.finish(),
        off_cpu=OffCpuTally(trace),
        waits=waits,
        requests=requests,
        spans=spans,
        usage=UsageTally(trace, owners),
        cache=cache,
        overlap=overlap.finish(),
    )
