"""The proof of completeness, and its line."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from build.tablemaker import meta

from lo2io.convert.completeness import completeness
from lo2io.model import Absence, Completeness, EventCounts, SpoolMeta, Totals
from lo2io.model.notices import ended_early
from lo2io.model.trace import REQUEST_END
from lo2io.reports.summary.losses import (
    completeness_line,
    filtered_words,
    sampled_words,
    verdict,
)

ENTER, EXIT = "syscalls:sys_enter_read", "syscalls:sys_exit_read"


def spool(*counts: EventCounts, complete: bool = True) -> SpoolMeta:
    """Two events on two CPUs."""
    return meta(counts=counts, complete=complete)


def seen(*streams: list[int]) -> list[np.ndarray]:
    """Samples of (enter, exit), a list a CPU."""
    return [np.array(stream, np.uint64) for stream in streams]


WHOLE = spool(EventCounts(ENTER, (5, 6), (0, 0)), EventCounts(EXIT, (5, 6), (0, 0)))


def test_all_there_is_complete() -> None:
    """Every count is met: proven, nothing lost."""
    proof = completeness(WHOLE, seen([5, 5], [6, 6]), Totals(nr_samples=22))
    assert proof.proven
    assert (proof.lost, proof.vanished, proof.samples) == (0, 0, 22)
    assert [(e.event, e.cpu, e.count, e.samples) for e in proof.events] == [
        (ENTER, 0, 5, 5), (ENTER, 1, 6, 6), (EXIT, 0, 5, 5), (EXIT, 1, 6, 6),
    ]  # fmt: skip
    line = completeness_line(proof)
    assert line == "complete: 22 of 22 counted events captured · late 0 · orphan 0 · in flight 0"


def test_reported_loss_is_exact() -> None:
    """The kernel's losses explain the gap: proven to be incomplete, by event."""
    meta_lost = spool(EventCounts(ENTER, (1005, 6), (1000, 0)), EventCounts(EXIT, (5, 8), (0, 2)))
    proof = completeness(meta_lost, seen([5, 5], [6, 6]), Totals(nr_lost=1002))
    assert proof.proven
    assert (proof.lost, proof.vanished) == (1002, 0)
    assert completeness_line(proof).startswith(
        f"incomplete: 22 of 1,024 counted events captured, 1,002 lost: {ENTER} 1,000, {EXIT} 2 · late 0"
    )


def test_vanished_counts_as_lost() -> None:
    """Counted, not delivered, not reported: apart from what rings had no room for, and not proven."""
    proof = completeness(
        spool(EventCounts(ENTER, (9, 6), (1, 0)), EventCounts(EXIT, (5, 6), (0, 0))),
        seen([5, 5], [6, 6]),
        Totals(nr_lost=1),
    )
    assert not proof.proven
    assert (proof.lost, proof.vanished) == (4, 3)
    assert proof.events[0].vanished == 3
    assert f" captured, 1 lost: {ENTER} 1, 3 vanished: {ENTER} 3 ·" in completeness_line(proof)


def test_programs_that_the_kernel_did_not_run_leave_a_gap_nobody_can_name() -> None:
    """Missing runs are in no count: the counts agree, and nothing is proven."""
    proof = completeness(replace(WHOLE, missed_runs=2), seen([5, 5], [6, 6]), Totals())
    assert not proof.proven
    assert (proof.lost, proof.vanished) == (2, 2)
    assert completeness_line(proof).startswith("incomplete: 22 of 22 counted events captured, 2 vanished ·")


def test_one_cpu_does_not_make_up_for_another() -> None:
    """A surplus here and a gap there are two faults, not none."""
    proof = completeness(WHOLE, seen([6, 5], [5, 6]), Totals())
    assert not proof.proven
    assert proof.lost == 1
    assert f"captured, 1 vanished: {ENTER} 1, 1 more than counted" in completeness_line(proof)
    assert "1 more than counted" in completeness_line(proof)


