"""How many files and descriptors have names, and from which source."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from build.tablemaker import Row, make_batch, write_trace
from hypothesis import given, settings
from hypothesis import strategies as st

from lo2io.model import UNKNOWN_U32
from lo2io.reports.summary.name_counts import NameCounts, Named, count_names, names_line

if TYPE_CHECKING:
    from pathlib import Path

SOURCES = ("unknown", "proc", "call", "kernel")
NOBODY = Named(0, 0, 0, 0)


@settings(max_examples=30, deadline=None)
@given(
    st.lists(
        st.fixed_dictionaries(
            {
                "name_source": st.integers(0, 3),
                "origin": st.integers(0, 6),
                "used": st.integers(0, 1),
                "file": st.sampled_from([0, UNKNOWN_U32]),
            }
        )
    ),
    st.lists(st.integers(0, 3)),
)
def test_counts_agree_with_plain_python(
    tmp_path_factory: pytest.TempPathFactory, handles: list[Row], files: list[int]
) -> None:
    """A descriptor counts if an operation names it; one without a file has no name, whatever its source."""
    batch = make_batch(
        handles=[{"handle": number, **row} for number, row in enumerate(handles)],
        files=[{"file": number, "path": b"/f", "name_source": source} for number, source in enumerate(files)],
    )
    counts = count_names(write_trace(tmp_path_factory.mktemp("trace"), [batch]))
    used = [row for row in handles if row["used"]]
    for found, rows in ((counts.handles, used), (counts.opened, [row for row in used if row["origin"] == 0])):
        sources = Counter(SOURCES[row["name_source"] if row["file"] == 0 else 0] for row in rows)
        assert asdict(found) == {name: sources[name] for name in SOURCES}
        assert found.all == len(rows)
    assert asdict(counts.files) == {name: [SOURCES[source] for source in files].count(name) for name in SOURCES}


@pytest.mark.parametrize(
    ("handles", "line"),
    [
        (NOBODY, ""),
        (Named(0, 0, 0, 1), "names known of 0 of 1 descriptor"),
        (Named(10, 2, 0, 2), "names known of 12 of 14 descriptors: 10 by the kernel, 2 by /proc"),
        (Named(0, 0, 1_200, 0), "names known of 1,200 of 1,200 descriptors: 1,200 by the call's argument"),
    ],
)
def test_line(handles: Named, line: str) -> None:
    """How many names each source proved, the best first; nothing without descriptors."""
    assert names_line(NameCounts(NOBODY, handles, NOBODY)) == line


def test_a_trace_without_files(tmp_path: Path) -> None:
    """No handles, no files: zeros, no error."""
    assert count_names(write_trace(tmp_path, [make_batch()])) == NameCounts(NOBODY, NOBODY, NOBODY)


def test_an_earlier_trace_has_sources_of_descriptors_only(tmp_path: Path) -> None:
    """Its files are named as they are."""
    handles = [{"handle": n, "file": n % 2, "used": 1, "name_source": source} for n, source in enumerate((1, 2, 0))]
    files = [{"file": 0, "path": b"/a"}, {"file": 1, "path": b"/b"}]
    trace = write_trace(tmp_path, [make_batch(handles=handles, files=files)])
    path = tmp_path / "lo2io/files.arrow"
    with pa.ipc.open_file(path.read_bytes()) as reader:
        table = reader.read_all().drop_columns(["name_source"])
    with pa.ipc.new_file(path, table.schema) as writer:
        writer.write_table(table)
    assert count_names(trace) == NameCounts(Named(0, 1, 1, 0), Named(0, 1, 1, 1), Named(0, 1, 1, 1))
