"""The tables of files and paths for their readers: names, their sources, and unknown ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

from build.tablemaker import UNLINKAT, make_batch, write_trace

from lo2io.trace.writer import _text_array

if TYPE_CHECKING:
    from pathlib import Path

KERNEL = 3


def test_a_path_is_carried_whole(tmp_path: Path) -> None:
    """As text, and as bytes if it is no text; an empty path is known, an unreadable one is null."""
    rows = [
        {"operation": 1, "place": 0, "source": KERNEL, "path": b"a\nb", "directory": b"/\xff"},
        {"operation": 1, "place": 1, "source": KERNEL, "path": b"\xfe", "directory": b"/"},
        {"operation": 2, "source": KERNEL, "path": b"", "directory": b"/d"},
        {"operation": 3, "source": KERNEL, "path": b"x"},
        {"operation": 4, "source": 0, "directory": b"/d"},
    ]
    calls = [{"id": number, "call": UNLINKAT} for number in (1, 2, 3, 4)]
    table = write_trace(tmp_path, [make_batch(operations=calls, paths=rows)]).table("paths").to_pylist()
    columns = ("operation", "place", "source", "path", "path_bytes", "directory", "directory_bytes")
    assert [tuple(row[column] for column in columns) for row in table] == [
        (1, 0, "kernel", "a\nb", None, "/\\xff", b"/\xff"),
        (1, 1, "kernel", "\\xfe", b"\xfe", "/", None),
        (2, 0, "kernel", "", None, "/d", None),
        (3, 0, "kernel", "x", None, None, None),
        (4, 0, "unknown", None, None, "/d", None),
    ]


def test_a_file_says_how_it_is_known(tmp_path: Path) -> None:
    """Generation and links if a program told them, else nulls."""
    unknown = 2**32 - 1
    files = [
        {"file": 0, "path": b"/x", "generation": 2**32 - 1, "links": 0, "name_source": KERNEL},
        {"file": 1, "path": b"/y", "links": unknown, "name_source": 1},
    ]
    table = write_trace(tmp_path, [make_batch(files=files)]).files.to_pylist()
    found = [(row["path"], row["generation"], row["links"], row["name_source"]) for row in table]
    assert found == [("/x", 2**32 - 1, 0, "kernel"), ("/y", None, None, "proc")]


def test_a_path_that_is_no_utf8() -> None:
    """A program may lie at such a path. Its stacks are written all the same."""
    texts = ["/tmp/\udcffx", "/tmp/\N{LATIN SMALL LETTER A WITH DIAERESIS}", "plain", None, b"bytes"]
    assert _text_array(texts).to_pylist() == ["/tmp/\\xffx", texts[1], "plain", None, "bytes"]
