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
from lo2io.otf2.library import DAMAGED, UNDEFINED_U32, address
from lo2io.otf2.merge.application import FIRST_KINDS, copy_definitions, copy_local_definitions
from lo2io.otf2.merge.part import read_markers
from lo2io.otf2.merge.placing import HostLocations, Target, place
from lo2io.otf2.merge.sharing import Share
from lo2io.otf2.values import value
from lo2io.otf2.write.archive import CHUNK_BYTES, MAX_MEMBERS, Archive
from lo2io.trace.correction import Correction, correction_of
from lo2io.trace.names import ANCHOR, ARCHIVE, USED_IDS, events_file

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path
    from types import TracebackType

    from numpy.typing import NDArray

    from lo2io.otf2.merge.application import Application
    from lo2io.otf2.merge.part import Marker, Part
    from lo2io.otf2.write.archive import Markers

_U32: Final = np.dtype(np.uint32)
_LOCATION: Final = np.dtype([("id", np.uint64), ("nr_events", np.uint64)])
"""``lo2_merge_location``"""
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
_KIND: Final = "GlobalDefReader"
_SCOPE_GLOBAL, _SCOPE_LOCATION = 0, 1
"""``OTF2_MarkerScope``"""


class ReadPart(NamedTuple):
    """An archive whose definitions were read."""

    part: Part
    found: Any
    """``lo2_merge_part *``, valid until the next archive is read."""
    locations: NDArray[np.void]
    """``lo2_merge_location``"""
    has_events: list[bool]
    """For each location, True if it has a file of events."""
    markers: list[Marker]


