"""What a recording tells while it lasts: to those who want to hear it, and to everybody."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from lo2io import pipeline

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import pytest

FAILURES = [
    "recording ended early: T/spool/cpu-0000.ring: No space left on device",
    "no window was written for SIGUSR1: another window is still being written",
]


def test_failures_are_told_however_quiet_it_shall_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A recorder that was asked for a window and wrote none says so with -q, too; that it wrote one it does not."""
    said: list[str] = []
    warned: list[str] = []

    def record(options: Any, tell: Callable[[str], None], _: object) -> SimpleNamespace:
        for notice in (*FAILURES, "T/dump-1 holds the last 60.0 s (SIGUSR1); complete"):
            tell(notice)
        return SimpleNamespace(spool=options.spool, exit_code=0)

    monkeypatch.setattr(pipeline, "record_spool", record)
    request = pipeline.RecordRequest(system=True, output=tmp_path / "T", convert=False)
    pipeline.record(request, said.append, warn=warned.append)
    assert warned[:2] == FAILURES
    assert said == ["T/dump-1 holds the last 60.0 s (SIGUSR1); complete"]
