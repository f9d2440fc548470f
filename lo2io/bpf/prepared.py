"""The programs as libbpf hands them to the kernel, kept until the next boot, so that the next start needs no libbpf.

To set the kernel's offsets into the programs (CO-RE), libbpf parses and searches the kernel's types, for 60 ms. The
result depends on the kernel and on the object file alone. So the first load is watched, and its instructions, maps and
types are kept in ``/run/lo2io``. Later loads hand these to the kernel at once, several programs at a time: the verifier
works on each CPU. The verifier checks them each time, like all others.

lo2io uses a kept result only if the same kernel made it of the same object file. If such a load fails, libbpf loads
the object file, and its errors say more.

Facts: bpf/bpf.h and bpf/libbpf.h of libbpf 1.1; include/uapi/linux/bpf.h, kernel/bpf/syscall.c of Linux 6.18.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import threading
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from lo2io.bpf import kept, libbpf

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

KIND = "programs"
"""Each choice of programs has a file, of 0.5 MB."""
THREADS = 4
_TRACING, _RAW_TP, _ITER = 26, 23, 28
"""``BPF_PROG_TYPE_TRACING``, ``BPF_TRACE_RAW_TP`` and ``BPF_TRACE_ITER``."""
_TYPED = {"tp_btf/": ("btf_trace_", 8), "iter/": ("bpf_iter_", 12)}
"""Section of programs → the kernel's type that describes their arguments: its name's prefix, and its kind in BTF."""
_LOAD_MAP, _LOAD_VALUE, _WIDE = 1, 2, 0x18
"""``BPF_PSEUDO_MAP_FD`` and ``BPF_PSEUDO_MAP_VALUE`` of an instruction that loads 64 bits: its number is a map's fd."""
_INSN_BYTES = 8
_READ_ONLY = 1 << 7
"""``BPF_F_RDONLY_PROG``"""


class _MapOptions(ctypes.Structure):
    """``struct bpf_map_create_opts``."""

    _fields_ = (
        ("size", ctypes.c_size_t),
        ("types", ctypes.c_uint32 * 4),  # none of the programs needs them
        ("inner_map_fd", ctypes.c_uint32),
        ("flags", ctypes.c_uint32),
        ("extra", ctypes.c_uint64),
        ("rest", ctypes.c_uint32 * 2),
    )


class _LoadOptions(ctypes.Structure):
    """``struct bpf_prog_load_opts``."""

    _fields_ = (
        ("size", ctypes.c_size_t),
        ("attempts", ctypes.c_int),
        ("expected_attach_type", ctypes.c_uint32),
        ("btf_fd", ctypes.c_uint32),
        ("flags", ctypes.c_uint32),
        ("ifindex", ctypes.c_uint32),
        ("kern_version", ctypes.c_uint32),
        ("attach_btf_id", ctypes.c_uint32),
        ("attach_prog_fd", ctypes.c_uint32),
        ("attach_btf_obj_fd", ctypes.c_uint32),
        ("fd_array", ctypes.c_void_p),
        ("functions", ctypes.c_void_p),
        ("nr_functions", ctypes.c_uint32),
        ("function_bytes", ctypes.c_uint32),
        ("lines", ctypes.c_void_p),
        ("nr_lines", ctypes.c_uint32),
        ("line_bytes", ctypes.c_uint32),
        ("log_level", ctypes.c_uint32),
        ("log_size", ctypes.c_uint32),
        ("log", ctypes.c_void_p),
    )


class _HandlerOptions(ctypes.Structure):
    """``struct libbpf_prog_handler_opts``."""

    _fields_ = (
        ("size", ctypes.c_size_t),
        ("cookie", ctypes.c_long),
        ("setup", ctypes.c_void_p),
        ("prepare", ctypes.c_void_p),
        ("attach", ctypes.c_void_p),
    )


_PREPARE = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.POINTER(_LoadOptions), ctypes.c_long)