class Joins(NamedTuple):
    """What of a host's archive the application's archive has, too."""

    host: int
    """The host's node of the system tree; UNDEFINED_U32: it has none."""
    groups: dict[int, int]
    """The host's location group → the application's."""
    names: dict[int, str]
    """The host's location of a thread that the application's archive has, too → its name in the merged archive."""


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
        application: An application's archive, which becomes a part.
        correct: From the correction of one of the application's locations to that of the merged archive.
        share: Who else writes the files of locations; None: nobody.

    Raises:
        TraceError: libotf2 refuses; the error has its message. Every method may raise this.
    """

    def __init__(
        self,
        directory: Path,
        clock: tuple[int, int, int, int],
        nr_locations: int,
        final: Path,
        *,
        application: Application | None = None,
        correct: Callable[[Correction], list[tuple[int, int]]] | None = None,
        share: Share | None = None,
    ) -> None:
        self._share = share or Share()
        self._clock = clock
        self._markers: list[tuple[Part, Marker]] = []
        self._style: tuple[str, str] | None = None
        self._native: Any = None
        self._exits = contextlib.ExitStack()
        self._application, self._correct = application, correct
        if application is not None and application.style:
            self._style = application.style, "the application's archive"
        chunk, event_bytes = _chunk_for(nr_locations), CHUNK_BYTES
        if application is not None:
            chunk, event_bytes = max(chunk, application.definition_bytes), application.chunk_bytes
        # Folder.place is a name that only its own process knows.
        where = directory.resolve() if self._share.has_others else directory
        self._target = Target(where, final.absolute(), event_bytes, chunk)
        self._archive = Archive(directory, definition_bytes=chunk, event_bytes=event_bytes)
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
        config.root = UNDEFINED_U32
        config.most_members = MAX_MEMBERS
        if self._application is not None:
            copy_definitions(self._archive.library, self._application, definitions.writer)
            config.root = self._application.root
            for member, kind in FIRST_KINDS.items():
                setattr(config.first, member, self._application.first(kind))
        config.definitions = ffi.cast("void *", definitions.writer)
        config.of_machine = value("SYSTEM_TREE_DOMAIN_MACHINE")
        self._name = ffi.new("char[]", _NAME)
        config.name = self._name
        for member, record in _FUNCTIONS.items():
            setattr(config.functions, member, ffi.cast("void *", address(f"GlobalDefWriter_Write{record}")))
        self._native = lib.lo2_merge_new(config)
        if self._native == ffi.NULL:
            raise MemoryError
        self._library = self._archive.library
        self._know_application()
        self._callbacks = self._exits.enter_context(self._library.callbacks(_KIND))
        self._register()

    def _know_application(self) -> None:
        """An archive has each string, I/O paradigm and property once: lo2io's POSIX is the application's."""
        if self._application is None:
            return
        found = self._application.definitions
        strings = found.table("string")
        refs: dict[bytes, int] = {}
        for ref, (text,) in strings.items():
            refs.setdefault(text, ref)
            self._check(lib.lo2_merge_know_string(self._native, text, ref))
        for ref, (identification, *_) in found.table("paradigm").items():
            self._check(lib.lo2_merge_know_paradigm(self._native, refs[strings[identification][0]], ref))
        for record, of_group in (("SystemTreeNodeProperty", False), ("LocationGroupProperty", True)):
            for of, name, *_ in found.unnamed.get(record, ()):
                self._check(lib.lo2_merge_know_property(self._native, of_group, of, refs[strings[name][0]]))

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
        content = ffi.buffer(found.locations, found.nr_locations * _LOCATION.itemsize) if found.nr_locations else b""
        locations = np.frombuffer(bytes(content), _LOCATION)
        return ReadPart(part, found, locations, _have_events(part, locations), markers)

    def write(self, read: ReadPart, joins: Joins | None = None) -> Written:
        """Merge the archive that was read last.

        Args:
            read: The archive.
            joins: What of it the application's archive has, too.

        Raises:
            UsageError: It enters regions in another way than those before; OTF2 allows one of them.
        """
        part, found, locations, _has_events, markers = read
        self._check_style(part, found)
        if joins is not None:
            pairs = ffi.new("lo2_merge_pair[]", list(joins.groups.items()))
            texts = [ffi.new("char[]", name.encode(errors="backslashreplace")) for name in joins.names.values()]
            named = ffi.new("lo2_merge_named[]", list(zip(joins.names, texts, strict=True)))
            self._check(lib.lo2_merge_join(self._native, joins.host, pairs, len(pairs), named, len(named)))
        used = _load_used(part.directory / ARCHIVE / USED_IDS)
        ids = ffi.NULL if used is None else ffi.from_buffer("uint64_t[]", used)
        self._check(lib.lo2_merge_write(self._native, ids, 0 if used is None else len(used)))
        self._place(read, np.zeros(0, np.uint64) if used is None else used)
        self._markers += [(part, marker) for marker in markers]
        return Written(len(locations), int(locations["nr_events"].sum()), used is not None)

    def _place(self, read: ReadPart, used: NDArray[np.uint64]) -> None:
        """Have the files of the host's locations written. What its ids became is copied: the next host replaces it."""
        part, found = read.part, read.found
        whole = [found.whole[place] for place in range(found.nr_whole)]
        host = HostLocations(
            part.directory.absolute(),
            part.number,
            read.locations["id"].copy(),
            read.has_events,
            part.correction.time_ns,
            part.correction.offset_ns,
            used,
            _copied(found.merged, len(used)),
            [(each.mapping, _copied(each.to, each.size)) for each in whole],
        )
        self._share.do(place, self._target, host)

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
            self._style = style, f"host {part.host}"
        elif self._style[0] != style:
            raise UsageError(
                f"merge {part.directory}",
                f"it has {style}, but {self._style[1]} has {self._style[0]}: OTF2 allows one in an archive",
                "record all hosts alike: `record` or `system-wide`, with or without --sched; "
                "or merge them in two directories",
            )

    def _link_application(self, application: Application) -> None:
        """Check the local definitions of the application's locations, and link their events."""
        merged = os.open(self._target.directory / ARCHIVE, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            for location in application.locations:
                self._archive.require_local_definitions(location, merged)
                source = application.folder.resolve() / events_file(location)
                if source.exists():
                    try:
                        os.link(source, events_file(location), dst_dir_fd=merged)
                    except OSError:
                        os.symlink(source, events_file(location), dir_fd=merged)
        finally:
            os.close(merged)

    def _check(self, code: int) -> None:
        if code:
            failed = ffi.new("const char **")
            number = lib.lo2_merge_failed(self._native, failed)
            raise self._archive.error(ffi.string(failed[0]).decode(), number)

    def close(self, properties: Mapping[str, object]) -> None:
        """Write the groups, the markers and the properties, and last the anchor."""
        self._check(lib.lo2_merge_finish(self._native))
        if self._application is not None and self._correct is not None:
            copy_local_definitions(self._library, self._application, self._archive, self._correct)
        self._archive.call("CloseDefFiles")
        self._exits.close()
        self._write_markers()
        self._archive.call("SetCreator", f"lo2io {__version__}".encode())
        self._archive.call("SetDescription", f"lo2io merge: {properties['HOSTS']} hosts".encode())
        for name, fact in properties.items():
            if str(fact):
                self._archive.call("SetProperty", f"LO2IO::{name}".encode(), str(fact).encode(), True)
        for name, text in self._application.properties.items() if self._application else ():
            self._archive.call("SetProperty", name.encode(), text.encode(), True)
        if self._application is not None:
            self._link_application(self._application)
        self._share.finish()
        self._archive.close()
        self._free()

    def _write_markers(self) -> None:
        theirs = self._application.markers if self._application else []
        markers = [marker for _, marker in self._markers] + theirs
        if not markers:
            return
        kinds = dict.fromkeys((marker.group, marker.category, marker.severity) for marker in markers)
        refs = {kind: ref for ref, kind in enumerate(kinds)}
        start, end = self._clock[1], self._clock[1] + self._clock[2]
        with self._archive.markers() as out:
            for (group, category, severity), ref in refs.items():
                out.define(ref, group, category, severity)
            self._write_their_markers(out, theirs, refs)
            for part, marker in self._markers:
                begin, until = (
                    min(max(part.correction.one(time), start), end)
                    for time in (marker.time, marker.time + marker.duration)
                )
                target = marker.target << 32 | part.number if marker.scope == _SCOPE_LOCATION else 0
                out.mark(
                    refs[marker.group, marker.category, marker.severity],
                    f"{marker.text} @{part.host}",
                    time=begin,
                    duration=until - begin,
                    scope=_SCOPE_LOCATION if marker.scope == _SCOPE_LOCATION else _SCOPE_GLOBAL,
                    scope_ref=target,
                )

    def _write_their_markers(self, out: Markers, markers: list[Marker], refs: dict[tuple[str, str, int], int]) -> None:
        """The application's markers, at the times of the merged archive. Their scopes stay, as all its ids do."""
        if self._correct is None:
            return
        start, end = self._clock[1], self._clock[1] + self._clock[2]
        correction = correction_of(self._correct(Correction()))
        for marker in markers:
            moved = correction.apply([marker.time, marker.time + marker.duration]).tolist()
            begin, until = (min(max(time, start), end) for time in moved)
            ref = refs[marker.group, marker.category, marker.severity]
            where = {"scope": marker.scope, "scope_ref": marker.target}
            out.mark(ref, marker.text, time=begin, duration=until - begin, **where)

    def _free(self) -> None:
        native, self._native = self._native, None
        if native is not None:
            lib.lo2_merge_free(native)

    def _abandon(self) -> None:
        """Remove all written files. After ``close`` this does nothing."""
        self._share.stop()
        self._archive.abort()
        self._free()


def _chunk_for(nr_locations: int) -> int:
    """The size of a chunk of definitions: a small one is written and read sooner, and each open file has one."""
    return max(CHUNK_BYTES, 1 << (_BYTES_PER_LOCATION * nr_locations).bit_length())


def _have_events(part: Part, locations: NDArray[np.void]) -> list[bool]:
    """Whether each location has a file of events: one without events needs none.

    Raises:
        TraceError: A location with events has none.
    """
    present = set(os.listdir(part.directory / ARCHIVE))  # noqa: PTH208 - thousands of files, whose names are enough
    names = [events_file(location) for location in locations["id"].tolist()]
    for name, nr_events in zip(names, locations["nr_events"].tolist(), strict=True):
        if nr_events and name not in present:
            raise TraceError(f"merging {part.directory}", f"{name} with its events is missing", DAMAGED)
    return [name in present for name in names]


def _copied(ids: Any, number: int) -> NDArray[np.uint32]:
    """A copy of native ids."""
    content = bytes(ffi.buffer(ids, number * _U32.itemsize)) if number else b""
    return np.frombuffer(content, _U32)


def _load_used(path: Path) -> Any:
    """The numbers of ``lo2_otf2_used_ids``; None: there are none, or they are damaged."""
    try:
        found = np.fromfile(path, "<u8").astype(np.uint64, copy=False)
    except OSError:
        return None
    return found if path.stat().st_size % 8 == 0 and (found[1:] > found[:-1]).all() else None
