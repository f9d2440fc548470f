"""The choice of what opens events: the kernel's own binding, python-perf, or system calls of lo2io's own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lo2io.capture.events.native import NativeSource
from lo2io.capture.events.opened import INHERIT, OPENERS
from lo2io.capture.events.python_perf import PerfSource
from lo2io.errors import AccessError, UsageError

if TYPE_CHECKING:
    from lo2io.capture.events.opened import EventSource


def select_source(opener: str | None, scope: str) -> tuple[EventSource, str]:
    """The opener to use, and a notice for the user if it is not the usual opener (else an empty text).

    Args:
        opener: ``python-perf``, ``native``, or None for the best available.
        scope: ``inherit`` needs the native opener.

    Raises:
        AccessError: The user asked for ``python-perf``, which is not installed.
        UsageError: The opener does not exist or cannot open this scope.
    """
    if opener not in {None, *OPENERS}:
        raise UsageError(f"open events with {opener}", "there is no such opener", f"use one of {', '.join(OPENERS)}")
    if opener == "native" or (opener is None and scope == INHERIT):
        return NativeSource(), ""
    if scope == INHERIT:
        raise UsageError(
            "open events per task with python-perf", "python-perf opens events per CPU only", "leave --opener out"
        )
    try:
        return PerfSource(), ""
    except AccessError as error:
        if opener is not None:
            raise
        return NativeSource(), f"events are opened without the perf binding ({error}; it comes with: {error.remedy})"
