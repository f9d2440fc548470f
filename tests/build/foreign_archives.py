"""Archives as other tools write them: Score-P with regions for each call, lo2s only with operations.

>>> archive = Archive("Score-P 9.0")
>>> archive.call("read", 10, 20, *transfer(11, 19, archive.handle(0, "/data/in"), 1, 4096))
>>> [(event, time - START) for event, time, *_ in archive.trace.events[THREAD]]
[('Enter', 10), ('IoOperationBegin', 11), ('IoOperationComplete', 19), ('Leave', 20)]
"""

from __future__ import annotations

from typing import Any

import _otf2

from build.otf2_builder import NONE32, Trace

START = 7_000
"""Global offset of the clock, in ticks."""
LENGTH = 1_000
THREAD, OTHER, DEVICE = range(3)
"""Locations: two threads of a process, and the one on which a tool writes requests of a disk."""
IO, METADATA, FUNCTION = (
    _otf2.REGION_ROLE_FILE_IO,
    _otf2.REGION_ROLE_FILE_IO_METADATA,
    _otf2.REGION_ROLE_FUNCTION,
)
PARADIGMS = {"POSIX": "POSIX I/O", "ISOC": "ISO C I/O", "MPI-IO": "MPI I/O", "block_io": "block layer I/O"}
POSIX, ISOC, MPI, BLOCK = range(4)


class Archive:
    """Definitions by name, events by location; ``resolution`` in ticks a second."""

    def __init__(self, creator: str, *, resolution: int = 100_000_000) -> None:
        self.trace = Trace(clock=(resolution, START, LENGTH, 1_700_000_000_000_000_000), creator=creator)
        self._strings: dict[str, int] = {}
        self._regions: dict[str, int] = {}
        self._files: dict[str, int] = {}
        self._define("SystemTreeNode", 0, self._text("node1"), self._text("machine"), NONE32)
        kind = _otf2.LOCATION_GROUP_TYPE_PROCESS
        for group, name in enumerate(("Rank 0", "disks")):
            self._define("LocationGroup", group, self._text(name), kind, 0, NONE32)
        for location, (name, group) in enumerate((("Master thread", 0), ("Thread 1", 0), ("sda", 1))):
            self._define("Location", location, self._text(name), _otf2.LOCATION_TYPE_CPU_THREAD, group)
        for number, (ident, name) in enumerate(PARADIGMS.items()):
            paradigm = _otf2.IO_PARADIGM_CLASS_SERIAL, _otf2.IO_PARADIGM_FLAG_OS
            self._define("IoParadigm", number, self._text(ident), self._text(name), *paradigm, [], [], [])

    def _define(self, record: str, ref: int, *values: Any) -> None:
        self.trace.definitions[record, ref] = values

    def _text(self, text: str) -> int:
        if text not in self._strings:
            self._strings[text] = len(self._strings)
            self._define("String", self._strings[text], text)
        return self._strings[text]

    def add_node(self, ref: int, name: str, kind: str, *, below: int) -> None:
        """A further node of the system tree, of class ``kind``."""
        self._define("SystemTreeNode", ref, self._text(name), self._text(kind), below)

    def handle(self, ref: int, path: str | None, paradigm: int = POSIX) -> int:
        """A handle on a file, which is defined with it; None: on no file."""
        flags = _otf2.IO_HANDLE_FLAG_PRE_CREATED if paradigm == BLOCK else _otf2.IO_HANDLE_FLAG_NONE
        if path is not None and path not in self._files:
            self._files[path] = len(self._files)
            self._define("IoRegularFile", self._files[path], self._text(path), 0)
        file = NONE32 if path is None else self._files[path]
        self._define("IoHandle", ref, self._text(path or ""), file, paradigm, flags, NONE32, NONE32)
        return ref

    def region(self, name: str, role: Any = IO) -> int:
        """A region, defined at its first use."""
        if name not in self._regions:
            ref = self._regions[name] = len(self._regions)
            names = self._text(name), self._text(name), self._text("")
            more = role, _otf2.PARADIGM_USER, _otf2.REGION_FLAG_NONE, NONE32, 0, 0
            self._define("Region", ref, *names, *more)
        return self._regions[name]

    def add_group(self, name: str, *regions: str) -> None:
        """A group of regions that are defined."""
        ref = sum(record == "Group" for record, _ in self.trace.definitions)
        kind = _otf2.GROUP_TYPE_REGIONS, _otf2.PARADIGM_USER, _otf2.GROUP_FLAG_NONE
        self._define("Group", ref, self._text(name), *kind, [self._regions[region] for region in regions])

    def attribute(self, ref: int, name: str, kind: Any = _otf2.TYPE_UINT64) -> int:
        """An attribute of events."""
        self._define("Attribute", ref, self._text(name), self._text(""), kind)
        return ref

    def add(self, event: str, time: int, *arguments: Any, on: int = THREAD) -> None:
        """One event, ``time`` ticks after the start."""
        self.trace.events.setdefault(on, []).append((event, START + time, *arguments))

    def call(self, name: str, begin: int, end: int, *inner: tuple[Any, ...], role: Any = IO, on: int = THREAD) -> None:
        """A region with the events of its thread inside."""
        region = self.region(name, role)
        self.add("Enter", begin, region, on=on)
        for event in inner:
            self.add(*event, on=on)
        self.add("Leave", end, region, on=on)