@cache
def _library() -> Any:
    """The library with the functions that are used here alone."""
    library = libbpf.library()
    pointer, integer, number, text = ctypes.c_void_p, ctypes.c_int, ctypes.c_uint32, ctypes.c_char_p
    signatures = {
        "bpf_btf_load": (integer, [text, ctypes.c_size_t, pointer]),
        "bpf_map_freeze": (integer, [integer]),
        "bpf_prog_load": (integer, [number, text, text, text, ctypes.c_size_t, pointer]),
        "libbpf_register_prog_handler": (integer, [text, number, number, pointer]),
        "libbpf_unregister_prog_handler": (integer, [integer]),
        "btf__load_vmlinux_btf": (pointer, []),
        "btf__find_by_name_kind": (integer, [pointer, text, number]),
        "btf__free": (None, [pointer]),
        "bpf_object__next_map": (pointer, [pointer, pointer]),
        "bpf_map__inner_map": (pointer, [pointer]),
        "bpf_map__initial_value": (pointer, [pointer, pointer]),
        "bpf_map__name": (text, [pointer]),
        "bpf_map__map_extra": (ctypes.c_uint64, [pointer]),
        **{f"bpf_map__{name}": (number, [pointer]) for name in ("type", "key_size", "max_entries", "map_flags")},
        "bpf_program__name": (text, [pointer]),
        "bpf_program__section_name": (text, [pointer]),
        "bpf_program__type": (number, [pointer]),
        "bpf_program__insns": (pointer, [pointer]),
        "bpf_program__insn_cnt": (ctypes.c_size_t, [pointer]),
    }
    for name, (result, arguments) in signatures.items():
        function = getattr(library, name)
        function.restype = result
        function.argtypes = arguments
    # libbpf before 1.3 uses freed memory once its last handler has been unregistered. So one that nothing needs stays.
    libbpf.check(library.libbpf_register_prog_handler(b"lo2io_nothing", 0, 0, None))
    return library


class _Settings(NamedTuple):
    """What a user sets in an object before loading."""

    left_out: list[str]
    entries: dict[str, int]
    values: dict[str, bytes]
    inner_bytes: dict[str, int]
    inner: dict[str, dict[int, int]]


class PreparedObject:
    """Like :class:`~lo2io.bpf.libbpf.BpfObject`. If no kept result can be used, libbpf loads, and the result is kept.

    Args:
        path: The object file.

    Raises:
        OSError: The file cannot be read.
        AccessError: libbpf is not installed.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        found = path.stat()
        self._made_of = (str(path), found.st_size, found.st_mtime_ns)
        self._library = _library()
        self._set = _Settings([], {}, {}, {}, {})
        self._loaded: libbpf.BpfObject | _Loaded | None = None

    def leave_out(self, program: str) -> None:
        """Do not load this program."""
        self._set.left_out.append(program)

    def set_entries(self, name: str, entries: int) -> None:
        """Set a map's number of entries. Call this before loading."""
        self._set.entries[name] = entries

    def set_value(self, name: str, value: bytes) -> None:
        """Set the initial value of a section of data. Call this before loading."""
        self._set.values[name] = value

    def set_inner_bytes(self, name: str, size: int) -> None:
        """Set the size of the values in the maps that a map of maps holds. Call this before loading."""
        self._set.inner_bytes[name] = size

    def set_maps(self, name: str, fds: dict[int, int]) -> None:
        """Set the maps that a map of maps holds. Call this before loading."""
        self._set.inner[name] = fds

    def load(self) -> None:
        """Have the kernel make the maps and verify the programs.

        Raises:
            OSError: The kernel refuses, or a map or program does not exist. :func:`libbpf.last_words` may tell more.
        """
        key = None
        with contextlib.suppress(OSError):
            key = [*self._made_of, *kept.kernel(), sorted(self._set.left_out)]
        plan = None if key is None else kept.read(KIND, key)
        if plan is not None:
            with contextlib.suppress(OSError, KeyError):
                self._loaded = _Loaded(self._library, plan, self._set)
                return
        if key is None or not kept.may_keep():
            self._loaded = self._load_by_libbpf()
            return
        watch = _Watch(self._library)
        try:
            with watch:
                self._loaded = self._load_by_libbpf(watch)
        except OSError:
            self._loaded = self._load_by_libbpf()
            return
        if watch.is_whole:
            kept.keep(KIND, key, watch.plan)

    def _load_by_libbpf(self, watch: _Watch | None = None) -> libbpf.BpfObject:
        made = libbpf.BpfObject(self._path.read_bytes())
        try:
            for program in self._set.left_out:
                made.leave_out(program)
            for name, entries in self._set.entries.items():
                made.set_entries(name, entries)
            if watch:
                watch.note_maps(made.handle)  # first: the next step replaces the inner maps that it notes
            for name, size in self._set.inner_bytes.items():
                made.set_inner_bytes(name, size)
            for name, value in self._set.values.items():
                made.set_value(name, value)
            made.load()
            for name, fds in self._set.inner.items():
                libbpf.put_fds(made.map_fd(name), fds)
        except BaseException:
            made.close()
            raise
        return made

    def map_fd(self, name: str) -> int:
        """The file descriptor of a map. :meth:`close` closes it."""
        return self._done.map_fd(name)

    def value_bytes(self, name: str) -> int:
        """Size of a map's values."""
        return self._done.value_bytes(name)

    def program_fd(self, name: str) -> int:
        """The file descriptor of a loaded program. :meth:`close` closes it."""
        return self._done.program_fd(name)

    def close(self) -> None:
        """Close all descriptors of the maps and programs. Attached programs live on."""
        if self._loaded:
            self._loaded.close()

    @property
    def _done(self) -> libbpf.BpfObject | _Loaded:
        assert self._loaded is not None  # noqa: S101 # nobody asks before load()
        return self._loaded


