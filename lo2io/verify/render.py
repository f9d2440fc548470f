"""The verdict as text or as JSON."""

from __future__ import annotations

import json as json_module
from typing import TYPE_CHECKING

from lo2io.errors import TraceError
from lo2io.units import NS_PER_S
from lo2io.verify.rules import RULES, Finding, Severity, Verification

if TYPE_CHECKING:
    from lo2io.model import Completeness

_ORDER = {Severity.ERROR: 0, Severity.WARNING: 1, Severity.INFO: 2}


def exit_code(verification: Verification) -> int:
    """The command's exit code: 0, or :class:`TraceError`'s for a trace that breaks a rule of severity error."""
    return 0 if verification.ok else TraceError.exit_code


def render(
    verification: Verification,
    completeness: Completeness | None = None,
    reconciliation: str = "",
    shortfall: str = "",
    *,
    json: bool = False,
) -> str:
    """The verdict, and the recording's completeness if it is given. The text ends without a newline."""
    if json:
        document = verification.as_dict()
        document["completeness"] = None
        if completeness is not None:
            document["completeness"] = completeness.as_dict()
        document["reconciliation"] = reconciliation
        document["shortfall"] = shortfall
        return json_module.dumps(document, indent=2, ensure_ascii=False)
    lines = []
    ids = list(RULES)
    for rule in sorted(verification.broken, key=lambda r: (_ORDER[RULES[r].severity], ids.index(r))):
        lines += _rule(verification, rule)
    if lines:
        lines.append("")
    lines.append(_summary(verification))
    if verification.application:
        lines.append(_application(verification))
    if completeness is not None:
        said = f"; {reconciliation}" if reconciliation else ""
        lines.append(f"{_completeness(completeness, shortfall)}{said}")
    return "\n".join(lines)


def _rule(verification: Verification, rule: str) -> list[str]:
    number = verification.broken[rule]
    shown = [finding for finding in verification.findings if finding.rule == rule]
    lines = [f"{RULES[rule].severity}: {RULES[rule].sentence} [{rule}]"]
    lines += [f"  {_place(verification, finding)}{finding.text}" for finding in shown]
    if number > len(shown):
        lines.append(f"  … {number:,} in all")
    return lines


def _place(verification: Verification, finding: Finding) -> str:
    parts = []
    if finding.location is not None:
        name = verification.locations.get(finding.location)
        parts.append(f"location {finding.location}" + (f" {name!r}" if name else ""))
    if finding.event is not None:
        parts.append(f"event {finding.event}")
    if finding.time is not None:
        parts.append(_time(verification, finding.time))
    return f"{', '.join(parts)}: " if parts else ""


def _time(verification: Verification, ticks: int) -> str:
    if not verification.resolution or verification.start is None:
        return f"tick {ticks}"
    since = ticks - verification.start
    whole, rest = divmod(abs(since), verification.resolution)
    return f"{'-' if since < 0 else ''}{whole}.{rest * NS_PER_S // verification.resolution:09d} s"


def _summary(verification: Verification) -> str:
    counts = verification.counts
    broken = dict.fromkeys(Severity, 0)
    for rule in verification.broken:
        broken[RULES[rule].severity] += 1
    holds = "keeps every rule" if verification.ok else f"breaks {_number(broken[Severity.ERROR], 'rule')}"
    asides = [
        _number(broken[severity], word)
        for severity, word in ((Severity.WARNING, "warning"), (Severity.INFO, "note"))
        if broken[severity]
    ]
    kinds = ((counts.samples, "sample"), (counts.metrics, "metric"))
    samples = "".join(f"{_number(number, noun)}, " for number, noun in kinds if number)
    return (
        f"{verification.trace} {holds}{''.join(f', {aside}' for aside in asides)}: "
        f"{_number(counts.events, 'event')}, {samples}{_number(counts.operations, 'operation')} "
        f"({counts.in_flight:,} in flight), {_number(counts.handles, 'handle')}, "
        f"{_number(counts.locations, 'location')}, {_number(counts.markers, 'marker')}"
    )


def _application(verification: Verification) -> str:
    """What of a merged archive lo2io did not write."""
    broken = ", ".join(f"{rule} {count:,} times" for rule, count in verification.of_application.items())
    where = _number(verification.application_locations, "location")
    return (
        f"The application's own events lie on {where} of these, and break {f'rules: {broken}' if broken else 'no rule'}"
    )


def _number(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _completeness(found: Completeness, shortfall: str) -> str:
    verdict = "not proven complete"
    if shortfall:
        verdict = f"incomplete ({shortfall})"
    elif found.whole:
        verdict = f"proven complete for {found.whose}" if found.lost else "proven complete"
    elif found.lost:
        verdict = "incomplete"
    missing = f"{found.lost - found.vanished:,} lost" + (f", {found.vanished:,} vanished" if found.vanished else "")
    elsewhere = f" ({found.elsewhere:,} of them elsewhere on the machine)" if found.elsewhere else ""
    return (
        f"The recording is {verdict}: {_number(found.samples, 'sample')}, {missing}{elsewhere}, "
        f"{found.late:,} late, {found.orphan:,} orphan, {found.in_flight:,} in flight"
    )
