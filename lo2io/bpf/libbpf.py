"""libbpf through ctypes: the functions for loading and attaching programs.

libbpf puts the running kernel's offsets into the programs (CO-RE), makes their maps and hands both to the kernel. Its
interface is stable within ``libbpf.so.1``. Messages of libbpf and of the verifier are kept for errors, not printed.

Facts: bpf/libbpf.h and bpf/bpf.h of libbpf 1.1, include/uapi/linux/bpf.h of Linux 6.18.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import time
from functools import cache
from typing import TYPE_CHECKING, Any

from lo2io.errors import AccessError
from lo2io.native._lib import ffi, lib

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

LIBRARY = "libbpf.so.1"
_ARRAY = 2
"""``BPF_MAP_TYPE_ARRAY``."""
_MMAPABLE = 1 << 10
"""``BPF_F_MMAPABLE``: user space may map the values."""
_PERF_EVENT = 41
"""``BPF_PERF_EVENT`` of ``enum bpf_attach_type``."""
_ITERATOR = 28
"""``BPF_TRACE_ITER``."""
_READ_BYTES = 1 << 16
"""At least the 32 KiB that the kernel puts together for one read (kernel/bpf/bpf_iter.c): then no record is cut."""

_libc = ctypes.CDLL(None, use_errno=True)
_MEMBARRIER = {"x86_64": 324}
_MEMBARRIER_GENERIC = 283


class _TypesInfo(ctypes.Structure):
    """``struct bpf_btf_info``."""

    _fields_ = (
        ("types", ctypes.c_uint64),
        ("size", ctypes.c_uint32),
        ("rest", ctypes.c_uint32 * 5),
    )


class _LinkOptions(ctypes.Structure):
    """``struct bpf_link_create_opts`` up to ``perf_event``."""

    _fields_ = (
        ("size", ctypes.c_size_t),
        ("flags", ctypes.c_uint32),
        ("iterator", ctypes.c_void_p),
        ("iterator_length", ctypes.c_uint32),
        ("target_btf_id", ctypes.c_uint32),
        ("cookie", ctypes.c_uint64),
    )


class _MapOptions(ctypes.Structure):
    """``struct bpf_map_create_opts`` up to ``map_flags``."""

    _fields_ = (
        ("size", ctypes.c_size_t),
        ("btf_fd", ctypes.c_uint32),
        ("btf_key_type_id", ctypes.c_uint32),
        ("btf_value_type_id", ctypes.c_uint32),
        ("btf_vmlinux_value_type_id", ctypes.c_uint32),
        ("inner_map_fd", ctypes.c_uint32),
        ("map_flags", ctypes.c_uint32),
    )


class _RunOptions(ctypes.Structure):
    """``struct bpf_test_run_opts``."""

    _fields_ = (
        ("size", ctypes.c_size_t),
        ("data", ctypes.c_void_p * 2),
        ("data_sizes", ctypes.c_uint32 * 2),
        ("contexts", ctypes.c_void_p * 2),
        ("context_sizes", ctypes.c_uint32 * 2),
        ("result", ctypes.c_uint32),
        ("rest", ctypes.c_uint32 * 5),
    )


class _ProgramInfo(ctypes.Structure):
    """``struct bpf_prog_info``. Only its size and ``recursion_misses`` matter here."""

    _fields_ = (
        ("before", ctypes.c_uint8 * 208),
        ("recursion_misses", ctypes.c_uint64),
        ("verified_insns", ctypes.c_uint32),
        ("attach_btf_obj_id", ctypes.c_uint32),
        ("attach_btf_id", ctypes.c_uint32),
    )


@cache
def library() -> Any:
    """The library, loaded once.

    Raises:
        AccessError: libbpf is not installed, or too old.
    """
    try:
        loaded = ctypes.CDLL(LIBRARY, use_errno=True)
    except OSError as error:
        raise AccessError("load libbpf", str(error), "install libbpf 1.0 or newer (Debian: libbpf1)") from error
    pointer, integer, text = ctypes.c_void_p, ctypes.c_int, ctypes.c_char_p
    signatures = {
        "libbpf_set_print": (pointer, [pointer]),
        "bpf_object__open_mem": (pointer, [text, ctypes.c_size_t, pointer]),
        "bpf_object__load": (integer, [pointer]),
        "bpf_object__close": (None, [pointer]),
        "bpf_object__find_map_by_name": (pointer, [pointer, text]),
        "bpf_object__find_program_by_name": (pointer, [pointer, text]),
        "bpf_program__set_autoload": (integer, [pointer, ctypes.c_bool]),
        "bpf_program__fd": (integer, [pointer]),
        "bpf_map__fd": (integer, [pointer]),
        "bpf_map__set_max_entries": (integer, [pointer, ctypes.c_uint32]),
        "bpf_map__set_initial_value": (integer, [pointer, text, ctypes.c_size_t]),
        "bpf_map__value_size": (ctypes.c_uint32, [pointer]),
        "bpf_map__set_inner_map_fd": (integer, [pointer, integer]),
        "bpf_map_create": (integer, [integer, text, ctypes.c_uint32, ctypes.c_uint32, ctypes.c_uint32, pointer]),
        "bpf_map_update_elem": (integer, [integer, pointer, pointer, ctypes.c_uint64]),
        "bpf_map_update_batch": (integer, [integer, pointer, pointer, ctypes.POINTER(ctypes.c_uint32), pointer]),
        "bpf_link_create": (integer, [integer, integer, integer, pointer]),
        "bpf_iter_create": (integer, [integer]),
        "bpf_raw_tracepoint_open": (integer, [text, integer]),
        "bpf_prog_test_run_opts": (integer, [integer, pointer]),
        "bpf_obj_get_info_by_fd": (integer, [integer, pointer, ctypes.POINTER(ctypes.c_uint32)]),
    }
    for name, (result, arguments) in signatures.items():
        function = getattr(loaded, name)
        function.restype = result
        function.argtypes = arguments
    loaded.libbpf_set_print(int(ffi.cast("uintptr_t", lib.lo2_libbpf_keeper())))
    return loaded


def _messages() -> str:
    said: bytes = ffi.string(lib.lo2_libbpf_messages())
    return said.decode(errors="replace")


def last_words() -> str:
    """The last message that explains a failure: the verifier's complaint if there is one, else libbpf's last line."""
    lines = [line.removeprefix("libbpf: ").strip() for line in _messages().splitlines()]
    for place, line in enumerate(lines):
        if line.startswith("processed "):  # the verifier's log ends so, and its complaint stands before
            return lines[place - 1]
    lines = [line for line in lines if line and not line.startswith("failed to load object")]
    return lines[-1] if lines else ""


def check(result: int) -> int:
    """Return a function's result, or raise OSError if the result is an error."""
    if result < 0:
        raise OSError(-result, os.strerror(-result))
    return result


