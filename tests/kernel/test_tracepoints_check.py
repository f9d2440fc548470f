"""The catalog and the running kernel agree."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lo2io.catalog import load_catalog
from lo2io.kernel.tracefs import find_tracefs, load_format, parse_format
from lo2io.reports.tracepoints import check

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def tracefs() -> Path:
    """The machine's own."""
    return find_tracefs()


@pytest.mark.requires("root", "tracefs")
def test_every_entry_of_the_catalog_is_as_this_kernel_says(tracefs: Path) -> None:
    """No field is missing, of another size or sign; what this kernel lacks is no error."""
    findings = check(load_catalog(), tracefs)
    assert [finding for finding in findings if finding.is_error] == []
    assert not {finding.event for finding in findings} & {"syscalls:sys_enter_read", "syscalls:sys_enter_write"}


@pytest.mark.requires("root", "tracefs")
def test_every_format_of_this_kernel_parses(tracefs: Path) -> None:
    """Some two thousand declarations as kernels write them; the name is that of the directory."""
    files = list((tracefs / "events").glob("*/*/format"))
    assert len(files) > 500
    for file in files:
        event = f"{file.parent.parent.name}:{file.parent.name}"
        layout, text = load_format(tracefs, event)
        assert layout.fields == parse_format(text).fields
        assert layout.field("common_type") is not None
        assert len(layout.fields) == text.count("\tfield:")
