"""A finding: its subject, its text, and the numbers behind it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from lo2io.reports.findings.remedies import REMEDIES
from lo2io.units import format_duration

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import numpy as np
    from numpy.typing import NDArray

    from lo2io.model import Columns


MAX_PER_RULE: Final = 5
"""Findings of one rule: those with most rows. The last of them counts the others in ``more``."""
Where: TypeAlias = "Callable[[Columns], NDArray[np.bool_]]"
"""Choose some of these rows, shape (rows,)."""


@dataclass(slots=True)
class Finding:
    """One finding about one subject."""

    rule: str
    """Name of the rule, as in docs/reference/findings.md."""
    subject: str
    """A file, process, device or ring, as text."""
    text: str
    """The finding in a sentence without its subject."""
    evidence: Mapping[str, int | float]
    """The numbers that the rule compared. Units end their names."""
    table: str
    """The table that has the rows."""
    rows: int
    """The number of rows."""
    where: Where = field(repr=False, compare=False)
    """Chooses the rows of the table. For operations, the columns that ``derive`` adds are there, too."""
    cost_ns: int | None = None
    """Time in the calls behind it, added up over threads. None: the rule is not about time."""
    share: float | None = None
    """This time as a part of the recording, or of the chosen part. More than 1, if several threads spent it."""
    ids: tuple[int, ...] = ()
    """Ids of the first rows in that table."""
    paths: Mapping[str, int] = field(default_factory=dict)
    """For a process: the paths that its first 1,000 rows were given most often, as path → calls. Only programs in the
    kernel tell them."""
    group: int = -1
    """For a file: its number among the owners' groups."""
    process: int = -1
    """For a process: its number among the owners' processes. ``find`` adds the subject."""
    more: int = 0
    """Subjects of the same rule that are not listed."""
    if_repeated: bool = False
    """True if the finding stands only when its first rows repeat the same files."""

    @property
    def remedy(self) -> str:
        """What to do about it, in a sentence."""
        return REMEDIES[self.rule]

    @property
    def words(self) -> str:
        """The text, and the time that it cost, if known."""
        if self.cost_ns is None:
            return self.text
        share = "" if self.share is None else f", {100 * self.share:.3g} % of the recording's length"
        return f"{self.text}: {format_duration(self.cost_ns)} in all{share}"

    def as_dict(self) -> dict[str, Any]:
        """The finding as JSON has it."""
        told = ("rule", "subject", "text", "remedy", "evidence", "cost_ns", "share", "paths", "more")
        return {name: getattr(self, name) for name in (*told, "table", "rows", "ids")}
