"""Programs people use, and which file each of their descriptors was: as strace saw it, and as lo2io tells it."""

from __future__ import annotations

import errno
import os
import re
import shlex
import shutil
import subprocess
from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lo2io.catalog.catalog import load_catalog
from lo2io.model import CallKind

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from workloads.names import Names

Row = dict[str, Any]

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
OPENS = frozenset(["open", "openat", "openat2", "creat"])
COPIES = frozenset(["sendfile", "copy_file_range", "splice"])
"""Two descriptors in an order of their own: left to the scenarios."""
CALLS = [
    call.abi_name for call in load_catalog().calls if call.core and call.kind not in {CallKind.CLONE, CallKind.UNSHARE}
]

STRACE = ("strace", "-f", "-qq", "-y", "-xx", "-s", "0")
"""All strings in hexadecimal, descriptors with their names, data not at all."""

_LINE = re.compile(r"(\d+) +(?:<\.\.\. (\w+) resumed>|(\w+)\()(.*)")
_END = re.compile(r"\) += (-?[0-9a-fx?]+)(?:<((?:\\x..)*)>(\(deleted\))?)?(?: (E[A-Z]+))?")
_FIRST = re.compile(r"(\d+)(?:<((?:\\x..)*)>(\(deleted\))?)?")
_CHANGING = (
    (re.compile(rb"^/proc/\d+"), b"/proc/PID"),
    (re.compile(rb"/cc[A-Za-z0-9]{6}\."), b"/ccXXXXXX."),
    (re.compile(rb"/\.([^/]+)\.[A-Za-z0-9]{6}$"), rb"/.\1.XXXXXX"),
    (re.compile(rb"^(pipe|socket):\[\d+\]"), rb"\1"),
)
"""Names that are made up at each run."""


@dataclass(frozen=True)
class Seen:
    """One call as strace saw it."""

    call: str
    result: int
    fd: int | None
    """The first argument, where it is a descriptor."""
    name: bytes | None
    """What was open there at the call's entry."""
    new_name: bytes | None
    """What the descriptor that it returned stands for."""


def prepare(folder: Path) -> None:
    """A tree of 121 files in 21 folders, a program in C, a repository of both; all the same every time."""
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
    """A filled folder for each program; in copies git finds other inodes than it knows, and looks into each file."""
    original = folder / "original"
    original.mkdir(parents=True)
    prepare(original)
    places = {name: folder / name for name in PROGRAMS}
    for place in places.values():
        shutil.copytree(original, place, symlinks=True)
    return places


def script(places: dict[str, Path], *, traced: bool) -> str:
    """All programs one after the other, each in its folder; traced: by strace, with a log beside the folder."""
    lines = []
    for name, place in places.items():
        run = ["sh", "-c", f"cd {shlex.quote(str(place))} && {PROGRAMS[name]}"]
        tracer = [
            "strace",
            "-f",
            "-qq",
            "-y",
            "-xx",
            "-s",
            "0",
            "-o",
            str(log_of(place)),
            "-e",
            f"trace={','.join(CALLS)}",
        ]
        lines.append(shlex.join([*tracer, *run] if traced else run))
    return " && ".join(lines)


def log_of(place: Path) -> Path:
    """Where strace writes what it sees of the program of this folder."""
    return place.with_suffix(".strace")


def _decoded(text: str | None, deleted: str | None) -> bytes | None:
    if text is None:
        return None
    return bytes.fromhex(text.replace("\\x", "")) + (b" (deleted)" if deleted else b"")


def read_log(log: Path) -> dict[int, list[Seen]]:
    """What strace wrote with ``-f -y -xx``: the calls of each thread."""
    found: dict[int, list[Seen]] = defaultdict(list)
    begun: dict[int, str] = {}
    for line in log.read_text().splitlines():
        match = _LINE.match(line)
        if not match:
            assert re.search(r"\+\+\+|---", line), f"strace wrote {line}"
            continue
        tid, resumed, call, rest = int(match[1]), match[2], match[3], match[4]
        if rest.endswith("<unfinished ...>"):
            begun[tid] = rest
            continue
        end = _END.search(rest)
        if not end or end[1] == "?":
            continue
        first = _FIRST.match(begun.pop(tid) if resumed else rest)
        found[tid].append(
            Seen(
                call=resumed or call,
                result=-getattr(errno, end[4]) if end[4] else int(end[1], 0),
                fd=int(first[1]) if first else None,
                name=_decoded(first[2], first[3]) if first else None,
                new_name=_decoded(end[2], end[3]),
            )
        )
    return found


def steady(name: bytes | None, *folders: Path) -> bytes | None:
    """The same in every run of the same work: without what is made up, each of these folders under one name."""
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


@dataclass
class Comparison:
    """Rows of the table beside what strace saw."""

    opens: int = 0
    named: int = 0
    uses: int = 0
    used_unknown: int = 0
    wrong: list[str] | None = None


def compare(names: Names, log: Path) -> Comparison:
    """Thread by thread the same calls; of each open that succeeded the same name, of each use that or today's."""
    rows: dict[int, list[Row]] = defaultdict(list)
    for row in names.rows:
        if row["call"] in CALLS:
            rows[row["tid"]].append(row)
    result = Comparison(wrong=[])
    expected = read_log(log)
    for index, (tid, calls) in enumerate(expected.items()):
        mine = rows[tid][-len(calls) :] if index == 0 else rows[tid]  # the first was strace's own child before its exec
        assert [(row["call"], row["result"]) for row in mine] == [(seen.call, seen.result) for seen in calls]
        compare_thread(names, result, list(zip(calls, mine, strict=True)))
    return result


def compare_thread(names: Names, result: Comparison, pairs: Sequence[tuple[Seen, Row]]) -> None:
    """Add what the names of one thread's calls are, row by row; both have the same calls."""
    assert result.wrong is not None
    opened_as: dict[int, bytes] = {}
    for seen, row in pairs:
        if seen.call in OPENS and seen.result >= 0:
            assert seen.new_name is not None
            result.opens += 1
            name = names.name_of(row["handle"])
            result.named += name == seen.new_name
            if name not in {None, seen.new_name}:
                result.wrong.append(f"{row['tid']} {seen}: table {name!r}")
            opened_as[seen.result] = seen.new_name
        elif seen.name is not None and seen.call not in COPIES | OPENS and seen.result != -errno.EBADF:
            result.uses += 1
            name = names.name_of(row["handle"])
            result.used_unknown += name is None
            if name not in {None, seen.name, opened_as.get(seen.fd or 0)}:
                result.wrong.append(f"{row['tid']} {seen}: table {name!r}")
