"""Texts about an archive without lo2io's tables: the tool that wrote it, and the facts that are not known."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lo2io.units import format_bytes

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


def describe(subject: Mapping[str, Any], paradigms: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The value of the metadata's key ``foreign``, with keys of :class:`lo2io.reports.summary.summary.Foreign`.

    Args:
        subject: Facts about the archive.
        paradigms: Sums of calls by I/O paradigm.
    """
    return {
        **{key: subject[key] for key in ("tool", "own", "trace", "anchor", "events", "calls")},
        "title": _title(subject),
        "paradigms": list(paradigms),
        "twice": _twice(paradigms),
        "unknown": _unknown(subject),
        "completeness_line": _completeness(subject),
        "nothing": _nothing(subject),
    }


def _title(subject: Mapping[str, Any]) -> str:
    tool = subject["tool"] or "a tool that does not say its name"
    if subject["own"]:
        return f"an archive of {tool} without its tables (lo2io/): only what OTF2 carries"
    return f"a trace of another tool: {tool}"


def _twice(paradigms: Sequence[Mapping[str, Any]]) -> str:
    """A sentence about calls that all totals count twice; empty: there are none."""
    calls, read, written = (sum(row[f"nested_{name}"] for row in paradigms) for name in _COUNTED)
    if not calls:
        return ""
    return (
        f"{calls:,} of the calls ({format_bytes(read)} read, {format_bytes(written)} written) were made by other calls "
        "of the trace, such as read by fread: all sums have both"
    )


_COUNTED = ("calls", "bytes_read", "bytes_written")


def _unknown(subject: Mapping[str, Any]) -> list[str]:
    """The facts that the trace does not tell, and the parts that are not read, one text each."""
    told = subject["told"]
    sentences = [
        "" if subject["own"] else "what its tool did not record: it is not known to be complete",
        "" if "errno" in told else "errors: no call is known to have failed, or to have succeeded",
        "" if "Offset" in told else "offsets, but where seeks tell them",
        "" if subject["pids"] else "numbers of processes and threads",
        _of_disks(subject),
        "on which CPU",
        f"{subject['samples']:,} samples are not read" if subject["samples"] else "",
        f"{subject['cancelled']:,} operations were cancelled, and count as ended" if subject["cancelled"] else "",
    ]
    return [sentence for sentence in sentences if sentence]


def _of_disks(subject: Mapping[str, Any]) -> str:
    if not subject["requests"]:
        return "requests of disks: time is not told apart by device"
    return "" if "ThreadId" in subject["told"] else "who sent requests to disks: time is not told apart by device"


def _completeness(subject: Mapping[str, Any]) -> str:
    if subject["own"]:
        verdict = f"when it was written: {subject['completeness'] or 'nothing said'}, {subject['lost'] or 0} lost"
    else:
        verdict = "not proven: another tool's trace does not say what is missing"
    missing = f"{subject['missing_events']:,} fewer than its definitions count" if subject["missing_events"] else ""
    parts = [
        verdict,
        f"{subject['events']:,} events read" + (f", {missing}" if missing else ""),
        f"orphan {subject['orphans']:,}",
        f"in flight {subject['in_flight']:,}",
    ]
    return " · ".join(parts)


def _nothing(subject: Mapping[str, Any]) -> str:
    """The reason why the report is empty; an empty text if it is not."""
    if subject["calls"] or subject["requests"] or subject["ring_requests"]:
        return ""
    if not subject["events"]:
        return "the trace has no events"
    return f"none of the trace's {subject['events']:,} events is about I/O"