SLACK = spool(EventCounts(ENTER, (5, 6), (2, 0), slack=(3, 0)), EventCounts(EXIT, (5, 6), (0, 0)))
"""Of the first event on the first CPU between 5 and 8 were counted, 2 of them lost."""


@pytest.mark.parametrize(("samples", "counted"), [(3, 22), (4, 23), (6, 25)])
def test_a_count_known_as_a_range_proves_what_agrees_with_it(samples: int, counted: int) -> None:
    """From the least count to the greatest: nothing vanished, nothing is too much."""
    proof = completeness(SLACK, seen([samples, 5], [6, 6]), Totals(nr_lost=2))
    assert proof.proven
    assert (proof.lost, proof.vanished) == (2, 0)
    event = proof.events[0]
    assert (event.count, event.slack, event.vanished, event.surplus) == (5, 3, 0, 0)
    assert completeness_line(proof).startswith(
        f"incomplete: {samples + 17} of {counted} counted events captured (counted to within 3), 2 lost: {ENTER} 2 ·"
    )


def test_a_range_proves_the_complete_too() -> None:
    """Nothing is lost, and the line shows that the count is not a single number."""
    proof = completeness(spool(EventCounts(ENTER, (0, 0), (0, 0), slack=(0, 1))), seen([0, 0], [1, 0]), Totals())
    assert not proof.proven  # the other event was not counted
    proof = completeness(
        spool(EventCounts(ENTER, (5, 6), (0, 0), slack=(0, 1)), EventCounts(EXIT, (5, 6), (0, 0))),
        seen([5, 5], [7, 6]),
        Totals(),
    )
    assert proof.proven
    assert completeness_line(proof).startswith("complete: 23 of 23 counted events captured (counted to within 1) ·")


@pytest.mark.parametrize(("samples", "vanished", "surplus"), [(2, 1, 0), (0, 3, 0), (7, 0, 1), (9, 0, 3)])
def test_beyond_its_range_a_count_speaks_against_the_samples(samples: int, vanished: int, surplus: int) -> None:
    """Fewer samples than the least count are missing, more than the greatest are too many."""
    proof = completeness(SLACK, seen([samples, 5], [6, 6]), Totals(nr_lost=2))
    assert not proof.proven
    assert (proof.lost, proof.vanished) == (2 + vanished, vanished)
    assert (proof.events[0].vanished, proof.events[0].surplus) == (vanished, surplus)
    line = completeness_line(proof)
    assert (f", {vanished} vanished: {ENTER} {vanished}" in line) == (vanished > 0)
    assert (f"{surplus} more than counted" in line) == (surplus > 0)


def test_kernels_that_tell_no_loss_by_event() -> None:
    """Before 6.0, the buffers' figures explain missing samples, as far as they go."""
    old = spool(EventCounts(ENTER, (15, 6), None), EventCounts(EXIT, (5, 6), None))
    proof = completeness(old, seen([5, 5], [6, 6]), Totals(nr_lost=8))
    assert (proof.lost, proof.vanished, proof.proven) == (10, 2, False)
    assert "captured, 8 lost, 2 vanished · late" in completeness_line(proof)


def test_lost_side_records_are_lost_too() -> None:
    """All samples are there, but the ring lost a fork: the choice of tasks is not proven."""
    proof = completeness(WHOLE, seen([5, 5], [6, 6]), Totals(nr_lost=2))
    assert (proof.lost, proof.proven) == (2, False)
    assert "2 lost: records of forks, exits, names, layers or files" in completeness_line(proof)


