"""strace as a second witness: its log, and a recording of the same run, compared call by call.

strace runs inside of lo2io's recording, so both see one run, and must agree on it.
"""

from __future__ import annotations

import errno
import re
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from lo2io.catalog.catalog import load_catalog
from lo2io.model import CallKind

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from workloads.names import Names

Row = dict[str, Any]

CALLS = [
    call.abi_name for call in load_catalog().calls if call.core and call.kind not in {CallKind.CLONE, CallKind.UNSHARE}
]
"""What is compared: the calls that lo2io records by default. strace's own work makes the results of clones differ."""
OWN_NAMES = {
    "_llseek": "lseek",
    "fadvise64_64": "fadvise64",
    "fcntl64": "fcntl",
    "ftruncate64": "ftruncate",
    "mmap2": "mmap",
    "recv": "recvfrom",
    "send": "sendto",
    "stat64": "stat",
}
"""Calls of 32-bit programs that have another name in 64-bit programs, which is the one that lo2io shows."""
OPENS = frozenset(["open", "openat", "openat2", "creat"])
COPIES = frozenset(["sendfile", "copy_file_range", "splice"])
"""Calls with two descriptors in an order of their own: the scenarios of the workload ``names`` compare their names."""
RESTARTED = frozenset({-512, -513, -514, -516})
"""A call that a signal interrupted begins again (include/linux/errno.h); strace shows no result of it."""

_LINE = re.compile(r"(\d+) +(?:<\.\.\. (\w+) resumed>|(\w+)\()(.*)")
_END = re.compile(r"\) += (-?[0-9a-fx?]+)(?:<((?:\\x..)*)>(\(deleted\))?)?(?: (E[A-Z0-9]+))?")
_FIRST = re.compile(r"(\d+)(?:<((?:\\x..)*)>(\(deleted\))?)?")
_SOUGHT = re.compile(r"\[(\d+)\]")
"""The result of an _llseek, which the kernel writes to the program's memory."""


@dataclass(frozen=True)
class Seen:
    """A call in strace's log."""

    call: str
    result: int
    fd: int | None
    """The first argument, where it is a descriptor."""
    name: bytes | None
    """What was open there at the call's entry."""
    new_name: bytes | None
    """What the descriptor that it returned stands for."""


@dataclass
class Comparison:
    """What lo2io and strace saw of one run, and the differences."""

    threads: int = 0
    calls: int = 0
    differences: list[str] = field(default_factory=list)
    """Calls that one of the two does not have, or has with another result."""
    opens: int = 0
    named: int = 0
    """Opens whose file has the name that strace shows."""
    uses: int = 0
    used_unknown: int = 0
    """Uses of a descriptor whose file has no name."""
    wrong: list[str] = field(default_factory=list)
    """Names that differ."""


def strace(log: Path) -> list[str]:
    """The command with its options: descriptors with their names, strings in hexadecimal, no data.

    With a ``?``, strace ignores names that no program of this machine can call.
    """
    calls = ",".join([*CALLS, *(f"?{name}" for name in OWN_NAMES)])
    return ["strace", "-f", "-qq", "-y", "-xx", "-s", "0", "-o", str(log), "-e", f"trace={calls}"]


def read_log(log: Path) -> dict[int, list[Seen]]:
    """The calls of each thread that have a result, from strace's log."""
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
        seen = _seen(resumed or call, begun.pop(tid) if resumed else rest, rest, end)
        if seen.call in CALLS:
            found[tid].append(seen)
    return found


def _seen(call: str, begin: str, rest: str, end: re.Match[str]) -> Seen:
    first = _FIRST.match(begin)
    result = -getattr(errno, end[4]) if end[4] else int(end[1], 0)
    sought = _SOUGHT.search(rest) if call == "_llseek" else None
    return Seen(
        call=OWN_NAMES.get(call, call),
        result=int(sought[1]) if sought and result == 0 else result,
        fd=int(first[1]) if first else None,
        name=_decoded(first[2], first[3]) if first else None,
        new_name=_decoded(end[2], end[3]),
    )


def _decoded(text: str | None, deleted: str | None) -> bytes | None:
    if text is None:
        return None
    return bytes.fromhex(text.replace("\\x", "")) + (b" (deleted)" if deleted else b"")


def compare(names: Names, log: Path) -> Comparison:
    """Compare calls and results of each thread in their order, then the names of files.

    Raises:
        StopIteration: strace saw nothing.
    """
    expected = read_log(log)
    first = next(iter(expected))
    rows = _rows_below(names, first)
    result = Comparison()
    for tid in {**expected, **rows}:
        seen = expected.get(tid, [])
        # Before its exec, the first thread was strace's own child, which strace does not show.
        mine = rows[tid][-len(seen) :] if tid == first else rows[tid]
        result.threads += 1
        result.calls += len(seen)
        here, there = [(row["call"], row["result"]) for row in mine], [(call.call, call.result) for call in seen]
        if here == there:
            _compare_names(names, result, list(zip(seen, mine, strict=True)))
        else:
            result.differences += _differences(tid, here, there)
    return result


def _rows_below(names: Names, pid: int) -> dict[int, list[Row]]:
    """The operations of this process and its descendants, by thread."""
    threads = names.recorded.trace.threads.to_pylist()
    processes = {row["process"] for row in threads if row["pid"] == pid}
    children = defaultdict(set)
    for row in threads:
        children[row["parent_process"]].add(row["process"])
    new = processes
    while new:
        new = {child for parent in new for child in children[parent]} - processes
        processes |= new
    tasks = {row["task"] for row in threads if row["process"] in processes}
    found: dict[int, list[Row]] = defaultdict(list)
    for row in names.rows:
        ended = row["end_time_ns"] is not None and row["result"] not in RESTARTED
        if row["task"] in tasks and row["call"] in CALLS and ended:
            found[row["tid"]].append(row)
    return found


def _differences(tid: int, here: Sequence[tuple[str, int]], there: Sequence[tuple[str, int]]) -> list[str]:
    only_here, only_there = Counter(here) - Counter(there), Counter(there) - Counter(here)
    found = [f"{tid}: lo2io alone {key} {count}x" for key, count in only_here.items()]
    found += [f"{tid}: strace alone {key} {count}x" for key, count in only_there.items()]
    return found or [f"{tid}: another order"]


def _compare_names(names: Names, result: Comparison, pairs: Sequence[tuple[Seen, Row]]) -> None:
    """Each successful open has the same name; each use of a descriptor has that name, or the current one."""
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
