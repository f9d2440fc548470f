"""Samples as ``perf.data``: the output of ``perf script`` and ``perf report``."""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import struct
import subprocess
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from build.kernelwriter import KernelSpool, Programs
from build.perfwriter import FIRST_ID, SpoolBuilder, frame
from build.tablemaker import write_trace
from hypothesis import given, settings
from hypothesis import strategies as st

from lo2io.errors import SpoolError, UsageError
from lo2io.exports.formats import export as export_as
from lo2io.exports.perf_data import export, records
from lo2io.native.records import member_at, pack
from lo2io.trace.reader import Trace, open_trace

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from lo2io.exports.target import ExportSummary

needs_perf = pytest.mark.skipif(shutil.which("perf") is None, reason="perf is not installed")
SDA = 8 << 20

HISTORY: Sequence[tuple[str, tuple[Any, ...], dict[str, Any]]] = [
    ("fork", (1000, 0, 100, 100, 1, 1), {}),
    ("comm", (1500, 0, 100, 100, b"dd"), {"is_exec": True}),
    ("enter", (2000, 0, 100, "openat"), {"dfd": 2**64 - 100, "filename": 0x7000, "flags": 0o100}),
    ("exit", (2600, 0, 100, "openat"), {"ret": 3}),
    ("fork", (2700, 0, 100, 101, 100, 100), {}),
    ("enter", (3000, 1, 101, "pwrite64"), {"fd": 3, "buf": 0x8000, "count": 4096, "pos": 8192}),
    ("block", (3100, 1, 101, "rq_issue"), {"dev": SDA, "sector": 16, "nr_sector": 8, "rwbs": b"WS"}),
    ("enter", (3200, 0, 100, "close"), {"fd": 3}),
    ("block", (3900, 0, 0, "rq_complete"), {"dev": SDA, "sector": 16, "nr_sector": 8, "rwbs": b"WS"}),
    ("exit", (4000, 1, 101, "pwrite64"), {"ret": 4096}),
    ("exit", (4100, 0, 100, "close"), {"ret": 0}),
    ("task_exit", (5000, 1, 100, 101), {}),
    ("enter", (6000, 1, 55, "close"), {"fd": 7}),
    ("exit", (6100, 1, 55, "close"), {"ret": -9}),
]
"""A process with a thread, its calls and a request; and another one, of which /proc had told."""


def write_spool(builder: SpoolBuilder) -> SpoolBuilder:
    """The spool of ``HISTORY``, as perf samples or as the records of programs."""
    builder.fact_task(500, 50, 55, comm=b"older")
    if isinstance(builder, KernelSpool):
        Programs(builder, iter([False] * 100), iter([(None, None)] * 100)).replay(HISTORY)
    else:
        for method, args, options in HISTORY:
            getattr(builder, method)(*args, **options)
    return builder


def readable(text: str) -> str:
    """A format that prints each number, and ``rwbs``, by its name; the handwritten ones print nothing of use."""
    fields = re.findall(r"field:([^;]*?)(\w+)(?:\[\d+\])?;\s*offset:(\d+);", text)
    shown = [(kind, name) for kind, name, offset in fields if int(offset) >= 8 and name != "__syscall_nr"]
    shown = [
        (kind, name) for kind, name in shown if "__data_loc" not in kind and ("char" not in kind or name == "rwbs")
    ]
    codes = " ".join(f"{name}=%s" if name == "rwbs" else f"{name}=%lx" for _, name in shown)
    values = "".join(f", REC->{name}" for _, name in shown)
    return text.partition("print fmt:")[0] + f'print fmt: "{codes}"{values}\n'


def exported(builder: SpoolBuilder, folder: Path) -> tuple[Path, ExportSummary]:
    """The file, and the summary of the export."""
    trace = write_trace(folder / "T", [])
    builder.write(formats=tuple(map(readable, builder.meta().formats)))
    return folder / "perf.data", export_as(trace, "perf-data", folder / "perf.data", lambda _: None)


