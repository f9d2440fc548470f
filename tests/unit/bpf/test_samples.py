"""Programs record only events whose fields lie where the programs write them."""

from __future__ import annotations

import errno
from dataclasses import replace

import pytest
from build.perfformats import block_layouts, ring_layouts, switch_layout
from lo2io.native._lib import ffi

from lo2io.bpf.loader import block_errors
from lo2io.bpf.samples import PLACES, plan_samples
from lo2io.catalog.catalog import load_catalog
from lo2io.kernel.tracefs import parse_format
from lo2io.model import EventFormat
from lo2io.model.events import Event

COMPLETE = "io_uring:io_uring_complete"
WORK = "io_uring:io_uring_task_work_run"
SWITCH = "sched:sched_switch"
WAKE = "io_uring:io_uring_task_add"
WITHOUT_PROGRAM = "io_uring:io_uring_req_failed"
"""An event of the catalog."""
BLOCK_FILTERS = {"block:block_bio_queue": 'rwbs ~ "F*"'}


def events(era: str = "6.18") -> dict[str, Event]:
    """The events of io_uring and the scheduler of a kernel."""
    found = {}
    for number, layout in enumerate((*ring_layouts(era), switch_layout()), 1):
        text = layout.text(number)
        found[layout.name] = Event(layout.name, number, text, parse_format(text))
    return found


def block_events(era: str) -> list[Event]:
    """The events of the block layer of a kernel."""
    texts = [(layout.name, number, layout.text(number)) for number, layout in enumerate(block_layouts(era), 1)]
    return [Event(name, number, text, parse_format(text)) for name, number, text in texts]


def planned(found: dict[str, Event], **filters: str) -> set[str]:
    """The fields that programs write for these events."""
    return {sample.name for sample in plan_samples(list(found.values()), load_catalog(), filters)}


def test_every_program_has_its_place_and_fields() -> None:
    """Places are those of a 32-bit mask; each has a layout, and each is a tracepoint of the catalog."""
    tracepoints = {spec.event.partition(":")[2]: spec for spec in load_catalog().tracepoints}
    assert sorted(PLACES.values()) == list(range(len(PLACES)))
    assert len(PLACES) <= 32
    for name in PLACES:
        assert ffi.sizeof(f"lo2_fields_{name}") > 0
        assert name in tracepoints


def test_events_without_a_program_stay_samples() -> None:
    """Other events of the same subsystem are recorded by programs."""
    found = events()
    names = planned(found, **{WORK: "count > 0"})
    assert {COMPLETE, WORK, SWITCH} <= names
    assert WITHOUT_PROGRAM.partition(":")[2] not in PLACES
    assert WITHOUT_PROGRAM in found.keys() - names
    call = {"syscalls:sys_enter_read": replace(found[WORK], name="syscalls:sys_enter_read")}
    assert planned(call | found, **{WORK: "count > 0"}) == names


@pytest.mark.parametrize(("era", "at"), [("5.10", (24, 20)), ("6.18", (26, 20))])
def test_letters_lie_where_the_kernel_has_them(era: str, at: tuple[int, int]) -> None:
    """Older kernels have no priority before the letters. perf counts events of interrupts."""
    found = {sample.tracepoint: sample for sample in plan_samples(block_events(era), load_catalog(), BLOCK_FILTERS)}
    assert (found["block_rq_issue"].letters_at, found["block_bio_queue"].letters_at) == at
    assert {name for name, sample in found.items() if sample.counted} == {"block_rq_complete", "block_rq_requeue"}
    assert len(found) == len(block_events(era))


@pytest.mark.parametrize("era", ["6.1", "6.12", "6.18"])
def test_wakes_are_written_and_counted(era: str) -> None:
    """An interrupt may wake a request, alone of io_uring's events: perf counts these."""
    samples = plan_samples(list(events(era).values()), load_catalog(), {})
    assert {sample.name for sample in samples if sample.counted} == {WAKE}


def test_wakes_without_a_request_stay_samples() -> None:
    """Linux 5.10 does not tell which request it wakes."""
    assert WAKE in events("5.10").keys() - planned(events("5.10"))


def test_block_events_are_recorded_together() -> None:
    """A filter on one of them makes all of them perf samples, for letters of both kinds do not match."""
    filters = {**BLOCK_FILTERS, "block:block_rq_issue": "dev == 1"}
    assert not plan_samples(block_events("6.18"), load_catalog(), filters)
    assert SWITCH in planned({**events(), **{each.name: each for each in block_events("6.18")}}, **filters)


def test_errors_of_block_requests() -> None:
    """Linux 6.10 left out a status in the middle."""
    for release in ("6.9.3-amd64", "6.10.0"):
        errors = block_errors(release)
        assert (errors[0], errors[3], errors[10], errors[31]) == (0, errno.ENOSPC, errno.EIO, errno.EIO)
    assert block_errors("6.9")[17] == block_errors("6.18")[16] == errno.ENODEV


@pytest.mark.parametrize("text", ["", "count > 1"])
def test_a_filter_that_no_program_knows_leaves_samples(text: str) -> None:
    """A program applies the catalog's filter, and no other."""
    assert WORK not in planned(events(), **({WORK: text} if text else {}))
    assert COMPLETE not in planned(events(), **{COMPLETE: "res < 0"})


@pytest.mark.parametrize("change", ["moved", "resized", "gone"])
def test_other_fields_leave_samples(change: str) -> None:
    """A field that a kernel has elsewhere, in another size, or not at all."""
    found = events()
    layout = found[COMPLETE].layout
    fields = []
    for field in layout.fields:
        if field.name != "res":
            fields.append(field)
        elif change != "gone":
            fields.append(replace(field, offset=40) if change == "moved" else replace(field, size=8))
    found[COMPLETE] = replace(found[COMPLETE], layout=EventFormat(layout.name, layout.id, tuple(fields)))
    assert COMPLETE not in planned(found)


def test_older_kernels_have_some_of_them() -> None:
    """An event with other names stays a sample; nothing fails."""
    for era in ("6.1", "6.12"):
        assert planned(events(era)) <= set(events(era))
