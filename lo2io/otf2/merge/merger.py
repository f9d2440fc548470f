"""Writes one archive of many: definitions unified, events linked, each location with tables of the ids that it uses.

In: the hosts' archives. Out: an archive in a new directory. ``lo2io/native/merge`` unifies the definitions. No event is
read or written, so time and memory do not depend on their number. The anchor comes last, as in any archive.
"""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self

import numpy as np

from lo2io._version import __version__
from lo2io.errors import TraceError, UsageError
from lo2io.native._lib import ffi, lib
from lo2io.otf2.library import DAMAGED, address
from lo2io.otf2.merge.part import read_markers
from lo2io.otf2.values import value
from lo2io.otf2.write.archive import CHUNK_BYTES, Archive
from lo2io.trace.names import ANCHOR, ARCHIVE, USED_IDS, events_file

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path
    from types import TracebackType

    from lo2io.otf2.merge.part import Marker, Part

_BYTES_PER_LOCATION: Final = 16
"""Of a chunk of definitions. libotf2 wants 10 (OTF2_Archive.h)."""
_NAME: Final = b"cluster"
_FUNCTIONS: Final = {
    "write_string": "String",
    "write_attribute": "Attribute",
    "write_io_paradigm": "IoParadigm",
    "write_node": "SystemTreeNode",
    "write_node_property": "SystemTreeNodeProperty",
    "write_node_domain": "SystemTreeNodeDomain",
    "write_location_group": "LocationGroup",
    "write_location_group_property": "LocationGroupProperty",
    "write_location": "Location",
    "write_location_property": "LocationProperty",
    "write_region": "Region",
    "write_calling_context": "CallingContext",
    "write_interrupt_generator": "InterruptGenerator",
    "write_group": "Group",
    "write_metric_member": "MetricMember",
    "write_metric_class": "MetricClass",
    "write_metric_instance": "MetricInstance",
    "write_regular_file": "IoRegularFile",
    "write_directory": "IoDirectory",
    "write_handle": "IoHandle",
    "write_handle_state": "IoPreCreatedHandleState",
}
"""Member of ``lo2_merge_functions`` → record of ``OTF2_GlobalDefWriter_Write…``."""
_OTHER_FUNCTIONS: Final = {
    "get_def_writer": "Archive_GetDefWriter",
    "close_def_writer": "Archive_CloseDefWriter",
    "write_mapping_table": "DefWriter_WriteMappingTable",
    "write_clock_offset": "DefWriter_WriteClockOffset",
    "map_create": "IdMap_Create",
    "map_from_array": "IdMap_CreateFromUint32Array",
    "map_add": "IdMap_AddIdPair",
    "map_free": "IdMap_Free",
}
_KIND: Final = "GlobalDefReader"
_SCOPE_GLOBAL, _SCOPE_LOCATION = 0, 1
"""``OTF2_MarkerScope``"""


class ReadPart(NamedTuple):
    """An archive whose definitions were read."""

    part: Part
    found: Any
    """``lo2_merge_part *``, valid until the next archive is read."""
    files: list[tuple[int, bool]]
    """Each location, and whether it has a file of events."""
    markers: list[Marker]


class Written(NamedTuple):
    """What was merged of one archive."""

    nr_locations: int
    nr_events: int
    knows_used_ids: bool
    """False: it does not tell which ids its locations use, as earlier versions of lo2io do not. Then each location has
    tables of all ids of its host."""


