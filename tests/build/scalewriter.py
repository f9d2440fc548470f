"""Large spools written by the column, which no test machine can record.

Like :mod:`perfwriter`, whose layouts and description it uses. But a call adds many records at once, given as arrays of
one value per record, or as one value for all. The records of a buffer are sorted by time at the end.

>>> times = np.arange(1_000, 9_000, 10)
>>> spool = ScaleSpool(folder / "spool", 2).call(times, times + 5, times // 10 % 2, 10, "read", 512, fd=3)
>>> spool.builder.samples["syscalls:sys_exit_read"]  # on each CPU
[400, 400]
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from build.perfwriter import COMM, EXIT, FORK, MISC_COMM_EXEC, SAMPLE, SpoolBuilder
from lo2io.spool.facts import FACT_FD, FACT_TASK
from lo2io.spool.format import FACTS_NAME, ring_name

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import ArrayLike, NDArray

    Bytes = NDArray[np.uint8]


@dataclass
class Ring:
    """Records of one stream, in any order."""

    times: list[NDArray[np.int64]] = field(default_factory=list)
    rows: list[Bytes] = field(default_factory=list)

    def content(self) -> bytes:
        """All records by time; at equal times in the order of their addition."""
        if not self.times:
            return b""
        order = np.argsort(np.concatenate(self.times), kind="stable")
        sizes = np.concatenate([np.full(len(rows), rows.shape[1]) for rows in self.rows])
        padded = np.zeros((len(order), sizes.max()), np.uint8)
        start = 0
        for rows in self.rows:
            padded[start : start + len(rows), : rows.shape[1]] = rows
            start += len(rows)
        present = np.arange(padded.shape[1]) < sizes[:, None]
        return padded[order][present[order]].tobytes()


def spread(t: ArrayLike, *others: ArrayLike) -> NDArray[np.int64]:
    """The times, repeated for each record if another array is longer."""
    return np.broadcast_arrays(np.atleast_1d(np.asarray(t, np.int64)), *others)[0]


def words(*columns: tuple[str, ArrayLike], count: int) -> Bytes:
    """Little-endian columns side by side: pairs of a dtype (``<u4``, ``S16``) and values."""
    record = np.zeros(count, [(f"f{index}", dtype) for index, (dtype, _) in enumerate(columns)])
    for name, (_, values) in zip(record.dtype.names or (), columns, strict=True):
        record[name] = values
    return record.view(np.uint8).reshape(count, -1)


def number_paths(prefix: bytes, numbers: NDArray[np.int64]) -> NDArray[np.bytes_]:
    """``prefix0000017``: a path for each number, all of the same length."""
    digits = np.char.zfill(numbers.astype(f"U{7}"), 7).astype("S7")
    return np.char.add(np.full(len(numbers), prefix), digits)


class ScaleSpool:
    """Collects columns of records; :meth:`write` makes the spool. ``options`` are those of :class:`SpoolBuilder`."""

    def __init__(self, path: Path, cpus: int, **options: Any) -> None:
        self.builder = SpoolBuilder(path, cpus, **options)
        self.rings = [Ring() for _ in range(cpus)]
        self.facts = Ring()

    def sample(self, name: str, t: ArrayLike, cpu: ArrayLike, tid: ArrayLike, **fields: Any) -> ScaleSpool:
        """One sample of an event per time. At most one of the fields may be a dynamic string, given as ``S…``."""
        times = np.atleast_1d(np.asarray(t, np.int64))
        layout, count = self.builder.layouts[name], len(times)
        places = {label: place for label, place in zip(layout.names, layout.fields, strict=True) if label in fields}
        assert len(places) == len(fields), f"{name} has no {fields.keys() - places.keys()}"
        fixed = max(offset + size for _, offset, size, _ in layout.fields)
        text = next((np.asarray(fields[label]) for label in places if places[label][0].startswith("__data_loc")), None)
        text_size = 0 if text is None else text.dtype.itemsize + 1
        raw_size = fixed + text_size + -(4 + fixed + text_size) % 8
        raw = np.zeros((count, raw_size), np.uint8)
        raw[:, :8] = words(("<u2", self.builder.ids[name]), ("<u2", 0), ("<i4", tid), count=count)
        raw[:, fixed : fixed + text_size] = words((f"S{text_size}", b"" if text is None else text), count=count)
        for label, (declaration, offset, size, _) in places.items():
            column: tuple[str, Any] = (f"<i{size}", fields[label])
            if declaration.startswith("__data_loc"):
                column = ("<u4", text_size << 16 | fixed)
            elif declaration.startswith("char"):
                column = (f"S{size}", fields[label])
            raw[:, offset : offset + size] = words(column, count=count)
        head = words(
            ("<u4", SAMPLE), ("<u2", 0), ("<u2", 20 + raw_size), ("<i8", times), ("<u4", raw_size), count=count
        )
        for index, seen in enumerate(np.bincount(np.broadcast_to(cpu, count), minlength=len(self.rings))):
            self.builder.samples[name][index] += int(seen)
        return self._put(times, cpu, np.hstack([head, raw]))

    def call(  # noqa: PLR0917 - as SpoolBuilder's
        self, t: ArrayLike, end: ArrayLike, cpu: ArrayLike, tid: ArrayLike, name: str, ret: ArrayLike, **args: Any
    ) -> ScaleSpool:
        """Calls from ``t`` to ``end``; ``exit_cpu`` says where they end, if not on the CPU of their start."""
        exit_cpu = args.pop("exit_cpu", cpu)
        self.sample(f"syscalls:sys_enter_{name}", t, cpu, tid, **args)
        return self.sample(f"syscalls:sys_exit_{name}", end, exit_cpu, tid, ret=ret)

    def fork(self, t: ArrayLike, cpu: ArrayLike, pid: ArrayLike, tid: ArrayLike, parent: ArrayLike) -> ScaleSpool:
        """``PERF_RECORD_FORK``: threads (``pid`` is the parent's), or processes that the leader of ``parent`` makes."""
        return self._task(FORK, t, cpu, pid, tid, parent)

    def task_exit(self, t: ArrayLike, cpu: ArrayLike, pid: ArrayLike, tid: ArrayLike) -> ScaleSpool:
        """``PERF_RECORD_EXIT``."""
        return self._task(EXIT, t, cpu, pid, tid, 1)

    def _task(self, kind: int, t: ArrayLike, cpu: ArrayLike, pid: ArrayLike, tid: ArrayLike, parent: ArrayLike) -> Any:  # noqa: PLR0917
        times = spread(t, pid, tid)
        numbers = [("<u4", pid), ("<u4", parent), ("<u4", tid), ("<u4", parent), ("<i8", times), ("<i8", times)]
        return self._put(times, cpu, words(("<u4", kind), ("<u2", 0), ("<u2", 40), *numbers, count=len(times)))

    def exec(self, t: ArrayLike, cpu: ArrayLike, pid: ArrayLike, comm: bytes) -> ScaleSpool:
        """``PERF_RECORD_COMM`` of an exec by the leader."""
        times = np.atleast_1d(np.asarray(t, np.int64))
        head = (("<u4", COMM), ("<u2", MISC_COMM_EXEC), ("<u2", 40), ("<u4", pid), ("<u4", pid))
        return self._put(times, cpu, words(*head, ("S16", comm[:15]), ("<i8", times), count=len(times)))

    def _put(self, times: NDArray[np.int64], cpu: ArrayLike, rows: Bytes) -> ScaleSpool:
        where = np.broadcast_to(np.asarray(cpu), len(times))
        order = np.argsort(where, kind="stable")
        present, starts = np.unique(where[order], return_index=True)
        for index, part in zip(present, np.split(order, starts[1:]), strict=True):
            self.rings[int(index)].times.append(times[part])
            self.rings[int(index)].rows.append(rows[part])
        return self

    def fact_task(
        self, t: ArrayLike, pid: ArrayLike, tid: ArrayLike, cgroup: NDArray[np.bytes_] | None = None
    ) -> ScaleSpool:
        """TASK facts, in v2 cgroups."""
        times = spread(t, pid, tid)
        text: list[tuple[str, Any]] = []
        if cgroup is not None:
            length = cgroup.dtype.itemsize
            text = [("<u4", 0), ("<u4", length), (f"S{length + -length % 8}", cgroup)]
        numbers = [("<i8", times), ("<i8", times), ("<u4", pid), ("<u4", tid), ("<u4", 1), ("<u4", 0), ("S16", b"t")]
        return self._put_facts(FACT_TASK, times, words(*numbers, *text, count=len(times)))

    def fact_fd(self, t: ArrayLike, pid: ArrayLike, fd: ArrayLike, inode: ArrayLike, path: NDArray[np.bytes_]) -> Any:
        """FD facts of regular files, opened to read."""
        times = np.atleast_1d(np.asarray(t, np.int64))
        length = path.dtype.itemsize
        numbers = [("<i8", times), ("<i8", times), ("<u8", 0x801), ("<u8", inode), ("<i8", 0), ("<u4", pid)]
        numbers += [("<i4", fd), ("<u4", 0), ("<u4", 0o100644), ("<u4", 25), ("<u4", length)]
        text = (f"S{length + -length % 8}", path)
        return self._put_facts(FACT_FD, times, words(*numbers, text, count=len(times)))

    def _put_facts(self, kind: int, times: NDArray[np.int64], body: Bytes) -> ScaleSpool:
        head = np.frombuffer(struct.pack("<IHH", kind, 0, 8 + body.shape[1]), np.uint8)
        self.facts.times.append(times)
        self.facts.rows.append(np.hstack([np.tile(head, (len(times), 1)), body]))
        return self

    def write(self, **changes: object) -> Path:
        """Write all files; ``changes`` replace values of ``spool.json``."""
        path = self.builder.write(**changes)
        for cpu, ring in enumerate(self.rings):
            (path / ring_name(cpu)).write_bytes(ring.content())
        (path / FACTS_NAME).write_bytes(self.facts.content())
        return path
