"""Cells of the tables of an HTML page. Each has the text that is shown and the exact value that it is sorted by."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from lo2io.reports.words import printable, share_of, who
from lo2io.units import format_bytes, format_duration

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lo2io.reports.html.flames import Flame
    from lo2io.reports.summary.histogram import Latency
    from lo2io.reports.summary.overlap import Overlap
    from lo2io.reports.summary.summary import Activity


class Cell(NamedTuple):
    """A cell with ``value`` None holds text and is sorted by that text."""

    text: str
    value: float | None = None
    marked: bool = False
    """It stands out."""


@dataclass(frozen=True, slots=True)
class Sheet:
    """A table. ``columns`` has each heading, and True if the column holds numbers."""

    key: str
    """A word, unique in the page."""
    title: str
    note: str
    columns: tuple[tuple[str, bool], ...]
    rows: tuple[tuple[Cell, ...], ...]
    flames: tuple[Flame, ...] = ()
    """Flame graphs above the table."""


class OfFile(Protocol):
    """A row about a file. ``kind`` has the same values as in :class:`~lo2io.reports.summary.summary.FileRow`."""

    @property
    def kind(self) -> str:
        """One of named, unnamed, none, others."""

    @property
    def path(self) -> str | None:
        """The path, if the row is named."""

    @property
    def pid(self) -> int | None:
        """The process that holds the descriptors, if the row is unnamed."""

    @property
    def process(self) -> str | None:
        """That process's name."""


ACTIVITY: Final = (
    ("calls", True), ("reads", True), ("writes", True), ("read", True), ("written", True), ("time", True),
    ("errors", True),
)  # fmt: skip
LATENCY: Final = (("time", True), ("mean", True), ("p50", True), ("p95", True), ("p99", True), ("max", True))
_UNKNOWN: Final = Cell("-", -1.0)
"""This value is below all others, so unknown cells are sorted last."""


def text(words: str | None) -> Cell:
    """A name from outside, with unprintable characters escaped."""
    return Cell(printable(words or ""))


def count(number: int | None) -> Cell:
    """A number of things."""
    return _UNKNOWN if number is None else Cell(f"{number:,}", number)


def size(size_bytes: int | None) -> Cell:
    """Bytes."""
    return _UNKNOWN if size_bytes is None else Cell(format_bytes(size_bytes), size_bytes)


def time(duration_ns: int | None) -> Cell:
    """A length of time."""
    return _UNKNOWN if duration_ns is None else Cell(format_duration(duration_ns), duration_ns)


OVERLAP: Final = (("I/O alone", True),)
"""Heading of the time in which a process had I/O under way and did not compute."""


def overlap(found: Overlap | None) -> list[Cell]:
    """The cell below :data:`OVERLAP`."""
    return [time(None if found is None else found.unoverlapped_ns)]


def share(part: float) -> Cell:
    """A part of 1."""
    return Cell(share_of(part), part)


def activity(of: Activity) -> list[Cell]:
    """The columns ``ACTIVITY``."""
    return [
        count(of.calls),
        count(of.reads),
        count(of.writes),
        size(of.bytes_read),
        size(of.bytes_written),
        time(of.time_ns),
        count(of.errors),
    ]


def latency(of: Latency) -> list[Cell]:
    """The columns ``LATENCY``."""
    values = (of.total_ns, of.mean_ns, of.p50_ns, of.p95_ns, of.p99_ns, of.max_ns)
    return [time(value if of.nr else None) for value in values]


def file_of(row: OfFile) -> Cell:
    """The text for the file that a row is about."""
    if row.kind == "unnamed":
        return Cell(f"unnamed fds of {who(row.pid, row.process)}")
    if row.kind == "none":
        return Cell("calls without an fd")
    return Cell(printable(row.path or "unnamed"))


def sheet(
    key: str, title: str, columns: Sequence[tuple[str, bool]], rows: Sequence[Sequence[Cell]], note: str = ""
) -> Sheet:
    """Make a table of these columns and rows."""
    return Sheet(key, title, note, tuple(columns), tuple(tuple(row) for row in rows))
