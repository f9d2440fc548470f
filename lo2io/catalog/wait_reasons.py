"""``tracepoints/waits.toml``: what a thread waited for, by the functions of the kernel in its stack."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Final, NamedTuple

from lo2io.catalog import compiled
from lo2io.catalog.entry import Table
from lo2io.errors import CatalogError

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

FILE: Final = "waits.toml"
SCHEMA: Final = 1
LOCK: Final = "lock"
"""The reason that the kernel's own events of locks tell, too."""
WITHOUT_STACK: Final = ("none", "unknown", "short", "short I/O", "other")
"""Names of the reasons that no function tells, by ``enum lo2_wait_reason``."""


class Reason(NamedTuple):
    """One reason of the file."""

    name: str
    summary: str
    functions: frozenset[str]


class Reasons(NamedTuple):
    """All reasons. The number of a reason is its place in ``names``."""

    known: tuple[Reason, ...]
    """Those of the file, in its order."""

    @property
    def names(self) -> tuple[str, ...]:
        """The name of each number."""
        return (*WITHOUT_STACK, *(reason.name for reason in self.known))

    def number_of(self, functions: Iterable[str]) -> int:
        """The number of the first reason that has one of these functions of a stack; else ``LO2_WAIT_OTHER``.

        A stack without a single name tells nothing: ``LO2_WAIT_UNKNOWN``.
        """
        found = {function.partition(".")[0] for function in functions if function}
        for number, reason in enumerate(self.known, len(WITHOUT_STACK)):
            if not found.isdisjoint(reason.functions):
                return number
        return WITHOUT_STACK.index("other" if found else "unknown")


@cache
def load_reasons(directory: Path | None = None) -> Reasons:
    """Read and check the file.

    Args:
        directory: The folder that has the file. None: lo2io's own.

    Raises:
        CatalogError: The file is no TOML, or breaks a rule.
    """
    return compiled.load("reasons", _load) if directory is None else _load(directory)


def _load(directory: Path) -> Reasons:
    import tomllib  # noqa: PLC0415 - what was kept is read without it

    file = directory / FILE
    try:
        document = tomllib.loads(file.read_text("utf-8"))
    except (ValueError, OSError) as error:
        raise CatalogError(f"read {FILE}", str(error)) from error
    entries = document.get("reason", [])
    if document.get("schema") != SCHEMA or not isinstance(entries, list) or {*document} != {"schema", "reason"}:
        raise CatalogError(f"read {FILE}", f"it is not made of schema = {SCHEMA} and [[reason]]")
    reasons = tuple(_read(Table(FILE, f"reason {number}", entry)) for number, entry in enumerate(entries, 1))
    _check(reasons)
    return Reasons(reasons)


def _read(table: Table) -> Reason:
    functions = table.left.pop("functions", None)
    if not isinstance(functions, list) or not functions or not all(isinstance(each, str) for each in functions):
        table.fail("functions", "is no list of names")
    reason = Reason(table.text("name"), table.text("summary"), frozenset(functions))
    table.done()
    return reason


def _check(reasons: tuple[Reason, ...]) -> None:
    """Check that no name and no function stands twice."""
    names = [*WITHOUT_STACK, *(reason.name for reason in reasons)]
    functions = [function for reason in reasons for function in reason.functions]
    twice = {text for texts in (names, functions) for text in texts if texts.count(text) > 1}
    if twice:
        raise CatalogError(f"read {FILE}", f"{', '.join(sorted(twice))} stands twice", "keep one entry")
    if LOCK not in names:
        raise CatalogError(f"read {FILE}", f"no reason has the name {LOCK}", "give one that name")
