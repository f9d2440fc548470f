"""The script that changes lo2io in one place at a time: what it is told of equivalent changes, and of earlier runs."""

from __future__ import annotations

import importlib
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

if TYPE_CHECKING:
    from types import ModuleType

ROOT = Path(__file__).parents[2]
EQUIVALENT = tomllib.loads((ROOT / "scripts/equivalent.toml").read_text("utf-8"))


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Loads a script as a module."""
    monkeypatch.syspath_prepend(ROOT / "scripts")

    def load(name: str) -> ModuleType:
        return importlib.import_module(name)

    return load


@pytest.mark.parametrize("path", EQUIVALENT)
def test_equivalent_changes_are_changes_of_todays_files(path: str, script: Any) -> None:
    """Each has a reason, too."""
    mutations, text = script("mutations"), (ROOT / path).read_bytes()
    mutants = (mutations.Mutant(Path(path), change) for change in mutations.possible(Path(path), text))
    possible = {mutant.key(text)[1] for mutant in mutants}
    assert [each for each in EQUIVALENT[path] if f"{each['old']}  →  {each['new']}" not in possible] == []
    assert all(each["why"] for each in EQUIVALENT[path])


def test_an_earlier_run_is_read_back(script: Any) -> None:
    """The last word on a mutant counts. Lines of code may have spaces and colons."""
    lines = (
        "5 tests",
        "open      lo2io/a.py:7: if a: b  →  if not a: b  ",
        "too slow  lo2io/a.py:8: x  →  y  ",
        "killed    lo2io/a.py:7: if a: b  →  if not a: b  tests/unit/test_a.py::test_it",
        "unreached lo2io/native/b.c:9: f(a, b);  →  ;  ",
    )
    assert script("mutate").earlier("\n".join(lines)) == {
        ("lo2io/a.py", "if a: b  →  if not a: b"): "killed",
        ("lo2io/a.py", "x  →  y"): "too slow",
        ("lo2io/native/b.c", "f(a, b);  →  ;"): "unreached",
    }


@pytest.mark.parametrize(("line", "begins"), [(3, [3]), (4, [4, 3]), (6, [6]), (7, [7, 6]), (1, [])])
def test_the_blocks_of_a_line_of_c(script: Any, line: int, begins: list[int]) -> None:
    """A line begins in the block before it, unless it is the first after a condition."""
    text = "int f(void)\n{\n    a();\n    TRY(b());\n    if (c)\n        d();\n    TRY(e());\n}\n"
    reached = script("reached").Reached({"f.c": text})
    reached._blocks = np.array([3, 4, 6, 7], np.int32)
    assert reached._c_begins(text, 0, line) == begins
