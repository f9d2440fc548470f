"""A tracepoint as the running kernel has it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lo2io.model.tracepoints import EventFormat


@dataclass(frozen=True, slots=True)
class Event:
    """A tracepoint to open: name, id, its ``format`` file's text and what that says."""

    name: str
    id: int
    text: str
    layout: EventFormat