def test_lost_records_of_layers_are_lost_too() -> None:
    """No event counts them. The buffer tells each time that it had no room: rows of tables are missing."""
    proof = completeness(WHOLE, seen([5, 5], [6, 6]), Totals(nr_lost_records=1, nr_lost_rows=3))
    assert (proof.lost, proof.vanished, proof.proven, proof.whole) == (3, 0, True, False)
    assert completeness_line(proof).startswith("incomplete: 22 of 22 counted events captured, 3 lost: records of ")
    counted = spool(EventCounts(ENTER, (7, 6), (2, 0)), EventCounts(EXIT, (5, 6), (0, 0)))
    assert completeness(counted, seen([5, 5], [6, 6]), Totals(nr_lost_records=1, nr_lost=2)).lost == 2
    assert completeness(counted, seen([5, 5], [6, 6]), Totals(nr_lost_records=2, nr_lost=2, nr_lost_rows=4)).lost == 6


def test_lost_facts_count() -> None:
    """A name, a stretch of waiting or a request of libaio is missing then, although all events agree."""
    proof = completeness(replace(WHOLE, facts_lost=4), seen([5, 5], [6, 6]), Totals(nr_lost_rows=2))
    assert (proof.lost, proof.vanished, proof.proven, proof.whole) == (6, 0, True, False)
    lost = replace(spool(EventCounts(ENTER, (6, 6), (1, 0)), EventCounts(EXIT, (5, 6), (0, 0))), facts_lost=4)
    line = completeness_line(completeness(lost, seen([5, 5], [6, 6]), Totals(nr_lost=1)))
    assert f"captured, 1 lost: {ENTER} 1, 4 lost: records of forks, exits, names, layers or files · late" in line
    command = replace(WHOLE, mode="process", command=("true",), facts_lost=1)
    assert not completeness(command, seen([5, 5], [6, 6]), Totals()).recorded_whole


def test_the_commands_part_is_not_whole_without_records_of_layers() -> None:
    """A lost record does not tell whose it was."""
    command = replace(WHOLE, mode="process", command=("true",))
    assert completeness(command, seen([5, 5], [6, 6]), Totals()).recorded_whole
    assert not completeness(command, seen([5, 5], [6, 6]), Totals(nr_lost_rows=1)).recorded_whole


def test_a_recording_of_no_event_proves_nothing() -> None:
    """There is no count that could disagree."""
    empty = replace(WHOLE, events=(), counts=())
    assert not completeness(empty, [np.array([], np.uint64)] * 2, Totals()).whole


def test_programs_out_of_sight_are_missing_where_tasks_are_followed() -> None:
    """Their events ended with their exec: the counts agree, and nothing is proven. Events of CPUs go on."""
    proof = completeness(replace(WHOLE, scope="inherit"), seen([5, 5], [6, 6]), Totals(nr_gone_in_exec=2))
    assert (proof.proven, proof.lost, proof.unfollowed) == (False, 0, 2)
    assert completeness_line(proof).startswith(
        "incomplete: 22 of 22 counted events captured, out of sight since their exec: 2 ·"
    )
    assert completeness(WHOLE, seen([5, 5], [6, 6]), Totals(nr_gone_in_exec=2)).proven


def test_lost_records_of_tasks_are_lost_too() -> None:
    """The kernel counts them also if no later record of their buffer tells of the loss. Both tell of the same ones."""
    for told in (0, 2):
        proof = completeness(replace(WHOLE, tasks_lost=2), seen([5, 5], [6, 6]), Totals(nr_lost=told))
        assert (proof.lost, proof.proven) == (2, False)
        assert "2 lost: records of forks, exits, names, layers or files" in completeness_line(proof)


def test_calls_that_nobody_could_name_are_missing() -> None:
    """A program in the kernel saw them, and made no record: no count has them."""
    proof = completeness(replace(WHOLE, foreign_calls=4), seen([5, 5], [6, 6]), Totals())
    assert (proof.proven, proof.whole, proof.foreign) == (False, False, 4)
    assert "events captured, calls of x32 or 32-bit programs not recorded: 4 ·" in completeness_line(proof)


