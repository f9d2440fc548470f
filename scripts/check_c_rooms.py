"""Checks the order of the rooms in lo2io/native: a file uses only its own room and earlier ones.

It checks the includes of each file, and for each function that a file names, the room that defines it. No files may
depend on one another in a circle, outside of the rooms in ``CIRCLES``. A function that one file alone uses must be
static, so that the compiler tells when nobody uses it any more. And each header must compile alone.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

NATIVE = Path("lo2io/native")
ENGINE = ("api", "hash", "input", "tables", "cache", "rings", "block", "calls", "engine")
"""Rooms of the engine: each may use itself and those before it."""
STAGES = {
    "otf2": ("api", "hash", "otf2"),
    "perfetto": ("api", "perfetto"),
    "capture": ("api", "hash", "input", "capture"),
    "sums": ("api", "hash", "sums"),
    "merge": ("api", "hash", "merge"),
}
"""All other rooms, and what each may use."""
CIRCLES = {"rings"}
"""Rooms whose files may depend on one another: the state machine of a ring and its requests is one thing."""
AS_ROOM = {"bpf": "api"}
"""Headers outside of lo2io/native: those of the records that BPF programs write."""

COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)
TEXT = re.compile(r'"(?:\\.|[^"\\\n])*"')
INCLUDE = re.compile(r'^#include "([^"/]+)/([^"]+)"', re.MULTILINE)
DEFINITION = re.compile(r"^(?!static|typedef|#)\w[\w \t*]*?\b(\w+)\([^;{}]*\)\s*\{", re.MULTILINE)
OWN = re.compile(r"^(?:static\b[^=;{]*?\b|[A-Z]+\()(\w+)\b[,(]", re.MULTILINE)
"""Functions of one file alone, some of them made by a macro."""
MACRO = re.compile(r"^#define (?:\\\n|.)*", re.MULTILINE)
NAME = re.compile(r"(?<![.>])\b\w+\b")
"""Names that are not members of a struct."""

Files = dict[Path, str]
Uses = dict[Path, dict[Path, set[str]]]


def open_to(path: Path) -> tuple[str, ...]:
    """The rooms whose headers and functions a file may use."""
    room = path.parts[0]
    return STAGES[room] if room in STAGES else ENGINE[: ENGINE.index(room) + 1]


def uses(files: Files) -> Uses:
    """For each C file, the others that define functions which it names, and those functions."""
    code = {path: TEXT.sub("", COMMENT.sub("", text)) for path, text in files.items()}
    home = {name: path for path, text in code.items() if path.suffix == ".c" for name in DEFINITION.findall(text)}
    used: Uses = {}
    for path, text in code.items():
        of_file = used.setdefault(path, {})
        for name in set(NAME.findall(text)) - set(OWN.findall(text)):
            if path.suffix == ".c" and home.get(name, path) != path:
                of_file.setdefault(home[name], set()).add(name)
    return used


def against_the_order(files: Files, used: Uses) -> list[str]:
    """Includes and calls of rooms that are not open to a file."""
    included = [
        f"{NATIVE / path} includes {room}/{name}, which is further on"
        for path, text in files.items()
        for room, name in INCLUDE.findall(text)
        if AS_ROOM.get(room, room) not in open_to(path)
    ]
    called = [
        f"{NATIVE / path} uses {', '.join(sorted(names))} of {where}, which is further on"
        for path, places in used.items()
        for where, names in places.items()
        if where.parts[0] not in open_to(path)
    ]
    return included + called


def circles(used: Uses) -> list[str]:
    """The first circle of files, if there is one."""

    def node(path: Path) -> str:
        return path.parts[0] if path.parts[0] in CIRCLES else str(path)

    graph: dict[str, set[str]] = {}
    for path, places in used.items():
        graph.setdefault(node(path), set()).update(node(where) for where in places if node(where) != node(path))
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as circle:
        return [f"{NATIVE}: a circle of files, each used by the next: {', '.join(circle.args[1])}"]
    return []


def open_without_need(files: Files, used: Uses) -> list[str]:
    """Functions that could be static: no other file and no macro uses them, and Python does not see them."""
    elsewhere = {name for places in used.values() for names in places.values() for name in names}
    headers = [(path, text) for path, text in files.items() if path.suffix == ".h"]
    of_macros = {name for _, text in headers for macro in MACRO.findall(text) for name in NAME.findall(macro)}
    of_python = {name for path, text in headers if path.parts[0] == "api" for name in NAME.findall(text)}
    return [
        f"{NATIVE / path}: {name} is used by this file alone: let it be static"
        for path, text in files.items()
        if path.suffix == ".c"
        for name in DEFINITION.findall(COMMENT.sub("", text))
        if name not in elsewhere | of_macros | of_python
    ]


def incomplete_headers(files: Files) -> list[str]:
    """Headers that need another one before them. Those of api/ come in the order of all.h, in which cffi reads them."""
    compiler = [os.environ.get("CC", "cc"), "-std=gnu11", "-fsyntax-only", f"-I{NATIVE}", f"-I{NATIVE.parent}", "-xc"]
    found = []
    for path in files:
        if path.suffix == ".h" and path.parts[0] != "api":
            done = subprocess.run([*compiler, NATIVE / path], capture_output=True, text=True, check=False)
            if done.returncode:
                found.append(f"{NATIVE / path} does not compile alone:\n{done.stderr}")
    return found


def main() -> int:
    """Prints what is wrong; returns 1 if anything is."""
    files = {
        path.relative_to(NATIVE): path.read_text(encoding="utf-8")
        for path in sorted(NATIVE.rglob("*.[ch]"))
        if path.parent != NATIVE
    }
    used = uses(files)
    found = against_the_order(files, used) + circles(used) + open_without_need(files, used) + incomplete_headers(files)
    print(*found, sep="\n", end="\n" if found else "", file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
