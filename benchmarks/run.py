"""Runs benchmarks and writes their results: `make bench`, `make bench BENCH=ab`, `make bench BENCH=quick`.

    .venv/bin/python benchmarks/run.py [LETTERS] [--runs 5] [--scale 1] [--directory DIR] [--baseline COMMIT]
    .venv/bin/python benchmarks/run.py quick [--baseline COMMIT | --update-baseline]
    .venv/bin/python benchmarks/run.py --tables [--check] [--final]

Each run's figures go to benchmarks/results/NAME.json, and from there into the tables of benchmarks/README.md and
docs/explanation/performance.md, between their markers. With a scale other than 1, nothing is kept: tables are printed.

Exit codes: 1 if a figure is worse than the baseline, or a table is not that of its results; 2 if a benchmark fails.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import aftermath
import backends
import components
import convert
import figures
import hooks
import layers
import machine
import overhead
import prices
import quick
import rates
import rings
import stacks
import start
import views
from another_commit import REFERENCE, build_commit
from common import (
    HERE,
    RESULTS,
    Baseline,
    BenchError,
    Settings,
    adopt_orphans,
    describe_machine,
    machine_facts,
    require_root,
    save,
    workspace,
)
from provenance import fingerprint

ROOT = HERE.parent
BENCHMARKS = (
    overhead,
    aftermath,
    convert,
    start,
    components,
    machine,
    rates,
    prices,
    rings,
    backends,
    views,
    hooks,
    layers,
    stacks,
)
DOCUMENTS = (HERE / "README.md", ROOT / "docs/explanation/performance.md")
QUICK_BASELINE = RESULTS / "quick.jsonl"
QUIET_LOAD = 0.5
CHANGED = "The code that is measured has changed since."


def main() -> int:
    """Run the requested benchmarks, or only write the tables anew."""
    options = _options()
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # with it, each start compiles all that it imports
    begin = time.monotonic()
    try:
        if options.plan:
            _measure_one(options.letters, json.loads(options.plan))
            return 0
        if options.letters == "quick":
            return _measure_quickly(options)
        if not options.tables:
            _measure_each(options)
            print(f"measured in {(time.monotonic() - begin) / 60:.0f} minutes", file=sys.stderr)
    except BenchError as error:
        print(f"benchmarks: {error}", file=sys.stderr)
        return 2
    return _write_tables(check=options.check, final=options.final)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    letters = "".join(module.LETTER for module in BENCHMARKS)
    names = ", ".join(f"{module.LETTER} {module.NAME}" for module in BENCHMARKS)
    parser.add_argument("letters", nargs="?", default=letters, help=f"which: {names}; or quick: the figures alone")
    parser.add_argument("--runs", type=int, default=5, help="runs of each variant (5)")
    parser.add_argument("--scale", type=float, default=1.0, help="less work for a quick look; nothing is kept")
    parser.add_argument("--directory", type=Path, help="where spools and traces go (the system's temporary directory)")
    parser.add_argument("--baseline", help=f"another commit for the same turns, or none ({REFERENCE}; quick: none)")
    parser.add_argument("--update-baseline", action="store_true", help=f"with quick: write {QUICK_BASELINE.name} anew")
    parser.add_argument("--tables", action="store_true", help="measure nothing, make tables of what results there are")
    parser.add_argument("--check", action="store_true", help="with --tables: write nothing, fail if any is stale")
    parser.add_argument("--final", action="store_true", help="with --tables: fail unless all are of this code")
    parser.add_argument("--plan", help=argparse.SUPPRESS)  # as JSON: this process runs one benchmark
    options = parser.parse_args()
    if options.letters != "quick" and (unknown := set(options.letters) - set(letters)):
        parser.error(f"no benchmark {', '.join(sorted(unknown))}: {names}")
    if options.update_baseline and options.baseline:
        parser.error("--update-baseline writes this commit's figures: measure it without --baseline")
    return options


def _facts() -> dict[str, Any]:
    require_root()
    facts = machine_facts()
    if facts["load_average"] > QUIET_LOAD:
        print(f"this machine is not quiet (load average {facts['load_average']}): figures will be off", file=sys.stderr)
    return facts


def _baseline(name: str | None, default: str) -> dict[str, str] | None:
    """The other commit, built, as a plan has it."""
    wanted = name or default
    if wanted == "none":
        return None
    built = build_commit(wanted)
    return {"commit": built.commit, "program": str(built.program)}


def _measure_each(options: argparse.Namespace) -> None:
    """Run each benchmark of the letters. Results are kept only of all the work."""
    plan = {
        "facts": _facts(),
        "runs": options.runs,
        "scale": options.scale,
        "directory": str(options.directory or ""),
        "baseline": _baseline(options.baseline, REFERENCE),
        "keep": str(RESULTS) if options.scale == 1 else "",
        "is_shown": True,
    }
    for letter in options.letters:
        _run_plan(letter, plan)


def _measure_quickly(options: argparse.Namespace) -> int:
    """Measure the figures alone, print them as lines of JSON, and compare them; 1 if any is worse."""
    plan = {
        "facts": _facts(),
        "runs": options.runs,
        "directory": str(options.directory or ""),
        "baseline": _baseline(options.baseline, "none"),
        "is_shown": False,
    }
    letters = {module.NAME: module.LETTER for module in BENCHMARKS}
    with tempfile.TemporaryDirectory(prefix="lo2io-bench-quick-") as folder:
        for name, (scale, seconds) in quick.SHARES.items():
            more = {"scale": scale * options.scale, "chosen": quick.chosen(name), "keep": folder}
            more["most_s"] = 2 * seconds if plan["baseline"] else seconds
            _run_plan(letters[name], plan | more)
        documents = _load(Path(folder))
    lines = quick.lines_of(documents)
    text = "".join(f"{json.dumps(line)}\n" for line in lines)
    print(text, end="", flush=True)
    if options.update_baseline:
        QUICK_BASELINE.write_text(text, encoding="utf-8")
        return 0
    now = quick.measured_in(lines)
    if plan["baseline"]:
        return _compare(quick.changes(quick.measured_of_baseline(documents, plan["baseline"]["commit"]), now))
    before = quick.load(QUICK_BASELINE)
    found = quick.changes(quick.measured_in(before), now)
    if reason := quick.why_not_judged(before[0], lines[0]):
        print(f"\n{quick.render(found)}\n\nNot judged: {reason}. `--baseline COMMIT` compares here.", file=sys.stderr)
        return 0
    return _compare(found)


def _compare(found: list[quick.Change]) -> int:
    worse = [each.figure.name for each in found if each.verdict == "worse"]
    print(f"\n{quick.render(found)}\n\nWorse: {'; '.join(worse) or 'none'}.", file=sys.stderr)
    return 1 if worse else 0


def _run_plan(letter: str, plan: dict[str, Any]) -> None:
    """Run one benchmark in a process of its own, so that it does not start with another's peak memory."""
    command = [sys.executable, __file__, letter, "--plan", json.dumps(plan)]
    if subprocess.run(command, check=False).returncode != 0:
        raise BenchError(f"benchmark {letter} failed")


