"""Records that no kernel writes: the native engine counts or refuses them, and reads no memory beside them.

Run the tests on a library built with ``-fsanitize=address,undefined`` to see more than results.
"""

from __future__ import annotations

import os
import re
import struct
import subprocess
import sys
from pathlib import Path

import pytest
from build.kernelwriter import KernelSpool
from build.perfwriter import SAMPLE, SpoolBuilder, frame
from reference.compare import run_native

from lo2io.errors import SpoolError

SELECT = 1
HIGHEST = 2**63 - 1


@pytest.fixture(name="spool")
def one_cpu(tmp_path: Path) -> SpoolBuilder:
    """An empty spool of one CPU."""
    return SpoolBuilder(tmp_path / "spool", 1)


def moved(builder: SpoolBuilder, event: str, field: str, offset: int, size: int | None = None) -> Path:
    """The spool, written with a field of one event at another place."""
    meta = builder.meta()
    pattern = rf"(field:[^;]*\b{field}(?:\[\d+\])?;)\s*offset:\d+;\s*size:(\d+);"
    formats = list(meta.formats)
    place = meta.events.index(event)
    formats[place], found = re.subn(
        pattern, lambda m: f"{m[1]}\toffset:{offset};\tsize:{m[2] if size is None else size};", formats[place]
    )
    assert found == 1
    return builder.write(formats=tuple(formats))


def test_a_sample_of_a_header_and_a_time_is_counted(spool: SpoolBuilder) -> None:
    """The smallest record that can be framed ends before the place of the raw size."""
    spool.raw(0, frame(SAMPLE, struct.pack("<Q", 5)))
    assert run_native(spool.write())["totals"]["nr_undecoded"] == 1


def test_a_raw_size_beyond_the_record_is_counted(spool: SpoolBuilder) -> None:
    """Whatever size a sample claims, its record's end is its end."""
    spool.raw(0, frame(SAMPLE, struct.pack("<QIIQ", 5, 2**32 - 1, 700, 0)))
    assert run_native(spool.write())["totals"]["nr_undecoded"] == 1


@pytest.mark.parametrize("offset", [60_000, 65_528])
def test_fields_beyond_every_sample_make_it_undecoded(spool: SpoolBuilder, offset: int) -> None:
    """The end of a field at 65,536 does not wrap to zero."""
    spool.call(10, 0, 5, "read", 4, fd=3, count=4)
    tables = run_native(moved(spool, "syscalls:sys_exit_read", "ret", offset))
    assert tables["totals"]["nr_undecoded"] == 1
    assert [row["status"] for row in tables["operations"]] == [1]


def test_common_fields_beyond_every_sample_are_not_read(spool: SpoolBuilder) -> None:
    """The spool gives the place of an event's id, too: its last format does."""
    spool.call(10, 0, 5, "read", 4, fd=3, count=4)
    last = spool.meta().events[-1]
    assert run_native(moved(spool, last, "common_type", 60_000))["totals"]["nr_undecoded"] == 2


def test_a_field_longer_than_the_engine_can_hold_is_refused(spool: SpoolBuilder) -> None:
    """An error of the spool, not of arithmetic."""
    with pytest.raises(SpoolError, match="ret has 300 bytes"):
        run_native(moved(spool, "syscalls:sys_exit_read", "ret", 16, 300))


def test_descriptors_no_kernel_gives_take_no_memory(spool: SpoolBuilder) -> None:
    """Sightings of them are refused; what names them in calls has no handle."""
    spool.fact_task(5, 7, 7, flags=SELECT)
    for fd in (2**20, 2**31 - 1, -1):
        spool.fact_fd(6, 7, fd, b"/x")
    spool.call(10, 0, 7, "read", 4, fd=2**31 - 1, count=4).call(20, 0, 7, "openat", 2**31 - 1)
    tables = run_native(spool.write())
    assert tables["totals"]["nr_names_refused"] == 3
    assert tables["operations"][0]["handle"] is None


@pytest.mark.parametrize("tid", [4 << 20, 2**31 - 1, -1])
def test_threads_beyond_the_kernels_limit_are_passed_over(spool: SpoolBuilder, tid: int) -> None:
    """PID_MAX_LIMIT bounds the tables by tid."""
    unsigned = tid & 0xFFFFFFFF
    spool.call(10, 0, tid, "read", 4, fd=3, count=4).fork(20, 0, unsigned, unsigned, 1, 1)
    spool.task_exit(30, 0, unsigned, unsigned).comm(40, 0, unsigned, unsigned, b"x", is_exec=True)
    spool.fact_task(50, unsigned, unsigned, flags=SELECT).fact_fd(60, unsigned, 0, b"/x")
    tables = run_native(spool.write())
    assert not tables["operations"]
    assert not tables["tasks"]


