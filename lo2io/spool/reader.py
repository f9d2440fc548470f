"""A spool from the disk: a directory in, its description and the paths of its streams out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lo2io.errors import SpoolError
from lo2io.spool.format import FACTS_NAME, MAX_META_BYTES, META_NAME, parse_meta, ring_name

if TYPE_CHECKING:
    from pathlib import Path


class SpoolReader:
    """A recorded spool, or one that was cut off.

    Attributes:
        path: The directory.
        meta: What ``spool.json`` says; ``meta.complete`` is false if recording did not end in good order.

    Raises:
        SpoolError: ``path`` is no spool, a newer one, or one without one of its files.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        name = path / META_NAME
        try:
            if name.stat().st_size > MAX_META_BYTES:
                raise SpoolError(f"read {name}", "too large for a spool's description", "record again")
            content = name.read_bytes()
        except OSError as error:
            raise SpoolError(
                f"read {name}", error.strerror or str(error), "name the directory that `lo2io record` wrote"
            ) from error
        self.meta = parse_meta(content, str(name))
        for file in (*(file for files, _ in self.streams() for file in files), *self.facts):
            if not file.is_file():
                raise SpoolError(f"read {file}", "no such file", "copy the spool whole: every file of the directory")

    def streams(self) -> list[tuple[tuple[Path, ...], int]]:
        """Each CPU's ring files, in the order they were written, and its number; in the order of ``meta.cpus``."""
        return [(self._files(ring_name(cpu.cpu)), cpu.cpu) for cpu in self.meta.cpus]

    @property
    def facts(self) -> tuple[Path, ...]:
        """The files of facts, in the order they were written."""
        return self._files(FACTS_NAME)

    def _files(self, name: str) -> tuple[Path, ...]:
        return tuple(self.path / segment / name for segment in self.meta.segments or (".",))
