"""The locations of one host in the merged archive: their local definitions written, their events linked.

In: what the host's ids became. Out: ``traces/*.def`` and ``traces/*.evt`` of these locations. No other host's locations
are needed for this, so any process can do it that sees the files.
"""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from lo2io.errors import TraceError
from lo2io.native._lib import ffi, lib
from lo2io.otf2.library import address
from lo2io.otf2.merge.application import spread_chunks
from lo2io.otf2.values import value
from lo2io.otf2.write.archive import CHUNK_BYTES, OtherRank
from lo2io.trace.names import ARCHIVE, events_file

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray

_FUNCTIONS: Final = {
    "get_def_writer": "Archive_GetDefWriter",
    "close_def_writer": "Archive_CloseDefWriter",
    "write_mapping_table": "DefWriter_WriteMappingTable",
    "write_clock_offset": "DefWriter_WriteClockOffset",
    "map_create": "IdMap_Create",
    "map_from_array": "IdMap_CreateFromUint32Array",
    "map_add": "IdMap_AddIdPair",
    "map_free": "IdMap_Free",
}
"""Member of ``lo2_locals_functions`` → function of libotf2."""
_BYTES_PER_ID, _BYTES_PER_OFFSET, _OTHER_BYTES = 16, 40, 4096
"""The most that a record of local definitions takes: numbers of libotf2 take up to one byte more than their width."""


class Target(NamedTuple):
    """The merged archive.

    Attributes:
        directory: Where it is written.
        final: Where that will lie in the end: symbolic links are made relative to it.
        event_bytes: The size of its chunks of events.
        definition_bytes: The size of its chunks of definitions.
    """

    directory: Path
    final: Path
    event_bytes: int
    definition_bytes: int


@dataclass(frozen=True, slots=True)
class HostLocations:
    """The locations of a host.

    Attributes:
        directory: The host's trace.
        number: What ends the ids of its locations.
        locations: Their own ids.
        has_events: For each location, True if it has a file of events. A location without events needs none.
        times_ns: Break points of the host's clock, in rising order.
        offsets_ns: What is added there.
        used: The numbers of ``lo2_otf2_used_ids``. Empty: they are not known.
        merged: What each used id became.
        maps: ``OTF2_MappingType`` and what the ids from 0 on became, for all locations.
    """

    directory: Path
    number: int
    locations: NDArray[np.uint64]
    has_events: list[bool]
    times_ns: NDArray[np.int64]
    offsets_ns: NDArray[np.int64]
    used: NDArray[np.uint64]
    merged: NDArray[np.uint32]
    maps: list[tuple[int, NDArray[np.uint32]]] = field(default_factory=list)

    @property
    def most_bytes(self) -> int:
        """No file of local definitions is larger than this."""
        nr_ids = len(self.used) + sum(len(ids) for _, ids in self.maps)
        return _OTHER_BYTES + _BYTES_PER_ID * nr_ids + _BYTES_PER_OFFSET * len(self.times_ns)


def place(target: Target, host: HostLocations) -> None:
    """Write the local definitions of a host's locations, and link their events.

    libotf2 looks through all locations of an archive for each new one. So each host has an ``OTF2_Archive`` of its own.

    Raises:
        TraceError: A file cannot be written.
    """
    # A file of one chunk is the same whatever the size of a chunk, and libotf2 clears a whole one for each file.
    chunk = CHUNK_BYTES if host.most_bytes < CHUNK_BYTES else target.definition_bytes
    archive = OtherRank(target.directory, definition_bytes=chunk, event_bytes=target.event_bytes)
    try:
        archive.call("OpenDefFiles")
        _write_local_definitions(archive, host)
        archive.call("CloseDefFiles")
        with _opened(target.directory / ARCHIVE) as merged, _opened(host.directory / ARCHIVE) as source:
            for own, has_events in zip(host.locations.tolist(), host.has_events, strict=True):
                archive.require_local_definitions(own << 32 | host.number, merged)
                if has_events:
                    _link(target, host, own, source, merged)
        archive.close()
    finally:
        archive.abort()


@contextlib.contextmanager
def _opened(folder: Path) -> Iterator[int]:
    """Paths would take most of the time: names within open folders do not."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield fd
    finally:
        os.close(fd)


def _write_local_definitions(archive: OtherRank, host: HostLocations) -> None:
    native = ffi.new("lo2_locals *")
    kept = [native]  # what the structure points to

    def column(kind: str, values: Any) -> Any:
        kept.append(ffi.from_buffer(kind, values))
        return kept[-1]

    native.archive = ffi.cast("void *", archive.pointer)
    for member, function in _FUNCTIONS.items():
        setattr(native.functions, member, ffi.cast("void *", address(function)))
    native.sparse, native.number = value("ID_MAP_SPARSE"), host.number
    native.locations, native.nr_locations = column("uint64_t[]", host.locations), len(host.locations)
    native.used, native.merged = column("uint64_t[]", host.used), column("uint32_t[]", host.merged)
    native.nr_used = len(host.used)
    maps = [(column("uint32_t[]", ids), len(ids), mapping) for mapping, ids in host.maps]
    rows = zip(host.times_ns.tolist(), host.offsets_ns.tolist(), strict=True)
    offsets = ffi.new("lo2_merge_offset[]", [(max(time, 0), offset) for time, offset in rows])
    whole = ffi.new("lo2_merge_map[]", maps)
    native.maps, native.nr_maps, native.offsets, native.nr_offsets = whole, len(maps), offsets, len(offsets)
    if lib.lo2_write_locals(native):
        raise archive.error(ffi.string(native.failed).decode(), native.error_code)


def _link(target: Target, host: HostLocations, own: int, source: int, merged: int) -> None:
    """Link a file of events. A hard link stays valid if the host's directory is removed."""
    name, new_name = events_file(own), events_file(own << 32 | host.number)
    if target.event_bytes != CHUNK_BYTES and os.stat(name, dir_fd=source).st_size > CHUNK_BYTES:
        _spread(target, name, new_name, source, merged)
        return
    try:
        os.link(name, new_name, src_dir_fd=source, dst_dir_fd=merged, follow_symlinks=False)
    except OSError:  # a file system without hard links, or another one than the host's
        path = os.path.relpath(host.directory / ARCHIVE / name, target.final / ARCHIVE)
        os.symlink(path, new_name, dir_fd=merged)


def _spread(target: Target, name: str, new_name: str, source: int, merged: int) -> None:
    """The application's chunks are larger than lo2io's, and an archive has one size."""
    try:
        own = os.open(name, os.O_RDONLY | os.O_CLOEXEC, dir_fd=source)
        try:
            new = os.open(new_name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666, dir_fd=merged)
            try:
                spread_chunks(own, new, CHUNK_BYTES, target.event_bytes)
            finally:
                os.close(new)
        finally:
            os.close(own)
    except OSError as error:
        remedy = "make room there"
        raise TraceError(f"write {target.final / ARCHIVE / new_name}", error.strerror or str(error), remedy) from error
