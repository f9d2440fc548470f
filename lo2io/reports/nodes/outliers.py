"""Hosts that differ from the others: who runs on a thousand looks for them first."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

MADS: Final = 3.0
"""A host stands out if it lies further than so many median absolute deviations from the median."""
_LEAST_HOSTS: Final = 4
_LEAST_SHARE: Final = 0.01
"""A MAD below this share of the median counts as this share: percentiles are hardly more exact."""


@dataclass(frozen=True, slots=True)
class Outlier:
    """A host that stands out by one number."""

    host: str
    what: str
    """The number: a field of the host's row."""
    value: int
    median: int
    mads: float
    """How many MADs it lies above the median; below, if negative."""


def find_outliers(hosts: Sequence[str], numbers: Mapping[str, Sequence[int | None]]) -> tuple[Outlier, ...]:
    """The hosts that stand out, the furthest first. Fewer than four hosts have no median to speak of.

    Args:
        hosts: Their names.
        numbers: What is compared → the number of each host; None: it has none.
    """
    found = []
    for what, values in numbers.items():
        known = np.array([number for number, value in enumerate(values) if value is not None], np.intp)
        if len(known) < _LEAST_HOSTS:
            continue
        chosen = np.array([values[number] for number in known.tolist()], np.float64)
        median = float(np.median(chosen))
        unit = max(float(np.median(np.abs(chosen - median))), _LEAST_SHARE * abs(median), 1.0)
        mads = (chosen - median) / unit
        for number in np.flatnonzero(np.abs(mads) > MADS).tolist():
            host = hosts[int(known[number])]
            found.append(Outlier(host, what, int(chosen[number]), round(median), round(float(mads[number]), 1)))
    return tuple(sorted(found, key=lambda each: (-abs(each.mads), each.host, each.what)))
