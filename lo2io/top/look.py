"""What the user of ``lo2io top`` looks at: which rows of a window, in which order, and what a key changes.

In: a :class:`~lo2io.top.window.Window` and keys. Out: rows, and the next look. This module draws nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, NamedTuple

from lo2io.errors import UsageError
from lo2io.reports.words import printable, who

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lo2io.top.window import Activity, DeviceNow, FileNow, ProcessNow, Window

VIEWS: Final = ("process", "file", "device")
SORTS: Final = ("bytes", "operations", "time", "latency")
UP, DOWN, ESCAPE = "\x1b[A", "\x1b[B", "\x1b"
_ENTER: Final = ("\n", "\r")
_BACKSPACE: Final = ("\x7f", "\b")
_PARTNERS: Final = {"process": "file", "file": "process"}


@dataclass(frozen=True, slots=True)
class Look:
    """The user's choices for the view."""

    view: str = VIEWS[0]
    sort: str = SORTS[0]
    paused: bool = False
    notice: str = ""
    """The recorder's last message."""
    of: str = ""
    """Name of the process whose files are listed, or of the file whose processes are; empty: all rows are listed."""
    only: str = ""
    """Rows whose name has this text, in any case."""
    typing: bool = False
    """True while keys go into ``only``."""
    row: int = 0
    """The selected row. It may lie after the last one, for rows come and go."""

    @property
    def kind(self) -> str:
        """What a row is."""
        return _PARTNERS[self.view] if self.of else self.view

    @property
    def heading(self) -> str:
        """The heading of the list: its rows, and their order."""
        plural = "processes" if self.kind == "process" else f"{self.kind}s"
        rows = f"{plural} of {self.of}" if self.of else f"by {self.view}"
        only = f" · only {self.only!r}{'…' if self.typing else ''}" if self.only or self.typing else ""
        return f"{rows}, most {self.sort} first{only}"


class Row(NamedTuple):
    """A row of the list."""

    name: str
    facts: Activity | DeviceNow


def check_look(look: Look) -> Look:
    """Return the look if its view and order exist.

    Raises:
        UsageError: There is no such view or order.
    """
    for what, chosen, known in (("list by", look.view, VIEWS), ("sort by", look.sort, SORTS)):
        if chosen not in known:
            raise UsageError(f"{what} {chosen!r}", "top does not know this", f"choose one of {', '.join(known)}")
    return look


_WEIGHTS: Final[dict[str, Callable[[Activity], int]]] = {
    "bytes": lambda a: a.bytes_read + a.bytes_written,
    "operations": lambda a: a.operations,
    "time": lambda a: a.time_ns,
    "latency": lambda a: a.latency.p99_ns,
}


def rows_of(window: Window, look: Look) -> list[Row]:
    """The rows of the list. Equal rows keep the window's order; there are few devices, so they are not sorted again."""
    rows: list[Row]
    if look.view == "device":
        rows = [Row(printable(device.name), device) for device in window.devices]
    else:
        weight = _WEIGHTS[look.sort]
        owners = sorted(_owners(window, look), key=lambda owner: -weight(owner[1]))
        rows = [Row(name, activity) for name, activity in owners]
    return [row for row in rows if look.only.lower() in row.name.lower()]


def _owners(window: Window, look: Look) -> list[tuple[str, Activity]]:
    processes = [(_name(row), row.activity) for row in window.processes]
    files = [(_name(row), row.activity) for row in window.files]
    if not look.of:
        return processes if look.view == "process" else files
    pairs = [(processes[pair.process][0], files[pair.file][0], pair.activity) for pair in window.pairs]
    if look.view == "process":
        return [(file, activity) for process, file, activity in pairs if process == look.of]
    return [(process, activity) for process, file, activity in pairs if file == look.of]


def _name(row: ProcessNow | FileNow) -> str:
    kind = getattr(row, "kind", "process")
    if kind == "named":
        return printable(getattr(row, "path", None) or "unknown")
    if kind == "none":
        return "no descriptor"
    name = who(row.pid, row.process)
    return f"unnamed, of {name}" if kind == "unnamed" else name


def pressed(look: Look, key: str, names: Sequence[str]) -> Look:
    """The look after a key.

    Args:
        look: Before.
        key: One character, or :data:`UP` or :data:`DOWN`.
        names: The names of the rows that are listed now.
    """
    if look.typing:
        return _typed(look, key)
    last = max(0, len(names) - 1)
    row = min(look.row, last)
    opens = names and not look.of and look.view in _PARTNERS
    after = {view[0]: replace(look, view=view, of="", row=0) for view in VIEWS}
    after |= {
        "s": replace(look, sort=SORTS[(SORTS.index(look.sort) + 1) % len(SORTS)]),
        " ": replace(look, paused=not look.paused),
        "/": replace(look, typing=True, only="", row=0),
        UP: replace(look, row=max(0, row - 1)),
        DOWN: replace(look, row=min(row + 1, last)),
        ESCAPE: replace(look, of="", only=look.only if look.of else "", row=0),
        **dict.fromkeys(_ENTER, replace(look, of=names[row], only="", row=0) if opens else look),
    }
    return after.get(key, look)


def _typed(look: Look, key: str) -> Look:
    """The look after a key that belongs to the text of ``only``."""
    if key in _ENTER:
        return replace(look, typing=False)
    if key == ESCAPE:
        return replace(look, typing=False, only="")
    if key in _BACKSPACE:
        return replace(look, only=look.only[:-1])
    return replace(look, only=look.only + key) if len(key) == 1 and key.isprintable() else look
