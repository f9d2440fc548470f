#!/usr/bin/env python3
"""Read traces with other programs, and compare what they count with lo2io's tables.

usage: other_readers.py TRACE ... [--pipit DIRECTORY]

The programs are otf2-print (Debian's otf2-tools), Python's otf2, and pipit from a checkout of its repository, because
the pipit of PyPI is an empty package. For each I/O paradigm and mode, the completed operations and their bytes must
agree with the tables. pipit tells no bytes, so its completions are compared with those of Python's otf2. Flushes are
not compared. Exit code 1: something differs, or a program failed.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import otf2
from otf2.events import IoOperationBegin, IoOperationComplete

from lo2io.trace.reader import open_trace

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lo2io.trace.reader import Trace

UNDEFINED = 2**64 - 1
BYTES_KINDS = {"read": ("READ",), "write": ("WRITE",), "copy": ("READ", "WRITE")}
"""Kind of a call → modes of its operations."""
PIPIT = """
import sys, pipit
events = pipit.Trace.from_otf2(sys.argv[1]).events
print((events["Name"] == "IoOperationComplete").sum())
"""
Counts = Counter[tuple[str, str, str]]
"""Paradigm, mode, and "operations" or "bytes" → number."""


def add(counts: Counts, paradigm: str, mode: str, size: int | None) -> None:
    """Count one completed operation. ``size``: its bytes; None: unknown."""
    counts[paradigm, mode, "operations"] += 1
    counts[paradigm, mode, "bytes"] += size or 0


def of_tables(trace: Trace) -> Counts:
    """The operations that the trace must have, without flushes: by calls, block requests and requests of rings."""
    counts: Counts = Counter()
    kinds = {call["name"]: call["kind"] for call in trace.metadata["calls"]}
    for row in trace.operations.to_pylist():
        if row["status"] == "completed":
            for mode, handle in zip(BYTES_KINDS.get(kinds[row["call"]], ()), ("handle", "handle2"), strict=False):
                if row[handle] is not None:
                    add(counts, "POSIX", mode, None if row["error"] else row["bytes_result"])
    if trace.metadata["mode"] == "process":
        for row in trace.requests.to_pylist():
            if row["status"] == "completed" and row["operation"] in {"read", "write"}:
                add(counts, "block_io", row["operation"].upper(), None if row["error"] else row["bytes_result"])
    modes = {opcode["name"]: opcode["io_mode"].upper() for opcode in trace.metadata["opcodes"]}
    aio = {row["ring"] for row in trace.table("rings").to_pylist() if row["kind"] == "libaio"}
    for row in trace.ring_requests.to_pylist():
        if row["status"] in {"completed", "refused"} and modes.get(row["opcode"]) in {"READ", "WRITE"}:
            paradigm = "libaio" if row["ring"] in aio else "io_uring"
            add(counts, paradigm, modes[row["opcode"]], row["bytes_result"])
    return counts


def of_python(trace: Path) -> Counts:
    """What Python's otf2 reads."""

    def events() -> Iterator[tuple[int, str, str, int | None]]:
        with otf2.reader.open(str(trace / "traces.otf2")) as opened:
            for _, event in opened.events:
                if isinstance(event, IoOperationBegin):
                    paradigm = event.handle.io_paradigm.identification
                    yield event.matching_id, paradigm, str(event.mode).rsplit(".", 1)[-1], None
                elif isinstance(event, IoOperationComplete):
                    yield event.matching_id, "", "", event.bytes_result

    return joined(events())


def of_otf2_print(trace: Path) -> Counts:
    """What otf2-print writes."""
    anchor = str(trace / "traces.otf2")
    definitions = subprocess.run(["otf2-print", "-G", anchor], capture_output=True, text=True, check=True).stdout
    named = dict(re.findall(r'^IO_PARADIGM +(\d+) +Identification: "(.*?)"', definitions, re.MULTILINE))
    handles = dict(re.findall(r'^IO_HANDLE +(\d+) .*I/O Paradigm: ".*?" <(\d+)>', definitions, re.MULTILINE))
    begin = re.compile(r"IO_OPERATION_BEGIN .*<(\d+)>, Mode: (\w+), .*Matching Id: (\d+)")
    complete = re.compile(r"IO_OPERATION_COMPLETE .*Bytes Result: (\d+), Matching Id: (\d+)")
    printed = subprocess.run(["otf2-print", anchor], capture_output=True, text=True, check=True).stdout

    def events() -> Iterator[tuple[int, str, str, int | None]]:
        for line in printed.splitlines():
            if found := begin.match(line):
                yield int(found[3]), named[handles[found[1]]], found[2], None
            elif found := complete.match(line):
                yield int(found[2]), "", "", int(found[1])

    return joined(events())


def joined(events: Iterator[tuple[int, str, str, int | None]]) -> Counts:
    """Counts of begins (id, paradigm, mode, None) joined with completions (id, "", "", bytes)."""
    counts: Counts = Counter()
    begun: dict[int, tuple[str, str]] = {}
    for ident, paradigm, mode, size in events:
        if size is None:
            begun[ident] = paradigm, mode
        elif ident in begun:
            add(counts, *begun.pop(ident), None if size == UNDEFINED else size)
    return counts


def of_pipit(trace: Path, checkout: Path) -> int:
    """The number of completions that pipit reads."""
    command: list[Any] = [sys.executable, "-c", PIPIT, trace.resolve()]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, cwd=checkout)
    if ran.returncode:
        raise RuntimeError(ran.stderr.strip().splitlines()[-1])
    return int(ran.stdout)


def differences(name: str, found: Counts, wanted: Counts) -> int:
    """Print what differs between a reader's counts and the tables'; return how much does."""
    keys = {key for key in found | wanted if key[1] != "FLUSH"}
    wrong = sorted(key for key in keys if found[key] != wanted[key])
    for key in wrong:
        print(f"  {name}: {' '.join(key)}: {found[key]:,}, the tables have {wanted[key]:,}")
    if not wrong:
        print(f"  {name}: {sum(found[key] for key in keys if key[2] == 'operations'):,} reads and writes agree")
    return len(wrong)


def main() -> int:
    """Compare each trace; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("traces", nargs="+", type=Path, metavar="TRACE", help="a trace of lo2io, with its tables")
    parser.add_argument("--pipit", type=Path, metavar="DIRECTORY", help="checkout of github.com/hpcgroup/pipit")
    arguments = parser.parse_args()
    wrong = 0
    for trace in arguments.traces:
        print(trace)
        wanted, by_python = of_tables(open_trace(trace)), of_python(trace)
        wrong += differences("otf2-print", of_otf2_print(trace), wanted)
        wrong += differences("Python's otf2", by_python, wanted)
        if arguments.pipit:
            every = sum(number for key, number in by_python.items() if key[2] == "operations")
            try:
                number = of_pipit(trace, arguments.pipit)
            except RuntimeError as error:
                print(f"  pipit fails: {error}")
                wrong += 1
                continue
            print(f"  pipit: {number:,} completions, Python's otf2 has {every:,}")
            wrong += number != every
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
