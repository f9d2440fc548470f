"""Runs the workload ``names`` while lo2io records, and compares its files with those of the trace."""

from __future__ import annotations

import contextlib
import os
import stat
import subprocess
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from workloads.build import build
from workloads.disks import loop_device
from workloads.record import Recorded, read_json_lines, record

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

Row = dict[str, Any]

MARK = 0x4E000000
"""Offset of the workload's markers, less the number of the call after it."""
DUPS = frozenset(["dup", "dup2", "dup3", "fcntl"])
"""Their new descriptor is ``handle2``."""
MAKERS = {"ext4": ("mkfs.ext4", "-qF"), "xfs": ("mkfs.xfs", "-qf"), "btrfs": ("mkfs.btrfs", "-qf")}
"""What makes the file systems of the scenarios of the same names."""
DISK_BYTES = 320 << 20
"""As much as mkfs.xfs asks for; the image is sparse."""


def scenarios() -> list[str]:
    """All scenarios of the workload, in its order, except those without their mkfs."""
    listed = subprocess.run([build("names"), "--list"], capture_output=True, text=True, check=True).stdout
    return [line.split()[0] for line in listed.splitlines()]


@contextlib.contextmanager
def file_systems(folder: Path) -> Iterator[list[str]]:
    """One loop device with each of the file systems, as the workload's options."""
    with contextlib.ExitStack() as stack:
        options = []
        for name, command in MAKERS.items():
            device = stack.enter_context(loop_device(folder / name, DISK_BYTES))
            subprocess.run([*command, device], check=True, capture_output=True)
            options += ["--disk", f"{name}={device}"]
        yield options


def command(folder: Path, disks: Sequence[str], chosen: Sequence[str]) -> list[str]:
    """The workload's command line, which puts the truth into the folder."""
    work = folder.resolve() / "work"
    work.mkdir()
    paths = ["--dir", str(work), "--journal", str(folder / "journal"), "--truth", str(folder / "truth")]
    return [str(build("names")), *paths, *disks, *chosen]


def read_truth(folder: Path) -> list[Row]:
    """The workload's output; paths as bytes."""
    rows = read_json_lines((folder / "truth").read_text())
    for row in rows:
        row["names"] = [bytes.fromhex(name) for name in row["names"]]
        for key in ("link", "given", "given2", "directory", "directory2"):
            row[key] = None if row[key] is None else bytes.fromhex(row[key])
    return rows


def run(folder: Path, chosen: Sequence[str], *options: str, attempts: int = 3) -> Names:
    """Record these scenarios with these options of lo2io; files lie in the folder.

    If samples vanish (see ``record``), all is done again in a new folder, for the workload can make its folders only
    once.
    """
    for attempt in range(attempts):
        place = folder / str(attempt)
        place.mkdir(parents=True)
        with file_systems(place) as disks:
            try:
                recorded = record(place / "T", command(place, disks, chosen), *options, attempts=1)
            except AssertionError as error:
                if " vanished" not in str(error) or attempt + 1 == attempts:
                    raise
            else:
                return Names(recorded, read_truth(place))
    raise AssertionError


def exact_paths(table: Any, column: str = "path") -> list[bytes | None]:
    """The paths of a table with ``path`` and ``path_bytes``, byte by byte; or of another such column."""
    paths, exact = table[column].to_pylist(), table[f"{column}_bytes"].to_pylist()
    return [
        raw if raw is not None else None if path is None else path.encode()
        for path, raw in zip(paths, exact, strict=True)
    ]


@dataclass
class Verdict:
    """The result of a comparison."""

    right: int = 0
    unknown: int = 0
    """Of calls that may be about something unknown."""
    wrong: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    """Unknown, and must be known."""


