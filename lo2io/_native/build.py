"""Builds ``lo2io._native._lib``: the C stages, bound by cffi in API mode with the stable ABI."""

from __future__ import annotations

import re
from pathlib import Path

import cffi

HERE = Path("lo2io/_native")
HEADERS = (
    "tracepoints.h",
    "columns.h",
    "ring_columns.h",
    "lo2io.h",
    "capture.h",
    "facts.h",
    "kernel_records.h",
    "otf2_events.h",
    "otf2_reader.h",
    "perfetto.h",
)
"""In the order of their needs, as in all.h."""
SOURCES = sorted(str(path) for path in HERE.glob("*.c"))


def declarations(header: str) -> str:
    """The header as cffi reads it: no comments, no preprocessor lines."""
    text = re.sub(r"/\*.*?\*/", "", (HERE / header).read_text(encoding="utf-8"), flags=re.DOTALL)
    return "\n".join(line for line in text.splitlines() if not line.startswith("#"))


ffibuilder = cffi.FFI()
for name in HEADERS:
    ffibuilder.cdef(declarations(name))
ffibuilder.set_source(
    "lo2io._native._lib",
    '#include "all.h"',
    sources=SOURCES,
    include_dirs=[str(HERE)],
    extra_compile_args=["-O2", "-g1", "-std=gnu11", "-fvisibility=hidden", "-Wall", "-Wextra", "-Wno-unused-parameter"],
    py_limited_api=True,
)
