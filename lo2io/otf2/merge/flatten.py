"""Events rewritten, for readers that know neither mapping tables nor offsets of clocks: ``lo2io merge --flatten``.

In: a merged archive, whose local definitions tell what ids and times become. Out: the same archive with global ids and
corrected times in its files of events, and with empty local definitions. libotf2 maps each event and writes it anew,
one location at a time. All other files stay as they are: none of them knows of local definitions.
"""

from __future__ import annotations

import functools
import os
import shutil
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from lo2io.errors import TraceError
from lo2io.native._lib import ffi, lib
from lo2io.otf2.library import Library, address, has
from lo2io.otf2.read.events import read_local_definitions
from lo2io.otf2.write.archive import OtherRank
from lo2io.trace.names import ANCHOR, ARCHIVE, REWRITTEN, events_file

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from lo2io.otf2.merge.sharing import Share

_KIND: Final = "EvtReader"
_TOGETHER: Final = 64
"""Locations for which one reader is opened."""


class _Archive(NamedTuple):
    """Where an archive lies, and the sizes of its chunks."""

    directory: Path
    event_bytes: int
    definition_bytes: int


def flatten(directory: Path, share: Share, progress: Callable[[int, int], None] | None = None) -> None:
    """Rewrite the events of a merged archive in place.

    Args:
        directory: The archive, which nobody else knows yet: after an error it is of no use.
        share: Who else rewrites.
        progress: Called with the number of locations that are rewritten or given to somebody, and of all.

    Raises:
        TraceError: A file cannot be read or written.
    """
    if share.has_others:  # Folder.place is a name that only its own process knows
        directory = directory.resolve()
    library = Library()
    with library.reader(directory / ANCHOR) as reader:
        archive = _Archive(directory, *library.two_numbers("Reader_GetChunkSize", reader, tried=f"reading {directory}"))
    rewritten = directory / REWRITTEN / ARCHIVE
    rewritten.mkdir(parents=True)
    names = os.listdir(directory / ARCHIVE)  # noqa: PTH208 - a hundred thousand files, whose names are enough
    locations = sorted(int(name.removesuffix(".def")) for name in names if name.endswith(".def"))
    try:
        for begin in range(0, len(locations), _TOGETHER):
            share.do(_rewrite, archive, locations[begin : begin + _TOGETHER])
            if progress is not None:
                progress(min(begin + _TOGETHER, len(locations)), len(locations))
        share.finish()
    finally:
        share.stop()
    shutil.rmtree(directory / ARCHIVE)
    rewritten.rename(directory / ARCHIVE)
    rewritten.parent.rmdir()


def _rewrite(archive: _Archive, locations: list[int]) -> None:
    library = Library()
    folder = archive.directory / ARCHIVE
    sizes = archive.event_bytes, archive.definition_bytes
    new = OtherRank(archive.directory / REWRITTEN, event_bytes=sizes[0], definition_bytes=sizes[1])
    try:
        with library.reader(archive.directory / ANCHOR) as reader, library.callbacks(_KIND) as callbacks:
            for event, function in _callbacks().items():
                library.set_callback(_KIND, callbacks, event, function)
            for location in locations:
                library.check(library.Reader_SelectLocation(reader, location), f"selecting location {location}")
            read_local_definitions(library, reader, archive.directory / ANCHOR, locations)
            library.check(library.Reader_OpenEvtFiles(reader), "opening the event files")
            new.call("OpenEvtFiles")
            for location in locations:
                if (folder / events_file(location)).exists():
                    _rewrite_location(library, reader, callbacks, new, location)
            new.call("CloseEvtFiles")
        new.write_local_definitions(locations)
        new.close()
    finally:
        new.abort()


def _rewrite_location(library: Library, reader: int, callbacks: int, new: OtherRank, location: int) -> None:
    tried = f"rewriting the events of location {location}"
    rewriting = ffi.new("lo2_rewriting *")
    functions = _functions()
    rewriting.functions, rewriting.writer = functions, ffi.cast("void *", new.event_writer(location))
    handle = library.Reader_GetEvtReader(reader, location)
    if not handle:
        raise library.failure(tried)
    user = int(ffi.cast("uintptr_t", rewriting))
    library.check(library.Reader_RegisterEvtCallbacks(reader, handle, callbacks, user), "registering for events")
    try:
        nr_events = library.number("Reader_ReadAllLocalEvents", reader, handle, tried=tried)
    except TraceError:
        if rewriting.failed == ffi.NULL:
            raise
        event = ffi.string(rewriting.failed).decode()
        if not event:
            raise TraceError(
                tried, "it has events of a kind that lo2io does not know", "merge without --flatten"
            ) from None
        raise new.error(f"OTF2_EvtWriter_{event} of location {location}", rewriting.error_code) from None
    library.Reader_CloseEvtReader(reader, handle)
    new.call("CloseEvtWriter", int(ffi.cast("uintptr_t", rewriting.writer)))
    new.require_events(location, nr_events)


@functools.cache
def _table() -> dict[str, int]:
    """Event → the address of its callback, in the order of the native table. The empty name takes all others."""
    table, found = lib.lo2_rewriting_callbacks(), dict[str, int]()
    while "" not in found:
        entry = table[len(found)]
        found[ffi.string(entry.event).decode()] = int(ffi.cast("uintptr_t", entry.function))
    return found


@functools.cache
def _functions() -> Any:
    """The writer's function for each event of the table, as far as this libotf2 has it."""
    names = [f"EvtWriter_{event}" for event in _table() if event]
    return ffi.new("void *[]", [ffi.cast("void *", address(name) if has(name) else 0) for name in names])


def _callbacks() -> dict[str, int]:
    """Each event that this libotf2 reads → the address of its callback."""
    table = _table()
    return {event: table.get(event, table[""]) for event in _events()}


@functools.cache
def _events() -> tuple[str, ...]:
    """The events that this libotf2 reads."""
    return Library().setters(_KIND)
