"""Repeats a recorded workload with fio, on new files or on a scratch disk.

In: a trace, and a folder or disk. Out: the same operations, offsets and sizes, at the recorded times. The data is
random. Only with ``in_place`` does the replay touch the original files.

New files hold the bytes that are read before they are written; these bytes are not in the page cache when the replay
begins. The replay has a folder of its own, where fio finds the logs, and files or links under short names. So the
original names may be of any form.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from lo2io.errors import CommandError, Lo2ioError, UsageError
from lo2io.exports.fio.disks import check_disk, disk_size
from lo2io.exports.fio.iolog import JOB_FILE, default_settings, job_file, write_logs
from lo2io.exports.fio.plan import BLOCK_BYTES, Extents, make_plan
from lo2io.exports.target import check_apart
from lo2io.folder import Folder
from lo2io.units import format_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from lo2io.exports.fio.plan import Plan
    from lo2io.trace.reader import Trace

_PREFIX: Final = "lo2io-replay-"
_DELETED: Final = b" (deleted)"
"""The kernel's suffix to the name of a deleted file (``d_path``, fs/d_path.c)."""


@dataclass(frozen=True, slots=True)
class ReplayOptions:
    """The options of a replay."""

    on: Path | None = None
    """A folder for new files, or a disk. All data on the disk is lost."""
    in_place: bool = False
    """Use the original files or disks. The replay overwrites them as the trace does."""
    copy: bool = False
    """Begin with copies of the original files in their present state."""
    by: str = "thread"
    """The owner of a job: ``process`` or ``thread``; or ``device``, to replay block requests."""
    waits: bool = True
    """Keep the pauses of the original. Else each action follows the previous one at once."""
    engine: str | None = None
    depth: int | None = None
    """fio's ``ioengine`` and ``iodepth``; None: the defaults for the kind of job."""
    keep: bool = False
    """Keep logs and files."""


def replay(trace: Trace, options: ReplayOptions, say: Callable[[str], None], *, as_json: bool = False) -> Path | None:
    """Repeat a trace's operations with fio. fio's report goes to stdout.

    Args:
        trace: The trace to repeat.
        options: The place and the manner of the replay.
        say: Takes messages for the user.
        as_json: Let fio report in JSON.

    Returns:
        The folder of logs and files that were kept; None: nothing was kept.

    Raises:
        UsageError: Neither a place nor ``in_place`` is given, or the place cannot be used.
        CommandError: fio is not installed.
        Lo2ioError: A file cannot be made, or fio failed.
        TraceError: A table cannot be read.
    """
    _check(trace, options)
    plan = make_plan(trace, options.by, lambda _: None)
    for note in plan.notes():
        say(note)
    if not plan.jobs:
        raise UsageError(
            f"replay {trace.path}", "the trace has no operations that fio can repeat", "record reads, writes or syncs"
        )
    place = options.on if options.on is not None and options.on.is_dir() else None
    held = _make_folder(place)
    folder = held.place
    try:
        names, settings = _names(plan, options, say), _settings(options)
        if not names:
            raise UsageError(f"replay {trace.path}", "its files cannot be found again", "use --on FOLDER")
        if options.in_place and options.by != "device":
            _check_originals(trace, plan, _written(plan) & names.keys())
        extents = Extents(len(plan.paths), in_turn=settings.get("iodepth", 1) == 1)
        written = write_logs(plan, folder, names, lambda _: None, version=3 if options.waits else 2, extents=extents)
        (folder / JOB_FILE).write_text(job_file(plan, names, settings), encoding="utf-8")
        _make_files(plan, folder, names, extents, options)
        jobs = [job for job in plan.jobs.values() if not job.uses.keys().isdisjoint(names)]
        say(f"replaying {written:,} actions in {len(jobs):,} jobs on {len(names):,} files")
        _run(folder, as_json=as_json)
    except OSError as error:
        remedy = "free space there, or name another place with --on"
        raise Lo2ioError(f"write to {held.path}", error.strerror or str(error), remedy) from error
    finally:
        if not options.keep:
            with contextlib.suppress(OSError):
                held.discard()
    return held.path if options.keep else None


