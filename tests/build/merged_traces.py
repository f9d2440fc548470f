"""Traces of several hosts, and what their archives say, with names in place of ids.

>>> cluster = small_cluster(folder, ["a", "b"])
>>> sorted(entry.name for entry in cluster.iterdir())
['host=a', 'host=b']
>>> [event.kind for event in told(cluster / "host=a")["thread reader 200"][:2]]
['Enter', 'IoOperationBegin']
"""

from __future__ import annotations

import os
import re
import shutil
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from typing import TYPE_CHECKING, Any

import otf2
import pyarrow as pa

from build.small_machine import spool_of_a_small_machine
from lo2io.convert.convert import convert
from lo2io.trace.correction import correction_of

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from lo2io.trace.correction import Correction


_HOST = re.compile(r" @\w+")


def small_cluster(
    directory: Path, hosts: Iterable[str], mode: str = "process", *, sched: bool = False, **changes: Any
) -> Path:
    """The trace of a small machine for each host, all alike; ``changes`` are of ``spool.json``."""
    spool = spool_of_a_small_machine(directory.with_name("spool"), mode, sched=sched, **changes)
    first, *others = hosts
    convert(spool, directory / f"host={first}")
    shutil.rmtree(spool)
    for host in others:
        replicate(directory / f"host={first}", directory / f"host={host}")
    return directory


def replicate(trace: Path, copy: Path) -> None:
    """Another host with the same trace, by hard links."""
    shutil.copytree(trace, copy, copy_function=os.link)


def write_correction(trace: Path, points: list[tuple[int, int]]) -> Correction:
    """A correction beside the tables of a host."""
    table = pa.table({"time_ns": [time for time, _ in points], "offset_ns": [offset for _, offset in points]})
    with pa.OSFile(str(trace / "lo2io" / "clock.arrow"), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table)
    return correction_of(points)


@dataclass(frozen=True)
class Told:
    """An event with names in place of ids."""

    kind: str
    time: int
    facts: tuple[tuple[str, str], ...]


def told(trace: Path) -> dict[str, list[Told]]:
    """Location → its events in the order of the file. Names lose what follows `` @``: the host."""
    found: dict[str, list[Told]] = {}
    with otf2.reader.open(str(trace / "traces.otf2")) as archive:
        for location in archive.definitions.locations:
            found[location.name] = []
        for location, event in archive.events:
            found[location.name].append(_told(event))
    return found


def _told(event: Any) -> Told:
    facts = [(name, _words(value)) for name, value in vars(event).items() if name not in {"time", "attributes"}]
    facts += sorted((attribute.name, _words(value)) for attribute, value in (event.attributes or {}).items())
    return Told(type(event).__name__, event.time, tuple(facts))


def _words(value: Any) -> str:
    """The value, or the names of a definition and of what it refers to."""
    parts = [getattr(value, part, None) for part in ("name", "region", "parent", "io_paradigm", "file", "metric_class")]
    words = [part if isinstance(part, str) else _words(part) for part in parts if part is not None]
    words += [member.name for member in getattr(value, "members", ())]
    return _HOST.sub("", " ".join(words) if words else str(value))


def written(trace: Path) -> dict[str, bytes]:
    """The definitions and events of an archive. Its anchor has an id of its own."""
    return {path.name: path.read_bytes() for path in (trace / "traces.def", *sorted((trace / "traces").iterdir()))}


def two_processes() -> ProcessPoolExecutor:
    """They know what this process knows once the first piece of work is given to them."""
    return ProcessPoolExecutor(2, get_context("fork"))
