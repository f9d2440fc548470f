"""Programs record only events whose fields lie where the programs write them."""

from __future__ import annotations

from dataclasses import replace

import pytest
from build.perfformats import ring_layouts, switch_layout
from lo2io.native._lib import ffi

from lo2io.bpf.samples import PLACES, plan_samples
from lo2io.catalog.catalog import load_catalog
from lo2io.kernel.tracefs import parse_format
from lo2io.model import EventFormat
from lo2io.model.events import Event

COMPLETE = "io_uring:io_uring_complete"
WORK = "io_uring:io_uring_task_work_run"
SWITCH = "sched:sched_switch"


def events(era: str = "6.18") -> dict[str, Event]:
    """The events of io_uring and the scheduler of a kernel."""
    found = {}
    for number, layout in enumerate((*ring_layouts(era), switch_layout()), 1):
        text = layout.text(number)
        found[layout.name] = Event(layout.name, number, text, parse_format(text))
    return found


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
        assert not tracepoints[name].interrupts


def test_what_may_happen_in_interrupts_stays_a_sample() -> None:
    """A program does not interrupt itself."""
    found = events()
    names = planned(found, **{WORK: "count > 0"})
    assert {COMPLETE, WORK, SWITCH} <= names
    assert "io_uring:io_uring_task_add" in found.keys() - names


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