def _check(trace: Trace, options: ReplayOptions) -> None:
    tried = f"replay {trace.path}"
    if options.on is None and not options.in_place:
        remedy = "name a folder or a scratch disk with --on, or overwrite the originals with --in-place"
        raise UsageError(tried, "no place for the replay is given", remedy)
    if options.on is not None and options.in_place:
        raise UsageError(tried, "--on and --in-place exclude each other", "give one of them")
    if options.copy and (options.in_place or options.by == "device" or not (options.on or Path()).is_dir()):
        raise UsageError(tried, "only files in a folder can begin as copies", "leave --copy away, or use --on FOLDER")
    if options.on is not None:
        check_apart(options.on, trace.path)
        if not options.on.is_dir():
            check_disk(trace, options.on)
    if shutil.which("fio") is None:
        raise CommandError(tried, "fio is not installed", "install it: `apt install fio`")


def _settings(options: ReplayOptions) -> Mapping[str, str | int]:
    settings = {**default_settings(options.by), "group_reporting": 1}
    if options.engine is not None:
        settings["ioengine"] = options.engine
    if options.depth is not None:
        settings["iodepth"] = options.depth
    return settings


def _make_folder(place: Path | None) -> Folder:
    """Make a folder. fio gets it by descriptor, so the owner of the place cannot put another folder in its stead."""
    beside = place or Path(tempfile.gettempdir())
    try:
        return Folder.open(beside).make(f"{_PREFIX}{os.urandom(4).hex()}")
    except OSError as error:
        raise UsageError(
            f"make a folder in {beside}", error.strerror or str(error), "name another place with --on"
        ) from error


def _names(plan: Plan, options: ReplayOptions, say: Callable[[str], None]) -> dict[int, bytes]:
    """The short name of each used file. With ``in_place``, only files that can be found again have one."""
    used = sorted({file for job in plan.jobs.values() for file in job.uses})
    if options.in_place:
        found = [n for n in used if plan.paths[n].startswith(b"/") and not plan.paths[n].endswith(_DELETED)]
        if len(found) < len(used):
            say(f"left out: {len(used) - len(found):,} files that were deleted, or whose folder is not known")
        used = found
    return {number: b"f%06d" % number for number in used}


def _make_files(plan: Plan, folder: Path, names: Mapping[int, bytes], extents: Extents, options: ReplayOptions) -> None:
    """Make the files that fio opens, or links to the original files or to the disk."""
    needed = {number: int(extents.needed[number]) for number in names}
    if options.on is not None and not options.on.is_dir():
        size, end = disk_size(options.on), max((int(extents.ends[number]) for number in names), default=0)
        if end > size:
            answer = f"the disk has {format_bytes(size)}, but the trace uses {format_bytes(end)}"
            disks = [os.fsdecode(plan.paths[number]).removeprefix("/dev/") for number in names]
            several = options.by == "device" and len(disks) > 1
            choice = f", or choose one of the trace's disks: --filter 'device == {disks[0]}'" if several else ""
            raise UsageError(f"replay on {options.on}", answer, f"name a larger one, or a folder{choice}")
        for name in names.values():
            (folder / os.fsdecode(name)).symlink_to(options.on.resolve())
        return
    if options.in_place:
        _link_originals(plan, folder, names, needed, trace_writes=_written(plan))
        return
    copied = {number: _original_size(plan.paths[number]) if options.copy else 0 for number in names}
    made = (_made_bytes(extents.blocks[number], needed[number], copied[number]) for number in names)
    _check_space(folder, options.on, sum(copied.values()) + sum(made))
    for number, name in names.items():
        if needed[number] or copied[number]:
            path, source = folder / os.fsdecode(name), plan.paths[number] if copied[number] else None
            _make_file(path, needed[number], sorted(extents.blocks[number]), source)


def _written(plan: Plan) -> set[int]:
    return {file for job in plan.jobs.values() if job.writes for file in job.uses}


