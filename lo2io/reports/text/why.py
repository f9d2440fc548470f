"""The chain of one call as text. In: a :class:`~lo2io.reports.why.chain.Chain`. Out: lines on a console."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lo2io.reports.text.lines import print_line, print_table
from lo2io.reports.words import count_of, printable, share_of, who
from lo2io.units import format_bytes, format_duration

if TYPE_CHECKING:
    from rich.console import Console

    from lo2io.reports.why.chain import Chain, Step, WrittenBack

_BAR: Final = 24
"""Cells of the small timeline."""
_BUSY, _IDLE, _MOMENT = "█", "·", "│"


def render_chain(chain: Chain, console: Console) -> None:
    """Print one call: what it was, where its time went, what happened meanwhile, and who else used the device."""
    print_line(console, _title(chain), "bold")
    place = f"{chain.kind} {chain.id} · {format_duration(chain.at_ns)} after the trace's start"
    thread = "" if chain.tid in {chain.pid, None} else f", thread {chain.tid}"
    print_line(console, f"by {who(chain.pid, chain.process)}{thread} · {place}")
    rows = [
        [
            share.what,
            format_duration(share.time_ns),
            share_of(share.time_ns / chain.duration_ns if chain.duration_ns else 0),
        ]
        for share in chain.shares
    ]
    print_table(console, ["Where its time went", "time", "share"], "lrr", rows)
    rows = [
        [format_duration(step.at_ns), _bar(step, chain.duration_ns), _lasted(step), printable(step.text)]
        for step in chain.steps
    ]
    print_table(console, ["What happened, at", "", "for", ""], "rlrl", rows)
    if chain.others:
        print_line(console, "\nMeanwhile at the same device", "bold")
        for each in chain.others:
            moved = f" of {format_bytes(each.bytes)} in all" if each.bytes else ""
            requests = count_of(each.requests, "request")
            print_line(console, f"{each.device}: {requests} to {each.operation}{moved}, by {printable(each.submitter)}")
    if chain.written_back:
        print_line(console, f"\n{_fate(chain.written_back)}")
    for sentence in chain.unknown:
        print_line(console, sentence, "yellow")


def _title(chain: Chain) -> str:
    size = "" if chain.bytes is None else f" of {format_bytes(chain.bytes)}"
    place = "" if chain.offset_bytes is None else f" at {chain.offset_bytes:,}"
    file = "" if chain.file is None else f" in {printable(chain.file)}"
    failed = "" if chain.error is None else f", failed with {chain.error}"
    return f"{chain.call}{size}{place}{file}: {format_duration(chain.duration_ns)}{failed}"


def _fate(told: WrittenBack) -> str:
    """What became of the call's pages, in a sentence."""
    if not told.requests:
        return f"Not written when the recording ended: {format_bytes(told.bytes_unwritten)} that the call made dirty."
    why = f" ({', '.join(told.reasons)})" if told.reasons else ""
    when = "" if told.until_ns is None else f", the last {format_duration(told.until_ns)} after its start"
    rest = f"; {format_bytes(told.bytes_unwritten)} not yet when the recording ended" if told.bytes_unwritten else ""
    written = f"{format_bytes(told.bytes)} by {count_of(told.requests, 'request')}"
    return f"Written to the disk for this call: {written}{why}{when}{rest}."


def _lasted(step: Step) -> str:
    return format_duration(step.duration_ns) if step.duration_ns else ""


def _bar(step: Step, whole_ns: int) -> str:
    """The step's place in the call, as a bar; a moment is a line."""
    if not whole_ns:
        return _IDLE * _BAR
    first = min(step.at_ns * _BAR // whole_ns, _BAR - 1)
    last = min((step.at_ns + step.duration_ns) * _BAR // whole_ns, _BAR - 1)
    mark = _BUSY if step.duration_ns else _MOMENT
    return _IDLE * first + mark * (last - first + 1) + _IDLE * (_BAR - 1 - last)
