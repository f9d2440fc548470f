#!/usr/bin/env python3
"""Read traces with other programs, and compare what they count with lo2io's tables.

usage: other_readers.py TRACE ... [--with ARCHIVE] [--pipit DIRECTORY]

TRACE is the trace of a machine, the merged archive of many nodes, or one merged with an application's own, which
``--with`` names. The programs are otf2-print (Debian's otf2-tools), Python's otf2, and pipit from a checkout of its
repository, because the pipit of PyPI is an empty package. For each I/O paradigm and mode, the completed operations and
their bytes must agree with the tables, and with what the application's archive has. Flushes are not compared. Exit
code 1: something differs, or a program failed.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
from collections import Counter
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import otf2
from otf2.events import IoOperationBegin, IoOperationComplete

from lo2io.trace.reader import open_trace

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator

    from lo2io.trace.reader import Trace

UNDEFINED = 2**64 - 1
BYTES_KINDS = {"read": ("READ",), "write": ("WRITE",), "copy": ("READ", "WRITE")}
"""Kind of a call → modes of its operations."""
PIPIT = """
import json, sys
from _otf2.Config import EnumBase
plain = EnumBase.__str__
def text(self):  # otf2 3.2 has no text for several flags at once
    try:
        return plain(self)
    except KeyError:
        return f"{type(self).__name__}({self.value})"
EnumBase.__str__ = text
import pipit
trace = pipit.Trace.from_otf2(sys.argv[1])
of = {
    kind: {f"{kind} {int(row['ID'])}": row["Attributes"] for _, row in rows.iterrows()}
    for kind, rows in trace.definitions.groupby("Definition Type") if kind in ("IoHandle", "IoParadigm")
}
for name, facts in zip(trace.events["Name"], trace.events["Attributes"]):
    if name in ("IoOperationBegin", "IoOperationComplete"):
        paradigm = of["IoParadigm"][of["IoHandle"][facts["handle"]]["io_paradigm"]]["identification"]
        mode, size = facts.get("mode", "").rsplit(".", 1)[-1], facts.get("bytes_result")
        print(json.dumps([facts["handle"], facts["matching_id"], paradigm, mode, size]))
"""
Counts = Counter[tuple[str, str, str]]
"""Paradigm, mode, and "operations" or "bytes" → number."""
Event = tuple["Hashable", int, str, str, int | None]
"""Handle, matching id, paradigm, and the mode of a start or the bytes of a completion."""


def add(counts: Counts, paradigm: str, mode: str, size: int | None) -> None:
    """Count one completed operation. ``size``: its bytes; None: unknown."""
    counts[paradigm, mode, "operations"] += 1
    counts[paradigm, mode, "bytes"] += size or 0


def parts(trace: Path) -> list[Path]:
    """The traces of the machines that are merged in an archive; a machine's own trace."""
    if (trace / "lo2io").is_dir():
        return [trace]
    return sorted(trace.glob("host=*")) or [trace.parent]


def has_requests(trace: Path) -> bool:
    """True if an archive has block requests as operations."""
    printed = subprocess.run(["otf2-print", "-I", trace / "traces.otf2"], capture_output=True, text=True, check=True)
    found = re.search(r"LO2IO::BLOCK_RECORDS\nProperty value +(.+)", printed.stdout)
    return found is None or found[1] != "samples"


def of_tables(path: Path) -> Counts:
    """The operations that a machine's trace must have, without flushes."""
    trace = open_trace(path)
    counts = of_calls(trace) + of_rings(trace)
    if has_requests(path):
        for row in trace.requests.to_pylist():
            if row["status"] == "completed" and row["operation"] in {"read", "write"}:
                add(counts, "block_io", row["operation"].upper(), None if row["error"] else row["bytes_result"])
    return counts


def of_calls(trace: Trace) -> Counts:
    """The operations of system calls."""
    counts: Counts = Counter()
    kinds = {call["name"]: call["kind"] for call in trace.metadata["calls"]}
    for row in trace.operations.to_pylist():
        if row["status"] == "completed":
            for mode, handle in zip(BYTES_KINDS.get(kinds[row["call"]], ()), ("handle", "handle2"), strict=False):
                if row[handle] is not None:
                    add(counts, "POSIX", mode, None if row["error"] else row["bytes_result"])
    return counts


def of_rings(trace: Trace) -> Counts:
    """The operations of requests of io_uring and libaio."""
    counts: Counts = Counter()
    modes = {opcode["name"]: opcode["io_mode"].upper() for opcode in trace.metadata["opcodes"]}
    aio = {row["ring"] for row in trace.table("rings").to_pylist() if row["kind"] == "libaio"}
    for row in trace.ring_requests.to_pylist():
        if row["status"] in {"completed", "refused"} and modes.get(row["opcode"]) in {"READ", "WRITE"}:
            paradigm = "libaio" if row["ring"] in aio else "io_uring"
            add(counts, paradigm, modes[row["opcode"]], row["bytes_result"])
    return counts


