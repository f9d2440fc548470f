"""Converts a spool with some stages only, so that each stage's share can be measured as a whole process.

    .venv/bin/python benchmarks/stages.py SPOOL TRACE [--otf2] [--tables]

Without either option, the engine alone runs: merging, pairing, following descriptors. With both, it does the same as
`lo2io convert`. Prints the number of samples read.
"""

from __future__ import annotations

import argparse
import contextlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from lo2io.catalog.catalog import load_catalog
from lo2io.convert.completeness import completeness
from lo2io.convert.engine import Engine
from lo2io.model import TraceEnd
from lo2io.spool.reader import SpoolReader


def convert(path: Path, trace: Path, *, otf2: bool, tables: bool) -> int:
    """Run the engine and the requested writers; returns the number of samples read."""
    spool, catalog = SpoolReader(path), load_catalog()
    engine = Engine(spool, catalog)
    trace.mkdir(parents=True)
    with contextlib.ExitStack() as stack:
        # A stage that is not measured is not imported either.
        events: Any = None
        rows: Any = None
        if tables:
            from lo2io.trace.writer import TableWriter  # noqa: PLC0415

            rows = stack.enter_context(TableWriter(trace, spool.meta, catalog.calls, catalog.opcodes))
        if otf2:
            from lo2io.otf2.write.writer import Otf2Writer  # noqa: PLC0415

            events = stack.enter_context(Otf2Writer(trace, spool.meta, catalog.calls, catalog.opcodes))
        pool = stack.enter_context(ThreadPoolExecutor(2))
        for batch in engine.batches():
            for written in [pool.submit(writer.write, batch) for writer in (rows, events) if writer]:
                written.result()
        seen = [engine.seen(index) for index in range(len(spool.meta.cpus))]
        proof = completeness(spool.meta, seen, engine.totals)
        start_ns, stop_ns = spool.meta.start_ns, spool.meta.stop_ns or engine.totals.last_time_ns
        if events:
            events.close(TraceEnd(start_ns, stop_ns, proof, engine.totals))
        if rows:
            rows.close(engine.totals, proof, start_ns, stop_ns)
    return engine.totals.nr_samples


def main() -> None:
    """Convert once."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("spool", type=Path)
    parser.add_argument("trace", type=Path)
    parser.add_argument("--otf2", action="store_true")
    parser.add_argument("--tables", action="store_true")
    options = parser.parse_args()
    print(convert(options.spool, options.trace, otf2=options.otf2, tables=options.tables))


if __name__ == "__main__":
    main()
