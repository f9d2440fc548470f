"""The spool's description, files and facts: what is written can be read, and other files are refused."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import json
import os
import struct
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lo2io.errors import CaptureError, SpoolError, UsageError
from lo2io.folder import Folder
from lo2io.model import UNKNOWN_I64, UNKNOWN_U32, BlockDevice, ClockSync, Cpu, EventCounts, Mount, SpoolMeta
from lo2io.native import _lib
from lo2io.spool import facts
from lo2io.spool.format import MAGIC, META_NAME, RESERVE_NAME, VERSION, dump_meta, parse_meta, ring_name
from lo2io.spool.reader import SpoolReader
from lo2io.spool.writer import AppendFile, DiskFullError, SpoolWriter

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

META = SpoolMeta(
    lo2io_version="1.2",
    complete=False,
    mode="process",
    command=("dd", "of=/tmp/\udcff", "ü"),
    roots=(7,),
    recorder_pid=6,
    hostname="host",
    kernel="6.18",
    machine="x86_64",
    cpus=(Cpu(0, 0, 0), Cpu(5, 1, 0)),
    events=("a:b",),
    formats=("name: b\nID: 5\n",),
    header_page="page",
    clock="perf",
    syncs=(ClockSync(2**62, 2, 3, 4),),
    start_ns=1,
    stop_ns=None,
    ring_bytes=4096,
    ring_bytes_wanted=8192,
    opener="native",
    scope="system",
    counts=(),
    mounts=(Mount(1, 2, "/mnt/\udc80 x", "ext4", "/dev/vda"),),
    devices=(BlockDevice(254 << 20, "vda", None, None, 512), BlockDevice(1, "x", "none", False, None, "m")),
    notices=("a", "b"),
)
FINAL = dataclasses.replace(
    META, complete=True, stop_ns=9, exit_code=143, counts=(EventCounts("a:b", (1, 2), (0, 1)),), notices=()
)


@pytest.mark.parametrize("meta", [META, FINAL, dataclasses.replace(FINAL, counts=(EventCounts("a:b", (1, 2), None),))])
def test_the_description_survives_the_disk(meta: SpoolMeta) -> None:
    """Every value, bytes of paths that are no UTF-8 included, in a file that is ASCII."""
    content = dump_meta(meta)
    assert content.isascii()
    assert parse_meta(content) == meta


def altered(**changes: Any) -> bytes:
    """The final description with other values; Ellipsis removes a key."""
    document = {**json.loads(dump_meta(FINAL)), **changes}
    return json.dumps({key: value for key, value in document.items() if value is not ...}).encode()


@pytest.mark.parametrize(
    ("content", "answer"),
    [
        (b"", "no JSON"),
        (b"\xff", "no JSON"),
        (b"[" * 100_000, "no JSON"),
        (b"[]", MAGIC),
        (altered(magic="other"), MAGIC),
        (altered(version=VERSION + 1), f"version {VERSION + 1}, but this lo2io reads versions up to {VERSION}"),
        (altered(version=True), "is none"),
        (altered(version=0), "is none"),
        (altered(clock=...), ".clock is missing"),
        (altered(start_ns="1"), ".start_ns: str instead of int"),
        (altered(complete=1), ".complete: int instead of bool"),
        (altered(roots=7), ".roots: no list"),
        (altered(roots=[7, None]), r".roots\[1\]: NoneType instead of int"),
        (altered(cpus=[[0, 0, 0]]), r".cpus\[0\]: no object"),
        (altered(formats=[]), "1 events and 0 formats"),
        (altered(cpus=[{"cpu": 1, "core": 0, "package": 0}] * 2), "twice"),
        (altered(cpus=[{"cpu": -1, "core": 0, "package": 0}, {"cpu": 1, "core": 0, "package": 0}]), "negative"),
        (altered(counts=[{"name": "a:b", "counts": [1, 2], "lost": [0]}]), "other than the spool's CPUs"),
        (altered(counts=[{"name": "a:b", "counts": [1, -2], "lost": [0, 0]}]), "a size or count is negative"),
        (altered(counts=[{"name": "a:b", "counts": [1, 2], "lost": [0, 0], "slack": [0, -1]}]), "count is negative"),
        (altered(sample_rate=0), "one in 0 is no share"),
        (altered(sample_rate=2**32), "one in 4294967296 is no share"),
        (altered(backend="ebpf"), "recorded by 'ebpf'"),
        (altered(backend="bpf"), "the clock 'perf'"),
        (altered(kernel_facts=True), "the clock 'perf'"),
        (altered(nr_left_out=-1), "negative"),
        (altered(nr_bytes=-1), "a size or count is negative"),
        (altered(missed_runs=-1), "negative"),
        (altered(foreign_calls=-1), "negative"),
        (altered(tasks_lost=-1), "negative"),
        (altered(absences=[{"cpu": 1, "begin_ns": 2**62 + 1, "end_ns": None}]), "146 years away"),
        (altered(absences=[{"cpu": 1, "begin_ns": 1, "end_ns": -(2**62) - 1}]), "146 years away"),
        (altered(recorder_pid=-7), "a process id is none"),
        *((altered(kernel_stacks=[{"stack": n, "functions": []}]), "kernel stack is none") for n in (-1, 2**16, 2**62)),
        (altered(recorder_pid=2**32), "a process id is none"),
        (altered(stop_ns=2**64 - 1), ".stop_ns: 18446744073709551615 does not fit"),
        (altered(stop_ns=2**63 - 1), "146 years away"),
        (altered(roots=[1, 2**70]), ".roots: .* does not fit"),
        (
            altered(devices=[{"device": -1, "name": "x", "scheduler": None, "rotational": None, "size_bytes": 1}]),
            "device",
        ),
        (altered(hostname="\ud800"), ".hostname: a lone surrogate"),
        (altered(cgroup="/a\0b"), ".cgroup: a zero byte"),
        (altered(mode="both"), "the mode 'both'"),
        (altered(mode=...), ".mode is missing"),
        (altered(machine=...), ".machine is missing"),
        (altered(cpus=[{"cpu": n, "core": 0, "package": 0} for n in (0, 2**20)]), "65536 or more"),
    ],
)
def test_what_is_no_description_is_refused(content: bytes, answer: str) -> None:
    """Each with its fault, and never by another error."""
    with pytest.raises(SpoolError, match=answer) as caught:
        parse_meta(content)
    assert caught.value.remedy


@pytest.mark.timeout(30)
def test_a_fifo_in_place_of_the_description_stops_nobody(tmp_path: Path) -> None:
    """Nor does a directory."""
    os.mkfifo(tmp_path / META_NAME)
    with pytest.raises(SpoolError, match="no regular file"):
        SpoolReader(tmp_path)


def test_only_what_an_older_reader_would_misread_has_a_newer_version() -> None:
    """It ignores files of calls; a spool without them is read as always."""
    kernel = dataclasses.replace(FINAL, backend="bpf", clock="monotonic", kernel_facts=True, nr_left_out=3)
    for meta, version in ((FINAL, 1), (kernel, 2)):
        assert json.loads(dump_meta(meta))["version"] == version
        assert parse_meta(dump_meta(meta)) == meta


def test_later_additions_are_passed_over() -> None:
    """A key this version does not know is no reason to refuse; a key with a default may be missing."""
    assert parse_meta(altered(colour="red", exit_code=...)) == dataclasses.replace(FINAL, exit_code=None)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@given(st.sampled_from([field.name for field in dataclasses.fields(SpoolMeta)]), json_values)
def test_any_value_is_read_or_refused(name: str, value: Any) -> None:
    """Whatever stands in place of a value: a description or a SpoolError."""
    with contextlib.suppress(SpoolError):
        assert isinstance(parse_meta(altered(**{name: value})), SpoolMeta)


def test_a_spool_is_written_and_read(tmp_path: Path) -> None:
    """Rings in the order of the CPUs, the description replaced at the end, and nothing else left."""
    path = tmp_path / "new" / "spool"
    with SpoolWriter(path, [0, 5]) as writer:
        writer.write_meta(META)
        assert SpoolReader(path).meta == META
        assert writer.rings[1].append([b"abc", memoryview(b"de")]) == 5
        writer.rings[1].append([b"f"])
        writer.facts.append([b"fact"])
        writer.write_meta(FINAL)
    spool = SpoolReader(path)
    assert spool.meta == FINAL
    assert spool.streams() == [((path / "cpu-0000.ring",), 0), ((path / "cpu-0005.ring",), 5)]
    assert [file.read_bytes() for files, _ in spool.streams() for file in files] == [b"", b"abcdef"]
    assert [file.read_bytes() for file in spool.facts] == [b"fact"]
    assert {entry.name for entry in path.iterdir()} == {META_NAME, "facts.ring", ring_name(0), ring_name(5)}


def test_what_the_kernels_programs_wrote_lies_beside_the_rings(tmp_path: Path) -> None:
    """A file for each CPU, also for one that came later; a reader notices a missing one."""
    path = tmp_path / "spool"
    meta = dataclasses.replace(META, backend="bpf", clock="monotonic", cpus=(Cpu(0, 0, 0), Cpu(5, 5, 0)), counts=())
    with SpoolWriter(path, [0], kernel_records=True) as writer:
        writer.add_ring(5)
        writer.add_ring(0)
        for index, sink in enumerate(writer.calls):
            sink.append([b"%d" % index])
        writer.write_meta(meta)
    spool = SpoolReader(path)
    assert spool.kernel_streams() == [((path / "cpu-0000.calls",), 0), ((path / "cpu-0005.calls",), 5)]
    assert [file.read_bytes() for files, _ in spool.kernel_streams() for file in files] == [b"0", b"1"]
    (path / "cpu-0005.calls").unlink()
    with pytest.raises(SpoolError, match=r"cpu-0005\.calls"):
        SpoolReader(path)


def test_a_cpu_that_comes_back_goes_on_in_its_own_files(tmp_path: Path) -> None:
    """Its perf buffer is a new one, its BPF buffer is not: the next new CPU has its own file, too."""
    with SpoolWriter(tmp_path / "spool", [0, 1], kernel_records=True) as writer:
        writer.add_ring(1)
        writer.add_ring(2)
        for cpu, sink in zip(writer.cpus, writer.calls, strict=True):
            sink.append([b"%d" % cpu])
        writer.rings[2].append([b"again"])
        writer.rings[3].append([b"new"])
    content = {path.name: path.read_bytes() for path in (tmp_path / "spool").glob("cpu-*") if path.stat().st_size}
    assert content == {
        **{f"cpu-000{cpu}.calls": b"%d" % cpu for cpu in range(3)},
        "cpu-0001.ring": b"again",
        "cpu-0002.ring": b"new",
    }


def test_a_spool_without_such_programs_has_no_such_files(tmp_path: Path) -> None:
    """Nor does it miss them."""
    with SpoolWriter(tmp_path / "spool", [0, 5]) as writer:
        writer.write_meta(META)
    assert not writer.calls
    assert not SpoolReader(tmp_path / "spool").kernel_streams()


def test_discarding_removes_what_was_written_and_nothing_else(tmp_path: Path) -> None:
    """A directory somebody put a file into stays."""
    for foreign in (False, True):
        path = tmp_path / f"spool{foreign}"
        writer = SpoolWriter(path, [0], kernel_records=True)
        writer.write_meta(META)
        if foreign:
            (path / "note").touch()
        writer.discard()
        assert [entry.name for entry in tmp_path.glob(f"spool{foreign}/*")] == (["note"] if foreign else [])
        assert path.exists() == foreign


def test_no_spool_overwrites_anything(tmp_path: Path) -> None:
    """Neither a file nor a directory nor a link's target: the directory is new, and the spool's alone."""
    (tmp_path / "file").touch()
    (tmp_path / "empty").mkdir()
    (tmp_path / "link").symlink_to("new")
    for name in ("file", "empty", "link"):
        with pytest.raises(UsageError) as caught:
            SpoolWriter(tmp_path / name, [0])
        assert caught.value.remedy
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("gone", [META_NAME, "facts.ring", "cpu-0005.ring"])
def test_a_spool_without_one_of_its_files_is_none(tmp_path: Path, gone: str) -> None:
    """The error names the file."""
    with SpoolWriter(tmp_path / "spool", [0, 5]) as writer:
        writer.write_meta(META)
    (tmp_path / "spool" / gone).unlink()
    with pytest.raises(SpoolError, match=gone):
        SpoolReader(tmp_path / "spool")


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO])
def test_appending_takes_back_what_does_not_fit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """Short writes are continued; at the end of disk or quota the file ends where the last whole append ended."""
    file = AppendFile(Folder.open(tmp_path), "file")
    real, space = os.writev, 10

    def short_writev(fd: int, views: list[Any]) -> int:
        nonlocal space
        content = b"".join(views)[: min(4, space)]
        if not content:
            raise OSError(number, os.strerror(number))
        space -= len(content)
        return real(fd, [content])

    monkeypatch.setattr(os, "writev", short_writev)
    assert file.append([b"abc", b"defg"]) == 7
    with pytest.raises(DiskFullError, match=os.strerror(number)):
        file.append([b"hi", b"jklm"])
    assert file.path.read_bytes() == b"abcdefg"
    space = 3
    file.append([b"xyz"])
    file.close()
    file.close()
    assert file.path.read_bytes() == b"abcdefgxyz"


def test_facts_are_laid_out_as_the_native_header_says() -> None:
    """Field by field, read through the declarations the engine is compiled from."""
    ffi = _lib.ffi
    task = facts.pack_task(begin_ns=1, end_ns=2, pid=3, tid=4, ppid=5, comm=b"x" * 20, flags=facts.TASK_SELECT)
    assert struct.unpack_from("<IHH", task) == (facts.FACT_TASK, 0, len(task))
    assert len(task) == 8 + ffi.sizeof("lo2_fact_task")
    buffer = ffi.from_buffer(task[8:])
    native = ffi.cast("lo2_fact_task *", buffer)
    assert (native.time_ns, native.begin_time_ns, native.pid, native.tid, native.ppid, native.flags) == (
        2,
        1,
        3,
        4,
        5,
        1,
    )
    assert ffi.buffer(native.comm)[:] == b"x" * 15 + b"\0"
    lib = _lib.lib
    assert (lib.LO2_FACT_TASK, lib.LO2_FACT_FD) == (facts.FACT_TASK, facts.FACT_FD)
    assert (lib.LO2_FACT_TASK_SELECT, lib.LO2_FACT_TASK_FROM_EXEC, lib.LO2_FACT_TASK_COMPAT) == (
        facts.TASK_SELECT,
        facts.TASK_FROM_EXEC,
        facts.TASK_COMPAT,
    )


@pytest.mark.parametrize("path", [b"", b"/", b"/1234567", b"/" + b"x" * 4095])
def test_a_cgroup_follows_its_task(path: bytes) -> None:
    """Hierarchy, and a path padded to eight bytes; one too long for a record is left out."""
    common: dict[str, Any] = {"begin_ns": 1, "end_ns": 2, "pid": 3, "tid": 4, "ppid": 5, "comm": b"x"}
    alone, record = facts.pack_task(**common), facts.pack_task(**common, cgroup=(7, path))
    size = 8 + _lib.ffi.sizeof("lo2_fact_cgroup")
    assert struct.unpack_from("<IHH", record) == (facts.FACT_TASK, 0, len(record))
    assert len(record) % 8 == 0
    assert record[8 : len(alone)] == alone[8:]
    native = _lib.ffi.cast("lo2_fact_cgroup *", _lib.ffi.from_buffer(record[len(alone) :]))
    assert (native.hierarchy, native.path_length) == (7, len(path))
    assert record[len(alone) + size - 8 :] == path + bytes(-len(path) % 8)
    assert facts.pack_task(**common, cgroup=(0, b"/" + b"x" * facts.MAX_PATH_BYTES)) == alone


@pytest.mark.parametrize("path", [b"", b"/tmp/a", b"/12345678", b"/" + b"x" * 4095])
def test_fd_facts_are_laid_out_as_the_native_header_says(path: bytes) -> None:
    """Known and unknown values, and paths padded to eight bytes."""
    ffi = _lib.ffi
    names = ("time_ns", "begin_time_ns", "device", "inode", "position", "pid", "fd", "open_flags", "mode", "mount")
    common: dict[str, int] = {"begin_ns": 1, "end_ns": 2, "pid": 3, "fd": 4, "device": 2**63, "inode": 6, "mode": 7}
    cases: list[tuple[Callable[[], bytes], tuple[int, ...]]] = [
        (
            lambda: facts.pack_fd(path=path, position=8, open_flags=9, mount=10, **common),
            (2, 1, 2**63, 6, 8, 3, 4, 9, 7, 10),
        ),
        (
            lambda: facts.pack_fd(path=path, **common),
            (2, 1, 2**63, 6, UNKNOWN_I64, 3, 4, UNKNOWN_U32, 7, UNKNOWN_U32),
        ),
    ]
    for pack, values in cases:
        record = pack()
        assert struct.unpack_from("<IHH", record) == (facts.FACT_FD, 0, len(record))
        assert len(record) % 8 == 0
        buffer = ffi.from_buffer(record[8:])
        native = ffi.cast("lo2_fact_fd *", buffer)
        assert tuple(getattr(native, name) for name in names) == values
        start = 8 + ffi.sizeof("lo2_fact_fd")
        assert native.path_length == len(path)
        assert record[start:] == path + bytes(-len(path) % 8)


@pytest.mark.parametrize(
    ("given", "values"),
    [
        ({}, (0, 0, -1, UNKNOWN_U32, UNKNOWN_U32)),
        ({"sq_entries": 8, "cq_entries": 16, "poller": 5, "nr_files": 0, "nr_buffers": 6}, (8, 16, 5, 0, 6)),
    ],
)
def test_ring_facts_are_laid_out_as_the_native_header_says(given: dict[str, int], values: tuple[int, ...]) -> None:
    """Known and unknown values: no size is 0, no poller -1; that no file is registered is known."""
    record = facts.pack_ring(begin_ns=1, end_ns=2, pid=3, fd=4, **given)
    assert struct.unpack_from("<IHH", record) == (facts.FACT_RING, 0, len(record))
    assert len(record) == 8 + _lib.ffi.sizeof("lo2_fact_ring")
    native = _lib.ffi.cast("lo2_fact_ring *", _lib.ffi.from_buffer(record[8:]))
    assert (native.time_ns, native.begin_time_ns, native.pid, native.fd) == (2, 1, 3, 4)
    names = ("sq_entries", "cq_entries", "poller", "nr_files", "nr_buffers")
    assert tuple(getattr(native, name) for name in names) == values
    assert facts.FACT_RING == _lib.lib.LO2_FACT_RING


@pytest.mark.parametrize("answer", [errno.EOPNOTSUPP, errno.EBADF, errno.ENOSYS])
def test_a_file_system_that_puts_nothing_aside_is_recorded_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: int
) -> None:
    """The cause is known; only a full disk ends the recording."""

    def refuse(*_: int) -> None:
        raise OSError(answer, os.strerror(answer))

    monkeypatch.setattr(os, "posix_fallocate", refuse)
    with SpoolWriter(tmp_path / "spool", [0]) as writer:
        writer.put_aside(1)
        writer.write_meta(META)
        assert writer.unreserved == os.strerror(answer)
        answer = errno.ENOSPC
        with pytest.raises(CaptureError, match="No space left"):
            writer.put_aside(1)


def test_the_last_description_has_room_from_the_first_on(tmp_path: Path) -> None:
    """Counts and notices make it longer than the first one: three times as much is put aside, and 256 KiB more."""
    path = tmp_path / "spool"
    with SpoolWriter(path, [0, 5]) as writer:
        writer.write_meta(META)
        reserved = (path / RESERVE_NAME).stat()
        assert min(reserved.st_size, 512 * reserved.st_blocks) >= 3 * len(dump_meta(META)) + (256 << 10)
        writer.write_meta(FINAL)
        assert not (path / RESERVE_NAME).exists()
