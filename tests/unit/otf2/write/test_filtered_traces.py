"""Filtered traces keep the rules of OTF2: handles whose open was left out are there from the beginning."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import otf2
import pytest
from build.perfwriter import SpoolBuilder, replay
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from reference.block_histories import block_histories
from reference.histories import History, call_histories

from lo2io.convert.convert import convert
from lo2io.errors import UsageError
from lo2io.trace.reader import open_trace
from lo2io.verify import Severity, verify

FILTERS = (
    "operation == read, write",
    "operation == close, flush",
    "operation == descriptor",
    "pid == 100",
    "pid != 100",
    "tid == 100 and kind == call",
    "kind == request and operation == write",
    "latency > 1ns",
    "size >= 4KiB",
    "path ~ '/**' and operation != open",
    "comm == nobody",
    "device == 8:0",
)


def built(directory: str, *histories: History, mode: str = "system") -> Path:
    """A spool of several histories at once."""
    builder = SpoolBuilder(Path(directory) / "spool", 2, mode=mode)
    replay(builder, sorted((item for history in histories for item in history), key=lambda item: item[1][0]))
    return builder.write()


def errors(trace: Path) -> list[str]:
    """The broken rules."""
    return [
        f"{finding.rule}: {finding.text}" for finding in verify(trace).findings if finding.severity is Severity.ERROR
    ]


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    call_histories(flags=1),
    block_histories(),
    st.sampled_from(FILTERS),
    st.sampled_from(["system", "process"]),
    st.sampled_from([None, "begin-end", "both"]),
)
def test_filtered_traces_keep_every_rule(
    calls: History, blocks: History, chosen: str, mode: str, block_records: str | None
) -> None:
    """Whatever is recorded, whatever of it is left out."""
    with tempfile.TemporaryDirectory() as directory:
        spool = built(directory, calls, blocks, mode=mode)
        trace = Path(directory) / "T"
        convert(spool, trace, filters=[chosen], block_records=block_records)
        assert errors(trace) == []
        with otf2.reader.open(str(trace / "traces.otf2")) as reader:
            assert sum(1 for _ in reader.events) == sum(
                place.number_of_events for place in reader.definitions.locations
            )


@pytest.fixture(name="spool")
def known_spool(tmp_path: Path) -> Path:
    """Two processes, a file each: open, 5 reads of growing size, a dup, a write, close. And 3 requests."""
    builder = SpoolBuilder(tmp_path / "spool", 1)
    builder.fact_task(1_000, 100, 100, comm=b"fio", cgroup=(0, b"/a/x")).fact_task(1_000, 200, 200, comm=b"cat")
    t = 10_000
    for tid in (100, 200):
        builder.call(t, 0, tid, "openat", 3, filename=0, flags=2)
        builder.fact_fd(t + 20_000, tid, 3, b"/data/%d" % tid, begin=t + 10_000)
        for n in range(5):
            builder.enter(t + 30_000 + 1000 * n, 0, tid, "pread64", fd=3, count=4096 * (n + 1), pos=0)
            builder.exit(t + 30_000 + 1100 * n + 100, 0, tid, "pread64", 4096)
        builder.call(t + 40_000, 0, tid, "dup", 4, fildes=3)
        builder.call(t + 41_000, 0, tid, "write", 10, fd=4, count=10)
        builder.call(t + 42_000, 0, tid, "close", 0, fd=3)
        t += 100_000
    for n in range(3):
        fields = {"dev": 7 << 20, "sector": 8 * n, "nr_sector": 8 * (n + 1), "rwbs": b"RS"}
        for event in ("rq_insert", "rq_issue", "rq_complete"):
            t += 1000 * (n + 1)
            builder.block(t, 0, 100, event, **fields)
    return builder.write()


@pytest.mark.parametrize(
    ("chosen", "calls", "requests", "handles"),
    [
        ("comm == fio", 9, 3, 2),
        ("pid == 200", 9, 0, 2),
        ("path == /data/100", 9, 0, 2),
        ("path ~ '/data/**' and operation == write", 2, 0, 2),
        ("operation == pread64", 10, 0, 2),
        ("operation == read", 10, 3, 2),
        ("size >= 12KiB", 6, 1, 2),
        ("size >= 12KiB and kind == call", 6, 0, 2),
        ("latency > 4us", 0, 1, 0),
        ("latency > 400ns and latency < 1us", 2, 0, 2),
        ("device == 7:0", 0, 3, 0),
        ("comm ~ '[cf]*' and tid != 100", 9, 0, 2),
        ("comm == nobody", 0, 0, 0),
    ],
)
def test_exact_counts(  # noqa: PLR0917 - a row of the table above
    spool: Path, tmp_path: Path, chosen: str, calls: int, requests: int, handles: int
) -> None:
    """Rows, properties, the words of the last line, and otf2-print: all say the same."""
    trace = tmp_path / "T"
    converted = convert(spool, trace, filters=[chosen])
    tables = open_trace(trace)
    rows = {name: table["rows"] for name, table in tables.metadata["tables"].items()}
    assert (rows["operations"], rows["requests"], rows["threads"]) == (calls, requests, 2)
    assert tables.metadata["filtered"] == {"calls": 18 - calls, "requests": 3 - requests, "ring_requests": 0}
    assert converted.filtered == f"filtered: {18 - calls} calls and {3 - requests} requests left out"
    assert tables.metadata["filter"]
    assert errors(trace) == []
    printed = subprocess.run(
        ["otf2-print", "-Werror", "-A", "--show-all", str(trace / "traces.otf2")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert not printed.stderr
    said = subprocess.run(
        ["otf2-print", "-I", str(trace / "traces.otf2")], capture_output=True, text=True, check=True
    ).stdout
    assert f"LO2IO::FILTERED_CALLS Property value {18 - calls} " in " ".join(said.split())
    with otf2.reader.open(str(trace / "traces.otf2")) as reader:
        found = [handle for handle in reader.definitions.io_handles if "/data/" in handle.name]
        assert len(found) == handles


def test_filters_join_with_what_was_recorded(spool: Path, tmp_path: Path) -> None:
    """The recording's filter stays in force, and the trace tells both."""
    trace = tmp_path / "T"
    meta = (spool / "spool.json").read_text()
    (spool / "spool.json").write_text(meta.replace('"filter": ""', '"filter": "operation == read"'))
    convert(spool, trace, filters=["pid == 100", "size > 4096"])
    tables = open_trace(trace)
    assert tables.metadata["filter"] == "operation == read and pid == 100 and size > 4KiB"
    assert tables.metadata["tables"]["operations"]["rows"] == 4


