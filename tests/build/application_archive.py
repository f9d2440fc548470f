"""An archive in Score-P's conventions, written with the otf2 package: ranks of MPI, and every kind of definition.

>>> application = write_application(folder / "scorep", "localhost", pids=[100, 200])
>>> sorted(entry.name for entry in application.parent.iterdir())
['traces', 'traces.def', 'traces.otf2']
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import otf2
from otf2.enums import (
    CartPeriodicity,
    GroupType,
    IoAccessMode,
    IoCreationFlag,
    IoOperationFlag,
    IoOperationMode,
    IoParadigmClass,
    IoParadigmFlag,
    IoStatusFlag,
    Paradigm,
    ParameterType,
    RegionRole,
    SystemTreeDomain,
    Type,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

MS = 1_000_000
CHUNK_BYTES = 1 << 20
"""Of events, as Score-P has it."""


def write_application(
    path: Path,
    host: str,
    pids: Sequence[int | None] = (None,),
    *,
    start: int = 5 * MS,
    resolution: int = 10**9,
    style: str = "regions",
) -> Path:
    """Write an archive with a process for each of ``pids``, and return its anchor.

    Args:
        path: A new directory.
        host: The name of the machine.
        pids: A property tells the pid, unless it is None: then only the rank is known.
        start: The first tick.
        resolution: Ticks a second.
        style: How regions are entered: "regions" or "contexts".
    """
    with otf2.writer.open(str(path), timer_resolution=resolution, chunk_size_events=CHUNK_BYTES) as writer:
        rest = _Definitions(writer.definitions, host, pids, style)
        for rank, location in enumerate(rest.locations):
            events = writer.event_writer_from_location(location)
            _write_events(events, rest, rest.handles[rank], start + rank, style)
    return path / "traces.otf2"


class _Definitions:
    def __init__(self, new: Any, host: str, pids: Sequence[int | None], style: str) -> None:
        machine = new.system_tree_node("machine Linux", class_name="machine")
        self.node = new.system_tree_node(host, class_name="node", parent=machine)
        new.system_tree_node_domain(self.node, SystemTreeDomain.SHARED_MEMORY)
        new.system_tree_node_property(self.node, "Cores", Type.UINT32, 4)
        self.locations = []
        for rank, pid in enumerate(pids):
            group = new.location_group(f"MPI Rank {rank}", system_tree_parent=self.node)
            if pid is not None:
                new.location_group_property(group, "Process ID", Type.UINT64, pid)
            self.locations.append(new.location("Master thread", group=group))
            new.location_property(self.locations[-1], "Cpuset", Type.STRING, "0-3")
        self.region = new.region(
            "checkpoint", region_role=RegionRole.FUNCTION, paradigm=Paradigm.COMPILER, source_file="ship.c"
        )
        self.write = new.region("write", region_role=RegionRole.FILE_IO, paradigm=Paradigm.USER)
        new.group("MPI", group_type=GroupType.REGIONS, members=(self.region,))
        new.group("", group_type=GroupType.COMM_LOCATIONS, paradigm=Paradigm.MPI, members=tuple(self.locations))
        members = tuple(range(len(pids)))
        world = new.group("", group_type=GroupType.COMM_GROUP, paradigm=Paradigm.MPI, members=members)
        self.comm = new.comm("MPI_COMM_WORLD", group=world)
        self.window = new.rma_win("window", comm=self.comm)
        self.parameter = new.parameter("step", parameter_type=ParameterType.UINT64)
        path = new.callpath(parent=None, region=self.region)
        new.callpath(parent=path, region=self.write)
        new.callsite(source_file="ship.c", line_number=7, entered_region=self.region, left_region=self.region)
        new.cart_topology("grid", self.comm, (new.cart_dimension("x", 2, CartPeriodicity.TRUE),))
        self.attribute = new.attribute("Place", "where", Type.LOCATION)
        self.text = new.attribute("Text", "what", Type.STRING)
        member = new.metric_member("PAPI_TOT_INS", value_type=Type.UINT64)
        self.metric = new.metric_class((member,))
        posix = new.io_paradigm(
            identification="POSIX",
            name="POSIX I/O",
            io_paradigm_class=IoParadigmClass.SERIAL,
            io_paradigm_flags=IoParadigmFlag.OS,
        )
        self.file = new.io_regular_file("/data/out", scope=self.node)
        new.io_file_property(self.file, "File system", Type.STRING, "ext4")
        self.handles = [
            new.io_handle(f"of rank {rank}", file=self.file, io_paradigm=posix) for rank in range(len(pids))
        ]
        if style == "contexts":
            place = new.source_code_location("ship.c", 12)
            self.context = new.calling_context(self.region, place, None)


def _write_events(events: Any, known: _Definitions, handle: Any, start: int, style: str) -> None:
    if style == "contexts":
        events.calling_context_enter(start, known.context, 1)
        events.calling_context_leave(start + 10, known.context)
        return
    events.enter(start, known.region, attributes={known.attribute: known.locations[0], known.text: "lo2io"})
    events.parameter_unsigned_int(start + 1, known.parameter, 3)
    events.metric(start + 2, known.metric, (17,))
    events.mpi_send(start + 3, receiver=0, communicator=known.comm, msg_tag=1, msg_length=8)
    events.rma_win_create(start + 4, known.window)
    events.rma_win_destroy(start + 5, known.window)
    events.enter(start + 1000, known.write)
    events.io_create_handle(start + 1001, handle, IoAccessMode.WRITE_ONLY, IoCreationFlag.NONE, IoStatusFlag.NONE)
    events.io_operation_begin(start + 1002, handle, IoOperationMode.WRITE, IoOperationFlag.NONE, 8192, start)
    events.io_operation_complete(start + 60_000, handle, 8192, start)
    events.io_destroy_handle(start + 60_001, handle)
    events.leave(start + 60_002, known.write)
    events.leave(start + 70_000, known.region)


@dataclass(frozen=True)
class OwnThread:
    """A thread of an application, which records its calls.

    Attributes:
        process: The name of its location group.
        name: Of its location.
        calls: Region, bytes asked for and moved, start and end of the operation in ticks. Without bytes, the region has
            no operation. The region begins a tick sooner and ends a tick later.
        ids: What its first event tells: the attributes ``ProcessId`` and ``ThreadId``.
    """

    process: str
    name: str
    calls: Sequence[tuple[str, int | None, int | None, int, int]] = ()
    ids: Mapping[str, int] = field(default_factory=dict)


def write_calls(
    path: Path, host: str, threads: Sequence[OwnThread], *, resolution: int = 10**9, contexts: bool = False
) -> Path:
    """Write an archive of threads that record calls, and return its anchor.

    Args:
        path: A new directory.
        host: The name of the machine.
        threads: The threads.
        resolution: Ticks a second.
        contexts: Enter calling contexts in place of regions.
    """
    with otf2.writer.open(str(path), timer_resolution=resolution) as writer:
        new = writer.definitions
        machine = new.system_tree_node("machine Linux", class_name="machine")
        node = new.system_tree_node(host, class_name="node", parent=machine)
        posix = new.io_paradigm(
            identification="POSIX",
            name="POSIX I/O",
            io_paradigm_class=IoParadigmClass.SERIAL,
            io_paradigm_flags=IoParadigmFlag.OS,
        )
        handle = new.io_handle("file", file=new.io_regular_file("/data/out", scope=node), io_paradigm=posix)
        names = dict.fromkeys(name for thread in threads for name, *_ in thread.calls)
        regions = {name: new.region(name, region_role=RegionRole.FILE_IO, paradigm=Paradigm.USER) for name in names}
        place = new.source_code_location("ship.c", 12)
        entered = (
            {name: new.calling_context(region, place, None) for name, region in regions.items()}
            if contexts
            else regions
        )
        attributes = {name: new.attribute(name, name, Type.UINT64) for thread in threads for name in thread.ids}
        groups = {
            name: new.location_group(name, system_tree_parent=node)
            for name in dict.fromkeys(thread.process for thread in threads)
        }
        for thread in threads:
            events = writer.event_writer_from_location(new.location(thread.name, group=groups[thread.process]))
            if thread.ids:
                told = {attributes[name]: number for name, number in thread.ids.items()}
                events.program_begin(0, "app", (), attributes=told)
            for name, asked, moved, begin, end in thread.calls:
                (
                    events.calling_context_enter(begin - 1, entered[name], 1)
                    if contexts
                    else events.enter(begin - 1, entered[name])
                )
                if asked is not None:
                    events.io_operation_begin(begin, handle, IoOperationMode.WRITE, IoOperationFlag.NONE, asked, begin)
                    events.io_operation_complete(end, handle, moved, begin)
                (events.calling_context_leave if contexts else events.leave)(end + 1, entered[name])
    return path / "traces.otf2"
