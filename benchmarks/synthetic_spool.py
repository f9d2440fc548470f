"""Makes a spool of any size, like that of a recording of two busy processes with four threads each on four CPUs.

    .venv/bin/python benchmarks/synthetic_spool.py DIRECTORY SAMPLES [--threads N]

Each thread works in bursts of 51 calls and one block request: it opens a file, reads it to its end and closes it. In
between, it reads and writes a shared file at given positions, and appends to a log that it syncs. The bursts of a
CPU's threads take turns. The CPUs' samples lie closely interleaved in time, which is the worst case for merging.
Layouts are those of the running kernel, so this needs tracefs.
"""

from __future__ import annotations

import argparse
import os
import stat
import struct
from dataclasses import dataclass, field
from itertools import starmap
from pathlib import Path

import numpy as np

from lo2io._version import __version__
from lo2io.kernel.tracefs import find_tracefs, load_format
from lo2io.model import BlockDevice, ClockSync, Cpu, EventCounts, EventFormat, Mount, SpoolMeta
from lo2io.spool.facts import TASK_SELECT, pack_fd, pack_task
from lo2io.spool.format import FACTS_NAME, META_NAME, dump_meta, ring_name

CPUS = 4
PIDS = (10_000, 20_000)
THREADS = CPUS * len(PIDS)
START_NS = 1_000_000_000
STEP_NS = 400
"""Time between two samples of a CPU; neighbouring CPUs differ by a quarter of it."""
SHARED_FD, LOG_FD, FILE_FD = 5, 6, 20
SECTORS = 8
CHUNK = 4096
"""Bursts made at a time."""
SAMPLE = 9
AT_FDCWD = (1 << 64) - 100
DEVICE = 254 << 20
Values = dict[str, int | bytes]

BURST: tuple[tuple[str, Values, int], ...] = (
    ("openat", {"dfd": AT_FDCWD, "filename": 0x7F0000001000, "flags": os.O_RDONLY}, FILE_FD),
    *([("pread64", {"fd": SHARED_FD, "count": 4096}, 4096)] * 24),
    *([("read", {"fd": FILE_FD, "count": 65536}, 65536)] * 10),
    ("read", {"fd": FILE_FD, "count": 65536}, 0),
    *([("write", {"fd": LOG_FD, "count": 512}, 512)] * 8),
    *([("pwrite64", {"fd": SHARED_FD, "count": 4096}, 4096)] * 4),
    ("lseek", {"fd": FILE_FD, "offset": 0, "whence": 0}, 0),
    ("fsync", {"fd": LOG_FD}, 0),
    ("close", {"fd": FILE_FD}, 0),
)
"""One burst: call, arguments, result."""
REQUEST: tuple[tuple[str, Values], ...] = tuple(
    (event, {"dev": DEVICE, "nr_sector": SECTORS, "bytes": SECTORS * 512, "rwbs": b"WS"})
    for event in ("block:block_rq_insert", "block:block_rq_issue", "block:block_rq_complete")
)
"""Events inside of the fsync."""


