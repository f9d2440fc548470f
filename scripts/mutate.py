#!/usr/bin/env python3
"""Changes lo2io in one place at a time, and tells which changes no unit test notices.

    .venv/bin/python scripts/mutate.py [--count N] [--seed N] [--again FILE] [OPTION…] [PATH…]

A changed lo2io is a mutant. If no test fails, the mutant *survives*: the tests do not hold what that place means.
Mutants are made of the Python modules of ``lo2io`` and of the C files of ``lo2io/native``; PATH restricts them. Each
possible change is equally likely (``scripts/mutations.py`` has them).

1. All unit tests run once, with marks in lo2io that tell which lines each test reaches (``scripts/reached.py``). This
   is kept in ``.cache/mutants``: later, only test files that have changed run again. ``--anew`` forgets it.
2. For each mutant, the tests that reach its line run until one fails (``scripts/forked_tests.py``): those that are most
   about the changed file first, 5 s of them at most. A mutant that none of these notices is *open*.
3. At the end, the open mutants meet the other tests that reach them: one minute of them at most. What is still not
   noticed survives. What no test reaches is *unreached*.
4. With ``--kernel``, these two meet the tests of the kernel that reach them: 15 s of them at most. Such tests run as
   root, without the protection below: use a machine on which nothing can be lost.

A survivor is not always a missing test: the change may be equivalent, or only a recording shows it. Equivalent changes
stand in ``scripts/equivalent.toml``, each with the reason. They do not count, and no test is asked.

``--again FILE`` reads the output of an earlier run. Only what survived then, was open, or was unreached is tried again,
with the tests that there are now. Both runs need the same seed and the same lo2io.

All of it happens in copies of the project, one for each CPU. If root runs this, unit tests run as the user nobody in a
pid namespace of their own: a mutant may remove files and end processes, but only these.

The standard output has a line for each mutant, then a table of the rooms with the score: the share of the mutants that
are killed. A mutant that takes 20 s of CPU time, and five times as long as its tests do, is *too slow*: it counts, but
not as killed. A mutant of C that compiles to the same machine code changes nothing. It does not count. Neither does one
that is killed by a test that fails without it, too.
"""

from __future__ import annotations

import argparse
import collections
import hashlib
import itertools
import json
import math
import os
import queue
import random
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
import tomllib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import marks
from mutations import Mutant, possible
from reached import Reached

if TYPE_CHECKING:
    from collections.abc import Iterator

PROJECT = Path(__file__).resolve().parent.parent
SCRIPTS = Path("scripts")
KEPT = PROJECT / ".cache/mutants"
TESTS, RECORDING = Path("tests/unit"), Path("tests/kernel")
AS_NOBODY = "unshare --pid --fork --kill-child --mount-proc setpriv --reuid=65534 --regid=65534 --clear-groups"
NOBODY = 65534
PYTEST = ("-q", "-p", "no:cacheprovider", "-p", "no:xdist", "--hypothesis-profile=mutants")
LEFT_OUT = (".git", ".venv", ".cache", ".*_cache", ".hypothesis", "__pycache__", "demo-*")
COMPILE = ("cc", "-fPIC", "-std=gnu11", "-fvisibility=hidden", "-w", "-DPy_LIMITED_API=0x030b0000")
OPTIMIZED = ("-O2",)
FIRST_S, ALL_S, RECORDING_S, WALL_S = 5, 60, 15, 900
SLOWEST_OF_QUICK_S = 0.5
LINE = re.compile(r"(?P<outcome>\w[\w ]*?) +(?P<path>lo2io/\S+):\d+: (?P<change>.*?  →  .*?)  .*")
"""Of the output: a mutant's outcome, the changed file, and its line as it was and is."""