def _measure_one(letter: str, plan: dict[str, Any]) -> None:
    (module,) = (module for module in BENCHMARKS if letter == module.LETTER)
    adopt_orphans()
    print(f"{letter}: {(module.__doc__ or '').splitlines()[0]}", file=sys.stderr, flush=True)
    other = plan["baseline"]
    parent = Path(plan["directory"]) if plan["directory"] else None
    with workspace(parent) as directory, tempfile.TemporaryDirectory(prefix="lo2io-bench-bin-") as binaries:
        settings, rows = module.measure(
            Settings(
                plan["runs"],
                plan["scale"],
                directory,
                Path(binaries),
                frozenset(plan["chosen"]) if "chosen" in plan else None,
                plan.get("most_s"),
                Baseline(other["commit"], Path(other["program"])) if other else None,
            )
        )
    document = {
        "benchmark": module.NAME,
        "machine": plan["facts"],
        "code": fingerprint(ROOT, module.NAME),
        "baseline": other["commit"] if other else None,
        "settings": settings,
        "runs": rows,
    }
    if plan["keep"]:
        save(Path(plan["keep"]), document)
    if plan["is_shown"]:
        print(f"\n{_section(module, document)}\n", flush=True)


def _load(folder: Path) -> dict[str, dict[str, Any]]:
    """The results that a folder has, by benchmark."""
    found = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*.json"))]
    return {document["benchmark"]: document for document in found}


def _is_current(document: dict[str, Any]) -> bool:
    """True if a result is of the code that lies beside it."""
    return document.get("code") == fingerprint(ROOT, document["benchmark"])


def _section(module: Any, document: dict[str, Any]) -> str:
    since = "" if _is_current(document) else f" {CHANGED}"
    return f"{module.render(document)}\n\n{describe_machine(document)}{since}"


def _overview(documents: dict[str, dict[str, Any]]) -> str:
    """The table of figures, whose rows come from several results."""
    used = {figure.benchmark for figure in figures.FIGURES}
    commits: dict[str, list[str]] = {}
    for name in sorted(used & documents.keys()):
        commits.setdefault(documents[name]["machine"]["commit"], []).append(name)
    where = "; ".join(f"{commit} ({', '.join(names)})" for commit, names in commits.items())
    old = [name for name in sorted(used & documents.keys()) if not _is_current(documents[name])]
    since = f" {CHANGED[:-1]}: {', '.join(old)}." if old else ""
    return f"{figures.overview(documents)}\n\nlo2io at {where}.{since}"


def _write_tables(*, check: bool, final: bool) -> int:
    """Replace the text between `<!-- NAME -->` and `<!-- /NAME -->` in each document; 1 if it was not current."""
    documents = _load(RESULTS)
    texts = {"figures": _overview(documents)}
    for module in BENCHMARKS:
        if module.NAME in documents:
            texts[module.NAME] = _section(module, documents[module.NAME])
        else:
            texts[module.NAME] = f"Not measured yet: `make bench BENCH={module.LETTER}`."
    stale = 0
    for path in DOCUMENTS:
        before = after = path.read_text(encoding="utf-8")
        for name, text in texts.items():
            marked = re.compile(rf"(<!-- {name} -->\n).*?(<!-- /{name} -->)", re.DOTALL)
            after = marked.sub(lambda found, text=text: f"{found[1]}{text}\n{found[2]}", after)
        if after != before:
            stale += 1
            if check:
                print(f"{path}: tables are not those of benchmarks/results: run benchmarks/run.py --tables")
            else:
                path.write_text(after, encoding="utf-8")
    unfinished = _unfinished(documents) if final else []
    print("".join(f"{line}\n" for line in unfinished), end="")
    return 1 if (check and stale) or unfinished else 0


def _unfinished(documents: dict[str, dict[str, Any]]) -> list[str]:
    """Why the results are not final: some are missing, or of uncommitted code, or the measured code has changed."""
    lines = [f"{module.NAME}: not measured" for module in BENCHMARKS if module.NAME not in documents]
    for name, document in documents.items():
        if (commit := document["machine"]["commit"]).endswith("-dirty"):
            lines.append(f"{name}: measured at {commit}")
        if not _is_current(document):
            lines.append(f"{name}: {CHANGED}")
    return lines


if __name__ == "__main__":
    sys.exit(main())