def _check_originals(trace: Trace, plan: Plan, numbers: set[int]) -> None:
    """Check that each file to be written is the recorded one.

    Another file may have the name by now, or the name may be from within a container.
    """
    inodes: dict[bytes, set[int]] = {}
    for batch in trace.text_batches("files", ["path", "path_bytes", "inode"]):
        for path, exact, inode in zip(*batch, strict=True):
            if path is not None and inode is not None:
                inodes.setdefault(path.encode() if exact is None else exact, set()).add(inode)
    for number in sorted(numbers):
        known, path = inodes.get(plan.paths[number]), Path(os.fsdecode(plan.paths[number]))
        try:
            inode = path.stat().st_ino
        except OSError:
            continue  # a missing file is made; other errors are reported later
        if known and inode not in known:
            answer = f"this is not the recorded file: inode {inode} instead of {', '.join(map(str, sorted(known)))}"
            raise UsageError(
                f"replay on {path}", answer, "use --on FOLDER; with --copy the replay begins with a copy of this file"
            )


def _link_originals(
    plan: Plan, folder: Path, names: Mapping[int, bytes], needed: Mapping[int, int], trace_writes: set[int]
) -> None:
    for number, name in names.items():
        path = Path(os.fsdecode(plan.paths[number]))
        is_disk = path.is_block_device()
        try:
            size = disk_size(path) if is_disk else path.stat().st_size
        except FileNotFoundError:
            size = 0
        except OSError as error:
            raise UsageError(f"replay on {path}", error.strerror or str(error), "use --on FOLDER") from error
        if needed[number] > size:
            answer = f"the trace reads {needed[number]:,} bytes of the file, but the file has {size:,}"
            raise UsageError(f"replay on {path}", answer, "use --on FOLDER: the replay then makes the missing bytes")
        if is_disk and number in trace_writes:
            check_disk(None, path)
        (folder / os.fsdecode(name)).symlink_to(path)


def _original_size(path: bytes) -> int:
    """The size of a regular file that exists and can be copied; else 0."""
    original = Path(os.fsdecode(path))
    return original.stat().st_size if original.is_file() and os.access(original, os.R_OK) else 0


def _check_space(folder: Path, place: Path | None, size: int) -> None:
    found = os.statvfs(folder)
    free = found.f_bavail * found.f_frsize
    if size > free:
        answer = f"the files need {format_bytes(size)}, but only {format_bytes(free)} are free"
        raise UsageError(f"replay on {place or tempfile.gettempdir()}", answer, "name another place with --on")


def _made_bytes(blocks: Collection[int], size: int, there: int) -> int:
    """The bytes to make for these blocks of a file of ``size`` bytes, of which the first ``there`` exist."""
    return sum(max(0, min((block + 1) * BLOCK_BYTES, size) - max(block * BLOCK_BYTES, there)) for block in blocks)


def _make_file(path: Path, size: int, blocks: Sequence[int], source: bytes | None) -> None:
    """Make a file that is on the disk and not in the page cache.

    The file begins with a copy of ``source``, if there is one. The rest of the given blocks gets random bytes.
    """
    noise = os.urandom(BLOCK_BYTES)
    try:
        path.touch()
        if source is not None:
            shutil.copyfile(os.fsdecode(source), path)
        with path.open("r+b") as file:
            there = file.seek(0, os.SEEK_END)
            for block in blocks:
                begin = max(block * BLOCK_BYTES, there)
                end = min((block + 1) * BLOCK_BYTES, size)
                if begin < end:
                    file.seek(begin)
                    file.write(noise[: end - begin])
            file.flush()
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    except OSError as error:
        tried = f"make a file of {format_bytes(size)} for the replay"
        raise Lo2ioError(tried, error.strerror or str(error), "name another place with --on") from error


def _run(folder: Path, *, as_json: bool) -> None:
    arguments: Sequence[Any] = ["fio", *(["--output-format=json"] if as_json else []), JOB_FILE]
    with subprocess.Popen(arguments, cwd=folder) as fio:
        try:
            code = fio.wait()
        except BaseException:
            fio.terminate()  # fio then ends its jobs; after a kill, these processes would go on
            fio.wait()
            raise
    if code:
        answer = f"fio ended with code {code}" if code > 0 else f"signal {-code} ended fio"
        raise Lo2ioError("replay with fio", answer, "fio's messages above say why; --keep keeps its job file and logs")
