"""The catalog and the running kernel agree."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from lo2io.catalog.catalog import load_catalog
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
        common = layout.fields[0]
        assert (common.name, common.offset, common.size, common.signed) == ("common_type", 0, 2, False)
        assert len(layout.fields) == text.count("\tfield:")


_UNMOUNTED = """
import ctypes, os, re, sys
libc = ctypes.CDLL(None, use_errno=True)
MS_REC, MS_PRIVATE, MNT_DETACH = 0x4000, 1 << 18, 2
assert libc.unshare(0x20000) == 0  # CLONE_NEWNS: what is unmounted here stays mounted for everybody else
assert libc.mount(None, b"/", None, MS_REC | MS_PRIVATE, None) == 0
with open("/proc/self/mounts") as mounts:
    for line in reversed(mounts.readlines()):
        if line.split()[2] in ("tracefs", "debugfs"):
            assert libc.umount2(line.split()[1].encode(), MNT_DETACH) == 0
if sys.argv[1] == "nobody":
    os.setgroups([])
    os.setuid(65534)
from lo2io.errors import AccessError
from lo2io.kernel.tracefs import event_exists, find_tracefs
try:
    folder = find_tracefs()
except AccessError as error:
    print(error.answer, error.remedy, sep="; ")
else:
    print(folder, event_exists(folder, "block:block_rq_issue"))
"""


@pytest.mark.requires("root", "tracefs")
@pytest.mark.parametrize(
    ("user", "said"),
    [
        ("root", "/sys/kernel/tracing True"),
        ("nobody", "Operation not permitted; sudo mount -t tracefs nodev /sys/kernel/tracing"),
    ],
)
def test_tracefs_is_mounted_where_it_is_nowhere(user: str, said: str) -> None:
    """In a mount namespace of its own, without tracefs: root gets one, others are told how."""
    run = subprocess.run([sys.executable, "-c", _UNMOUNTED, user], capture_output=True, text=True, check=False)
    assert (run.stdout, run.stderr) == (f"{said}\n", "")
