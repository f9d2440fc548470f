"""Patterns for names and paths: ``*``, ``?``, ``[a-z]``, and in paths ``**``."""

from __future__ import annotations

import re
from functools import lru_cache


@lru_cache(maxsize=256)
def compile_glob(glob: str, *, slashes: bool) -> re.Pattern[str]:
    """A pattern for whole texts.

    Args:
        glob: ``*`` matches any text, ``?`` any letter, ``[a-c]`` one of these letters, ``[!a-c]`` any other letter. All
            other letters match themselves. ``[*]`` is a star.
        slashes: True for paths: ``*`` and ``?`` match no slash. ``**`` does. ``/**/`` matches any number of folders,
            also none, and ``/**`` at the end matches the folder itself and everything below it.

    Raises:
        ValueError: A range runs backwards.
    """
    parts, at = [], 0
    while at < len(glob):
        part, at = _part(glob, at, slashes=slashes)
        parts.append(part)
    return re.compile("".join(parts), re.DOTALL)


def _part(glob: str, at: int, *, slashes: bool) -> tuple[str, int]:
    """The regular expression for the part of a pattern at a place, and the place of the next part."""
    if slashes and glob.startswith("/**", at):
        if len(glob) == at + 3:
            return "(?:/.*)?", at + 3
        if glob[at + 3] == "/":
            return "/(?:.*/)?", at + 4
    letter = glob[at]
    if letter == "*":
        end = at
        while end < len(glob) and glob[end] == "*":
            end += 1
        return ("[^/]*" if slashes and end == at + 1 else ".*"), end
    if letter == "?":
        return "[^/]" if slashes else ".", at + 1
    if letter == "[":
        # A closing bracket right after the opening one is a member of the set. A bracket without an end is itself.
        end = glob.find("]", at + (3 if glob[at + 1 : at + 2] == "!" else 2))
        if end > 0:
            return _letters(glob[at + 1 : end]), end + 1
    return re.escape(letter), at + 1


def _letters(members: str) -> str:
    none_of = members[0] == "!"
    members = members[1:] if none_of else members
    parts, at = [], 0
    while at < len(members):
        first = last = members[at]
        if members[at + 1 : at + 2] == "-" and at + 2 < len(members):
            last = members[at + 2]
            at += 2
        if last < first:
            raise ValueError(f"the range {first}-{last} runs backwards")
        parts.append(rf"\U{ord(first):08x}-\U{ord(last):08x}")
        at += 1
    return f"[{'^' if none_of else ''}{''.join(parts)}]"


def escape_glob(text: str) -> str:
    """A pattern that matches only this text."""
    return re.sub(r"[*?\[]", r"[\g<0>]", text)
