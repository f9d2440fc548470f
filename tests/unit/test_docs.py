"""The documentation promises only what exists: its links, command lines, numbers and Python are checked."""

from __future__ import annotations

import ast
import dataclasses
import re
import shlex
from pathlib import Path

import pytest
import typer

from lo2io.catalog.catalog import load_catalog
from lo2io.cli.app import app
from lo2io.filter.parser import parse_all
from lo2io.model import SpoolMeta

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "benchmarks").glob("*.md")])
SHELL = {"sh", "console"}
ACTS = {"--help", "--version", "--install-completion", "--show-completion"}
"""Options that act while they are parsed."""
PLACEHOLDERS = re.compile(r"…|\||\[|\bCMD\b.*\.\.\.")
"""Of inline code that shows the form of a command line and is none."""


def fenced(text: str) -> list[tuple[str, str]]:
    """Language and content of each fenced block."""
    return re.findall(r"^```(\w*)\n(.*?)^```$", text, flags=re.DOTALL | re.MULTILINE)


def prose(text: str) -> str:
    """The text without its fenced blocks."""
    return re.sub(r"^```.*?^```$", "", text, flags=re.DOTALL | re.MULTILINE)


def slug(title: str) -> str:
    """The anchor that GitHub gives a heading."""
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")


def anchors(page: Path) -> set[str]:
    """All anchors of a page."""
    return {slug(title) for title in re.findall(r"^#+ (.*)$", prose(page.read_text(encoding="utf-8")), re.MULTILINE)}


def shell_lines(text: str) -> list[str]:
    """The lines of shell blocks, continued ones joined."""
    blocks = [block for language, block in fenced(text) if language in SHELL]
    return [line for block in blocks for line in block.replace("\\\n", " ").splitlines()]


def inline_lines(text: str) -> list[str]:
    """Inline code that may be a command line; it may name a command without its arguments."""
    return [code for code in re.findall(r"`([^`\n]+)`", prose(text)) if not PLACEHOLDERS.search(code)]


def command_lines(lines: list[str]) -> list[list[str]]:
    """The words after ``lo2io`` of each line that has it."""
    found = []
    for line in lines:
        if "lo2io" not in line:
            continue
        lexer = shlex.shlex(line.replace('"$(command -v lo2io)"', "lo2io"), posix=True, punctuation_chars=True)
        lexer.whitespace_split = True
        words = list(lexer)
        start = next((i for i, word in enumerate(words) if word == "lo2io" or word.endswith("/bin/lo2io")), None)
        if start is not None:
            rest = words[start + 1 :]
            end = next((i for i, word in enumerate(rest) if set(word) <= set("();<>|&")), len(rest))
            found.append(rest[:end])
    return [words for words in found if words]


def complaint(words: list[str], *, whole: bool) -> str:
    """The objection of the command line's own parser, or nothing; unless ``whole``, arguments may be missing."""
    try:
        parse(words)
    except Exception as error:  # noqa: BLE001 - the parser's own kinds are private to typer
        if whole or type(error).__name__ != "MissingParameter":
            return f"lo2io {shlex.join(words)}: {error!r}"
    return ""


def parse(words: list[str]) -> None:
    """Let the command line's own parser read it; nothing is run."""
    command = typer.main.get_command(app)
    context = command.make_context("lo2io", list(words), resilient_parsing=words[-1] in ACTS)
    while hasattr(command, "commands"):
        rest = [*context._protected_args, *context.args]
        if not rest:
            return
        name, command, rest = command.resolve_command(context, rest)
        context = command.make_context(name, rest, parent=context)
    events = context.params.get("events") or context.params.get("wanted")
    if events:
        load_catalog().select(tuple(events))
    parse_all(context.params.get("filters") or context.params.get("expressions") or ())


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    """Every relative link names a file that exists, and every anchor a heading of it."""
    for target in re.findall(r"\]\(([^)\s]+)\)", prose(page.read_text(encoding="utf-8"))):
        if re.match(r"\w+:", target):
            continue
        name, _, anchor = target.partition("#")
        linked = (page.parent / name).resolve() if name else page
        assert linked.exists(), f"{page.name}: {target}"
        if anchor:
            assert anchor in anchors(linked), f"{page.name}: {target}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_command_lines_parse(page: Path) -> None:
    """Commands, options, names of events and fields of filters on every ``lo2io …`` line exist."""
    text = page.read_text(encoding="utf-8")
    complaints = [complaint(words, whole=True) for words in command_lines(shell_lines(text))]
    complaints += [complaint(words, whole=False) for words in command_lines(inline_lines(text))]
    assert not any(complaints), [each for each in complaints if each]


def test_examples_of_the_helps_parse() -> None:
    """Each command's help ends with examples, whose filters exist, too."""
    commands = typer.main.get_command(app).commands
    lines = [line for command in commands.values() for line in re.findall(r"`([^`]+)`", command.epilog or "")]
    words = command_lines(lines)
    assert len(words) >= len(commands)
    assert not any(complaints := [complaint(each, whole=True) for each in words]), complaints


@pytest.mark.parametrize(
    "line",
    [
        "sudo lo2io record --nonsense -- true | cat",
        "lo2io nonsense",
        "cd x && .venv/bin/lo2io convert spool",
        "lo2io record -e nonsense -- x",
        "lo2io record --pid here",
        "lo2io record --filter 'file == x' -- true",
        "lo2io diff before after --filter 'file == x'",
    ],
)
def test_wrong_command_lines_are_noticed(line: str) -> None:
    """The test above notices a wrong option, command, argument, event or filter, and a missing one."""
    (words,) = command_lines(shell_lines(f"```sh\n{line}\n```"))
    assert complaint(words, whole=True)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_python_compiles(page: Path) -> None:
    """Python in the documentation compiles."""
    for language, block in fenced(page.read_text(encoding="utf-8")):
        if language == "python":
            ast.parse(block)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_pages_can_be_reached(page: Path) -> None:
    """docs/index.md links every page of docs/, and the README links docs/index.md."""
    if page.parent == ROOT or page.name == "index.md" or page.parent.name == "benchmarks":
        return
    index = (ROOT / "docs/index.md").read_text(encoding="utf-8")
    assert f"]({page.relative_to(ROOT / 'docs')}" in index


def test_spool_reference_names_every_key() -> None:
    """docs/reference/spool.md describes each key of spool.json."""
    text = (ROOT / "docs/reference/spool.md").read_text(encoding="utf-8")
    for field in dataclasses.fields(SpoolMeta):
        assert f"`{field.name}`" in text, field.name
