"""Moments of a trace, read from the command line."""

from __future__ import annotations

import datetime as dt
import re
from typing import TYPE_CHECKING, Any

from lo2io.errors import UsageError
from lo2io.units import NS_PER_S, parse_duration

if TYPE_CHECKING:
    from collections.abc import Mapping

_REMEDY = "write it like 2.5s, -10s (before the end), 2026-05-01T12:30:05, or @NS as the tables have it"


def parse_moment(text: str, metadata: Mapping[str, Any]) -> int:
    """A moment in nanoseconds on the trace's clock.

    Args:
        text: ``2.5s``: 2.5 s after the trace's start; ``-10s``: 10 s before its end; ``@NS``: a time of the tables; or
            a date and time of day (ISO 8601), in this machine's local time unless an offset follows.
        metadata: The trace's metadata. ``start_ns``, ``stop_ns`` and ``syncs`` are used.

    Raises:
        UsageError: The text is no moment, or the trace does not say which time of day its times are.
    """
    tried = f"read the moment {text!r}"
    asked = text.strip()
    if re.fullmatch(r"@\d{1,19}", asked):
        return int(asked[1:])
    if re.match(r"\d{4}-", asked):
        try:
            moment = dt.datetime.fromisoformat(asked).astimezone()
        except (ValueError, OverflowError, OSError) as error:
            raise UsageError(tried, str(error), _REMEDY) from error
        return _on_clock(tried, moment, metadata)
    try:
        return (
            int(metadata["stop_ns"]) - parse_duration(asked[1:])
            if asked.startswith("-")
            else int(metadata["start_ns"]) + parse_duration(asked)
        )
    except UsageError as error:
        raise UsageError(tried, error.answer, _REMEDY) from error


def _on_clock(tried: str, moment: dt.datetime, metadata: Mapping[str, Any]) -> int:
    if not metadata["syncs"]:
        raise UsageError(tried, "the trace does not say what time of day it was", _REMEDY)
    since = moment - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
    real_ns = (since.days * 86_400 + since.seconds) * NS_PER_S + since.microseconds * 1000
    sync = min(metadata["syncs"], key=lambda each: abs(int(each["realtime_ns"]) - real_ns))
    return int(sync["time_ns"]) + real_ns - int(sync["realtime_ns"])
