"""Recordings as on a kernel that lacks tracepoints of io_uring: the others are recorded, and the lack is reported."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from workloads.build import build
from workloads.record import verified

from lo2io.capture.recording import RecordOptions, record
from lo2io.catalog.catalog import load_catalog
from lo2io.convert.convert import convert
from lo2io.kernel.tracefs import event_exists, find_tracefs
from lo2io.spool.reader import SpoolReader

if TYPE_CHECKING:
    from lo2io.model.notices import Notice

pytestmark = pytest.mark.requires(
    *("root", "tracefs", "events", "otf2-print"), "io_uring:io_uring_submit_req", "syscalls:sys_enter_io_uring_enter"
)
CHOSEN = load_catalog().select(["syscalls", "io_uring"])
RINGS = tuple(event for event in CHOSEN.events if event.startswith("io_uring:"))


def tracefs_without(folder: Path, *names: str) -> Path:
    """The running kernel's formats, without some tracepoints of io_uring."""
    real = find_tracefs()
    (folder / "events").mkdir(parents=True)
    shutil.copyfile(real / "events/header_page", folder / "events/header_page")
    for event in CHOSEN.events:
        short = event.removeprefix("io_uring:io_uring_")
        if event_exists(real, event) and short not in names and (event not in RINGS or "*" not in names):
            place = Path("events", event.replace(":", "/"), "format")
            (folder / place).parent.mkdir(parents=True)
            shutil.copyfile(real / place, folder / place)
    return folder


def run(tmp_path: Path, tracefs: Path) -> tuple[SpoolReader, dict[str, Any]]:
    """Record a program that uses a ring, and convert: the spool, and the trace's metadata."""
    options = RecordOptions(
        tmp_path / "spool",
        CHOSEN.events,
        optional=CHOSEN.optional,
        newer=CHOSEN.newer,
        filters=CHOSEN.filters,
        command=(str(build("rings")), "nop"),
        tracefs=tracefs,
    )
    told: list[Notice] = []
    assert record(options, told.append).exit_code == 0
    spool = SpoolReader(tmp_path / "spool")
    assert {notice.text for notice in told} <= set(spool.meta.notices)
    convert(tmp_path / "spool", tmp_path / "T")
    return spool, json.loads((tmp_path / "T/lo2io/metadata.json").read_text(encoding="utf-8"))


def test_the_running_kernel_lacks_nothing(tmp_path: Path) -> None:
    """A tracepoint with two names is not lacking if one exists."""
    spool, metadata = run(tmp_path, find_tracefs())
    assert spool.meta.lacking == ()
    assert not any("recording without it" in notice for notice in spool.meta.notices)
    assert metadata["lacking"] == []
    assert sum(event in RINGS for event in spool.meta.events) == len(RINGS) - 1


def test_some_tracepoints_missing(tmp_path: Path) -> None:
    """As on Linux 5.10 to 5.17, which have these tracepoints not yet."""
    names = ("req_failed", "task_work_run", "local_work_run", "cqe_overflow", "short_write")
    spool, metadata = run(tmp_path, tracefs_without(tmp_path / "tracefs", *names))
    lacking = tuple(f"io_uring:io_uring_{name}" for name in names)
    assert spool.meta.lacking == lacking
    assert f"this kernel has no {', '.join(lacking)}: recording without it" in spool.meta.notices
    assert tuple(metadata["lacking"]) == lacking
    assert sum(event in RINGS for event in spool.meta.events) == len(RINGS) - 1 - len(names)
    verified(tmp_path / "T")


def test_no_tracepoint_of_io_uring_at_all(tmp_path: Path) -> None:
    """As on Linux 5.1 to 5.4: the calls are recorded, and the notice is one word long."""
    spool, metadata = run(tmp_path, tracefs_without(tmp_path / "tracefs", "*"))
    assert spool.meta.lacking == RINGS
    assert "this kernel has no io_uring:*: recording without it" in spool.meta.notices
    said = subprocess.run(["otf2-print", "-I", tmp_path / "T/traces.otf2"], capture_output=True, text=True, check=True)
    assert "this kernel has no io_uring:*: recording without it" in said.stdout
    assert tuple(metadata["lacking"]) == RINGS
    assert metadata["totals"]["nr_ring_requests"] == 0
    verified(tmp_path / "T")
