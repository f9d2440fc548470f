"""Rules about what block requests carry: traces that provoke them, and the nearest that must not."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from build.tablemaker import META, Row, make_batch, meta, write_trace

from lo2io.reports.findings.requests import _overlap, _union_ns
from lo2io.reports.summary.summary import summarize
from lo2io.trace.columns import CHARGED, PART_KIND, REQUEST_OPERATION

if TYPE_CHECKING:
    from pathlib import Path

    from lo2io.reports.findings.finding import Finding

MS, MIB = 1_000_000, 1 << 20
SPAN = 1000 * MS
SDA, VDA = (device.device for device in META.devices)
WRITER, READER = 0, 1


@pytest.fixture
def found(tmp_path: Path) -> Any:
    """Writes requests and other tables as a trace, and gives what stands out by rule."""
    numbers = iter(range(100))

    def find(requests: list[Row], *, direct: bool | None = False, **tables: list[Row]) -> dict[str, Finding]:
        folder = tmp_path / str(next(numbers))
        folder.mkdir()
        tasks = [
            {"task": task, "process": 7 + task, "pid": 100 + task, "tid": 100 + task, "comm": comm}
            for task, comm in enumerate((b"writer", b"reader"))
        ]
        image = replace(META.devices[0], image="/img" if direct is not None else None, image_direct=direct)
        spool = meta(layers=("parts", "dirty"), devices=(image, META.devices[1]))
        batch = make_batch(tasks=tasks, requests=requests, **tables)
        trace = write_trace(folder, [batch], spool=spool, span=(0, SPAN))
        return {finding.rule: finding for finding in summarize(trace).findings}

    return find


def request(number: int, begin_ns: int, lasted_ns: int, *, operation: str = "read", **more: Any) -> Row:
    """A completed request of the reader."""
    return {
        "id": number, "device": SDA, "task": READER, "operation": REQUEST_OPERATION.index(operation),
        "insert_time_ns": begin_ns, "issue_time_ns": begin_ns, "complete_time_ns": begin_ns + lasted_ns,
        "bytes_request": 4096, "bytes_issued": 4096,
    } | more  # fmt: skip


def part(number: int, kind: str, **more: Any) -> Row:
    """The only part of a request."""
    return {"request": number, "kind": PART_KIND.index(kind), "bytes": 4096} | more


def test_swapping(found: Any) -> None:
    """100 reads from swap, which are under way for 100 ms and a tenth of the recording."""

    def swapped(number: int, each_ns: int, kind: str = "swap", **more: Any) -> dict[str, Finding]:
        rows = [request(index + 1, index * 2 * MS, each_ns, **more) for index in range(number)]
        told: dict[str, Finding] = found(rows, request_parts=[part(row["id"], kind) for row in rows])
        return told

    finding = swapped(100, MS)["swapping"]
    assert (finding.subject, finding.rows, finding.cost_ns, finding.share) == ("reader (101)", 100, 100 * MS, 0.1)
    assert (finding.evidence, finding.ids) == ({"reads": 100, "read_ns": 100 * MS}, tuple(range(1, 11)))
    assert "swapping" not in swapped(99, 2 * MS)
    assert "swapping" not in swapped(100, MS - 1)
    assert "swapping" not in swapped(100, MS, kind="file")
    assert "swapping" not in swapped(100, MS, operation="write")
    assert "swapping" not in swapped(100, MS, task=2**32 - 1)


def test_double_caching(found: Any) -> None:
    """16 MiB of files through a loop device whose image is in the page cache, too."""

    def cached(nr_bytes: int, past: bool | None = False, kind: str = "file", **more: Any) -> dict[str, Finding]:
        told: dict[str, Finding] = found(
            [request(1, 0, MS), request(2, MS, MS, device=VDA)],
            direct=past,
            request_parts=[part(1, kind, bytes=nr_bytes, **more), part(2, "file", bytes=1 << 30)],
        )
        return told

    finding = cached(16 * MIB)["double-caching"]
    assert (finding.subject, finding.rows, finding.cost_ns, finding.ids) == ("sda", 1, None, (1,))
    assert finding.evidence == {"bytes": 16 * MIB, "requests": 1}
    assert finding.text.startswith("16 MiB of files")
    assert finding.text.endswith("the image /img")
    assert "double-caching" not in cached(16 * MIB - 1)
    assert "double-caching" not in cached(16 * MIB, past=True)
    assert "double-caching" not in cached(16 * MIB, past=None)
    assert "double-caching" not in cached(16 * MIB, kind="journal")
    assert "double-caching" not in cached(16 * MIB, direct=1)


def storm(nr_calm: int, nr_beside: int, *, calm_ns: int, beside_ns: int) -> list[Row]:
    """Reads one after the other, and at the end one long write beside ``nr_beside`` of them."""
    reads = [request(index + 2, index * 3 * MS, calm_ns) for index in range(nr_calm)]
    first = nr_calm * 3 * MS
    reads += [request(len(reads) + 2 + index, first + index * 3 * MS, beside_ns) for index in range(nr_beside)]
    write = request(1, first, nr_beside * 3 * MS, operation="write", task=2**32 - 1)
    return [*reads, write]


def test_write_back_storm(found: Any) -> None:
    """100 reads beside others' write-back that take twice as long, and 20 without to compare with."""

    def stormy(rows: list[Row], **charge: Any) -> dict[str, Finding]:
        charges = [{"request": 1, "charged": CHARGED.index("dirtied"), "task": WRITER, "bytes": 4096} | charge]
        told: dict[str, Finding] = found(rows, write_backs=charges)
        return told

    finding = stormy(storm(20, 100, calm_ns=MS, beside_ns=2 * MS))["write-back-storm"]
    assert (finding.subject, finding.rows, finding.cost_ns, finding.share) == ("reader (101)", 100, 100 * MS, 0.1)
    assert finding.ids == tuple(range(22, 32))
    assert finding.evidence == {
        "reads": 100, "other_reads": 20, "writes": 1, "beside_mean_ns": 2 * MS, "other_mean_ns": MS
    }  # fmt: skip
    assert "most often writer (100); they took 2 ms on average, its other reads 1 ms" in finding.text
    for rows in (
        storm(19, 100, calm_ns=MS, beside_ns=2 * MS),
        storm(20, 99, calm_ns=MS, beside_ns=2 * MS + MS // 2),
        storm(20, 100, calm_ns=MS + 1, beside_ns=2 * MS + 1),
        storm(20, 100, calm_ns=MS - 1, beside_ns=2 * MS - 2),
    ):
        assert "write-back-storm" not in stormy(rows)
    rows = storm(20, 100, calm_ns=MS, beside_ns=2 * MS)
    assert "write-back-storm" not in stormy(rows, task=READER)
    assert "write-back-storm" not in stormy(rows, charged=CHARGED.index("direct"))
    assert "write-back-storm" not in stormy([row | ({"device": VDA} if row["id"] == 1 else {}) for row in rows])


def test_the_largest_run_tells_whose_a_write_is(found: Any) -> None:
    """A request that two processes dirtied is the one's with the larger run."""
    rows = storm(20, 100, calm_ns=MS, beside_ns=2 * MS)
    for own_bytes, stands in ((100, True), (300, False)):
        charges = [
            {"request": 1, "charged": CHARGED.index("dirtied"), "task": task, "bytes": size}
            for task, size in ((WRITER, 200), (READER, own_bytes))
        ]
        assert ("write-back-storm" in found(rows, write_backs=charges)) is stands


def test_overlap_and_union() -> None:
    """Against every pair of spans, and against every moment."""
    random = np.random.default_rng(5)
    for _ in range(50):
        begin, other = random.integers(0, 50, 7), random.integers(0, 50, 5)
        end, other_end = begin + random.integers(1, 9, 7), other + random.integers(1, 9, 5)
        pairs = (other[None, :] < end[:, None]) & (other_end[None, :] > begin[:, None])
        assert _overlap(begin, end, other, other_end).tolist() == pairs.any(axis=1).tolist()
        moments = {time for first, last in zip(begin, end, strict=True) for time in range(first, last)}
        assert _union_ns(begin, end) == len(moments)
    assert _union_ns(begin[:0], end[:0]) == 0
