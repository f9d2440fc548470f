"""What the page and the terminal say of the layers: of one trace that has each of them, compared whole."""

from __future__ import annotations

from typing import TYPE_CHECKING

from build.ringtables import text_of
from build.tablemaker import READ, WRITE, make_batch, meta, write_trace

from lo2io.model import UNKNOWN_U32
from lo2io.reports.html.sheets import sheets
from lo2io.reports.summary.summary import Summary, summarize
from lo2io.trace.columns import CACHE_VERDICT, CHARGED, FILL_REASON, PART_KIND, WRITE_REASON

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

PAGE, KIB, US = 4096, 1 << 10, 1000
SDA = 8 << 20
FILES = [{"file": number, "path": b"/data/%d" % number, "mode": 0o100644} for number in range(12)]
TASKS = [
    {"task": number, "process": number, "pid": 100 * number + 100, "tid": 100 * number + 100, "comm": comm}
    for number, comm in enumerate((b"reader", b"writer", b"sync", *(b"w%d" % number for number in range(9))))
]
TIMES = {"issue_time_ns": 2000 * US, "complete_time_ns": 2800 * US}


def read(number: int, verdict: str, *, missed: int = 0, ahead: int = 0, wait_us: int = 0) -> dict[str, int]:
    """A read of three pages by the reader."""
    cache = {"cache_missed_pages": missed, "cache_ahead_pages": ahead, "cache_wait_ns": wait_us * US}
    moved = {"bytes_request": 3 * PAGE, "bytes_result": 3 * PAGE, "offset_bytes": 3 * PAGE * number}
    times = {"begin_time_ns": 1000 * US * number, "end_time_ns": (1000 * number + 500) * US}
    found = cache if verdict in {"hit", "wait", "miss"} else {}
    return {
        "id": number,
        "task": 0,
        "handle": 0,
        "call": READ,
        "cache": CACHE_VERDICT.index(verdict),
        **moved,
        **times,
        **found,
    }


def charge(task: int, file: int, size: int, charged: str = "dirtied", **more: int) -> dict[str, int]:
    """Bytes of the request, or bytes that were dirty at the end."""
    return {"charged": CHARGED.index(charged), "task": task, "file": file, "bytes": size, **more}


def layered(folder: Path) -> Summary:
    """Reads of each verdict, pages read ahead for nothing, requests of every kind of part, writers and their sender."""
    fill = {"page_bytes": PAGE, "file": 0, "task": 0, "cause": 1}
    request = {"device": SDA, "operation": 1, "task": 2, "status": 0, **TIMES}
    sent = {"request": 7, "first_dirtied_ns": 500 * US, **TIMES}
    batch = make_batch(
        tasks=TASKS,
        files=FILES,
        handles=[{"handle": number, "process": number and 1, "file": number, "fd": 3 + number} for number in range(12)],
        operations=[
            read(1, "miss", missed=3, wait_us=70),
            read(2, "wait", ahead=1, wait_us=30),
            read(3, "hit"),
            read(4, "memory"),
            read(5, "none"),
            read(6, "unknown"),
            {
                "id": 8,
                "task": 1,
                "handle": 1,
                "call": WRITE,
                "bytes_result": 64 * KIB,
                "begin_time_ns": 1,
                "end_time_ns": 9,
            },
        ],
        fills=[
            {**fill, "pages": 8, "used_pages": 2, "why": FILL_REASON.index("ahead"), "first_use": 2},
            {**fill, "pages": 16, "used_pages": 0, "why": FILL_REASON.index("ahead")},
        ],
        requests=[
            {**request, "id": 7, "bytes_issued": 48 * KIB, "reason": WRITE_REASON.index("sync")},
            {**request, "id": 9, "bytes_issued": 8 * KIB, "operation": 0},
        ],
        request_parts=[
            {"request": 9, "kind": PART_KIND.index("file"), "file": 0, "bytes": 8 * KIB},
            *({"request": 7, "kind": PART_KIND.index("file"), "file": file, "bytes": 4 * KIB} for file in range(1, 11)),
            {"request": 7, "kind": PART_KIND.index("file"), "file": UNKNOWN_U32, "bytes": KIB},
            *({"request": 7, "kind": kind, "file": UNKNOWN_U32, "bytes": kind * KIB} for kind in (0, 2, 3, 4)),
            {"request": 7, "kind": PART_KIND.index("flush"), "file": UNKNOWN_U32, "bytes": 0, "cut": 1},
        ],
        write_backs=[
            *(charge(task, task, (20 - task) * KIB, **sent) for task in range(1, 12)),
            charge(2, UNKNOWN_U32, 2 * KIB, "direct", request=7, **TIMES),
            charge(UNKNOWN_U32, UNKNOWN_U32, 3 * KIB, "unknown", request=7, **TIMES),
            charge(1, 1, 12 * KIB, first_dirtied_ns=900 * US),
        ],
    )
    spool = meta(layers=("cache", "parts", "dirty"))
    return summarize(write_trace(folder, [batch], spool=spool, span=(0, 10_000 * US)))


def test_each_layer_as_text_and_as_tables(tmp_path: Path, golden: Callable[[str, str], None]) -> None:
    """The terminal shows the first rows and counts the others; the page has all, and numbers to sort by."""
    summary = layered(tmp_path)
    lines = text_of(summary).splitlines()
    for sheet in sheets(summary):
        if sheet.key.startswith(("cache", "parts", "write-backs")):
            lines += ["", f"{sheet.key}: {sheet.title}", sheet.note, "  ".join(name for name, _ in sheet.columns)]
            lines += ["  ".join(f"{cell.text} [{cell.value}]" for cell in row) for row in sheet.rows]
    golden("summary-layers.txt", "\n".join(lines).replace(str(tmp_path), "T") + "\n")