def test_what_the_kernel_left_out_counts_as_filtered(spool: Path, tmp_path: Path) -> None:
    """lo2io's programs apply a filter themselves, and only count the calls that do not pass."""
    meta = json.loads((spool / "spool.json").read_text())
    (spool / "spool.json").write_text(json.dumps(meta | {"nr_left_out": 7, "filter": "operation == read"}))
    converted = convert(spool, tmp_path / "T")
    left_out = open_trace(tmp_path / "T").metadata["filtered"]["calls"]
    assert left_out == 8 + 7
    assert converted.filtered.startswith("filtered: 15 calls ")


def test_a_cgroups_requests(spool: Path, tmp_path: Path) -> None:
    """A recording of a cgroup keeps all its calls, and the requests of its threads."""
    meta = (spool / "spool.json").read_text()
    for name, requests in (("/a", 3), ("/a/x/", 3), ("/b", 0), ("/", 3)):
        (spool / "spool.json").write_text(meta.replace('"cgroup": ""', f'"cgroup": "{name}"'))
        convert(spool, tmp_path / "T", force=True)
        rows = {key: table["rows"] for key, table in open_trace(tmp_path / "T").metadata["tables"].items()}
        assert (rows["operations"], rows["requests"]) == (18, requests)


def test_refused_before_anything_is_written(spool: Path, tmp_path: Path) -> None:
    """A malformed filter, and unknown devices."""
    for chosen in ("size >=", "device == lop0"):
        with pytest.raises(UsageError):
            convert(spool, tmp_path / "T", filters=[chosen])
    assert not (tmp_path / "T").exists()


@pytest.mark.parametrize(
    ("arguments", "chosen", "said"),
    [
        (["convert", "{spool}"], "size >= 64Ki", "size >= 64Ki\n          ^"),
        (["convert", "{spool}"], "comm == 'x", "end the value with '"),
        (["record"], "pid == 1 or pid == 2", "several values mean any of them"),
        (["record"], "device == no_such_disk", "no block device is called no_such_disk"),
        (["system-wide", "-a"], "operation == raed", "did you mean read"),
        (["system-wide", "-a"], "kind == call and operation == discard", "none of the chosen events can pass"),
    ],
)
def test_malformed_filters_on_the_command_line(
    spool: Path, tmp_path: Path, arguments: list[str], chosen: str, said: str
) -> None:
    """Exit code 2, the place and what may stand there; it needs no root, and nothing is left behind."""
    words = [word.format(spool=spool) for word in arguments]
    last = [] if words[0] == "convert" else ["--", "true"]
    start = [sys.executable, "-c", "from lo2io.cli.main import main; main()"]
    command = [*start, *words, "-o", str(tmp_path / "T"), "--filter", chosen, *last]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert said in done.stderr
    assert not done.stdout
    assert not (tmp_path / "T").exists()
