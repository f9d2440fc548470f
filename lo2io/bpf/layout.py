"""The structures that lo2io and the kernel programs share, as ``lo2io/bpf/programs/config.h`` and ``maps.h`` have them.

Native alignment is clang's for BPF on every 64 bit architecture. ``tests/unit/bpf/test_loader.py`` compares them with
the types of the built object.
"""

from __future__ import annotations

import ctypes

MAX_CALLS = 1024
MAX_EVENTS = 1024
MAX_DEVICES = 16
MAX_PREFIX = 256


class Call(ctypes.Structure):
    """``struct lo2_bpf_call``."""

    _fields_ = (
        *((name, ctypes.c_uint16) for name in ("enter_event", "exit_event", "enter_index", "exit_index")),
        *((name, ctypes.c_uint8) for name in ("flags", "nr_args", "fd", "fd2", "path", "path2", "dirfd", "dirfd2")),
        *((name, ctypes.c_uint8) for name in ("vector", "vector_count", "how", "how_size", "iocbs", "iocbs_count")),
        *((name, ctypes.c_uint8) for name in ("events", "context", "count", "filled")),
    )


class Config(ctypes.Structure):
    """``struct lo2_bpf_config``."""

    _fields_ = (
        ("recorder", ctypes.c_uint32),
        *((name, ctypes.c_uint8) for name in ("calls", "all_tasks", "one_cgroup", "facts", "compat")),
        ("min_latency_ns", ctypes.c_uint64),
        ("min_bytes", ctypes.c_int64),
        ("nr_devices", ctypes.c_uint32),
        ("devices", ctypes.c_uint32 * MAX_DEVICES),
        ("prefix_length", ctypes.c_uint32),
        ("prefix", ctypes.c_char * MAX_PREFIX),
    )


class Compat(ctypes.Structure):
    """``struct lo2_bpf_compat``."""

    _fields_ = (
        ("call", ctypes.c_uint16),
        ("memory", ctypes.c_uint8),
        ("nr_given", ctypes.c_uint8),
        ("args", ctypes.c_uint16 * 6),
    )


class Told(ctypes.Structure):
    """The section ``.rodata.lo2io``."""

    _fields_ = (
        ("config", Config),
        ("calls", Call * MAX_CALLS),
        ("of_number", ctypes.c_uint16 * MAX_CALLS),
        ("compat", Compat * MAX_CALLS),
    )


class Slot(ctypes.Structure):
    """``struct lo2_bpf_slot``; the record is a ``lo2_kernel_call``."""

    _fields_ = (
        ("occupied", ctypes.c_uint32),
        ("call", ctypes.c_uint32),
        ("time_ns", ctypes.c_uint64),
        ("tid", ctypes.c_uint32),
        ("type", ctypes.c_uint16),
        ("event", ctypes.c_uint16),
        ("exit_event", ctypes.c_uint16),
        ("nr_args", ctypes.c_uint16),
        ("ignored", ctypes.c_uint32),
        ("exit", ctypes.c_int64 * 4),
        ("args", ctypes.c_uint64 * 6),
        ("spare", ctypes.c_uint64 * 2),
    )


class Cpu(ctypes.Structure):
    """``struct lo2_bpf_cpu`` as far as user space looks."""

    _fields_ = (
        ("counts", ctypes.c_uint64 * 3 * MAX_EVENTS),
        ("misses", ctypes.c_uint64 * 5),
        ("slot", Slot),
        ("lost", ctypes.c_uint64),
        ("lost_begin_ns", ctypes.c_uint64),
        ("lost_end_ns", ctypes.c_uint64),
        ("busy", ctypes.c_uint64),
    )
