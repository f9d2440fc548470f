"""Traces of the OTF2 writer, read back, and rules that hold for all of them.

>>> from build.otf2_builder import START, correct
>>> written = read_back(correct().write(folder))
>>> [(kind, time - START) for kind, time in written.shape("thread 10")][:3]
[('+open', 0), ('CreateHandle', 10), ('-open', 10)]
"""

from __future__ import annotations

import itertools
import re
import shutil
import subprocess
import tempfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import otf2

from lo2io.otf2.merge.flatten import flatten
from lo2io.otf2.merge.sharing import Share
from lo2io.otf2.write.archive import CHUNK_BYTES
from lo2io.verify import verify


@dataclass
class Written:
    """A trace, read back by the otf2 package: events in time order, within a location in file order."""

    path: Path
    events: list[tuple[Any, Any]]
    definitions: Any

    def of(self, location: str) -> list[Any]:
        """The events of the location of that name."""
        return [event for where, event in self.events if where.name == location]

    def shape(self, location: str = "thread fio 100") -> list[tuple[str, int]]:
        """Kind and time of a location's events; regions by name."""
        return [(label(event), event.time) for event in self.of(location)]

    def find(self, kind: str, location: str = "thread fio 100") -> list[Any]:
        """A location's events of one kind."""
        return [event for event in self.of(location) if type(event).__name__ == kind]

    def printed(self, *options: str) -> str:
        """The output of otf2-print, which must have no warning."""
        return self._said("otf2-print", "-Werror", *options)

    def properties(self) -> dict[str, str]:
        """The trace's own properties, in otf2-print's form."""
        lines = self.printed("-I").splitlines()
        return {
            name.split()[-1]: value.removeprefix("Property value").strip()
            for name, value in itertools.pairwise(lines)
            if name.startswith("Property name")
        }

    def markers(self) -> list[str]:
        """The lines of otf2-marker: definitions, each followed by its markers."""
        return self._said("otf2-marker").splitlines()

    def _said(self, *command: str) -> str:
        done = subprocess.run([*command, str(self.path / "traces.otf2")], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        assert not done.stderr, done.stderr
        return done.stdout


def label(event: Any) -> str:
    """``+read`` and ``-read`` for Enter and Leave, ``!vda read`` for a sample, else the event's kind without ``Io``."""
    kind = type(event).__name__
    if kind in ("Enter", "Leave"):
        return ("+" if kind == "Enter" else "-") + event.region.name
    if kind in ("CallingContextEnter", "CallingContextLeave", "CallingContextSample"):
        return {"E": "+", "L": "-", "S": "!"}[kind[len("CallingContext")]] + context_path(event.calling_context)
    return kind.removeprefix("Io")


def context_path(context: Any) -> str:
    """The regions of a calling context from the outermost inwards: ``read/preempted``."""
    names = []
    while context is not None:
        names.append(context.region.name)
        context = context.parent
    return "/".join(reversed(names))


def attributes(event: Any) -> dict[str, Any]:
    """An event's attributes by name."""
    return {attribute.name: value for attribute, value in (event.attributes or {}).items()}


def snake(name: str) -> str:
    """``IoOperationBegin`` in otf2-print's spelling, which abbreviates one kind."""
    if name == "IoChangeStatusFlags":
        return "IO_CHANGE_FLAGS"
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).upper()


def assert_readers_agree(written: Written) -> None:
    """otf2-print and the otf2 package see the same events, in the same order on each location."""
    printed: dict[int, list[tuple[str, int]]] = {}
    for line in written.printed().splitlines():
        found = re.match(r"([A-Z][A-Z_]+) +(\d+) +(\d+)  ", line)
        if found:
            printed.setdefault(int(found[2]), []).append((found[1], int(found[3])))
    read: dict[int, list[tuple[str, int]]] = {}
    for location, event in written.events:
        read.setdefault(location._ref, []).append((snake(type(event).__name__), event.time))
    assert printed == read


