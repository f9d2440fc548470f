"""The one binding of libotf2, by plain ctypes.

lo2io's own wheels carry the library. Else the one of the ``otf2`` package is taken, else the system's. The package has
wheels for Python 3.11 and older only: elsewhere pip compiles it for minutes, and the system's library does as well.

The package's Python functions are not used, for three reasons. They set ``argtypes`` at every call, so the package
writes only 28 k definitions per second. Its reader resolves references while it reads, so it fails on the wrong
references that verifying looks for. Some functions (for reading markers) cannot be called at all in version 3.2. Here
each function gets its C types once, when it is first used. The prototypes are those of OTF2 3's headers.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import importlib.util
import os
import re
import stat
import sys
from ctypes import CFUNCTYPE, POINTER, c_bool, c_char_p, c_double, c_int, c_int64, c_uint8, c_uint32, c_uint64, c_void_p
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lo2io.errors import TraceError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

UNDEFINED_U32 = 2**32 - 1
"""Undefined reference of strings, files, handles, communicators, groups and nodes."""
UNDEFINED_U64 = 2**64 - 1
SUCCESS = 0
CONTINUE = 0
"""A callback's return value for "go on"."""
_MESSAGE_BYTES = 512
DAMAGED = "the trace is damaged: copy it again, or convert the spool again if there is one"
"""Remedy for files that the library cannot read."""
_REMEDIES = {
    "EMFILE": "allow this process more open files: `ulimit -n`",
    "ENFILE": "close other programs: the whole machine has too many files open",
    "EACCES": "make the trace's files readable",
    "EPERM": "make the trace's files readable",
    "ENOMEM": "free memory",
    "MEM_FAULT": "free memory",
    "MEM_ALLOC_FAILED": "free memory",
}
"""Name of an error code that is not about the trace → remedy."""

_ERROR_CALLBACK = CFUNCTYPE(c_int, c_void_p, c_char_p, c_uint64, c_char_p, c_int, c_char_p, c_void_p)
_HANDLE = c_void_p
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
    "SetCollectiveCallbacks": (c_void_p, c_void_p, c_void_p, c_void_p),
    "OpenEvtFiles": (),
    "CloseEvtFiles": (),
    "OpenDefFiles": (),
    "CloseDefFiles": (),
    "CloseDefWriter": (c_void_p,),
    "CloseEvtWriter": (c_void_p,),
    "CloseGlobalDefWriter": (c_void_p,),
    "CloseMarkerWriter": (c_void_p,),
    "Close": (),
}
_MARKERS: dict[str, tuple[Any, ...]] = {
    "WriteDefMarker": (c_uint32, c_char_p, c_char_p, c_uint8),
    "WriteMarker": (c_uint64, c_uint64, c_uint32, c_uint8, c_uint64, c_char_p),
}
_FUNCTIONS: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "Archive_Open": (_HANDLE, (c_char_p, c_char_p, c_uint8, c_uint64, c_uint64, c_uint8, c_uint8)),
    "Archive_GetGlobalDefWriter": (_HANDLE, (_HANDLE,)),
    "Archive_GetMarkerWriter": (_HANDLE, (_HANDLE,)),
    "Archive_GetDefWriter": (_HANDLE, (_HANDLE, c_uint64)),
    "Archive_GetEvtWriter": (_HANDLE, (_HANDLE, c_uint64)),
    "Error_GetName": (c_char_p, (c_int,)),
    "Error_GetDescription": (c_char_p, (c_int,)),
    "Error_RegisterCallback": (c_void_p, (c_void_p, c_void_p)),
    "Reader_Open": (_HANDLE, (c_char_p,)),
    "Reader_Close": (c_int, (_HANDLE,)),
    "Reader_SetSerialCollectiveCallbacks": (c_int, (_HANDLE,)),
    "Reader_GetNumberOfLocations": (c_int, (_HANDLE, c_void_p)),
    "Reader_GetNumberOfGlobalDefinitions": (c_int, (_HANDLE, c_void_p)),
    "Reader_GetGlobalDefReader": (_HANDLE, (_HANDLE,)),
    "Reader_RegisterGlobalDefCallbacks": (c_int, (_HANDLE, _HANDLE, _HANDLE, c_void_p)),
    "Reader_ReadAllGlobalDefinitions": (c_int, (_HANDLE, _HANDLE, c_void_p)),
    "Reader_CloseGlobalDefReader": (c_int, (_HANDLE, _HANDLE)),
    "Reader_SelectLocation": (c_int, (_HANDLE, c_uint64)),
    "Reader_OpenDefFiles": (c_int, (_HANDLE,)),
    "Reader_CloseDefFiles": (c_int, (_HANDLE,)),
    "Reader_GetDefReader": (_HANDLE, (_HANDLE, c_uint64)),
    "Reader_RegisterDefCallbacks": (c_int, (_HANDLE, _HANDLE, _HANDLE, c_void_p)),
    "DefWriter_WriteClockOffset": (c_int, (_HANDLE, c_uint64, c_int64, c_double)),
    "Reader_ReadAllLocalDefinitions": (c_int, (_HANDLE, _HANDLE, c_void_p)),
    "Reader_CloseDefReader": (c_int, (_HANDLE, _HANDLE)),
    "Reader_OpenEvtFiles": (c_int, (_HANDLE,)),
    "Reader_CloseEvtFiles": (c_int, (_HANDLE,)),
    "Reader_GetEvtReader": (_HANDLE, (_HANDLE, c_uint64)),
    "Reader_RegisterEvtCallbacks": (c_int, (_HANDLE, _HANDLE, _HANDLE, c_void_p)),
    "Reader_ReadAllLocalEvents": (c_int, (_HANDLE, _HANDLE, c_void_p)),
    "Reader_CloseEvtReader": (c_int, (_HANDLE, _HANDLE)),
    "Reader_GetMarkerReader": (_HANDLE, (_HANDLE,)),
    "Reader_RegisterMarkerCallbacks": (c_int, (_HANDLE, _HANDLE, _HANDLE, c_void_p)),
    "Reader_ReadAllMarkers": (c_int, (_HANDLE, _HANDLE, c_void_p)),
    "Reader_CloseMarkerReader": (c_int, (_HANDLE, _HANDLE)),
    "Reader_GetPropertyNames": (c_int, (_HANDLE, c_void_p, c_void_p)),
    "Reader_GetChunkSize": (c_int, (_HANDLE, c_void_p, c_void_p)),
    "Reader_GetCreator": (c_int, (_HANDLE, c_void_p)),
    "Reader_GetMachineName": (c_int, (_HANDLE, c_void_p)),
    "Reader_GetDescription": (c_int, (_HANDLE, c_void_p)),
    "Reader_GetProperty": (c_int, (_HANDLE, c_char_p, c_void_p)),
    **{
        f"{kind}Callbacks_{what}": signature
        for kind in ("GlobalDefReader", "DefReader", "EvtReader", "MarkerReader")
        for what, signature in {"New": (_HANDLE, ()), "Delete": (None, (_HANDLE,))}.items()
    },
    **{
        prefix + name: (c_int, (_HANDLE, *arguments))
        for prefix, table in (
            ("Archive_", _ARCHIVE),
            ("GlobalDefWriter_Write", _DEFINITIONS),
            ("MarkerWriter_", _MARKERS),
        )
        for name, arguments in table.items()
    },
}
"""Name without ``OTF2_`` → result and arguments (OTF2 3.x headers)."""


