"""tracefs: its mount point, and the ``format`` files of tracepoints.

Facts: Documentation/trace/events.rst (the format file), ``trace_seq`` output of ``f_show`` in
kernel/trace/trace_events.c, Linux 5.5 to 6.18.
"""

from __future__ import annotations

import ctypes
import errno
import os
import re
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from lo2io.errors import AccessError, SpoolError, UsageError
from lo2io.model import EventFormat, FieldLayout

if TYPE_CHECKING:
    from collections.abc import Container, Mapping, Sequence

MOUNT_POINT = Path("/sys/kernel/tracing")
MAX_FORMAT_CHARS = 1 << 20
"""The most characters of a format. The longest of Linux 6.18 has 5.5 kB, mostly print format."""
MAX_FIELDS = 4096
MAX_RAW_BYTES = 1 << 16
"""The most bytes of a record: its size, and places within it, are 16 bits wide."""

_FIELD = re.compile(
    r"\s*field:(?P<declaration>[^;]{1,512});\s*offset:(?P<offset>\d{1,9});\s*size:(?P<size>\d{1,9});\s*signed:(?P<signed>[01]);\s*",
    re.ASCII,
)
_FUNCTION_POINTER = re.compile(r"(?P<type>.*)\(\s*\*\s*(?P<name>[A-Za-z_]\w*)\s*\)\s*\(.*\)", re.ASCII)
_DECLARATION = re.compile(r"(?P<type>.*?)\b(?P<name>[A-Za-z_]\w*)\s*(?P<array>(?:\[[^\]]*\])*)", re.ASCII)
_EVENT = re.compile(r"[A-Za-z0-9_.-]+:[A-Za-z0-9_.-]+", re.ASCII)
_DYNAMIC = ("__data_loc", "__rel_loc")


class FormatError(SpoolError, ValueError):
    """A format text, of the kernel or of a spool, that cannot be read."""


def find_tracefs(root: Path = Path("/")) -> Path:
    """The mount point of tracefs. If tracefs is not mounted, it is mounted at the usual place.

    Args:
        root: The folder above ``proc/self/mounts``. Mounting is tried for the real ``/`` only.

    Raises:
        AccessError: tracefs is not mounted and cannot be mounted.
    """
    found = _mounted(root)
    if found is None and root == Path("/"):
        _mount()
        found = _mounted(root)
    if found is None:
        raise AccessError(
            f"find tracefs in {root / 'proc/self/mounts'}",
            "tracefs is not mounted",
            f"sudo mount -t tracefs nodev {MOUNT_POINT}",
        )
    return found


def _mounted(root: Path) -> Path | None:
    """The first tracefs of the mount table, or debugfs's own ``tracing``."""
    try:
        table = (root / "proc/self/mounts").read_bytes().decode("utf-8", "surrogateescape")
    except OSError:
        return None
    found: dict[str, Path] = {}
    for line in table.split("\n"):
        fields = line.split(" ")
        if len(fields) > 2:  # noqa: PLR2004  # source, mount point, type
            point = re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), fields[1])
            found.setdefault(fields[2], root / point.lstrip("/"))
    if "tracefs" in found:
        return found["tracefs"]
    tracing = found["debugfs"] / "tracing" if "debugfs" in found else None
    return tracing if tracing and tracing.is_dir() else None


def _mount() -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mount(b"nodev", bytes(MOUNT_POINT), b"tracefs", 0, None):
        number = ctypes.get_errno()
        remedy = f"sudo mount -t tracefs nodev {MOUNT_POINT}"
        if number in (errno.ENODEV, errno.ENOENT):
            remedy = "boot a kernel with CONFIG_FTRACE and CONFIG_EVENT_TRACING"
        raise AccessError(f"mount tracefs at {MOUNT_POINT}", os.strerror(number), remedy)


def event_exists(tracefs: Path, event: str) -> bool:
    """True if this kernel has the tracepoint ``subsystem:event``.

    Raises:
        AccessError: The user may not look into tracefs.
    """
    path = _format_path(tracefs, event)
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as error:
        raise _refused(path, error) from error
    return True


def lacking_events(events: Sequence[str], newer: Mapping[str, str], there: Container[str]) -> tuple[str, ...]:
    """The events that a kernel has neither under their own name nor under their successor's.

    Args:
        events: Full names of the wanted events.
        newer: Event → the event that replaced it. A kernel has one of the two.
        there: The kernel's events.
    """
    older = {new: old for old, new in newer.items()}
    return tuple(
        event
        for event in events
        if event not in there and newer.get(event) not in there and older.get(event) not in there
    )


