"""Common programs, and the file of each of their descriptors: as strace saw it, and as lo2io reports it."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from collections import Counter
from typing import TYPE_CHECKING

from workloads.as_strace import OPENS, strace

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from workloads.as_strace import Seen

PROGRAMS = {
    "git": "git status >status",
    "find": "find tree -name '*7*' -newer sources/main.c >found",
    "gcc": "gcc -O1 -Isources -o program sources/main.c",
    "grep": "grep -r needle tree >matches",
    "python": "/usr/bin/python3 -c 'import json, email.message, xml.dom.minidom' </dev/null",
    "tar": "tar -cf all.tar tree sources && mkdir unpacked && tar -xf all.tar -C unpacked",
    "rsync": "rsync -a tree/ copy/",
}
"""Shell commands, each in a folder of its own that ``prepare`` has filled."""
DATES = {"GIT_AUTHOR_DATE": "2000-01-01T00:00:00Z", "GIT_COMMITTER_DATE": "2000-01-01T00:00:00Z"}
"""Of the commit, on which the names of objects depend."""
CATS = 500

_CHANGING = (
    (re.compile(rb"^/proc/\d+"), b"/proc/PID"),
    (re.compile(rb"/cc[A-Za-z0-9]{6}\."), b"/ccXXXXXX."),
    (re.compile(rb"/\.([^/]+)\.[A-Za-z0-9]{6}$"), rb"/.\1.XXXXXX"),
    (re.compile(rb"^(pipe|socket):\[\d+\]"), rb"\1"),
)
"""Names that are made up at each run."""


def prepare(folder: Path) -> None:
    """A tree of 121 files in 21 folders, a C program, a repository of both; the same every time."""
    tree, sources = folder / "tree", folder / "sources"
    for index in range(120):
        place = tree / f"d{index % 20}"
        place.mkdir(parents=True, exist_ok=True)
        (place / f"f{index}").write_text(f"{'needle' if index % 7 == 0 else 'hay'} {index}\n" * 20)
    (tree / "a new\nline \u00fc").write_text("needle\n")
    sources.mkdir()
    (sources / "own.h").write_text("int answer(void);\n")
    (sources / "main.c").write_text(
        '#include <stdio.h>\n#include <stdlib.h>\n#include "own.h"\nint main(void) { return printf("x") - 1; }\n'
    )
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b", "-c", "gc.auto=0"]
    for arguments in (["init", "-q", "."], ["add", "tree", "sources"], ["commit", "-q", "-m", "x"]):
        subprocess.run([*git, *arguments], cwd=folder, check=True, capture_output=True, env=os.environ | DATES)
    (folder / "tree/d3/f3").write_text("changed\n")
    (folder / "untracked").write_text("new\n")


def copies(folder: Path) -> dict[str, Path]:
    """A filled folder for each program. In copies, git finds other inodes than it knows, so it reads each file."""
    original = folder / "original"
    original.mkdir(parents=True)
    prepare(original)
    places = {name: folder / name for name in PROGRAMS}
    for place in places.values():
        shutil.copytree(original, place, symlinks=True)
    return places


def script(places: dict[str, Path], *, traced: bool) -> str:
    """All programs one after another, each in its folder; traced: under strace, with a log beside the folder."""
    lines = []
    for name, place in places.items():
        run = ["sh", "-c", f"cd {shlex.quote(str(place))} && {PROGRAMS[name]}"]
        lines.append(shlex.join([*strace(log_of(place)), *run] if traced else run))
    return " && ".join(lines)


def log_of(place: Path) -> Path:
    """The file of strace's log for the program of this folder."""
    return place.with_suffix(".strace")


def steady(name: bytes | None, *folders: Path) -> bytes | None:
    """The name in a form that is equal in every run: without random parts, each of these folders under one name."""
    if name is None:
        return None
    for folder in folders:
        name = name.replace(os.fsencode(folder), b"FOLDER")
    for folder in folders:
        name = name.replace(os.fsencode(folder.parents[1]), b"ABOVE")
    for pattern, text in _CHANGING:
        name = pattern.sub(text, name)
    return name


def opened(calls: Iterable[Seen], *folders: Path) -> Counter[bytes | None]:
    """How often each file was opened."""
    return Counter(steady(seen.new_name, *folders) for seen in calls if seen.call in OPENS and seen.result >= 0)
