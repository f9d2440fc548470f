"""The description of a flight recorder's window. In: two borders. Out: the description of the spool between them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from lo2io.capture.accounts import window_accounts
from lo2io.capture.flight.border import Reading, subtract
from lo2io.model import NO_MISSES, EventCounts, Misses

if TYPE_CHECKING:
    from collections.abc import Container, Mapping, Sequence

    from lo2io.capture.accounts import Readings
    from lo2io.capture.session import Stopped
    from lo2io.model import ClockSync, KernelStack, SpoolMeta, UserStack


@dataclass(frozen=True, slots=True)
class Border:
    """The place in all buffers where one segment ends and the next begins."""

    first_ns: int
    """Begin of the visit of the first buffer, on the spool's clock."""
    last_ns: int
    """End of the visit of the last buffer, on the spool's clock."""
    monotonic_ns: int
    """``first_ns`` on CLOCK_MONOTONIC; of the first border a little later, of the last one 0."""
    syncs: tuple[ClockSync, ...]
    counts: Mapping[str, Sequence[Reading]]
    """The counts of each event on each CPU. Empty: sampling had not begun."""
    accounts_before: Readings = ()
    """The kernel's accounts, read before ``first_ns``, for a window that ends here."""
    accounts_after: Readings = ()
    """The kernel's accounts, read after ``last_ns``, for a window that begins here."""
    misses_before: Misses = NO_MISSES
    """The numbers of missing records before ``first_ns``, for a window that begins here."""
    misses_after: Misses = NO_MISSES
    """Their numbers after ``last_ns``, for a window that ends here."""


def final_border(stopped: Stopped, accounts: Readings) -> Border:
    """The border at which the last window ends. Counts were read after sampling had ended.

    Args:
        stopped: The results of sampling.
        accounts: The kernel's accounts, read while samples were still taken.
    """
    counts = {
        each.name: [
            Reading(count, 0, lost)
            for count, lost in zip(each.counts, each.lost or (0,) * len(each.counts), strict=True)
        ]
        for each in stopped.counts
    }
    syncs, misses = stopped.syncs[-1:], stopped.misses
    return Border(stopped.stop_ns, stopped.stop_ns, 0, syncs, counts, accounts, misses_after=misses)


def describe_window(
    meta: SpoolMeta,
    names: tuple[str, ...],
    borders: tuple[Border, Border],
    *,
    own_pids: Sequence[int],
    without_lost: Container[str] = (),
    kernel_stacks: tuple[KernelStack, ...] = (),
    user_stacks: tuple[UserStack, ...] = (),
) -> SpoolMeta:
    """The description of a window.

    Args:
        meta: The description of the recording.
        names: Names of the window's segments, oldest first.
        borders: The borders at which the window begins and ends.
        own_pids: lo2io's own processes.
        without_lost: Events of which the kernel does not tell how many samples were lost.
        kernel_stacks: The stacks of the whole recording up to now.
        user_stacks: Likewise those of programs.
    """
    begin, end = borders
    is_whole = not begin.counts
    syncs = (*(begin.syncs or meta.syncs[:1]), *end.syncs)
    zeroes = (Reading(0),) * len(meta.cpus)
    misses = Misses(*(after - before for before, after in zip(begin.misses_before, end.misses_after, strict=True)))
    return replace(
        meta,
        complete=True,
        segments=names,
        start_ns=begin.last_ns,  # before this time, records of some buffers lie in the previous segment
        recording_start_ns=None if is_whole else meta.start_ns,
        stop_ns=end.last_ns,
        syncs=syncs,
        counts=tuple(
            _counts(name, begin.counts.get(name, zeroes), end.counts[name], has_lost=name not in without_lost)
            for name in meta.events
        ),
        **misses._asdict(),
        own_pids=tuple(own_pids),
        kernel_stacks=kernel_stacks,
        user_stacks=user_stacks,
        # The accounts of the whole recording include the command's.
        accounts=(meta.accounts if is_whole else ())
        or window_accounts(begin.accounts_after, end.accounts_before, syncs),
    )


def _counts(name: str, starts: Sequence[Reading], ends: Sequence[Reading], *, has_lost: bool) -> EventCounts:
    found = [subtract(end, start) for end, start in zip(ends, starts, strict=True)]
    slack = tuple(each.slack for each in found)
    return EventCounts(
        name,
        tuple(each.count for each in found),
        tuple(each.lost for each in found) if has_lost else None,
        slack if any(slack) else None,
    )
