"""The events of an archive in blocks of columns, merged by time; ``native/otf2/reader.c`` reads them.

At most :data:`MOST_OPEN` event files are open at once, for any number of locations. Memory grows with the number of
locations (some hundred bytes each), not with the number of events.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final, Protocol

import numpy as np

from lo2io.errors import TraceError
from lo2io.native._lib import ffi, lib
from lo2io.otf2.library import DAMAGED, SUCCESS, Library, address

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from numpy.typing import NDArray


MOST_OPEN: Final = 32
"""The most event files open at once. Each also costs memory for a chunk, of a size that its writer chose (often 1
MiB)."""
BLOCK_EVENTS: Final = 1 << 16
SION: Final = "evt.sion"
"""The file for the events of all locations, in traces written by SION."""
_LEAST_EVENT_BYTES: Final = 2
"""The least size of an event: a byte for its kind, and one for its length or its only argument (OTF2_EvtReader.c)."""
_KIND: Final = "EvtReader"
_FUNCTIONS: Final = {
    "get_evt_reader": "Reader_GetEvtReader",
    "close_evt_reader": "Reader_CloseEvtReader",
    "register_evt_callbacks": "Reader_RegisterEvtCallbacks",
    "read_local_events": "Reader_ReadLocalEvents",
    "seek": "EvtReader_Seek",
    "count_attributes": "AttributeList_GetNumberOfElements",
    "get_attribute": "AttributeList_GetAttributeByIndex",
}
"""Member of ``lo2_reader_config`` → function of libotf2."""


def _dtype(struct: str) -> np.dtype[Any]:
    """The NumPy type of a C structure of plain integers."""
    ctype = ffi.typeof(struct)
    return np.dtype({
        "names": [name for name, _ in ctype.fields],
        "formats": [field.type.cname.removesuffix("_t") for _, field in ctype.fields],
        "offsets": [field.offset for _, field in ctype.fields],
        "itemsize": ffi.sizeof(ctype),
    })  # fmt: skip


EVENT: Final = _dtype("lo2_event_row")
DETAIL: Final = _dtype("lo2_event_detail")
FIELD: Final = {name: place for place, name in enumerate(EVENT.names or ())}
"""Name of a column → its place in an event that is taken out as a tuple."""


OTHER: Final = ""
"""The name for all kinds of events whose arguments are not read."""


def _callbacks() -> dict[str, tuple[int, Any]]:
    """Name of an event → its place in the native table, and its callback."""
    found: dict[str, tuple[int, Any]] = {}
    table = lib.lo2_event_callbacks()
    while OTHER not in found:
        entry = table[len(found)]
        found[ffi.string(entry.event).decode()] = len(found), entry.function
    return found


_CALLBACKS: Final = _callbacks()
KINDS: Final = {event: kind for event, (kind, _) in _CALLBACKS.items()}
"""Name of an event, as OTF2 has it → ``kind`` in :data:`EVENT`."""
_ARGUMENTS: Final = {
    "Enter": ("ref",),
    "Leave": ("ref",),
    "CallingContextEnter": ("ref", "second"),
    "CallingContextLeave": ("ref",),
    "CallingContextSample": ("ref", "second", "ident"),
    "ParameterString": ("ref",),
    "ParameterInt": ("ref",),
    "ParameterUnsignedInt": ("ref",),
    "IoCreateHandle": ("ref", "mode", "second", "ident"),
    "IoDestroyHandle": ("ref",),
    "IoDuplicateHandle": ("ref", "second", "ident"),
    "IoSeek": ("ref", "bytes", "mode", "ident"),
    "IoChangeStatusFlags": ("ref", "second"),
    "IoDeleteFile": ("mode", "ref"),
    "IoOperationBegin": ("ref", "mode", "second", "bytes", "ident"),
    "IoOperationTest": ("ref", "ident"),
    "IoOperationIssued": ("ref", "ident"),
    "IoOperationComplete": ("ref", "bytes", "ident"),
    "IoOperationCancelled": ("ref", "ident"),
    "IoAcquireLock": ("ref", "mode"),
    "IoReleaseLock": ("ref", "mode"),
    "IoTryLock": ("ref", "mode"),
}
"""Event → columns with its arguments, in the order of OTF2's callback. Arguments of other events are not kept.

A metric's reference is in ``ref``; its values are among the details.
"""


def arguments_of(event: str) -> Callable[[tuple[Any, ...]], tuple[Any, ...]]:
    """A function that returns the arguments of this kind of event from the event's tuple."""
    places = [FIELD[name] for name in _ARGUMENTS.get(event, ())]
    if len(places) > 1:
        return itemgetter(*places)
    if places:
        return lambda row: (row[places[0]],)
    return lambda _row: ()


@dataclass(frozen=True, slots=True)
class Block:
    """Some events in the order of time. Events of one tick have the order of the locations.

    A block ends with a tick. Only a tick with very many events goes on in the next block.
    """

    events: NDArray[Any]
    """Events, of type :data:`EVENT`. ``location`` is the place in the list given to :func:`read_events`."""
    details: NDArray[Any]
    """Details, of type :data:`DETAIL`: for each event its attributes, then the values of its metric."""


