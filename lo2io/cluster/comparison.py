"""A comparison of the nodes' clocks: what a run of ``lo2io clocks`` found. In: files of ``T/clocks``."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from lo2io.cluster.layout import CLOCKS, comparisons
from lo2io.errors import TraceError
from lo2io.folder import read_regular
from lo2io.frozen import dataclass
from lo2io.kernel.procfs import read_boot_id

if TYPE_CHECKING:
    from lo2io.folder import Folder

FORMAT: Final = "lo2io-clocks"
VERSION: Final = 1
_MAX_BYTES: Final = 64 << 20
ROOT = Path("/")


@dataclass(frozen=True, slots=True)
class Ping:
    """CLOCK_MONOTONIC_RAW of a node and of the reference at one moment."""

    host: str
    clock: str
    """Which clock it is: :func:`clock_id`."""
    raw_ns: int
    reference_raw_ns: int
    rtt_ns: int
    """The message and its answer took this long, so both times belong together within half of it. 0: the reference."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """All nodes' clocks, compared with one."""

    reference: str
    pings: tuple[Ping, ...]


def clock_id(root: Path = ROOT) -> str:
    """Which clock this process reads: that of a boot, moved by the time namespace if there is one.

    Processes with the same id have the same CLOCK_MONOTONIC and CLOCK_MONOTONIC_RAW (time_namespaces(7)).
    """
    boot = read_boot_id(root)
    try:
        words = (root / "proc/self/timens_offsets").read_text(encoding="ascii").split()
    except OSError:
        words = []
    moved = words[words.index("monotonic") + 1 :][:2] if "monotonic" in words else ["0", "0"]
    return boot if moved == ["0", "0"] else f"{boot}+{'.'.join(moved)}"


def write_comparison(directory: Folder, name_ns: int, found: Comparison) -> Path:
    """Write a comparison into ``T/clocks``, whole or not at all.

    Raises:
        OSError: It cannot be written.
    """
    folder = directory.enter(CLOCKS) if directory.is_folder(CLOCKS) else directory.make(CLOCKS)
    with folder:
        content = json.dumps({"format": FORMAT, "version": VERSION, **asdict(found)}, indent=1)
        folder.write(f"{name_ns}.part", content.encode("ascii") + b"\n")
        folder.rename(f"{name_ns}.part", folder, f"{name_ns}.json")
        return folder.path / f"{name_ns}.json"


def load_comparisons(directory: Path) -> list[Comparison]:
    """The comparisons of a directory, in the order of time.

    Raises:
        TraceError: A file is damaged.
    """
    return [_load(path) for path in comparisons(directory)]


def _load(path: Path) -> Comparison:
    try:
        document = json.loads(read_regular(path, _MAX_BYTES))
        _check_format(document)
        return Comparison(str(document["reference"]), tuple(_ping(each) for each in document["pings"]))
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise TraceError(f"read the clocks in {path}", str(error), "remove the file: the others still count") from error


def _check_format(document: dict[str, Any]) -> None:
    if document.get("format") != FORMAT or document.get("version") != VERSION:
        raise ValueError(f"no {FORMAT} of version {VERSION}")


def _ping(row: dict[str, Any]) -> Ping:
    numbers = [row[name] for name in ("raw_ns", "reference_raw_ns", "rtt_ns")]
    if not all(isinstance(number, int) and abs(number) < 1 << 62 for number in numbers):
        raise ValueError("a time is none")
    return Ping(str(row["host"]), str(row["clock"]), *numbers)