class Library:
    """The native part of a copy: an object for each C file, of which a mutant compiles one again."""

    def __init__(self, copy: Path, flags: tuple[str, ...], like: Library | None = None) -> None:
        self.copy, self._flags = copy, flags
        self.objects = copy / "objects"
        shutil.rmtree(self.objects, ignore_errors=True)
        if like:  # of another copy
            shutil.copytree(like.objects, self.objects)
            self.code = {copy / file.relative_to(like.copy): code for file, code in like.code.items()}
        else:
            self._compile_all()
        self._link()

    def _compile_all(self) -> None:
        self.objects.mkdir()
        source = self.objects / "_lib.c"
        script = f"from lo2io.native.build import ffibuilder; ffibuilder.emit_c_code({str(source)!r})"
        subprocess.run([sys.executable, "-c", script], cwd=self.copy, check=True)
        files = [source, *(self.copy / "lo2io/native").rglob("*.c")]
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            self.code = dict(zip(files, pool.map(self._compile, files), strict=True))
        if self._flags == marks.C_FLAGS:
            hook = self.objects / "hook.c"
            hook.write_text(marks.C_HOOK)
            subprocess.run(["cc", "-O2", "-fPIC", "-c", hook, "-o", hook.with_suffix(".o")], check=True)

    def _object(self, file: Path) -> Path:
        return self.objects / f"{file.parent.name}-{file.stem}.o"

    def _compile(self, file: Path) -> bytes | None:
        """The machine code of a C file; None: the compiler refuses the file."""
        include = [f"-I{place}" for place in ("lo2io/native", "lo2io", sysconfig.get_path("include"))]
        prefix = f"-ffile-prefix-map={self.copy}=."
        command = [*COMPILE, *self._flags, prefix, *include, "-c", file, "-o", self._object(file)]
        done = subprocess.run(command, cwd=self.copy, capture_output=True, check=False)
        return None if done.returncode else self._object(file).read_bytes()

    def _link(self) -> None:
        """Make the library anew, as another file: a process may still have the old one."""
        new = self.objects / "new.so"
        subprocess.run(["cc", "-shared", "-o", new, *sorted(self.objects.glob("*.o"))], check=True)
        new.replace(self.copy / "lo2io/native/_lib.abi3.so")

    def change(self, file: Path) -> str | None:
        """Compile a file that has changed. Returns why the mutant says nothing, if it says nothing."""
        code = self._compile(file)
        if code is None or code == self.code[file]:
            return "no code" if code is None else "same code"
        self._link()
        return None

    def restore(self, file: Path) -> None:
        """Take the change back."""
        self._object(file).write_bytes(self.code[file] or b"")
        self._link()


class Copy:
    """A copy of the project, whose tests run."""

    def __init__(self, place: Path, *, as_root: bool = False) -> None:
        self.place = place
        shutil.copytree(PROJECT, place, dirs_exist_ok=True, ignore=shutil.ignore_patterns(*LEFT_OUT))
        place.chmod(0o755)
        self._home = place / "home"
        self._home.mkdir()
        (place / ".cache/workloads").mkdir(parents=True)  # programs that tests compile
        self._prefix = AS_NOBODY.split() if os.geteuid() == 0 and not as_root else []
        if self._prefix:
            for folder in (self._home, place / ".cache/workloads"):
                os.chown(folder, NOBODY, NOBODY)
        self._times = itertools.count(1)
        self._server: subprocess.Popen[str] | None = None

    def build(self, flags: tuple[str, ...], like: Copy | None = None) -> None:
        """Compile the native part, or copy that of another copy."""
        self.library = Library(self.place, flags, like and like.library)

    def _started(self, *command: str, **environ: str) -> subprocess.Popen[str]:
        """Start a Python as the user nobody."""
        home, places = str(self._home), (self.place, self._home, self.place / SCRIPTS)
        environ |= {"PYTHONPATH": ":".join(map(str, places)), "HOME": home, "TMPDIR": home}
        line = [*self._prefix, sys.executable, *command]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        return subprocess.Popen(
            line, cwd=self.place, env=os.environ | environ, text=True, start_new_session=True, **pipes
        )  # type: ignore[call-overload,no-any-return]

    def measure(self, files: list[str], texts: dict[str, str]) -> Path:
        """Run test files, and note what each of their tests reaches: a folder."""
        folder = self._home / "reached"
        folder.mkdir()
        numbers, nr_lines = marks.numbered(texts)
        (folder / "python").write_bytes(bytes(nr_lines))
        (folder / "c").write_bytes(bytes(marks.C_BYTES))
        (folder / "first.json").write_text(
            json.dumps({str(self.place / file): number for file, number in numbers.items()})
        )
        (self._home / "sitecustomize.py").write_text("import marks\nmarks.install()\n")
        for path in (folder, *folder.iterdir()):
            path.chmod(0o777)
        environ = {marks.VARIABLE: str(folder), "PYTHONPYCACHEPREFIX": f"{self._home}/marked"}
        process = self._started("-m", "pytest", *PYTEST, "-p", "reached", *files, **environ)
        output = process.communicate()[0]
        print(*(line for line in output.splitlines() if line.startswith(("FAILED", "ERROR"))), output[-200:], sep="\n")
        (self._home / "sitecustomize.py").unlink()
        return folder

    def run(self, tests: list[str], cpu_s: float) -> str:
        """Run tests until one fails: ``passed``, ``too slow``, or the test that failed."""
        if self._server is None:
            self._server = self._started(str(SCRIPTS / "forked_tests.py"), PYTHONPYCACHEPREFIX=f"{self._home}/compiled")
        order = {"tests": tests, "cpu_s": cpu_s, "wall_s": WALL_S, "home": str(self._home)}
        self._server.stdin.write(json.dumps(order) + "\n")
        self._server.stdin.flush()
        return self._server.stdout.readline().strip()

    def close(self) -> None:
        """End the server."""
        if self._server:
            self._server.communicate()

    def judge(self, mutant: Mutant, text: bytes, tests: list[str], cpu_s: float) -> str:
        """What the tests say of a mutant, as :meth:`run` does, or why it says nothing."""
        file = self.place / mutant.path
        is_c = file.suffix == ".c"
        self._write(file, mutant.apply(text))
        try:
            nothing = self.library.change(file) if is_c else None
            return nothing or (self.run(tests, cpu_s) if tests else "passed")
        finally:
            self._write(file, text)
            if is_c:
                self.library.restore(file)

    def _write(self, file: Path, text: bytes) -> None:
        """Write a file at a time of its own: Python compares seconds and sizes with what it has compiled."""
        file.write_bytes(text)
        second = next(self._times)
        os.utime(file, (second, second))


