"""Notices of a recording, for those who listen and for everybody."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from lo2io import pipeline
from lo2io.capture.options import RecordRequest
from lo2io.model.notices import Notice, ended_early, kind_of, no_window

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

FAILURES = [
    ended_early("T/spool/cpu-0000.ring: No space left on device"),
    no_window("SIGUSR1", "another window is still being written"),
]
ALIKE = Notice("no window was written is what this notice begins with, and it is none of that kind")
"""A notice is urgent by its kind, whatever its words are."""


def test_failures_are_told_however_quiet_it_shall_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With -q, a recorder still reports that it failed to write a requested window, but not that it wrote one."""
    said: list[str] = []
    warned: list[str] = []

    def record(options: Any, tell: Callable[[Notice], None], *_: object) -> SimpleNamespace:
        for notice in (*FAILURES, Notice("T/dump-1 holds the last 60.0 s (SIGUSR1); complete"), ALIKE):
            tell(notice)
        return SimpleNamespace(spool=options.spool, exit_code=0)

    monkeypatch.setattr(pipeline, "record_spool", record)
    request = RecordRequest(system=True, output=tmp_path / "T", convert=False)
    pipeline.record(request, said.append, warn=warned.append)
    assert warned[:2] == [notice.text for notice in FAILURES]
    assert said[:2] == ["T/dump-1 holds the last 60.0 s (SIGUSR1); complete", ALIKE.text]


@pytest.mark.parametrize("notice", [*FAILURES, Notice("buffers are 512 KiB per CPU instead of 4096")])
def test_a_stored_sentence_keeps_its_kind(notice: Notice) -> None:
    """Spools and traces hold the sentence alone."""
    assert kind_of(notice.text) is notice.kind
