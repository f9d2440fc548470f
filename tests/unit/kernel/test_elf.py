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


@pytest.mark.parametrize("bits", [32, 64])
def test_files_of_both_sizes(bits: int) -> None:
    """Offsets and sizes by elf(5); a file of the other byte order has no id."""
    note = struct.pack("<III4s", 4, 20, 3, b"GNU\0") + bytes(range(20))
    ident = b"\x7fELF" + bytes([bits // 32, 1, 1]) + bytes(9)
    if bits == 32:
        head = struct.pack("<16sHHIIIIIHHHHHH", ident, 2, 3, 1, 0, 52, 0, 0, 52, 32, 2, 0, 0, 0)
        parts = [(1, 0, 0, 0, 9, 9, 5, 4), (4, 116, 0, 0, len(note), len(note), 4, 4)]
        content = head + b"".join(struct.pack("<8I", *part) for part in parts) + note
    else:
        head = struct.pack("<16sHHIQQQIHHHHHH", ident, 2, 62, 1, 0, 64, 0, 0, 64, 56, 2, 0, 0, 0)
        parts = [(1, 5, 0, 0, 0, 9, 9, 4), (4, 4, 176, 0, 0, len(note), len(note), 4)]
        content = head + b"".join(struct.pack("<IIQQQQQQ", *part) for part in parts) + note
    assert build_id_of(content) == bytes(range(20)).hex()
    assert not build_id_of(content[:5] + b"\2" + content[6:])
    assert not build_id_of(content[:4] + b"\3" + content[5:])