def know(copies: list[Copy], tests: list[Path], kept: Path) -> Reached:
    """Which lines each test reaches: what is kept, and what test files show that have changed since."""
    texts = {str(path): (PROJECT / path).read_text("utf-8") for path in marks.files(PROJECT)}
    kept.mkdir(parents=True, exist_ok=True)
    reached, hashes = Reached.load(kept, texts), kept / "hashes.json"
    known = json.loads(hashes.read_text()) if hashes.exists() else {}
    found = {str(path): hashlib.sha256((PROJECT / path).read_bytes()).hexdigest() for path in sorted(tests)}
    for file in known.keys() - found.keys():
        reached.forget(file)
    if changed := [file for file in found if found[file] != known.get(file)]:
        build(copies, marks.C_FLAGS)
        begun = time.monotonic()
        for file in changed:
            reached.forget(file)
        parts = [changed[number :: len(copies)] for number in range(len(copies))]
        with ThreadPoolExecutor(len(copies)) as pool:
            folders = pool.map(lambda copy, part: copy.measure(part, texts), copies, parts)
        for copy, folder in zip(copies, folders, strict=True):
            reached.add(folder, copy.place)
        reached.save(kept)
        hashes.write_text(json.dumps(found))
        print(f"{len(changed)} test files took {time.monotonic() - begun:.0f} s", flush=True)
    print(f"{len(reached.tests):,} tests, {sum(reached.tests.values()):.0f} s of CPU time", flush=True)
    return reached


def build(copies: list[Copy], flags: tuple[str, ...]) -> None:
    """Compile the native part for all copies."""
    copies[0].build(flags)
    for copy in copies[1:]:
        copy.build(flags, copies[0])


def equivalent() -> set[tuple[str, str]]:
    """Changes that change nothing: file, and line as it was and is."""
    tables = tomllib.loads((PROJECT / SCRIPTS / "equivalent.toml").read_text("utf-8"))
    return {(path, f"{each['old']}  →  {each['new']}") for path in tables for each in tables[path]}


def earlier(output: str) -> dict[tuple[str, str], str]:
    """What the output of an earlier run says of each mutant: file, and line as it was and is → outcome."""
    found = map(LINE.fullmatch, output.splitlines())
    return {(each["path"], each["change"]): each["outcome"] for each in found if each}


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


