"""The clocks of a recording on many nodes: ``lo2io clocks``, and the corrections that merging needs."""

from __future__ import annotations

import contextlib
import os
import time
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lo2io.capture.launchers import find_place
from lo2io.cluster.alignment import KEPT, Alignment, NodeClock, align
from lo2io.cluster.comparison import Comparison, clock_id, load_comparisons, write_comparison
from lo2io.cluster.layout import CORRECTION_FILE, host_folders
from lo2io.errors import TraceError
from lo2io.folder import Folder, private_umask
from lo2io.frozen import dataclass
from lo2io.trace.correction import load_correction
from lo2io.trace.names import DIRECTORY, PART
from lo2io.trace.reader import TABLES, Trace, as_numpy, open_trace

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

_SCHEMA = pa.schema([("time_ns", pa.int64()), ("offset_ns", pa.int64()), ("error_ns", pa.int64())])


@dataclass(frozen=True, slots=True)
class Compared:
    """What ``lo2io clocks`` found, for rank 0."""

    path: Path
    comparison: Comparison

    @property
    def error_ns(self) -> int:
        """Half of the slowest of the tightest round trips."""
        return max((ping.rtt_ns for ping in self.comparison.pings), default=0) // 2


def compare_clocks(directory: Path) -> Compared | None:
    """Compare the clocks of all nodes over MPI, and write the result into ``T/clocks``. All ranks call this.

    Returns:
        What was found, for rank 0.

    Raises:
        UsageError: There is no MPI, or the directory cannot be opened.
        TraceError: The comparison cannot be written.
    """
    from lo2io.cluster.mpi import finish, world  # noqa: PLC0415 - merging needs no MPI
    from lo2io.cluster.pinging import compare  # noqa: PLC0415
    from lo2io.trace.directory import open_directory  # noqa: PLC0415

    place = find_place()
    comm = world("compare the clocks of the nodes", place.job.nr_ranks if place else None)
    host = place.job.host if place else os.uname().nodename
    found = compare(comm, host, clock_id())
    compared = None
    if found is not None:
        with private_umask(), open_directory(directory) as folder:
            try:
                compared = Compared(write_comparison(folder, time.time_ns(), found), found)
            except OSError as error:
                raise TraceError(f"write {folder.path}", str(error.strerror), "name another with -o") from error
    finish()
    return compared


def align_directory(directory: Path) -> list[Alignment]:
    """Align the clocks of all nodes in a directory, and write each node's break points into its folder.

    The nodes are in the order of the job's nodes, others after them by name. A node without a readable trace is left
    out.

    Raises:
        TraceError: A comparison is damaged, or a file cannot be written.
    """
    traces = {}
    for host, path in host_folders(directory).items():
        with contextlib.suppress(TraceError):
            traces[host] = open_trace(path)
    alignments = align_traces(directory, in_order(traces))
    for alignment in alignments:
        _write(traces[alignment.host].path, alignment)
    return alignments


def in_order(traces: Mapping[str, Trace]) -> dict[str, Trace]:
    """The traces in the order of the job's nodes, others after them by name."""
    return dict(sorted(traces.items(), key=lambda each: (place_in_job(each[1].metadata), each[0])))


def place_in_job(metadata: Mapping[str, Any]) -> int:
    """The number of a node in its job; without one, after all others."""
    node = (metadata.get("job") or {}).get("node")
    return node if isinstance(node, int) else 1 << 62


def align_traces(directory: Path, traces: Mapping[str, Trace]) -> list[Alignment]:
    """Align the clocks of nodes, by the comparisons in the directory.

    Args:
        directory: The directory with folders ``host=NAME``.
        traces: Host → its trace, in order: the first one's clock is that of all.

    Raises:
        TraceError: A comparison is damaged.
    """
    return align([load_clock(host, trace) for host, trace in traces.items()], load_comparisons(directory))


def load_alignment(host: str, folder: Path) -> Alignment:
    """What :func:`align_directory` wrote into the folder of a node, or somebody else who knows better.

    Raises:
        TraceError: The file is damaged.
    """
    path = folder / DIRECTORY / CORRECTION_FILE
    correction = load_correction(path)
    points = list(zip(correction.time_ns.tolist(), correction.offset_ns.tolist(), strict=True))
    with pa.OSFile(str(path)) as file, pa.ipc.open_file(file) as reader:
        table = reader.read_all()
    errors = table["error_ns"].to_pylist() if "error_ns" in table.column_names else []
    facts = table.schema.metadata or {}
    return Alignment(host, facts.get(b"method", KEPT.encode()).decode(), points, errors[0] if errors else None)


def load_clock(host: str, trace: Trace) -> NodeClock:
    """The clocks of a node, as its trace tells them."""
    meta = trace.metadata
    table = trace.table("clock_readings")
    columns = [column.name for column in TABLES["clock_readings"]]
    readings = {name: as_numpy(table[name].combine_chunks()) for name in columns}
    return NodeClock(
        host=host,
        clock=meta.get("boot_id") or "",
        start_ns=meta["start_ns"],
        stop_ns=meta["stop_ns"],
        readings=readings,
        syncs=_syncs(meta),
        is_monotonic=meta["clock"] == "monotonic",
    )


def _syncs(meta: Mapping[str, Any]) -> tuple[dict[str, int], ...]:
    names = ("time_ns", "monotonic_ns", "realtime_ns", "error_ns")
    return tuple({name: each[name] for name in names} for each in meta.get("syncs") or ())


def _write(path: Path, alignment: Alignment) -> None:
    """Write ``clock.arrow``, whole or not at all."""
    times, offsets = zip(*alignment.points, strict=True)
    facts = {"method": alignment.method, "notices": "; ".join(alignment.notices)}
    table = pa.table([times, offsets, [alignment.error_ns] * len(times)], _SCHEMA.with_metadata(facts))
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
    try:
        with private_umask(), Folder.open(path / DIRECTORY) as folder:
            folder.remove(f"{CORRECTION_FILE}{PART}")
            folder.write(f"{CORRECTION_FILE}{PART}", sink.getvalue().to_pybytes())
            folder.rename(f"{CORRECTION_FILE}{PART}", folder, CORRECTION_FILE)
    except OSError as error:
        raise TraceError(f"write {path / DIRECTORY / CORRECTION_FILE}", error.strerror or str(error)) from error
