"""Which code a process had mapped when the recording began: as ``/proc`` shows it of this process."""

from __future__ import annotations

import os
import re
import struct
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from lo2io.capture.procscan.process import FactWriter
from lo2io.spool.facts import FACT_MAPPING, TASK_FROM_EXEC, MappingFact, read_mapping
from lo2io.unwind.modules import Module

if TYPE_CHECKING:
    from collections.abc import Sequence


class Sink:
    """Keeps the facts about mappings."""

    def __init__(self) -> None:
        self.found: list[MappingFact] = []

    def append(self, views: Sequence[memoryview | bytes]) -> int:
        """Take the facts apart."""
        content, at = b"".join(views), 0
        while at < len(content):
            kind, _, size = struct.unpack_from("<IHH", content, at)
            if kind == FACT_MAPPING:
                fact = read_mapping(content[at : at + size])
                assert fact is not None
                self.found.append(fact)
            at += size
        return len(content)


def told(flags: int = 0, *, code: bool = True) -> list[MappingFact]:
    """The facts of a look at this process, and of a second look that sees the same threads."""
    sink, seen = Sink(), set[int]()
    writer = FactWriter(sink, pytest.fail, code=code)
    writer.write_threads(os.getpid(), flags, seen)
    writer.write_threads(os.getpid(), flags, seen)
    return sink.found


def test_each_piece_of_code_is_told_once() -> None:
    """With its addresses, its place in the file, and the file's path. Who may look at the file has its build id."""
    pattern = re.compile(r"([0-9a-f]+)-([0-9a-f]+) ..x. ([0-9a-f]+) \S+ \d+ *(.*)")
    found = told()
    lines = filter(None, map(pattern.fullmatch, Path("/proc/self/maps").read_text(encoding="utf-8").splitlines()))
    wanted = [(*(int(part, 16) for part in line.groups()[:3]), line[4]) for line in lines]
    assert [(each.begin, each.end, each.offset, each.path) for each in found] == wanted
    for each in found:
        if each.build_id:
            module = Module(Path(each.path))
            assert each.build_id == module.build_id
            module.close()
    assert any(each.build_id for each in found) == (os.geteuid() == 0)


def test_without_the_layer_nothing_is_told() -> None:
    """Nor of a command that is about to become another program."""
    assert told(code=False) == []
    assert told(TASK_FROM_EXEC) == []
