"""The archive that an application wrote about itself while lo2io recorded it, as a part of a merged archive.

In: an archive of another tool, such as Score-P. Out: its definitions and markers in the merged archive, and the local
definitions of its locations. It keeps all its ids; lo2io's definitions are numbered after them. So its mapping tables
stay as they are, and every kind of definition that libotf2 knows is carried over: each callback of a reader has the
arguments of the writer's function, with the writer in the place of the user data.
"""

from __future__ import annotations

import ctypes
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from lo2io.errors import TraceError, UsageError
from lo2io.otf2.library import DAMAGED, U64, UNDEFINED_U32, Library, address, definition_type, has
from lo2io.otf2.merge.part import read_markers
from lo2io.otf2.read.anchor import find_anchor
from lo2io.otf2.read.definitions import LOCATION_CPU_THREAD, LOCATION_GROUP_PROCESS, Definitions, read_definitions
from lo2io.otf2.read.ends import check_ends
from lo2io.otf2.read.events import SION
from lo2io.trace.correction import Correction, correction_of
from lo2io.trace.names import events_file

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from lo2io.otf2.merge.part import Marker
    from lo2io.otf2.write.archive import Archive

_REMEDY: Final = "name the .otf2 file that the application's tool wrote"
_NOT_CARRIED: Final = ("ClockProperties", "Unknown")
"""The merged archive has a clock of its own; what libotf2 does not know cannot be written."""
_MOST_IDS: Final = 2**32 - 2**28
FIRST_KINDS: Final = {
    "string": "string",
    "node": "node",
    "location_group": "location-group",
    "attribute": "attribute",
    "paradigm": "paradigm",
    "region": "region",
    "context": "calling-context",
    "generator": "interrupt-generator",
    "member": "metric-member",
    "metric": "metric",
    "group": "group",
    "file": "file",
    "handle": "handle",
}
"""Member of ``lo2_merge_first`` → kind of definition."""


@dataclass(frozen=True, slots=True)
class Process:
    """A process of the application.

    Attributes:
        group: Its location group.
        host: The name of the node of the system tree in which it lies.
        node: That node.
        pid: Its process id, if a property of the group tells it.
        rank: Its rank in MPI_COMM_WORLD, if the group's name tells it.
        locations: Those of its threads, in rising order.
    """

    group: int
    host: str
    node: int
    pid: int | None
    rank: int | None
    locations: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Application:
    """What is known of the archive before it is merged."""

    anchor: Path
    definitions: Definitions
    chunk_bytes: int
    definition_bytes: int
    creator: str
    properties: dict[str, str]
    markers: list[Marker]

    @property
    def clock(self) -> tuple[int, int, int]:
        """Ticks per second, first tick, last tick."""
        resolution, start, length, _realtime = self.definitions.clocks[0]
        return resolution, start, start + length

    @property
    def locations(self) -> list[int]:
        """All locations, in rising order."""
        return sorted(self.definitions.table("location"))

    @property
    def folder(self) -> Path:
        """Where the files of locations lie."""
        return self.anchor.with_suffix("")

    @property
    def has_local_definitions(self) -> bool:
        """False: no location has any, not even a file for them."""
        return next(self.folder.glob("*.def"), None) is not None

    @property
    def nr_events(self) -> int:
        """As the definitions of locations say."""
        return sum(values[2] for values in self.definitions.table("location").values())

    @property
    def style(self) -> str:
        """How it enters regions; empty: it has none."""
        if self.definitions.table("calling-context"):
            return "calling contexts"
        return "regions" if self.definitions.table("region") else ""

    @property
    def first_number(self) -> int:
        """The first number above the lower 32 bits of all ids of the application's locations."""
        return max((ref & UNDEFINED_U32 for ref in self.locations), default=-1) + 1

    @property
    def root(self) -> int:
        """The root of its system tree, if that stands for all machines."""
        roots = [ref for ref, values in self.definitions.table("node").items() if values[2] == UNDEFINED_U32]
        machines = [ref for ref in roots if self.definitions.text(self._node(ref)[1]) == "machine"]
        return machines[0] if len(machines) == 1 else UNDEFINED_U32

    def _node(self, ref: int) -> tuple[Any, ...]:
        return self.definitions.table("node")[ref]

    def first(self, kind: str) -> int:
        """The first free id of a kind of definition.

        Raises:
            UsageError: There is no room after the ids of the application.
        """
        found = max(self.definitions.table(kind), default=-1) + 1
        if found > (0xFE if kind == "paradigm" else _MOST_IDS):
            raise UsageError(
                f"merge {self.anchor}", f"a {kind} has the id {found - 1}", "there is none: please report it"
            )
        return found

    def processes(self) -> list[Process]:
        """Its processes, with what tells which processes of lo2io they are."""
        found = self.definitions
        pids = {
            values[0]: values[3]
            for values in found.unnamed.get("LocationGroupProperty", ())
            if found.text(values[1]).lower() in {"pid", "process id", "processid"} and values[2] in _INTEGERS
        }
        groups = found.table("location-group").items()
        threads: dict[int, list[int]] = {}
        for place in self.locations:
            _name, kind, _events, group = found.table("location")[place]
            if kind == LOCATION_CPU_THREAD:
                threads.setdefault(group, []).append(place)
        return [
            _process(found, ref, values, pids.get(ref), tuple(threads.get(ref, ())))
            for ref, values in groups
            if values[1] == LOCATION_GROUP_PROCESS
        ]

    @property
    def host(self) -> str:
        """The machine whose clock is that of the archive: of the first location, as tools of MPI do it."""
        if not self.locations:
            return ""
        group = self.definitions.table("location")[self.locations[0]][3]
        return _node_of(self.definitions, self.definitions.table("location-group")[group][2])[1]


