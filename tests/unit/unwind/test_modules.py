"""Files of code are found by their build ids, and name the functions in them: as ``nm`` and ``readelf`` do."""

from __future__ import annotations

import os
import platform
import re
import struct
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest
from elftools.elf.elffile import ELFFile

from lo2io.unwind.modules import Module, Modules
from lo2io.unwind.tables import _rules

CODE = """
int data[64] = {1};
__attribute__((noinline)) int first(int x) { return x + data[0]; }
__attribute__((noinline)) int second(int x) { return first(x) + first(x + 1); }
extern int _hidden_name(int) __attribute__((alias("second")));
static __attribute__((noinline)) int local(int x) { return second(x) * 2; }
int third(int x) { return local(x) + 1; }
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A shared library with functions of several kinds."""
    folder = tmp_path_factory.mktemp("library")
    (folder / "code.c").write_text(CODE, encoding="ascii")
    command = [
        "cc",
        "-shared",
        "-fPIC",
        "-O0",
        "-fcf-protection=none",
        "-Wl,--build-id=sha1",
        "-o",
        "code.so",
        "code.c",
    ]
    if platform.machine() != "x86_64":
        command.remove("-fcf-protection=none")
    subprocess.run(command, cwd=folder, check=True)
    return folder / "code.so"


def build_id(library: Path) -> str:
    """As ``readelf`` tells it."""
    told = subprocess.run(["readelf", "-n", library], check=True, capture_output=True, text=True).stdout
    return re.findall("Build ID: ([0-9a-f]+)", told)[0]


def symbols(library: Path) -> dict[str, tuple[int, int]]:
    """Name → address and size, as ``nm`` tells them."""
    lines = subprocess.run(["nm", "-S", library], check=True, capture_output=True, text=True).stdout.splitlines()
    split = [line.split() for line in lines]
    return {parts[3]: (int(parts[0], 16), int(parts[1], 16)) for parts in split if len(parts) == 4}


def offset_of(module: Module, address: int) -> int:
    """The place in the file of an address of code: the linker gives code of small libraries its offset as address."""
    assert module.address_of(address) == address
    return address


def test_each_byte_of_a_function_has_its_name(library: Path) -> None:
    """Also of a local one; of two names, the one without an underscore in front. Data have none."""
    module, known = Module(library), symbols(library)
    for name in ("first", "second", "local", "third"):
        address, size = known[name]
        offset = offset_of(module, address)
        assert {module.function_at(at) for at in range(offset, offset + size)} == {name}
    assert known["_hidden_name"] == known["second"]
    last = offset_of(module, sum(known["third"]) - 1)
    assert module.function_at(last + 1) != "third"
    assert not module.function_at(known["data"][0])
    assert not module.function_at(library.stat().st_size + 1)
    module.close()


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the rule is that of x86-64")
def test_where_the_return_address_is_on_top(library: Path) -> None:
    """At a function's first instruction; not after its push, and not where another register counts."""
    module, known = Module(library), symbols(library)
    offset = offset_of(module, known["first"][0])
    assert library.read_bytes()[offset] == 0x55, "the function begins with push %rbp"
    assert [module.returns_from_top(offset + step) for step in (0, 1, 4)] == [True, False, False]
    assert not module.returns_from_top(library.stat().st_size + 1)
    module.close()


def test_a_file_is_found_by_its_build_id(library: Path, tmp_path: Path) -> None:
    """Where the trace says; a file of another id, and one that is no program, are passed over."""
    notes = subprocess.run(["readelf", "-n", library], check=True, capture_output=True, text=True).stdout
    found_id = re.search(r"Build ID: (\w+)", notes)
    assert found_id is not None
    (tmp_path / "text").write_text("no program")
    os.mkfifo(tmp_path / "fifo")
    modules = Modules()
    modules.see([None, "sh", str(tmp_path / "text"), str(tmp_path / "fifo"), str(tmp_path / "gone"), str(library)])
    found = modules.find([found_id[1], "", "0" * 40])
    assert {build_id: module.path for build_id, module in found.items()} == {found_id[1]: library}
    found[found_id[1]].close()


def test_a_file_too_large_to_be_read_whole_is_refused(library: Path, tmp_path: Path) -> None:
    """Its symbols would be read into memory."""
    large = tmp_path / "large.so"
    large.write_bytes(library.read_bytes())
    os.truncate(large, (1 << 30) + 1)
    with pytest.raises(ValueError, match="too large"):
        Module(large)
    os.truncate(large, 1 << 30)
    Module(large).close()


