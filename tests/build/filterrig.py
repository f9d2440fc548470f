"""Common parts of tests of filters: filters that hit, batches that can be replayed, and a slow second opinion.

>>> played = Played([[{"table": "operations", "id": 1}], [{"table": "operations", "id": 3}]])
>>> [(batch.first_operation, batch.operations["id"].tolist()) for batch in played]
[(0, [1]), (1, [3])]
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Self

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from reference.filters import NAMES, Tables, read_tables

from build.otf2_batches import BatchMaker
from lo2io.filter.batches import FilteredStream, find_passing
from lo2io.filter.language import FIELDS, OPERATORS, Comparison, Filter, Kind

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lo2io.filter.rows import Criteria
    from lo2io.model import Batch, SpoolMeta

SETTINGS = settings(
    max_examples=int(os.environ.get("LO2IO_EXAMPLES", "50")), deadline=None, suppress_health_check=list(HealthCheck)
)
WORDS: dict[str, tuple[Any, ...]] = {
    "pid": (100, 101, 102, 55),
    "tid": (100, 101, 102, 55, 1),
    "comm": ("io", "old", "name*", "prog[01]", "seen", "*"),
    "cgroup": ("/seen0", "/seen*", "/**", "/a/**", "/"),
    "path": ("/**", "/*", "/f1", "*1", "/x/*"),
    "device": ("sda", "sda1", "8:0", "8:1", "253:1", "sd*", "8*"),
    "operation": ("read", "write", "flush", "close", "pread64", "sys_read", "copy", "discard", "openat", "other"),
    "size": (0, 1, 512, 4096, 8192, 2**40),
    "latency": (0, 1, 2, 7, 1500, 10_000),
    "kind": ("call", "request", "ring"),
    "opcode": ("READ", "WRITE", "OPENAT", "NOP"),
    "via": ("inline", "poll", "worker", "cancelled"),
}


@st.composite
def filters(draw: st.DrawFn, fields: Sequence[str] = tuple(FIELDS)) -> Filter:
    """Comparisons with values that occur."""
    found = []
    for field in draw(st.lists(st.sampled_from(list(fields)), min_size=1, max_size=3)):
        operator = draw(st.sampled_from(OPERATORS[FIELDS[field]]))
        most = 1 if operator[0] in "<>" else 2
        values = draw(st.lists(st.sampled_from(WORDS[field]), min_size=1, max_size=most, unique=True))
        if FIELDS[field] in (Kind.OPERATION, Kind.OPCODE) and operator in ("~", "!~"):
            values = [f"{str(value)[:3]}*" for value in values]
        found.append(Comparison(field, operator, tuple(values)))
    return Filter(tuple(found))


def filtered(streams: Any, criteria: Criteria, meta: SpoolMeta, calls: Any) -> tuple[Tables, FilteredStream]:
    """The rows of a filtered stream, and the stream."""
    passing = find_passing(streams, criteria, meta, calls)
    with FilteredStream(streams(), passing) as stream:

        def each() -> Iterator[Batch]:
            for batch in stream:
                assert batch.native is None or [getattr(batch.native, f"nr_{name}") for name in NAMES] == [
                    len(next(iter(getattr(batch, name).values()))) for name in NAMES
                ]
                assert batch.native is None or batch.native.first_operation == batch.first_operation
                yield batch
                stream.release(batch)

        return read_tables(each()), stream


def assert_same(found: Tables, expected: Tables) -> None:
    """Compare every table; ``first`` counts rows that were taken out."""
    for name in NAMES:
        rows = [[{**row, "first": 0} for row in tables[name]] for tables in (found, expected)]
        assert rows[0] == rows[1], name


class Played:
    """A stream of batches that can be replayed."""

    def __init__(self, parts: list[list[dict[str, Any]]]) -> None:
        self._parts = parts
        self.released = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def __iter__(self) -> Iterator[Batch]:
        first = 0
        for part in self._parts:
            maker = BatchMaker()
            maker.first_operation = first
            for row in part:
                maker.row(**row)
            batch = maker.make()
            first += len(batch.operations["id"])
            yield batch

    def release(self, _: Batch) -> None:
        """Count the releases."""
        self.released += 1