BUNDLED = Path(__file__).with_name("libotf2.so.10")
"""The library in a wheel of lo2io: scripts/wheels.py puts it there."""
SONAMES = ("libotf2.so.10", "libopen-trace-format2.so.10")
"""Names under which the system can have libotf2 3.0 to 3.2: OTF2's own, and the one of Debian and Ubuntu."""
REMEDY = (
    "install libotf2: `apt-get install otf2-tools` (Debian, Ubuntu), or the package otf2 of your distribution; "
    "or `pip install otf2`, which compiles it for minutes on Python 3.12 and later"
)


def _candidates() -> Iterator[str]:
    """Paths and names under which libotf2 may be found, the preferred one first."""
    if BUNDLED.exists():
        yield str(BUNDLED)
    package = importlib.util.find_spec("_otf2")  # finds it without running it: its modules take 40 ms
    for folder in (package and package.submodule_search_locations) or ():
        yield from (str(path) for path in sorted(Path(folder).glob("_otf2.*.so")))
    yield from SONAMES


@functools.cache
def _loaded() -> ctypes.CDLL:
    """libotf2, loaded when a trace is first read or written.

    Raises:
        TraceError: There is none.
    """
    answers = []
    for candidate in _candidates():
        try:
            return ctypes.CDLL(candidate)
        except OSError as error:
            answers.append(str(error))
    raise TraceError("loading libotf2", "; ".join(answers), REMEDY)


class _Symbol(ctypes.Structure):
    """``Dl_info`` of dladdr(3)."""

    _fields_ = (("file", c_char_p), ("base", c_void_p), ("name", c_char_p), ("address", c_void_p))


def find_library() -> Path:
    """The file of the loaded libotf2.

    Raises:
        TraceError: There is none.
    """
    found = _Symbol()
    ctypes.CDLL(None).dladdr(c_void_p(address("Reader_Open")), ctypes.byref(found))
    return Path(found.file.decode())