class EventTaker(Protocol):
    """Takes the events of a trace."""

    def take(self, block: Block) -> None:
        """Take the next block, whose arrays are valid during the call only."""


def read_events(
    library: Library,
    reader: int,
    anchor: Path,
    locations: Sequence[int],
    taker: EventTaker,
    *,
    progress: Callable[[int], None] | None = None,
) -> None:
    """Hand over all events of some locations.

    Args:
        library: The binding of libotf2.
        reader: An open OTF2 reader.
        anchor: The archive's ``.otf2`` file.
        locations: References of locations, all of which have an event file.
        taker: Takes the events.
        progress: Called now and then with the number of events read so far.

    Raises:
        TraceError: Files are missing, truncated or unreadable.
    """
    if not locations:
        return
    for ref in locations:
        library.check(library.Reader_SelectLocation(reader, ref), f"selecting location {ref}")
    read_local_definitions(library, reader, anchor, locations)
    library.check(library.Reader_OpenEvtFiles(reader), "opening the event files")
    done = 0
    for block in _blocks(library, reader, anchor, locations):
        taker.take(block)
        done += len(block.events)
        if progress is not None:
            progress(done)
    library.Reader_CloseEvtFiles(reader)


def read_local_definitions(library: Library, reader: int, anchor: Path, locations: Sequence[int]) -> None:
    """Read mapping tables and clock offsets, which the library applies to the events. Not every trace has them.

    A definition reader takes the memory of a chunk of definitions (such as 4 MiB), even without a file. So only
    existing files are read.
    """
    directory = anchor.with_suffix("")
    if not (directory / SION).exists():
        locations = [ref for ref in locations if (directory / f"{ref}.def").exists()]
    if locations and library.Reader_OpenDefFiles(reader) == SUCCESS:
        for ref in locations:
            local = library.Reader_GetDefReader(reader, ref)
            if local:
                tried = f"reading definitions of location {ref}"
                library.number("Reader_ReadAllLocalDefinitions", reader, local, tried=tried)
                library.Reader_CloseDefReader(reader, local)
        library.Reader_CloseDefFiles(reader)
    library.forget()


def _blocks(library: Library, reader: int, anchor: Path, locations: Sequence[int]) -> Iterator[Block]:
    refs, most = ffi.new("uint64_t[]", locations), ffi.new("uint64_t[]", _most_events(anchor, locations))
    with library.callbacks(_KIND) as callbacks:
        for event in library.setters(_KIND):
            library.set_callback(_KIND, callbacks, event, _address(_CALLBACKS.get(event, _CALLBACKS[OTHER])[1]))
        config = ffi.new("lo2_reader_config *")
        config.reader, config.callbacks = ffi.cast("void *", reader), ffi.cast("void *", callbacks)
        config.locations, config.most_events, config.nr_locations = refs, most, len(locations)
        config.most_open = MOST_OPEN
        config.block_events = BLOCK_EVENTS
        for member, function in _FUNCTIONS.items():
            setattr(config, member, ffi.cast("void *", address(function)))
        native = lib.lo2_event_reader_new(config)
        if native == ffi.NULL:
            raise MemoryError
        try:
            yield from _merged(library, native, locations)
        finally:
            lib.lo2_event_reader_free(native)


def _address(function: Any) -> ctypes.c_void_p:
    return ctypes.c_void_p(int(ffi.cast("uintptr_t", function)))


def _merged(library: Library, native: Any, locations: Sequence[int]) -> Iterator[Block]:
    block = ffi.new("lo2_event_block *")
    failed = lib.lo2_event_reader_open(native)
    while not failed:
        failed = lib.lo2_event_reader_next(native, block)
        if not failed and not block.nr_events:
            return
        if not failed:
            yield Block(
                _view(block.events, block.nr_events, EVENT),
                _view(block.details, block.nr_details, DETAIL),
            )
    place = ffi.new("uint32_t *")
    code = lib.lo2_event_reader_failed(native, place)
    tried = f"reading the events of location {locations[place[0]]}"
    if lib.lo2_event_reader_overran(native):
        raise TraceError(tried, "the location has more events than its file can hold", DAMAGED)
    raise library.failure(tried, code or None)


def _view(rows: Any, number: int, dtype: np.dtype[Any]) -> NDArray[Any]:
    return np.frombuffer(ffi.buffer(rows, number * dtype.itemsize), dtype) if number else np.empty(0, dtype)


def _most_events(anchor: Path, locations: Sequence[int]) -> list[int]:
    """The number of events that fit into each location's file."""
    directory = anchor.with_suffix("")
    if (directory / SION).exists():
        return [2**64 - 1] * len(locations)
    return [(directory / f"{ref}.evt").stat().st_size // _LEAST_EVENT_BYTES for ref in locations]
