"""Traces of hosts whose calls a test chooses.

>>> host_with(folder / "T", "n1", [("/data/in", 20, 4096), ("/data/out", 30, -100)], rank=3)
>>> [entry.name for entry in (folder / "T").iterdir()]
['host=n1']
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from build.tablemaker import READ, WRITE, make_batch, write_trace

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

MS = 1_000_000


def host_with(
    directory: Path,
    host: str,
    calls: list[tuple[str, int, int]],
    rank: int | None = None,
    processes: Sequence[tuple[str, int | None]] = (),
) -> None:
    """A host whose calls are a path, a duration in µs, and the bytes that it reads or, if negative, writes.

    ``processes``: names and ranks of those that make one call each in turn; empty: one process makes all.
    """
    paths = sorted({path for path, _, _ in calls})
    made = [(name, {} if own is None else {"rank": own}) for name, own in processes or [("app", rank)]]
    batch = make_batch(
        tasks=[
            {"task": task, "process": 7 + task, "pid": 100 + task, "tid": 100 + task, "comm": name.encode(), **known}
            for task, (name, known) in enumerate(made)
        ],
        files=[{"file": at, "path": path.encode(), "mode": 0o100644} for at, path in enumerate(paths)],
        handles=[{"handle": at, "file": at, "fd": 3 + at} for at in range(len(paths))],
        operations=[
            {
                "id": number + 1, "call": READ if size > 0 else WRITE, "task": number % len(made),
                "pid": 100 + number % len(made), "tid": 100 + number % len(made),
                "handle": paths.index(path), "begin_time_ns": (10 + number) * MS,
                "end_time_ns": (10 + number) * MS + 1000 * length_us, "bytes_request": abs(size),
                "bytes_result": abs(size), "result": abs(size),
            }
            for number, (path, length_us, size) in enumerate(calls)
        ],
    )  # fmt: skip
    write_trace(directory / f"host={host}", [batch], span=(5 * MS, 900 * MS))
