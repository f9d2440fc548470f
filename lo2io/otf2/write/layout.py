"""Which records a trace consists of: what was asked for and recorded, as far as OTF2 allows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from lo2io.errors import UsageError
from lo2io.model.trace import BLOCK_RECORDS

if TYPE_CHECKING:
    from lo2io.model import SpoolMeta

SAMPLES, BEGIN_END, _ = BLOCK_RECORDS
_SWITCHES: Final = "sched:sched_switch"
_SYSTEM: Final = "system"


@dataclass(frozen=True, slots=True)
class Layout:
    """The records of one trace; ``docs/reference/otf2.md`` says what each looks like."""

    block_records: str
    """One of ``BLOCK_RECORDS``."""
    contexts: bool
    """Regions are entered and left by calling context, which OTF2 forbids beside plain Enter and Leave; CPUs have
    locations."""
    metrics: bool

    @property
    def samples(self) -> bool:
        """Block events are samples on the locations of CPUs."""
        return self.block_records != BEGIN_END

    @property
    def begin_end(self) -> bool:
        """Block requests are operations on the locations of devices."""
        return self.block_records != SAMPLES


def choose_layout(meta: SpoolMeta, block_records: str | None = None) -> Layout:
    """The layout for a recording; None: samples of a whole machine, operations of chosen processes.

    Raises:
        UsageError: There are no such block records.
    """
    system = meta.mode == _SYSTEM
    chosen = block_records or (SAMPLES if system else BEGIN_END)
    if chosen not in BLOCK_RECORDS:
        remedy = f"choose one of {', '.join(BLOCK_RECORDS)}"
        raise UsageError(f"write block records as {chosen!r}", "nothing of that name", remedy)
    samples = chosen != BEGIN_END
    return Layout(chosen, contexts=system or samples or _SWITCHES in meta.events, metrics=system or samples)