@dataclass
class Verdict:
    """What is known of a mutant.

    Attributes:
        tests: Those that reach it, in the order in which they run.
        nr_run: So many of them have run.
        outcome: ``killed``, ``open``, ``survived``, ``unreached``, ``too slow``, or why the mutant says nothing.
        by: The test that failed.
    """

    mutant: Mutant
    text: bytes
    tests: list[str]
    nr_run: int = 0
    outcome: str = "open"
    by: str = ""


class Judges:
    """Copies of the project that judge mutants, one each at a time."""

    def __init__(self, copies: list[Copy], reached: Reached, end: float) -> None:
        self._copies: queue.SimpleQueue[Copy] = queue.SimpleQueue()
        self._reached, self._end, self._equivalent = reached, end, equivalent()
        self.earlier: dict[tuple[str, str], str] = {}
        for copy in copies:
            self._copies.put(copy)

    def begin(self, mutant: Mutant, text: bytes, most_s: float = FIRST_S) -> Verdict:
        """Let the first tests judge."""
        if (key := mutant.key(text)) in self._equivalent:
            return Verdict(mutant, text, [], outcome="equivalent")
        if (outcome := self.earlier.get(key, "open")) not in {"open", "survived", "unreached"}:
            return Verdict(mutant, text, [], outcome=outcome)
        line = text.count(b"\n", 0, mutant.change.start) + 1
        tests = self._sorted(self._reached.at(str(mutant.path), line), str(mutant.path))
        return self.go_on(Verdict(mutant, text, tests), most_s)

    def _sorted(self, tests: list[str], path: str) -> list[str]:
        """Tests that are most about the changed file first; those of a test file, which share fixtures, together."""
        share = {test: self._reached.share(test, path) for test in tests}
        best: dict[str, float] = collections.defaultdict(float)
        for test in tests:
            file = test.partition("::")[0]
            best[file] = max(best[file], share[test])

        def key(test: str) -> tuple[float, str, bool, float]:
            file = test.partition("::")[0]
            return -best[file], file, self._reached.tests[test] > SLOWEST_OF_QUICK_S, -share[test]

        return sorted(tests, key=key)

    def go_on(self, verdict: Verdict, most_s: float) -> Verdict:
        """Run the tests that have not run yet: those that take so long together. Says so if it is decided."""
        if time.monotonic() > self._end:
            verdict.outcome = verdict.outcome if verdict.nr_run else "not tried"
            return verdict
        seconds = itertools.accumulate(self._reached.tests[test] for test in verdict.tests[verdict.nr_run :])
        nr_now = sum(1 for _ in itertools.takewhile(lambda sum_s: sum_s <= most_s, seconds)) or 1
        chosen = verdict.tests[verdict.nr_run : verdict.nr_run + nr_now]
        if chosen or not verdict.tests:
            self._run(verdict, chosen)
        is_last = verdict.nr_run == len(verdict.tests) or most_s != FIRST_S
        if verdict.outcome == "open" and is_last:
            verdict.outcome = "survived" if verdict.tests else "unreached"
        print(f"{verdict.outcome:9} {verdict.mutant.shown(verdict.text)}  {verdict.by}", flush=True)
        return verdict

    def _run(self, verdict: Verdict, tests: list[str]) -> None:
        copy = self._copies.get()
        try:
            cpu_s = 20 + 5 * sum(self._reached.tests[test] for test in tests)
            said = copy.judge(verdict.mutant, verdict.text, tests, cpu_s)
        finally:
            self._copies.put(copy)
        verdict.nr_run += len(tests)
        if said in {"no code", "same code", "too slow"}:
            verdict.outcome = said
        elif said != "passed":
            verdict.outcome, verdict.by = "killed", said

    def check(self, verdicts: list[Verdict]) -> None:
        """Take back what tests killed that also fail without a change."""
        copy = self._copies.get()
        failing = set[str]()
        killers = {verdict.by for verdict in verdicts} & self._reached.tests.keys()
        while killers and (said := copy.run(sorted(killers), 1e6)) != "passed":
            print(f"without a change, {said} fails", flush=True)
            failing.add(said)
            killers = killers - {said} if said in killers else set()
        for verdict in verdicts:
            verdict.outcome = "unclear" if verdict.by in failing else verdict.outcome
        self._copies.put(copy)


COUNTED = ("killed", "too slow", "survived", "unreached", "open")


