"""An OTF2 archive, and checks that it reached the disk. Native code writes the events, and libotf2 all other files."""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import stat
from typing import TYPE_CHECKING, Any, Final

from lo2io.errors import TraceError
from lo2io.native._lib import ffi, lib
from lo2io.otf2.library import Library, address
from lo2io.otf2.values import value
from lo2io.trace.names import ANCHOR, ARCHIVE, DEFINITIONS_FILE, MARKER_FILE, events_file

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from numpy.typing import NDArray

CHUNK_BYTES = 256 * 1024
"""The least chunk that libotf2 allows (OTF2_CHUNK_SIZE_MIN). Each open location has one chunk."""
FILES = (ANCHOR, DEFINITIONS_FILE, MARKER_FILE)
"""The files of an archive, beside the directory ``traces``."""

_END = b"\x02\x01"
"""libotf2's end of each file: the records "end of file" and "end of chunk" (OTF2_Buffer.h)."""
_LAST_EVENT = slice(10, 18)
"""The bytes of a chunk's header with the number of its last event. Byte 1 is the byte order: ``B`` is little."""


class _Callbacks(ctypes.Structure):
    """OTF2_FlushCallbacks and OTF2_MemoryCallbacks: two function pointers each."""

    _fields_ = (("first", ctypes.c_void_p), ("second", ctypes.c_void_p))


def _address(pointer: Any) -> int:
    return int(ffi.cast("uintptr_t", pointer))


