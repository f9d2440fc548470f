"""The stacks of programs as texts, which events name.

Text and not calling contexts: the number of a context must be known when its event is written, and readers expect a
context's callers to have lower numbers. The functions are known at the end.
"""

from __future__ import annotations

from pathlib import PurePath
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lo2io.model import Frame


def stack_texts(frames: Iterable[Frame]) -> dict[int, str]:
    """Number of a stack → its functions, the outermost first, with ; between them."""
    found: dict[int, list[str]] = {}
    for frame in frames:
        found.setdefault(frame.stack, []).append(_words(frame))
    return {stack: ";".join(reversed(functions)) for stack, functions in found.items()}


def _words(frame: Frame) -> str:
    """The function. Where its name is not known, its file and its place there."""
    return frame.function or f"{PurePath(frame.file).name or '?'}+{frame.offset:#x}"
