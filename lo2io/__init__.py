"""System-wide I/O tracing with perf events, written as OTF2.

A program reads a trace by :func:`lo2io.open`, and makes one by :func:`lo2io.record`: docs/how-to/python.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lo2io.api import Lo2ioError, Recording, Table, Trace, open, record  # noqa: A004 - `lo2io.open`, as `gzip.open`

__all__ = ["Lo2ioError", "Recording", "Table", "Trace", "open", "record"]


def load_ipython_extension(shell: Any) -> None:
    """What ``%load_ext lo2io`` calls: from then on a notebook has ``%%lo2io``."""
    from lo2io.api.notebook import record_cell  # noqa: PLC0415

    shell.register_magic_function(record_cell, "cell", "lo2io")


def __getattr__(name: str) -> Any:
    """The names of :mod:`lo2io.api`, imported when somebody asks: a recording starts without them."""
    if name not in __all__:
        raise AttributeError(f"module 'lo2io' has no attribute {name!r}")
    from lo2io import api  # noqa: PLC0415

    return getattr(api, name)
