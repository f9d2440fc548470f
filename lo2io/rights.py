"""What a process of lo2io gives up: rights that its next step does not need, and ways to get new ones.

lo2io records as root. Then it reads recordings and traces that somebody else may have made, partly with libraries in C.
Whoever gains control there by a damaged file shall gain little::

    events open     keep_for_recording()   the rights to record, to hand files over, and to become the caller
    events closed   confine()              the caller of sudo; else root with the rights to read and write files
                                           writes only into the output's folder, where the kernel has Landlock

Nothing of this is undone: it holds until the process ends, and for its children. So both functions do nothing unless
``main()`` has said that the process is lo2io's own. The kernel keeps capabilities and Landlock's rules for each thread,
and new threads take them over: call the functions before other threads begin.

Sources: capabilities(7), capget(2), landlock(7), prctl(2); include/uapi/linux/landlock.h of Linux 6.18.
"""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import os
import pwd
import struct
import sys
from enum import IntEnum
from pathlib import Path
from typing import TYPE_CHECKING, Final

from lo2io.folder import sudo_caller
from lo2io.signals import end_kept

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


class Capability(IntEnum):
    """Rights of root that lo2io uses, include/uapi/linux/capability.h."""

    CHOWN = 0
    DAC_OVERRIDE = 1
    DAC_READ_SEARCH = 2
    FOWNER = 3
    KILL = 5
    SETGID = 6
    SETUID = 7
    IPC_LOCK = 14
    SYS_PTRACE = 19
    SYS_ADMIN = 21
    SYS_NICE = 23
    SYS_RESOURCE = 24
    SYSLOG = 34
    PERFMON = 38
    BPF = 39


RECORDING: Final = frozenset(Capability)
"""To open events of new CPUs, read /proc, signal the command, hand the spool over, and become the caller of sudo."""
FILES: Final = frozenset({Capability.CHOWN, Capability.DAC_OVERRIDE, Capability.DAC_READ_SEARCH, Capability.FOWNER})
"""To read a trace that belongs to anybody, and to hand over what lo2io wrote."""
_VERSION_3: Final = 0x20080522
_NO_NEW_PRIVS, _AMBIENT, _AMBIENT_CLEAR = 38, 47, 4
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
"""System calls of Landlock: one number on all machines."""
_BENEATH: Final = 1
"""LANDLOCK_RULE_PATH_BENEATH"""
_WRITE_FILE, _TRUNCATE, _REMOVE_DIR = 1 << 1, 1 << 14, 1 << 4
_WRITING: Final = _WRITE_FILE | _TRUNCATE | sum(1 << bit for bit in range(4, 14))
"""Whatever changes a file system: to write, cut, remove, make, rename."""
_TCP, _OUTSIDE = 3, 3
"""To bind and connect; abstract sockets of others, and signals to others."""
_RENAMES_SINCE, _CUTS_SINCE, _TCP_SINCE, _OUTSIDE_SINCE = 2, 3, 4, 6
"""Versions of Landlock. The first one forbids every rename to another folder."""
_MOST_LOOKED_AT: Final = 10_000

_libc = ctypes.CDLL(None, use_errno=True)
_owned = False


def own_process() -> None:
    """Say that this process runs one command of lo2io, and ends with it. Only then may its rights be given up."""
    global _owned  # noqa: PLW0603 - a process has its rights once
    _owned = True


def keep_for_recording() -> None:
    """Give up what a recording does not need once its events are open."""
    if not _owned:
        return
    _forbid_new_rights()
    _keep(RECORDING)


def confine(reads: Iterable[Path], writes: Iterable[Path] = ()) -> None:
    """Give up what reading and writing these files does not need.

    Under sudo, the process becomes the user who called it, if that user may read and write all of this. If not, it
    stays root, without root's other rights.

    Args:
        reads: Files, or folders of files. What does not exist is left to the reader's own error.
        writes: Folders that exist. Nothing else can be written where the kernel has Landlock.
    """
    if not _owned:
        return
    folders = tuple(writes)
    _forbid_new_rights()
    with end_kept():
        _become_caller(tuple(reads), folders)
    _keep(FILES)
    _write_only_into(folders)