class _Loaded:
    """Maps and programs that were made of a kept plan."""

    def __init__(self, library: Any, plan: dict[str, Any], settings: _Settings) -> None:
        self._library = library
        self._plan = plan
        self._fds = contextlib.ExitStack()
        self._maps: dict[str, int] = {}
        self._programs: dict[str, int] = {}
        with self._fds:
            types = self._own(library.bpf_btf_load(plan["types"], len(plan["types"]), None))
            for each in plan["maps"]:
                self._maps[each["name"]] = self._make_map(each, settings)
            with self._filling(settings.inner):
                self._load_all(plan["programs"], types)
            self._fds = self._fds.pop_all()

    def _own(self, fd: int) -> int:
        self._fds.callback(os.close, libbpf.check(fd))
        return fd

    def _make_map(self, of: dict[str, Any], settings: _Settings) -> int:
        name, entries = of["name"], settings.entries.get(of["name"], of["entries"])
        example = 0  # of the maps that a map of maps holds
        if of["inner"]:
            size = settings.inner_bytes.get(name, of["inner"]["value_bytes"])
            example = self._create(of["inner"], size, of["inner"]["entries"], 0)
        try:
            fd = self._own(self._create(of, of["value_bytes"], entries, example))
        finally:
            if example:
                os.close(example)
        value = settings.values.get(name, of["value"])
        if value is not None:
            if len(value) != of["value_bytes"]:
                raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
            place = ctypes.c_uint32(0)
            libbpf.check(self._library.bpf_map_update_elem(fd, ctypes.byref(place), value, 0))
            if of["flags"] & _READ_ONLY:
                libbpf.check(self._library.bpf_map_freeze(fd))
        return fd

    def _create(self, of: dict[str, Any], value_bytes: int, entries: int, example: int) -> int:
        options = _MapOptions(ctypes.sizeof(_MapOptions), inner_map_fd=example, flags=of["flags"], extra=of["extra"])
        name = of["name"][:15].encode()
        return libbpf.check(
            self._library.bpf_map_create(of["type"], name, of["key_bytes"], value_bytes, entries, ctypes.byref(options))
        )

    def _load_all(self, programs: Sequence[dict[str, Any]], types: int) -> None:
        """Load the programs in several threads, the longest first. libbpf's calls do not hold Python's lock."""
        left = sorted(programs, key=lambda each: len(each["code"]))
        results: dict[str, int] = {}

        def work() -> None:
            with contextlib.suppress(IndexError):  # of an empty list
                while True:
                    each = left.pop()
                    results[each["name"]] = self._load(each, types)

        threads = [threading.Thread(target=work, daemon=True) for _ in range(min(THREADS, os.cpu_count() or 1) - 1)]
        for thread in threads:
            thread.start()
        work()
        for thread in threads:
            thread.join()
        for fd in results.values():
            if fd >= 0:
                self._own(fd)
        for each in programs:
            self._programs[each["name"]] = libbpf.check(results[each["name"]])

    @contextlib.contextmanager
    def _filling(self, inner: dict[str, dict[int, int]]) -> Iterator[None]:
        """Fill maps of maps in a thread of its own, for the kernel waits for 10 ms then."""
        failures: list[OSError] = []

        def fill() -> None:
            try:
                for name, fds in inner.items():
                    libbpf.put_fds(self._maps[name], fds)
            except OSError as error:
                failures.append(error)

        thread = threading.Thread(target=fill, daemon=True)
        thread.start()
        try:
            yield
        finally:
            thread.join()
        if failures:
            raise failures[0]

    def _load(self, of: dict[str, Any], types: int) -> int:
        """The program's fd, or a negative errno."""
        code = bytearray(of["code"])
        for place, name in of["loads"]:
            code[place * _INSN_BYTES + 4 : place * _INSN_BYTES + 8] = self._maps[name].to_bytes(4, "little")
        functions = ctypes.create_string_buffer(of["functions"], len(of["functions"]))
        options = _LoadOptions(
            ctypes.sizeof(_LoadOptions),
            expected_attach_type=of["expected_attach_type"],
            btf_fd=types,
            flags=of["flags"],
            attach_btf_id=of["attach_btf_id"],
            functions=ctypes.addressof(functions),
            nr_functions=len(of["functions"]) // of["function_bytes"],
            function_bytes=of["function_bytes"],
        )
        fd: int = self._library.bpf_prog_load(
            of["type"],
            of["name"][:15].encode(),
            self._plan["licence"],
            bytes(code),
            len(code) // _INSN_BYTES,
            ctypes.byref(options),
        )
        return fd

    def map_fd(self, name: str) -> int:
        return self._found(self._maps, name)

    def value_bytes(self, name: str) -> int:
        return next(int(each["value_bytes"]) for each in self._plan["maps"] if each["name"] == name)

    def program_fd(self, name: str) -> int:
        return self._found(self._programs, name)

    def close(self) -> None:
        self._fds.close()

    @staticmethod
    def _found(fds: dict[str, int], name: str) -> int:
        if name not in fds:
            raise OSError(errno.ENOENT, os.strerror(errno.ENOENT))
        return fds[name]