@pytest.mark.parametrize("damage", ["made up", "compressed", "beyond the end"])
def test_a_section_that_does_not_stand_in_the_file(library: Path, tmp_path: Path, damage: str) -> None:
    """Anybody may run such a program. Its size takes no memory, and an error of zlib does not end the conversion."""
    content = bytearray(library.read_bytes())
    with Module(library)._stream as stream:
        elf = ELFFile(stream)
        sections = [
            (section["sh_type"], elf["e_shoff"] + at * elf["e_shentsize"])
            for at, section in enumerate(elf.iter_sections())
            if at != elf["e_shstrndx"]
        ]
    wanted = "SHT_SYMTAB" if damage == "made up" else "SHT_STRTAB"
    places = [place for kind, place in sections if kind == wanted]
    assert places
    for place in places:
        offset, size = struct.unpack_from("<QQ", content, place + 24)
        if damage == "made up":
            struct.pack_into("<I", content, place + 4, 8)  # SHT_NOBITS
        elif damage == "beyond the end":
            struct.pack_into("<Q", content, place + 32, 1 << 60)
        else:
            struct.pack_into("<Q", content, place + 8, 0x800)  # SHF_COMPRESSED
            content[offset : offset + size] = (struct.pack("<IIQQ", 1, 0, 1, 1) + b"no zlib" * size)[:size]
    (tmp_path / "damaged").write_bytes(content)
    address, _ = symbols(library)["second"]
    module = Module(tmp_path / "damaged")
    beside = damage == "made up"  # then .dynsym names it
    found = module.function_at(address), bool(module.code_of(b"second", 1))
    module.close()
    assert found == ("second" if beside else "", beside)


def test_only_regular_files_are_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Opening a device may start something: a watchdog, a tape."""
    os.mkfifo(tmp_path / "fifo")
    opened: list[int] = []
    original = os.open
    monkeypatch.setattr(os, "open", lambda path, flags, *more: opened.append(flags) or original(path, flags, *more))
    for path in (tmp_path / "fifo", Path("/dev/null"), tmp_path):
        with pytest.raises(ValueError, match="no regular file"):
            Module(path)
    assert len(opened) == 3
    assert all(flags & os.O_PATH for flags in opened)


def test_files_that_are_not_wanted_are_not_looked_into(library: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Anybody may pass the name of a file to a call, and the file may take hours to look into."""
    modules = Modules()
    modules.see(["/bin/true", str(library), "/etc/passwd"])
    looked: list[Path] = []
    original = Module.__init__
    monkeypatch.setattr(Module, "__init__", lambda self, path: looked.append(path) or original(self, path))
    wanted = build_id(library)
    found = modules.find([wanted, "5" * 40])
    assert list(found) == [wanted]
    assert looked == [library]
    found[wanted].close()


def test_a_long_name_is_cut(library: Path, tmp_path: Path) -> None:
    """The names of a table of symbols may overlap: each takes as much memory as it has letters."""
    content = bytearray(library.read_bytes())
    with Module(library)._stream as stream:
        texts = ELFFile(stream).get_section_by_name(".strtab")
        offset, size = texts["sh_offset"], texts["sh_size"]
    content[offset : offset + size] = b"n" * size
    (tmp_path / "long").write_bytes(content)
    module = Module(tmp_path / "long")
    address, _ = symbols(library)["local"]  # .dynsym does not have it
    monkey = pytest.MonkeyPatch()
    with monkey.context() as patch:
        patch.setattr("lo2io.unwind.modules._MAX_NAME", 50)
        assert module.function_at(address) == "n" * 50
    module.close()


def test_a_row_without_a_frame_is_damage() -> None:
    """A program's own tables may have a row before any that says where the frame begins."""
    for reg, offset in ((None, None), (7, None), (None, 8)):
        row = {"pc": 1, "cfa": SimpleNamespace(reg=reg, offset=offset, expr=None)}
        with pytest.raises(ValueError, match="where the frame begins"):
            _rules(row, interrupted=False)
    row = {"pc": 1, "cfa": SimpleNamespace(reg=7, offset=8, expr=None)}
    assert _rules(row, interrupted=False).offset == 8