@dataclass
class _Template:
    """The bytes of a burst, and the places of values that differ from burst to burst."""

    data: bytearray = field(default_factory=bytearray)
    times: list[int] = field(default_factory=list)
    tids: list[int] = field(default_factory=list)
    file_fds: list[int] = field(default_factory=list)
    positions: list[int] = field(default_factory=list)
    sectors: list[int] = field(default_factory=list)
    samples: dict[str, int] = field(default_factory=dict)

    def add(self, layout: EventFormat, values: Values) -> None:
        """Append one sample: header, time, raw data padded so that the record's size divides by 8."""
        body = bytearray(max(f.offset + f.size for f in layout.fields))
        struct.pack_into("<H", body, 0, layout.id)
        raw = -(-(len(body) + 4) // 8) * 8 - 4
        at = len(self.data) + 20
        for name, value in values.items():
            place = layout.field(name)
            if place is None:
                continue  # completions have sectors, not bytes
            content = value if isinstance(value, bytes) else value.to_bytes(place.size, "little")
            body[place.offset : place.offset + len(content)] = content
        places = {f.name: at + f.offset for f in layout.fields}
        self.times.append(len(self.data) + 8)
        self.tids.append(places["common_pid"])
        if values.get("fd") == FILE_FD:
            self.file_fds.append(places["fd"])
        if layout.name == "syscalls:sys_exit_openat":
            self.file_fds.append(places["ret"])
        self.positions += [places["pos"]] if "pos" in places else []
        self.sectors += [places["sector"]] if "sector" in places else []
        self.samples[layout.name] = self.samples.get(layout.name, 0) + 1
        self.data += struct.pack("<IHHQI", SAMPLE, 0, 20 + raw, 0, raw) + body + bytes(raw - len(body))


def make(directory: Path, samples: int, threads: int = THREADS) -> int:
    """Write a complete spool.

    Args:
        directory: Made here.
        samples: The least number of samples; rounded up to whole bursts on every CPU.
        threads: Of both processes; a multiple of :data:`THREADS`.

    Returns:
        The number of samples.
    """
    tracefs = find_tracefs()
    texts = {event: load_format(tracefs, event) for event in _events()}
    template = _template({event: layout for event, (layout, _) in texts.items()})
    bursts = -(-samples // (CPUS * len(template.times)))
    directory.mkdir(parents=True)
    for cpu in range(CPUS):
        with (directory / ring_name(cpu)).open("wb") as file:
            for first in range(0, bursts, CHUNK):
                numbers = np.arange(first, min(first + CHUNK, bursts))
                _chunk(template, cpu, numbers, threads // THREADS).tofile(file)
    (directory / FACTS_NAME).write_bytes(_facts(threads // len(PIDS)))
    stop_ns = START_NS + (bursts + 1) * len(template.times) * STEP_NS
    meta = _meta({event: text for event, (_, text) in texts.items()}, template.samples, bursts, stop_ns)
    (directory / META_NAME).write_bytes(dump_meta(meta))
    return bursts * CPUS * len(template.times)


def _events() -> list[str]:
    calls = dict.fromkeys(call for call, _, _ in BURST)
    return [f"syscalls:sys_{side}_{call}" for call in calls for side in ("enter", "exit")] + [e for e, _ in REQUEST]


def _template(layouts: dict[str, EventFormat]) -> _Template:
    template = _Template()
    for call, arguments, result in BURST:
        template.add(layouts[f"syscalls:sys_enter_{call}"], arguments)
        if call == "fsync":
            for event, values in REQUEST:
                template.add(layouts[event], values)
        template.add(layouts[f"syscalls:sys_exit_{call}"], {"ret": result})
    return template


def _chunk(template: _Template, cpu: int, numbers: np.ndarray, threads: int) -> np.ndarray:
    """Consecutive bursts of one CPU, on which each process has some threads; shape (bursts, bytes of a burst)."""
    rows = np.tile(np.frombuffer(template.data, np.uint8), (len(numbers), 1))

    def column(offset: int, dtype: str) -> np.ndarray:
        return np.ndarray((len(numbers),), dtype, rows.data, offset, (rows.shape[1],))

    begin = START_NS + numbers * len(template.times) * STEP_NS + cpu * STEP_NS // CPUS
    for index, offset in enumerate(template.times):
        column(offset, "<u8")[:] = begin + index * STEP_NS
    tids = np.array(PIDS)[numbers % len(PIDS)] + numbers // len(PIDS) % threads * CPUS + cpu
    for offset in template.tids:
        column(offset, "<i4")[:] = tids
    for offset in template.file_fds:
        column(offset, "<u8")[:] = FILE_FD + cpu
    for index, offset in enumerate(template.positions):
        column(offset, "<u8")[:] = (numbers * 7919 + index * 104729) % 262144 * 4096
    for offset in template.sectors:
        column(offset, "<u8")[:] = (numbers * CPUS + cpu) % (1 << 28) * SECTORS
    return rows


def _facts(threads: int) -> bytes:
    """All threads of each process, and the two files that each process has open from the start."""
    seen = {"begin_ns": START_NS - 200_000, "end_ns": START_NS - 100_000}
    facts = [
        pack_task(**seen, pid=pid, tid=pid + n, ppid=1, comm=b"busy", flags=TASK_SELECT)
        for pid in PIDS
        for n in range(threads)
    ]
    for pid in PIDS:
        for fd, name, flags in ((SHARED_FD, b"shared", os.O_RDWR), (LOG_FD, b"log", os.O_WRONLY | os.O_APPEND)):
            where = {"device": 0xFE00, "inode": fd, "mode": stat.S_IFREG | 0o644, "mount": 30}
            facts.append(pack_fd(**seen, pid=pid, fd=fd, path=b"/data/" + name, open_flags=flags, position=0, **where))
    return b"".join(facts)


def _meta(formats: dict[str, str], samples: dict[str, int], bursts: int, stop_ns: int) -> SpoolMeta:
    """The recorder's description: counts agree with the samples, and nothing is lost."""
    epoch_ns = 1_700_000_000 * 10**9
    counts = [(event, (samples[event] * bursts,) * CPUS, (0,) * CPUS) for event in formats]
    return SpoolMeta(
        lo2io_version=__version__,
        complete=True,
        mode="process",
        command=("busy",),
        roots=PIDS,
        recorder_pid=1,
        hostname="synthetic",
        kernel=os.uname().release,
        machine=os.uname().machine,
        cpus=tuple(Cpu(cpu, cpu, 0) for cpu in range(CPUS)),
        events=tuple(formats),
        formats=tuple(formats.values()),
        header_page="",
        clock="monotonic",
        syncs=tuple(ClockSync(t, t, epoch_ns + t, 100) for t in (START_NS, stop_ns)),
        start_ns=START_NS - 50_000,
        stop_ns=stop_ns,
        ring_bytes=4 << 20,
        ring_bytes_wanted=4 << 20,
        opener="native",
        scope="system",
        counts=tuple(starmap(EventCounts, counts)),
        mounts=(Mount(30, 0xFE00, "/data", "ext4", "/dev/vda"),),
        devices=(BlockDevice(DEVICE, "vda", "none", False, 1 << 40),),
        exit_code=0,
    )


def main() -> None:
    """Make one and print its number of samples."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("directory", type=Path)
    parser.add_argument("samples", type=int)
    parser.add_argument("--threads", type=int, default=THREADS)
    options = parser.parse_args()
    print(make(options.directory, options.samples, options.threads))


if __name__ == "__main__":
    main()
