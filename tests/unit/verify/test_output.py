"""The output of ``lo2io verify``: text, JSON, exit code, completeness, and its documentation."""

from __future__ import annotations

import json
import re
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from build.otf2_builder import DISK, LENGTH, READ_FD, START, begin, complete, correct

from lo2io.errors import TraceError
from lo2io.model import Completeness, EventCompleteness, Totals, TraceEnd
from lo2io.trace import reader
from lo2io.trace.names import DIRECTORY, METADATA_FILE
from lo2io.verify import RULES, Severity, Verification, exit_code, read_completeness, render, verify
from lo2io.verify.completeness import PROPERTIES

DOCUMENTATION = Path(__file__).parents[3] / "docs" / "reference" / "verify.md"
PROVEN = Completeness(lost=0, vanished=0, late=1, orphan=2, in_flight=3, samples=1234567, proven=True)


@pytest.fixture
def broken(tmp_path: Path) -> Verification:
    """The verdict on a trace with an error, 21 times, a warning and a note."""
    trace = correct()
    trace.events[2] += [complete(START + LENGTH, DISK, 9)] * 21
    trace.events[1][1] = complete(START + 60, 1, 2, 513)
    del trace.definitions["Group", 0]
    return verify(trace.write(tmp_path / "T"))


def test_text_of_a_right_trace(tmp_path: Path) -> None:
    """One line, with the counts."""
    path = correct().write(tmp_path / "T")
    assert render(verify(path)) == (
        f"{path} keeps every rule: 23 events, 5 operations (0 in flight), 3 handles, 3 locations, 1 marker"
    )


def test_text_of_a_broken_trace(broken: Verification) -> None:
    """Errors first, each rule once, its first places, their number, and the verdict at the end."""
    lines = render(broken).splitlines()
    assert lines[0] == f"error: {RULES['operation.not-begun'].sentence} [operation.not-begun]"
    assert lines[1] == "  location 2 'vda', event 7, 0.001000000 s: Complete of id 9 on handle 2: no Begin"
    assert lines[20].startswith("  location 2 'vda', event 26, ")
    assert lines[21] == "  … 21 in all"
    assert lines[22].startswith("warning: ")
    assert "512 bytes asked for, 513 transferred" in lines[23]
    assert lines[24].startswith("info: ")
    assert lines[-1].startswith(f"{broken.trace} breaks 1 rule, 1 warning, 1 note: 44 events, ")


def test_times_before_the_start_and_without_a_clock(tmp_path: Path) -> None:
    """Seconds since the global offset, negative before it; ticks where the clock is not defined."""
    trace = correct()
    trace.events[0][0] = ("Enter", START - 5, 1)
    assert "-0.000000005 s: 5 ticks before" in render(verify(trace.write(tmp_path / "early")))
    trace.clock = None
    verdict = verify(trace.write(tmp_path / "timeless"))
    assert "clock.properties" in verdict.broken
    assert f"tick {START - 5}: " in render(verdict)


def test_json(broken: Verification) -> None:
    """The same as data: all that a script may need, with references as numbers."""
    document = json.loads(render(broken, PROVEN, json=True))
    assert document["ok"] is False
    assert document["broken"] == {"operation.not-begun": 21, "operation.bytes": 1, "region.group": 1}
    assert document["counts"]["events"] == 44
    assert document["clock"] == {"ticks_per_second": 1_000_000_000, "start": START, "length": LENGTH}
    finding = next(f for f in document["findings"] if f["rule"] == "operation.bytes")
    assert finding == {
        "rule": "operation.bytes",
        "severity": "warning",
        "location": 1,
        "location_name": "thread 11",
        "time": START + 60,
        "event": 1,
        "text": "handle 1, id 2: 512 bytes asked for, 513 transferred",
    }
    assert document["completeness"]["samples"] == PROVEN.samples
    assert json.loads(render(broken, json=True))["completeness"] is None


def test_exit_code(broken: Verification, tmp_path: Path) -> None:
    """5 for errors; warnings and notes alone are fine."""
    assert exit_code(broken) == 5
    trace = correct()
    trace.events[0][3:3] = [begin(START + 15, READ_FD, 9), complete(START + 16, READ_FD, 9, 513)]
    verdict = verify(trace.write(tmp_path / "warned"))
    assert set(verdict.broken) == {"operation.bytes"}
    assert exit_code(verdict) == 0


