"""Work that others share: nothing is done twice or left out, and no error is."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from lo2io.otf2.merge.sharing import Share


def test_each_piece_is_done_once() -> None:
    """This process works along when the others have enough to do."""
    done: list[tuple[int, bool]] = []
    main = threading.current_thread()
    with ThreadPoolExecutor(1) as pool:
        share = Share(pool, 1)
        for number in range(50):
            share.do(lambda number: done.append((number, threading.current_thread() is main)), number)
        share.finish()
    assert sorted(number for number, _ in done) == list(range(50))
    Share().do(done.append, (50, True))
    assert done[-1] == (50, True)


def test_an_error_is_raised_here() -> None:
    """At the latest when all should be done."""
    with ThreadPoolExecutor(1) as pool:
        share = Share(pool, 1)
        share.do(int, "no number")
        with pytest.raises(ValueError, match="no number"):
            share.finish()


def test_stopping_waits_for_what_has_begun() -> None:
    """Pieces that have not begun are never begun. Files may be removed afterwards."""
    begun, may_end, ended = threading.Event(), threading.Event(), threading.Event()

    def work() -> None:
        begun.set()
        may_end.wait()
        ended.set()

    with ThreadPoolExecutor(1) as pool:
        share = Share(pool, 1)
        later: list[int] = []
        share.do(work)
        begun.wait()
        share.do(later.append, 1)
        threading.Timer(0.1, may_end.set).start()
        share.stop()
        assert ended.is_set()
        share.finish()
    assert later == []
