"""tracefs: format files of real kernels, malformed ones, and where it is mounted."""

from __future__ import annotations

import contextlib
import errno
import os
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lo2io.catalog.catalog import load_catalog
from lo2io.errors import AccessError, SpoolError, UsageError
from lo2io.kernel.tracefs import (
    MAX_FORMAT_CHARS,
    FormatError,
    event_exists,
    find_tracefs,
    load_format,
    parse_format,
)
from lo2io.model import EventFormat, FieldLayout

DATA = Path(__file__).parents[2] / "data"
RELEASES = sorted(path.name for path in DATA.iterdir() if (path / "events").is_dir())
FILES = sorted(path.relative_to(DATA).as_posix() for path in DATA.glob("*/events/*/*/format"))
ISSUE = (DATA / "6.18/events/block/block_rq_issue/format").read_text(encoding="ascii")


def read(release: str, event: str) -> EventFormat:
    """A format of the test data."""
    return load_format(DATA / release, event)[0]


def one_field(line: str) -> FieldLayout:
    """The layout of a field line as the kernel writes it."""
    return parse_format(f"name: made\nID: 7\nformat:\n{line}\n").fields[0]


@pytest.mark.parametrize("file", FILES)
def test_every_format_of_the_test_data_parses(file: str) -> None:
    """Fields lie one after the other, after the common header."""
    release, _, subsystem, name, _ = file.split("/")
    layout = read(release, f"{subsystem}:{name}")
    assert layout.name == f"{subsystem}:{name}"
    assert 0 < layout.id < 65536
    assert [field.name for field in layout.fields[:4]] == [
        "common_type",
        "common_flags",
        "common_preempt_count",
        "common_pid",
    ]
    end = 0
    for field in layout.fields:
        assert field.offset >= end
        end = field.offset + field.size


