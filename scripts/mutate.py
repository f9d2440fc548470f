#!/usr/bin/env python3
"""Changes one place of lo2io at a time, and tells which changes no unit test notices.

    .venv/bin/python scripts/mutate.py [--count N] [--seed N] [--only python|c] [--first N]

Places are chosen at random from all Python modules and C files: comparisons, operators, numbers, conditions, results
and calls. For each, the unit tests of the same room run (``tests/unit`` has the rooms of ``lo2io``) in a copy of the
project, with a time limit. Prints a line for each change that survived, and the score. A change that survives is not
always a missing test: it may be equivalent, or found by the tests that record.
"""

from __future__ import annotations

import argparse
import ast
import io
import os
import random
import re
import shutil
import subprocess
import sys
import sysconfig
import tokenize
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

PROJECT = Path(__file__).resolve().parent.parent
COPY = PROJECT / ".cache" / "mutants"
COPIED = ("lo2io", "tracepoints", "tests", "docs", "benchmarks", "scripts", "pyproject.toml", "README.md")
LIMIT_S = 180
"""Of one run of tests. A change that makes them endless is noticed."""
EXAMPLES = "5"
"""Made-up histories of each test, in place of 30: they take most of the time."""
SWAPPED = {
    "<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "==", "+": "-", "-": "+", "*": "+", "//": "*",
    "&": "|", "|": "&", "<<": ">>", ">>": "<<", "&&": "||", "||": "&&", "+=": "-=", "-=": "+=", "++": "--",
    "and": "or", "or": "and", "True": "False", "False": "True", "true": "false", "false": "true", "in": "not in",
    "is": "is not", "not": "", "!": "", "continue": "break", "break": "continue",
}  # fmt: skip
"""Operator or word → what takes its place."""
USED_BY = {"sums": "reports", "perfetto": "exports"}
"""Rooms of C files whose tests are those of a room in Python with another name."""
C_WORD = re.compile(
    r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\])*"|\'(?:\\.|[^\'\\])*\'|^[ \t]*#(?:\\\n|[^\n])*|'
    r"(?P<word>&&|\|\||<<=|>>=|->|<<|>>|<=|>=|==|!=|\+\+|\+=|-=|[<>!]|\b(?:true|false|continue|break)\b|"
    r"(?<![\w.])\d+(?![\w.])| [-+&|] )",
    re.DOTALL | re.MULTILINE,
)
C_CALL = re.compile(r"^ +(?P<word>\w+\([^;{}]*\);)$", re.MULTILINE)


@dataclass(frozen=True)
class Change:
    """One place of a file, and the text that takes its place."""

    file: Path
    begin: int
    end: int
    text: str

    def apply(self, source: str) -> str:
        """The file's text with the change."""
        return source[: self.begin] + self.text + source[self.end :]

    def describe(self, source: str) -> str:
        """File, line, and what changed."""
        line = source.count("\n", 0, self.begin) + 1
        return f"{self.file}:{line}: {source[self.begin : self.end]!r} → {self.text!r}"


def changes_of_c(file: Path, source: str) -> Iterator[Change]:
    """Operators, numbers and calls, outside of comments, texts and preprocessor lines."""
    for pattern in (C_WORD, C_CALL):
        for match in pattern.finditer(source):
            word = match["word"]
            if word is None:
                continue
            plain = word.strip()
            new = "" if pattern is C_CALL else str(int(plain) + 1) if plain.isdecimal() else SWAPPED.get(plain)
            if new is not None:
                begin = match.start("word") + word.index(plain)
                yield Change(file, begin, begin + len(plain), new or ";" * (pattern is C_CALL))


def changes_of_python(file: Path, source: str) -> Iterator[Change]:
    """Operators, numbers, results and calls inside of functions."""
    starts = [0]
    for text in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(text))
    tree = ast.parse(source)
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    bodies = [(node.body[0].lineno, node.end_lineno or 0) for node in functions]
    hidden = [
        (node.lineno, node.end_lineno or 0)
        for function in functions
        for node in ast.walk(function)
        if isinstance(node, ast.AnnAssign | ast.Import | ast.ImportFrom)
    ]
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        line = token.start[0]
        if not any(a <= line <= b for a, b in bodies) or any(a <= line <= b for a, b in hidden):
            continue
        new = str(int(token.string) + 1) if token.string.isdecimal() else SWAPPED.get(token.string)
        before = source[: starts[line - 1] + token.start[1]].rstrip()
        unary = token.string in {"-", "*", "+"} and not (before[-1:].isalnum() or before[-1:] in ")]_\"'")
        inside_for = token.string == "in" and re.search(
            r"\bfor\b[^:\n]*$", source[starts[line - 1] :][: token.start[1]]
        )
        keyword = token.string in {"True", "False"} and token.line.strip().startswith("def ")
        is_code = token.type in {tokenize.OP, tokenize.NAME, tokenize.NUMBER}
        if is_code and new is not None and not (unary or inside_for or keyword):
            yield Change(file, starts[line - 1] + token.start[1], starts[line - 1] + token.end[1], new)
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) and node.lineno == node.end_lineno:
            yield Change(file, starts[node.lineno - 1] + node.col_offset, starts[node.lineno] - 1, "pass")
        elif isinstance(node, ast.Return) and node.value is not None and node.lineno == node.end_lineno:
            yield Change(file, starts[node.lineno - 1] + node.col_offset, starts[node.lineno] - 1, "return None")


