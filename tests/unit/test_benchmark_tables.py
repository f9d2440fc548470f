"""The tables of figures in the documents: they come from the kept results, and say of what code these are."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
FILES = (ROOT / "benchmarks/results").glob("*.json")
RESULTS = {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in FILES}
PERFORMANCE = (ROOT / "docs/explanation/performance.md").read_text(encoding="utf-8")
SECTION = re.compile(r"<!-- (\w+) -->\n(.*?)<!-- /\1 -->", re.DOTALL)
CHANGED = "The code that is measured has changed since"
FORCE = "LO2IO_RUN_KERNEL_TESTS"


@pytest.fixture
def provenance(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The benchmarks' module of this name."""
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    import provenance as module  # noqa: PLC0415 - only the benchmarks' folder has it

    return module


def git(*words: str) -> str:
    """What git prints, in this repository; empty if it fails."""
    done = subprocess.run(["git", "-C", str(ROOT), *words], capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else ""


def skip(reason: str) -> None:
    """Skip, or fail where no test may skip."""
    if os.environ.get(FORCE) == "1":
        pytest.fail(reason)
    pytest.skip(f"{reason} ({FORCE}=1 makes this a failure)")


def test_tables_are_made_from_the_results() -> None:
    """No figure was typed, and no result is committed without its table."""
    command = [sys.executable, "benchmarks/run.py", "--tables", "--check"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_table_of_the_page_on_performance_is_made_from_a_result() -> None:
    """A table between no markers would stay as it was typed."""
    typed = SECTION.sub("", PERFORMANCE)
    assert [line for line in typed.splitlines() if line.startswith("|")] == []


def test_the_commit_under_a_table_is_that_of_its_result() -> None:
    """Each section of the page names the commit that its result names; the first has rows of several results."""
    sections = dict(SECTION.findall(PERFORMANCE))
    overview = re.search(r"lo2io at (.*)", sections.pop("figures"))
    named = {name: re.findall(r"lo2io at ([0-9a-f]+(?:-dirty)?),", text) for name, text in sections.items()}
    assert named == {name: [RESULTS[name]["machine"]["commit"]] for name in named}
    assert overview is not None
    for commit, names in re.findall(r"([0-9a-f]+(?:-dirty)?) \(([a-z, ]+)\)", overview[1]):
        assert {RESULTS[name]["machine"]["commit"] for name in names.split(", ")} == {commit}


def test_a_table_of_older_code_says_so(provenance: Any) -> None:
    """An old table cannot pass as new: code other than that of its result has a sentence under the table."""
    found = {name: CHANGED in text for name, text in SECTION.findall(PERFORMANCE) if name in RESULTS}
    assert found == {name: RESULTS[name].get("code") != provenance.fingerprint(ROOT, name) for name in found}


def test_a_result_is_of_the_commit_that_it_names(provenance: Any, tmp_path: Path) -> None:
    """The commit is in the history, and its measured code is that of the result.

    Tables of other results say that the code has changed, or name no commit alone.
    """
    named: dict[str, list[str]] = {}
    for name, result in RESULTS.items():
        if result.get("code") is not None and not result["machine"]["commit"].endswith("-dirty"):
            named.setdefault(result["machine"]["commit"], []).append(name)
    if git("rev-parse", "--is-shallow-repository") != "false":
        skip("this clone has no history")
    for commit, names in named.items():
        assert git("merge-base", commit, "HEAD").startswith(commit), f"{commit} is not in the history: measure again"
        archive = subprocess.run(["git", "-C", str(ROOT), "archive", commit], check=True, capture_output=True).stdout
        (tmp_path / commit).mkdir()
        subprocess.run(["tar", "-x", "-C", str(tmp_path / commit)], input=archive, check=True)
        for name in names:
            assert provenance.fingerprint(tmp_path / commit, name) == RESULTS[name]["code"], name


def test_comments_are_no_code(provenance: Any) -> None:
    """Comments, docstrings and blank lines may change without a new measurement."""
    python = '"""What."""\n\nx = "# no comment"  # why\n\n\ndef f():\n    """More."""\n    return x\n'
    assert provenance.python_code(python) == 'x = "# no comment"\ndef f():\n    return x'
    assert provenance.c_code('int x; // why\n/* a\n b */ char *s = "/* no comment */";\n') == (
        'int x; char *s = "/* no comment */";'
    )
    assert provenance.toml_code("# why\na = '#'\n") == provenance.toml_code("a = '#'")


def test_a_change_of_code_changes_the_fingerprints_of_what_runs_it(provenance: Any, tmp_path: Path) -> None:
    """Reports are no part of recording, nor is converting of a recording with --no-convert, nor are unchosen layers."""
    names = (
        "lo2io/capture/drain.py",
        "lo2io/reports/page.py",
        "lo2io/cli/standby.py",
        "lo2io/native/calls/calls.c",
        "lo2io/bpf/programs/stacks.h",
        "lo2io/bpf/programs/core.h",
        "lo2io/capture/flight/dump.py",
        "lo2io/cli/why.py",
    )
    benchmarks = ("overhead", "backends", "views", "stacks", "rates")

    def fingerprints(changed: str) -> list[str]:
        root = tmp_path / changed.replace("/", "-")
        for name in names:
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(f"x = {name == changed};\n", encoding="ascii")
        return [provenance.fingerprint(root, benchmark) for benchmark in benchmarks]

    before = fingerprints("nothing")
    found = []
    for name in names:
        pairs = zip(benchmarks, before, fingerprints(name), strict=True)
        found.append({benchmark for benchmark, old, new in pairs if old != new})
    converting = {"backends", "views"}
    assert found == [{*benchmarks}, {"views"}, converting, converting, {"stacks"}, {*benchmarks}, {"rates"}, set()]


def test_measured_commands_do_not_load_what_counts_as_unmeasured(provenance: Any) -> None:
    """Else a change there could change what they measure. `lo2io why` is loaded for its options alone."""
    program = """
import sys
import lo2io.capture.recording, lo2io.cli.export, lo2io.cli.record, lo2io.cli.report, lo2io.exports.formats
import lo2io.finishing, lo2io.otf2.write.writer, lo2io.pipeline, lo2io.reports.html.page, lo2io.reports.text.page
from lo2io.convert.convert import import_stages
import_stages()
print(*sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, check=True)
    loaded = {f"{module.replace('.', '/')}/" for module in done.stdout.split() if module.startswith("lo2io")}
    assert "lo2io/capture/recording/" in loaded
    left_out = [name.removesuffix(".py").rstrip("/") + "/" for name in provenance.OF_NO_BENCHMARK]
    left_out.remove("lo2io/cli/why/")
    assert not [module for module in loaded if module.startswith((*left_out, provenance.OF_FLIGHT_RECORDERS))]
    texts = {name: (ROOT / f"benchmarks/{name}.py").read_text(encoding="utf-8") for name in RESULTS}
    assert not [name for name, text in texts.items() if '"why"' in text or '"dump"' in text]
    assert {name for name, text in texts.items() if '"--last"' in text} == provenance.FLIGHT_RECORDERS


def test_the_recorders_rooms_use_nothing_of_the_converters_header(provenance: Any) -> None:
    """It is no room, so the check of rooms does not see it."""
    headers = [name for name in provenance.ONLY_WHILE_CONVERTING if name.endswith(".h")]
    assert headers == ["lo2io/native/api/otf2_events.h"]
    for path in (path for room in ("capture", "hash", "input") for path in (ROOT / "lo2io/native" / room).iterdir()):
        assert not re.search(r"otf2|LO2_USED", path.read_text(encoding="utf-8"), re.IGNORECASE), path


def test_only_reports_use_names_of_sums(provenance: Any) -> None:
    """Else a change of the header could change what recording does."""
    native = ROOT / "lo2io/native"
    assert "lo2io/native/api/sums.h" in provenance.NOT_WHILE_RECORDING
    names = {
        *re.findall(r"\blo2_\w+", provenance.c_code((native / "api/sums.h").read_text(encoding="utf-8")), re.IGNORECASE)
    }
    assert len(names) > 50
    for path in native.glob("*/*.[ch]"):
        if path.parent.name != "sums" and path.name != "sums.h":
            used = {*re.findall(r"\blo2_\w+", provenance.c_code(path.read_text(encoding="utf-8")), re.IGNORECASE)}
            assert not used & names, path


def test_programs_run_the_code_of_a_layer_only_if_it_is_chosen(provenance: Any) -> None:
    """Then the verifier removes this code from the programs of other recordings."""
    for layer, name in provenance.OF_LAYERS.items():
        own = (ROOT / name).read_text(encoding="utf-8")
        functions = re.findall(r"^(?:INLINE|LO2_ONCE) [\w *]*?\b(\w+)\(", own, re.MULTILINE)
        assert len(functions) > 3
        for path in sorted((ROOT / name).parent.glob("*.[ch]")):
            lines = path.read_text(encoding="utf-8").splitlines() if path != ROOT / name else []
            for before, line in pairwise(lines):
                if any(f"{function}(" in line for function in functions):
                    assert f"if (lo2_has_layer(LO2_LAYER_{layer})" in before, f"{path.name}: {line}"


def test_formats_are_compared_on_rows_with_all_columns(provenance: Any) -> None:
    """A column that is new in the table of operations is also new in the benchmark's rows."""
    del provenance
    import tables  # noqa: PLC0415 - as above

    rows = tables.operations(0, 0)
    assert rows.keys() == {column.name for column in tables.OPERATIONS}
    assert {len(values) for values in rows.values()} == {tables.CHUNK}