def test_the_test_data_says_where_it_comes_from() -> None:
    """Every release's directory has its row in the README, and every row its directory."""
    rows = re.findall(r"^\| `([\d.]+)` \|", (DATA / "README.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert rows == sorted(RELEASES, key=lambda release: [int(part) for part in release.split(".")])


@pytest.mark.parametrize(
    ("release", "rwbs", "ioprio"),
    [
        ("5.10", FieldLayout("rwbs", "char[8]", 32, 8, signed=True, is_array=True), None),
        ("6.1", FieldLayout("rwbs", "char[8]", 32, 8, signed=True, is_array=True), None),
        ("6.12", FieldLayout("rwbs", "char[8]", 34, 8, signed=False, is_array=True), 32),
        ("6.18", FieldLayout("rwbs", "char[10]", 34, 10, signed=False, is_array=True), 32),
    ],
)
def test_known_differences_between_releases(release: str, rwbs: FieldLayout, ioprio: int | None) -> None:
    """Changes of block_rq_issue: ioprio came, rwbs moved and grew, char lost its sign."""
    layout = read(release, "block:block_rq_issue")
    assert layout.field("rwbs") == rwbs
    found = layout.field("ioprio")
    assert (found and found.offset) == ioprio
    assert layout.field("bytes") == FieldLayout("bytes", "unsigned int", 28, 4, signed=False)
    assert read(release, "block:block_rq_complete").field("error") == FieldLayout("error", "int", 28, 4, signed=True)
    assert read(release, "block:block_rq_complete").field("bytes") is None


def test_dynamic_arrays_are_told_from_fixed_ones() -> None:
    """``cmd`` holds where its characters are, ``comm`` the characters."""
    layout = read("6.18", "block:block_rq_issue")
    assert layout.field("cmd") == FieldLayout("cmd", "__data_loc char[]", 60, 4, signed=False, is_data_loc=True)
    assert layout.field("comm") == FieldLayout("comm", "char[16]", 44, 16, signed=False, is_array=True)
    assert layout.field("nonsense") is None


@pytest.mark.parametrize(
    ("declaration", "name", "ctype", "is_array", "is_data_loc"),
    [
        ("const char * filename", "filename", "const char *", False, False),
        # In the form of kernels with BTF type tags: M. Hiramatsu, 'tracing: Remove "__attribute__()" from the type
        # field of event format', linux-kernel, 15 July 2025, quotes sys_enter_openat.
        (
            'const char __attribute__((btf_type_tag("user"))) * filename',
            "filename",
            'const char __attribute__((btf_type_tag("user"))) *',
            False,
            False,
        ),
        ("const char *const name", "name", "const char *const", False, False),
        ("char*buf", "buf", "char*", False, False),
        ("struct iovec * vec", "vec", "struct iovec *", False, False),
        ("unsigned long args[6]", "args", "unsigned long[6]", True, False),
        ("u8 table[2][16]", "table", "u8[2][16]", True, False),
        ("char comm[TASK_COMM_LEN]", "comm", "char[TASK_COMM_LEN]", True, False),
        ("char buf[]", "buf", "char[]", True, False),
        ("__data_loc char[] cmd", "cmd", "__data_loc char[]", False, True),
        ("__data_loc cpumask_t mask", "mask", "__data_loc cpumask_t", False, True),
        ("__rel_loc char[] text", "text", "__rel_loc char[]", False, False),
        ("void (*function)(struct work_struct *)", "function", "void", False, False),
    ],
)
def test_declarations(declaration: str, name: str, ctype: str, *, is_array: bool, is_data_loc: bool) -> None:
    """Every way in which kernels declare a field."""
    field = one_field(f"\tfield:{declaration};\toffset:8;\tsize:8;\tsigned:0;")
    assert field == FieldLayout(name, ctype, 8, 8, signed=False, is_array=is_array, is_data_loc=is_data_loc)


@pytest.mark.parametrize(
    ("old", "new", "answer"),
    [
        ("name: block_rq_issue\n", "", "lacks a name"),
        ("name: block_rq_issue\n", "name:\n", "lacks a name"),
        ("name: block_rq_issue", "name: block_rq_insert", "this is the format of 'block_rq_insert'"),
        ("ID: 2104\n", "", "lacks a name, an ID"),
        ("ID: 2104", "ID: 0", "the ID '0' is not valid"),
        ("ID: 2104", "ID: 65536", "the ID '65536' is not valid"),
        ("ID: 2104", "ID: -1", "the ID '-1' is not valid"),
        ("ID: 2104", "ID: ²", "the ID '²' is not valid"),
        ("ID: 2104", "ID: " + "9" * 5000, "is not valid"),
        ("offset:8;", "offset:-8;", "the kernel does not write fields like this"),
        ("offset:8;", "offset:65535;", "this field lies beyond the end of any record"),
        ("offset:8;", "offset:" + "9" * 5000 + ";", "the kernel does not write fields like this"),
        ("\tsize:4;", "", "the kernel does not write fields like this"),
        ("signed:0;", "signed:2;", "the kernel does not write fields like this"),
        ("dev_t dev;", "dev;", "no type and name"),
        ("dev_t dev;", "dev_t 7;", "no type and name"),
        ("dev_t dev;", ";", "the kernel does not write fields like this"),
        ("dev_t dev;", "d" * 600 + " dev;", "the kernel does not write fields like this"),
    ],
)
def test_malformed_formats_are_refused(old: str, new: str, answer: str) -> None:
    """A change to a good file; the error names the fault, and is one of a spool."""
    assert old in ISSUE
    with pytest.raises(FormatError) as caught:
        parse_format(ISSUE.replace(old, new, 1), "block:block_rq_issue")
    assert answer in caught.value.answer
    assert isinstance(caught.value, SpoolError)
    assert isinstance(caught.value, ValueError)


def test_endless_formats_are_refused() -> None:
    """Neither a huge text nor a huge number of fields takes long."""
    with pytest.raises(FormatError, match="too many"):
        parse_format(ISSUE + "x" * MAX_FORMAT_CHARS)
    with pytest.raises(FormatError, match="too many"):
        parse_format(ISSUE.replace("print fmt", "\tfield:int a;\toffset:8;\tsize:4;\tsigned:1;\n" * 5000 + "print fmt"))


@given(st.text())
def test_any_text_parses_or_is_refused(text: str) -> None:
    """Every text gives a format or a FormatError."""
    with contextlib.suppress(FormatError):
        assert parse_format(text).fields


@given(st.data())
def test_any_damage_parses_or_is_refused(data: st.DataObject) -> None:
    """The same for a real file with a piece replaced, or cut off."""
    start = data.draw(st.integers(0, len(ISSUE)))
    end = data.draw(st.integers(start, min(len(ISSUE), start + 40)))
    damage = data.draw(st.text(alphabet=st.sampled_from(list("0123456789:;[]()*_- \n\tabcfield")), max_size=40))
    text = ISSUE[:start] + damage + data.draw(st.sampled_from([ISSUE[end:], ""]))
    try:
        layout = parse_format(text)
    except FormatError:
        return
    assert layout.name
    assert all(field.offset + field.size <= 65536 for field in layout.fields)


def make_root(folder: Path, mounts: str) -> Path:
    """A root with the mount table ``mounts``."""
    (folder / "proc/self").mkdir(parents=True)
    (folder / "proc/self/mounts").write_text(mounts, encoding="utf-8")
    return folder


@pytest.mark.parametrize(
    ("mounts", "expected"),
    [
        ("tracefs /sys/kernel/tracing tracefs rw 0 0\n", "sys/kernel/tracing"),
        ("proc /proc proc rw 0 0\nnodev /else\\040where tracefs rw 0 0\n", "else where"),
        ("debugfs /sys/kernel/debug debugfs rw 0 0\n", "sys/kernel/debug/tracing"),
        ("d /sys/kernel/debug debugfs rw 0 0\nt /t tracefs rw 0 0\nt /u tracefs rw 0 0\n", "t"),
    ],
)
def test_tracefs_is_found_in_the_mount_table(tmp_path: Path, mounts: str, expected: str) -> None:
    """Anywhere, octal escapes undone, debugfs only where there is nothing better."""
    root = make_root(tmp_path, mounts)
    (root / "sys/kernel/debug/tracing").mkdir(parents=True)
    assert find_tracefs(root) == root / expected


@pytest.mark.parametrize("mounts", ["", "proc /proc proc rw 0 0\n", "broken\n", "debugfs /debug debugfs rw 0 0\n"])
def test_no_tracefs_is_told_with_its_remedy(tmp_path: Path, mounts: str) -> None:
    """Nothing is mounted for a root other than the real one."""
    with pytest.raises(AccessError) as caught:
        find_tracefs(make_root(tmp_path, mounts))
    assert caught.value.remedy == "sudo mount -t tracefs nodev /sys/kernel/tracing"


def test_events_that_do_not_exist(tmp_path: Path) -> None:
    """A kernel without the tracepoint, and names that are none."""
    assert event_exists(DATA / "5.10", "block:block_rq_issue")
    assert not event_exists(DATA / "5.10", "block:block_io_start")
    assert not event_exists(tmp_path, "block:block_rq_issue")
    with pytest.raises(UsageError, match="this kernel has no such tracepoint"):
        load_format(DATA / "5.10", "block:block_io_start")
    for name in ("block_rq_issue", "block:", "..:..", "block:../x", "a:b:c", "block:block_rq_issue/x", ""):
        with pytest.raises(UsageError, match="must be of the form subsystem:event"):
            event_exists(DATA / "5.10", name)


def test_a_locked_tracefs_is_told_with_its_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel's answer to a user without rights, and the least that helps."""

    def refuse(path: Path) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))

    monkeypatch.setattr(Path, "stat", refuse)
    monkeypatch.setattr(Path, "read_bytes", refuse)
    for look in (event_exists, load_format):
        with pytest.raises(AccessError) as caught:
            look(Path("/sys/kernel/tracing"), "block:block_rq_issue")
        assert caught.value.answer == "Permission denied"
        assert "mount -o remount" in caught.value.remedy


def test_the_text_comes_back_byte_for_byte(tmp_path: Path) -> None:
    """Spools keep it; bytes that are no UTF-8 survive."""
    folder = tmp_path / "events/made/event"
    folder.mkdir(parents=True)
    content = b'name: event\nID: 7\nformat:\n\tfield:int a;\toffset:8;\tsize:4;\tsigned:1;\n\nprint fmt: "\xff"\n'
    (folder / "format").write_bytes(content)
    _, text = load_format(tmp_path, "made:event")
    assert text.encode("utf-8", "surrogateescape") == content


@pytest.mark.parametrize("release", RELEASES)
def test_the_test_data_has_every_core_block_tracepoint(release: str) -> None:
    """The catalog's default tracepoints of requests can be tested on each release."""
    for spec in load_catalog().tracepoints:
        assert event_exists(DATA / release, spec.event) or not spec.core or spec.group != "block"
