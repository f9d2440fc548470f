"""An OTF2 archive of any tool, without lo2io's tables, as a trace that can be reported and exported.

In: an archive. Out: tables in a temporary directory, opened as a trace. Facts that OTF2 does not have stay unknown. The
metadata's key ``foreign`` names the tool and lists what is not known. lo2io makes no statement about events that the
tool missed. Memory grows with the number of definitions and of operations under way, not with the number of events.
"""

from __future__ import annotations

import contextlib
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from lo2io.catalog.catalog import load_catalog
from lo2io.errors import TraceError
from lo2io.model import UNKNOWN_U32, ClockSync, Completeness, SpoolMeta, Totals
from lo2io.otf2.foreign.definitions import block_devices
from lo2io.otf2.foreign.events import ForeignEvents
from lo2io.otf2.foreign.rows import CALL_ROW, REQUEST_ROW, UNKNOWN_TICKS, Clock, Spill
from lo2io.otf2.foreign.tables import TableMaker
from lo2io.otf2.foreign.words import describe
from lo2io.otf2.library import DAMAGED, Library
from lo2io.otf2.read.anchor import find_anchor, readable_locations
from lo2io.otf2.read.definitions import BLOCK_PARADIGM, handles_of, read_definitions
from lo2io.otf2.read.ends import check_ends
from lo2io.otf2.read.events import read_events
from lo2io.trace.names import ANCHOR
from lo2io.trace.reader import open_trace
from lo2io.trace.writer import TableWriter

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from lo2io.model import BlockDevice
    from lo2io.otf2.read.definitions import Definitions
    from lo2io.trace.reader import Trace

_OWN: Final = "lo2io "
"""The beginning of the creator's name in lo2io's archives."""
_FACTS: Final = ("COMMAND", "MODE", "KERNEL", "MACHINE", "CLOCK", "COMPLETENESS", "LOST", "RECORDED_BY")
"""Properties of lo2io's archives that the tables' metadata have, too."""


@contextlib.contextmanager
def open_archive(path: Path) -> Iterator[Trace]:
    """Open an OTF2 archive without tables: a directory, or its ``.otf2`` file.

    Raises:
        TraceError: The path is no archive, or the archive is damaged.
    """
    if not _is_archive(path):
        answer = "neither lo2io's tables nor an .otf2 file is there" if path.is_dir() else "no such file or directory"
        raise TraceError(
            f"cannot open {path} as a trace",
            answer,
            "give the directory that `lo2io record -o` wrote, or an OTF2 archive",
        )
    anchor = find_anchor(path)
    with tempfile.TemporaryDirectory(prefix="lo2io-") as folder:
        # The folder has the trace's name, because exports are named after their trace.
        place = Path(folder) / (path.parent if path.is_file() and path.name == ANCHOR else path.absolute()).name
        place.mkdir()
        yield _Archive(anchor, place).tables()


def _is_archive(path: Path) -> bool:
    return path.is_file() or (path.is_dir() and any(path.glob("*.otf2")))


