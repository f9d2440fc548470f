"""Which tests reach which lines of lo2io: ``scripts/mutate.py`` asks only those that reach a change.

As a plugin of pytest, this module notes which marks (``marks.py``) each test has set. :class:`Reached` is all of it.
"""

from __future__ import annotations

import difflib
import itertools
import json
import os
import resource
from pathlib import Path
from typing import TYPE_CHECKING, Any

import marks
import numpy as np
import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator


class Plugin:
    """Notes what each test reaches, and its CPU time. What a shared fixture reaches belongs to all who use it."""

    def __init__(self) -> None:
        self._folder = Path(os.environ[marks.VARIABLE])
        self._bytes = [np.memmap(self._folder / name, np.uint8, "r+") for name in ("python", "c")]
        self._now: list[np.ndarray] = []
        self._shared: dict[object, np.ndarray] = {}
        self._failed: set[str] = set()
        self._found: list[tuple[str, float, np.ndarray]] = []

    def _take(self) -> np.ndarray:
        """What was reached since the last time. The machine code's bytes follow those of the lines."""
        python, c = (np.flatnonzero(each) for each in self._bytes)
        for each in self._bytes:
            each[:] = 0
        return np.concatenate((python, c + len(self._bytes[0])))

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        """Around each test."""
        self._take()
        self._now, begun = [], cpu_seconds()
        done = yield
        self._now.append(self._take())
        defined = itertools.chain(*item._fixtureinfo.name2fixturedefs.values())  # noqa: SLF001 - pytest has no other way
        self._now += [self._shared[each] for each in defined if each in self._shared]
        if item.nodeid not in self._failed:
            self._found.append((item.nodeid, cpu_seconds() - begun, np.unique(np.concatenate(self._now))))
        return done

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: Any) -> Iterator[None]:
        """Around each fixture that several tests share."""
        if fixturedef.scope == "function":
            return (yield)
        self._now.append(self._take())
        done = yield
        self._shared[fixturedef] = self._take()
        self._now.append(self._shared[fixturedef])
        return done

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Leave out tests that fail or are skipped without a change."""
        if not report.passed:
            self._failed.add(report.nodeid)

    def pytest_sessionfinish(self) -> None:
        """Write it down."""
        ids, seconds, places = zip(*self._found, strict=True) if self._found else ((), (), ())
        hits = np.concatenate([np.zeros(0, int), *places]).astype(np.int32)
        lengths = [len(each) for each in places]
        np.savez(self._folder / "found.npz", ids=ids, seconds=seconds, lengths=lengths, hits=hits)


def cpu_seconds() -> float:
    """Of this process and its children."""
    used = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(each.ru_utime + each.ru_stime for each in used)


def moved(old: dict[str, str], new: dict[str, str]) -> np.ndarray:
    """Numbers of lines as they were → as they are; -1: the line has changed."""
    (before, nr_lines), (after, _) = marks.numbered(old), marks.numbered(new)
    numbers = np.full(nr_lines, -1, np.int32)
    for file in old.keys() & new.keys():
        one, other = old[file].splitlines(), new[file].splitlines()
        matcher = difflib.SequenceMatcher(None, one, other, autojunk=False)
        same = [(0, 0, len(one))] if one == other else matcher.get_matching_blocks()
        for place, place_now, length in same:
            lines = np.arange(1, length + 1)
            numbers[before[file] + place + lines] = after[file] + place_now + lines
    return numbers


class Reached:
    """Tests, their CPU time, and which lines each of them reaches.

    Attributes:
        texts: The files of lo2io, as they were when the tests ran.
        tests: Test → seconds.
    """

    def __init__(self, texts: dict[str, str]) -> None:
        self.texts = texts
        self.tests: dict[str, float] = {}
        self._hits: dict[str, np.ndarray] = {}
        self._blocks = np.zeros(0, np.int32)
        self._first = marks.numbered(texts)[0]

    @classmethod
    def load(cls, folder: Path, texts: dict[str, str]) -> Reached:
        """What an earlier run has found, as lines of today's files."""
        self = cls(texts)
        if not (folder / "reached.npz").exists():
            return self
        with np.load(folder / "reached.npz") as found:
            numbers = moved(json.loads((folder / "texts.json").read_text("utf-8")), texts)
            self._blocks = numbers[found["blocks"]]
            self._add(found["ids"], found["seconds"], found["lengths"], numbers[found["hits"]])
        return self

    def save(self, folder: Path) -> None:
        """Keep it for the next run."""
        hits = list(self._hits.values())
        lengths, all_hits = [len(each) for each in hits], np.concatenate([np.zeros(0, np.int32), *hits])
        ids, seconds = list(self.tests), list(self.tests.values())
        np.savez(folder / "reached.npz", ids=ids, seconds=seconds, lengths=lengths, hits=all_hits, blocks=self._blocks)
        (folder / "texts.json").write_text(json.dumps(self.texts), "utf-8")

    def _add(self, ids: np.ndarray, seconds: np.ndarray, lengths: np.ndarray, hits: np.ndarray) -> None:
        for test, cpu_s, places in zip(ids, seconds, np.split(hits, np.cumsum(lengths)[:-1]), strict=True):
            self.tests[str(test)], self._hits[str(test)] = float(cpu_s), np.unique(places[places >= 0])

    def forget(self, file: str) -> None:
        """Drop what is known of a test file, which has changed."""
        for test in [test for test in self.tests if test.partition("::")[0] == file]:
            del self.tests[test], self._hits[test]

    def add(self, folder: Path, root: Path) -> None:
        """Take what the plugin wrote into a folder; ``root`` is the project whose tests ran."""
        nr_lines = (folder / "python").stat().st_size
        blocks = marks.c_blocks(root / "lo2io/native/_lib.abi3.so")
        table = np.full(nr_lines + marks.C_BYTES, -1, np.int32)
        table[:nr_lines] = np.arange(nr_lines)
        for place, (file, line) in blocks.items():
            if file in self._first:
                table[nr_lines + place] = self._first[file] + line
        self._blocks = np.unique(np.concatenate((self._blocks, table[nr_lines:])))
        with np.load(folder / "found.npz") as found:
            self._add(found["ids"], found["seconds"], found["lengths"], table[found["hits"]])

    def at(self, file: str, line: int) -> list[str]:
        """The tests that reach a line.

        What runs when a module is imported is reached by all who call the module, and by its own tests.
        """
        text, first = self.texts[file], self._first[file]
        begins = python_begins(text, line) if file.endswith(".py") else self._c_begins(text, first, line)
        if begins:
            return [test for test, hits in self._hits.items() if any(_has(hits, *[first + at] * 2) for at in begins)]
        mirror = f"tests/unit/{file.removeprefix('lo2io/').rpartition('/')[0]}/test_{Path(file).stem}.py"
        last = first + text.count("\n") + 1
        return [test for test, hits in self._hits.items() if test.startswith(mirror) or _has(hits, first, last)]

    def share(self, test: str, file: str) -> float:
        """Of the lines that a test reaches, the share that lies in a file."""
        first, hits = self._first[file], self._hits[test]
        inside = np.searchsorted(hits, first + self.texts[file].count("\n") + 2) - np.searchsorted(hits, first)
        return float(inside) / max(1, len(hits))

    def _c_begins(self, text: str, first: int, line: int) -> list[int]:
        """The lines at which the blocks of a line begin; empty: the line lies in no function.

        ``TRY(f());`` belongs to the block before it, and has one of its own, which an error alone reaches.
        """
        lines = text.splitlines()
        top = max(number for number, each in enumerate(lines[:line], 1) if each[:1] not in {"", " ", "\t", "{"})
        inside = self._blocks[(self._blocks >= first + top) & (self._blocks <= first + line)] - first
        indent, indent_before = (len(each) - len(each.lstrip()) for each in (lines[line - 1], lines[line - 2]))
        before = inside[inside < line] if indent <= indent_before else inside[:0]
        return [int(each.max()) for each in (inside, before) if len(each)]


def python_begins(text: str, line: int) -> list[int]:
    """The line at which the statement of a line begins; empty: it runs when the module is imported."""
    begin = marks.python_begin(text, line)
    return [] if begin is None else [begin]


def _has(hits: np.ndarray, low: int, high: int) -> bool:
    """Tell whether one of the sorted hits lies between two numbers."""
    return bool(np.searchsorted(hits, low) < np.searchsorted(hits, high, "right"))


def pytest_configure(config: pytest.Config) -> None:
    """Be a plugin."""
    config.pluginmanager.register(Plugin())
