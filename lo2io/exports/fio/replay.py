"""A recorded workload done again by fio, on files or a disk of its own.

In: a trace, and a folder or disk. Out: the same operations, offsets and bytes, at the times they had; the data is
random. The originals are touched with ``in_place`` alone.

Of a file is made what is read before it is written, and it is not in the page cache when the replay begins. All
happens in a folder made for it, where fio finds the logs, and files or links under short names: so any name will do.
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
"""What the kernel puts behind the name of a file that has none any more (``d_path``, fs/d_path.c)."""


@dataclass(frozen=True, slots=True)
class ReplayOptions:
    """How to replay."""

    on: Path | None = None
    """A folder, for files of the replay's own, or a disk, whose contents are lost."""
    in_place: bool = False
    """Use the original files or disks, whose contents are lost where the trace writes."""
    copy: bool = False
    """Begin with copies of the original files, as they are now."""
    by: str = "thread"
    """What acts at once: ``process``, ``thread``, or ``device``, where block requests are replayed."""
    waits: bool = True
    """Wait as the original did; else one action right after the other."""
    engine: str | None = None
    depth: int | None = None
    """fio's ``ioengine`` and ``iodepth``, instead of those that fit."""
    keep: bool = False
    """Leave logs and files."""


def replay(trace: Trace, options: ReplayOptions, say: Callable[[str], None], *, as_json: bool = False) -> Path | None:
    """Have fio do what the trace's programs did; its report goes to stdout.

    Args:
        trace: What to do again.
        options: On what, and how.
        say: Takes messages for the user.
        as_json: Let fio report in JSON.

    Returns:
        Where logs and files were left; None: nowhere.

    Raises:
        UsageError: Neither a place nor ``in_place`` is given, or the place will not do.
        CommandError: fio is not installed.
        Lo2ioError: A file cannot be made, or fio failed.
        TraceError: A table cannot be read.
    """
    _check(trace, options)
    plan = make_plan(trace, options.by, lambda _: None)
    for note in plan.notes():
        say(note)
    if not plan.jobs:
        raise UsageError(f"replay {trace.path}", "it holds nothing that fio can do", "record reads, writes or syncs")
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
        raise UsageError(tried, "it is not said on what", remedy)
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
    """A folder of its own, which fio gets by descriptor: whoever owns the place cannot exchange it for another."""
    beside = place or Path(tempfile.gettempdir())
    try:
        return Folder.open(beside).make(f"{_PREFIX}{os.urandom(4).hex()}")
    except OSError as error:
        raise UsageError(
            f"make a folder in {beside}", error.strerror or str(error), "name another place with --on"
        ) from error


def _names(plan: Plan, options: ReplayOptions, say: Callable[[str], None]) -> dict[int, bytes]:
    """The short name of each used file; in place, only of files that can be found again."""
    used = sorted({file for job in plan.jobs.values() for file in job.uses})
    if options.in_place:
        found = [n for n in used if plan.paths[n].startswith(b"/") and not plan.paths[n].endswith(_DELETED)]
        if len(found) < len(used):
            say(f"left out: {len(used) - len(found):,} files that were deleted, or are relative to a folder not known")
        used = found
    return {number: b"f%06d" % number for number in used}


def _make_files(plan: Plan, folder: Path, names: Mapping[int, bytes], extents: Extents, options: ReplayOptions) -> None:
    """What fio is to find under the names: files, or links to the originals or the disk."""
    needed = {number: int(extents.needed[number]) for number in names}
    if options.on is not None and not options.on.is_dir():
        size, end = disk_size(options.on), max((int(extents.ends[number]) for number in names), default=0)
        if end > size:
            answer = f"it has {format_bytes(size)}, and the trace goes up to {format_bytes(end)}"
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
    """Check that each written file is the recorded one: another may have its name by now, or outside of a container."""
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
            continue  # what is not there is made, and for the rest there is an error of its own
        if known and inode not in known:
            answer = (
                f"it is another file than the one recorded: inode {inode}, and not {', '.join(map(str, sorted(known)))}"
            )
            raise UsageError(f"replay on {path}", answer, "use --on FOLDER; with --copy it begins as that file")


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
            answer = f"the trace reads {needed[number]:,} bytes of it, and it has {size:,}"
            raise UsageError(f"replay on {path}", answer, "use --on FOLDER, where what is missing is made")
        if is_disk and number in trace_writes:
            check_disk(None, path)
        (folder / os.fsdecode(name)).symlink_to(path)


def _original_size(path: bytes) -> int:
    """Bytes of a regular file that is there and can be copied; else 0."""
    original = Path(os.fsdecode(path))
    return original.stat().st_size if original.is_file() and os.access(original, os.R_OK) else 0


def _check_space(folder: Path, place: Path | None, size: int) -> None:
    found = os.statvfs(folder)
    free = found.f_bavail * found.f_frsize
    if size > free:
        answer = f"the files need {format_bytes(size)}, and {format_bytes(free)} are free"
        raise UsageError(f"replay on {place or tempfile.gettempdir()}", answer, "name another place with --on")


def _made_bytes(blocks: Collection[int], size: int, there: int) -> int:
    """What is made of a file of that size in these blocks, beside what is there."""
    return sum(max(0, min((block + 1) * BLOCK_BYTES, size) - max(block * BLOCK_BYTES, there)) for block in blocks)


def _make_file(path: Path, size: int, blocks: Sequence[int], source: bytes | None) -> None:
    """A file on the disk and not in the page cache: a copy, if there is one, then random bytes wherever it is read."""
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
            fio.terminate()  # and it its jobs, which are processes, too: killed, it would leave them at work
            fio.wait()
            raise
    if code:
        answer = f"it ended with code {code}" if code > 0 else f"signal {-code} ended it"
        raise Lo2ioError("replay with fio", answer, "what it wrote above says why; --keep leaves its job file and logs")
