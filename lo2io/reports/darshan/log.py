"""Reads a log of Darshan: sums by interface and by file.

Darshan counts what each rank of a job does with each file, and writes the counts at the job's end. pydarshan reads them
one after the other, so memory grows with the number of files alone. The counters' meaning: darshan-util.rst and
the headers of log formats in Darshan 3.5 (https://www.mcs.anl.gov/research/projects/darshan).
"""

from __future__ import annotations

import importlib
import json
import os
from dataclasses import asdict, dataclass, fields
from multiprocessing import get_context
from typing import TYPE_CHECKING, Any, Final

from lo2io.errors import TraceError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from multiprocessing.connection import Connection
    from pathlib import Path

SHARED: Final = -1
"""The rank of a record that has the sums of all ranks."""
MAX_FILES: Final = 100
"""Files listed by the bytes moved."""
_MOST_WORDS: Final = 1000
_S: Final = 1e9

_COUNTERS: Final[Mapping[str, Mapping[str, tuple[str, ...]]]] = {
    "POSIX": {
        "opens": ("POSIX_OPENS",),
        "reads": ("POSIX_READS",),
        "writes": ("POSIX_WRITES",),
        "seeks": ("POSIX_SEEKS",),
        "stats": ("POSIX_STATS",),
        "syncs": ("POSIX_FSYNCS", "POSIX_FDSYNCS"),
        "bytes_read": ("POSIX_BYTES_READ",),
        "bytes_written": ("POSIX_BYTES_WRITTEN",),
        "read_ns": ("POSIX_F_READ_TIME",),
        "write_ns": ("POSIX_F_WRITE_TIME",),
        "other_ns": ("POSIX_F_META_TIME",),
    },
    "MPI-IO": {
        "opens": ("MPIIO_INDEP_OPENS", "MPIIO_COLL_OPENS"),
        "reads": ("MPIIO_INDEP_READS", "MPIIO_COLL_READS", "MPIIO_SPLIT_READS", "MPIIO_NB_READS"),
        "writes": ("MPIIO_INDEP_WRITES", "MPIIO_COLL_WRITES", "MPIIO_SPLIT_WRITES", "MPIIO_NB_WRITES"),
        "syncs": ("MPIIO_SYNCS",),
        "bytes_read": ("MPIIO_BYTES_READ",),
        "bytes_written": ("MPIIO_BYTES_WRITTEN",),
        "read_ns": ("MPIIO_F_READ_TIME",),
        "write_ns": ("MPIIO_F_WRITE_TIME",),
        "other_ns": ("MPIIO_F_META_TIME",),
    },
    "STDIO": {
        "opens": ("STDIO_OPENS",),
        "reads": ("STDIO_READS",),
        "writes": ("STDIO_WRITES",),
        "seeks": ("STDIO_SEEKS",),
        "bytes_read": ("STDIO_BYTES_READ",),
        "bytes_written": ("STDIO_BYTES_WRITTEN",),
        "read_ns": ("STDIO_F_READ_TIME",),
        "write_ns": ("STDIO_F_WRITE_TIME",),
        "other_ns": ("STDIO_F_META_TIME",),
    },
}
"""Interface → number of :class:`Counts` → the counters that add up to it."""


@dataclass(slots=True)
class Counts:
    """Calls, bytes, and the calls' time, added up over ranks. None: not known, or the interface has no such call."""

    opens: int | None = None
    reads: int | None = None
    writes: int | None = None
    seeks: int | None = None
    stats: int | None = None
    syncs: int | None = None
    bytes_read: int | None = None
    bytes_written: int | None = None
    read_ns: int | None = None
    write_ns: int | None = None
    other_ns: int | None = None
    """Opens, seeks, stats, syncs and closes."""

    def add(self, other: Counts) -> None:
        """Add counts. A sum without one of its parts is not known."""
        for field in fields(self):
            ours, theirs = getattr(self, field.name), getattr(other, field.name)
            setattr(self, field.name, None if ours is None or theirs is None else ours + theirs)

    @property
    def moved(self) -> int:
        """Bytes read and written, as far as they are known."""
        return (self.bytes_read or 0) + (self.bytes_written or 0)


@dataclass(frozen=True, slots=True)
class Interface:
    """An interface through which the job did I/O. Calls of one may be made by another, as POSIX calls by MPI-IO."""

    name: str
    files: int
    counts: Counts
    is_partial: bool
    """Darshan ran out of memory: files are missing."""


@dataclass(frozen=True, slots=True)
class JobFile:
    """A file, through one interface."""

    interface: str
    path: str | None
    ranks: int | None
    """How many ranks have a record of it; None: all of them together have one."""
    counts: Counts