def transfer(
    begin: int, end: int, handle: int, ident: int, size: int, *, mode: Any = _otf2.IO_OPERATION_MODE_READ
) -> tuple[tuple[Any, ...], ...]:
    """The two events of a blocking operation."""
    return (
        ("IoOperationBegin", begin, handle, mode, _otf2.IO_OPERATION_FLAG_NONE, size, ident),
        ("IoOperationComplete", end, handle, size, ident),
    )


def created(time: int, handle: int, *, status: Any = _otf2.IO_STATUS_FLAG_NONE) -> tuple[Any, ...]:
    """A handle that is opened for reading and writing, and creates its file."""
    access, creation = _otf2.IO_ACCESS_MODE_READ_WRITE, _otf2.IO_CREATION_FLAG_CREATE
    return "IoCreateHandle", time, handle, access, creation, status


def score_p() -> Archive:
    """``fread`` over ``read``, and ``MPI_File_write_at`` over ``pwrite``, as Score-P 9 writes them."""
    archive = Archive("Score-P 9.0")
    file, stream, mpi = (archive.handle(ref, "/data/in", paradigm) for ref, paradigm in enumerate((POSIX, ISOC, MPI)))
    archive.add("Enter", 0, archive.region("main", FUNCTION))
    archive.call("open", 10, 14, created(13, file), role=METADATA)
    archive.call("fopen", 20, 24, created(23, stream), role=METADATA)
    fread, read = archive.region("fread"), archive.region("read")
    for number in range(3):
        time = 100 + 100 * number
        outer, inner = (
            transfer(time + 1, time + 39, stream, 2 * number, 4096),
            transfer(time + 11, time + 19, file, 2 * number + 1, 4096),
        )
        archive.add("Enter", time, fread)
        archive.add(*outer[0])
        archive.add("Enter", time + 10, read)
        for event in inner:
            archive.add(*event)
        archive.add("Leave", time + 20, read)
        archive.add(*outer[1])
        archive.add("Leave", time + 40, fread)
    write = transfer(511, 519, mpi, 100, 1000, mode=_otf2.IO_OPERATION_MODE_WRITE)
    archive.call("MPI_File_write_at", 510, 520, *write)
    archive.call("stat", 530, 535, role=METADATA)
    archive.call("close", 600, 605, ("IoDestroyHandle", 604, file), role=METADATA)
    archive.add("Leave", 900, archive.region("main"))
    return archive


def lo2s() -> Archive:
    """Operations without regions, and a disk's requests on a location of its own."""
    archive = Archive("lo2s v1.7.0", resolution=1_000_000_000)
    file, disk = archive.handle(0, "/data/out"), archive.handle(1, "/dev/sda", BLOCK)
    archive.add(*created(10, file))
    for number in range(4):
        for event in transfer(
            20 + 10 * number, 25 + 10 * number, file, number, 512, mode=_otf2.IO_OPERATION_MODE_WRITE
        ):
            archive.add(*event)
    archive.add("IoDestroyHandle", 70, file)
    flags = _otf2.IO_OPERATION_FLAG_NON_BLOCKING
    for number, ends in enumerate((True, False)):
        time = 200 + 100 * number
        archive.add("IoOperationBegin", time, disk, _otf2.IO_OPERATION_MODE_WRITE, flags, 2048, number, on=DEVICE)
        archive.add("IoOperationIssued", time + 10, disk, number, on=DEVICE)
        if ends:
            archive.add("IoOperationComplete", time + 60, disk, 2048, number, on=DEVICE)
    return archive
