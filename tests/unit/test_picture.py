"""The script that draws the documentation's pictures."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree as ET

import pytest
from tablemaker import READ, WRITE, make_batch, write_trace

if TYPE_CHECKING:
    from lo2io.tables import Trace

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
    """Only what overlaps the span has a row."""
    svg = picture["timeline"](trace, (0.0, 2.0))
    assert svg.count("<path fill=") == 1


def test_report_is_a_picture_that_fetches_nothing(picture: dict[str, Any], trace: Trace) -> None:
    """The report as SVG is well-formed, holds the page, and asks no server for fonts."""
    svg = picture["report"](trace)
    text = "".join(ET.fromstring(svg).itertext()).replace("\xa0", " ")  # noqa: S314 - our own
    assert "dd if=/dev/zero" in text
    assert "url(" not in svg.replace("url(#", "")