def test_requests_grow(tmp_path: Path) -> None:
    """A disk's request takes in others after its start: that is no finding. A file's operation does not."""
    trace = correct()
    trace.events[2][trace.events[2].index(complete(START + 330, DISK, 4))] = complete(START + 330, DISK, 4, 1024)
    assert not verify(trace.write(tmp_path / "merged")).broken


# ---- completeness ----


def _write_tables(trace: Path, completeness: Completeness) -> None:
    directory = trace / DIRECTORY
    directory.mkdir()
    rows = [{**asdict(event), "vanished": event.vanished} for event in completeness.events]
    schema = reader.arrow_schema("completeness", "perf")
    with pa.OSFile(str(directory / "completeness.arrow"), "wb") as sink, pa.ipc.new_file(sink, schema) as writer:
        writer.write_table(pa.Table.from_pylist(rows, schema))
    metadata = {
        "format": reader.FORMAT,
        "schema_version": reader.SCHEMA_VERSION,
        "completeness": {key: value for key, value in asdict(completeness).items() if key != "events"},
    }
    (directory / METADATA_FILE).write_text(json.dumps(metadata))


def test_completeness_from_the_tables(tmp_path: Path) -> None:
    """lo2io's own tables hold the proof, event by event."""
    path = correct().write(tmp_path / "T")
    event = EventCompleteness("syscalls:sys_enter_read", 1, 10, 0, 10)
    _write_tables(path, replace(PROVEN, events=(event,)))
    found = read_completeness(path)
    assert found == replace(PROVEN, events=(event,))
    assert found == read_completeness(path / "traces.otf2")


ELSEWHERE = replace(PROVEN, proven=False, recorded_whole=True, whose="your command", inferred_ends=1, unknown_ends=1)


@pytest.mark.parametrize("totals", [PROVEN, replace(PROVEN, proven=False), ELSEWHERE])
def test_completeness_from_trace_properties(totals: Completeness, maker: Any, write: Any, tmp_path: Path) -> None:
    """Without the tables, the trace itself has the totals."""
    write(maker.make(), end=TraceEnd(1_000_000, 2_000_000, totals, Totals()))
    assert read_completeness(tmp_path) == totals


def test_completeness_unknown(tmp_path: Path) -> None:
    """Another tool's trace has none; half a set of properties counts as none."""
    trace = correct()
    assert read_completeness(trace.write(tmp_path / "none")) is None
    trace.properties = {PROPERTIES["lost"]: "0", PROPERTIES["proven"]: "proven"}
    assert read_completeness(trace.write(tmp_path / "half")) is None


def test_damaged_tables(tmp_path: Path) -> None:
    """Tables that cannot be read are an error, not "unknown"."""
    path = correct().write(tmp_path / "T")
    _write_tables(path, PROVEN)
    (path / DIRECTORY / METADATA_FILE).write_text("{")
    with pytest.raises(TraceError):
        read_completeness(path)


@pytest.mark.parametrize(
    ("completeness", "said"),
    [
        (PROVEN, "is proven complete: 1,234,567 samples, 0 lost, 1 late, 2 orphan, 3 in flight"),
        (replace(PROVEN, proven=False), "is not proven complete: "),
        (replace(PROVEN, lost=7, vanished=3), "is incomplete: 1,234,567 samples, 4 lost, 3 vanished, 1 late"),
        (
            replace(ELSEWHERE, lost=7, vanished=7),
            "is proven complete for your command: 1,234,567 samples, 0 lost, 7 vanished (5 of them elsewhere on ",
        ),
    ],
)
def test_completeness_line(completeness: Completeness, said: str, tmp_path: Path) -> None:
    """The four counters are never merged."""
    text = render(verify(correct().write(tmp_path / "T")), completeness)
    assert f"The recording {said}" in text.splitlines()[-1]


# ---- documentation ----


def test_every_rule_is_documented() -> None:
    """The reference has a row for each rule, in order, with the very sentence."""
    rows = re.findall(r"^\| `([a-z.-]+)` \| (\w+) \| (.+) \|$", DOCUMENTATION.read_text(encoding="utf-8"), re.MULTILINE)
    assert rows == [(rule.id, str(rule.severity), rule.sentence) for rule in RULES.values()]


def test_rule_ids_and_sentences() -> None:
    """Ids are of a kind, sentences are sentences, severities are used."""
    for rule in RULES.values():
        assert re.fullmatch(r"[a-z]+\.[a-z-]+", rule.id)
        assert rule.sentence[0].isupper()
        assert rule.sentence.endswith((".", ")."))
    assert {rule.severity for rule in RULES.values()} == set(Severity)
