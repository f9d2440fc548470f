"""Both engines agree on what calls find in the page cache, whatever threads do there."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from build.kernelwriter import WHOLE, KernelSpool
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from lo2io.native._lib import lib
from reference.cache import OVERLAYFS, TMPFS
from reference.compare import run_native, run_reference

from lo2io.native.records import framed, pack
from lo2io.trace.columns import CACHE_VERDICT

CACHED = lib.LO2_FILE_CACHED
O_DIRECT = 0o40000
KINDS = (
    {"flags": WHOLE | CACHED},
    {"flags": WHOLE | CACHED, "open_flags": O_DIRECT},
    {"flags": WHOLE, "magic": TMPFS},
    {"flags": WHOLE, "magic": OVERLAYFS},
    {"flags": WHOLE, "mode": 0o10600},
    {"flags": WHOLE | CACHED, "mode": 0o60600},
)
"""Files of several kinds, as ``FILE`` tells them."""
PAGE = 4096
SMALL = st.integers(0, 6)
STEPS = st.lists(
    st.tuples(
        st.sampled_from(
            ("read",) * 5 + ("done",) * 7 + ("fill",) * 6 + ("write", "advise", "evict", "wait", "lost", "stranger")
        ),
        st.integers(0, 1),
        SMALL,
        st.sampled_from((0, 0, 0, 0, 0, 1, 2, 3, 3, 4, 5)),
        st.sampled_from((1, 4095, 4096, 5000, 30_000, 3 << 20)),
    ),
    min_size=10,
    max_size=60,
)
TIDS = (10, 11)
FAILS, ELSEWHERE = 6, 6
"""Numbers with which a call fails, and with which a thread does something to another file than its call's."""


class Machine:
    """Two threads of one process, and their files: files with even numbers are the first thread's."""

    def __init__(self, path: Path) -> None:
        self.spool = KernelSpool(path, 2, calls=("openat", "pread64", "pwrite64", "readahead"), sampled=("block",))
        self.time = 100_000
        self.calls: dict[int, tuple[int, str, dict[str, int]]] = {}
        self.spool.fact_task(90_000, 10, 10)
        self.spool.fact_task(90_000, 11, 10)
        for number, kind in enumerate(KINDS):
            at = self.tick()
            self.spool.kernel_call(at, 0, 10, "openat", 3 + number, duration=1, dfd=0, filename=0, flags=0, mode=0)
            self.spool.kernel_file(
                at + 1, 0, 10, 3 + number, [b"f%d" % number, b""], inode=100 + number, file=0x1000 + number, **kind
            )  # type: ignore[arg-type]

    def tick(self) -> int:
        """A time of its own."""
        self.time += 100
        return self.time

    def event(self, kind: str, cpu: int, tid: int, **members: int) -> None:
        """A record among the events."""
        self.spool.events[cpu].append(framed(pack(kind, self.tick(), tid, **members)))

    def pages(self, kind: str, cpu: int, tid: int, *, file: int, first: int, pages: int) -> None:
        """A run of pages of a file, or of what lies below it."""
        options = KINDS[file]
        below = options.get("magic") == OVERLAYFS
        mode = options.get("mode", 0o100644)
        device = 8 << 20 | (2 if below else 1)
        self.event(
            kind, cpu, tid, begin_ns=self.time + 50, device=device, inode=100 + file, first_page=first, pages=pages,
            page_bytes=PAGE, generation=0, mode=mode,
        )  # fmt: skip

    def step(self, what: str, cpu: int, a: int, file: int, size: int) -> None:
        """Something happens."""
        tid = TIDS[cpu]
        if what in {"read", "write", "advise"} and tid not in self.calls:
            call = {"read": "pread64", "write": "pwrite64", "advise": "readahead"}[what]
            place = {"offset" if what == "advise" else "pos": a * PAGE + size % 4096}
            args = place | {"fd": 3 + file, "count": size}
            self.calls[tid] = self.tick(), call, args
        elif what == "done" and tid in self.calls:
            begin, call, args = self.calls.pop(tid)
            result = 0 if call == "readahead" else -5 if a == FAILS else args["count"] >> a
            self.spool.kernel_call(begin, cpu, tid, call, result, duration=self.tick() - begin, **args)
        elif what in {"fill", "evict"}:
            if tid in self.calls and a != ELSEWHERE:
                file = self.calls[tid][2]["fd"] - 3
            self.pages(what, cpu, tid, file=file, first=a, pages=1 + size // PAGE)
        elif what == "stranger":
            self.pages("evict", cpu, 77, file=file, first=a, pages=1 + size // PAGE)
        elif what == "wait":
            self.event("iowait", cpu, tid, ends=a % 2)
        elif what == "lost" and a == 0:
            begin = self.tick()
            self.spool.events_lost(self.tick(), cpu, size % 3, begin, rows=file == 0)

    def write(self) -> Path:
        """The spool. Calls under way are in flight."""
        for tid, (begin, call, args) in self.calls.items():
            self.spool.kernel_enter(begin, TIDS.index(tid), tid, call, **args)
        return self.spool.write(layers=("cache",))


@settings(
    max_examples=int(os.environ.get("LO2IO_EXAMPLES", "75")), deadline=None, suppress_health_check=list(HealthCheck)
)
@given(STEPS)
def test_same_verdicts(steps: list[tuple[str, int, int, int, int]]) -> None:
    """Verdicts, counts of pages, fills with their first use, evictions: all the same."""
    with tempfile.TemporaryDirectory() as directory:
        machine = Machine(Path(directory) / "spool")
        for step in steps:
            machine.step(*step)
        path = machine.write()
        native, reference = run_native(path), run_reference(path)
    for name in ("operations", "fills", "evictions", "losses", "totals"):
        assert native[name] == reference[name], name


def test_a_long_run_is_followed_in_blocks_of_512_pages(tmp_path: Path) -> None:
    """A read misses one page, and the kernel reads 1,099 further pages ahead. Later reads cross the blocks' borders."""
    machine = Machine(tmp_path / "spool")
    for first, pages, ahead in ((505, 1, 1099), (506, 1, 0), (510, 3, 0), (1023, 2, 0)):
        machine.step("read", 0, first, 0, pages * PAGE)
        if ahead:
            machine.pages("fill", 0, 10, file=0, first=first, pages=pages + ahead)
        machine.step("done", 0, 0, 0, 0)
    machine.pages("evict", 1, 77, file=0, first=1535, pages=2)
    path = machine.write()
    native = run_native(path)
    assert native["fills"] == run_reference(path)["fills"]
    found = {(row["first_page"], row["pages"]): row["used_pages"] for row in native["fills"]}
    assert found == {(505, 1): 1, (506, 6): 3, (512, 512): 2, (1024, 512): 1, (1536, 69): 0}


def test_a_read_that_waits_for_another_ones_pages(tmp_path: Path) -> None:
    """It misses none. The next read, which does not wait, has a hit."""
    machine = Machine(tmp_path / "spool")
    for waits in (True, False):
        machine.step("read", 0, 7, 0, PAGE)
        for ends in (0, 1) if waits else ():
            machine.event("iowait", 0, 10, ends=ends)
        machine.step("done", 0, 0, 0, 0)
    rows = run_native(machine.write())["operations"][-2:]
    assert [CACHE_VERDICT[row["cache"]] for row in rows] == ["wait", "hit"]
    assert [row["cache_wait_ns"] for row in rows] == [100, 0]
