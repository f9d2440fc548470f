"""What calls find in the page cache: the slow engine's rules, page by page."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from lo2io.native._lib import lib

from lo2io.model import CallKind

if TYPE_CHECKING:
    from reference.engine import Reference
    from reference.fds import Handle
    from reference.pending import Pending
    from reference.tasks import Task

Row = dict[str, Any]
TMPFS, OVERLAYFS = 0x01021994, 0x794C7630
O_DIRECT = 0o40000
TYPE, REGULAR, BLOCK_DEVICE = 0o170000, 0o100000, 0o60000
BLOCK = 512
"""Fills of pages that are read ahead are cut at multiples of so many pages."""
NO_READ: Row = {"cache": 0, "cache_missed_pages": None, "cache_ahead_pages": None, "cache_wait_ns": None}


@dataclass(eq=False)
class Run:
    """``FILL`` or ``EVICT``."""

    evicts: bool
    begin: int
    key: tuple[int, int]
    generation: int
    mode: int
    first: int
    pages: int
    page_bytes: int

    def goes_on(self, other: Run) -> bool:
        """True if the other run is the rest of this one."""
        same = ("evicts", "key", "generation", "mode")
        return (
            all(getattr(self, name) == getattr(other, name) for name in same) and self.first + self.pages == other.first
        )


@dataclass(eq=False)
class Deeds:
    """What a call has done so far."""

    runs: list[Run] = field(default_factory=list)
    waited: bool = False
    unseen: bool = False
    wait: int = 0

    def add(self, run: Run) -> None:
        """Take note of a run."""
        if self.runs and self.runs[-1].goes_on(run):
            self.runs[-1].pages += run.pages
        else:
            self.runs.append(run)


@dataclass(eq=False)
class File:
    """How reads of a description find their data."""

    kind: str = "unknown"
    key: tuple[int, int] = (0, 0)
    generation: int = 0
    flags: int | None = None


def kind_of(told: Row) -> str:
    """Where reads of a file find their data, by a ``FILE``."""
    regular = told["mode"] & TYPE == REGULAR
    if told["magic"] == TMPFS and regular:
        return "memory"
    if told["magic"] == OVERLAYFS:
        return "below" if regular else "none"
    if not told["flags"] & lib.LO2_FILE_CACHED:
        return "none"
    return "pages" if regular else "device" if told["mode"] & TYPE == BLOCK_DEVICE else "none"


class Cache:
    """The page cache, as far as recorded threads fill it."""

    def __init__(self, engine: Reference) -> None:
        self.engine = engine
        self.on = "cache" in engine.meta.layers
        self.fills: list[Row] = []
        self.evictions: list[Row] = []
        self.waiting: dict[int, int] = {}
        """Task → since when it waits for I/O."""
        self.left: dict[tuple[tuple[int, int], int], list[Row]] = defaultdict(list)
        """File and page → rows of fills whose page nobody has used or taken out."""

    # ---- records ----

    def pages(self, values: Row) -> None:
        """``FILL``, ``EVICT``."""
        run = Run(**{name: values[name] for name in Run.__dataclass_fields__})
        tasks = self.engine.tasks
        task = tasks.of_sample(values["tid"], create=not run.evicts)
        op = task.pending if task is not None else None
        if op is not None and run.begin >= op.time:
            op.deeds.add(run)
        elif run.evicts or (task is not None and task.recorded):
            self._write([run], File(), None, by(task, values["tid"]), "no call")

    def wait(self, values: Row, time: int) -> None:
        """``IOWAIT``."""
        task = self.engine.tasks.of_sample(values["tid"], create=False)
        if task is None:
            return
        since = self.waiting.pop(task.index, None)
        op = task.pending
        if op is not None:
            op.deeds.waited = True
            here = since is not None and since >= op.time
            if values["ends"] and here:
                op.deeds.wait += time - since
            op.deeds.unseen |= here != bool(values["ends"])
        if not values["ends"]:
            self.waiting[task.index] = time

    def lost(self) -> None:
        """Records are lacking: nothing is known of any page that was read ahead."""
        for row in {id(row): row for rows in self.left.values() for row in rows}.values():
            row["used_pages"], row["first_use"] = None, None
        self.left.clear()

    # ---- the end of a call ----

    def judge(self, op: Pending, row: Row, *, completed: bool) -> Row:
        """The columns of the call's row, which has its offset. Makes the rows of fills and evictions."""
        reads, deeds, file = op.spec.kind is CallKind.READ, op.deeds, file_of(op.handle)
        deeds.unseen |= self.waiting.get(op.task.index, -1) >= op.time
        if not self.on or not (reads or deeds.runs):
            return NO_READ
        got, offset = row["bytes_result"] if completed else None, row["offset_bytes"]
        has_read = reads and got is not None and got > 0
        mine = [run for run in deeds.runs if is_of(run, file, deeds.runs)]
        asked = range(0)
        size = next((run.page_bytes for run in deeds.runs), 4096)
        if has_read and offset is not None:
            asked = range(offset // size, (offset + got - 1) // size + 1)
        found = self._verdict(op, file, mine, asked, offset) if has_read else NO_READ
        cause = row if op.task.recorded else None
        if has_read and file.kind == "pages" and cause is not None:
            for page in asked:
                self._clear(file.key, page, cause)
        why = {CallKind.READ: "other", CallKind.WRITE: "write"}.get(
            op.spec.kind, "advice" if op.spec.group == "advice" else "other"
        )
        known = asked if has_read and offset is not None else None
        self._write(deeds.runs, file, known, by(op.task, op.task.tid, cause), why)
        return found

    def _verdict(self, op: Pending, file: File, mine: list[Run], asked: range, offset: int | None) -> Row:
        came = [page for run in mine if not run.evicts for page in range(run.first, run.first + run.pages)]
        missed = sum(page in asked for page in came)
        row: Row = {"cache_missed_pages": missed, "cache_ahead_pages": len(came) - missed}
        row["cache_wait_ns"] = None if op.deeds.unseen else op.deeds.wait
        unclear = came and offset is None
        if file.kind == "unknown" or not self.engine.gaps.spare(op.time):
            verdict = "unknown"
        elif file.kind in ("none", "memory"):
            verdict = file.kind
        elif unclear or (not missed and file.flags is None):
            verdict = "unknown"
        elif missed:
            verdict = "miss"
        elif file.flags is not None and file.flags & O_DIRECT:
            verdict = "none"
        else:
            verdict = "wait" if op.deeds.waited else "hit"
        if verdict == "unknown":
            row = dict(NO_READ)
        return row | {"cache": ("no read", "unknown", "none", "memory", "hit", "wait", "miss").index(verdict)}

    # ---- rows ----

    def _write(self, runs: list[Run], file: File, asked: range | None, who: Row, why: str) -> None:
        for run in runs:
            is_mine = is_of(run, file, runs)
            row = who | {
                "time_ns": run.begin,
                "device": run.key[0],
                "inode": run.key[1],
                "page_bytes": run.page_bytes,
            }
            if run.evicts:
                self.evictions.append(row | {"first_page": run.first, "pages": run.pages})
                for page in range(run.first, run.first + run.pages):
                    self._clear(run.key, page, None)
            elif asked is None or not is_mine:
                reason = "metadata" if run.mode & TYPE != REGULAR and not is_mine else why
                self._fill(
                    row, run.first, run.pages, reason, follow=reason == "advice" and is_mine and file.kind == "pages"
                )
            else:
                parts = (
                    range(run.first, min(asked.start, run.first + run.pages)),
                    range(max(run.first, asked.start), min(asked.stop, run.first + run.pages)),
                    range(max(run.first, asked.stop), run.first + run.pages),
                )
                for part, reason in zip(parts, ("ahead", "demand", "ahead"), strict=True):
                    self._fill(row, part.start, len(part), reason, follow=reason == "ahead" and file.kind == "pages")

    def _fill(self, row: Row, first: int, pages: int, why: str, *, follow: bool) -> None:
        reasons = ("demand", "ahead", "write", "advice", "metadata", "no call", "other")
        while pages > 0:
            part = min(pages, BLOCK - first % BLOCK) if follow else pages
            demand = why == "demand"
            made = row | {"first_page": first, "pages": part, "why": reasons.index(why)}
            made |= {
                "used_pages": part if demand else 0 if follow else None,
                "first_use": row["cause"] if demand else None,
            }
            self.fills.append(made)
            for page in range(first, first + part) if follow else ():
                self.left[(row["device"], row["inode"]), page].append(made)
            first, pages = first + part, pages - part

    def _clear(self, key: tuple[int, int], page: int, reader: Row | None) -> None:
        for row in self.left.pop((key, page), []):
            if reader is not None:
                row["used_pages"] += 1
                row["first_use"] = row["first_use"] or reader


def by(task: Task | None, tid: int, cause: Row | None = None) -> Row:
    """Columns of a fill or an eviction: who did it, and in which call."""
    return {"task": task if task is not None and task.recorded else None, "tid": tid, "cause": cause}


def file_of(handle: Handle | None) -> File:
    """What is known of the handle's file."""
    description = handle.description if handle is not None else None
    if description is None:
        return File()
    if description.identity is None:
        return File(flags=description.flags)
    _, device, inode, generation = description.identity
    return File(description.cached, (device, inode), generation, description.flags)


def is_of(run: Run, file: File, runs: list[Run]) -> bool:
    """True if the run's pages are the file's."""
    if file.kind == "pages":
        return (run.key, run.generation) == (file.key, file.generation)
    if file.kind == "below":
        files = {each.key for each in runs if not each.evicts and each.mode & TYPE == REGULAR}
        return len(files) < 2 and run.mode & TYPE == REGULAR
    return file.kind == "device" and run.mode & TYPE == BLOCK_DEVICE
