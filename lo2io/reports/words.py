"""Words of one line: a number with its noun, a part in percent, a process. Plain text, for numbers and pages."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lo2io.units import format_duration

if TYPE_CHECKING:
    from lo2io.reports.summary.histogram import Latency


def printable(text: str) -> str:
    """Escape control characters, other unprintable ones and lone surrogates: a name must not move the cursor."""
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape", "surrogatepass").decode() for char in text
    )


def share_of(share: float) -> str:
    """A part of 1, in percent."""
    return f"{100 * share:.1f} %"


def count_of(number: int, noun: str) -> str:
    """``1 call``, ``2 processes``."""
    plural = "" if number == 1 else "es" if noun.endswith(("s", "ch")) else "s"
    return f"{number:,} {noun}{plural}"


def named(path: str | None, files: int) -> str:
    """A path, and the number of files that had it, if that is more than one."""
    return printable(path or "unnamed") + (f" ({files:,} files)" if files > 1 else "")


def who(pid: int | None, comm: str | None) -> str:
    """A process, by its name and number."""
    name = printable(comm) if comm else "unknown"
    return name if pid is None else f"{name} ({pid})"


def duration_of(latency: Latency, value_ns: int) -> str:
    """A latency as text. An empty latency gets a dash, because it is not 0."""
    return format_duration(value_ns) if latency.nr else "-"
