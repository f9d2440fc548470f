"""libotf2 as it lies in the ``otf2`` package's wheel: an archive to write, and the values the native loop needs.

The package's own functions set ``argtypes`` at every call and its high-level writer writes 28 k definitions per second;
here every function is bound once. Prototypes are those of OTF2 3's headers, as in the package's ``_otf2`` modules.
"""

from __future__ import annotations

import contextlib
import ctypes
import resource
import shutil
from ctypes import POINTER, c_bool, c_char_p, c_int, c_uint8, c_uint32, c_uint64, c_void_p
from typing import TYPE_CHECKING, Any

import _otf2
from _otf2.Config import conf

from lo2io._native._lib import ffi, lib
from lo2io.errors import TraceError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

CHUNK_BYTES = 256 * 1024
"""The least libotf2 allows (OTF2_CHUNK_SIZE_MIN): one chunk is held per open location."""
UNDEFINED_U32 = 2**32 - 1
"""Undefined reference of strings, files, handles, communicators, groups and nodes."""
UNDEFINED_U64 = 2**64 - 1

_DEFINITIONS: dict[str, tuple[Any, ...]] = {
    "ClockProperties": (c_uint64, c_uint64, c_uint64, c_uint64),
    "String": (c_uint32, c_char_p),
    "Attribute": (c_uint32, c_uint32, c_uint32, c_uint8),
    "IoParadigm": (c_uint8, c_uint32, c_uint32, c_uint8, c_uint32, c_uint8, c_void_p, c_void_p, c_void_p),
    "SystemTreeNode": (c_uint32, c_uint32, c_uint32, c_uint32),
    "SystemTreeNodeDomain": (c_uint32, c_uint8),
    "SystemTreeNodeProperty": (c_uint32, c_uint32, c_uint8, c_uint64),
    "LocationGroup": (c_uint32, c_uint32, c_uint8, c_uint32, c_uint32),
    "LocationGroupProperty": (c_uint32, c_uint32, c_uint8, c_uint64),
    "Location": (c_uint64, c_uint32, c_uint8, c_uint64, c_uint32),
    "LocationProperty": (c_uint64, c_uint32, c_uint8, c_uint64),
    "Region": (c_uint32, c_uint32, c_uint32, c_uint32, c_uint8, c_uint8, c_uint32, c_uint32, c_uint32, c_uint32),
    "Group": (c_uint32, c_uint32, c_uint8, c_uint8, c_uint32, c_uint32, POINTER(c_uint64)),
    "IoRegularFile": (c_uint32, c_uint32, c_uint32),
    "IoDirectory": (c_uint32, c_uint32, c_uint32),
    "IoFileProperty": (c_uint32, c_uint32, c_uint8, c_uint64),
    "IoHandle": (c_uint32, c_uint32, c_uint32, c_uint8, c_uint32, c_uint32, c_uint32),
    "IoPreCreatedHandleState": (c_uint32, c_uint8, c_uint32),
}
_ARCHIVE: dict[str, tuple[Any, ...]] = {
    "SetMachineName": (c_char_p,),
    "SetDescription": (c_char_p,),
    "SetCreator": (c_char_p,),
    "SetProperty": (c_char_p, c_char_p, c_bool),
    "SetFlushCallbacks": (c_void_p, c_void_p),
    "SetMemoryCallbacks": (c_void_p, c_void_p),
    "SetSerialCollectiveCallbacks": (),
    "OpenEvtFiles": (),
    "CloseEvtFiles": (),
    "OpenDefFiles": (),
    "CloseDefFiles": (),
    "CloseDefWriter": (c_void_p,),
    "CloseGlobalDefWriter": (c_void_p,),
    "CloseMarkerWriter": (c_void_p,),
    "Close": (),
}
_MARKERS: dict[str, tuple[Any, ...]] = {
    "WriteDefMarker": (c_uint32, c_char_p, c_char_p, c_uint8),
    "WriteMarker": (c_uint64, c_uint64, c_uint32, c_uint8, c_uint64, c_char_p),
}
_FUNCTIONS = {
    "get_evt_writer": "Archive_GetEvtWriter",
    "close_evt_writer": "Archive_CloseEvtWriter",
    "get_number_of_events": "EvtWriter_GetNumberOfEvents",
    "enter": "EvtWriter_Enter",
    "leave": "EvtWriter_Leave",
    "create_handle": "EvtWriter_IoCreateHandle",
    "destroy_handle": "EvtWriter_IoDestroyHandle",
    "duplicate_handle": "EvtWriter_IoDuplicateHandle",
    "seek": "EvtWriter_IoSeek",
    "change_status_flags": "EvtWriter_IoChangeStatusFlags",
    "operation_begin": "EvtWriter_IoOperationBegin",
    "operation_issued": "EvtWriter_IoOperationIssued",
    "operation_complete": "EvtWriter_IoOperationComplete",
    "operation_cancelled": "EvtWriter_IoOperationCancelled",
    "list_new": "AttributeList_New",
    "list_delete": "AttributeList_Delete",
    "list_add_uint8": "AttributeList_AddUint8",
    "list_add_uint32": "AttributeList_AddUint32",
    "list_add_uint64": "AttributeList_AddUint64",
    "list_add_string": "AttributeList_AddStringRef",
}
_VALUES = {
    "mode_read": "IO_OPERATION_MODE_READ",
    "mode_write": "IO_OPERATION_MODE_WRITE",
    "mode_flush": "IO_OPERATION_MODE_FLUSH",
    "access_read_only": "IO_ACCESS_MODE_READ_ONLY",
    "access_write_only": "IO_ACCESS_MODE_WRITE_ONLY",
    "access_read_write": "IO_ACCESS_MODE_READ_WRITE",
    "flush": "FLUSH",
    "blocking": "IO_OPERATION_FLAG_NONE",
    "non_blocking": "IO_OPERATION_FLAG_NON_BLOCKING",
    "close_on_exec": "IO_STATUS_FLAG_CLOSE_ON_EXEC",
}
_WHENCE = ("FROM_START", "FROM_CURRENT", "FROM_END", "DATA", "HOLE")

