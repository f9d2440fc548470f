"""Builders of input: spools, traces, tables and histories written by hand, each with an example at its top.

Tests run the examples by :func:`run_example`.
"""

from __future__ import annotations

import doctest
import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


def run_example(name: str, folder: Path, **given: object) -> None:
    """Run the example in the docstring of the builder ``name``, with the builder's own names and these.

    Raises:
        AssertionError: There is no example, or it shows something else.
    """
    builder = importlib.import_module(f"build.{name}")
    known = {**vars(builder), "folder": folder, **given}
    example = doctest.DocTestParser().get_doctest(builder.__doc__ or "", known, name, builder.__file__, 0)
    assert example.examples, f"build/{name}.py has no example"
    shown: list[str] = []
    failed, _ = doctest.DocTestRunner(verbose=False).run(example, out=shown.append)
    assert not failed, "".join(shown)