def all_changes(only: str | None) -> list[Change]:
    """Every change of every file, in the order of the files."""
    found: list[Change] = []
    for pattern, language, changes in (("*.py", "python", changes_of_python), ("*.c", "c", changes_of_c)):
        for path in sorted((PROJECT / "lo2io").rglob(pattern)):
            file = path.relative_to(PROJECT)
            if only in {None, language} and path.name not in {"_lib.c", "lo2io.bpf.c", "build.py", "_version.py"}:
                found += changes(file, path.read_text(encoding="utf-8"))
    return found


def tests_of(file: Path) -> list[str]:
    """The unit tests of a file's room. The engine has rooms of one machine, so its own tests run for each of them."""
    rooms = list(file.parent.parts[1:])
    unit = Path("tests/unit")
    if not rooms:
        own = unit / f"test_{file.stem}.py"
        return [str(own if (PROJECT / own).exists() else unit / "cli")]
    if file.suffix == ".c":
        native = unit.joinpath(*rooms)
        if (PROJECT / native).is_dir():
            return list(dict.fromkeys([str(native), str(unit / "native/engine")]))
        return [str(unit / USED_BY.get(rooms[-1], rooms[-1]))]
    while not (PROJECT / unit.joinpath(*rooms)).is_dir():
        rooms.pop()
    return [str(unit.joinpath(*rooms))]


def nearest(file: Path) -> list[str]:
    """The tests with the file's name in its room. They run first, for most changes fail there."""
    names = {f"test_{file.stem}.py", f"test_{file.parent.name}_{file.stem}.py"}
    found = [
        path for room in tests_of(file) for path in sorted((PROJECT / room).rglob("test_*.py")) if path.name in names
    ]
    return [str(path.relative_to(PROJECT)) for path in found]


class Library:
    """The native part of the copy: an object for each C file, of which a change compiles one again."""

    def __init__(self) -> None:
        python, includes = sys.executable, ["-Ilo2io/native", "-Ilo2io", f"-I{sysconfig.get_path('include')}"]
        script = "runpy.run_path('lo2io/native/build.py')['ffibuilder'].emit_c_code('lo2io/native/_lib.c')"
        subprocess.run([python, "-c", f"import runpy; {script}"], cwd=COPY, check=True)
        self._compile = ["gcc", "-c", "-fPIC", "-O1", "-w", "-std=gnu11", "-DPy_LIMITED_API", *includes]
        for file in sorted((COPY / "lo2io/native").rglob("*.c")):
            self.compile(file.relative_to(COPY))
        self.link()

    def compile(self, file: Path) -> bool:
        """Compile one file; False: the change is no C."""
        command = [*self._compile, str(file), "-o", f"{file}.o"]
        return not subprocess.run(command, check=False, cwd=COPY, capture_output=True).returncode

    def link(self) -> None:
        """Make the library of all objects."""
        objects = sorted(str(path) for path in (COPY / "lo2io/native").rglob("*.o"))
        subprocess.run(["gcc", "-shared", "-o", "lo2io/native/_lib.abi3.so", *objects], cwd=COPY, check=True)


def passes(tests: list[str]) -> bool:
    """True if these tests of the copy pass."""
    environ = {**os.environ, "PYTHONPATH": str(COPY), "PYTHONDONTWRITEBYTECODE": "1"}
    environ.setdefault("LO2IO_EXAMPLES", EXAMPLES)
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *tests]
    try:
        done = subprocess.run(command, check=False, cwd=COPY, env=environ, capture_output=True, timeout=LIMIT_S)
    except subprocess.TimeoutExpired:
        return False
    return done.returncode == 0


def try_change(change: Change, library: Library) -> bool | None:
    """True if the tests notice the change; None: the compiler does."""
    place = COPY / change.file
    source = place.read_text(encoding="utf-8")
    place.write_text(change.apply(source), encoding="utf-8")
    try:
        if change.file.suffix == ".c":
            if not library.compile(change.file):
                return None
            library.link()
        return any(not passes(tests) for tests in (nearest(change.file), tests_of(change.file)) if tests)
    finally:
        place.write_text(source, encoding="utf-8")
        if change.file.suffix == ".c":
            library.compile(change.file)
            library.link()


def main() -> None:
    """Try the chosen changes, one after the other."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--first", type=int, default=0, help="leave out so many of the chosen changes")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", choices=["python", "c"])
    given = parser.parse_args()
    shutil.rmtree(COPY, ignore_errors=True)
    COPY.mkdir(parents=True)
    skipped = shutil.ignore_patterns("__pycache__", "*.o.tmp")
    for name in COPIED:
        source = PROJECT / name
        (shutil.copytree(source, COPY / name, ignore=skipped) if source.is_dir() else shutil.copy(source, COPY / name))
    library = Library()
    chosen = random.Random(given.seed).sample(all_changes(given.only), given.count)[given.first :]  # noqa: S311
    noticed, survived = 0, 0
    whole: dict[str, bool] = {}
    for change in chosen:
        tests = tests_of(change.file)
        if str(tests) not in whole:
            whole[str(tests)] = passes(tests)
            if not whole[str(tests)]:
                print(f"left out: without any change, these fail or take {LIMIT_S} s: {' '.join(tests)}", flush=True)
        found = try_change(change, library) if whole[str(tests)] else None
        if found is None:
            continue
        noticed, survived = noticed + found, survived + (not found)
        if not found:
            print(change.describe((PROJECT / change.file).read_text(encoding="utf-8")), flush=True)
        print(f"\r{noticed} of {noticed + survived} noticed", end="", file=sys.stderr, flush=True)
    print(f"{noticed} of {noticed + survived} changes noticed: {100 * noticed / max(noticed + survived, 1):.0f} %")


if __name__ == "__main__":
    main()
