"""A bar for long work, on a terminal only."""

from __future__ import annotations

import sys
from unittest.mock import Mock, call

import pytest

from lo2io.cli import progress


@pytest.mark.parametrize(
    ("terminal", "seconds", "shown"),
    [(True, [0.1, 0.2], []), (True, [0.1, 0.6, 0.7], [0.2, 0.3]), (False, [0.1, 0.6, 0.7], [])],
)
def test_work_that_takes_long_has_a_bar(
    terminal: bool, seconds: list[float], shown: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    """From half a second on; made once, with the share that is done."""
    bar, now = Mock(), [0.0]
    start = Mock(return_value=(bar, "task"))
    monkeypatch.setattr(progress, "_start_share", start)
    monkeypatch.setattr(progress, "time", Mock(monotonic=lambda: now[0]))
    monkeypatch.setattr(sys, "stderr", Mock(isatty=lambda: terminal))
    with progress.share_progress("sorting") as advance:
        for place, second in enumerate(seconds, 1):
            now[0] = second
            advance(place / 10)
    assert bar.update.mock_calls == [call("task", completed=share) for share in shown]
    assert [each.args[1] for each in start.mock_calls] == ["sorting"][: len(shown)]
