"""Comments, docstrings and pages name files of the repository that exist.

The last parts of a path suffice: ``records.h``, ``capture/options.py``.
"""

from __future__ import annotations

import ast
import io
import re
import subprocess
import tokenize
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
ROOMS = ("lo2io", "docs", "tests", "scripts", "benchmarks", "tracepoints")
SKIPPED = ("tests/data/", "tests/golden/", "CHANGELOG.md")
"""Input and output of tests, and a page about the past."""
SUFFIXES = ("md", "py", "c", "h", "toml", "sh")
NAMED = re.compile(rf"(?<![\w./<*…-])((?:\.\.?/)*[\w.*-]+(?:/[\w.*-]+)*\.(?:{'|'.join(SUFFIXES)}))(?![\w/*]|\.\w)")
"""A name of a file, or a pattern of names; not the end of a longer path, and no header in angle brackets."""
PLACED = re.compile(rf"(?<![\w./*…-])((?:{'|'.join(ROOMS)})/[\w./*-]*[\w*/])")
"""A path from the repository's root: of a file or a folder."""
ROLE = re.compile(r":\w+:`~?(lo2io(?:\.\w+)+)`")
"""A module, or what is in one, as a docstring refers to it."""
FOLDER = re.compile(r"`([\w.*-]+(?:/[\w.*-]+)*)/`")
"""A folder, between backticks."""
KERNEL = re.compile(r"(arch|block|drivers|fs|include|io_uring|ipc|kernel|lib|mm|net|tools)/.*\.[ch]$")
"""Linux' own sources."""
HEADERS = re.compile(
    r"(asm|asm-generic|bpf|linux|netinet|sys)/\w+\.h$|OTF2_\w+\.[ch]$|(.*/)?(SCOREP|scorep)_\w+\.[ch]$"
)
"""Of the system, of the OTF2 library, and of Score-P."""
FOREIGN = frozenset(("unistd.h", "errno.h", "io_uring.h", "aio.h", "libbpf.h", "sqpoll.c", "tty_jobctrl.c", "two.py"))
"""Named without their folder: sources of Linux and of the C library; a program that a page records."""
IN_TRACES = re.compile(r"T/|traces$|seg-\d+$|lo2io/[\w.*-]+\.(arrow|json|part)$")
"""What traces and spools hold; ``lo2io/`` is a folder of each trace, too: that of the tables."""
PLACEHOLDER = re.compile(r"NAME|RELEASE|_X\b")


@cache
def tracked() -> tuple[str, ...]:
    """The repository's files, including new ones that are not ignored."""
    listed = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(listed, cwd=ROOT, check=True, capture_output=True, text=True).stdout.splitlines()
    return tuple(name for name in names if (ROOT / name).is_file())


@cache
def endings() -> frozenset[str]:
    """All names that a file or folder may be given: all last parts of its path."""
    paths = {parent for name in tracked() for parent in (name, *map(str, Path(name).parents))}
    split = [path.split("/") for path in paths]
    return frozenset("/".join(parts[at:]) for parts in split for at in range(len(parts)))


def said_in(name: str) -> Iterator[str]:
    """The prose of a file: comments and docstrings, or a page without its blocks of code."""
    text = (ROOT / name).read_text(encoding="utf-8")
    if name.endswith(".py"):
        if any(True for line in text.splitlines() for _ in missing(line.partition("#")[2])):  # else no comment is wrong
            tokens = tokenize.generate_tokens(io.StringIO(text).readline)
            yield from (token.string for token in tokens if token.type == tokenize.COMMENT)
        yield from docstrings(ast.parse(text))
    elif name.endswith((".c", ".h")):
        yield from re.findall(r"/\*.*?\*/|//[^\n]*", text, flags=re.DOTALL)
    elif name.endswith(".md"):
        yield re.sub(r"\]\([^)]*\)", "]", re.sub(r"^```.*?^```$", "", text, flags=re.DOTALL | re.MULTILINE))
    elif name.endswith((".toml", ".sh")) or name == "Makefile":
        yield from re.findall(r"(?:^|\s)#[^\n]*", text)


def docstrings(node: ast.AST) -> Iterator[str]:
    """The strings that stand alone below a node of the tree; expressions have none."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Expr):
            if isinstance(child.value, ast.Constant) and isinstance(child.value.value, str):
                yield child.value.value
        elif isinstance(child, ast.stmt | ast.excepthandler | ast.match_case):
            yield from docstrings(child)


def missing(text: str) -> Iterator[str]:
    """Names in a text that look like files, folders or modules, and are none."""
    named = (*NAMED.findall(text), *PLACED.findall(text), *FOLDER.findall(text))
    for path in dict.fromkeys(path.rstrip("./") for path in named):
        if any(pattern.match(path) for pattern in (KERNEL, HEADERS, IN_TRACES)) or path in FOREIGN:
            continue
        if not PLACEHOLDER.search(path) and not is_there(path):
            yield path
    for name in ROLE.findall(text):
        if not is_known(name):
            yield name


def is_there(path: str) -> bool:
    """True if a file or folder has this name; a star stands for any part of one name."""
    wanted = re.sub(r"^(\.\.?/)+", "", path)
    if "*" not in wanted:
        return wanted in endings()
    pattern = re.compile(re.escape(wanted).replace(r"\*", "[^/]*"))
    return any(pattern.fullmatch(each) for each in endings())


def is_known(name: str) -> bool:
    """True if a dotted name is a module, or a name in its module."""
    place = ROOT
    for part in name.split("."):
        if (place / part).is_dir():
            place /= part
        elif (place / f"{part}.py").is_file():
            place /= f"{part}.py"
        else:
            within = place if place.is_file() else place / "__init__.py"
            return bool(re.search(rf"\b{part}\b", within.read_text(encoding="utf-8")))
    return True


def test_named_files_exist() -> None:
    """A reader who follows a comment finds the file that it names."""
    names = [name for name in tracked() if name.endswith(SUFFIXES) or name == "Makefile"]
    wrong = {
        name: sorted({path for text in said_in(name) for path in missing(text)})
        for name in names
        if not name.startswith(SKIPPED)
    }
    assert {name: paths for name, paths in wrong.items() if paths} == {}


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("mirrored in bpf.py", "bpf.py"),
        ("see docs/reference/trace.md for it", "docs/reference/trace.md"),
        ("`lo2io/_native/`, or else", "lo2io/_native"),
        ("in `_native/` alone", "_native"),
        ("of capture/bpf.py.", "capture/bpf.py"),
        ("`lo2io/report*/page.py`", "lo2io/report*/page.py"),
        ("as :mod:`lo2io.foreign` has it", "lo2io.foreign"),
        (":class:`~lo2io.capture.options.Nothing`", "lo2io.capture.options.Nothing"),
    ],
)
def test_a_wrong_name_is_noticed(text: str, path: str) -> None:
    """The test above notices it, anywhere in a sentence."""
    assert list(missing(text)) == [path]


@pytest.mark.parametrize(
    "text",
    [
        *("records.h and capture/options.py", "lo2io/cli/, scripts/*.sh", "kernel/events/core.c says so", "<sched.h>"),
        *(":class:`~lo2io.capture.options.RecordRequest`", "the trace's lo2io/metadata.json", "../reference/tables.md"),
    ],
)
def test_a_right_name_passes(text: str) -> None:
    """Names of this repository's files by their last parts, and names of other projects' files."""
    assert list(missing(text)) == []