@pytest.mark.parametrize(
    ("times", "missing"),
    [
        ([(0, 5)], 0),
        ([(9, 11)], 1),
        ([(95, 99)], 1),
        ([(12, None), (50, None)], 1),
        ([(101, None)], 0),
        ([(100, 110)], 0),
    ],
)
def test_a_cpu_that_was_not_recorded_is_missing(times: list[tuple[int, int | None]], missing: int) -> None:
    """If that was in the time from 10 to 100 which the spool has. It counts once."""
    absences = tuple(Absence(1, begin, end) for begin, end in times)
    proof = completeness(replace(WHOLE, start_ns=10, stop_ns=100, absences=absences), seen([5, 5], [6, 6]), Totals())
    assert (proof.absent_cpus, proof.whole) == (missing, not missing)
    assert ("CPUs not recorded for a time: 1 ·" in completeness_line(proof)) == bool(missing)


def test_calls_of_32_bit_programs_are_missing() -> None:
    """Perf's tracepoints neither count nor deliver them: the counts agree, and nothing is proven."""
    proof = completeness(WHOLE, seen([5, 5], [6, 6]), Totals(nr_compat_programs=3))
    assert (proof.proven, proof.lost, proof.compat) == (False, 0, 3)
    assert "events captured, 32-bit programs without their calls: 3 ·" in completeness_line(proof)


def test_requests_that_no_record_tells_are_missing() -> None:
    """The io_submit has a row, and its request has none. Without programs in the kernel, no trace has such requests."""
    told = replace(WHOLE, kernel_facts=True)
    proof = completeness(told, seen([5, 5], [6, 6]), Totals(nr_untold_iocbs=3))
    assert (proof.proven, proof.whole, proof.lost, proof.untold_iocbs) == (False, False, 0, 3)
    assert "events captured, requests of libaio without a row: 3 ·" in completeness_line(proof)
    assert completeness(WHOLE, seen([5, 5], [6, 6]), Totals(nr_untold_iocbs=3)).whole
    command = replace(told, mode="process", command=("true",))
    assert not completeness(command, seen([5, 5], [6, 6]), Totals(nr_untold_iocbs=1)).recorded_whole


def test_a_recording_that_ended_itself_is_not_complete() -> None:
    """The counts agree up to its end, and what came afterwards is missing."""
    full = replace(WHOLE, notices=("another", ended_early("write x: no space left on device").text))
    proof = completeness(full, seen([5, 5], [6, 6]), Totals())
    assert (proof.proven, proof.whole, proof.lost, proof.ended_early) == (False, False, 0, True)
    assert completeness_line(proof).startswith(
        "incomplete: 22 of 22 counted events captured, the recording ended early · late"
    )
    command = replace(full, mode="process", command=("true",))
    assert not completeness(command, seen([5, 5], [6, 6]), Totals()).recorded_whole


def test_a_spool_that_was_cut_between_two_records_is_not_complete() -> None:
    """Facts may be missing, which no event counts."""
    proof = completeness(WHOLE, seen([5, 5], [6, 6]), Totals(), missing_bytes=4096)
    assert (proof.proven, proof.whole, proof.lost, proof.missing_bytes) == (False, False, 0, 4096)
    assert completeness_line(proof).startswith(
        "incomplete: 22 of 22 counted events captured, bytes missing from the spool: 4,096 · late"
    )


def test_no_counts_prove_nothing() -> None:
    """A recording that was cut off is never complete, whatever it has."""
    proof = completeness(spool(complete=False), seen([5, 5], [6, 6]), Totals(nr_lost=3))
    assert not proof.proven
    assert proof.events[0].count is None
    assert completeness_line(proof).startswith(
        "not proven: 22 events captured, at least 3 lost; the kernel's counts are not known"
    )
    assert completeness_line(Completeness(0, 0, 0, 0, 0, 0, False)).startswith("not proven: 0 events captured;")


@pytest.mark.parametrize("damage", [{"nr_undecoded": 1}, {"truncated_bytes": 8}])
def test_a_damaged_spool_is_not_complete(damage: dict[str, int]) -> None:
    """Counts may agree by chance; bytes nobody could read still speak against it."""
    proof = completeness(WHOLE, seen([5, 5], [6, 6]), replace(Totals(), **damage))
    assert not proof.proven
    assert completeness_line(proof).startswith("incomplete: 22 of 22 counted events captured, but the spool is damaged")


