"""Builds the workloads of this directory for tests.

Binaries are kept under .cache/ by the content of their source, so that the next run finds them.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
CACHE = HERE.parents[1] / ".cache" / "workloads"
FLAGS = ("-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror", "-pthread")
STATIC = ("musl-gcc", "-static")
"""Compiler and flags of a static program that no C library of the machine has a part in."""
DYNAMIC = ("gcc",)


def build(name: str, compiler: tuple[str, ...] = DYNAMIC) -> Path:
    """Compile ``NAME.c``; the test requires the compiler (``@pytest.mark.requires("musl-gcc")``).

    Files ``NAME_*.c`` beside it are parts of the same program, with the header ``NAME.h``.

    Raises:
        subprocess.CalledProcessError: It does not compile; stderr has the compiler's reason.
    """
    sources = [HERE / f"{name}.c", *sorted(HERE.glob(f"{name}_*.c"))]
    command = (*compiler, *FLAGS)
    text = b"".join(path.read_bytes() for path in [*sources, *HERE.glob(f"{name}.h")])
    digest = hashlib.sha256(text + repr(command).encode()).hexdigest()[:16]
    program = CACHE / f"{name}-{digest}"
    if not program.exists():
        CACHE.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=CACHE) as scratch:
            built = Path(scratch) / name
            subprocess.run([*command, "-o", str(built), *map(str, sources)], check=True)
            os.replace(built, program)  # noqa: PTH105 - two test runs at once must not see half a program
    return program