def table(verdicts: list[Verdict]) -> str:
    """Outcomes of each room, and the score: the share of those that were killed."""
    counts: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)
    for verdict in verdicts:
        kind = "C" if verdict.mutant.path.suffix == ".c" else "Python"
        for name in (f"`{verdict.mutant.path.parent}`", f"all {kind}", "all"):
            counts[name][verdict.outcome] += 1
    lines = [f"| room | {' | '.join(COUNTED)} | score |", "|---" * (len(COUNTED) + 2) + "|"]
    for room in sorted(counts, key=lambda name: (not name.startswith("`"), name == "all", name)):
        numbers = [counts[room][outcome] for outcome in COUNTED]
        if sum(numbers):
            lines.append(f"| {room} | {' | '.join(map(str, numbers))} | {numbers[0] / sum(numbers):.0%} |")
    return "\n".join(lines)


def options() -> argparse.Namespace:
    """What the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=300, metavar="N", help="how many mutants (300)")
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="which (1)")
    parser.add_argument("--minutes", type=float, default=1e6, metavar="N", help="begin none after this time")
    help_seconds = "CPU time of the tests that an open mutant meets at the end (60)"
    parser.add_argument("--seconds", type=float, default=ALL_S, metavar="N", help=help_seconds)
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), metavar="N", help="so many at a time (one a CPU)")
    help_kernel = "survivors meet these tests of the kernel, too, as root (all of tests/kernel)"
    parser.add_argument("--kernel", nargs="*", type=Path, metavar="FILE", help=help_kernel)
    help_again = "try again what the output of an earlier run calls open, survived or unreached"
    parser.add_argument("--again", type=Path, metavar="FILE", help=help_again)
    parser.add_argument("--anew", action="store_true", help="learn anew what all tests reach")
    parser.add_argument(
        "paths", nargs="*", type=Path, default=[Path("lo2io")], metavar="PATH", help="files or folders (lo2io)"
    )
    return parser.parse_args()


def main() -> None:
    """Try mutants, one on each CPU at a time."""
    given = options()
    os.chdir(PROJECT)
    end = time.monotonic() + 60 * given.minutes
    if given.anew:
        shutil.rmtree(KEPT, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix="lo2io-mutants-") as place, ThreadPoolExecutor(given.jobs) as pool:
        Path(place).chmod(0o711)  # for the user nobody
        copies = [Copy(Path(place, str(number))) for number in range(given.jobs)]
        reached = know(copies, list(TESTS.rglob("test_*.py")), KEPT / "unit")
        build(copies, OPTIMIZED)
        judges = Judges(copies, reached, end)
        chosen = [path for path in marks.files(PROJECT) if any(path.is_relative_to(one) for one in given.paths)]
        mutants, verdicts = sample(chosen, given.seed), list[Verdict]()
        if given.again:
            judges.earlier = earlier(given.again.read_text("utf-8"))
            mutants = (one for one in mutants if one[0].key(one[1]) in judges.earlier)
        while (missing := given.count - len(verdicts)) > 0 and (more := list(itertools.islice(mutants, missing))):
            begun = pool.map(lambda one: judges.begin(*one, given.seconds if given.again else FIRST_S), more)
            verdicts += [each for each in begun if each.outcome in COUNTED]
            if time.monotonic() > end:
                break
        list(
            pool.map(
                lambda each: judges.go_on(each, given.seconds), [each for each in verdicts if each.outcome == "open"]
            )
        )
        judges.check(verdicts)
        for copy in copies:
            copy.close()
        print(table(verdicts), flush=True)
        if given.kernel is not None:
            recorded(
                verdicts, given.kernel or list(RECORDING.glob("test_*.py")), Copy(Path(place, "kernel"), as_root=True)
            )
            print(table(verdicts))


def recorded(verdicts: list[Verdict], tests: list[Path], copy: Copy) -> None:
    """Let tests of the kernel judge what no unit test has noticed. They run one at a time, as root."""
    reached = know([copy], tests, KEPT / "kernel")
    copy.build(OPTIMIZED)
    judges = Judges([copy], reached, math.inf)
    for place, verdict in enumerate(verdicts):
        if verdict.outcome in {"survived", "unreached"}:
            found = judges.begin(verdict.mutant, verdict.text, RECORDING_S)
            verdicts[place] = found if found.outcome != "unreached" else verdict
    judges.check(verdicts)
    copy.close()


if __name__ == "__main__":
    main()
