"""libotf2 as it lies in the ``otf2`` package's wheel: its functions, bound once, and the values of its enumerations.

The package's own functions set ``argtypes`` at every call and its high-level writer writes 28 k definitions per second;
here every function is bound once. Prototypes are those of OTF2 3's headers, as in the package's ``_otf2`` modules.
"""

from __future__ import annotations

import ctypes
from ctypes import POINTER, c_bool, c_char_p, c_int, c_int64, c_uint8, c_uint32, c_uint64, c_void_p
from typing import Any, Protocol

import _otf2
from _otf2.Config import conf

from lo2io.native._lib import ffi

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
    "CallingContext": (c_uint32, c_uint32, c_uint32, c_uint32),
    "InterruptGenerator": (c_uint32, c_uint32, c_uint8, c_uint8, c_int64, c_uint64),
    "MetricMember": (c_uint32, c_uint32, c_uint32, c_uint8, c_uint8, c_uint8, c_uint8, c_int64, c_uint32),
    "MetricClass": (c_uint32, c_uint8, POINTER(c_uint32), c_uint8, c_uint8),
    "MetricInstance": (c_uint32, c_uint32, c_uint64, c_uint8, c_uint64),
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
FUNCTIONS = {
    "get_evt_writer": "OTF2_Archive_GetEvtWriter",
    "set_location_id": "OTF2_EvtWriter_SetLocationID",
    "close_evt_writer": "OTF2_Archive_CloseEvtWriter",
    "get_number_of_events": "OTF2_EvtWriter_GetNumberOfEvents",
    "enter": "OTF2_EvtWriter_Enter",
    "leave": "OTF2_EvtWriter_Leave",
    "context_enter": "OTF2_EvtWriter_CallingContextEnter",
    "context_leave": "OTF2_EvtWriter_CallingContextLeave",
    "sample": "OTF2_EvtWriter_CallingContextSample",
    "metric": "OTF2_EvtWriter_Metric",
    "create_handle": "OTF2_EvtWriter_IoCreateHandle",
    "destroy_handle": "OTF2_EvtWriter_IoDestroyHandle",
    "duplicate_handle": "OTF2_EvtWriter_IoDuplicateHandle",
    "seek": "OTF2_EvtWriter_IoSeek",
    "change_status_flags": "OTF2_EvtWriter_IoChangeStatusFlags",
    "operation_begin": "OTF2_EvtWriter_IoOperationBegin",
    "operation_issued": "OTF2_EvtWriter_IoOperationIssued",
    "operation_complete": "OTF2_EvtWriter_IoOperationComplete",
    "operation_cancelled": "OTF2_EvtWriter_IoOperationCancelled",
    "list_new": "OTF2_AttributeList_New",
    "list_delete": "OTF2_AttributeList_Delete",
    "add_uint8": "OTF2_AttributeList_AddUint8",
    "add_uint32": "OTF2_AttributeList_AddUint32",
    "add_uint64": "OTF2_AttributeList_AddUint64",
    "add_int32": "OTF2_AttributeList_AddInt32",
    "add_string": "OTF2_AttributeList_AddStringRef",
    "add_handle": "OTF2_AttributeList_AddIoHandleRef",
}
"""Member of ``lo2_otf2_functions``, as the native loop names a call that failed → function of libotf2."""
_VALUES = {
    "mode_read": "IO_OPERATION_MODE_READ",
    "mode_write": "IO_OPERATION_MODE_WRITE",
    "mode_flush": "IO_OPERATION_MODE_FLUSH",
    "access_read_only": "IO_ACCESS_MODE_READ_ONLY",
    "access_write_only": "IO_ACCESS_MODE_WRITE_ONLY",
    "access_read_write": "IO_ACCESS_MODE_READ_WRITE",
    "flush": "FLUSH",
    "type_uint64": "TYPE_UINT64",
    "type_double": "TYPE_DOUBLE",
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


class _Bound(Protocol):
    """What ctypes makes of a C function."""

    argtypes: Any
    restype: Any


def load() -> Any:
    """libotf2 with the prototypes of what is called here: definitions, markers, the archive."""
    # A handle of our own: argtypes set here and by the otf2 package do not meet.
    library: Any = ctypes.CDLL(conf.lib._name)  # noqa: SLF001 - the package has no other way to its library

    def bind(name: str, arguments: tuple[Any, ...], result: Any) -> None:
        function: _Bound = getattr(library, f"OTF2_{name}")
        function.argtypes, function.restype = arguments, result

    for prefix, table in (("Archive_", _ARCHIVE), ("GlobalDefWriter_Write", _DEFINITIONS), ("MarkerWriter_", _MARKERS)):
        for name, arguments in table.items():
            bind(prefix + name, (c_void_p, *arguments), c_int)
    bind("Archive_Open", (c_char_p, c_char_p, c_uint8, c_uint64, c_uint64, c_uint8, c_uint8), c_void_p)
    bind("Archive_GetGlobalDefWriter", (c_void_p,), c_void_p)
    bind("Archive_GetMarkerWriter", (c_void_p,), c_void_p)
    bind("Archive_GetDefWriter", (c_void_p, c_uint64), c_void_p)
    bind("Error_GetDescription", (c_int,), c_char_p)
    bind("Error_RegisterCallback", (c_void_p, c_void_p), c_void_p)
    return library


def addresses(library: Any) -> dict[str, Any]:
    """The functions of ``lo2_otf2_functions`` by member name, as cffi pointers."""
    return {
        member: ffi.cast("void *", ctypes.cast(getattr(library, name), c_void_p).value)
        for member, name in FUNCTIONS.items()
    }


def native_values() -> Any:
    """A filled ``lo2_otf2_values``."""
    values = ffi.new("lo2_otf2_values *")
    for member, name in _VALUES.items():
        setattr(values, member, value(name))
    values.whence = [value(f"IO_SEEK_{name}") for name in _WHENCE]
    return values
