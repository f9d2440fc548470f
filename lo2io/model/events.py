"""A tracepoint of the running kernel."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lo2io.frozen import dataclass

if TYPE_CHECKING:
    from lo2io.model.tracepoints import EventFormat


@dataclass(frozen=True, slots=True)
class Event:
    """A tracepoint to open: name, id, the text of its ``format`` file, and the fields that this text describes."""

    name: str
    id: int
    text: str
    layout: EventFormat