def test_positions_and_times_at_the_end_of_their_range(spool: SpoolBuilder) -> None:
    """A position that cannot go on is unknown, not negative."""
    spool.fact_task(5, 7, 7, flags=SELECT).fact_fd(5, 7, 3, b"/x", position=HIGHEST)
    spool.call(9_000, 0, 7, "read", 4, fd=3, count=4).call(9_010, 0, 7, "read", 4, fd=3, count=4)
    spool.fact_fd(HIGHEST, 7, 4, b"/y", begin=2**63)
    spool.block(9_020, 0, 7, "rq_complete", dev=1, sector=1, nr_sector=1, rwbs=b"W", error=-(2**31))
    rows = run_native(spool.write())["operations"]
    assert [row["offset_bytes"] for row in rows] == [HIGHEST, None]


@pytest.mark.parametrize("cut", [8, 16, 40, 63])
def test_facts_cut_short_say_nothing(spool: SpoolBuilder, cut: int) -> None:
    """A fact whose frame is shorter than its layout, or whose path is longer than its frame."""
    spool.fact_fd(5, 7, 3, b"/a/path/of/some/length")
    whole = spool.facts.pop()
    short = struct.pack("<IHH", *struct.unpack_from("<IH", whole), len(whole) - cut) + whole[8 : len(whole) - cut]
    path = spool.fact_task(4, 7, 7, flags=SELECT).write()
    (path / "facts.ring").write_bytes(b"".join(spool.facts) + short)
    tables = run_native(path)
    assert tables["totals"]["nr_names_verified"] == 0


def test_descriptors_with_high_numbers_take_bounded_memory(tmp_path: Path) -> None:
    """Facts that claim the highest descriptor in many processes: names beyond the bound are refused, and counted."""
    before = resident_peak_bytes(tmp_path / "few", 1)
    assert resident_peak_bytes(tmp_path / "many", 60) - before < 400 << 20


@pytest.mark.parametrize("fd", [2**29, 2**31 - 1, 2**20 - 1, 2**32 - 1])
def test_a_corrupt_descriptor_among_records_of_programs_takes_bounded_memory(tmp_path: Path, fd: int) -> None:
    """In calls, in their results and in the programs' facts: the engine runs within 512 MiB more than it has."""
    spool = KernelSpool(tmp_path / "spool", 1).fact_task(5, 10, 10, flags=SELECT)
    spool.kernel_call(60_000, 0, 10, "read", 4, fd=fd, count=4).kernel_call(
        61_000, 0, 10, "dup2", fd, oldfd=3, newfd=fd
    )
    spool.kernel_call(62_000, 0, 10, "openat", fd, dfd=-100).kernel_call(63_000, 0, 10, "close", 0, fd=fd)
    path = spool.write()
    script = (
        "import resource, sys; from pathlib import Path; from reference.compare import run_native\n"
        "pages = int(Path('/proc/self/statm').read_text().split()[0])\n"
        "resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + (512 << 20),) * 2)\n"
        "print(len(run_native(Path(sys.argv[1]))['operations']))"
    )
    line = [sys.executable, "-c", script, str(path)]
    tests = Path(__file__).parents[3]
    assert int(subprocess.check_output(line, env={**os.environ, "PYTHONPATH": str(tests)})) == 4


def resident_peak_bytes(path: Path, processes: int) -> int:
    """The peak of a process of its own that reads such a spool."""
    builder = SpoolBuilder(path, 1)
    for pid in range(10, 10 + processes):
        builder.fact_task(1, pid, pid, flags=SELECT)
        builder.fact_fd(2, pid, (1 << 20) - 1, b"/high")
    builder.write()
    script = (
        "import resource, sys; from pathlib import Path; from reference.compare import run_native\n"
        "totals = run_native(Path(sys.argv[1]))['totals']\n"
        "assert totals['nr_names_verified'] + totals['nr_names_refused'] == int(sys.argv[2]), totals\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)"
    )
    tests = Path(__file__).parents[3]
    line = [sys.executable, "-c", script, str(path), str(processes)]
    return int(subprocess.check_output(line, env={**os.environ, "PYTHONPATH": str(tests)}))
