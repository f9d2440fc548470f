"""Finds cgroups. In: the user's path. Out: the folder for perf events.

Perf events know the cgroups of one hierarchy: the v1 hierarchy with the controller ``perf_event``, else cgroup v2
(kernel/events/core.c: v2 always has ``perf_event_cgrp_subsys``). Formats: cgroups(7), proc(5).
"""

from __future__ import annotations

import difflib
import itertools
import os
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from lo2io.errors import UsageError
from lo2io.kernel.procfs import unescape_mount

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path("/")
_MAX_LOOKED_AT = 5000
"""The most folders that are searched for names like a missing one."""
_SHOWN = 3


@dataclass(frozen=True, slots=True)
class Cgroup:
    """An existing cgroup."""

    path: str
    """Path in the hierarchy, as in ``/proc/PID/cgroup``."""
    folder: Path
    controller: bytes
    """The controller that names the hierarchy: ``perf_event`` for v1, empty for v2."""


@dataclass(frozen=True, slots=True)
class _Mount:
    point: Path
    root: str
    """The mounted part of the hierarchy: ``/`` except in containers."""
    is_v1: bool


def find_cgroup(text: str, root: Path = ROOT) -> Cgroup:
    """The cgroup of a path: an absolute path below the hierarchy's mount, or a path within the hierarchy.

    Raises:
        UsageError: There is no such cgroup, or no hierarchy is mounted. The remedy names similar cgroups.
    """
    mount = _find_mount(root)
    tried = f"find the cgroup {text!r}"
    if mount is None:
        raise UsageError(tried, "no cgroup file system that perf knows is mounted", "mount cgroup2")
    for folder in _candidates(text, mount):
        if folder.is_dir() and (folder / "cgroup.procs").exists():
            inside = folder.relative_to(mount.point)
            path = str(PurePosixPath(mount.root) / inside.as_posix()) if inside.parts else mount.root
            return Cgroup(path, folder, b"perf_event" if mount.is_v1 else b"")
    near = _near_names(text, mount)
    remedy = f"did you mean {' or '.join(near)}?" if near else "`cat /proc/PID/cgroup` shows the cgroup of a process"
    raise UsageError(tried, f"there is no such cgroup below {mount.point}", remedy)


def has_processes(cgroup: Cgroup) -> bool:
    """True if the cgroup or one below it has a process, and also if the kernel does not tell."""
    try:
        for folder, _, _ in os.walk(cgroup.folder):
            if Path(folder, "cgroup.procs").read_bytes().strip():
                return True
    except OSError:
        return True  # threaded cgroups do not list processes
    return False


def _candidates(text: str, mount: _Mount) -> Iterator[Path]:
    """The folders below the mount that the text may mean."""
    for named in (Path(text), mount.point / text.lstrip("/")):
        folder = Path(os.path.normpath(named))
        if folder.is_relative_to(mount.point):
            yield folder


def _find_mount(root: Path) -> _Mount | None:
    """The mount that shows the largest part of the hierarchy."""
    found: list[tuple[bool, int, _Mount]] = []
    try:
        lines = (root / "proc/self/mountinfo").read_bytes().split(b"\n")
    except OSError:
        return None
    for line in lines:
        before, _, after = line.partition(b" - ")
        fields, rest = before.split(b" "), after.split(b" ")
        if len(fields) < 5 or len(rest) < 3:  # noqa: PLR2004 - type, source, options of the file system
            continue
        is_v1 = rest[0] == b"cgroup" and b"perf_event" in rest[2].split(b",")
        if is_v1 or rest[0] == b"cgroup2":
            inside = unescape_mount(fields[3])
            point = root / unescape_mount(fields[4]).lstrip("/")
            found.append((not is_v1, len(inside), _Mount(point, inside, is_v1)))
    return min(found, key=lambda each: each[:2])[2] if found else None


def _near_names(text: str, mount: _Mount) -> list[str]:
    """Cgroups with a path or name similar to the text."""
    wanted = text.removeprefix(str(mount.point)).strip("/")
    folders = (Path(folder) for folder, _, _ in os.walk(mount.point))
    paths = [str(folder.relative_to(mount.point)) for folder in itertools.islice(folders, _MAX_LOOKED_AT)][1:]
    names: dict[str, str] = {}
    for path in paths:
        names.setdefault(PurePosixPath(path).name, path)
    near = difflib.get_close_matches(wanted, paths, n=_SHOWN, cutoff=0.7)
    near += [names[name] for name in difflib.get_close_matches(PurePosixPath(wanted).name, names, n=_SHOWN, cutoff=0.7)]
    return [f"/{path}" for path in dict.fromkeys(near)][:_SHOWN]