class Archive:
    """``traces.otf2``, ``traces.def``, ``traces.marker`` if there are markers, and ``traces/``.

    ``close`` writes the anchor ``traces.otf2``, after all other files are on disk and were checked to be whole. The
    check is needed because libotf2 writes through stdio, and ignores a failure to close a file on a full disk.
    ``abort`` removes the written files. libotf2's messages go into the errors raised, not to stderr.

    Raises:
        TraceError: libotf2 refuses; the error has its message. Every method may raise this.
    """

    def __init__(self, directory: Path, definition_bytes: int = CHUNK_BYTES, event_bytes: int = CHUNK_BYTES) -> None:
        self._directory = directory
        self._event_bytes = event_bytes
        self._definition_bytes = definition_bytes
        self._broken = False
        self._closed = False
        self._folder = -1
        self.events: Any = ffi.NULL
        self.pointer: int | None = None
        self.library = Library()
        self.library.catch()
        try:
            self._open()
        except BaseException:
            self.abort()
            raise

    def _open(self) -> None:
        if not self._directory.is_dir():
            raise self._refused("this is no directory")
        # Before libotf2 opens anything: an archive cannot be closed without its callbacks.
        with self.refusing("its folder"):
            self._folder = os.open(self._directory, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        events = lib.lo2_otf2_event_files_new(self._folder, self._event_bytes)
        if not events:
            raise MemoryError
        self.events = ffi.gc(events, lib.lo2_otf2_event_files_free)
        posix, none = value("SUBSTRATE_POSIX"), value("COMPRESSION_NONE")
        write, path = value("FILEMODE_WRITE"), os.fsencode(self._directory)
        chunks = self._event_bytes, self._definition_bytes
        self.pointer = self.library.Archive_Open(path, ARCHIVE.encode(), write, *chunks, posix, none)
        if not self.pointer:
            raise self.error("OTF2_Archive_Open")
        # libotf2 keeps pointers to both structures.
        self._flush = _Callbacks(_address(lib.lo2_otf2_pre_flush_callback()), None)
        self._memory = _Callbacks(
            _address(lib.lo2_otf2_allocate_callback()), _address(lib.lo2_otf2_free_all_callback())
        )
        self.call("SetFlushCallbacks", ctypes.addressof(self._flush), None)
        self.call("SetMemoryCallbacks", ctypes.addressof(self._memory), None)
        self._begin()

    def _begin(self) -> None:
        # Readers take the marker file beside any archive, so another archive's markers must not stay.
        (self._directory / MARKER_FILE).unlink(missing_ok=True)
        self.call("SetSerialCollectiveCallbacks")
        self.call("OpenEvtFiles")

    def _refused(self, answer: str) -> TraceError:
        free = ""
        with contextlib.suppress(OSError):
            free = f" ({shutil.disk_usage(self._directory).free} bytes are free)"
        remedy = f"make room in {self._directory}{free}, or check its rights"
        return TraceError(f"write the trace {self._directory}", answer, remedy)

    def error(self, function: str, code: int = 0) -> TraceError:
        """The error to raise after libotf2's ``function`` failed with this code; 0: without a code."""
        self._broken = True
        said = "".join(self.library.messages[:1])
        self.library.forget()
        description = self.library.Error_GetDescription(code).decode() if code else ""
        reason = self._unwritten() or "; ".join(part for part in (description, said) if part)
        answer = f"{function}: {reason}" if reason else function
        return self._refused(answer)

    def _unwritten(self) -> str:
        """Why a location's events could not be written. Empty: they could."""
        location = ffi.new("uint64_t *")
        code = lib.lo2_otf2_events_error(self.events, location) if self.events else 0
        return f"{ARCHIVE}/{events_file(location[0])}: {os.strerror(code)}" if code else ""

    def check(self, function: str, code: int) -> None:
        """Raise unless the code is OTF2_SUCCESS, and all events up to now were written."""
        if code or self._unwritten():
            raise self.error(function, code)

    def call(self, name: str, *arguments: Any) -> None:
        """``OTF2_Archive_<name>`` on this archive."""
        self.check(f"OTF2_Archive_{name}", getattr(self.library, f"Archive_{name}")(self.pointer, *arguments))

    def write_local_definitions(self, locations: Iterable[int]) -> None:
        """Write an empty definition file for each location. All ids are global, but readers look for the files."""
        self.call("OpenDefFiles")
        for location in locations:
            self.call("CloseDefWriter", self.local_writer(location))
            self._require_whole(f"traces/{location}.def")
        self.call("CloseDefFiles")

    def write_beside_events(self, name: str, parts: Iterable[NDArray[Any]]) -> None:
        """Write a file of lo2io's own into the folder of the locations. Abandoning the archive removes it, too."""
        with self.refusing(name), (self._directory / ARCHIVE / name).open("wb") as file:
            for part in parts:
                file.write(part.tobytes())

    @contextlib.contextmanager
    def refusing(self, name: str) -> Iterator[None]:
        """Raise TraceError for an OSError about a file."""
        try:
            yield
        except OSError as error:
            raise self._refused(f"{name}: {error.strerror}") from error

    def local_writer(self, location: int) -> int:
        """The writer of a location's local definitions. ``CloseDefWriter`` closes it."""
        return self._writer("DefWriter", location)

    def event_writer(self, location: int) -> int:
        """The writer of a location's events. ``CloseEvtWriter`` closes it."""
        return self._writer("EvtWriter", location)

    def _writer(self, kind: str, *arguments: Any) -> int:
        writer: int | None = getattr(self.library, f"Archive_Get{kind}")(self.pointer, *arguments)
        if not writer:
            raise self.error(f"OTF2_Archive_Get{kind}")
        return writer

    @contextlib.contextmanager
    def definitions(self) -> Iterator[Definitions]:
        """Yield the writer of global definitions, and close it at the end. After an exception it is not closed."""
        writer = self._writer("GlobalDefWriter")
        yield Definitions(self, writer)
        self.call("CloseGlobalDefWriter", writer)
        self._require_whole(DEFINITIONS_FILE)

    @contextlib.contextmanager
    def markers(self) -> Iterator[Markers]:
        """Yield the writer of markers, and close it at the end. After an exception it is not closed."""
        writer = self._writer("MarkerWriter")
        yield Markers(self, writer)
        self.call("CloseMarkerWriter", writer)
        self._require_whole(MARKER_FILE)

    def require_events(self, location: int, count: int) -> None:
        """Raise an error unless the location's closed file ends with libotf2's marks and holds ``count`` events."""
        if self._unwritten():
            raise self._refused(self._unwritten())
        self._require_whole(f"{ARCHIVE}/{events_file(location)}", count)

    def require_local_definitions(self, location: int, folder: int) -> None:
        """Raise an error unless the location's closed file of definitions ends with libotf2's marks.

        Args:
            location: The location.
            folder: The folder of the locations, opened: there may be a hundred thousand files.
        """
        name = f"{location}.def"
        try:
            fd = os.open(name, os.O_RDONLY | os.O_CLOEXEC, dir_fd=folder)
            try:
                content = os.pread(fd, self._definition_bytes, 0)
            finally:
                os.close(fd)
        except OSError as error:
            raise self._refused(f"{name}: {error.strerror}") from error
        if len(content) < self._definition_bytes and not content.endswith(_END):
            raise self._refused(f"{name} was cut short at {len(content)} bytes")

    def _require_whole(self, name: str, nr_events: int | None = None) -> None:
        try:
            with (self._directory / name).open("rb") as file:
                size = file.seek(0, os.SEEK_END)
                file.seek(max(size - len(_END), 0))
                end = file.read()
                file.seek(max(size - 1, 0) // self._event_bytes * self._event_bytes)
                header = file.read(_LAST_EVENT.stop)
        except OSError as error:
            raise self._refused(f"{name}: {error.strerror}") from error
        last_event = int.from_bytes(header[_LAST_EVENT], "little" if header[1:2] == b"B" else "big")
        if end != _END or nr_events not in {None, last_event}:
            raise self._refused(f"{name} was cut short at {size} bytes")

    def close(self) -> None:
        """Write the anchor. From then on the directory is a trace."""
        self._close_native()
        anchor = self._directory / ANCHOR
        if not anchor.exists() or _END not in anchor.read_bytes()[-4:]:
            raise self._refused(f"{ANCHOR} was cut short")
        self._end()

    def _close_native(self) -> None:
        pointer, self.pointer = self.pointer, None
        self.check("OTF2_Archive_Close", self.library.Archive_Close(pointer))

    def _end(self) -> None:
        self._closed = True
        if self._folder >= 0:
            os.close(self._folder)
            self._folder = -1
        self.library.release()

    def abort(self) -> None:
        """Give up and remove the files, so that no rest looks like a trace. After ``close`` this does nothing."""
        if self._closed:
            return
        self._give_up()
        events = self._directory / ARCHIVE
        # libotf2 still holds files open. They give their room back at once only if they are emptied. Files that have
        # other names, too, are those of another archive.
        for path in (*(self._directory / name for name in FILES), *events.glob("*")):
            with contextlib.suppress(OSError):
                found = path.lstat()
                if stat.S_ISREG(found.st_mode) and found.st_nlink == 1:
                    os.truncate(path, 0)
                path.unlink()
        shutil.rmtree(events, ignore_errors=True)

    def _give_up(self) -> None:
        pointer, self.pointer = self.pointer, None
        # libotf2 3.2 crashes when an archive is closed after a failed write, so its memory is not freed.
        if pointer is not None and not self._broken:
            self.library.Archive_Close(pointer)
        self._end()


class OtherRank(Archive):
    """Files of locations for an archive that an :class:`Archive` writes, maybe in another process.

    ``close`` writes no anchor, and ``abort`` removes no file: the other does.
    """

    def _begin(self) -> None:
        # Its own process opens the files that it writes.
        self.call("SetCollectiveCallbacks", int(ffi.cast("uintptr_t", lib.lo2_otf2_other_rank())), None, None, None)

    def close(self) -> None:
        """Free libotf2's memory. All writers are closed before."""
        self._close_native()
        self._end()

    def abort(self) -> None:
        """Give up. After ``close`` this does nothing."""
        if not self._closed:
            self._give_up()


MAX_MEMBERS: Final = 16384
"""The most members of a group. libotf2 refuses a record larger than its chunk of 256 KiB, so such groups are cut up."""
_MAX_STRING_BYTES: Final = 260_000
"""The most bytes of a text, for the same reason. Longer texts are cut."""


class Definitions:
    """Writes definition records. Strings are numbered here; equal strings share a number.

    Attributes:
        writer: ``OTF2_GlobalDefWriter *``, for native code.
    """

    def __init__(self, archive: Archive, writer: int) -> None:
        self._archive = archive
        self._library = archive.library
        self.writer = writer
        self._strings: dict[str, int] = {}
        self._next_string = 0

    def write(self, record: str, *arguments: Any) -> None:
        """``OTF2_GlobalDefWriter_Write<record>``."""
        function = f"GlobalDefWriter_Write{record}"
        self._archive.check(f"OTF2_{function}", getattr(self._library, function)(self.writer, *arguments))

    def handles(self, columns: Any) -> None:
        """Write consecutive handles, natively.

        ``columns`` is a ``lo2_otf2_handle_columns *``; writer and functions are set here.
        """
        columns.writer = ffi.cast("void *", self.writer)
        for member, record in (("write_io_handle", "IoHandle"), ("write_pre_created_state", "IoPreCreatedHandleState")):
            setattr(columns, member, ffi.cast("void *", address(f"GlobalDefWriter_Write{record}")))
        self._archive.check("OTF2_GlobalDefWriter_WriteIoHandle", lib.lo2_otf2_define_handles(columns))

    def string(self, text: str, ref: int | None = None) -> int:
        """The reference of a text. A given ``ref`` is used as it is. Lone surrogates are written as escapes.

        A longer text than libotf2 takes is cut.
        """
        known = self._strings.get(text)
        if known is not None and ref is None:
            return known
        ref = self._next_string if ref is None else ref
        self._next_string = max(self._next_string, ref + 1)
        self._strings.setdefault(text, ref)
        content = text.encode(errors="backslashreplace")
        if len(content) > _MAX_STRING_BYTES:
            content = content[:_MAX_STRING_BYTES].decode(errors="ignore").encode() + "…".encode()
        self.write("String", ref, content)
        return ref


class Markers:
    """Writes markers."""

    def __init__(self, archive: Archive, writer: int) -> None:
        self._archive = archive
        self._library = archive.library
        self._writer = writer

    def define(self, ref: int, group: str, category: str, severity: int) -> None:
        """Define a kind of marker."""
        code = self._library.MarkerWriter_WriteDefMarker(self._writer, ref, group.encode(), category.encode(), severity)
        self._archive.check("OTF2_MarkerWriter_WriteDefMarker", code)

    def mark(self, ref: int, text: str, *, time: int, duration: int, scope: int, scope_ref: int) -> None:
        """Write a marker from ``time`` on, for ``duration`` ticks."""
        code = self._library.MarkerWriter_WriteMarker(
            self._writer, time, duration, ref, scope, scope_ref, text.encode()
        )
        self._archive.check("OTF2_MarkerWriter_WriteMarker", code)
