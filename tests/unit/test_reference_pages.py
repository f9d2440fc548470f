"""The reference pages describe the current program."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest
import typer

from lo2io.cli.app import app

ROOT = Path(__file__).parents[2]
CLI = runpy.run_path(str(ROOT / "scripts/reference_cli.py"))


@pytest.mark.parametrize("words", CLI["commands"](), ids=" ".join)
def test_every_command_and_option_is_described(words: tuple[str, ...]) -> None:
    """docs/reference/cli.md has a section for each command with all options of its help; ``make docs`` writes it.

    The page is not compared word for word, for the layout of help depends on the version of typer.
    """
    text = CLI["OUTPUT"].read_text(encoding="utf-8")
    title = f"## {' '.join(('lo2io', *words))}\n"
    assert title in text, "run: make docs"
    section = text.split(title)[1].split("\n## ")[0]
    command = typer.main.get_command(app)
    for word in words:
        command = command.commands[word]  # type: ignore[attr-defined]
    for parameter in command.params:
        for name in () if getattr(parameter, "hidden", False) else parameter.opts:
            assert not name.startswith("--") or name in section, f"{name} is missing; run: make docs"


@pytest.mark.parametrize("words", CLI["commands"](), ids=" ".join)
def test_help_ends_with_examples(words: tuple[str, ...]) -> None:
    """The help of every command that does something ends with two examples."""
    text = CLI["help_text"](words)
    if "COMMAND [ARGS]" not in text:
        assert text.split("Examples:")[1].count("`") >= 4
