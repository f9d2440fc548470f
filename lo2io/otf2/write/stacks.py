"""The stacks of programs as texts, which events name.

A stack is a text and not a calling context, because its functions are known only at the end. The number of a context
must be known when its event is written, and readers expect the callers of a context to have lower numbers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lo2io.model.trace import CUT, frame_words
from lo2io.unwind.walk import End

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lo2io.model import Frame


def stack_texts(frames: Iterable[Frame]) -> dict[int, str]:
    """Number of a stack → its functions, the outermost first, with ; between them. What was cut is named."""
    found: dict[int, list[str]] = {}
    cut = set[int]()
    for frame in frames:
        found.setdefault(frame.stack, []).append(frame_words(frame.function, frame.file, frame.offset))
        if frame.end == End.CUT:
            cut.add(frame.stack)
    return {
        stack: ";".join((*((CUT,) if stack in cut else ()), *reversed(functions))) for stack, functions in found.items()
    }