def of_python(anchor: Path) -> Counts:
    """What Python's otf2 reads."""

    def events() -> Iterator[Event]:
        with otf2.reader.open(str(anchor)) as opened:
            for _, event in opened.events:
                if isinstance(event, IoOperationBegin | IoOperationComplete):
                    paradigm = event.handle.io_paradigm.identification
                    begins = isinstance(event, IoOperationBegin)
                    mode = str(event.mode).rsplit(".", 1)[-1] if begins else ""
                    yield event.handle, event.matching_id, paradigm, mode, None if begins else event.bytes_result

    return joined(events())


def of_otf2_print(anchor: Path) -> Counts:
    """What otf2-print writes."""
    definitions = subprocess.run(["otf2-print", "-G", anchor], capture_output=True, text=True, check=True).stdout
    named = dict(re.findall(r'^IO_PARADIGM +(\d+) +Identification: "(.*?)"', definitions, re.MULTILINE))
    handles = dict(re.findall(r'^IO_HANDLE +(\d+) .*I/O Paradigm: ".*?" <(\d+)>', definitions, re.MULTILINE))
    begin = re.compile(r"IO_OPERATION_BEGIN .*<(\d+)>, Mode: (\w+), .*Matching Id: (\d+)")
    complete = re.compile(r"IO_OPERATION_COMPLETE .*<(\d+)>, Bytes Result: (\d+), Matching Id: (\d+)")
    printed = subprocess.run(["otf2-print", anchor], capture_output=True, text=True, check=True).stdout

    def events() -> Iterator[Event]:
        for line in printed.splitlines():
            if found := begin.match(line):
                yield found[1], int(found[3]), named[handles[found[1]]], found[2], None
            elif found := complete.match(line):
                yield found[1], int(found[3]), named[handles[found[1]]], "", int(found[2])

    return joined(events())


def of_pipit(anchor: Path, checkout: Path) -> Counts:
    """What pipit reads.

    Raises:
        RuntimeError: It fails.
    """
    command: list[Any] = [sys.executable, "-c", PIPIT, anchor.parent.resolve()]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, cwd=checkout)
    if ran.returncode:
        raise RuntimeError(ran.stderr.strip().splitlines()[-1])
    return joined(map(json.loads, ran.stdout.splitlines()))


def joined(events: Iterator[Event]) -> Counts:
    """Counts of starts joined with completions: a matching id is unique for its handle."""
    counts: Counts = Counter()
    begun: dict[tuple[Hashable, int], str] = {}
    for handle, ident, paradigm, mode, size in events:
        if size is None:
            begun[handle, ident] = mode
        elif (handle, ident) in begun:
            add(counts, paradigm, begun.pop((handle, ident)), None if size == UNDEFINED else size)
    return counts


def differences(name: str, read: Callable[[], Counts], wanted: Counts) -> int:
    """Print what differs between a reader's counts and the tables'; return how much does."""
    try:
        found = read()
    except (RuntimeError, subprocess.CalledProcessError) as error:
        print(f"  {name} fails: {error}")
        return 1
    keys = {key for key in found | wanted if key[1] != "FLUSH"}
    wrong = sorted(key for key in keys if found[key] != wanted[key])
    for key in wrong:
        print(f"  {name}: {' '.join(key)}: {found[key]:,}, the tables have {wanted[key]:,}")
    if not wrong:
        operations, size = (sum(found[key] for key in keys if key[2] == what) for what in ("operations", "bytes"))
        print(f"  {name}: {operations:,} reads and writes of {size:,} bytes agree")
    return len(wrong)


def main() -> int:
    """Compare each trace; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("traces", nargs="+", type=Path, metavar="TRACE", help="a trace of lo2io, with its tables")
    parser.add_argument("--with", type=Path, dest="application", metavar="ARCHIVE", help="the application's .otf2 file")
    parser.add_argument("--pipit", type=Path, metavar="DIRECTORY", help="checkout of github.com/hpcgroup/pipit")
    arguments = parser.parse_args()
    wrong = 0
    for trace in arguments.traces:
        print(trace)
        anchor = trace / "traces.otf2"
        wanted = of_python(arguments.application) if arguments.application else Counter()
        for part in parts(trace):
            wanted += of_tables(part)
        wrong += differences("otf2-print", partial(of_otf2_print, anchor), wanted)
        wrong += differences("Python's otf2", partial(of_python, anchor), wanted)
        if arguments.pipit:
            wrong += differences("pipit", partial(of_pipit, anchor, arguments.pipit), wanted)
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