@dataclass(frozen=True)
class Names:
    """One recording of some scenarios, or of another program whose truth is known."""

    recorded: Recorded
    truth: Sequence[Row]

    @cached_property
    def files(self) -> dict[int, Row]:
        """Files by number, with ``name``: the exact path."""
        table = self.recorded.trace.files
        names = exact_paths(table)
        return {row["file"]: row | {"name": name} for row, name in zip(table.to_pylist(), names, strict=True)}

    @cached_property
    def handles(self) -> dict[int, Row]:
        """Handles by number."""
        return {row["handle"]: row for row in self.recorded.trace.handles.to_pylist()}

    @cached_property
    def rows(self) -> list[Row]:
        """The operations in the order of their start."""
        rows: list[Row] = self.recorded.trace.operations.to_pylist()
        rows.sort(key=lambda row: (row["begin_time_ns"], row["id"]))
        return rows

    @cached_property
    def pairs(self) -> list[tuple[Row, Row]]:
        """Each call of the truth with its row, without calls that are not recorded."""
        of_thread: dict[int, list[Row]] = defaultdict(list)
        for row in self.rows:
            of_thread[row["tid"]].append(row)
        marked: dict[int, tuple[int, int]] = {}
        for tid, rows in of_thread.items():
            for index, row in enumerate(rows):
                offset = row["offset_bytes"] or 0
                if row["call"] == "lseek" and row["fd"] in {-1, None} and offset & ~0xFFFFFF == MARK:
                    marked[offset - MARK] = tid, index
        found = []
        position: dict[int, int] = {}
        for truth in self.truth:
            tid = truth["tid"]
            if truth["follows"]:
                position[tid] += 1
            else:
                assert marked[truth["id"]][0] == tid
                position[tid] = marked[truth["id"]][1] + 1
            row = of_thread[tid][position[tid]] if position[tid] < len(of_thread[tid]) else {"call": None}
            if row["call"] == truth["call"]:
                assert row["result"] == truth["result"], (truth, row)
                found.append((truth, row))
            else:
                assert not truth["follows"], (truth, row)
                position[tid] -= 1
        return found

    def name_of(self, number: int | None) -> bytes | None:
        """The exact path of a handle's file."""
        handle = self.handles.get(number) if number is not None else None
        file = self.files.get(handle["file"]) if handle and handle["file"] is not None else None
        return file["name"] if file else None

    def file_of(self, truth: Row, row: Row) -> tuple[int | None, Row | None]:
        """The truth's handle, and its file, if it has a name."""
        copied = truth["opens"] and truth["call"] in DUPS and truth["fd"] != truth["result"]
        number = row["handle2"] if copied else row["handle"]
        handle = self.handles.get(number) if number is not None else None
        file = self.files.get(handle["file"]) if handle and handle["file"] is not None else None
        return number, file if file and file["name"] is not None else None

    def judge(self, scenario: str) -> Verdict:
        """Compare every call of the scenario."""
        verdict = Verdict()
        for truth, row in self.pairs:
            if truth["scenario"] == scenario:
                self._judge_call(verdict, truth, row)
        return verdict

    def _judge_call(self, verdict: Verdict, truth: Row, row: Row) -> None:
        number, file = self.file_of(truth, row)
        told = f"{truth['scenario']} {truth['id']}: {truth['call']}({truth['fd']}) = {truth['result']}"
        if truth["know"] == "any":
            return
        if truth["know"] == "none":
            if file:
                verdict.wrong.append(f"{told}: nothing is open there, table {file['name']!r}")
        elif file is None:
            if truth["know"] == "may":
                verdict.unknown += 1
            else:
                verdict.missing.append(f"{told}: is {truth['names'][0]!r}, table: handle {number} without a name")
        elif file["name"] not in truth["names"]:
            verdict.wrong.append(f"{told}: is one of {truth['names'][:4]}, table {file['name']!r}")
        else:
            differing = different_identity(truth, file)
            verdict.wrong += [f"{told}: {file['name']!r}: {text}" for text in differing]
            verdict.right += not differing

    def unnamed(self) -> Counter[str]:
        """Used handles without a name, by origin."""
        return Counter(row["origin"] for row in self.handles.values() if row["used"] and row["file"] is None)


def different_identity(truth: Row, file: Row) -> list[str]:
    """Differences between the file's row and statx(2), except for unknown values."""
    if "inode" not in truth:
        return []
    told = {"inode": truth["inode"], "device": os.makedev(truth["major"], truth["minor"]), "mount": truth["mount"]}
    seen = {key: file[key] for key in told}
    if file["mode"] and stat.S_IFMT(
        truth["mode"]
    ):  # the kernel shows no type for anonymous inodes (anon_inode_getattr)
        told["mode"], seen["mode"] = stat.S_IFMT(truth["mode"]), stat.S_IFMT(file["mode"])
    return [f"{key} is {told[key]}, table {seen[key]}" for key in told if seen[key] not in {None, told[key]}]
