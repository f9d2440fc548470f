"""The rows that ``lo2io top`` lists, and what keys change."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest
from rich.console import Console

from lo2io.top.look import DOWN, ESCAPE, UP, Look, pressed, rows_of
from lo2io.top.page import render_top
from lo2io.top.window import NO_SPREAD, Activity, FileNow, PairNow, ProcessNow, Window

ENTER = "\r"


def did(nr: int) -> Activity:
    """So many operations, each of one byte."""
    return Activity(nr, 0, nr, 0, nr, NO_SPREAD)


WINDOW = Window(
    span_ns=10**9,
    total=did(10),
    processes=(ProcessNow(1, "cat", did(6)), ProcessNow(2, "dd", did(4))),
    files=(
        FileNow("named", "/etc/Hosts", None, None, did(7)),
        FileNow("named", "/tmp/out", None, None, did(3)),
    ),
    devices=(),
    lost=0,
    vanished=0,
    proven=True,
    pairs=(PairNow(0, 0, did(5)), PairNow(1, 1, did(2)), PairNow(1, 0, did(2)), PairNow(0, 1, did(1))),
)


def after(keys: list[str], look: Look | None = None) -> Look:
    """The look after these keys."""
    look = look or Look()
    for key in keys:
        look = pressed(look, key, [row.name for row in rows_of(WINDOW, look)])
    return look


def listed(look: Look) -> list[tuple[str, int]]:
    """Names and operations of the rows."""
    return [(row.name, row.facts.operations) for row in rows_of(WINDOW, look) if isinstance(row.facts, Activity)]


@pytest.mark.parametrize(
    ("keys", "rows"),
    [
        ([ENTER], [("/etc/Hosts", 5), ("/tmp/out", 1)]),
        ([DOWN, ENTER], [("/tmp/out", 2), ("/etc/Hosts", 2)]),
        ([DOWN, DOWN, DOWN, UP, ENTER], [("/etc/Hosts", 5), ("/tmp/out", 1)]),
        (["f", ENTER], [("cat (1)", 5), ("dd (2)", 2)]),
        (["f", DOWN, ENTER, ENTER], [("dd (2)", 2), ("cat (1)", 1)]),
        (["f", ENTER, ESCAPE], [("/etc/Hosts", 7), ("/tmp/out", 3)]),
        (["f", ENTER, "p"], [("cat (1)", 6), ("dd (2)", 4)]),
        (["f", *"/HOS"], [("/etc/Hosts", 7)]),
        (["f", *"/hosx", "\x7f", ENTER, "s"], [("/etc/Hosts", 7)]),
        (["f", *"/q", ENTER, ENTER], []),
        (["f", *"/q", ESCAPE], [("/etc/Hosts", 7), ("/tmp/out", 3)]),
        (["f", *"/q", ENTER, ESCAPE], [("/etc/Hosts", 7), ("/tmp/out", 3)]),
        (["d", ENTER], []),
    ],
)
def test_keys_choose_the_rows(keys: list[str], rows: list[tuple[str, int]]) -> None:
    """Enter lists the files of the selected process, or the processes of the selected file; Escape goes back."""
    assert listed(after(keys)) == rows


def page(look: Look, height: int | None, window: Window = WINDOW) -> str:
    """The page on a terminal that knows no colours but attributes."""
    out = io.StringIO()
    console = Console(file=out, width=90, highlight=False, force_terminal=True, color_system="standard")
    console.print(render_top(window, look, 90, height))
    return out.getvalue()


def selected(text: str) -> list[str]:
    """The lines in reverse."""
    return [line for line in text.splitlines() if "\x1b[7m" in line]


def test_the_selected_row_can_be_seen() -> None:
    """Also if rows went since; in a pipe none is selected."""
    assert ["dd (2)" in line for line in selected(page(Look(row=1), 20))] == [True]
    assert ["dd (2)" in line for line in selected(page(Look(row=7), 20))] == [True]
    assert selected(page(Look(row=1), None)) == []


def test_the_list_follows_the_selection() -> None:
    """A row below the screen's end comes into it."""
    many = replace(WINDOW, processes=tuple(ProcessNow(pid, "job", did(100 - pid)) for pid in range(40)))
    text = page(Look(row=30), 20, many)
    assert ["job (30)" in line for line in selected(text)] == [True]
    assert "job (0)" not in text
    assert "and 27 more" in text


def test_the_head_says_what_is_listed() -> None:
    """Whose rows, and which of them; what no list has is told."""
    assert "files of cat (1), most bytes first" in page(after([ENTER]), 20)
    assert "by file, most bytes first · only 'ho'…" in page(after(["f", *"/ho"]), 20)
    assert "by file, most bytes first · only 'ho'\n" in page(after(["f", *"/ho", ENTER]), None).replace("\x1b[0m", "")
    told = "7 pairs of process and file that did less are in no list"
    fewer = replace(WINDOW, unlisted_pairs=7)
    assert (told in page(after([ENTER]), 20, fewer), told in page(Look(), 20, fewer)) == (True, False)
    crowded = replace(fewer, pairs=WINDOW.pairs * 20)
    assert len(page(after([ENTER, "x"], Look(notice="halved")), 20, crowded).splitlines()) == 20
