"""libotf2's functions and enumeration values for the native loop."""

from __future__ import annotations

from typing import Any

from lo2io.native._lib import ffi
from lo2io.otf2.library import address
from lo2io.otf2.values import value

FUNCTIONS = {
    "get_evt_writer": "Archive_GetEvtWriter",
    "set_location_id": "EvtWriter_SetLocationID",
    "close_evt_writer": "Archive_CloseEvtWriter",
    "get_number_of_events": "EvtWriter_GetNumberOfEvents",
    "enter": "EvtWriter_Enter",
    "leave": "EvtWriter_Leave",
    "context_enter": "EvtWriter_CallingContextEnter",
    "context_leave": "EvtWriter_CallingContextLeave",
    "sample": "EvtWriter_CallingContextSample",
    "metric": "EvtWriter_Metric",
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
    "add_uint8": "AttributeList_AddUint8",
    "add_uint32": "AttributeList_AddUint32",
    "add_uint64": "AttributeList_AddUint64",
    "add_int32": "AttributeList_AddInt32",
    "add_string": "AttributeList_AddStringRef",
    "add_handle": "AttributeList_AddIoHandleRef",
}
"""Member of ``lo2_otf2_functions`` → libotf2's function without its prefix. The native loop names a failed call so."""
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


def addresses() -> dict[str, Any]:
    """The functions of ``lo2_otf2_functions`` by member name, as cffi pointers."""
    return {member: ffi.cast("void *", address(name)) for member, name in FUNCTIONS.items()}


def native_values() -> Any:
    """A filled ``lo2_otf2_values``."""
    values = ffi.new("lo2_otf2_values *")
    for member, name in _VALUES.items():
        setattr(values, member, value(name))
    values.whence = [value(f"IO_SEEK_{name}") for name in _WHENCE]
    return values
