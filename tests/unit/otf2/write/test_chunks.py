"""Event files written in full chunks by lo2io, and chunks whose full pages wait in a file."""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import struct
from typing import TYPE_CHECKING, Final

import pytest
from lo2io.native._lib import lib

from lo2io.errors import TraceError
from lo2io.otf2.library import Library, address
from lo2io.otf2.values import value
from lo2io.otf2.write.archive import CHUNK_BYTES, Archive

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PAGE = resource.getpagesize()
STAYING = 128
"""Chunks that no part of is moved."""


def write_events(writers: list[int], times: range) -> None:
    """The same events on each location."""
    prototype = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint64, ctypes.c_uint32)
    enter = prototype(address("EvtWriter_Enter"))
    for writer in writers:
        for time in times:
            assert not enter(writer, None, time << 20, time)


@pytest.fixture
def limited() -> Iterator[None]:
    """No file may have more than 100 kB, which stands for a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, before)
    signal.signal(signal.SIGXFSZ, handler)


def by_libotf2(directory: Path, times: range) -> bytes:
    """The event file as libotf2 writes it with memory of its own."""
    library = Library()
    prototype = ctypes.CFUNCTYPE(
        *[ctypes.c_uint8, ctypes.c_void_p, ctypes.c_uint8, ctypes.c_uint64], ctypes.c_void_p, ctypes.c_bool
    )
    flush = prototype(lambda *_: value("FLUSH"))
    callbacks = (ctypes.c_void_p * 2)(ctypes.cast(flush, ctypes.c_void_p), None)
    sizes = value("FILEMODE_WRITE"), CHUNK_BYTES, CHUNK_BYTES, value("SUBSTRATE_POSIX"), value("COMPRESSION_NONE")
    archive = library.Archive_Open(os.fsencode(directory), b"traces", *sizes)
    library.Archive_SetFlushCallbacks(archive, ctypes.addressof(callbacks), None)
    library.Archive_SetSerialCollectiveCallbacks(archive)
    library.Archive_OpenEvtFiles(archive)
    writer = library.Archive_GetEvtWriter(archive, 0)
    write_events([writer], times)
    library.Archive_CloseEvtWriter(archive, writer)
    library.Archive_Close(archive)
    return (directory / "traces/0.evt").read_bytes()


class Watch:
    """The kernel tells which names of a folder were removed, and to which names files were renamed (inotify)."""

    KINDS: Final = {0x200: "removed", 0x80: "renamed"}  # IN_DELETE, IN_MOVED_TO of include/uapi/linux/inotify.h
    HEAD: Final = struct.Struct("iIII")

    def __init__(self, folder: Path) -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        self._fd = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        assert libc.inotify_add_watch(self._fd, os.fsencode(folder), sum(self.KINDS)) >= 0

    def told(self) -> list[tuple[str, str]]:
        """The names, in the order in which that happened. The watch ends."""
        content, found = os.read(self._fd, 1 << 16), []
        os.close(self._fd)
        while content:
            _, kind, _, length = self.HEAD.unpack_from(content)
            name, content = content[self.HEAD.size :][:length], content[self.HEAD.size + length :]
            found.append((self.KINDS[kind], os.fsdecode(name.rstrip(b"\0"))))
        return found


@pytest.mark.parametrize("nr_events", [10, 30_000, 60_000])
def test_files_are_those_of_libotf2(tmp_path: Path, nr_events: int) -> None:
    """Byte for byte, with one chunk and with several, and no other file stays."""
    (tmp_path / "theirs").mkdir()
    (tmp_path / "own").mkdir()
    theirs = by_libotf2(tmp_path / "theirs", range(nr_events))
    assert (len(theirs) > CHUNK_BYTES) == (nr_events > 10)
    archive = Archive(tmp_path / "own")
    writer = archive.event_writer(0)
    write_events([writer], range(nr_events))
    archive.call("CloseEvtWriter", writer)
    archive.require_events(0, nr_events)
    assert [path.name for path in (tmp_path / "own/traces").iterdir()] == ["0.evt"]
    assert (tmp_path / "own/traces/0.evt").read_bytes() == theirs
    archive.abort()


def test_no_file_is_renamed_onto_another(tmp_path: Path) -> None:
    """ext4 would write the file to the disk at once, and closing would wait for that (ext4(5), auto_da_alloc)."""
    archive = Archive(tmp_path)
    writer = archive.event_writer(0)
    write_events([writer], range(30_000))
    watch = Watch(tmp_path / "traces")
    archive.call("CloseEvtWriter", writer)
    assert watch.told() == [("removed", "0.evt"), ("renamed", "0.evt")]
    archive.abort()


def test_chunks_of_many_locations_wait_in_a_file(tmp_path: Path) -> None:
    """They move page by page while they fill up; their files are the same, and the room is given back."""
    steps = [range(first, first + 3_000) for first in range(0, 30_000, 3_000)]
    archive = Archive(tmp_path)
    writers = [archive.event_writer(location) for location in range(STAYING + 2)]
    moved = []
    for step in steps:
        write_events([writers[0], *writers[STAYING:]], step)
        archive.relieve()
        assert archive._moved
        moved.append(os.fstat(archive._moved.fileno()).st_blocks * 512)
    assert lib.lo2_otf2_nr_split(archive._chunks) == 2
    assert moved[0] >= 2 * 8 * PAGE
    assert moved[3] > 3 * moved[0], "nothing else was moved"
    assert min(moved[4:]) < moved[3], "the room of chunks that were written is free"
    for writer in writers:
        archive.call("CloseEvtWriter", writer)
    files = [(tmp_path / f"traces/{location}.evt").read_bytes() for location in (0, STAYING, STAYING + 1)]
    assert len(files[0]) > CHUNK_BYTES
    assert files[1] == files[0]
    assert files[2] == files[0]
    archive.require_events(STAYING, 30_000)
    archive.abort()


def test_chunks_of_few_locations_stay_in_memory(tmp_path: Path) -> None:
    """No file is made for them."""
    archive = Archive(tmp_path)
    writers = [archive.event_writer(location) for location in range(STAYING)]
    write_events(writers[-1:], range(3_000))
    archive.relieve()
    assert archive._moved is None
    archive.abort()


@pytest.mark.usefixtures("limited")
def test_no_room_for_what_waits_is_an_error(tmp_path: Path) -> None:
    """It has the system's reason, and no file stays."""
    archive = Archive(tmp_path)
    writers = [archive.event_writer(location) for location in range(STAYING + 1)]
    write_events(writers[-1:], range(15_000))
    with pytest.raises(TraceError) as caught:
        archive.relieve()
    assert caught.value.answer == "events that wait to be written: File too large"
    archive.abort()
    assert not list(tmp_path.iterdir())
