"""Options of the commands that record: each is declared once, and reaches what records."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import pytest
from typer.testing import CliRunner

from lo2io import pipeline
from lo2io.capture.options import RecordOptions, RecordRequest
from lo2io.cli import record
from lo2io.cli.app import app

if TYPE_CHECKING:
    from pathlib import Path

OF_NO_REQUEST = {"all_cpus", "quiet", "as_json"}
"""The command itself follows them."""


def asked(monkeypatch: pytest.MonkeyPatch, *words: str) -> RecordRequest:
    """The request that a command line becomes."""
    requests: list[RecordRequest] = []

    def take(request: RecordRequest, *_: Any, **__: Any) -> pipeline.Recorded:
        requests.append(request)
        return pipeline.Recorded(7, None, None)  # type: ignore[arg-type]

    monkeypatch.setattr(pipeline, "record", take)
    assert CliRunner().invoke(app, list(words)).exit_code == 7
    return requests[0]


def test_each_field_of_a_request_is_an_option() -> None:
    """Each option is a field, too, with the same default; the commands differ in ``system`` alone."""
    fields = {field.name: field.default for field in dataclasses.fields(RecordRequest)}
    assert {option.name for option in record._OPTIONS} - OF_NO_REQUEST == set(fields) - {"system"}
    chosen = [option for option in record._OPTIONS if option.name in fields and option.default is not None]
    assert {option.name: option.default for option in chosen} == {
        name: default for name, default in fields.items() if isinstance(default, bool) and name != "system"
    }


@pytest.mark.parametrize(("words", "system"), [(("record", "--", "true"), False), (("system-wide", "-a"), True)])
def test_without_options_the_defaults_hold(
    monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], *, system: bool
) -> None:
    """Typer's value for an absent option changes nothing."""
    request = asked(monkeypatch, *words)
    assert request == RecordRequest(system=system, command=() if system else ("true",))


def test_every_option_arrives(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The options of both commands reach the recording, as parsed."""
    common = "-e block -e +openat --filter pid==1 --filter size>1 --user root --ring 8MiB --backend perf --names proc "
    common += "--opener native --block-records both --sched --sample 1/8 --force --keep-spool --no-convert"
    words = common.split()
    ours: dict[str, Any] = {
        "wanted": ("block", "+openat"),
        "expressions": ("pid==1", "size>1"),
        "user": "root",
        "ring_bytes": 8 << 20,
        "backend": "perf",
        "names": "proc",
        "opener": "native",
        "block_records": "both",
        "sched": True,
        "sample_rate": 8,
        "force": True,
        "keep_spool": True,
        "convert": False,
    }
    trace = tmp_path / "T"
    attach = asked(
        *(monkeypatch, "record", "-o", str(trace), "-p", "1", "-p", "2", "--duration", "2s", "--until-last"),
        *("--scope", "system", *words),
    )
    assert attach == RecordRequest(output=trace, pids=(1, 2), duration_s=2.0, until_last=True, scope="system", **ours)
    machine = asked(
        *(monkeypatch, "system-wide", "-o", str(trace), "--duration", "500ms", "--cpus", "0-1", "--cgroup", "/a"),
        *("--last", "60s", "--max-size", "2GiB", "--trigger", "latency > 1ms", *words, "--", "make", "-j4"),
    )
    assert machine == RecordRequest(
        system=True,
        output=trace,
        command=("make", "-j4"),
        duration_s=0.5,
        cpus="0-1",
        cgroup="/a",
        last_s=60.0,
        max_bytes=2 << 30,
        trigger="latency > 1ms",
        **ours,
    )
    options = RecordOptions.made_of(machine, spool=trace, events=("a:b",))
    for field in dataclasses.fields(RecordRequest):
        assert getattr(options, field.name) == getattr(machine, field.name)