_GENERIC_FLAGS = {"O_DIRECT": 0o40000, "O_LARGEFILE": 0o100000, "O_DIRECTORY": 0o200000, "O_NOFOLLOW": 0o400000}
"""include/uapi/asm-generic/fcntl.h."""
_ARM_FLAGS = {"O_DIRECTORY": 0o40000, "O_NOFOLLOW": 0o100000, "O_DIRECT": 0o200000, "O_LARGEFILE": 0o400000}
"""arch/arm64/include/uapi/asm/fcntl.h; arm, and powerpc but for O_DIRECT and O_LARGEFILE, likewise."""
_PPC_FLAGS = {**_ARM_FLAGS, "O_LARGEFILE": 0o200000, "O_DIRECT": 0o400000}
O_CLOEXEC = 0o2000000


def value(name: str) -> int:
    """One of OTF2's enumeration values, by its C name without the prefix (``REGION_ROLE_FILE_IO``)."""
    return int(getattr(_otf2, name).value)


def open_flags(machine: str) -> list[tuple[int, int, int, int]]:
    """What each open(2) flag of that machine (as uname names it) means: (mask, value, creation flags, status flags)."""
    own = (
        _ARM_FLAGS if machine.startswith(("arm", "aarch64")) else _PPC_FLAGS if machine[:3] == "ppc" else _GENERIC_FLAGS
    )
    temporary, sync, data_sync = 0o20000000 | own["O_DIRECTORY"], 0o4010000, 0o10000
    creation = [
        (0o100, 0o100, "CREATE"),
        (0o200, 0o200, "EXCLUSIVE"),
        (0o400, 0o400, "NO_CONTROLLING_TERMINAL"),
        (0o1000, 0o1000, "TRUNCATE"),
        (own["O_LARGEFILE"], own["O_LARGEFILE"], "LARGEFILE"),
        # O_TMPFILE contains O_DIRECTORY, O_SYNC contains O_DSYNC: each has to be told from its part.
        (temporary, own["O_DIRECTORY"], "DIRECTORY"),
        (temporary, temporary, "TEMPORARY_FILE"),
        (own["O_NOFOLLOW"], own["O_NOFOLLOW"], "NO_FOLLOW"),
        (0o10000000, 0o10000000, "PATH"),
    ]
    status = [
        (0o2000, 0o2000, "APPEND"),
        (0o4000, 0o4000, "NON_BLOCKING"),
        (0o20000, 0o20000, "ASYNC"),
        (sync, sync, "SYNC"),
        (sync, data_sync, "DATA_SYNC"),
        (own["O_DIRECT"], own["O_DIRECT"], "AVOID_CACHING"),
        (0o1000000, 0o1000000, "NO_ACCESS_TIME"),
        (O_CLOEXEC, O_CLOEXEC, "CLOSE_ON_EXEC"),
    ]
    return [(mask, bits, value(f"IO_CREATION_FLAG_{name}"), 0) for mask, bits, name in creation] + [
        (mask, bits, 0, value(f"IO_STATUS_FLAG_{name}")) for mask, bits, name in status
    ]


