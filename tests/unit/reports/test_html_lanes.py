"""Colours of the page's pictures: who moves data is told apart."""

from __future__ import annotations

from collections import Counter

import pytest

from lo2io.reports.html.lanes import CLASSES, HUES


@pytest.mark.parametrize("kind", ["read", "write", "copy", "sync"])
def test_classes_that_move_data_have_hues_of_their_own(kind: str) -> None:
    """No other class has the same one."""
    assert Counter(HUES)[HUES[CLASSES.index(kind)]] == 1
