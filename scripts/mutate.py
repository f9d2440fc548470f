#!/usr/bin/env python3
"""Changes lo2io in one place at a time, and tells which changes no unit test notices.

    .venv/bin/python scripts/mutate.py [--count N] [--seed N] [--minutes N] [--jobs N] [PATH…]

A changed lo2io is a mutant. If no test fails, the mutant *survives*: the tests do not hold what that place means.
Mutants are made of the Python modules of ``lo2io`` and of the C files of ``lo2io/native``; PATH restricts them. Each
possible change is equally likely (``scripts/mutations.py`` has them). First the tests of the directory that mirrors the
changed one run: those of ``tests/unit/spool`` for ``lo2io/spool/writer.py``. If none fails, those of its users follow,
for at most a minute: test files that name the module or one that imports it, and for C those of ``tests/unit/native``
and ``tests/unit/convert``. A survivor is not always a missing test: the change may be equivalent, or only a recording
shows it.

All of it happens in copies of the project, one for each CPU. As root, tests run as the user nobody in a pid namespace
of their own: a mutant may remove files and end processes, but only these.

The standard output has a line for each mutant, then a table of the rooms with the score: the share of the mutants that
tests killed. A mutant of C that compiles to the same machine code changes nothing. It does not count.
"""

from __future__ import annotations

import argparse
import collections
import itertools
import os
import queue
import random
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import threading
import time
import xml.etree.ElementTree as ET
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from mutations import Mutant, possible

if TYPE_CHECKING:
    from collections.abc import Iterator

PROJECT = Path(__file__).resolve().parent.parent
TESTS = Path("tests/unit")
ELSEWHERE = {
    "native/otf2": "otf2/write",
    "native/sums": "reports",
    "native/perfetto": "exports",
    "native/capture": "capture",
}
"""Rooms of C files whose tests lie with those of the Python room that uses them."""
AS_NOBODY = "unshare --pid --fork --kill-child --mount-proc setpriv --reuid=65534 --regid=65534 --clear-groups"
NOBODY = 65534
PYTEST = ("-q", "-p", "no:cacheprovider", "-p", "no:xdist", "--hypothesis-profile=mutants")
LEFT_OUT = (".git", ".venv", ".cache", ".*_cache", ".hypothesis", "__pycache__", "demo-*")
COMPILE = ("cc", "-O2", "-fPIC", "-std=gnu11", "-fvisibility=hidden", "-w", "-DPy_LIMITED_API=0x030b0000")
LEAST_LIMIT_S, LONGEST_S, USERS_S = 30, 1800, 60
LIMITED = ("prlimit", f"--as={16 << 30}", f"--fsize={4 << 30}")
"""A mutant may want all memory, or never stop to write."""


def tests_of(path: Path) -> Path | None:
    """The tests that mirror a file: those of the nearest directory; None: there are none."""
    room = path.parent.relative_to("lo2io")
    room = Path(ELSEWHERE.get(str(room), room))
    while room.parts:
        if (TESTS / room).is_dir():
            return TESTS / room
        room = room.parent
    test = TESTS / f"test_{path.stem}.py"
    return test if test.exists() else None


def users_of(path: Path) -> set[Path]:
    """The test files of those who use a file."""
    if path.suffix == ".c":
        return {test for room in ("native", "convert") for test in (TESTS / room).rglob("test_*.py")}
    name = ".".join(path.with_suffix("").parts)
    importing = (
        rf"\b(from|import) {re.escape(name)}\b|\bfrom {re.escape(name.rpartition('.')[0])} import .*\b{path.stem}\b"
    )
    users = [file for file in Path("lo2io").rglob("*.py") if re.search(importing, file.read_text("utf-8"))]
    names = "|".join(re.escape(".".join(file.with_suffix("").parts)) for file in (path, *users))
    return {test for test in TESTS.rglob("test_*.py") if re.search(rf"\b({names})\b", test.read_text("utf-8"))}


