"""Flame graphs of the page: the functions that led to slow calls, as boxes as wide as the time or bytes of these calls.

In: a :class:`~lo2io.reports.summary.stacks.StacksSummary`. Out: boxes with places in per cent, which need no script.
The outermost function lies on top, and each function below its caller.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

from lo2io.reports.words import printable
from lo2io.units import format_bytes, format_duration

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from lo2io.reports.summary.stacks import StackRow, StacksSummary

LEAST_PERCENT: Final = 0.1
"""Narrower boxes are left out: nobody could see them."""
_NR_COLOURS: Final = 7
"""The page's colours ``--c0`` to ``--c6``."""


class Box(NamedTuple):
    """A function on one path. Places are in per cent of the graph's width, and in rows."""

    left: float
    width: float
    row: int
    name: str
    amount: str
    colour: int


@dataclass(frozen=True, slots=True)
class Flame:
    """A graph: what its widths are, and its boxes."""

    caption: str
    nr_rows: int
    boxes: tuple[Box, ...]


@dataclass(slots=True)
class _Node:
    amount: int = 0
    below: dict[str, _Node] = field(default_factory=dict)


def flames(stacks: StacksSummary | None) -> list[Flame]:
    """The graphs by time and by bytes. A graph without anything to show is left out."""
    kinds: tuple[tuple[str, Callable[[StackRow], int], Callable[[int], str]], ...] = (
        ("time in slow calls", lambda row: row.time_ns, format_duration),
        ("bytes that slow calls moved", lambda row: row.bytes, format_bytes),
    )
    graphs = [_flame(stacks.stacks if stacks else (), *kind) for kind in kinds]
    return [graph for graph in graphs if graph.boxes]


def _flame(
    rows: tuple[StackRow, ...], caption: str, amount_of: Callable[[StackRow], int], text_of: Callable[[int], str]
) -> Flame:
    root = _Node()
    for row in rows:
        node = root
        node.amount += amount_of(row)
        for name in row.functions:
            node = node.below.setdefault(name, _Node())
            node.amount += amount_of(row)
    boxes = tuple(_boxes(root, text_of)) if root.amount else ()
    return Flame(f"{caption}: {text_of(root.amount)} in all", 1 + max((box.row for box in boxes), default=0), boxes)


def _boxes(root: _Node, text_of: Callable[[int], str]) -> Iterator[Box]:
    """Boxes of all functions, callers first; of those with one caller, the one with most first."""
    todo = [(root, 0.0, 0)]
    while todo:
        above, left, row = todo.pop()
        for name, node in sorted(above.below.items(), key=lambda item: (-item[1].amount, item[0])):
            width = 100 * node.amount / root.amount
            if width < LEAST_PERCENT:
                break
            shown = printable(name)
            amount = f"{text_of(node.amount)}, {width:.1f} %"
            yield Box(round(left, 3), round(width, 3), row, shown, amount, zlib.crc32(name.encode()) % _NR_COLOURS)
            todo.append((node, left, row + 1))
            left += width
