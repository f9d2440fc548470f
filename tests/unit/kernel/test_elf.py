"""Build ids of files, as ``readelf`` tells them."""

from __future__ import annotations

import os
import re
import struct
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lo2io.kernel.elf import read_build_id

if TYPE_CHECKING:
    from collections.abc import Iterable


def build_id(path: Path) -> str:
    """The build id of a file."""
    fd = os.open(path, os.O_RDONLY)
    try:
        return read_build_id(fd)
    finally:
        os.close(fd)


def build_id_of(content: bytes) -> str:
    """The build id of a file with this content."""
    fd = os.memfd_create("program")
    try:
        os.write(fd, content)
        return read_build_id(fd)
    finally:
        os.close(fd)


@pytest.mark.parametrize("style", ["sha1", "md5", "none"])
def test_a_file_has_the_build_id_that_readelf_tells(tmp_path: Path, style: str) -> None:
    """A short one is filled with zeroes, as the kernel fills it; no note, no id."""
    (tmp_path / "code.c").write_text("int main(void) { return 0; }", encoding="ascii")
    program = tmp_path / "code"
    subprocess.run(["cc", f"-Wl,--build-id={style}", "-o", program, tmp_path / "code.c"], check=True)
    told = subprocess.run(["readelf", "-n", program], check=True, capture_output=True, text=True).stdout
    found: Iterable[str] = re.findall(r"Build ID: ([0-9a-f]+)", told)
    assert build_id(program) == "".join(each.ljust(40, "0") for each in found)


def test_other_files_have_none(tmp_path: Path) -> None:
    """A text, an empty file and a cut program."""
    (tmp_path / "text").write_text("#!/bin/sh\n", encoding="ascii")
    (tmp_path / "empty").touch()
    (tmp_path / "cut").write_bytes(Path(sys.executable).read_bytes()[:70])
    assert {build_id(path) for path in tmp_path.iterdir()} == {""}


@given(st.integers(0, 8191), st.binary(min_size=1, max_size=8))
def test_damage_is_no_error(at: int, damage: bytes) -> None:
    """Whichever bytes of a program's start are others."""
    with Path(sys.executable).open("rb") as file:
        content = bytearray(file.read(8192))
    content[at : at + len(damage)] = damage
    assert len(build_id_of(content)) in {0, 40}


@pytest.mark.parametrize("offset", [1 << 62, (1 << 63) - 1, 1 << 63, (1 << 64) - 1])
@pytest.mark.parametrize("of", ["segments", "notes"])
def test_an_offset_that_no_file_has_is_no_error(of: str, offset: int) -> None:
    """Anybody can map such a file, and a recorder of the whole machine reads it."""
    with Path(sys.executable).open("rb") as file:
        content = bytearray(file.read(8192))
    assert build_id_of(content)
    (segments,) = struct.unpack_from("<Q", content, 32)
    notes = [at for at in range(segments, segments + 64 * 56, 56) if content[at : at + 4] == b"\x04\0\0\0"]
    for place in [32] if of == "segments" else [at + 8 for at in notes]:
        struct.pack_into("<Q", content, place, offset)
    assert not build_id_of(content)