class Merger:
    """Writes an archive. Only ``close`` writes the anchor. Without it, all written files are removed.

    Args:
        directory: A directory without an archive.
        clock: Resolution, first tick, length and realtime of the merged archive.
        nr_locations: How many locations there will be at most.
        final: Where the directory will lie in the end: symbolic links are made relative to it.

    Raises:
        TraceError: libotf2 refuses; the error has its message. Every method may raise this.
    """

    def __init__(self, directory: Path, clock: tuple[int, int, int, int], nr_locations: int, final: Path) -> None:
        self._directory = directory
        self._final = final
        self._clock = clock
        self._markers: list[tuple[Part, Marker]] = []
        self._links: list[tuple[Part, list[tuple[int, bool]]]] = []
        self._style: tuple[str, str] | None = None
        self._native: Any = None
        self._exits = contextlib.ExitStack()
        self._archive = Archive(directory, definition_bytes=_chunk_for(nr_locations))
        try:
            self._archive.call("CloseEvtFiles")
            self._archive.call("OpenDefFiles")
            self._open()
        except BaseException:
            self._abandon()
            raise

    def _open(self) -> None:
        definitions = self._exits.enter_context(self._archive.definitions())
        definitions.write("ClockProperties", *self._clock)
        config = ffi.new("lo2_merge_config *")
        config.archive = ffi.cast("void *", self._archive.pointer)
        config.definitions = ffi.cast("void *", definitions.writer)
        config.sparse, config.of_machine = value("ID_MAP_SPARSE"), value("SYSTEM_TREE_DOMAIN_MACHINE")
        self._name = ffi.new("char[]", _NAME)
        config.name = self._name
        for member, record in _FUNCTIONS.items():
            setattr(config.functions, member, ffi.cast("void *", address(f"GlobalDefWriter_Write{record}")))
        for member, function in _OTHER_FUNCTIONS.items():
            setattr(config.functions, member, ffi.cast("void *", address(function)))
        self._native = lib.lo2_merge_new(config)
        if self._native == ffi.NULL:
            raise MemoryError
        self._library = self._archive.library
        self._callbacks = self._exits.enter_context(self._library.callbacks(_KIND))
        self._register()

    def _register(self) -> None:
        table = lib.lo2_merge_callbacks()
        functions: dict[str, int] = {}
        while "" not in functions:
            entry = table[len(functions)]
            functions[ffi.string(entry.event).decode()] = int(ffi.cast("uintptr_t", entry.function))
        for record in self._library.setters(_KIND):
            self._library.set_callback(_KIND, self._callbacks, record, functions.get(record, functions[""]))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._abandon()

    def read(self, part: Part) -> ReadPart:
        """Read the definitions of an archive. After an error, nothing of it is merged, and others can be.

        Raises:
            TraceError: The archive is damaged, or has definitions that merging does not know.
        """
        found, markers = self._read(part)
        return ReadPart(part, found, self._event_files(part, found), markers)

    def write(self, read: ReadPart) -> Written:
        """Merge the archive that was read last.

        Raises:
            UsageError: It enters regions in another way than those before; OTF2 allows one of them.
        """
        part, found, files, markers = read
        self._check_style(part, found)
        used = _load_used(part.directory / ARCHIVE / USED_IDS)
        ids = ffi.NULL if used is None else ffi.from_buffer("uint64_t[]", used)
        offsets = self._offsets(part)
        self._links.append((part, files))
        self._check(lib.lo2_merge_write(self._native, ids, 0 if used is None else len(used), offsets, len(offsets)))
        nr_events = sum(found.locations[i].nr_events for i in range(found.nr_locations))
        self._markers += [(part, marker) for marker in markers]
        return Written(found.nr_locations, nr_events, used is not None)

    def _read(self, part: Part) -> tuple[Any, list[Marker]]:
        """Read the definitions, and the markers."""
        library = self._library
        host = ffi.new("char[]", part.host.encode(errors="backslashreplace"))
        lib.lo2_merge_begin(self._native, part.number, host)
        with library.reader(part.directory / ANCHOR) as reader:
            handle = library.Reader_GetGlobalDefReader(reader)
            if not handle:
                raise library.failure(f"reading the definitions of {part.directory}")
            user = int(ffi.cast("uintptr_t", self._native))
            code = library.Reader_RegisterGlobalDefCallbacks(reader, handle, self._callbacks, user)
            library.check(code, "registering for definitions")
            tried = f"reading the definitions of {part.directory}"
            library.number("Reader_ReadAllGlobalDefinitions", reader, handle, tried=tried)
            library.Reader_CloseGlobalDefReader(reader, handle)
            markers = read_markers(library, reader, part.directory)
        found = lib.lo2_merge_read(self._native)
        if found.unknown != ffi.NULL:
            raise TraceError(
                f"merging {part.directory}",
                f"it defines {ffi.string(found.unknown).decode()}, which merging does not know",
                "merge traces of lo2io",
            )
        return found, markers

    def _check_style(self, part: Part, found: Any) -> None:
        """OTF2 forbids regions beside calling contexts in one archive."""
        style = "calling contexts" if found.nr_contexts else "regions" if found.nr_regions else None
        if style is None:
            return
        if self._style is None:
            self._style = style, part.host
        elif self._style[0] != style:
            raise UsageError(
                f"merge {part.directory}",
                f"it has {style}, but host {self._style[1]} has {self._style[0]}: OTF2 allows one in an archive",
                "record all hosts alike: `record` or `system-wide`, with or without --sched; "
                "or merge them in two directories",
            )

    @staticmethod
    def _offsets(part: Part) -> Any:
        rows = zip(part.correction.time_ns.tolist(), part.correction.offset_ns.tolist(), strict=True)
        return ffi.new("lo2_merge_offset[]", [(max(time, 0), offset) for time, offset in rows])

    @staticmethod
    def _event_files(part: Part, found: Any) -> list[tuple[int, bool]]:
        """Each location, and whether it has a file of events: one without events needs none."""
        present = set(os.listdir(part.directory / ARCHIVE))  # noqa: PTH208 - thousands of files, whose names are enough
        files = []
        for location in (found.locations[i] for i in range(found.nr_locations)):
            has_file = events_file(location.id) in present
            if location.nr_events and not has_file:
                answer = f"{events_file(location.id)} with its events is missing"
                raise TraceError(f"merging {part.directory}", answer, DAMAGED)
            files.append((location.id, has_file))
        return files

    def _link_events(self) -> None:
        """Check the local definitions of all locations, and link their events.

        A hard link stays valid if the host's directory is removed. Paths would take most of the time: names within open
        directories do not.
        """
        merged = os.open(self._directory / ARCHIVE, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            for part, files in self._links:
                source = os.open(part.directory / ARCHIVE, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
                try:
                    for own, has_file in files:
                        self._archive.require_local_definitions(own << 32 | part.number, merged)
                        if has_file:
                            self._link(part, own, source, merged)
                finally:
                    os.close(source)
        finally:
            os.close(merged)

    def _link(self, part: Part, own: int, source: int, merged: int) -> None:
        name, new_name = events_file(own), events_file(own << 32 | part.number)
        try:
            os.link(name, new_name, src_dir_fd=source, dst_dir_fd=merged, follow_symlinks=False)
        except OSError:  # a file system without hard links, or another one than the host's
            target = os.path.relpath(part.directory / ARCHIVE / name, self._final / ARCHIVE)
            os.symlink(target, new_name, dir_fd=merged)

    def _check(self, code: int) -> None:
        if code:
            failed = ffi.new("const char **")
            number = lib.lo2_merge_failed(self._native, failed)
            raise self._archive.error(ffi.string(failed[0]).decode(), number)

    def close(self, properties: Mapping[str, object]) -> None:
        """Write the groups, the markers and the properties, and last the anchor."""
        self._check(lib.lo2_merge_finish(self._native))
        self._archive.call("CloseDefFiles")
        self._exits.close()
        self._write_markers()
        self._archive.call("SetCreator", f"lo2io {__version__}".encode())
        self._archive.call("SetDescription", f"lo2io merge: {properties['HOSTS']} hosts".encode())
        for name, fact in properties.items():
            if str(fact):
                self._archive.call("SetProperty", f"LO2IO::{name}".encode(), str(fact).encode(), True)
        self._link_events()
        self._archive.close()
        self._free()

    def _write_markers(self) -> None:
        if not self._markers:
            return
        kinds = {(marker.category, marker.severity): None for _, marker in self._markers}
        refs = {kind: ref for ref, kind in enumerate(kinds)}
        start, end = self._clock[1], self._clock[1] + self._clock[2]
        with self._archive.markers() as out:
            for (category, severity), ref in refs.items():
                out.define(ref, "lo2io", category, severity)
            for part, marker in self._markers:
                begin, until = (
                    min(max(part.correction.one(time), start), end)
                    for time in (marker.time, marker.time + marker.duration)
                )
                target = marker.target << 32 | part.number if marker.scope == _SCOPE_LOCATION else 0
                out.mark(
                    refs[marker.category, marker.severity],
                    f"{marker.text} @{part.host}",
                    time=begin,
                    duration=until - begin,
                    scope=_SCOPE_LOCATION if marker.scope == _SCOPE_LOCATION else _SCOPE_GLOBAL,
                    scope_ref=target,
                )

    def _free(self) -> None:
        native, self._native = self._native, None
        if native is not None:
            lib.lo2_merge_free(native)

    def _abandon(self) -> None:
        """Remove all written files. After ``close`` this does nothing."""
        self._archive.abort()
        self._free()


def _chunk_for(nr_locations: int) -> int:
    """The size of a chunk of definitions: a small one is written and read sooner, and each open file has one."""
    return max(CHUNK_BYTES, 1 << (_BYTES_PER_LOCATION * nr_locations).bit_length())


def _load_used(path: Path) -> Any:
    """The numbers of ``lo2_otf2_used_ids``; None: there are none, or they are damaged."""
    try:
        found = np.fromfile(path, "<u8").astype(np.uint64, copy=False)
    except OSError:
        return None
    return found if path.stat().st_size % 8 == 0 and (found[1:] > found[:-1]).all() else None