def load_format(tracefs: Path, event: str) -> tuple[EventFormat, str]:
    """A tracepoint's fields in this kernel's layout, and the unchanged text of the format file.

    Args:
        tracefs: The mount point, from :func:`find_tracefs`.
        event: Full name, ``subsystem:event``.

    Raises:
        AccessError: The user may not read the file.
        UsageError: This kernel has no such tracepoint.
        FormatError: The file has a form that no known kernel writes.
    """
    path = _format_path(tracefs, event)
    try:
        text = path.read_bytes().decode("utf-8", "surrogateescape")
    except (FileNotFoundError, NotADirectoryError) as error:
        tried = f"read {path}"
        raise UsageError(
            tried, "this kernel has no such tracepoint", "`lo2io tracepoints check` lists the kernel's tracepoints"
        ) from error
    except OSError as error:
        raise _refused(path, error) from error
    return parse_format(text, event), text


@cache
def _format_path(tracefs: Path, event: str) -> Path:
    if not _EVENT.fullmatch(event) or {".", ".."} & set(event.split(":")):
        raise UsageError(f"find the tracepoint {event!r}", "the name must be of the form subsystem:event")
    subsystem, _, name = event.partition(":")
    return tracefs / "events" / subsystem / name / "format"


def _refused(path: Path, error: OSError) -> AccessError:
    return AccessError(
        f"read {path}",
        error.strerror or str(error),
        "run as root, or let your group read tracefs: sudo mount -o remount,mode=0750,gid=$(id -g) " + str(MOUNT_POINT),
    )


@cache
def parse_format(text: str, event: str | None = None) -> EventFormat:
    """Parse the text of a ``format`` file.

    ``char rwbs[10]`` is an array. ``__data_loc char[] cmd`` sets ``is_data_loc``. ``__rel_loc`` does not, since its
    data lies relative to the end of the field; only the ctype tells it.

    Args:
        text: The whole file.
        event: ``subsystem:event``. The file itself has the event's name without its subsystem.

    Returns:
        The format. Its name is ``event``, or with None the name in the file.

    Raises:
        FormatError: The text is no format file, or describes impossible fields.
    """
    label = event or "a tracepoint"
    if len(text) > MAX_FORMAT_CHARS:
        raise FormatError(f"read the format of {label}", f"the text has {len(text)} characters, which are too many")
    name: str | None = None
    number: int | None = None
    fields: list[FieldLayout] = []
    for line in text.split("\n"):
        key, _, value = line.strip().partition(":")
        if key == "name" and name is None:
            name = value.strip()
        elif key == "ID" and number is None:
            number = _event_id(value.strip(), label)
        elif key == "field":
            try:
                fields.append(_field(line))
            except _FieldError as error:
                raise FormatError(f"read the format of {label}", str(error)) from None
        elif key == "print fmt":
            break
    if not name or number is None or not fields or len(fields) > MAX_FIELDS:
        raise FormatError(
            f"read the format of {label}", "the text lacks a name, an ID or fields, or has too many of them"
        )
    if event is not None and event.rpartition(":")[2] != name:
        raise FormatError(f"read the format of {label}", f"this is the format of {name!r}")
    return EventFormat(event or name, number, tuple(fields))


def _event_id(text: str, label: str) -> int:
    if not re.fullmatch(r"[0-9]{1,5}", text) or not 0 < int(text) < MAX_RAW_BYTES:
        raise FormatError(f"read the format of {label}", f"the ID {text[:40]!r} is not valid")
    return int(text)


class _FieldError(ValueError):
    """Why a line of a format file cannot be read."""


@cache  # most tracepoints begin with the same fields
def _field(line: str) -> FieldLayout:
    match = _FIELD.fullmatch(line)
    if not match:
        raise _FieldError(f"the kernel does not write fields like this: {line[:200]!r}")
    offset, size = int(match["offset"]), int(match["size"])
    if offset + size > MAX_RAW_BYTES:
        raise _FieldError(f"this field lies beyond the end of any record: {line[:200]!r}")
    declaration = match["declaration"].strip()
    parts = _FUNCTION_POINTER.fullmatch(declaration) or _DECLARATION.fullmatch(declaration)
    if not parts or not parts["type"].strip():
        raise _FieldError(f"there is no type and name in {declaration[:200]!r}")
    array = parts.groupdict().get("array") or ""
    ctype = parts["type"].strip()
    return FieldLayout(
        name=parts["name"],
        ctype=ctype + array,
        offset=offset,
        size=size,
        signed=match["signed"] == "1",
        is_array=bool(array) and not ctype.startswith(_DYNAMIC),
        is_data_loc=ctype.startswith("__data_loc"),
    )