def perf(*arguments: str | Path) -> str:
    """The output of perf, which must have no complaint."""
    done = subprocess.run(["perf", *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


FIELDS = "comm,pid,tid,cpu,time,event,trace"


@needs_perf
@pytest.mark.parametrize("kind", [SpoolBuilder, KernelSpool, partial(KernelSpool, sampled=("block",))])
def test_script(tmp_path: Path, golden: Callable[[str, str], None], kind: type[SpoolBuilder]) -> None:
    """Every sample with time, thread, process, CPU, event and fields; of calls recorded by programs the same."""
    file, summary = exported(write_spool(kind(tmp_path / "T" / "spool")), tmp_path)
    assert summary.rows == 10
    text = perf("script", "--ns", "-F", FIELDS, "-i", file)
    assert len(text.splitlines()) == 10
    golden("perf-data.txt", "".join(" ".join(line.split()) + "\n" for line in text.splitlines()))


@needs_perf
def test_tasks_and_losses(tmp_path: Path) -> None:
    """Births, names and exits have their times, and gaps their number of lost records."""
    builder = write_spool(SpoolBuilder(tmp_path / "T" / "spool")).lost(7000, 1, 42)
    file, _ = exported(builder, tmp_path)
    text = perf("script", "--show-task-events", "--show-lost-events", "--ns", "-F", "time", "-i", file)
    found = [line.split("PERF_RECORD_")[1] for line in text.splitlines() if "PERF_RECORD_" in line]
    assert found == [
        "COMM: older:50/55",
        "FORK(100:100):(1:1)",
        "COMM exec: dd:100/100",
        "FORK(100:101):(100:100)",
        "EXIT(100:101):(1:1)",
        "LOST lost 42",
    ]


@needs_perf
def test_report(tmp_path: Path) -> None:
    """Perf reports of each event who caused it, and of the file who recorded what."""
    file, _ = exported(write_spool(SpoolBuilder(tmp_path / "T" / "spool")), tmp_path)
    text = perf("report", "--stdio", "--sort", "comm", "-n", "-i", file)
    (part,) = (part for part in text.split("# Samples: ") if "of event 'syscalls:sys_enter_close'" in part)
    rows = sorted(line.split()[1:] for line in part.splitlines() if "%" in line and "Overhead" not in line)
    assert rows == [["1", "dd"], ["1", "older"]]
    header = perf("report", "--header-only", "-i", file)
    assert "# os release : " in header
    assert "# nrcpus online : 2" in header
    assert "# nrcpus avail : 2" in header
    assert "# time of first sample : 0.000002" in header
    assert "# time of last sample : 0.000006" in header


@needs_perf
def test_conversion_to_json(tmp_path: Path) -> None:
    """Perf makes JSON of it; without a section about the CPU, which a spool does not know, perf 6.1 crashes."""
    file, _ = exported(write_spool(SpoolBuilder(tmp_path / "T" / "spool")), tmp_path)
    perf("data", "convert", "--to-json", str(tmp_path / "json"), "-i", file)
    found = json.loads((tmp_path / "json").read_text())
    assert found["headers"]["cpuid"] == "unknown"
    assert [row["timestamp"] for row in found["samples"]][:3] == [2000, 2600, 3000]
    assert len(found["samples"]) == 10


@needs_perf
def test_long_recording_in_rounds(tmp_path: Path) -> None:
    """More samples than a round holds, of two CPUs in turn, come in order and complete."""
    builder = SpoolBuilder(tmp_path / "T" / "spool")
    for time in range(1000, 13_000):
        builder.enter(time, time % 2, 9, "close", fd=time)
    file, summary = exported(builder, tmp_path)
    assert summary.rows == 12_000 > export.ROUND_RECORDS
    lines = perf("script", "--ns", "-F", "time,trace", "-i", file).splitlines()
    assert [int(line.rpartition("=")[2], 16) for line in lines] == list(range(1000, 13_000))


@needs_perf
def test_what_was_cut_off_or_is_unknown(tmp_path: Path) -> None:
    """Half a record at the end is left out, and a sample of an unknown event is counted."""
    builder = write_spool(SpoolBuilder(tmp_path / "T" / "spool")).undecodable(8000, 0, 100)
    builder.truncate(1, 4)
    file, summary = exported(builder, tmp_path)
    assert summary.rows == 9
    assert summary.notes == ("left out: 1 samples of unknown events",)
    assert len(perf("script", "-i", file).splitlines()) == 9


def test_without_a_spool(tmp_path: Path) -> None:
    """The samples are gone: what to do is said, and nothing is left behind."""
    trace = write_trace(tmp_path / "T", [])
    with pytest.raises(UsageError, match="there is no") as caught:
        export_as(trace, "perf-data", tmp_path / "perf.data", lambda _: None)
    assert "--keep-spool" in caught.value.remedy
    assert not (tmp_path / "perf.data").exists()


def test_part_of_a_trace(tmp_path: Path) -> None:
    """Whether samples fit a filter is unknown: refused, not ignored."""
    trace = write_trace(tmp_path / "T", [])
    SpoolBuilder(tmp_path / "T" / "spool").write()
    chosen = Trace(trace.path, {**trace.metadata, "selection": {}})
    with pytest.raises(UsageError, match="cannot be chosen by a filter"):
        export_as(chosen, "perf-data", tmp_path / "perf.data", lambda _: None)


@pytest.mark.parametrize("kind", [SpoolBuilder, KernelSpool, partial(KernelSpool, sampled=("block",))])
def test_pieces_of_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: type[SpoolBuilder]) -> None:
    """However little of each file is read, or put in order, at a time: records come whole and in the same order."""
    monkeypatch.setattr(export, "ROUND_RECORDS", 1 << 30)  # rounds end with pieces
    contents = []
    for size, rows in ((1 << 20, 1 << 17), (100, 1 << 17), (1 << 20, 1), (1 << 20, 50)):
        monkeypatch.setattr(records, "BLOCK_BYTES", size)
        monkeypatch.setattr(records, "WINDOW_ROWS", rows)
        folder = tmp_path / f"{size}-{rows}"
        folder.mkdir()
        builder = write_spool(kind(folder / "T" / "spool")).lost(6500, 1, 42)
        for time in range(7000, 7100):
            builder.enter(time, time % 2, 9, "close", fd=time)
        contents.append(exported(builder, folder)[0].read_bytes())
    assert set(contents) == {contents[0]}


@needs_perf
def test_inversions_within_a_cpu(tmp_path: Path) -> None:
    """Samples that an interrupt put in before an older one come in the order of their times."""
    builder = SpoolBuilder(tmp_path / "T" / "spool")
    for time in (1000, 3000, 2000, 4000):
        builder.enter(time, 0, 9, "close", fd=time)
    file, _ = exported(builder, tmp_path)
    lines = perf("script", "--ns", "-F", "time,trace", "-i", file).splitlines()
    assert [int(line.rpartition("=")[2], 16) for line in lines] == [1000, 2000, 3000, 4000]


@needs_perf
def test_thread_that_no_kernel_has(tmp_path: Path) -> None:
    """A number beyond PID_MAX_LIMIT belongs to no process, and is shown."""
    builder = SpoolBuilder(tmp_path / "T" / "spool").enter(1000, 0, 2**30, "close", fd=1)
    builder.fork(2000, 0, 2**30, 2**30, 1, 1)
    file, _ = exported(builder, tmp_path)
    assert perf("script", "-F", "pid,tid", "-i", file).split() == [f"-1/{2**30}"]


@pytest.mark.parametrize(
    "damaged",
    [
        frame(7, b"\0" * 16),
        frame(9, b"\0" * 16),
        frame(9, struct.pack("<QIHHi", 1000, 0xFFF0, FIRST_ID, 0, 1) + bytes(0xFFE0 - 20)),
    ],
    ids=["a birth that is too short", "a sample that is too short", "a sample that has no room in perf's record"],
)
def test_damaged_spool(tmp_path: Path, damaged: bytes) -> None:
    """A record too short for its kind, or too long for perf, is an error of the spool's."""
    builder = SpoolBuilder(tmp_path / "T" / "spool").raw(0, damaged)
    with pytest.raises(SpoolError, match="read the records"):
        exported(builder, tmp_path)
    assert not (tmp_path / "perf.data").exists()


@settings(max_examples=25, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 2**20), st.integers(0, 255)), min_size=1, max_size=8), st.booleans())
def test_any_damage(
    tmp_path_factory: pytest.TempPathFactory, changes: list[tuple[int, int]], by_programs: bool
) -> None:
    """Whatever bytes of a spool were changed: there is an export, or an error of the spool's."""
    folder = tmp_path_factory.mktemp("damage")
    builder = write_spool((KernelSpool if by_programs else SpoolBuilder)(folder / "T" / "spool")).lost(6500, 1, 42)
    exported(builder, folder)
    for path in (folder / "T" / "spool").glob("cpu-*"):
        content = bytearray(path.read_bytes())
        for place, value in changes if content else ():
            content[place % len(content)] = value
        path.write_bytes(content)
    with contextlib.suppress(SpoolError):
        export_as(open_trace(folder / "T"), "perf-data", folder / "again", lambda _: None)


