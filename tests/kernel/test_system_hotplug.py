"""A CPU that goes offline and comes back while the machine is recorded: nothing is lost of what ran on it."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from workloads.machine import (
    Work,
    Worker,
    complete,
    do_all,
    done_by,
    expected,
    finish,
    hear_notice,
    recording,
    workers,
)

from lo2io.kernel import sysfs

if TYPE_CHECKING:
    from collections.abc import Iterator

    from workloads.record import Recorded

pytestmark = pytest.mark.requires("root", "tracefs", "events")


@pytest.fixture
def switch() -> Iterator[Path]:
    """Of the last CPU; it is online again afterwards."""
    cpu = sysfs.read_online_cpus()[-1]
    found = Path(f"/sys/devices/system/cpu/cpu{cpu}/online")
    if cpu == 0 or not found.exists():
        pytest.skip("no CPU that can be switched off")
    try:
        found.write_text("1", encoding="ascii")
        yield found
    except PermissionError as error:
        pytest.skip(f"{found}: {error.strerror}")
    finally:
        with contextlib.suppress(OSError):
            found.write_text("1", encoding="ascii")


@pytest.mark.parametrize("opener", ["native", pytest.param("python-perf", marks=pytest.mark.requires("perf"))])
@pytest.mark.usefixtures("busy_cpus")
def test_a_cpu_goes_and_comes_back(tmp_path: Path, switch: Path, opener: str) -> None:
    """Calls before and after are all there, the counts prove it, and both changes are told."""
    cpu = int(switch.parent.name.removeprefix("cpu"))
    before = Work(tmp_path / "before", (100, 23), (50, 101), cpu=cpu)
    after = Work(tmp_path / "after", (100, 31), (50, 13), cpu=cpu)
    found: list[Worker] = []

    def attempt() -> Recorded:
        switch.write_text("1", encoding="ascii")
        options = ("-e", "syscalls", "--opener", opener)
        with workers(before) as first, recording(tmp_path / "T", *options) as process:
            do_all(first)
            switch.write_text("0", encoding="ascii")
            hear_notice(process, f"CPU {cpu} went offline")
            switch.write_text("1", encoding="ascii")
            hear_notice(process, f"CPU {cpu} came online: it is recorded from now on")
            with workers(after) as second:
                do_all(second)
                process.terminate()
                recorded = finish(process, tmp_path / "T")
                found[:] = [*first, *second]
        return recorded

    recorded = complete(attempt)
    assert [done_by(recorded, worker) for worker in found] == [expected(before), expected(after)]
    assert {row["cpu"] for row in recorded.calls("pwrite64") if row["path"] == str(after.file)} == {cpu}
    assert [event.cpu for event in recorded.trace.completeness.events].count(cpu) == len(
        {event.event for event in recorded.trace.completeness.events}
    )


def test_a_cpu_that_is_back_before_anybody_looked(tmp_path: Path, switch: Path) -> None:
    """Its events are dead even so, and replaced."""
    cpu = int(switch.parent.name.removeprefix("cpu"))
    with recording(tmp_path / "T", "-e", "syscalls") as process:
        switch.write_text("0", encoding="ascii")
        switch.write_text("1", encoding="ascii")
        hear_notice(process, f"CPU {cpu} came online: it is recorded from now on")
        with workers(Work(tmp_path / "a", (100, 31), cpu=cpu)) as (worker,):
            do_all([worker])
            process.terminate()
            recorded = finish(process, tmp_path / "T")
            assert done_by(recorded, worker) == expected(worker.work)