class _Watch:
    """Notes what libbpf hands to the kernel while it loads an object, in a context."""

    def __init__(self, library: Any) -> None:
        self.plan: dict[str, Any] = {"maps": [], "programs": [], "types": b"", "licence": b"Dual BSD/GPL"}
        self.is_whole = True
        self._library = library
        self._types: int | None = None
        self._maps: list[int] = []
        self._callback = _PREPARE(self._prepare)
        self._handlers: list[int] = []

    def __enter__(self) -> None:
        options = _HandlerOptions(
            ctypes.sizeof(_HandlerOptions), prepare=ctypes.cast(self._callback, ctypes.c_void_p).value
        )
        sections = (
            ("tp_btf/", _TRACING, _RAW_TP),
            ("iter/", _TRACING, _ITER),
            ("raw_tp/", 17, 0),
            ("tracepoint", 5, 0),
            ("perf_event", 7, 0),
        )
        for section, kind, attach in sections:
            handler = self._library.libbpf_register_prog_handler(section.encode(), kind, attach, ctypes.byref(options))
            self._handlers.append(libbpf.check(handler))

    def __exit__(self, *_: object) -> None:
        for handler in self._handlers:
            self._library.libbpf_unregister_prog_handler(handler)
        if self._types:
            self._library.btf__free(self._types)

    def note_maps(self, handle: int) -> None:
        """Note the maps of an object, before their values are set."""
        found = self._library.bpf_object__next_map(handle, None)
        while found:
            self._maps.append(found)
            self.plan["maps"].append(self._describe_map(found))
            found = self._library.bpf_object__next_map(handle, found)

    def _describe_map(self, pointer: int) -> dict[str, Any]:
        library = self._library
        inner = library.bpf_map__inner_map(pointer)
        size = ctypes.c_size_t()
        value = library.bpf_map__initial_value(pointer, ctypes.byref(size)) if not inner else None
        return {
            "name": library.bpf_map__name(pointer).decode() if library.bpf_map__name(pointer) else "",
            "type": library.bpf_map__type(pointer),
            "key_bytes": library.bpf_map__key_size(pointer),
            "value_bytes": library.bpf_map__value_size(pointer),
            "entries": library.bpf_map__max_entries(pointer),
            "flags": library.bpf_map__map_flags(pointer),
            "extra": library.bpf_map__map_extra(pointer),
            "value": ctypes.string_at(value, size.value) if value else None,
            "inner": self._describe_map(inner) if inner else None,
        }

    def _prepare(self, program: int, options: Any, _: int) -> int:
        """Libbpf is about to load a program. Returns 0, or a negative errno."""
        try:
            return self._note(program, options.contents)
        except Exception:  # noqa: BLE001 - libbpf then fails, and load() lets it load again, unwatched
            self.is_whole = False
            return -errno.EINVAL

    def _note(self, program: int, options: Any) -> int:
        library = self._library
        section = library.bpf_program__section_name(program).decode()
        prefix, _, of = section.partition("/")
        if f"{prefix}/" in _TYPED:
            options.attach_btf_id = libbpf.check(self._type(*_TYPED[f"{prefix}/"], of))
        if options.fd_array or options.attach_btf_obj_fd or options.attach_prog_fd:
            self.is_whole = False  # types of modules
        if not self.plan["types"]:
            self.plan["types"] = libbpf.read_types(options.btf_fd)
        code = ctypes.string_at(library.bpf_program__insns(program), library.bpf_program__insn_cnt(program) * 8)
        fds = {
            library.bpf_map__fd(each): noted["name"] for each, noted in zip(self._maps, self.plan["maps"], strict=True)
        }
        self.plan["programs"].append(
            {
                "name": library.bpf_program__name(program).decode(),
                "type": library.bpf_program__type(program),
                "expected_attach_type": options.expected_attach_type,
                "attach_btf_id": options.attach_btf_id,
                "flags": options.flags,
                "functions": ctypes.string_at(options.functions, options.nr_functions * options.function_bytes),
                "function_bytes": options.function_bytes,
                "code": code,
                "loads": [(place, fds[fd]) for place, fd in _map_loads(code)],
            }
        )
        return 0

    def _type(self, begin: str, kind: int, name: str) -> int:
        """The kernel's id of the type that describes the arguments of a tracepoint's or an iterator's programs."""
        if self._types is None:
            self._types = self._library.btf__load_vmlinux_btf()
        found: int = self._library.btf__find_by_name_kind(self._types, f"{begin}{name}".encode(), kind)
        return found


def _map_loads(code: bytes) -> Iterator[tuple[int, int]]:
    """Place and fd of each instruction that loads a map's address."""
    place = 0
    while place * _INSN_BYTES < len(code):
        at = place * _INSN_BYTES
        if code[at] == _WIDE:
            if code[at + 1] >> 4 in {_LOAD_MAP, _LOAD_VALUE}:
                yield place, int.from_bytes(code[at + 4 : at + 8], "little", signed=True)
            place += 1
        place += 1
