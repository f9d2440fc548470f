"""The script that draws the documentation's pictures."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree as ET

import pytest
from build.tablemaker import READ, WRITE, make_batch, write_trace

if TYPE_CHECKING:
    from lo2io.trace.reader import Trace

MS = 1_000_000


@pytest.fixture(scope="module")
def picture() -> dict[str, Any]:
    """The script's functions."""
    return runpy.run_path(str(Path(__file__).parents[2] / "scripts/picture.py"))


@pytest.fixture
def trace(tmp_path: Path) -> Trace:
    """Two calls of one thread, and two requests that are in flight together."""
    batch = make_batch(
        operations=[
            {"task": 0, "call": READ, "begin_time_ns": 1 * MS, "end_time_ns": 3 * MS},
            {"task": 0, "call": WRITE, "begin_time_ns": 4 * MS, "end_time_ns": 8 * MS},
            {"task": 0, "call": WRITE, "begin_time_ns": 9 * MS, "status": 1},
        ],
        tasks=[{"task": 0, "pid": 7, "tid": 7, "comm": b"a<b"}],
        requests=[
            {"insert_time_ns": 4 * MS, "issue_time_ns": 5 * MS, "complete_time_ns": 7 * MS, "operation": 1},
            {"issue_time_ns": 6 * MS, "complete_time_ns": 7 * MS, "operation": 0},
            {"insert_time_ns": 8 * MS},
        ],
    )
    return write_trace(tmp_path, [batch])


def test_timeline_draws_what_was_recorded(picture: dict[str, Any], trace: Trace) -> None:
    """A bar for each call and request that ended, at its place; requests in flight together lie in two lanes."""
    svg = ET.fromstring(picture["timeline"](trace, (0.0, 10.0)))  # noqa: S314 - our own
    colours = picture["COLOURS"]
    scale = (picture["WIDTH"] - picture["GUTTER"] - picture["MARGIN"]) / 10
    bars = [
        (path.get("fill"), *map(float, part.replace("h", " ").replace("v", " ").split()[:3]))
        for path in svg.iter("{http://www.w3.org/2000/svg}path")
        if path.get("fill")
        for part in (path.get("d") or "").split("M")[1:]
    ]

    def at(kind: str, begin_ms: float, end_ms: float) -> list[float]:
        left = picture["GUTTER"] + begin_ms * scale
        return [
            top
            for fill, x, top, width in bars
            if fill == colours[kind] and abs(x - left) < 0.11 and abs(width - (end_ms - begin_ms) * scale) < 0.11
        ]

    assert len(bars) == 5
    (thread,) = at("reads", 1, 3)
    assert at("writes", 4, 8) == [thread]
    (first,) = at("queued", 4, 5)
    assert at("writes", 5, 7) == [first]
    (second,) = at("reads", 6, 7)
    assert thread < first < second
    assert [text.text for text in svg.iter("{http://www.w3.org/2000/svg}text") if text.text == "a<b 7"]


def test_timeline_leaves_out_what_lies_outside(picture: dict[str, Any], trace: Trace) -> None:
    """Only bars that overlap the span have a row."""
    svg = picture["timeline"](trace, (0.0, 2.0))
    assert svg.count("<path fill=") == 1


def test_report_is_a_picture_that_fetches_nothing(picture: dict[str, Any], trace: Trace) -> None:
    """The report as SVG is well-formed, contains the page, and loads no fonts."""
    svg = picture["report"](trace)
    text = "".join(ET.fromstring(svg).itertext()).replace("\xa0", " ")  # noqa: S314 - our own
    assert "dd if=/dev/zero" in text
    assert "url(" not in svg.replace("url(#", "")


def test_a_ring_is_drawn_with_calls_requests_and_workers(picture: dict[str, Any], tmp_path: Path) -> None:
    """The busiest ring alone: a line for the call, two lanes for two requests at a time, one for the worker."""
    batch = make_batch(
        operations=[{"id": 1, "task": 0, "call": READ, "begin_time_ns": 0, "end_time_ns": 9 * MS}],
        batches=[{"id": 1, "ring": 4, "asked": 2, "submitted": 2}],
        tasks=[{"task": 0, "pid": 7, "tid": 7, "comm": b"db"}, {"task": 1, "pid": 7, "tid": 8, "comm": b"iou-wrk-7"}],
        rings=[{"ring": 4}, {"ring": 5}],
        ring_requests=[
            {"id": 2, "ring": 4, "path": 2, "submit_time_ns": MS, "issue_time_ns": MS, "executing_ns": 2 * MS,
             "complete_time_ns": 7 * MS},
            {"id": 3, "ring": 4, "path": 4, "submit_time_ns": 2 * MS, "punt_time_ns": 3 * MS,
             "complete_time_ns": 8 * MS, "work_begin_time_ns": 5 * MS, "work_end_time_ns": 8 * MS},
            {"id": 4, "ring": 4, "path": 6, "submit_time_ns": 8 * MS, "complete_time_ns": 9 * MS},
            {"id": 5, "ring": 5, "path": 1, "submit_time_ns": 8 * MS, "complete_time_ns": 9 * MS},
            {"id": 6, "ring": 4, "path": 1, "submit_time_ns": 8 * MS},
        ],
        ring_works=[
            {"id": 3, "ring": 4, "task": 1, "begin_time_ns": 5 * MS, "end_time_ns": 8 * MS},
            {"id": 9, "ring": 5, "task": 0, "begin_time_ns": 5 * MS, "end_time_ns": 8 * MS},
        ],
    )  # fmt: skip
    rows = picture["ring_rows"](write_trace(tmp_path, [batch]), 0, 10 * MS)
    assert [row.label for row in rows] == ["db 7", "requests", "iou-wrk-7 8"]
    drawn = [[(bar.kind, bar.begin_ns // MS, bar.end_ns // MS) for bar in lane] for lane in rows[1].lanes]
    assert drawn == [
        [("executed by the submitter", 1, 3), ("waits for device or timer", 3, 7), ("not begun", 8, 9)],
        [("waits for a worker", 2, 5), ("executed by a worker", 5, 8)],
    ]
    svg = ET.fromstring(picture["ring"](write_trace(tmp_path, [batch]), (0.0, 10.0)))  # noqa: S314 - our own
    assert len(list(svg.iter("{http://www.w3.org/2000/svg}path"))) == 11 + 7, (
        "the grid, and a path for each row and kind"
    )


def test_ways_are_drawn_without_a_trace(picture: dict[str, Any], tmp_path: Path) -> None:
    """One line for each path, and a legend."""
    assert picture["main"](["paths", str(tmp_path / "p.svg")]) == 0
    texts = [text.text for text in ET.parse(tmp_path / "p.svg").iter("{http://www.w3.org/2000/svg}text")]  # noqa: S314
    assert {"inline", "device", "poll", "worker", "refused", "cancelled", "waits for a worker"} <= set(texts)
