"""Fixtures of the tests of the OTF2 writer."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from build.otf2_batches import CALLS, END, META, OPCODES, BatchMaker
from build.otf2_written import Written, assert_readers_agree, assert_rules, read_back

from lo2io.otf2.write.writer import Otf2Writer

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from lo2io.model import Batch, CallSpec, SpoolMeta, TraceEnd


@pytest.fixture
def maker() -> BatchMaker:
    """An empty batch to be filled."""
    return BatchMaker()


@pytest.fixture
def before(maker: BatchMaker) -> BatchMaker:
    """A thread with fd 3 (handle 0) open since before the trace."""
    maker.task(0)
    maker.row("handles", handle=0, fd=3, origin=3, open_flags=os.O_RDWR | os.O_CLOEXEC)
    return maker


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Written]:
    """Write batches as a trace, have otf2-print find no fault in it, and read it back."""

    def write_batches(
        *batches: Batch,
        end: TraceEnd = END,
        meta: SpoolMeta = META,
        block_records: str | None = None,
        calls: Sequence[CallSpec] = CALLS,
    ) -> Written:
        with Otf2Writer(tmp_path, meta, calls, block_records=block_records, opcodes=OPCODES) as writer:
            for batch in batches:
                writer.write(batch)
            writer.close(end)
        written = read_back(tmp_path)
        assert_readers_agree(written)
        assert_rules(written)
        return written

    return write_batches