def test_the_kernels_accounts_close_the_line() -> None:
    """Their sentence follows the counters, if they have one."""
    proof = completeness(WHOLE, seen([5, 5], [6, 6]), Totals())
    line = completeness_line(proof, "captured 100 % of 7 block requests")
    assert line.endswith(" · in flight 0 · captured 100 % of 7 block requests")
    assert completeness_line(proof).endswith(" · in flight 0")


def test_the_other_counters_are_sums() -> None:
    """Calls and requests together, each of the four words once."""
    totals = Totals(
        nr_late=1234, nr_orphan_exits=2, nr_orphan_completions=3, nr_in_flight_calls=4, nr_in_flight_requests=5
    )
    proof = completeness(WHOLE, seen([5, 5], [6, 6]), totals)
    assert completeness_line(proof).endswith("· late 1,234 · orphan 5 · in flight 9")


def test_an_empty_recording_is_complete() -> None:
    """Nothing happened, which is proven."""
    proof = completeness(
        spool(EventCounts(ENTER, (0, 0), (0, 0)), EventCounts(EXIT, (0, 0), (0, 0))), seen([0, 0], [0, 0]), Totals()
    )
    assert completeness_line(proof).startswith("complete: 0 of 0 counted events captured")


def test_requests_of_rings_count_as_others_do() -> None:
    """An end without a beginning is an orphan, a beginning without an end in flight; all kinds add up."""
    totals = Totals(
        nr_orphan_exits=1,
        nr_orphan_completions=10,
        nr_orphan_cqes=100,
        nr_in_flight_calls=2,
        nr_in_flight_requests=20,
        nr_in_flight_ring_requests=200,
    )
    proof = completeness(WHOLE, seen([5, 5], [6, 6]), totals)
    assert proof.proven
    assert (proof.orphan, proof.in_flight) == (111, 222)


def test_a_sample_is_said_at_the_end_of_the_line() -> None:
    """With the rate and the number of requests; nothing for a trace of all requests."""
    proof = completeness(WHOLE, seen([5, 5], [6, 6]), Totals())
    line = completeness_line(proof, "", "", sampled_words(100, 12_345))
    assert line.endswith("in flight 0 · sampled: 1 in 100 of 12,345 requests of rings written")
    assert completeness_line(proof, "", "", sampled_words(1, 12_345)).endswith("in flight 0")


def test_what_a_filter_left_out_is_told_by_kind() -> None:
    """Requests of rings only where there were any; without a filter there is nothing to say."""
    assert filtered_words("pid == 1", 3, 0) == "filtered: 3 calls and 0 requests left out"
    assert filtered_words("pid == 1", 3, 2, 1) == "filtered: 3 calls, 2 requests and 1 of rings left out"
    assert filtered_words("", 0, 0, 0) == ""


def with_ends(ends: int, *, lost: int = 0, exits: int = 5, **changes: object) -> SpoolMeta:
    """A spool with five entries, so many exits, and so many ends of block requests, all on one CPU."""
    counted = ((ENTER, 5, 0), (EXIT, exits, 0), (REQUEST_END, ends, lost))
    counts = tuple(EventCounts(name, (number,), (gone,)) for name, number, gone in counted)
    names = tuple(name for name, _, _ in counted)
    return replace(meta(counts=counts, **changes), events=names, formats=("",) * 3, cpus=meta().cpus[:1])


ENDS_MISSING = seen([5, 5, 7])