class _Archive:
    """Reads an archive once and writes its tables."""

    def __init__(self, anchor: Path, place: Path) -> None:
        self._anchor, self._place = anchor, place
        self._spills = {
            name: Spill(place / name, dtype)
            for name, dtype in (("calls", CALL_ROW), ("requests", REQUEST_ROW), ("rings", REQUEST_ROW))
        }

    def tables(self) -> Trace:
        """Read the archive; return its tables, opened."""
        try:
            self._read()
            self._write()
        finally:
            for spill in self._spills.values():
                spill.close()
        return open_trace(self._place)

    def _read(self) -> None:
        library, catalog = Library(), load_catalog()
        with library.reader(self._anchor) as reader:
            check_ends(self._anchor)
            self._definitions = definitions = read_definitions(library, reader)
            self._clock = _clock_of(self._anchor, definitions)
            self._creator = library.creator(reader) or ""
            self._own = self._creator.startswith(_OWN)
            properties = {name: library.property(reader, f"LO2IO::{name}") for name in _FACTS}
            self._facts = {name: text for name, text in properties.items() if text}
            kinds = {call.abi_name: call.kind for call in catalog.calls}
            readable = readable_locations(self._anchor, definitions)
            self._events = events = ForeignEvents(readable, definitions, kinds, self._spills, own=self._own)
            read_events(library, reader, self._anchor, readable, events)
            events.finish()
        for spill in self._spills.values():
            spill.finish()

    def _write(self) -> None:
        catalog, tally, clock = load_catalog(), self._events.tally, self._clock
        disks = block_devices(self._definitions, handles_of(self._definitions, BLOCK_PARADIGM))
        maker = TableMaker(self._definitions, self._events, clock, disks, catalog)
        self._pids = any(pid != UNKNOWN_U32 for pid in maker.threads.pids)
        with TableWriter(self._place, self._meta(disks), maker.calls, catalog.opcodes) as writer:
            for batch in maker.batches(self._spills):
                writer.write(batch)
            proof = Completeness(0, 0, 0, tally.orphans, tally.in_flight, tally.events, proven=False)
            begin, end = self._span()
            totals = Totals(nr_ring_requests=self._spills["rings"].rows)
            writer.close(totals, proof, begin, end, {"foreign": describe(self._subject(), maker.paradigms())})

    def _subject(self) -> dict[str, Any]:
        """The facts for :mod:`lo2io.otf2.foreign.words`."""
        tally, events = self._events.tally, self._events
        counted = {ref: values[2] for ref, values in self._definitions.table("location").items()}
        return {
            "tool": self._creator,
            "own": self._own,
            "trace": str(self._anchor.parent if self._anchor.name == ANCHOR else self._anchor),
            "anchor": str(self._anchor),
            "completeness": self._facts.get("COMPLETENESS", ""),
            "lost": self._facts.get("LOST", ""),
            "events": tally.events,
            "missing_events": sum(max(0, number - tally.of_location[ref]) for ref, number in counted.items()),
            "orphans": tally.orphans,
            "in_flight": tally.in_flight,
            "cancelled": tally.cancelled,
            "samples": tally.samples,
            "calls": self._spills["calls"].rows,
            "requests": self._spills["requests"].rows,
            "ring_requests": self._spills["rings"].rows,
            "told": sorted(events.told),
            "pids": self._pids,
        }

    def _span(self) -> tuple[int, int]:
        """Begin and end of the trace, in ns.

        Other tools' clock properties may cover more than the trace: lo2s has the machine's uptime as its length. So
        their traces last from the first event to the last one.
        """
        clock, tally = self._clock, self._events.tally
        if self._own or not tally.events:
            return clock.moment(clock.offset), clock.moment(clock.offset + clock.length)
        return clock.moment(tally.first), clock.moment(tally.last)

    def _host(self) -> int | None:
        """The system tree's first node of class *node*, as Score-P and lo2io have it, else the tree's root."""
        nodes = self._definitions.table("node")
        hosts = (ref for ref, values in nodes.items() if self._definitions.text(values[1]) == "node")
        roots = (ref for ref, values in nodes.items() if values[2] not in nodes)
        return next(hosts, next(roots, None))

    def _meta(self, disks: Mapping[int, BlockDevice]) -> SpoolMeta:
        clock, host = self._clock, self._host()
        known = clock.realtime not in {0, UNKNOWN_TICKS} and clock.realtime < 2**63
        offset, (begin, end) = clock.moment(clock.offset), self._span()
        return SpoolMeta(
            lo2io_version=self._facts.get("RECORDED_BY", ""),
            complete=True,
            mode=self._facts.get("MODE", "process"),
            command=tuple(self._facts.get("COMMAND", "").split()),
            roots=(),
            recorder_pid=0,
            hostname="" if host is None else self._definitions.name("node", host),
            kernel=self._facts.get("KERNEL", ""),
            machine=self._facts.get("MACHINE", ""),
            cpus=(),
            events=(),
            formats=(),
            header_page="",
            clock=self._facts.get("CLOCK", "the trace's"),
            syncs=(ClockSync(offset, offset, clock.realtime, 0),) if known else (),
            start_ns=begin,
            stop_ns=end,
            ring_bytes=0,
            ring_bytes_wanted=0,
            opener="",
            scope="",
            counts=(),
            mounts=(),
            devices=tuple({disk.device: disk for disk in disks.values()}.values()),
        )


def _clock_of(anchor: Path, definitions: Definitions) -> Clock:
    if not definitions.clocks or not definitions.clocks[0][0]:
        answer = "its definitions have no clock, or one without a resolution"
        raise TraceError(f"reading the times of {anchor}", answer, DAMAGED)
    return Clock(*definitions.clocks[0])
