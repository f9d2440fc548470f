"""The choice of a trace's records: those that the user chose, or that fit the recording and OTF2's rules."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lo2io.errors import UsageError
from lo2io.frozen import dataclass
from lo2io.model.trace import BLOCK_RECORDS

if TYPE_CHECKING:
    from lo2io.model import SpoolMeta

SAMPLES, BEGIN_END, BOTH = BLOCK_RECORDS
_SWITCHES: Final = "sched:sched_switch"
_SYSTEM: Final = "system"


@dataclass(frozen=True, slots=True)
class Layout:
    """The records of one trace. ``docs/reference/otf2.md`` describes them."""

    block_records: str
    """One of ``BLOCK_RECORDS``."""
    contexts: bool
    """True: regions are entered and left by calling context, and CPUs have locations. OTF2 does not allow such records
    together with plain Enter and Leave."""
    metrics: bool

    @property
    def samples(self) -> bool:
        """True if block events are samples on the locations of CPUs."""
        return self.block_records != BEGIN_END

    @property
    def begin_end(self) -> bool:
        """True if block requests are operations on the locations of devices."""
        return self.block_records != SAMPLES


def choose_layout(meta: SpoolMeta, block_records: str | None = None) -> Layout:
    """The layout for a recording. None: operations; for a whole machine samples, too.

    Raises:
        UsageError: ``block_records`` has an unknown value.
    """
    system = meta.mode == _SYSTEM
    chosen = block_records or (BOTH if system else BEGIN_END)
    if chosen not in BLOCK_RECORDS:
        remedy = f"choose one of {', '.join(BLOCK_RECORDS)}"
        raise UsageError(f"write block records as {chosen!r}", "there are no such records", remedy)
    samples = chosen != BEGIN_END
    return Layout(chosen, contexts=system or samples or _SWITCHES in meta.events, metrics=system or samples)
