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
from lo2io.cli.declared import read_plain

if TYPE_CHECKING:
    from pathlib import Path

    from lo2io.cli.declared import Declared

OF_NO_REQUEST = {"all_cpus", "quiet", "as_json"}
"""The command itself follows them."""


def asked(monkeypatch: pytest.MonkeyPatch, *words: str) -> RecordRequest:
    """The request that a command line becomes, with Typer and without."""
    requests: list[RecordRequest] = []

    def take(request: RecordRequest, *_: Any, **__: Any) -> pipeline.Recorded:
        requests.append(request)
        return pipeline.Recorded(7, None, None)  # type: ignore[arg-type]

    monkeypatch.setattr(pipeline, "record", take)
    assert CliRunner().invoke(app, list(words)).exit_code == 7
    given = read_plain(words[1:], options(words[0]))
    assert given is not None
    assert record.run(words[0], given) == 7
    assert requests[0] == requests[1]
    return requests[0]


def options(command: str) -> dict[str, Declared]:
    """The declared options of a command."""
    return {option.name: option.declared for option in record.options_of(command)}


def test_each_field_of_a_request_is_an_option() -> None:
    """Each option is a field, too, with the same default; the commands differ in ``system`` alone."""
    fields = {field.name: field.default for field in dataclasses.fields(RecordRequest)}
    assert {option.name for option in record.OPTIONS} - OF_NO_REQUEST == set(fields) - {"system"}
    chosen = [option for option in record.OPTIONS if option.name in fields and option.default is not None]
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


@pytest.mark.parametrize(
    "words",
    [
        ("-h",),
        ("--help", "--", "true"),
        ("--nothing", "--", "true"),
        ("-o",),
        ("-qo", "T", "true"),
        ("-oT", "true"),
        ("-o=T", "true"),
        ("--quiet=1", "true"),
        ("--backend", "none", "true"),
        ("-p", "one"),
        ("--forc", "true"),
    ],
)
def test_other_command_lines_are_left_to_typer(words: tuple[str, ...]) -> None:
    """Help, errors and every short form that is not written in full."""
    assert read_plain(words, options("record")) is None


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("true --quiet", {"command": ["true", "--quiet"]}),
        ("-- -q -- x", {"command": ["-q", "--", "x"]}),
        ("-q -", {"quiet": True, "command": ["-"]}),
        (
            "--no-convert -e -openat --events=+a=b -- make",
            {"convert": False, "wanted": ["-openat", "+a=b"], "command": ["make"]},
        ),
        ("--no-convert --convert --user a --user b", {"convert": True, "user": "b"}),
        ("--", {}),
    ],
)
def test_a_plain_command_line_reads_as_with_typer(
    monkeypatch: pytest.MonkeyPatch, words: str, expected: dict[str, Any]
) -> None:
    """Words after the first argument are the command's, a value may begin with a dash, and the last value counts."""
    assert read_plain(words.split(), options("record")) == expected
    asked(monkeypatch, "record", *words.split())
