"""Reads a spool. In: a directory. Out: its description and the paths of its files."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from lo2io.errors import SpoolError
from lo2io.folder import read_regular
from lo2io.spool.format import (
    CLOCKS_NAME,
    FACTS_NAME,
    MAX_META_BYTES,
    META_NAME,
    RECORD_ENDINGS,
    SEGMENT_NAME,
    SEGMENT_PATTERN,
    events_name,
    kernel_name,
    parse_meta,
    parse_segment_start,
    ring_name,
)

if TYPE_CHECKING:
    from pathlib import Path

    from lo2io.model import SpoolMeta


class SpoolReader:
    """A recorded spool, or one that was cut off.

    Attributes:
        path: The directory.
        meta: The contents of ``spool.json``. ``meta.complete`` is false if the recording was cut off.

    Raises:
        SpoolError: ``path`` is no spool, a newer version wrote it, or one of its files is missing.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        name = path / META_NAME
        try:
            content = read_regular(name, MAX_META_BYTES)
        except OSError as error:
            raise SpoolError(
                f"read {name}",
                error.strerror or str(error),
                "name a spool: T/spool, if --keep-spool or --no-convert left it",
            ) from error
        self.meta = _recover(path, parse_meta(content, str(name)))
        if not self.meta.complete and not self.meta.syncs and not self._has_records():
            raise SpoolError(f"read {path}", "the recorder was killed before it recorded anything", "record again")
        streams = (*self.streams(), *self.kernel_streams(), *self.event_streams())
        files = (file for files, _ in streams for file in files)
        for file in (*files, *self.facts):
            if not file.is_file():
                raise SpoolError(f"read {file}", "no such file", "copy the whole spool: every file of the directory")

    def streams(self) -> list[tuple[tuple[Path, ...], int]]:
        """For each CPU of ``meta.cpus``, the files of its perf buffers, in the order of writing, and its number."""
        return [(self._files(ring_name(cpu.cpu)), cpu.cpu) for cpu in self.meta.cpus]

    def kernel_streams(self) -> list[tuple[tuple[Path, ...], int]]:
        """The same for the calls and facts of lo2io's programs in the kernel. Empty if there were no such programs."""
        cpus = self.meta.cpus if self.meta.has_kernel_records else ()
        return [(self._files(kernel_name(cpu.cpu)), cpu.cpu) for cpu in cpus]

    def event_streams(self) -> list[tuple[tuple[Path, ...], int]]:
        """The same for the events of tracepoints that these programs wrote. Empty if they wrote none."""
        cpus = self.meta.cpus if self.meta.has_event_files else ()
        return [(self._files(events_name(cpu.cpu)), cpu.cpu) for cpu in cpus]

    @property
    def facts(self) -> tuple[Path, ...]:
        """The files of facts, in the order of writing."""
        return self._files(FACTS_NAME)

    @property
    def clocks(self) -> Path | None:
        """The file of readings of the machine's clocks. None: the recorder made none."""
        file = self.path / CLOCKS_NAME
        return file if file.is_file() else None

    @property
    def missing_bytes(self) -> int:
        """Bytes that were recorded and that the files lack. 0 also if nobody counted what was recorded."""
        if self.meta.nr_bytes is None:
            return 0
        streams = (*self.streams(), *self.kernel_streams(), *self.event_streams())
        files = [*(file for files, _ in streams for file in files), *self.facts]
        if self.clocks:
            files.append(self.clocks)
        return max(0, self.meta.nr_bytes - sum(file.stat().st_size for file in files))

    def _has_records(self) -> bool:
        """True if a buffer's file or the file of facts has content."""
        return any(file.stat().st_size for file in self.path.rglob("*") if file.name.endswith(RECORD_ENDINGS))

    def _files(self, name: str) -> tuple[Path, ...]:
        return tuple(self.path / segment / name for segment in self.meta.segments or (".",))


def _recover(path: Path, meta: SpoolMeta) -> SpoolMeta:
    """The description of a flight recorder's spool that was cut off: its segments, and the start of the oldest one."""
    if meta.complete or not meta.segments:
        return meta
    folders = [entry for entry in path.iterdir() if SEGMENT_PATTERN.fullmatch(entry.name) and entry.is_dir()]
    names = tuple(sorted((folder.name for folder in folders), key=lambda name: (len(name), name)))
    if not names or names[0] == meta.segments[0]:
        return replace(meta, segments=names or meta.segments)
    name = path / names[0] / SEGMENT_NAME
    try:
        start = parse_segment_start(read_regular(name, MAX_META_BYTES), str(name))
    except FileNotFoundError:  # the recorder was cut off just after this segment had begun
        return replace(meta, segments=names, recording_start_ns=meta.start_ns)
    except OSError as error:
        raise SpoolError(
            f"read {name}", error.strerror or str(error), "record again; this spool cannot be read"
        ) from error
    return replace(
        meta, segments=names, start_ns=start.start_ns, recording_start_ns=meta.start_ns, syncs=start.syncs or meta.syncs
    )
