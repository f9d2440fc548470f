"""Finds the kernel's Python binding for perf that fits this Python.

The binding is no wheel. A distribution builds one extension module for each minor version of Python, and installs it
for the system's Python, where a virtual environment does not look. This module finds the file and loads it by its path.
``sys.path`` does not change, so no other module of the system's Python is imported.

Another project has the same import name (pyperf, formerly "perf", a package for benchmarks). It has no ``evlist`` and
is refused.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
import os
import sys
from dataclasses import field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from lo2io.errors import AccessError
from lo2io.frozen import dataclass

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from types import ModuleType

ROOT = Path("/")
_NEEDED = ("evlist", "evsel", "cpu_map", "thread_map")
_FOLDERS = (
    "usr/lib/python3/dist-packages",  # Debian, Ubuntu: every Python 3 of the distribution
    "usr/lib/python{version}/dist-packages",
    "usr/lib64/python{version}/site-packages",  # Fedora, RHEL, openSUSE
    "usr/lib/python{version}/site-packages",
    "usr/lib/linux-tools/*",  # Ubuntu: one folder per kernel
    "usr/lib/linux-tools/*/lib",
    "usr/lib/linux-tools-*/lib",
)


@dataclass(frozen=True, slots=True)
class Binding:
    """The file of the binding, and the loaded module."""

    path: Path
    module: ModuleType = field(repr=False)


def candidates(root: Path = ROOT, suffixes: Sequence[str] | None = None, version: str | None = None) -> Iterator[Path]:
    """Candidates for this Python's binding, in the order in which they are tried.

    Args:
        root: The folder above the system's folders.
        suffixes: Endings of extension modules that this interpreter can load; by default the interpreter's own.
        version: Python's ``major.minor``; by default the interpreter's own.

    Yields:
        Existing files. Ubuntu has a folder for each kernel: the running kernel's comes first, then the newest.
    """
    endings = importlib.machinery.EXTENSION_SUFFIXES if suffixes is None else suffixes
    minor = version or f"{sys.version_info.major}.{sys.version_info.minor}"
    release = os.uname().release
    for pattern in _FOLDERS:
        folders = sorted(root.glob(pattern.format(version=minor)), key=_release_key, reverse=True)
        folders.sort(key=lambda folder: release not in str(folder))
        for folder in folders:
            for ending in endings:
                path = folder / f"perf{ending}"
                if path.is_file():
                    yield path


def load(path: Path) -> ModuleType:
    """Load one file as the module ``perf`` without entering it in ``sys.modules``.

    Raises:
        ImportError: The file cannot be loaded into this interpreter, or is another project's.
    """
    loader = importlib.machinery.ExtensionFileLoader("perf", str(path))
    spec = importlib.util.spec_from_file_location("perf", path, loader=loader)
    if spec is None:
        raise ImportError(f"{path}: no extension module")
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    missing = [name for name in _NEEDED if not hasattr(module, name)]
    if missing:
        raise ImportError(f"{path}: no {', '.join(missing)}: this is not the kernel's binding")
    return module


@cache
def find_binding(root: Path = ROOT) -> Binding:
    """The distribution's perf binding for this Python.

    Raises:
        AccessError: There is no binding that can be loaded. The remedy names the package to install.
    """
    refused = []
    for path in candidates(root):
        try:
            return Binding(path, load(path))
        except ImportError as error:
            refused.append(str(error))
    minor = f"{sys.version_info.major}.{sys.version_info.minor}"
    other = sorted(path.name for pattern in _FOLDERS for path in root.glob(f"{pattern.format(version='3*')}/perf*.so"))
    if other and not refused:
        refused.append(f"there is {', '.join(other)}, for another Python")
    raise AccessError(
        f"looking for the perf binding of Python {minor}", "; ".join(refused) or "not installed", install_command(root)
    )


def install_command(root: Path = ROOT) -> str:
    """The command that installs the binding on this distribution, by ``/etc/os-release``."""
    names = _os_names(root)
    if "ubuntu" in names:
        # Since 25.04 Ubuntu has Debian's package name. Before, each kernel flavour had a package of tools.
        return "sudo apt-get install linux-perf || sudo apt-get install linux-tools-generic"
    if "debian" in names:
        return "sudo apt-get install linux-perf"
    if names & {"fedora", "rhel", "centos"}:
        return "sudo dnf install python3-perf"
    if names & {"suse", "opensuse"}:
        return "sudo zypper install python3-perf"
    return "build tools/perf of the kernel's source with 'make -C tools/perf', and install python/perf*.so"


def _os_names(root: Path) -> frozenset[str]:
    """``ID`` and ``ID_LIKE`` of os-release(5)."""
    names: set[str] = set()
    try:
        text = (root / "etc/os-release").read_text(encoding="utf-8")
    except OSError:
        return frozenset()
    for line in text.splitlines():
        key, _, value = line.partition("=")
        if key in {"ID", "ID_LIKE"}:
            names.update(value.strip("\"'").split())
    return frozenset(names)


def _release_key(folder: Path) -> list[int]:
    """A sort key that puts ``6.8.0-9`` before ``6.8.0-31``."""
    digits = "".join(c if c.isdigit() else " " for c in str(folder))
    return [int(part) for part in digits.split()]