class Library:
    """The native part of a copy: an object for each C file, of which a mutant compiles one again."""

    def __init__(self, copy: Path) -> None:
        self._copy = copy
        self._objects = copy / "objects"
        self._objects.mkdir()
        source = self._objects / "_lib.c"
        script = f"from lo2io.native.build import ffibuilder; ffibuilder.emit_c_code({str(source)!r})"
        subprocess.run([sys.executable, "-c", script], cwd=copy, check=True)
        files = (source, *(copy / "lo2io/native").rglob("*.c"))
        self._code = {file: self._compile(file) for file in files}
        self._link()

    def _object(self, file: Path) -> Path:
        return self._objects / f"{file.parent.name}-{file.stem}.o"

    def _compile(self, file: Path) -> bytes | None:
        """The machine code of a C file; None: the compiler refuses the file."""
        include = [f"-I{place}" for place in ("lo2io/native", "lo2io", sysconfig.get_path("include"))]
        command = [*COMPILE, *include, "-c", file, "-o", self._object(file)]
        done = subprocess.run(command, cwd=self._copy, capture_output=True, check=False)
        return None if done.returncode else self._object(file).read_bytes()

    def _link(self) -> None:
        """Make the library anew, as another file: a process may still have the old one."""
        new = self._objects / "new.so"
        subprocess.run(["cc", "-shared", "-o", new, *sorted(self._objects.glob("*.o"))], check=True)
        new.replace(self._copy / "lo2io/native/_lib.abi3.so")

    def change(self, file: Path) -> str | None:
        """Compile a file that has changed. Returns why the mutant says nothing, if it says nothing."""
        code = self._compile(file)
        if code is None or code == self._code[file]:
            return "no code" if code is None else "same code"
        self._link()
        return None

    def restore(self, file: Path) -> None:
        """Take the change back."""
        self._object(file).write_bytes(self._code[file] or b"")
        self._link()


class Copy:
    """A copy of the project, whose tests run."""

    _known: ClassVar[dict[Path, tuple[list[str], float]]] = {}
    _seconds: ClassVar[dict[str, float]] = {}
    """Test file that passes without a change → how long it takes."""
    _measuring: ClassVar[threading.Lock] = threading.Lock()

    def __init__(self, place: Path) -> None:
        self.place = place
        shutil.copytree(PROJECT, place, dirs_exist_ok=True, ignore=shutil.ignore_patterns(*LEFT_OUT))
        place.chmod(0o755)
        self._home = place / "home"
        self._home.mkdir()
        self._prefix = AS_NOBODY.split() if os.geteuid() == 0 else []
        if self._prefix:
            os.chown(self._home, NOBODY, NOBODY)
        self._library = Library(place)

    def _pytest(self, tests: list[str], limit_s: float, *options: str) -> str:
        """``survived`` if these tests pass, ``killed`` if one fails, ``too slow`` if the time ends before."""
        home = str(self._home)
        environ = os.environ | {"PYTHONPATH": str(self.place), "PYTHONDONTWRITEBYTECODE": "1"}
        environ |= {"HOME": home, "TMPDIR": home}
        command = [*LIMITED, *self._prefix, sys.executable, "-m", "pytest", *PYTEST, *options, *tests]
        with (
            (self.place / "output").open("wb") as output,
            subprocess.Popen(
                command, cwd=self.place, env=environ, stdin=subprocess.DEVNULL, stdout=output, stderr=output,
                start_new_session=True,
            ) as process,
        ):  # fmt: skip
            try:
                return "killed" if process.wait(limit_s) else "survived"
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, 9)
                return "too slow"
            finally:
                process.wait()
                for left in self._home.glob("pytest-of-*"):
                    shutil.rmtree(left, ignore_errors=True)

    def _tests(self, where: Path) -> tuple[list[str], float]:
        """The test files of a directory, the quickest first, and how long they take, in seconds.

        Files that fail without a change are left out, and named on stderr: some want root, or large files.
        """
        with self._measuring:
            if where not in self._known:
                self._known[where] = self._measured(where)
        return self._known[where]

    def _measured(self, where: Path) -> tuple[list[str], float]:
        begun, report = time.monotonic(), self._home / "report.xml"
        report.unlink(missing_ok=True)
        self._pytest([str(where)], LONGEST_S, f"--junitxml={report}")
        seconds: dict[str, float] = collections.defaultdict(float)
        failed = set()
        for case in ET.parse(report).iter("testcase") if report.exists() else ():  # noqa: S314 - pytest wrote it
            file = case.attrib["classname"].replace(".", "/") + ".py"
            seconds[file] += float(case.attrib["time"])
            failed |= {file} if case.find("failure") is not None or case.find("error") is not None else set()
        if failed or not seconds:
            print(f"{where}: without a change, these fail: {sorted(failed) or 'all'}", file=sys.stderr)
        passing = sorted(seconds.keys() - failed, key=seconds.__getitem__)
        self._seconds.update((name, seconds[name]) for name in passing)
        return passing, time.monotonic() - begun

    def outcome(self, mutant: Mutant, text: bytes) -> str:
        """``killed``, ``survived``, ``too slow`` (others may have kept the CPUs), or why the mutant says nothing."""
        tests, seconds = self._tests(tests_of(mutant.path) or TESTS)
        if not tests:
            return "no tests"
        words = _words(mutant.path)
        tests = sorted(tests, key=lambda name: -len(words & _words(Path(Path(name).name))))  # named alike: first
        further, further_seconds = self._tests_of_users(mutant.path, set(tests))
        file = self.place / mutant.path
        is_c = file.suffix == ".c"
        file.write_bytes(mutant.apply(text))
        try:
            nothing = self._library.change(file) if is_c else None
            found = nothing or self._pytest(tests, LEAST_LIMIT_S + 3 * seconds, "-x")
            if found != "survived" or not further:
                return found
            return self._pytest(further, LEAST_LIMIT_S + 3 * further_seconds, "-x")
        finally:
            file.write_bytes(text)
            if is_c:
                self._library.restore(file)

    def _tests_of_users(self, path: Path, own: set[str]) -> tuple[list[str], float]:
        """Further test files of a file's users, the quickest first: a minute of them. And their seconds."""
        files = {str(test) for test in users_of(path)} - own
        for room in sorted({TESTS / Path(name).relative_to(TESTS).parts[0] for name in files}):
            self._tests(room)
        chosen, seconds = list[str](), 0.0
        for name in sorted(files & self._seconds.keys(), key=self._seconds.__getitem__):
            if seconds + self._seconds[name] <= USERS_S:
                chosen.append(name)
                seconds += self._seconds[name]
        return chosen, seconds