class _Callbacks(ctypes.Structure):
    """OTF2_FlushCallbacks and OTF2_MemoryCallbacks: two function pointers each."""

    _fields_ = (("first", c_void_p), ("second", c_void_p))


def _address(pointer: Any) -> int:
    return int(ffi.cast("uintptr_t", pointer))


def raise_open_files_limit() -> None:
    """Every location keeps a file open: ask for as many as the hard limit allows."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


class Archive:
    """An OTF2 archive being written: ``traces.otf2``, ``traces.def`` and ``traces/`` in a directory that exists.

    The anchor ``traces.otf2`` appears with ``close``; ``abort`` removes what was written. libotf2's complaints go into
    the errors raised, not to stderr.

    Raises:
        TraceError: by every method, when libotf2 refuses; with its own description.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        # A handle of our own: argtypes set here and by the otf2 package do not meet.
        self._lib: Any = ctypes.CDLL(conf.lib._name)  # noqa: SLF001 - the package has no other way to its library
        self._bind_types()
        self._previous = self._lib.OTF2_Error_RegisterCallback(_address(lib.lo2_otf2_error_callback()), None)
        raise_open_files_limit()
        posix, none = value("SUBSTRATE_POSIX"), value("COMPRESSION_NONE")
        self.pointer: int | None = self._lib.OTF2_Archive_Open(
            bytes(directory), b"traces", value("FILEMODE_WRITE"), CHUNK_BYTES, CHUNK_BYTES, posix, none
        )
        if not self.pointer:
            self._restore_errors()
            raise self.error("OTF2_Archive_Open")
        self._flush = _Callbacks(_address(lib.lo2_otf2_pre_flush_callback(value("FLUSH"))), None)
        self._memory = _Callbacks(
            _address(lib.lo2_otf2_allocate_callback()), _address(lib.lo2_otf2_free_all_callback())
        )
        self.call("SetFlushCallbacks", ctypes.addressof(self._flush), None)
        self.call("SetMemoryCallbacks", ctypes.addressof(self._memory), None)
        self.call("SetSerialCollectiveCallbacks")
        self.call("OpenEvtFiles")

    def _bind_types(self) -> None:
        library = self._lib
        for prefix, table in (
            ("Archive_", _ARCHIVE),
            ("GlobalDefWriter_Write", _DEFINITIONS),
            ("MarkerWriter_", _MARKERS),
        ):
            for name, arguments in table.items():
                function = getattr(library, f"OTF2_{prefix}{name}")
                function.argtypes = (c_void_p, *arguments)
                function.restype = c_int
        library.OTF2_Archive_Open.argtypes = (c_char_p, c_char_p, c_uint8, c_uint64, c_uint64, c_uint8, c_uint8)
        library.OTF2_Archive_Open.restype = c_void_p
        for name, arguments in (("GlobalDefWriter", ()), ("MarkerWriter", ()), ("DefWriter", (c_uint64,))):
            function = getattr(library, f"OTF2_Archive_Get{name}")
            function.argtypes = (c_void_p, *arguments)
            function.restype = c_void_p
        library.OTF2_Error_GetDescription.argtypes = (c_int,)
        library.OTF2_Error_GetDescription.restype = c_char_p
        library.OTF2_Error_RegisterCallback.argtypes = (c_void_p, c_void_p)
        library.OTF2_Error_RegisterCallback.restype = c_void_p

    def _restore_errors(self) -> None:
        self._lib.OTF2_Error_RegisterCallback(self._previous, None)

    def error(self, function: str, code: int = 0) -> TraceError:
        """The error to raise when libotf2's ``function`` refused with that code (0: it gave none)."""
        said = ffi.string(lib.lo2_otf2_last_message()).decode(errors="backslashreplace")
        description = self._lib.OTF2_Error_GetDescription(code).decode() if code else ""
        answer = "; ".join(part for part in (description, said) if part) or "no reason given"
        return TraceError(
            f"write the trace {self._directory}",
            f"{function}: {answer}",
            f"check the free space, the rights and the limit of open files (ulimit -Hn) for {self._directory}",
        )

    def check(self, function: str, code: int) -> None:
        """Raise unless the code is OTF2_SUCCESS."""
        if code:
            raise self.error(function, code)

    def call(self, name: str, *arguments: Any) -> None:
        """``OTF2_Archive_<name>`` on this archive."""
        self.check(f"OTF2_Archive_{name}", getattr(self._lib, f"OTF2_Archive_{name}")(self.pointer, *arguments))

    def addresses(self) -> dict[str, Any]:
        """The functions of ``lo2_otf2_functions`` by member name, as cffi pointers."""
        return {
            member: ffi.cast("void *", ctypes.cast(getattr(self._lib, f"OTF2_{name}"), c_void_p).value)
            for member, name in _FUNCTIONS.items()
        }

    def write_local_definitions(self, nr_locations: int) -> None:
        """An empty definition file per location: every id is global already, yet readers look for the file."""
        self.call("OpenDefFiles")
        for location in range(nr_locations):
            writer = self._lib.OTF2_Archive_GetDefWriter(self.pointer, location)
            if not writer:
                raise self.error("OTF2_Archive_GetDefWriter")
            self.call("CloseDefWriter", writer)
        self.call("CloseDefFiles")

    @contextlib.contextmanager
    def definitions(self) -> Iterator[Definitions]:
        """The global definition writer; closed at the end, unless an exception ends it."""
        writer = self._lib.OTF2_Archive_GetGlobalDefWriter(self.pointer)
        if not writer:
            raise self.error("OTF2_Archive_GetGlobalDefWriter")
        yield Definitions(self, self._lib, writer)
        self.call("CloseGlobalDefWriter", writer)

    @contextlib.contextmanager
    def markers(self) -> Iterator[Markers]:
        """The marker writer; closed at the end, unless an exception ends it."""
        writer = self._lib.OTF2_Archive_GetMarkerWriter(self.pointer)
        if not writer:
            raise self.error("OTF2_Archive_GetMarkerWriter")
        yield Markers(self, self._lib, writer)
        self.call("CloseMarkerWriter", writer)

    def close(self) -> None:
        """Write the anchor: from here on it is a trace."""
        pointer, self.pointer = self.pointer, None
        code = self._lib.OTF2_Archive_Close(pointer)
        self._restore_errors()
        self.check("OTF2_Archive_Close", code)

    def abort(self) -> None:
        """Give up: free libotf2's memory and remove the files, so that nothing looks like a trace."""
        if self.pointer is not None:
            pointer, self.pointer = self.pointer, None
            self._lib.OTF2_Archive_Close(pointer)
            self._restore_errors()
        for name in ("traces.otf2", "traces.def"):
            (self._directory / name).unlink(missing_ok=True)
        shutil.rmtree(self._directory / "traces", ignore_errors=True)


