"""Runs benchmarks and writes their results: `make bench`, `make bench BENCH=ab`.

    .venv/bin/python benchmarks/run.py [LETTERS] [--runs 5] [--scale 1] [--directory DIR]
    .venv/bin/python benchmarks/run.py --tables [--check]

Each run's figures go to benchmarks/results/NAME.json, and from there into the tables of benchmarks/README.md and
docs/explanation/performance.md, between their markers. With a scale other than 1, nothing is kept: tables are printed.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import aftermath
import backends
import components
import convert
import hooks
import machine
import overhead
import prices
import rates
import rings
import start
import views
from common import (
    HERE,
    RESULTS,
    BenchError,
    Settings,
    adopt_orphans,
    describe_machine,
    machine_facts,
    require_root,
    save,
    workspace,
)

BENCHMARKS = (overhead, aftermath, convert, start, components, machine, rates, prices, rings, backends, views, hooks)
DOCUMENTS = (HERE / "README.md", HERE.parent / "docs/explanation/performance.md")
QUIET_LOAD = 0.5


def main() -> int:
    """Run the requested benchmarks, or only write the tables anew."""
    options = _options()
    try:
        if not options.tables:
            _measure_each(options)
        if options.machine:
            return 0
    except BenchError as error:
        print(f"benchmarks: {error}", file=sys.stderr)
        return 1
    return _write_tables(check=options.check)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    letters = "".join(module.LETTER for module in BENCHMARKS)
    names = ", ".join(f"{module.LETTER} {module.NAME}" for module in BENCHMARKS)
    parser.add_argument("letters", nargs="?", default=letters, help=f"which: {names}")
    parser.add_argument("--runs", type=int, default=5, help="runs of each variant (5)")
    parser.add_argument("--scale", type=float, default=1.0, help="less work for a quick look; nothing is kept")
    parser.add_argument("--directory", type=Path, help="where spools and traces go (the system's temporary directory)")
    parser.add_argument("--tables", action="store_true", help="measure nothing, make tables of what results there are")
    parser.add_argument("--check", action="store_true", help="with --tables: write nothing, fail if any is stale")
    parser.add_argument("--machine", help=argparse.SUPPRESS)  # facts as JSON: this process runs one benchmark
    options = parser.parse_args()
    if unknown := set(options.letters) - set(letters):
        parser.error(f"no benchmark {', '.join(sorted(unknown))}: {names}")
    return options


def _measure_each(options: argparse.Namespace) -> None:
    """Run each in a process of its own, so that none starts with another's peak memory."""
    require_root()
    facts = json.loads(options.machine) if options.machine else machine_facts()
    if not options.machine and facts["load_average"] > QUIET_LOAD:
        print(f"this machine is not quiet (load average {facts['load_average']}): figures will be off")
    if options.machine:
        _measure(options, facts)
        return
    for letter in options.letters:
        command = [sys.executable, __file__, letter, f"--runs={options.runs}", f"--scale={options.scale}"]
        command += [f"--directory={options.directory}"] if options.directory else []
        if subprocess.run([*command, "--machine", json.dumps(facts)], check=False).returncode != 0:
            raise BenchError(f"benchmark {letter} failed")


def _measure(options: argparse.Namespace, facts: dict[str, Any]) -> None:
    (module,) = (module for module in BENCHMARKS if options.letters == module.LETTER)
    adopt_orphans()
    print(f"{module.LETTER}: {(module.__doc__ or '').splitlines()[0]}", flush=True)
    with workspace(options.directory) as directory, tempfile.TemporaryDirectory(prefix="lo2io-bench-bin-") as binaries:
        settings, rows = module.measure(Settings(options.runs, options.scale, directory, Path(binaries)))
    document = {"benchmark": module.NAME, "machine": facts, "settings": settings, "runs": rows}
    if options.scale == 1:
        save(RESULTS, document)
    print(f"\n{_section(module, document)}\n", flush=True)


def _section(module: Any, document: dict[str, Any]) -> str:
    return f"{module.render(document)}\n\n{describe_machine(document['machine'])}"


def _write_tables(*, check: bool) -> int:
    """Replace the text between `<!-- NAME -->` and `<!-- /NAME -->` in each document; 1 if it was not current."""
    stale = 0
    for path in DOCUMENTS:
        before = after = path.read_text(encoding="utf-8")
        for module in BENCHMARKS:
            kept = RESULTS / f"{module.NAME}.json"
            if kept.exists():
                text = _section(module, json.loads(kept.read_text(encoding="utf-8")))
            else:
                text = f"Not measured yet: `make bench BENCH={module.LETTER}`."
            marked = re.compile(rf"(<!-- {module.NAME} -->\n).*?(<!-- /{module.NAME} -->)", re.DOTALL)
            after = marked.sub(lambda found, text=text: f"{found[1]}{text}\n{found[2]}", after)
        if after != before:
            stale += 1
            if check:
                print(f"{path}: tables are not those of benchmarks/results: run benchmarks/run.py --tables")
            else:
                path.write_text(after, encoding="utf-8")
    return 1 if check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
