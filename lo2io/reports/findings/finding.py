"""A finding: what was found, of whom, and by which numbers."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from lo2io.units import format_duration

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import numpy as np
    from numpy.typing import NDArray

    from lo2io.model import Columns


MAX_PER_RULE: Final = 5
"""Findings of one rule: those with most rows; the rest is counted in ``more`` of the last one."""
Where: TypeAlias = "Callable[[Columns], NDArray[np.bool_]]"
"""Which of some rows are meant, shape (rows,)."""


@dataclass(slots=True)
class Finding:
    """One pathology of one subject."""

    rule: str
    """Name of the rule, as in docs/reference/findings.md."""
    subject: str
    """A file, process, device or ring, in words."""
    text: str
    """What was found, in a sentence without the subject."""
    evidence: Mapping[str, int | float]
    """The numbers that the rule compared; units end their names."""
    table: str
    """Of the rows behind it."""
    rows: int
    """How many there are."""
    where: Where = field(repr=False, compare=False)
    """Which rows of the table these are; of operations, with the columns that ``derive`` adds."""
    cost_ns: int | None = None
    """Time in the calls behind it, added up over threads; None: the rule is not about time."""
    share: float | None = None
    """The same as a part of the recording, or of what was chosen of it; more than 1 where several threads had it."""
    ids: tuple[int, ...] = ()
    """Of the first few, in that table."""
    paths: Mapping[str, int] = field(default_factory=dict)
    """Of a process: which paths the first 1,000 of them were given most often, where programs in the kernel told;
    path → calls."""
    group: int = -1
    """Of a file: its number among the owners' groups."""
    more: int = 0
    """Further subjects of the same rule, which are not listed."""
    if_repeated: bool = False
    """It stands only if the first rows turn out to be about the same files again and again."""

    @property
    def words(self) -> str:
        """The text, and what it cost where that is known."""
        if self.cost_ns is None:
            return self.text
        share = "" if self.share is None else f", {100 * self.share:.3g} % of the recording's length"
        return f"{self.text}: {format_duration(self.cost_ns)} in all{share}"

    def as_dict(self) -> dict[str, Any]:
        """As JSON has it."""
        names = ("rule", "subject", "text", "evidence", "table", "rows", "cost_ns", "share", "ids", "paths", "more")
        return {name: getattr(self, name) for name in names}
