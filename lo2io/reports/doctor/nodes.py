"""The diagnoses of many nodes as one table: what all nodes share stands there once.

In: host → its diagnosis. Out: text or JSON.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Final

from lo2io.reports.doctor.report import FAIL, OK, WARN, Check

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lo2io.reports.doctor.report import Diagnosis

SCHEMA_VERSION: Final = 1
_NAMED: Final = 4
"""Most hosts that a row names."""
_ORDER: Final = (FAIL, WARN, OK)


def to_json(hosts: Mapping[str, Diagnosis]) -> str:
    """One object: ``schema``, ``version``, ``can_record`` (all can), and ``hosts``, with the checks of each."""
    found = {
        host: {"can_record": diagnosis.can_record, "checks": [asdict(check) for check in diagnosis.checks]}
        for host, diagnosis in hosts.items()
    }
    facts = {
        "schema": "lo2io-doctor-nodes",
        "version": SCHEMA_VERSION,
        "can_record": all(diagnosis.can_record for diagnosis in hosts.values()),
        "hosts": found,
    }
    return json.dumps(facts, indent=2, ensure_ascii=False)


def render(hosts: Mapping[str, Diagnosis]) -> str:
    """A row for each check and status, with its hosts. Failing checks come first."""
    rows = _rows(hosts)
    words = [_words(names, len(hosts)) for _, names in rows]
    width = max(len(check.name) for check, _ in rows)
    room = max(map(len, words))
    lines = []
    for (check, _), which in zip(rows, words, strict=True):
        lines.append(f"{check.status:4}  {check.name:{width}}  {which:{room}}  {check.found}".rstrip())
        if check.status != OK:
            indent = " " * (width + room + 10)
            lines += [f"{indent}{check.meaning}", *([f"{indent}→ {check.remedy}"] if check.remedy else [])]
    return "\n".join([*lines, "", _verdict(hosts)])


def _rows(hosts: Mapping[str, Diagnosis]) -> list[tuple[Check, list[str]]]:
    """A row for all checks with the same result, with their hosts. Hosts of an ok check may have found other things."""
    found: dict[tuple[str, ...], tuple[Check, list[str]]] = {}
    for host, diagnosis in hosts.items():
        for check in diagnosis.checks:
            same = () if check.status == OK else (check.meaning, check.remedy)
            found.setdefault((check.name, check.status, *same), (check, []))[1].append(host)
    return sorted(found.values(), key=lambda row: _ORDER.index(row[0].status))


def _words(names: Sequence[str], nr_hosts: int) -> str:
    if len(names) == nr_hosts:
        return f"all {nr_hosts}"
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return f"{', '.join(names[:_NAMED])}{more}"


def _verdict(hosts: Mapping[str, Diagnosis]) -> str:
    failing = [host for host, diagnosis in hosts.items() if not diagnosis.can_record]
    if failing:
        where = f"{len(failing)} of {len(hosts)} hosts: {_words(failing, -1)}"
        return f"lo2io record cannot work, for this user, on {where}"
    return f"lo2io record works on all {len(hosts)} hosts"
