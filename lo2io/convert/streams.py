"""The batches of a spool for the trace: all rows, or those that pass a filter."""

from __future__ import annotations

import contextlib
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from lo2io.convert.engine import BatchStream, Engine
from lo2io.filter.batches import FilteredStream, LeftOut, Stream, find_passing
from lo2io.model.layers import STACKS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from lo2io.catalog.catalog import Catalog
    from lo2io.filter.rows import Criteria
    from lo2io.model import Batch, SpoolMeta
    from lo2io.spool.reader import SpoolReader
    from lo2io.unwind.stacks import Stacks


@dataclass(frozen=True, slots=True)
class Batches:
    """An iterator over batches, and the engine behind it."""

    criteria: Criteria
    engine: Engine
    stream: BatchStream | FilteredStream
    progress: Callable[[], None]
    """Called now and then."""

    @property
    def left_out(self) -> LeftOut:
        """The numbers of rows that the filter left out. They are final when every batch was taken."""
        return self.stream.left_out if isinstance(self.stream, FilteredStream) else LeftOut()


@contextlib.contextmanager
def open_batches(
    spool: SpoolReader,
    catalog: Catalog,
    criteria: Criteria,
    *,
    held: int,
    watch: Callable[[Batch], None],
    progress: Callable[[int], None] | None,
) -> Iterator[Batches]:
    """Start the engine. With a filter, a first pass finds out which rows stay.

    Args:
        spool: The spool.
        catalog: The meaning of its events.
        criteria: The conditions for rows to stay.
        held: Batches that may be out at a time.
        watch: Called with each unfiltered batch, if there is a filter.
        progress: Called with the bytes read so far. With two passes, each byte counts by half.

    Raises:
        SpoolError: The spool cannot be read.
    """
    with _stacks(spool.meta) as stacks:
        engine = Engine(spool, catalog, stacks=stacks)
        read_before = 0

        def tell(reading: Engine) -> None:
            if progress:
                progress((read_before + reading.bytes_read) // 2 if criteria else reading.bytes_read)

        if not criteria:
            with BatchStream(engine, held) as stream:
                yield Batches(criteria, engine, stream, lambda: tell(engine))
            return
        finder = Engine(spool, catalog)

        def again() -> BatchStream:
            nonlocal finder
            finder = Engine(spool, catalog)
            return BatchStream(finder, held)

        passing = find_passing(again, criteria, spool.meta, catalog.rows, lambda: tell(finder))
        read_before = finder.bytes_read
        with FilteredStream(BatchStream(engine, held), passing, watch) as filtered:
            yield Batches(criteria, engine, filtered, lambda: tell(engine))


@contextlib.contextmanager
def _stacks(meta: SpoolMeta) -> Iterator[Stacks | None]:
    """The stacks of programs, which hold files open; None: they were not recorded."""
    if STACKS not in meta.layers:
        yield None
        return
    from lo2io.unwind.stacks import Stacks  # noqa: PLC0415 - few recordings have them

    with contextlib.closing(Stacks(meta.user_stacks, meta.syncs)) as stacks:
        yield stacks


class Writer(Protocol):
    """A consumer of batches."""

    def write(self, batch: Batch) -> None:
        """Take a batch. Its arrays are valid only during this call."""


def hand_out(batches: Batches, writers: Sequence[Writer], held: int) -> None:
    """Hand every batch to every writer. Each writer has a thread of its own and its own pace.

    Args:
        batches: The batches.
        writers: The writers.
        held: Batches that may be out at a time.
    """
    with contextlib.ExitStack() as threads:
        hands = [threads.enter_context(_own_thread(writer.write)) for writer in writers]
        out: deque[tuple[Batch, list[Future[None]]]] = deque()
        for batch in batches.stream:
            out.append((batch, [hand(batch) for hand in hands]))
            while out and (len(out) == held or all(future.done() for future in out[0][1])):
                _settle(batches.stream, *out.popleft())
            batches.progress()
        while out:
            _settle(batches.stream, *out.popleft())


@contextlib.contextmanager
def _own_thread(write: Callable[[Batch], None]) -> Iterator[Callable[[Batch], Future[None]]]:
    """Hands batches to a writer's thread. At the end, waiting batches are written; after an error, they are dropped.

    A writer that failed gets nothing more, not even the batches in its queue. Such a writer can only be closed.
    """
    pool = ThreadPoolExecutor(1, "lo2io-writer")
    failed = False

    def write_unless_failed(batch: Batch) -> None:
        nonlocal failed
        if failed:
            return
        try:
            write(batch)
        except BaseException:
            failed = True
            raise

    try:
        yield lambda batch: pool.submit(write_unless_failed, batch)
    finally:
        pool.shutdown(cancel_futures=True)


def _settle(stream: Stream, batch: Batch, futures: list[Future[None]]) -> None:
    for future in futures:
        future.result()
    stream.release(batch)
