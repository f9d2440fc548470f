"""Sentences for the user about a recording, each with its kind.

``spool.json`` and ``metadata.json`` keep the sentences without kinds. So a kind that matters later has opening words of
its own, and :func:`kind_of` finds the kind of a stored sentence by these words.
"""

from __future__ import annotations

from enum import Enum

from lo2io.frozen import dataclass


class NoticeKind(Enum):
    """The subject of a notice. The value is the beginning of its sentence."""

    PLAIN = ""
    """Worth knowing; nothing depends on it."""
    ENDED_EARLY = "recording ended early"
    """The spool could not be written any more, so the recording's end is missing."""
    NO_WINDOW = "no window was written"
    """A flight recorder was asked for a trace, and made none."""


@dataclass(frozen=True, slots=True)
class Notice:
    """One sentence for the user. :func:`ended_early` and :func:`no_window` make the special ones."""

    text: str
    kind: NoticeKind = NoticeKind.PLAIN

    @property
    def is_urgent(self) -> bool:
        """True if the user must see the notice, even with ``--quiet``."""
        return self.kind is not NoticeKind.PLAIN


def ended_early(why: str) -> Notice:
    """A notice that the recording stopped itself. ``why`` is the system's answer."""
    kind = NoticeKind.ENDED_EARLY
    return Notice(f"{kind.value}: {why}; what was recorded before is kept, and no program is stopped", kind)


def no_window(asked_by: str, why: str) -> Notice:
    """A notice that a window for ``asked_by`` was not written. ``why`` is the reason."""
    kind = NoticeKind.NO_WINDOW
    return Notice(f"{kind.value} for {asked_by}: {why}", kind)


def kind_of(text: str) -> NoticeKind:
    """The kind of a notice whose sentence was stored in ``spool.json`` or ``metadata.json``."""
    kinds = (kind for kind in NoticeKind if kind is not NoticeKind.PLAIN and text.startswith(kind.value))
    return next(kinds, NoticeKind.PLAIN)