@functools.cache
def _bound(name: str) -> Any:
    """``OTF2_<name>`` with its C types."""
    function: Any = getattr(_loaded(), f"OTF2_{name}")
    function.restype, function.argtypes = _FUNCTIONS[name]
    return function


def address(name: str) -> int:
    """The address of ``OTF2_<name>``, for native code."""
    return ctypes.cast(getattr(_loaded(), f"OTF2_{name}"), c_void_p).value or 0


def has(name: str) -> bool:
    """True if this release of OTF2 exports ``OTF2_<name>``."""
    return hasattr(_loaded(), f"OTF2_{name}")


class Library:
    """``OTF2_*`` functions as attributes without their prefix, and libotf2's messages for one user of the library.

    The first use of a function loads libotf2.
    """

    def __init__(self) -> None:
        _loaded()
        self._libc = ctypes.CDLL(None)
        self.messages: list[str] = []
        self._codes: list[int] = []
        self._error_callback = _ERROR_CALLBACK(self._on_error)
        self._previous: list[int | None] = []

    def __getattr__(self, name: str) -> Any:
        if name not in _FUNCTIONS:
            raise AttributeError(name)
        function = _bound(name)
        setattr(self, name, function)
        return function

    def setters(self, kind: str) -> tuple[str, ...]:
        """The record types for which the library has a callback of ``kind`` (EvtReader), by the names of its symbols.

        So no type of event goes unseen, in whichever release it came.
        """
        pattern = rf"\0OTF2_{kind}Callbacks_Set(\w+)Callback(?=\0)".encode()
        names = {name.decode() for name in re.findall(pattern, find_library().read_bytes())}
        return tuple(sorted(name for name in names if has(f"{kind}Callbacks_Set{name}Callback")))

    def set_callback(self, kind: str, callbacks: int, record: str, function: Any) -> None:
        """Register one callback."""
        setter = getattr(_loaded(), f"OTF2_{kind}Callbacks_Set{record}Callback")
        setter.argtypes, setter.restype = (c_void_p, c_void_p), c_int
        self.check(setter(callbacks, ctypes.cast(function, c_void_p)), f"registering for {record}")

    def check(self, code: int, tried: str) -> None:
        """Raise an error with the library's message, unless the code means success."""
        if code != SUCCESS:
            raise self.failure(tried, code)

    def failure(self, tried: str, code: int | None = None, remedy: str = DAMAGED) -> TraceError:
        """The error for a failure in the library, with its first message since the last call, or else its error code.

        The first message names the cause; later ones come from its callers. ``remedy`` is for causes in the trace.
        """
        cause = self._codes[0] if self._codes else code
        answer = self.answer(code)
        name = "" if cause is None else self.Error_GetName(cause).decode()
        if name in _REMEDIES:
            answer, remedy = f"{self.Error_GetDescription(cause).decode()} ({answer})", _REMEDIES[name]
        return TraceError(tried, answer, remedy)

    def answer(self, code: int | None = None) -> str:
        """The library's first message since the last call, else the name of its error code."""
        message = self.messages[0] if self.messages else ""
        self.forget()
        name = "" if code is None else self.Error_GetName(code).decode()
        return f"{name} ({message})" if name and message else name or message or "no reason given"

    def forget(self) -> None:
        """Drop the messages so far."""
        self.messages.clear()
        self._codes.clear()

    def _on_error(
        self, _user: int, _file: bytes, _line: int, _function: bytes, code: int, template: bytes, arguments: int
    ) -> int:
        """Keep a message of the library, which would go to stderr otherwise.

        On x86-64 and aarch64, a ``va_list`` argument is a pointer, so vsnprintf takes it as one.
        """
        text = ctypes.create_string_buffer(_MESSAGE_BYTES)
        if template:
            self._libc.vsnprintf(text, c_uint64(_MESSAGE_BYTES), c_char_p(template), c_void_p(arguments))
        self._codes.append(code)
        if text.value:
            self.messages.append(text.value.decode(errors="backslashreplace"))
        return code

    def catch(self) -> None:
        """Catch the library's messages until ``release``. Otherwise they go to stderr."""
        self.forget()
        self._previous.append(self.Error_RegisterCallback(ctypes.cast(self._error_callback, c_void_p), None))

    def release(self) -> None:
        """Send messages where they went before ``catch``."""
        self.Error_RegisterCallback(self._previous.pop(), None)

    @contextlib.contextmanager
    def quiet(self) -> Iterator[None]:
        """Catch the library's messages within the ``with`` block."""
        self.catch()
        try:
            yield
        finally:
            self.release()

    @contextlib.contextmanager
    def reader(self, anchor: Path) -> Iterator[int]:
        """An open OTF2 reader.

        Raises:
            TraceError: The trace does not exist, or its anchor file cannot be read, or a FIFO, a device or a socket
                lies where a file should: the library would wait for it, or read it without end.
        """
        _refuse_endless(anchor)
        with self.quiet():
            handle = self.Reader_Open(str(anchor).encode())
            if not handle:
                raise self.failure(
                    f"opening the trace {anchor}", remedy="give the directory or .otf2 file of an OTF2 trace"
                )
            try:
                self.check(self.Reader_SetSerialCollectiveCallbacks(handle), "preparing the OTF2 reader")
                yield handle
            finally:
                self.Reader_Close(handle)

    @contextlib.contextmanager
    def callbacks(self, kind: str) -> Iterator[int]:
        """A callback table of ``kind`` (GlobalDefReader, DefReader, EvtReader, MarkerReader)."""
        table = getattr(self, f"{kind}Callbacks_New")()
        try:
            yield table
        finally:
            getattr(self, f"{kind}Callbacks_Delete")(table)

    def number(self, function: str, *arguments: Any, tried: str) -> int:
        """Call a function whose last argument is a ``uint64_t *`` and return what it stored.

        An exception in a callback, Ctrl-C included, cannot pass through C frames. Python reports it as unraisable; here
        it is caught and raised again.
        """
        value = c_uint64()
        raised: list[BaseException] = []
        previous = sys.unraisablehook
        sys.unraisablehook = lambda hint: raised.append(hint.exc_value or hint.exc_type())
        try:
            code = getattr(self, function)(*arguments, ctypes.byref(value))
        finally:
            sys.unraisablehook = previous
        if raised:
            raise raised[0]
        self.check(code, tried)
        return value.value

    def property(self, reader: int, name: str) -> str | None:
        """A trace property; None if the trace has none of this name."""
        return self._text(self.Reader_GetProperty, reader, name.encode())

    def two_numbers(self, function: str, *arguments: Any, tried: str) -> tuple[int, int]:
        """Call a function whose last two arguments are a ``uint64_t *`` and return what it stored."""
        first, second = c_uint64(), c_uint64()
        code = getattr(self, function)(*arguments, ctypes.byref(first), ctypes.byref(second))
        self.check(code, tried)
        return first.value, second.value

    def creator(self, reader: int) -> str | None:
        """The name of the program that wrote the trace."""
        return self._text(self.Reader_GetCreator, reader)

    def machine(self, reader: int) -> str | None:
        """The name of the machine on which the trace was written."""
        return self._text(self.Reader_GetMachineName, reader)

    def description(self, reader: int) -> str | None:
        """The description that the writing program gave the trace."""
        return self._text(self.Reader_GetDescription, reader)

    def properties(self, reader: int) -> dict[str, str]:
        """All trace properties."""
        number, names = c_uint32(), POINTER(c_char_p)()
        code = self.Reader_GetPropertyNames(reader, ctypes.byref(number), ctypes.byref(names))
        self.check(code, "reading the trace's properties")
        known = [(names[place] or b"").decode(errors="replace") for place in range(number.value)]
        self._libc.free(names)
        return {name: self.property(reader, name) or "" for name in known}

    def _text(self, function: Any, *arguments: Any) -> str | None:
        """The string that a function allocates for its last argument."""
        value = c_char_p()
        code = function(*arguments, ctypes.byref(value))
        self.forget()
        if code != SUCCESS or value.value is None:
            return None
        text = value.value.decode(errors="replace")
        self._libc.free(value)
        return text


def _refuse_endless(anchor: Path) -> None:
    """Look at all files of an archive before the library opens them.

    Raises:
        TraceError: One of them is a FIFO, a device or a socket.
    """
    with (
        contextlib.suppress(OSError),
        os.scandir(anchor.with_suffix("")) as entries,
    ):  # what is missing, the library says
        for entry in entries:
            if not entry.is_file(follow_symlinks=False):
                _refuse_if_endless(Path(entry.path))
    for suffix in (anchor.suffix, ".def", ".marker"):
        _refuse_if_endless(anchor.with_suffix(suffix))


def _refuse_if_endless(path: Path) -> None:
    try:
        mode = path.stat().st_mode
    except OSError:
        return
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        raise TraceError(f"read {path}", "no regular file", "name an archive that a program has written")


def definition_type(*arguments: Any) -> Callable[..., Any]:
    """The C type of a callback for definitions or markers: user data, then ``arguments``."""
    return CFUNCTYPE(c_int, c_void_p, *arguments)


U8, U32, U64, TEXT, ADDRESS = c_uint8, c_uint32, c_uint64, c_char_p, c_void_p
