"""Traces of hosts whose calls a test chooses.

>>> host_with(folder / "T", "n1", [("/data/in", 20, 4096), ("/data/out", 30, -100)], rank=3)
>>> [entry.name for entry in (folder / "T").iterdir()]
['host=n1']
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from build.tablemaker import READ, WRITE, make_batch, write_trace

if TYPE_CHECKING:
    from pathlib import Path

MS = 1_000_000


def host_with(directory: Path, host: str, calls: list[tuple[str, int, int]], rank: int | None = None) -> None:
    """A host whose calls are a path, a duration in µs, and the bytes that it reads or, if negative, writes."""
    paths = sorted({path for path, _, _ in calls})
    unknown = {} if rank is None else {"rank": rank}
    batch = make_batch(
        tasks=[{"task": 0, "process": 7, "pid": 100, "tid": 100, "comm": b"app", **unknown}],
        files=[{"file": at, "path": path.encode(), "mode": 0o100644} for at, path in enumerate(paths)],
        handles=[{"handle": at, "file": at, "fd": 3 + at} for at in range(len(paths))],
        operations=[
            {
                "id": number + 1, "call": READ if size > 0 else WRITE, "task": 0, "pid": 100, "tid": 100,
                "handle": paths.index(path), "begin_time_ns": (10 + number) * MS,
                "end_time_ns": (10 + number) * MS + 1000 * length_us, "bytes_request": abs(size),
                "bytes_result": abs(size), "result": abs(size),
            }
            for number, (path, length_us, size) in enumerate(calls)
        ],
    )  # fmt: skip
    write_trace(directory / f"host={host}", [batch], span=(5 * MS, 900 * MS))
