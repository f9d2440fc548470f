"""The caller of a function without a frame of its own, which frame pointers skip."""

from __future__ import annotations

from unittest.mock import Mock

import pytest

from lo2io.model.recording import UserStack
from lo2io.trace.user_stacks import _caller

LEAF = Mock(returns_from_top=lambda offset: offset == 5, address_of=lambda offset: 7 if offset < 100 else None)


@pytest.mark.parametrize(
    ("offsets", "top", "beside", "caller"),
    [
        ((5, 40), 3, 1, ("b", 43)),
        ((5, 40), 3, 0, ("a", 8)),
        ((5, 40), 0, 1, None),
        ((5, 40), 3, 2, None),
        ((6, 40), 3, 1, None),
        ((5, 40), 60, 1, ("b", 100)),
        ((5, 40), 61, 1, None),
        ((5, 40), -40, 1, None),
    ],
)
def test_the_word_at_the_top_names_it(
    offsets: tuple[int, int], top: int, beside: int, caller: tuple[str, int] | None
) -> None:
    """If the innermost function returns from there, and the word lies in a file that is known."""
    stack = UserStack(1, ("a", "b"), offsets, top, beside)
    assert _caller(stack, {"a": LEAF, "b": LEAF}) == caller
    assert _caller(stack, {"b": LEAF}) is None
    assert _caller(stack, {"a": LEAF}) == (caller if caller and caller[0] == "a" else None)