_INTEGERS: Final = frozenset(range(1, 9))
"""``OTF2_Type``: unsigned and signed integers."""
_RANK_NAME: Final = "MPI Rank "
"""Score-P's name of a process of MPI, followed by its rank in MPI_COMM_WORLD (scorep_mpp_mpi.c)."""


def _process(
    found: Definitions, ref: int, values: tuple[Any, ...], pid: int | None, locations: tuple[int, ...]
) -> Process:
    name = found.text(values[0])
    digits = name.removeprefix(_RANK_NAME)
    rank = int(digits) if digits != name and digits.isdecimal() else None
    node, host = _node_of(found, values[2])
    return Process(ref, host, node, pid, rank, locations)


def _node_of(found: Definitions, node: int) -> tuple[int, str]:
    """The node of class "node" around a node of the system tree, else that node itself."""
    nodes, around, seen = found.table("node"), node, set[int]()
    while around in nodes and around not in seen:
        seen.add(around)
        if found.text(nodes[around][1]) == "node":
            return around, found.name("node", around)
        around = nodes[around][2]
    return node, found.name("node", node)


def read_application(library: Library, path: Path) -> Application:
    """Read what the merged archive needs to know of an application's archive.

    Raises:
        TraceError: This is no OTF2 archive, it is damaged, or it is of a form that cannot be merged.
        UsageError: It is an archive of lo2io.
    """
    anchor = find_anchor(path)
    with library.reader(anchor) as reader:
        check_ends(anchor)
        if (anchor.with_suffix("") / SION).exists():
            raise TraceError(
                f"merge {anchor}", "its locations lie in one SION file", "record with SCOREP_TRACING_USE_SION=no"
            )
        tried = f"reading {anchor}"
        chunks = library.two_numbers("Reader_GetChunkSize", reader, tried=tried)
        definitions = read_definitions(library, reader)
        if len(definitions.clocks) != 1 or not definitions.clocks[0][0]:
            raise TraceError(tried, "its clock is not defined", _REMEDY)
        markers = read_markers(library, reader, anchor.parent, anchor.with_suffix(".marker").name)
        creator = library.creator(reader) or ""
        properties = library.properties(reader)
        if any(name.startswith("LO2IO::") for name in properties):
            raise UsageError(f"merge {anchor}", "it is an archive of lo2io, not of the application", _REMEDY)
        properties |= _anchor_facts(library, reader)
    application = Application(anchor, definitions, *chunks, creator, properties, markers)
    _check_events(application)
    return application


def _anchor_facts(library: Library, reader: int) -> dict[str, str]:
    """What else the anchor says, as properties: the merged archive has a creator and a description of its own."""
    facts = {
        "CREATOR": library.creator(reader),
        "DESCRIPTION": library.description(reader),
        "MACHINE": library.machine(reader),
    }
    return {f"LO2IO::APPLICATION_{name}": text for name, text in facts.items() if text}


def _check_events(application: Application) -> None:
    present = {path.name for path in application.folder.glob("*.evt")}
    for ref, values in application.definitions.table("location").items():
        if values[2] and events_file(ref) not in present:
            answer = f"{events_file(ref)} with the events of location {ref} is missing"
            raise TraceError(f"merge {application.anchor}", answer, DAMAGED)


def copy_definitions(library: Library, application: Application, writer: int) -> None:
    """Write all global definitions into another archive, with the same ids.

    Raises:
        TraceError: There are definitions that this libotf2 does not know, or the archive cannot be written.
    """
    unknown: list[int] = []
    function = definition_type()(_counting(unknown))
    with library.reader(application.anchor) as reader, library.callbacks("GlobalDefReader") as callbacks:
        for record in _carried(library, "GlobalDefReader", "GlobalDefWriter"):
            library.set_callback("GlobalDefReader", callbacks, record, address(f"GlobalDefWriter_Write{record}"))
        library.set_callback("GlobalDefReader", callbacks, "Unknown", function)
        handle = library.Reader_GetGlobalDefReader(reader)
        code = library.Reader_RegisterGlobalDefCallbacks(reader, handle, callbacks, writer)
        library.check(code, "registering for definitions")
        tried = f"copying the definitions of {application.anchor}"
        library.number("Reader_ReadAllGlobalDefinitions", reader, handle, tried=tried)
        library.Reader_CloseGlobalDefReader(reader, handle)
    _refuse_unknown(application, unknown)


