"""Findings in a trace: known ways to get little out of storage, each with its evidence.

In: :class:`~lo2io.reports.summary.sums.TraceSums`, and the numbers of rings. Out: findings and, on request, the first
rows of the tables behind each. A rule is a function; its thresholds are constants beside it.
docs/reference/findings.md lists all rules.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lo2io.reports.findings.calls import CALL_RULES
from lo2io.reports.findings.devices import DEVICE_RULES
from lo2io.reports.findings.evidence import fill_rows, standing
from lo2io.reports.findings.files import FILE_RULES
from lo2io.reports.findings.finding import MAX_PER_RULE
from lo2io.reports.findings.rings import RING_RULES

if TYPE_CHECKING:
    from lo2io.reports.findings.finding import Finding
    from lo2io.reports.rings.summary import RingsSummary
    from lo2io.reports.summary.sums import TraceSums

RULES: Final = {**FILE_RULES, **CALL_RULES, **DEVICE_RULES, **RING_RULES}
"""The rules by name, in the page's order. Each rule takes the sums; a rule of rings takes the numbers of rings."""


def find(sums: TraceSums, rings: RingsSummary | None) -> tuple[Finding, ...]:
    """Apply every rule, and look up the first rows behind each finding.

    Raises:
        TraceError: A table is missing or damaged.
    """
    found: list[Finding] = []
    for rules in (FILE_RULES, CALL_RULES, DEVICE_RULES):
        for rule in rules.values():
            found += most(standing(sums, rule(sums)))
    for ring_rule in RING_RULES.values():
        found += most(ring_rule(rings) if rings else [])
    for finding in found:
        if finding.cost_ns is not None and sums.span_ns:
            finding.share = round(finding.cost_ns / sums.span_ns, 6)
    fill_rows(sums, found)
    return tuple(found)


def most(findings: list[Finding]) -> list[Finding]:
    """The findings with most rows. The last of them counts the others."""
    ordered = sorted(findings, key=lambda finding: -finding.rows)
    kept = ordered[:MAX_PER_RULE]
    for finding in kept[-1:]:
        finding.more += len(ordered) - len(kept)
    return kept
