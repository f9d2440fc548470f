"""The reasons of ``tracepoints/waits.toml``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lo2io.catalog.wait_reasons import load_reasons
from lo2io.errors import CatalogError

if TYPE_CHECKING:
    from pathlib import Path

ONE = 'name = "lock"\nsummary = "a lock"\nfunctions = ["f"]\n'


@pytest.mark.parametrize(
    ("functions", "reason"),
    [
        (("folio_wait_bit_common", "folio_wait_writeback", "do_fsync"), "write-back"),
        (("folio_wait_bit_common", "filemap_update_page"), "page"),
        (("jbd2_log_wait_commit", "ext4_sync_file"), "journal"),
        (("folio_wait_bit_common", "__filemap_fdatawait_range", "btrfs_sync_log"), "journal"),
        (("__x64_sys_read",), "other"),
        (("", "anon_pipe_read.isra.0"), "pipe"),
        (("", ""), "unknown"),
        ((), "unknown"),
    ],
)
def test_the_first_rule_names_the_reason(functions: tuple[str, ...], reason: str) -> None:
    """By any function of the stack, also one that the compiler has cut into parts."""
    reasons = load_reasons()
    assert reasons.names[reasons.number_of(functions)] == reason


@pytest.mark.parametrize(
    "text",
    [
        "schema = 2\n[[reason]]\n" + ONE,
        "schema = 1\nmore = 1\n[[reason]]\n" + ONE,
        "schema = 1\n[[reason]]\n" + ONE.replace("lock", "other", 1),
        "schema = 1\n[[reason]]\n" + ONE + "[[reason]]\n" + ONE,
        "schema = 1\n[[reason]]\n" + ONE + "more = 1\n",
        "schema = 1\n[[reason]]\n" + ONE.replace('["f"]', "[]"),
        "schema = 1\n[[reason]]\n" + ONE.replace("lock", "locks", 1),
        "schema = 1\nreason = 7\n",
        "no TOML",
    ],
)
def test_files_that_break_a_rule(tmp_path: Path, text: str) -> None:
    """The message names the file."""
    (tmp_path / "waits.toml").write_text(text, encoding="utf-8")
    with pytest.raises(CatalogError, match=r"waits\.toml"):
        load_reasons(tmp_path)
