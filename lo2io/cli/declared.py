"""Options as data, each declared once. Typer takes them from here, and so does a plain command line without Typer."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from lo2io.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lo2io.model.layers import SlowCalls


class Declared(NamedTuple):
    """An option of a command, or with no flags the command's arguments."""

    type: Any
    """``bool``, ``str``, ``Path``, or a list of ``str`` or ``int`` if the option may be repeated."""
    flags: tuple[str, ...]
    """Its names. ``--a/--no-a`` are a name and its opposite."""
    help: str
    metavar: str | None = None
    choices: tuple[str, ...] = ()
    """The only values; empty: there is no such list."""

    @property
    def is_list(self) -> bool:
        """True if each occurrence adds a value."""
        return self.type not in (bool, str, Path)

    def read(self, text: str) -> Any:
        """One value from its text.

        Raises:
            ValueError: The text is no such value.
        """
        if self.choices and text not in self.choices:
            raise ValueError(text)
        return int(text) if self.type == list[int] else Path(text) if self.type is Path else text


JSON = Declared(bool, ("--json",), "Print JSON on stdout.")
FORCE = Declared(bool, ("--force",), "Replace a trace that is there.")
EVENTS = Declared(
    list[str],
    ("-e", "--events"),
    "Groups, calls or tracepoints, separated by commas; +NAME adds to the default, -NAME takes away. "
    "`lo2io tracepoints list` names them.",
    "EVENTS",
)
BACKEND = Declared(
    str,
    ("--backend",),
    "Record calls by programs in the kernel (bpf), or by perf events. [default: bpf where allowed]",
    choices=("bpf", "perf"),
)
FILTER = Declared(
    list[str],
    ("--filter",),
    "Keep only I/O that matches, e.g. 'size >= 64KiB'. With several filters, I/O must match all.",
    "EXPR",
)
BLOCK_RECORDS = Declared(
    str,
    ("--block-records",),
    "How to write block requests: as samples on the CPUs, as begin and end on the devices, or both. "
    "[default: both for a whole machine, else begin-end]",
    choices=("samples", "begin-end", "both"),
)
SAMPLE = Declared(
    str,
    ("--sample",),
    "Write one in N requests of io_uring, chosen by a hash of their numbers. Totals stay exact.",
    "1/N",
)
LAYERS = Declared(
    str,
    ("--layers",),
    "Record these layers between calls and disks, separated by commas: parts, cache, dirty, fuse, waits, workers, "
    "journal, faults, stacks; all; none. [default: all but faults and stacks, where programs in the kernel record]",
    "NAMES",
)
STACKS = Declared(
    str,
    ("--stacks",),
    "Record which functions of the program led to calls that last this long (1ms), to one in N calls (1/100), or to "
    "one in N of the long ones (100us,1/10): the layer stacks.",
    "WHICH",
)
CPUS = Declared(str, ("--cpus",), "Record these CPUs only, e.g. 0-3,6.", "LIST")
CGROUP = Declared(str, ("--cgroup",), "Record only this cgroup and those below it.", "PATH")


def parse_layers(text: str | None) -> tuple[str, ...] | None:
    """Names of layers, or None without a text.

    Raises:
        UsageError: There is no such layer.
    """
    from lo2io.model.layers import ALL, LAYERS, NONE

    if text is None:
        return None
    names = dict.fromkeys(name.strip() for name in text.split(","))
    if list(names) in ([ALL], [NONE]):
        return tuple(LAYERS) if ALL in names else ()
    for name in names:
        if name not in LAYERS:
            known = ", ".join(LAYERS)
            raise UsageError(f"record the layer {name!r}", "there is no such layer", f"use {known}; {ALL}, or {NONE}")
    return tuple(name for name in LAYERS if name in names)


def parse_stacks(text: str | None) -> SlowCalls | None:
    """Which calls have stacks, or None without a text: a time, ``1/N``, or both.

    Raises:
        UsageError: The text is neither.
    """
    from lo2io.model.layers import SlowCalls
    from lo2io.units import parse_duration, parse_share

    if text is None:
        return None
    parts = [part.strip() for part in text.split(",")]
    times = [part for part in parts if not part.startswith("1/")]
    if len(times) > 1 or len(parts) - len(times) > 1:
        answer = "this is neither a time, nor 1/N, nor both"
        raise UsageError(f"take the stacks of {text!r}", answer, "write it like 1ms, 1/100 or 100us,1/10")
    shares = [part for part in parts if part not in times]
    return SlowCalls(parse_duration(times[0]) if times else 0, parse_share(shares[0]) if shares else 1)


def parse_size(text: str | None) -> int | None:
    """Bytes, or None without a text.

    Raises:
        UsageError: The text is no size.
    """
    from lo2io.units import parse_bytes

    return None if text is None else parse_bytes(text)


def parse_seconds(text: str | None) -> float | None:
    """Seconds, or None without a text.

    Raises:
        UsageError: The text is no length of time, or the length is 0.
    """
    from lo2io.units import NS_PER_S, parse_duration

    if text is None:
        return None
    time_ns = parse_duration(text)
    if time_ns == 0:
        raise UsageError(
            f"read the time {text!r}", "recording would end at once", "write it like 500ms, 30s, 5min or 1h"
        )
    return time_ns / NS_PER_S


def parse_rate(text: str | None) -> int | None:
    """N of ``1/N``, or None without a text.

    Raises:
        UsageError: The text is not of the form ``1/N``.
    """
    from lo2io.units import parse_share

    return None if text is None else parse_share(text)


def read_plain(words: Sequence[str], options: Mapping[str, Declared]) -> dict[str, Any] | None:
    """The values of a plain command line: options in full, then the arguments. Typer would read the same.

    Args:
        words: The command line after the command's name.
        options: Name of a value → its option. One of them has no flags and takes the arguments.

    Returns:
        Name → value, for all that the command line has; None: only Typer knows what it means, or what is wrong.
    """
    named = {flag: name for name, option in options.items() for each in option.flags for flag in each.split("/")}
    found: dict[str, Any] = {}
    place = 0
    while place < len(words) and words[place].startswith("-") and words[place] not in {"-", "--"}:
        flag, equals, text = words[place].partition("=")
        place += 1
        option = options.get(named.get(flag, ""))
        if option is None or (equals and not flag.startswith("--")):
            return None
        name = named[flag]
        if option.type is bool:
            if equals:
                return None
            found[name] = not option.flags[-1].endswith(f"/{flag}")
            continue
        if not equals:
            if place == len(words):
                return None
            text = words[place]
            place += 1
        try:
            value = option.read(text)
        except ValueError:
            return None
        found[name] = [*found.get(name, ()), value] if option.is_list else value
    if place < len(words) and words[place] == "--":
        place += 1
    if place < len(words):
        found.update((name, list(words[place:])) for name, option in options.items() if not option.flags)
    return found
