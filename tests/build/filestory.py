"""What BPF programs tell about descriptors, written once for both back ends.

>>> story = Story(folder / "spool", "bpf")
>>> story = story.fact_task(1_000, 10, 10).does(60_000, 10, "openat", 3, returned(3, b"/tmp/x"))
>>> names(told("native", story))
[b'/tmp/x']
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
from reference.engines import ENGINES

from build.kernelwriter import OF_ARGUMENT, OF_RESULT, WHOLE, KernelSpool

if TYPE_CHECKING:
    from pathlib import Path

    from reference.compare import Tables

PSEUDO = 32
PIPEFS, SOCKFS, ANON, NSFS, PIDFS = 0x50495045, 0x534F434B, 0x09041934, 0x6E736673, 0x50494446
TMPFS, HUGETLBFS, SECRETMEM, DMA_BUF, BTRFS = 0x01021994, 0x958458F6, 0x5345434D, 0x444D4142, 0x9123683E
X, Y, Z = 0x1000, 0x2000, 0x3000
"""Addresses of open file descriptions."""
KERNEL, PROC = 3, 1
"""Sources of names."""


@dataclass(frozen=True)
class Sight:
    """A ``FILE``, by default about what the call returned."""

    fd: int
    path: bytes
    options: dict[str, Any]

    @property
    def names(self) -> list[bytes]:
        """Names from the file upwards."""
        return [name for name in self.path.split(b"/")[::-1] if name]


def returned(fd: int, path: bytes, file: int = X, **options: Any) -> Sight:
    """What the call returned; inode and generation follow from the address unless given."""
    defaults: dict[str, Any] = {"inode": file >> 8, "generation": file + 7, "flags": WHOLE, "of": OF_RESULT}
    return Sight(fd, path, {**defaults, "file": file, **options})


def argument(fd: int, path: bytes, file: int = X, **options: Any) -> Sight:
    """The file behind a descriptor that the call was given."""
    return returned(fd, path, file, of=OF_ARGUMENT, **options)


class Story(KernelSpool):
    """Calls with the facts that follow them. Threads of odd numbers run on CPU 1, others on CPU 0."""

    def __init__(self, path: Path, backend: str, **options: Any) -> None:
        super().__init__(path, 2, backend=backend, start_ns=50_000, **options)

    def does(self, t: int, tid: int, call: str, ret: int = 0, *told: Sight, lasts: int = 4, **args: int) -> Story:
        """A call from ``t`` to ``t + lasts``, on one CPU."""
        if self.backend == "perf":
            return self.begins(t, tid, call, **args).ends(t + lasts, tid, call, ret, *told)
        self.kernel_call(t, tid % 2, tid, call, ret, duration=lasts, **args)
        return self.sees(t + lasts, tid, *told)

    def begins(self, t: int, tid: int, call: str, **args: int) -> Story:
        """A call in which the thread loses its CPU."""
        (self.enter if self.backend == "perf" else self.kernel_enter)(t, tid % 2, tid, call, **args)
        return self

    def ends(self, t: int, tid: int, call: str, ret: int = 0, *told: Sight) -> Story:
        """The end of that call."""
        if self.backend == "perf":
            self.sees(t - 1, tid, *told)  # before the sample is taken
            self.exit(t, tid % 2, tid, call, ret)
            return self
        self.kernel_exit(t, tid % 2, tid, call, ret)
        return self.sees(t, tid, *told)

    def sees(self, t: int, tid: int, *told: Sight) -> Story:
        """Facts of a moment; for a close, the moment of its entry."""
        for sight in told:
            self.kernel_file(t, tid % 2, tid, sight.fd, sight.names, **sight.options)
        return self


@pytest.fixture(name="story", params=["bpf", "perf"])
def story_of_a_process(request: pytest.FixtureRequest, tmp_path: Path) -> Story:
    """A spool in system mode with the process 10; tracepoints on from 50 µs."""
    story = Story(tmp_path / "spool", request.param)
    story.fact_task(1_000, 10, 10, ppid=1, comm=b"ten")
    return story


@pytest.fixture(name="engine", params=list(ENGINES))
def each_engine(request: pytest.FixtureRequest) -> str:
    """The name of an engine."""
    return str(request.param)


def told(engine: str, story: Story, **changes: Any) -> Tables:
    """The tables of a story."""
    return ENGINES[engine](story.write(**changes))


def names(tables: Tables, table: str = "handles") -> list[bytes | None]:
    """The paths of the handles, in the order of their first appearance in calls; None: unknown."""
    return [None if row["file"] is None else row["file"][-1] for row in tables[table]]


def second_thread(story: Story) -> Story:
    """A second thread of the process, on the other CPU."""
    story.fork(55_000, 0, 10, 11, 10, 10)
    return story
