"""The command line without a kernel: help, versions, mistakes, and files that are no trace or spool."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from build.tablemaker import READ, make_batch, write_trace

LO2IO = str(Path(sys.executable).parent / "lo2io")


def run(*arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """A command to its end; it must never show a traceback."""
    done = subprocess.run([LO2IO, *arguments], capture_output=True, text=True, cwd=cwd, check=False)
    assert "Traceback" not in done.stderr
    return done


@pytest.mark.parametrize(
    "command",
    ["record", "system-wide", "dump", "convert", "report", "why", "diff", "verify", "doctor", "tracepoints list"],
)
def test_help_ends_with_examples(command: str) -> None:
    """Every command shows how it is used."""
    done = run(*command.split(), "--help")
    assert (done.returncode, done.stderr) == (0, "")
    assert "Examples:" in done.stdout


def test_the_list_of_commands_is_whole() -> None:
    """No summary of a command is cut at 80 columns, and a misspelt command is answered once."""
    shown = run("--help").stdout
    assert "record       Record the I/O of a command" in shown
    assert "..." not in shown.partition("Commands:")[2]
    assert run("recordd").stderr.count("'record'") == 1


@pytest.mark.parametrize("option", ["--backend", "--names", "--opener", "--scope", "--block-records"])
def test_choices_are_shown(option: str) -> None:
    """If only a few words are allowed, help shows them, and so does the error for another one."""
    assert re.search(rf"{option} \[\w[\w-]*\|[\w|-]+\]", run("record", "--help").stdout)
    done = run("record", option, "bogus", "--", "true")
    assert done.returncode == 2
    assert "'bogus' is not one of" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("record --bogus", "No such option"),
        ("record -p abc", "valid integer"),
        ("record --ring nonsense -- true", "write it like 4096, 512KiB or 8MiB"),
        ("record --duration 3parsecs -p 1", "write it like 500ms, 30s, 5min or 1h"),
        ("system-wide -a --duration 0s", "recording would end at once"),
        ("system-wide -a --max-size much", "write it like 4096, 512KiB or 8MiB"),
        ("record --sample 1% -- true", "write it like 1/10 or 1/1000"),
        ("system-wide -a --sample 3/4", "write it like 1/10 or 1/1000"),
        ("convert spool -o T --sample 0", "write it like 1/10 or 1/1000"),
        ("record --block-records beginend -- true", "not one of 'samples', 'begin-end', 'both'"),
        ("record -e reda -- true", "did you mean read?"),
        ("record -e nothing_like_it -- true", "`lo2io tracepoints list` shows every name"),
        ("convert", "Missing argument 'SPOOL'"),
        ("why none --call 1 --file x", "the call is chosen already"),
        ("why none --call 1 --slowest 3", "the call is chosen already"),
        ("why none --call 1 --filter pid==1", "the call is chosen already"),
        ("export none --to csv -O bogus=1", "no such option"),
        ("tracepoints show nothing_like_it", "there is no such name"),
    ],
)
def test_mistakes_are_answered(arguments: str, words: str) -> None:
    """Exit code 2, the fault and the remedy on stderr, and nothing on stdout."""
    done = run(*arguments.split())
    assert (done.returncode, done.stdout) == (2, "")
    assert words in done.stderr


@pytest.mark.parametrize("command", ["report", "verify"])
@pytest.mark.parametrize("kind", ["empty", "text", "missing"])
def test_what_is_no_trace(tmp_path: Path, command: str, kind: str) -> None:
    """Exit code 5, with its name."""
    (tmp_path / "empty").mkdir()
    (tmp_path / "text").write_text("no trace\n")
    done = run(command, kind, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (5, "")
    assert kind in done.stderr
    assert "give the directory" in done.stderr


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "No such file"),
        ('{"magic": "lo2io-spool", "ver', "no JSON"),
        ('{"magic": "something"}', 'no "magic": "lo2io-spool"'),
        (json.dumps({"magic": "lo2io-spool", "version": 99}), "version 99, but this lo2io reads versions up to 3"),
        (json.dumps({"magic": "lo2io-spool", "version": 1}), "is missing"),
    ],
)
def test_what_is_no_spool(tmp_path: Path, content: str | None, words: str) -> None:
    """Exit code 4, and nothing is written."""
    (tmp_path / "S").mkdir()
    if content is not None:
        (tmp_path / "S/spool.json").write_text(content)
    done = run("convert", "S", "-o", "T", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (4, "")
    assert words in done.stderr
    assert not (tmp_path / "T").exists()


def test_why_answers_in_words_or_json(tmp_path: Path) -> None:
    """Words, unless asked otherwise."""
    rows = [{"id": 1, "task": 0, "call": READ, "begin_time_ns": 5, "end_time_ns": 900_000}]
    write_trace(tmp_path, [make_batch(operations=rows)])
    words, found = (run("why", str(tmp_path), "--call", "1", *more).stdout for more in ((), ("--json",)))
    assert "read" in words
    assert not words.startswith("[")
    assert len(json.loads(found)) == 1


@pytest.mark.parametrize(
    ("file", "ids"),
    [("/data/**", [2, 1]), ("/data/a[1]", [1]), ('/data/say "x"\\y', [2]), ('/data/* "x"*', [2]), ("/data", [])],
)
def test_why_of_a_file_takes_stars(tmp_path: Path, file: str, ids: list[int]) -> None:
    """Other signs of a path are what they are."""
    paths = (b"/data/a[1]", b'/data/say "x"\\y', b"/other")
    tables = {
        "tasks": [{"task": 0, "process": 7, "pid": 100, "tid": 100, "comm": b"dd"}],
        "handles": [{"handle": number, "process": 7, "file": number, "fd": 3 + number} for number in range(3)],
        "files": [{"file": number, "path": path, "mode": 0o100644} for number, path in enumerate(paths)],
        "operations": [
            {"id": 1 + at, "task": 0, "call": READ, "handle": at, "begin_time_ns": 5, "end_time_ns": 10**6 + at}
            for at in range(3)
        ],
    }
    write_trace(tmp_path, [make_batch(**tables)])
    done = run("why", str(tmp_path), "--file", file, "--json")
    assert done.returncode == (0 if ids else 2)
    assert [chain["id"] for chain in json.loads(done.stdout or "[]")] == ids