def _words(path: Path) -> set[str]:
    return set(re.split(r"\W|_", str(path)))


def sample(paths: list[Path], seed: int) -> Iterator[tuple[Mutant, bytes]]:
    """All mutants that are programs, in random order, each with its file."""
    texts = {path: path.read_bytes() for path in paths}
    mutants = [Mutant(path, change) for path, text in texts.items() for change in sorted(possible(path, text))]
    print(f"{len(mutants):,} possible mutants in {len(paths)} files; seed {seed}", flush=True)
    random.Random(seed).shuffle(mutants)  # noqa: S311 - the same each time
    for mutant in mutants:
        try:
            if mutant.path.suffix == ".py":
                compile(mutant.apply(texts[mutant.path]), mutant.path, "exec", dont_inherit=True)
        except SyntaxError:
            continue
        yield mutant, texts[mutant.path]


def table(found: list[tuple[str, str]]) -> str:
    """Killed, too slow and surviving mutants of each room, and the score: the share of those that were killed."""
    counts: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)
    for room, outcome in found:
        for name in (room, "all"):
            counts[name][outcome] += 1
    lines = ["| room | killed | too slow | survived | score |", "|---|---|---|---|---|"]
    for room in (*sorted(counts.keys() - {"all"}), "all"):
        killed, slow, survived = (counts[room][outcome] for outcome in ("killed", "too slow", "survived"))
        lines.append(f"| `{room}` | {killed} | {slow} | {survived} | {killed / (killed + slow + survived or 1):.0%} |")
    return "\n".join(lines)


def main() -> None:
    """Try mutants, one on each CPU at a time."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=300, metavar="N", help="how many mutants (300)")
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="which (1)")
    parser.add_argument("--minutes", type=float, default=1e6, metavar="N", help="begin none after this time")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), metavar="N", help="so many at a time (one a CPU)")
    parser.add_argument("paths", nargs="*", default=["lo2io"], metavar="PATH", help="files or folders (lo2io)")
    given = parser.parse_args()
    os.chdir(PROJECT)
    end = time.monotonic() + 60 * given.minutes
    files = [file for path in map(Path, given.paths) for file in (path.rglob("*") if path.is_dir() else [path])]
    of_lo2io = [file for file in files if file.suffix == ".py" or (file.suffix == ".c" and "native" in file.parts)]
    with tempfile.TemporaryDirectory(prefix="lo2io-mutants-") as place, ThreadPoolExecutor(given.jobs) as pool:
        Path(place).chmod(0o711)  # for the user nobody
        copies: queue.SimpleQueue[Copy] = queue.SimpleQueue()
        for copy in pool.map(Copy, (Path(place) / str(number) for number in range(given.jobs))):
            copies.put(copy)
        found = []
        mutants = sample(sorted(filter(tests_of, of_lo2io)), given.seed)
        while (missing := given.count - len(found)) and (more := list(itertools.islice(mutants, missing))):
            found += filter(None, pool.map(lambda mutant: judged(*mutant, copies, end), more))
            if time.monotonic() > end:
                break
    print(table(found))


def judged(mutant: Mutant, text: bytes, copies: queue.SimpleQueue[Copy], end: float) -> tuple[str, str] | None:
    """The room of a mutant and its outcome, which is printed; None: it says nothing, or the time has ended."""
    copy = copies.get()
    try:
        if time.monotonic() > end:
            return None
        outcome = copy.outcome(mutant, text)
    finally:
        copies.put(copy)
    print(f"{outcome:9} {mutant.shown(text)}", flush=True)
    return (str(mutant.path.parent), outcome) if outcome in {"killed", "too slow", "survived"} else None


if __name__ == "__main__":
    main()
