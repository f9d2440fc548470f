"""Builds ``lo2io.native._lib``: the C stages, bound by cffi in API mode with the stable ABI."""

from __future__ import annotations

import re
from pathlib import Path

import cffi

PACKAGE = Path("lo2io")
HERE = PACKAGE / "native"
HEADERS = (
    "native/api/tracepoints.h",
    "native/api/columns.h",
    "native/api/ring_columns.h",
    "native/api/lo2io.h",
    "native/api/capture.h",
    "native/api/facts.h",
    "bpf/programs/records.h",
    "bpf/programs/samples.h",
    "bpf/programs/config.h",
    "native/api/otf2_events.h",
    "native/api/otf2_reader.h",
    "native/api/perfetto.h",
    "native/api/sums.h",
    "native/api/merge.h",
)
"""The headers that Python sees, in the order of their dependencies, as in api/all.h."""
SOURCES = sorted(str(path) for path in HERE.rglob("*.c") if path.name != "_lib.c")


def declarations(header: str) -> str:
    """The header in the form that cffi reads: without comments and preprocessor lines."""
    text = re.sub(r"/\*.*?\*/", "", (PACKAGE / header).read_text(encoding="utf-8"), flags=re.DOTALL)
    return "\n".join(line for line in text.splitlines() if not line.startswith("#"))


ffibuilder = cffi.FFI()
for name in HEADERS:
    ffibuilder.cdef(declarations(name))
ffibuilder.set_source(
    "lo2io.native._lib",
    '#include "api/all.h"',
    sources=SOURCES,
    include_dirs=[str(HERE), str(PACKAGE)],
    extra_compile_args=["-O3", "-g1", "-std=gnu11", "-fvisibility=hidden", "-Wall", "-Wextra", "-Wno-unused-parameter"],
    py_limited_api=True,
)