def _counting(unknown: list[int]) -> Callable[[int], int]:
    """A callback for records that libotf2 does not know."""

    def on_unknown(_user: int) -> int:
        unknown.append(1)
        return 0

    return on_unknown


def _carried(library: Library, reader: str, writer: str) -> list[str]:
    """The records that can be carried over. All that this libotf2 reads, it writes."""
    records = [record for record in library.setters(reader) if record not in _NOT_CARRIED]
    missing = [record for record in records if not has(f"{writer}_Write{record}")]
    if missing:
        raise TraceError("merge an application's archive", f"this libotf2 cannot write {', '.join(missing)}")
    return records


def _refuse_unknown(application: Application, unknown: list[int]) -> None:
    if unknown:
        answer = f"this libotf2 does not know {len(unknown):,} of its definitions"
        raise TraceError(f"merge {application.anchor}", answer, "install a newer libotf2")


def copy_local_definitions(
    library: Library, application: Application, archive: Archive, correct: Callable[[Correction], list[tuple[int, int]]]
) -> None:
    """Write the local definitions of all locations into another archive: theirs, but for the offsets of their clocks.

    Args:
        library: The library.
        application: The archive.
        archive: The other archive, with its files of local definitions opened.
        correct: From a location's own correction to that of the merged archive: points of time and offset.

    Raises:
        TraceError: There are definitions that this libotf2 does not know, or a file cannot be read or written.
    """
    offsets: list[tuple[int, int]] = []
    unknown: list[int] = []

    def on_offset(_user: int, time: int, offset: int, _deviation: float) -> int:
        offsets.append((time, offset))
        return 0

    functions = (
        definition_type(U64, ctypes.c_int64, ctypes.c_double)(on_offset),
        definition_type()(_counting(unknown)),
    )
    with library.reader(application.anchor) as reader, library.callbacks("DefReader") as callbacks:
        for record in _carried(library, "DefReader", "DefWriter"):
            library.set_callback("DefReader", callbacks, record, address(f"DefWriter_Write{record}"))
        for record, function in zip(("ClockOffset", "Unknown"), functions, strict=True):
            library.set_callback("DefReader", callbacks, record, function)
        for location in application.locations:
            library.check(library.Reader_SelectLocation(reader, location), "selecting a location")
        library.check(library.Reader_OpenDefFiles(reader), "opening local definitions")
        for location in application.locations:
            offsets.clear()
            writer = archive.local_writer(location)
            _copy_location(library, application, reader, callbacks, location=location, writer=writer)
            for time, offset in correct(correction_of(offsets) if len(offsets) > 1 else Correction()):
                archive.check(
                    "OTF2_DefWriter_WriteClockOffset", library.DefWriter_WriteClockOffset(writer, time, offset, 0.0)
                )
            archive.call("CloseDefWriter", writer)
        library.Reader_CloseDefFiles(reader)
    _refuse_unknown(application, unknown)


def _copy_location(
    library: Library, application: Application, reader: int, callbacks: int, *, location: int, writer: int
) -> None:
    if not (application.folder / f"{location}.def").exists():
        if not application.has_local_definitions:
            return
        raise TraceError(f"merge {application.anchor}", f"the local definitions {location}.def are missing", DAMAGED)
    handle = library.Reader_GetDefReader(reader, location)
    if not handle:
        raise library.failure(f"reading the local definitions of location {location} of {application.anchor}")
    library.check(library.Reader_RegisterDefCallbacks(reader, handle, callbacks, writer), "registering")
    tried = f"copying the local definitions of location {location} of {application.anchor}"
    library.number("Reader_ReadAllLocalDefinitions", reader, handle, tried=tried)
    library.Reader_CloseDefReader(reader, handle)


def spread_chunks(source: int, target: int, chunk_bytes: int, wanted_bytes: int) -> None:
    """Copy a file of chunks so that its chunks begin further apart: readers take one size of chunks for an archive.

    What lies between is a hole. No event is decoded.
    """
    size = os.fstat(source).st_size
    for number, begin in enumerate(range(0, size, chunk_bytes)):
        os.lseek(target, number * wanted_bytes, os.SEEK_SET)
        os.lseek(source, begin, os.SEEK_SET)
        left = min(chunk_bytes, size - begin)
        while left:
            left -= os.sendfile(target, source, None, left)