def test_missing_ends_of_requests_are_other_processes_where_all_calls_are_whole() -> None:
    """The recorded processes' requests have all been seen to end, so whatever ends are missing are not theirs."""
    proof = completeness(with_ends(10), ENDS_MISSING, Totals())
    assert (proof.proven, proof.whole, proof.lost, proof.vanished, proof.elsewhere) == (False, True, 3, 3, 3)
    assert verdict(proof) == "complete"
    assert completeness_line(proof).startswith(
        f"your command: complete; elsewhere on the machine: 3 of 20 counted events vanished, all {REQUEST_END} ·"
    )
    attached = completeness(with_ends(10, command=()), ENDS_MISSING, Totals())
    assert completeness_line(attached).startswith("the recorded processes: complete; elsewhere on the machine: 3 of 20")


def test_ends_that_a_full_ring_lost_are_told_apart_the_same_way() -> None:
    """The kernel reports two as lost; one more vanished."""
    proof = completeness(with_ends(10, lost=2), ENDS_MISSING, Totals(nr_lost=2))
    assert (proof.whole, proof.vanished, proof.elsewhere) == (True, 1, 3)
    assert "elsewhere on the machine: 3 of 20 counted events missing, all" in completeness_line(proof)


@pytest.mark.parametrize(("unseen", "elsewhere"), [(1, 2), (3, 0), (5, 0)])
def test_the_commands_own_requests_without_an_end_are_told(unseen: int, elsewhere: int) -> None:
    """Missing ends may be theirs, so only the rest is elsewhere; the calls are whole all the same."""
    proof = completeness(with_ends(10), ENDS_MISSING, Totals(nr_inferred_ends=1, nr_unknown_ends=unseen - 1))
    line = completeness_line(proof)
    assert (proof.whole, proof.elsewhere) == (True, elsewhere)
    assert line.startswith(f"your command: complete but for the ends of {unseen:,} block request")
    assert ("elsewhere on the machine" in line) == (elsewhere > 0)
    assert f" · in flight 0 · ends inferred 1, unknown {unseen - 1}" in line


@pytest.mark.parametrize(
    ("spool_meta", "totals"),
    [
        (with_ends(10, mode="system"), Totals()),
        (with_ends(10, exits=6), Totals()),
        (with_ends(10, exits=4), Totals()),
        (with_ends(10, missed_runs=1), Totals()),
        (with_ends(10, complete=False), Totals()),
        (with_ends(10), Totals(nr_lost=1)),
        (with_ends(10), Totals(nr_undecoded=1)),
        (with_ends(10), Totals(truncated_bytes=1)),
    ],
)
def test_nothing_is_called_complete_that_is_not_proven(spool_meta: SpoolMeta, totals: Totals) -> None:
    """The whole machine; an exit too few or too many; a program that did not run; no counts; a lost fork; damage."""
    proof = completeness(spool_meta, ENDS_MISSING, totals)
    assert not proof.whole
    assert proof.elsewhere == 0
    assert verdict(proof) in {"incomplete", "not proven"}
    assert " complete" not in completeness_line(proof)


SHORTFALL = "captured only 0 % of 10.0 MiB that your command wrote; the cause is not known"


def test_a_shortfall_comes_first_and_nothing_is_complete_then() -> None:
    """All counted events may be there: uncounted ones are missing."""
    whole = completeness(WHOLE, seen([5, 5], [6, 6]), Totals())
    line = completeness_line(whole, shortfall=SHORTFALL)
    assert line.startswith(f"incomplete: {SHORTFALL} · 22 of 22 counted events captured · late 0")
    assert verdict(whole, SHORTFALL) == "short"
    elsewhere = completeness_line(completeness(with_ends(10), ENDS_MISSING, Totals()), shortfall=SHORTFALL)
    assert elsewhere.startswith(f"incomplete: {SHORTFALL} · 17 of 20 counted events captured, 3 vanished:")
    unknown = completeness_line(
        completeness(spool(complete=False), seen([5, 5], [6, 6]), Totals()), shortfall=SHORTFALL
    )
    assert unknown.startswith(f"{SHORTFALL} · not proven: 22 events captured")
    assert not any(" complete" in text for text in (line, elsewhere, unknown))