class Definitions:
    """Writes definition records; strings are numbered here, equal ones once."""

    def __init__(self, archive: Archive, library: Any, writer: int) -> None:
        self._archive = archive
        self._library = library
        self._writer = writer
        self._strings: dict[str, int] = {}
        self._next_string = 0

    def write(self, record: str, *arguments: Any) -> None:
        """``OTF2_GlobalDefWriter_Write<record>``."""
        function = f"OTF2_GlobalDefWriter_Write{record}"
        self._archive.check(function, getattr(self._library, function)(self._writer, *arguments))

    def string(self, text: str, ref: int | None = None) -> int:
        """The reference of a text; a given ``ref`` is used as it is. Lone surrogates are written as escapes."""
        known = self._strings.get(text)
        if known is not None and ref is None:
            return known
        ref = self._next_string if ref is None else ref
        self._next_string = max(self._next_string, ref + 1)
        self._strings.setdefault(text, ref)
        self.write("String", ref, text.encode(errors="backslashreplace"))
        return ref


class Markers:
    """Writes markers."""

    def __init__(self, archive: Archive, library: Any, writer: int) -> None:
        self._archive = archive
        self._library = library
        self._writer = writer

    def define(self, ref: int, group: str, category: str, severity: int) -> None:
        """A kind of marker."""
        code = self._library.OTF2_MarkerWriter_WriteDefMarker(
            self._writer, ref, group.encode(), category.encode(), severity
        )
        self._archive.check("OTF2_MarkerWriter_WriteDefMarker", code)

    def mark(self, ref: int, text: str, *, time: int, duration: int, scope: int, scope_ref: int) -> None:
        """One marker, from ``time`` on for ``duration`` ticks."""
        code = self._library.OTF2_MarkerWriter_WriteMarker(
            self._writer, time, duration, ref, scope, scope_ref, text.encode()
        )
        self._archive.check("OTF2_MarkerWriter_WriteMarker", code)


def native_values() -> Any:
    """A filled ``lo2_otf2_values``."""
    values = ffi.new("lo2_otf2_values *")
    for member, name in _VALUES.items():
        setattr(values, member, value(name))
    values.whence = [value(f"IO_SEEK_{name}") for name in _WHENCE]
    return values


__all__ = [
    "O_CLOEXEC",
    "UNDEFINED_U32",
    "UNDEFINED_U64",
    "Archive",
    "Definitions",
    "Markers",
    "native_values",
    "open_flags",
    "value",
]
