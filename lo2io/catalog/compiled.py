"""The files of ``tracepoints/``, compiled: kept beside Python's own compiled files, and under the same rules.

Parsing and checking the TOML files takes 35 ms. So each result is kept as a pickle in ``__pycache__`` of
``tracepoints/``, with names, sizes and times of all files that it was made of. If one of these files has changed, the
result is made anew. Whoever may write there may also write the compiled modules that Python runs.
"""

from __future__ import annotations

import contextlib
import copyreg
import importlib
import os
import pickle
import sys
from importlib.util import cache_from_source
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar

from lo2io import model

if TYPE_CHECKING:
    from collections.abc import Callable

_T = TypeVar("_T")


def _mapping(content: dict[Any, Any]) -> MappingProxyType[Any, Any]:
    return MappingProxyType(content)  # pickle finds no class of this name


copyreg.pickle(MappingProxyType, lambda mapping: (_mapping, (dict(mapping),)))


def load(name: str, make: Callable[[Path], _T]) -> _T:
    """The content of lo2io's own files: the kept result, or else that of ``make``.

    A directory that cannot be written, and ``PYTHONDONTWRITEBYTECODE``, keep nothing.

    Args:
        name: The name of the kept file.
        make: Reads the files of the directory that it gets.

    Raises:
        CatalogError: By ``make``.
    """
    own = Path(str(importlib.import_module("lo2io.tracepoints").__file__))
    kept = Path(cache_from_source(str(own.with_name(f"{name}.py"))).removesuffix("pyc") + "pickle")
    made_of = _made_of(own.parent)
    with contextlib.suppress(Exception):  # of another version: any error of unpickling
        known, made = pickle.loads(kept.read_bytes())  # noqa: S301 - as trusted as the compiled modules beside it
        if known == made_of:
            return made  # type: ignore[no-any-return]
    made = make(own.parent)
    if not sys.dont_write_bytecode:
        with contextlib.suppress(OSError):
            _keep(kept, pickle.dumps((made_of, made), pickle.HIGHEST_PROTOCOL))
    return made


def _made_of(directory: Path) -> list[tuple[str, int, int]]:
    """Name, size and time of each file of which results are made: TOML, and the code that reads it."""
    code = (Path(__file__).parent, Path(model.__file__).parent)
    entries = [entry for folder in (directory, *code) for entry in os.scandir(folder)]
    found = {entry.path: entry.stat() for entry in entries if entry.name.endswith((".toml", ".py"))}
    return sorted((path, stat.st_size, stat.st_mtime_ns) for path, stat in found.items())


def _keep(place: Path, content: bytes) -> None:
    place.parent.mkdir(parents=True, exist_ok=True)
    made = place.with_name(f"{place.name}.{os.getpid()}")
    made.write_bytes(content)
    made.replace(place)