@dataclass(frozen=True, slots=True)
class DarshanLog:
    """A log: its job, and sums."""

    log: str
    command: str
    job: int
    ranks: int
    run_ns: int
    start_s: int
    """Seconds since 1970."""
    version: str
    """Of Darshan."""
    interfaces: tuple[Interface, ...]
    files: tuple[JobFile, ...]
    """Most bytes first."""
    nr_files: int
    passed_over: tuple[str, ...]
    """Other modules of the log, which are not summed up."""

    def to_json(self) -> str:
        """All of it."""
        return json.dumps(asdict(self), indent=1)


def read_log(path: Path) -> DarshanLog:
    """Read a log, in a process of its own: Darshan's library aborts at damage.

    Raises:
        TraceError: pydarshan is missing, or cannot read the file.
    """
    _pydarshan(path)
    if not path.is_file():
        raise TraceError(f"open the log {path}", "there is no such regular file", "give the path of a Darshan log")
    context = get_context("fork")
    receiving, sending = context.Pipe(duplex=False)
    child = context.Process(target=_send, args=(sending, path))
    child.start()
    sending.close()
    try:
        found = receiving.recv()
    except EOFError:  # the library has ended the process
        found = ""
    child.join()
    if not isinstance(found, DarshanLog):
        reason = f"it is damaged: {found}" if found else "it is damaged"
        raise TraceError(f"read the log {path}", reason, "darshan-parser FILE says more")
    return found


def _pydarshan(path: Path) -> Any:
    try:
        return importlib.import_module("darshan.backend.cffi_backend")
    except ImportError as error:
        remedy = "install it: pip install 'lo2io[darshan]'"
        raise TraceError(f"read the log {path}", f"pydarshan is missing ({error})", remedy) from error
    except RuntimeError as error:  # a package without Darshan's own library, as for Python 3.13
        answer, _, _ = str(error).partition("!")
        remedy = "install darshan-util, or use an earlier Python"
        raise TraceError(f"read the log {path}", f"pydarshan: {answer}", remedy) from error


def _send(sending: Connection, path: Path) -> None:
    """Send the log's sums, or what is wrong, in words. The library tells some errors on standard error alone."""
    said = os.memfd_create("stderr")
    os.dup2(said, 2)
    try:
        found = _read(path)
        words = os.pread(said, _MOST_WORDS, 0).decode(errors="replace").strip()
        sending.send(words.splitlines()[0] if words else found)
    except (RuntimeError, KeyError, TypeError, ValueError) as error:
        sending.send(str(error))


def _read(path: Path) -> DarshanLog:
    reader = _pydarshan(path)
    log = reader.log_open(str(path))
    job, modules, names = reader.log_get_job(log), reader.log_get_modules(log), reader.log_get_name_records(log)
    found = [_read_interface(reader, log, name, modules[name], names) for name in _COUNTERS if name in modules]
    files = sorted((file for _, of_interface in found for file in of_interface), key=lambda file: -file.counts.moved)
    return DarshanLog(
        log=str(path),
        command=reader.log_get_exe(log).strip(),
        job=int(job["jobid"]),
        ranks=int(job["nprocs"]),
        run_ns=round(job["run_time"] * _S),
        start_s=int(job["start_time_sec"]),
        version=str(job["metadata"].get("lib_ver", "")),
        interfaces=tuple(interface for interface, _ in found),
        files=tuple(files[:MAX_FILES]),
        nr_files=len(names),
        passed_over=tuple(name for name in modules if name not in _COUNTERS),
    )


def _read_interface(
    reader: Any, log: Any, name: str, module: Mapping[str, Any], names: Mapping[int, str]
) -> tuple[Interface, list[JobFile]]:
    """Sum up the records of one interface."""
    take = _taker(reader, name)
    total = Counts(**dict.fromkeys(_COUNTERS[name], 0))
    files: dict[int, tuple[Counts, list[int]]] = {}
    while (record := reader.log_get_record(log, name, dtype="numpy")) is not None:
        counts = take(record)
        total.add(counts)
        if record["id"] in files:
            files[record["id"]][0].add(counts)
        else:
            files[record["id"]] = counts, []
        files[record["id"]][1].append(int(record["rank"]))
    rows = [
        JobFile(name, names.get(number), None if SHARED in ranks else len(ranks), counts)
        for number, (counts, ranks) in files.items()
    ]
    return Interface(name, len(files), total, bool(module.get("partial_flag"))), rows


def _taker(reader: Any, name: str) -> Callable[[Any], Counts]:
    """A function that sums up a record's counters. A negative one is not known: some versions do not fill it."""
    integers = {counter: place for place, counter in enumerate(reader.counter_names(name))}
    seconds = {counter: place for place, counter in enumerate(reader.fcounter_names(name))}

    def sum_of(record: Any, counters: tuple[str, ...]) -> int | None:
        is_time = counters[0] in seconds
        values = [
            float(record["fcounters"][seconds[counter]]) * _S if is_time else int(record["counters"][integers[counter]])
            for counter in counters
        ]
        return round(sum(values)) if min(values) >= 0 else None

    return lambda record: Counts(**{number: sum_of(record, of) for number, of in _COUNTERS[name].items()})
