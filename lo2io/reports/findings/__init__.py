"""Findings in a trace: known ways to get little out of storage, each with its evidence.

In: :class:`~lo2io.reports.summary.sums.TraceSums`, and the numbers of rings. Out: findings and, on request, the first
rows of the tables behind each. A rule is a function; its thresholds are constants beside it.
docs/reference/findings.md lists all rules.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from lo2io.reports.findings.calls import CALL_RULES, process_names
from lo2io.reports.findings.devices import DEVICE_RULES
from lo2io.reports.findings.evidence import fill_rows, standing
from lo2io.reports.findings.files import FILE_RULES
from lo2io.reports.findings.finding import MAX_PER_RULE
from lo2io.reports.findings.layers import LAYER_RULES
from lo2io.reports.findings.requests import REQUEST_RULES
from lo2io.reports.findings.rings import RING_RULES

if TYPE_CHECKING:
    from lo2io.reports.findings.finding import Finding
    from lo2io.reports.rings.summary import RingsSummary
    from lo2io.reports.summary.sums import TraceSums

RULES: Final = {**FILE_RULES, **CALL_RULES, **DEVICE_RULES, **LAYER_RULES, **REQUEST_RULES, **RING_RULES}
"""The rules by name. Each rule takes the sums; a rule of rings takes the numbers of rings."""
PRECISE: Final = {
    "sync-bound": (("sync-per-write", False),),
    "metadata-storm": (("missing-files", True),),
    "one-at-a-time": (("random-reads-of-whole-file", True), ("faults-one-by-one", True)),
}
"""Rule → rules that say more precisely what is wrong, each with True if both are about the same subject."""
MOSTLY: Final = 0.9
"""Least part of the time that the more precise finding explains."""


def find(sums: TraceSums, rings: RingsSummary | None) -> tuple[Finding, ...]:
    """Apply every rule, and look up the first rows behind each finding. The finding that cost most time comes first.

    Raises:
        TraceError: A table is missing or damaged.
    """
    found: list[Finding] = []
    for rules in (FILE_RULES, CALL_RULES, DEVICE_RULES, LAYER_RULES, REQUEST_RULES):
        for rule in rules.values():
            found += most(standing(sums, rule(sums)))
    for ring_rule in RING_RULES.values():
        found += most(ring_rule(rings) if rings else [])
    _name_processes(sums, found)
    found = each_once(found)
    found.sort(key=lambda finding: -(finding.cost_ns or 0))
    for finding in found:
        if finding.cost_ns is not None and sums.span_ns:
            finding.share = round(finding.cost_ns / sums.span_ns, 6)
    fill_rows(sums, found)
    return tuple(found)


def each_once(findings: list[Finding]) -> list[Finding]:
    """Leave out a finding if another one is about the same calls and says more precisely what is wrong."""
    costs: Counter[tuple[str, str | None]] = Counter()
    for finding in findings:
        for subject in (finding.subject, None):
            costs[finding.rule, subject] += finding.cost_ns or 0
    kept = []
    for finding in findings:
        subjects = [(rule, finding.subject if same else None) for rule, same in PRECISE.get(finding.rule, ())]
        if all(costs[rule, subject] < MOSTLY * costs[finding.rule, subject] for rule, subject in subjects):
            kept.append(finding)
    return kept


def most(findings: list[Finding]) -> list[Finding]:
    """The findings with most rows. The last of them counts the others."""
    ordered = sorted(findings, key=lambda finding: -finding.rows)
    kept = ordered[:MAX_PER_RULE]
    for finding in kept[-1:]:
        finding.more += len(ordered) - len(kept)
    return kept


def _name_processes(sums: TraceSums, findings: list[Finding]) -> None:
    """Add the subjects of findings about processes: only of listed ones, and all at once."""
    of_processes = [finding for finding in findings if finding.process >= 0]
    names = process_names(sums, {finding.process for finding in of_processes})
    for finding in of_processes:
        finding.subject = names[finding.process]