def _forbid_new_rights() -> None:
    """From here on no program gives this process rights: none with set-uid, none with file capabilities."""
    _libc.prctl(_NO_NEW_PRIVS, 1, 0, 0, 0)
    _libc.prctl(_AMBIENT, _AMBIENT_CLEAR, 0, 0, 0)


def _keep(kept: Iterable[Capability]) -> None:
    """Give up all capabilities but these."""
    mask = sum(1 << capability for capability in kept)
    header = ctypes.create_string_buffer(struct.pack("Ii", _VERSION_3, 0))
    sets = (ctypes.c_uint32 * 6)()  # effective, permitted and inheritable: the lower 32 bits, then the upper ones
    if _libc.capget(header, sets):
        return
    for word in range(6):
        sets[word] = 0 if word % 3 == 2 else sets[word] & (mask >> 32 if word >= 3 else mask & 0xFFFFFFFF)  # noqa: PLR2004
    _libc.capset(header, sets)


def _become_caller(reads: tuple[Path, ...], writes: tuple[Path, ...]) -> None:
    """Become the user who called sudo, with that user's groups, if the user may read and write these.

    The user must also be able to read lo2io itself, which imports more modules later.
    """
    caller = sudo_caller()
    if caller is None:
        return
    uid, gid = caller
    modules = [path for path in map(Path, sys.path) if path.exists()]
    before = os.getgroups()
    groups = [gid]
    with contextlib.suppress(KeyError):
        groups = os.getgrouplist(pwd.getpwuid(uid).pw_name, gid)
    os.setgroups(groups)
    os.setegid(gid)
    os.seteuid(uid)
    may = _may(modules, os.R_OK, 0) and _may(reads, os.R_OK) and _may(writes, os.W_OK)
    os.seteuid(0)
    if may:
        os.setresgid(gid, gid, gid)
        os.setresuid(uid, uid, uid)
    else:
        os.setegid(0)
        os.setgroups(before)


def _may(paths: Iterable[Path], mode: int, depth: int = 2) -> bool:
    """True if the process may use all of these with its effective ids: files, and folders with what lies in them."""
    for path in paths:
        for each in itertools.islice(_entries(path, depth), _MOST_LOOKED_AT):
            if not os.access(each, mode | (os.X_OK if each.is_dir() else 0), effective_ids=True):
                return False
    return True


def _entries(path: Path, depth: int) -> Iterator[Path]:
    yield path
    if depth and path.is_dir() and os.access(path, os.R_OK | os.X_OK, effective_ids=True):
        for entry in path.iterdir():
            if not entry.is_symlink():
                yield from _entries(entry, depth - 1)


def _write_only_into(folders: tuple[Path, ...]) -> None:
    """Where the kernel has Landlock, forbid to write elsewhere, to use TCP, and to signal other processes."""
    version = _libc.syscall(_CREATE_RULESET, None, 0, 1)
    if version < _RENAMES_SINCE:
        return
    writing = _WRITING if version >= _CUTS_SINCE else _WRITING & ~_TRUNCATE
    nr_words = 3 if version >= _OUTSIDE_SINCE else 2 if version >= _TCP_SINCE else 1
    handled = struct.pack("QQQ", writing, _TCP, _OUTSIDE)[: 8 * nr_words]
    rules = _libc.syscall(_CREATE_RULESET, handled, len(handled), 0)
    if rules < 0:
        return
    try:
        for folder in folders:
            _allow(rules, folder, writing)
        for folder in folders:
            _allow(rules, folder.resolve().parent, _REMOVE_DIR)  # an empty folder, which lo2io made and does not need
        _allow(rules, Path(os.devnull), writing & (_WRITE_FILE | _TRUNCATE))
        _libc.syscall(_RESTRICT_SELF, rules, 0)
    finally:
        os.close(rules)


def _allow(rules: int, place: Path, accesses: int) -> None:
    """Allow accesses to a file, or to all beneath a folder. A place that is not there stays forbidden."""
    with contextlib.suppress(OSError):
        fd = os.open(place, os.O_PATH | os.O_CLOEXEC)
        try:
            _libc.syscall(_ADD_RULE, rules, _BENEATH, struct.pack("=Qi", accesses, fd), 0)
        finally:
            os.close(fd)