@needs_perf
def test_longer_records_of_throttling(tmp_path: Path) -> None:
    """Bytes that a kernel appends to them stay: perf would read a cut record wrong."""
    builder = SpoolBuilder(tmp_path / "T" / "spool")
    builder.raw(0, frame(5, struct.pack("<6Q", 900, 1, 1, *(7 << 32 | 5, 9), 900))).enter(1000, 0, 9, "close", fd=1)
    file, _ = exported(builder, tmp_path)
    assert perf("script", "--ns", "-F", "time,event", "-i", file).count("sys_enter_close") == 1
    assert struct.pack("<QQ", 7 << 32 | 5, 9) in file.read_bytes()


def test_time_beyond_all(tmp_path: Path) -> None:
    """A clock that a damaged sample sets to its last bit."""
    builder = SpoolBuilder(tmp_path / "T" / "spool").enter(2**63 + 5, 0, 9, "close", fd=1)
    assert exported(builder, tmp_path)[1].rows == 1


def test_call_that_is_too_short(tmp_path: Path) -> None:
    """A record of lo2io's programs that lacks its duration is an error of the spool's."""
    builder = KernelSpool(tmp_path / "T" / "spool").kernel(
        0, pack("call", 1000, 9, event=FIRST_ID)[: member_at("call", "result")]
    )
    with pytest.raises(SpoolError, match="too short"):
        exported(builder, tmp_path)


@needs_perf
def test_more_arguments_than_the_record_has(tmp_path: Path) -> None:
    """Nothing is read beyond the end of a record."""
    builder = KernelSpool(tmp_path / "T" / "spool")
    events = {"event": builder.ids["syscalls:sys_enter_close"], "exit_event": builder.ids["syscalls:sys_exit_close"]}
    builder.record("call", 1000, 0, 9, **events, nr_args=60_000, duration_ns=5, tail=(77).to_bytes(8, "little"))
    file, _ = exported(builder, tmp_path)
    assert [line.split()[-1] for line in perf("script", "-F", "trace", "-i", file).splitlines()] == ["fd=4d", "ret=0"]
