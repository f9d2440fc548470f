"""Batches go to writers, each in a thread of its own."""

from __future__ import annotations

import threading
import weakref
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from lo2io.convert.engine import BatchStream
from lo2io.convert.streams import hand_out

if TYPE_CHECKING:
    from collections.abc import Iterator


class Stream:
    """Numbers in place of batches."""

    def __init__(self) -> None:
        self.released: list[int] = []

    def __iter__(self) -> Iterator[int]:
        return iter(range(6))

    def release(self, batch: int) -> None:
        """The batch may be filled again."""
        self.released.append(batch)


class Writer:
    """Fails at one batch, when all that may be out were handed to it."""

    def __init__(self, fails_at: int | None = None) -> None:
        self.seen: list[int] = []
        self.fails_at = fails_at
        self.handed = threading.Event()

    def write(self, batch: int) -> None:
        """Like a writer of the trace."""
        self.seen.append(batch)
        if batch == self.fails_at:
            assert self.handed.wait(60)
            raise OSError("no room")


def batches(stream: Stream, writer: Writer) -> Any:
    """Two batches; the second is out when the first one fails."""
    count = iter(range(100))

    def progress() -> None:
        if next(count) == 1:
            writer.handed.set()

    return cast("Any", SimpleNamespace(stream=stream, progress=progress))


def test_all_writers_get_all_batches() -> None:
    """In their order; then they may be filled again."""
    stream, writers = Stream(), (Writer(), Writer())
    hand_out(batches(stream, writers[0]), cast("Any", writers), 3)
    assert [writer.seen for writer in writers] == [list(range(6))] * 2
    assert stream.released == list(range(6))


def test_a_writer_that_failed_gets_nothing_more() -> None:
    """Not even a waiting batch. The first error counts."""
    stream, failing, other = Stream(), Writer(fails_at=0), Writer()
    with pytest.raises(OSError, match="no room"):
        hand_out(batches(stream, failing), cast("Any", (failing, other)), 3)
    assert failing.seen == [0]
    assert other.seen[:1] == [0]
    assert stream.released == []


def test_the_engines_thread_ends_with_its_stream() -> None:
    """Its object ends, too. If it ended later, where memory is freed, an interrupt could be lost."""
    engine: Any = SimpleNamespace(allocate=lambda: (object(), {}), fill=lambda _: 0)
    with BatchStream(engine, 1) as stream:
        thread = weakref.ref(stream._thread)
    assert thread() is None