class BpfObject:
    """An object file, opened by libbpf.

    Attributes:
        handle: libbpf's pointer.

    Raises:
        OSError: libbpf cannot read the file.
        AccessError: libbpf is not installed.
    """

    def __init__(self, content: bytes) -> None:
        lib.lo2_libbpf_forget()
        self._examples = contextlib.ExitStack()
        self._library = library()
        self.handle = self._library.bpf_object__open_mem(content, len(content), None)
        if not self.handle:
            number = ctypes.get_errno() or errno.EINVAL
            raise OSError(number, os.strerror(number))

    def leave_out(self, program: str) -> None:
        """Do not load this program."""
        check(self._library.bpf_program__set_autoload(self._program(program), False))

    def set_entries(self, name: str, entries: int) -> None:
        """Set a map's number of entries. Call this before loading."""
        check(self._library.bpf_map__set_max_entries(self._map(name), entries))

    def set_inner_bytes(self, name: str, size: int) -> None:
        """Let a map of maps hold maps as :func:`create_memory` makes them, of this size. Call this before loading.

        The object then no longer describes its inner map.
        """
        # libbpf 1.5 reads through a null pointer if it is to set the size of the inner map that the object describes.
        example = create_memory(size)
        self._examples.callback(os.close, example)
        check(self._library.bpf_map__set_inner_map_fd(self._map(name), example))

    def set_value(self, name: str, value: bytes) -> None:
        """Set the initial value of a section of data. Call this before loading.

        Raises:
            OSError: EINVAL: the section has another size.
        """
        check(self._library.bpf_map__set_initial_value(self._map(name), value, len(value)))

    def load(self) -> None:
        """Have the kernel make the maps and verify the programs.

        Raises:
            OSError: The kernel refuses. :func:`last_words` may tell more.
        """
        with self._examples:
            check(self._library.bpf_object__load(self.handle))

    def map_fd(self, name: str) -> int:
        """The file descriptor of a map. :meth:`close` closes it."""
        return check(self._library.bpf_map__fd(self._map(name)))

    def value_bytes(self, name: str) -> int:
        """Size of a map's values."""
        return int(self._library.bpf_map__value_size(self._map(name)))

    def program_fd(self, name: str) -> int:
        """The file descriptor of a loaded program. :meth:`close` closes it."""
        return check(self._library.bpf_program__fd(self._program(name)))

    def close(self) -> None:
        """Close all descriptors of the maps and programs. Attached programs live on."""
        self._examples.close()
        if self.handle:
            self._library.bpf_object__close(self.handle)
            self.handle = None

    def _map(self, name: str) -> int:
        return self._found(self._library.bpf_object__find_map_by_name(self.handle, name.encode()))

    def _program(self, name: str) -> int:
        return self._found(self._library.bpf_object__find_program_by_name(self.handle, name.encode()))

    @staticmethod
    def _found(pointer: int | None) -> int:
        if not pointer:
            raise OSError(errno.ENOENT, os.strerror(errno.ENOENT))
        return pointer


