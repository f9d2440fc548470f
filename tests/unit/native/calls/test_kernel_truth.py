"""No call gets the name of a file that it has not met, nor an offset at which it was not, whatever happens."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from build.kernelwriter import KernelSpool, Programs
from build.perfwriter import DEFAULT_CALLS
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from reference.compare import run_native, run_reference
from reference.fact_histories import Witness, witnessed
from reference.truths import assert_true, written

if TYPE_CHECKING:
    from collections.abc import Iterator

SETTINGS = settings(
    max_examples=int(os.environ.get("LO2IO_EXAMPLES", "30")),
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
"""The same histories each time; LO2IO_EXAMPLES=500 looks for others."""


def samples_of(builder: KernelSpool, machine: Witness, *, facts: bool) -> Path:
    """Calls are samples; facts about a call come just before its exit."""
    told = iter(machine.told)
    for method, args, options in machine.history:
        if method == "exit":
            position, _ = next(told, (None, None))
            if facts:
                builder.kernel_value(*args[:3], position=position)
        if facts or method != "kernel_file":
            getattr(builder, method)(*args, **options)
    return written(builder)


def records_of(builder: KernelSpool, machine: Witness, leaves: list[bool]) -> Path:
    """Calls are records; facts about a call come just after its exit."""

    def forever() -> Iterator[bool]:
        yield from leaves
        while True:
            yield False

    programs = Programs(builder, forever(), iter([*machine.told, *[(None, None)] * len(machine.history)]))
    held: list[tuple[Any, ...]] = []
    for method, args, options in machine.history:
        inside = programs.slots.get(args[1]) if method == "kernel_file" else None
        if method == "kernel_file" and (options["of"] == 0 or _in_call(machine, args)):
            held.append((args, options))
            continue
        if inside is not None:
            programs.leave(args[1])
        programs.replay([(method, args, options)], whole=False)
        if method == "exit":
            for place, more in held:
                builder.kernel_file(*place, **more)
            held = []
    programs.end()
    return written(builder)


def _in_call(machine: Witness, args: tuple[Any, ...]) -> bool:
    """A fact at the time of an exit, not before a close."""
    return (args[2], args[0]) not in machine.truth


def check(machine: Witness, *, facts: bool, leaves: list[bool], offsets: bool = True, **options: Any) -> None:
    """With both engines and both back ends, the tables are true. Only perf leaves out calls of 32-bit programs."""
    options = {"start_ns": 100_500, **options}
    with tempfile.TemporaryDirectory() as folder:
        samples = samples_of(KernelSpool(Path(folder, "samples"), backend="perf", **options), machine, facts=facts)
        found = run_native(samples)
        without = {} if offsets else {"offset_bytes": None}
        assert_true(machine, found | {"operations": [row | without for row in found["operations"]]})
        expected = run_reference(samples)
        others = [found]
        if facts:
            told = run_native(records_of(KernelSpool(Path(folder, "records"), **options), machine, leaves))
            assert told["totals"].pop("nr_compat_programs") == 0
            told["totals"]["nr_compat_programs"] = expected["totals"]["nr_compat_programs"]
            others.append(told)
        for tables in others:
            for table, rows in expected.items():
                if table != "seen":
                    assert tables[table] == rows, table


BOOLS = st.lists(st.booleans(), max_size=80)


@pytest.mark.parametrize("facts", [True, False])
@SETTINGS
@given(machine=witnessed(), leaves=BOOLS)
def test_no_name_is_wrong(machine: Witness, leaves: list[bool], *, facts: bool) -> None:
    """With programs' facts about changes, and with looks into /proc alone."""
    check(machine, facts=facts, leaves=leaves)


@SETTINGS
@given(machine=witnessed(shares_silently=True), leaves=BOOLS)
def test_no_name_is_wrong_where_tables_are_shared_silently(machine: Witness, leaves: list[bool]) -> None:
    """Each fact tells which table it is about; until the first one, others move positions unseen."""
    check(machine, facts=True, leaves=leaves, offsets=False)


@SETTINGS
@given(machine=witnessed(every_fact=True, closes_are_seen=False), leaves=BOOLS)
def test_no_name_is_wrong_where_closes_are_not_recorded(machine: Witness, leaves: list[bool]) -> None:
    """Then each call has facts about its files."""
    check(machine, facts=True, leaves=leaves, calls=tuple(call for call in DEFAULT_CALLS if call != "close"))
