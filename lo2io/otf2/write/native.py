"""OTF2's enumeration values for the native loop."""

from __future__ import annotations

from typing import Any

from lo2io.native._lib import ffi
from lo2io.otf2.values import value

_VALUES = {
    "mode_read": "IO_OPERATION_MODE_READ",
    "mode_write": "IO_OPERATION_MODE_WRITE",
    "mode_flush": "IO_OPERATION_MODE_FLUSH",
    "access_read_only": "IO_ACCESS_MODE_READ_ONLY",
    "access_write_only": "IO_ACCESS_MODE_WRITE_ONLY",
    "access_read_write": "IO_ACCESS_MODE_READ_WRITE",
    "type_uint8": "TYPE_UINT8",
    "type_uint32": "TYPE_UINT32",
    "type_uint64": "TYPE_UINT64",
    "type_int32": "TYPE_INT32",
    "type_double": "TYPE_DOUBLE",
    "type_string": "TYPE_STRING",
    "type_handle": "TYPE_IO_HANDLE",
    "blocking": "IO_OPERATION_FLAG_NONE",
    "non_blocking": "IO_OPERATION_FLAG_NON_BLOCKING",
    "close_on_exec": "IO_STATUS_FLAG_CLOSE_ON_EXEC",
}
_WHENCE = ("FROM_START", "FROM_CURRENT", "FROM_END", "DATA", "HOLE")


def native_values() -> Any:
    """A filled ``lo2_otf2_values``."""
    values = ffi.new("lo2_otf2_values *")
    for member, name in _VALUES.items():
        setattr(values, member, value(name))
    values.whence = [value(f"IO_SEEK_{name}") for name in _WHENCE]
    return values