def create_memory(size: int) -> int:
    """Make an array of one value of this many bytes, which user space may map; return its file descriptor."""
    options = _MapOptions(size=ctypes.sizeof(_MapOptions), map_flags=_MMAPABLE)
    return check(library().bpf_map_create(_ARRAY, b"lo2_ring", 4, size, 1, ctypes.byref(options)))


def put_fd(map_fd: int, key: int, fd: int) -> None:
    """Put a map into a map of maps, or a cgroup's folder into a map of cgroups."""
    place, value = ctypes.c_uint32(key), ctypes.c_uint32(fd)
    check(library().bpf_map_update_elem(map_fd, ctypes.byref(place), ctypes.byref(value), 0))


def put_fds(map_fd: int, fds: Mapping[int, int]) -> None:
    """Put several maps into a map of maps at once.

    At each call, the kernel waits until no program can be using a former entry, so one call is quicker than several.

    A kernel without a call for many entries of a map of maps gets them one by one.
    """
    number = ctypes.c_uint32(len(fds))
    keys, values = (ctypes.c_uint32 * len(fds))(*fds), (ctypes.c_uint32 * len(fds))(*fds.values())
    if library().bpf_map_update_batch(map_fd, keys, values, ctypes.byref(number), None) < 0:
        for key, fd in fds.items():
            put_fd(map_fd, key, fd)


def link_event(program_fd: int, event_fd: int, cookie: int) -> int:
    """Attach a program to a perf event (Linux 5.15). Return the link's file descriptor; closing it detaches."""
    options = _LinkOptions(size=ctypes.sizeof(_LinkOptions), cookie=cookie)
    return check(library().bpf_link_create(program_fd, event_fd, _PERF_EVENT, ctypes.byref(options)))


def link_iterator(program_fd: int) -> int:
    """Make an iterator of a program (Linux 5.8). Return the link's file descriptor."""
    return check(library().bpf_link_create(program_fd, 0, _ITERATOR, None))


def iterate(link_fd: int) -> Iterator[bytes]:
    """Run an iterator's program for all objects. Yield what it writes: pieces of whole records."""
    fd = check(library().bpf_iter_create(link_fd))
    try:
        while True:
            try:
                piece = os.read(fd, _READ_BYTES)
            except BlockingIOError:  # a million objects in a row wrote nothing: kernel/bpf/bpf_iter.c
                continue  # with the next object
            if not piece:
                return
            yield piece
    finally:
        os.close(fd)


def open_raw_tracepoint(name: str | None, program_fd: int) -> int:
    """Attach a program to a raw tracepoint. Return a file descriptor; closing it detaches.

    Args:
        name: The tracepoint's name; None: the one in the program's own section (tp_btf).
        program_fd: The program's file descriptor.

    Raises:
        OSError: ENOENT: this kernel has no such tracepoint.
    """
    return check(library().bpf_raw_tracepoint_open(None if name is None else name.encode(), program_fd))


def run(program_fd: int) -> int:
    """Run a program of a raw tracepoint once, at once (Linux 5.10); return its result."""
    options = _RunOptions(size=ctypes.sizeof(_RunOptions))
    check(library().bpf_prog_test_run_opts(program_fd, ctypes.byref(options)))
    result: int = options.result
    return result


def read_misses(program_fd: int) -> int:
    """Number of times that the kernel did not run a program because one ran already."""
    info = _ProgramInfo()
    size = ctypes.c_uint32(ctypes.sizeof(info))
    check(library().bpf_obj_get_info_by_fd(program_fd, ctypes.byref(info), ctypes.byref(size)))
    misses: int = info.recursion_misses
    return misses


def read_types(types_fd: int) -> bytes:
    """The types (BTF) that the kernel has for a program, as they were given to the kernel."""
    info = _TypesInfo()
    size = ctypes.c_uint32(ctypes.sizeof(info))
    check(library().bpf_obj_get_info_by_fd(types_fd, ctypes.byref(info), ctypes.byref(size)))
    content = ctypes.create_string_buffer(info.size)
    info = _TypesInfo(ctypes.addressof(content), info.size)
    check(library().bpf_obj_get_info_by_fd(types_fd, ctypes.byref(info), ctypes.byref(size)))
    return content.raw


def wait_for_programs() -> None:
    """Wait until every program that runs now has ended.

    The kernel runs each program between rcu_read_lock and rcu_read_unlock (kernel/trace/bpf_trace.c), so a grace period
    of RCU is enough: membarrier(2) waits for one (MEMBARRIER_CMD_GLOBAL, kernel/sched/membarrier.c). If the kernel
    refuses the call, a short sleep replaces it.
    """
    number = _MEMBARRIER.get(os.uname().machine, _MEMBARRIER_GENERIC)
    if _libc.syscall(ctypes.c_long(number), 1, 0, 0):
        time.sleep(0.02)