def assert_rules(written: Written) -> None:
    """Rules on which readers rely: counts, clock range, nesting, life of handles, matching."""
    clock = written.definitions.clock_properties
    last: dict[str, int] = {}
    stacks: dict[str, list[str]] = {}
    counts = {location.name: 0 for location in written.definitions.locations}
    active = {h.name + str(h._ref) for h in written.definitions.io_handles if h.io_handle_flags.value & 1}
    pending: set[int] = set()
    styles: set[str] = set()
    for location, event in written.events:
        kind, name = type(event).__name__, location.name
        counts[name] += 1
        assert last.get(name, 0) <= event.time
        last[name] = event.time
        assert clock.global_offset <= event.time <= clock.global_offset + clock.trace_length
        styles.add({"Enter": "plain", "Leave": "plain"}.get(kind, "context" if "Context" in kind else ""))
        if kind == "Enter":
            stacks.setdefault(name, []).append(event.region.name)
        elif kind == "Leave":
            assert stacks[name].pop() == event.region.name
        elif "Context" in kind:
            assert_context(event, kind, stacks.setdefault(name, []))
        if kind in ("IoCreateHandle", "IoDuplicateHandle"):
            fresh = event.handle if kind == "IoCreateHandle" else event.new_handle
            active.add(fresh.name + str(fresh._ref))
        elif hasattr(event, "handle"):
            assert event.handle.name + str(event.handle._ref) in active, (kind, event.time)
            if kind == "IoDestroyHandle":
                active.remove(event.handle.name + str(event.handle._ref))
        if kind == "IoOperationBegin":
            assert event.matching_id not in pending
            pending.add(event.matching_id)
        elif kind in ("IoOperationComplete", "IoOperationCancelled"):
            pending.remove(event.matching_id)
    assert not any(stacks.values())
    assert len(styles - {""}) <= 1
    assert counts == {location.name: location.number_of_events for location in written.definitions.locations}
    names = [d.name for d in (*written.definitions.locations, *written.definitions.location_groups)]
    names += [node.name for node in written.definitions.system_tree_nodes]
    assert len(names) == len(set(names))


def assert_context(event: Any, kind: str, stack: list[str]) -> None:
    """A context lies inside of the one entered there: one node is new, its parent made progress (2 steps to it)."""
    path = context_path(event.calling_context)
    if kind == "CallingContextLeave":
        assert stack.pop() == path
        return
    assert event.unwind_distance == 2
    parent = event.calling_context.parent
    assert (context_path(parent) if parent is not None else None) == (stack[-1] if stack else None)
    if kind == "CallingContextEnter":
        stack.append(path)


def libotf2s_files(path: Path) -> dict[str, bytes]:
    """The event files of a trace, as libotf2 writes the events that it reads there."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "T"
        shutil.copytree(path, copy)
        flatten(copy, Share())
        return {file.name: file.read_bytes() for file in (copy / "traces").glob("*.evt")}


def read_back(path: Path) -> Written:
    """Read a trace, whose event files of one chunk must be those of libotf2, byte for byte."""
    files = {name: content for name, content in libotf2s_files(path).items() if len(content) <= CHUNK_BYTES}
    assert {name: (path / "traces" / name).read_bytes() for name in files} == files
    with otf2.reader.open(str(path / "traces.otf2")) as reader:
        events = list(reader.events)
        return Written(path, events, reader.definitions)


def verified(written: Written, *broken: str) -> Written:
    """`lo2io verify` finds these rules broken, and no others."""
    verdict = verify(written.path)
    assert set(verdict.broken) == set(broken), verdict.findings
    return written


_VOLATILE = re.compile(
    r"^(Trace identifier|Version|Creator)\b.*\n|^(Property name +LO2IO::VERSION)\n.*\n", re.MULTILINE
)
"""Values that differ from trace to trace and from release to release."""


def whole_text(trace: Path) -> str:
    """Events, definitions, markers and properties, without values that differ from run to run."""
    anchor = str(trace / "traces.otf2")
    commands = (["otf2-print"], ["otf2-print", "-G"], ["otf2-marker"], ["otf2-print", "-I"])
    texts = [
        subprocess.run([*command, anchor], capture_output=True, text=True, check=True).stdout for command in commands
    ]
    text = _VOLATILE.sub("", "".join(texts))
    return "".join(line.rstrip() + "\n" for line in text.splitlines())


def transfers_by_thread(trace: Path, file: str | None = None) -> Counter[int]:
    """Tid → completed operations of calls (of all files, or of one), from the archive alone.

    A location belongs to the thread in its properties, or from an attribute on, to the thread in that.
    """
    found: Counter[int] = Counter()
    with otf2.reader.open(str(trace / "traces.otf2")) as archive:
        tids = {p.location: p.value for p in archive.definitions.location_properties if p.name == "Thread ID"}
        for location, event in archive.events:
            for attribute, value in (event.attributes or {}).items():
                if attribute.name == "Thread ID":
                    tids[location] = value
            if isinstance(event, otf2.events.IoOperationComplete) and location in tids:
                found[tids[location]] += file is None or (event.handle.file or event.handle).name == file
    return +found
